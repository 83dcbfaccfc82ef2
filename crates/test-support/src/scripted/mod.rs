//! A control plane written by hand: the real CA, the real protocol, and whatever a test wants
//! it to say.

pub mod stage;
pub mod stolen;
pub mod victim;

use std::convert::Infallible;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use model::{CertificateValidity, Hostname};
use net::ServerUrl;
use net::accept::AcceptLimits;
use net::issue::{Ca, CertificateRequest};
use serde::Serialize;
use sync::frame::{Capabilities, Hello, VERSIONS};
use sync::{FeedCursor, Frame, Mode, Role};
use trust::SigningKey;
use wire::body::{JSON, MAX_ANSWER};
use wire::cloudevents::Origin;
use wire::problem::PROBLEM_JSON;

use crate::children::program;
use crate::tls_server::TlsServer;

pub type Reply = Response<Full<Bytes>>;

pub use crate::tls_server::now;

/// A key that only this number has.
pub fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32])
}

/// A server under a CA, with a handler of its test.
pub struct ScriptedControl {
    server: TlsServer,
}

impl ScriptedControl {
    /// Serves on loopback under a new CA; the handler gets each request with its body
    /// unpacked.
    pub async fn start<H>(names: &[&str], handle: H) -> ScriptedControl
    where
        H: Fn(&Parts, Bytes) -> Reply + Clone + Send + Sync + 'static,
    {
        let answer = move |request| answer(request, handle.clone());
        ScriptedControl { server: TlsServer::named(names, AcceptLimits::default(), false, answer).await }
    }

    /// Where nodes call: a port of this machine.
    pub fn url(&self) -> ServerUrl {
        format!("https://127.0.0.1:{}", self.server.address.port()).parse().unwrap()
    }

    /// The CA of the server and of its nodes.
    pub fn ca(&self) -> &Ca {
        &self.server.ca
    }

    /// New connections get a certificate with this validity.
    pub fn certify(&self, validity: CertificateValidity) {
        self.server.certify(validity);
    }

    /// The certificate of a node under this CA.
    pub fn certificate(&self, key: &SigningKey, hostname: &Hostname) -> String {
        certificate(self.ca(), key, hostname)
    }
}

/// The certificate of a node under a CA.
pub fn certificate(ca: &Ca, key: &SigningKey, hostname: &Hostname) -> String {
    let csr = CertificateRequest::read(&net::issue::node_request(key, hostname).unwrap()).unwrap();
    let (id, validity) = (key.public().node_id(), net::issue::node_validity(now()));
    ca.issue_node(&csr, &id, hostname, [9; 16], validity).unwrap()
}

async fn answer<H: Fn(&Parts, Bytes) -> Reply>(
    request: Request<Incoming>,
    handle: H,
) -> Response<http_body_util::combinators::BoxBody<Bytes, Infallible>> {
    let (parts, body) = request.into_parts();
    // A stream's body has no end.
    let streams = parts.uri.path() == wire::route::SUBSCRIBE;
    let sent = match streams {
        true => Bytes::new(),
        false => body.collect().await.map(|body| body.to_bytes()).unwrap_or_default(),
    };
    let coding = parts.headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap().to_owned());
    // The digest is over the body as sent, which the extensions keep.
    let plain = wire::body::unpack(sent.to_vec(), coding.as_deref(), MAX_ANSWER).unwrap();
    let mut parts = parts;
    parts.extensions.insert(AsSent(sent));
    handle(&parts, plain.into()).map(BodyExt::boxed)
}

/// The body as it was sent.
#[derive(Clone)]
pub struct AsSent(pub Bytes);

pub fn json<T: Serialize>(value: &T) -> Reply {
    reply(StatusCode::OK, JSON, serde_json::to_vec(value).unwrap())
}

pub fn problem(problem: &wire::Problem) -> Reply {
    let status = StatusCode::from_u16(problem.status).unwrap();
    reply(status, PROBLEM_JSON, serde_json::to_vec(problem).unwrap())
}

pub fn reply(status: StatusCode, kind: &str, bytes: Vec<u8>) -> Reply {
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, kind)
        .body(Full::new(bytes.into()))
        .unwrap()
}

/// The hello of a control plane that has no objects for the node.
pub fn hello() -> Frame {
    Frame::Hello(Box::new(Hello {
        versions: VERSIONS,
        capabilities: Capabilities::ALL,
        role: Role::Principal,
        mode: Mode::Managed,
        instance: "c1".to_owned(),
        head: FeedCursor::at("c1".parse().unwrap(), 0),
        have: None,
        after: None,
    }))
}

/// The answer to a post.
pub fn said(frames: Vec<Frame>) -> Reply {
    let batch = wire::batch::FrameBatch { frames, more: false };
    let body = wire::batch::encode(&mut Origin::principal("c"), &batch).unwrap();
    reply(StatusCode::OK, JSON, body)
}

/// The daemon as a process of its own; ended when it goes.
pub struct DaemonProcess(Child);

impl DaemonProcess {
    pub fn start(state: &Path, root: &Path) -> DaemonProcess {
        let mut command = Command::new(program("muster-agent"));
        command.arg("--state").arg(state).arg("--root").arg(root).arg("daemon");
        command.env("MUSTER_LOG", "warn").stdout(Stdio::null());
        DaemonProcess(command.spawn().unwrap())
    }

    /// Makes it check in and converge at once.
    pub fn nudge(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    }

    pub fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
