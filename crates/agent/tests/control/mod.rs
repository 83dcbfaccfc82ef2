//! A control plane written by hand: the real CA, the real protocol, and whatever a test wants
//! it to say.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, missing_docs)]

pub mod stage;

use std::convert::Infallible;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use model::{Hostname, Timestamp};
use net::ServerUrl;
use net::accept::{Limits, serve};
use net::issue::{Ca, NodeRequest};
use net::tls::{self, ClientAuth};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use trust::SigningKey;
use wire::body::{JSON, MAX_ANSWER};
use wire::problem::PROBLEM_JSON;

/// How long anything may take before a test fails.
const DEADLINE: Duration = Duration::from_secs(30);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

pub type Reply = Response<Full<Bytes>>;

/// What time it is.
pub fn now() -> Timestamp {
    agent::clock::now()
}

/// A key that only this number has.
pub fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32])
}

/// A server under a CA, with a handler of its test.
pub struct Control {
    pub url: ServerUrl,
    pub ca: Ca,
    stop: watch::Sender<bool>,
}

impl Control {
    /// Serves on loopback under a new CA; the handler gets each request with its body
    /// unpacked.
    pub async fn start<H>(names: &[&str], handle: H) -> Control
    where
        H: Fn(&Parts, Bytes) -> Reply + Clone + Send + Sync + 'static,
    {
        let (ca, _) = Ca::generate("test", now()).unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let own = ca.issue_server(&names, [7; 16], now()).unwrap();
        let (pem, auth) = (ca.cert_pem(), ClientAuth::Optional);
        let config = tls::server(&own.cert_pem, &own.key_pem, pem, pem, auth).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port()).parse().unwrap();
        let stop = watch::Sender::new(false);
        let (tls, shutdown) = (watch::Sender::new(config), stop.subscribe());
        tokio::spawn(async move {
            serve(listener, tls.subscribe(), Limits::default(), shutdown, move |request| {
                answer(request, handle.clone())
            })
            .await;
        });
        Control { url, ca, stop }
    }

    /// The certificate of a node under this CA.
    pub fn certificate(&self, key: &SigningKey, hostname: &Hostname) -> String {
        let csr = net::issue::node_request(&key, hostname).unwrap();
        let id = key.public().node_id();
        self.ca.issue_node(&NodeRequest::read(&csr).unwrap(), &id, hostname, [9; 16], now()).unwrap()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
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

/// The daemon as a process of its own; ended when it goes.
pub struct Daemon(Child);

impl Daemon {
    pub fn start(state: &Path, root: &Path) -> Daemon {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster-agent"));
        command.arg("--state").arg(state).arg("--root").arg(root).arg("daemon");
        command.env("MUSTER_LOG", "warn").stdout(Stdio::null());
        Daemon(command.spawn().unwrap())
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

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `look` gives something.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < DEADLINE, "not seen in {} s: {what}", DEADLINE.as_secs());
        tokio::time::sleep(PAUSE).await;
    }
}
