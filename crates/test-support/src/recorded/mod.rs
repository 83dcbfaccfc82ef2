//! Exchanges of a release's agent and control plane as they were on the wire, kept in a file: `format` 1.
//!
//! A recording is made once for a release and never again; what is written by [`Tap`] is read by the tests of every later
//! one. It has the keys that signed, so that each signature can be verified by the time that it was made at, and nothing of
//! the machine on which it was made.

pub mod recorder;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use model::{FleetId, Hostname, Timestamp};
use net::ServerUrl;
use net::accept::AcceptLimits;
use net::client::Client;
use net::issue::Ca;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use trust::SigningKey;
use wire::body::MAX_ANSWER;

use crate::fleet::PATIENCE;
use crate::tls_server::TlsServer;

/// The format of recordings that is read.
pub const FORMAT: u64 = 1;

/// A recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recording {
    /// [`FORMAT`].
    pub format: u64,
    /// The version of both programs.
    pub version: String,
    /// When it was made.
    pub at: Timestamp,
    /// Of which fleet.
    pub fleet: FleetId,
    /// Of which node.
    pub hostname: Hostname,
    /// The seed of the node's key, which is of tests alone, is this byte 32 times.
    pub key_seed: u8,
    /// What was asked and answered, in order.
    pub exchanges: Vec<RecordedExchange>,
}

/// One request and its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedExchange {
    /// The request.
    pub request: RecordedRequest,
    /// The answer.
    pub answer: RecordedAnswer,
}

/// A request as it was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedRequest {
    /// Its method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers, but those of HTTP alone.
    pub headers: BTreeMap<String, String>,
    /// The body.
    #[serde(flatten)]
    pub body: RecordedBody,
}

/// An answer as it was received.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedAnswer {
    /// Its status.
    pub status: u16,
    /// Headers, but those of HTTP alone.
    pub headers: BTreeMap<String, String>,
    /// The body.
    #[serde(flatten)]
    pub body: RecordedBody,
}

/// A body, byte by byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedBody {
    /// It is text.
    Body(String),
    /// It is none: base64.
    BodyBase64(String),
}

impl RecordedBody {
    fn of(bytes: &[u8]) -> RecordedBody {
        match std::str::from_utf8(bytes) {
            Ok(text) => RecordedBody::Body(text.to_owned()),
            Err(_) => RecordedBody::BodyBase64(data_encoding::BASE64.encode(bytes)),
        }
    }

    /// Its bytes, as they were sent.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            RecordedBody::Body(text) => text.clone().into_bytes(),
            RecordedBody::BodyBase64(text) => data_encoding::BASE64.decode(text.as_bytes()).unwrap(),
        }
    }
}

/// A body without its coding.
pub fn unpacked(headers: &BTreeMap<String, String>, body: &RecordedBody) -> Vec<u8> {
    let coding = headers.get(header::CONTENT_ENCODING.as_str()).map(String::as_str);
    wire::body::unpack(body.bytes(), coding, MAX_ANSWER).unwrap()
}

impl Recording {
    /// Reads a recording.
    pub fn read(path: &Path) -> Recording {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let recording: Recording = serde_json::from_str(&text).unwrap();
        assert_eq!(recording.format, FORMAT, "{}", path.display());
        recording
    }

    /// Writes it, where there is none: a recording is never made anew.
    pub fn write(&self, path: &Path) {
        assert!(!path.exists(), "{} is kept as it is", path.display());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, serde_json::to_string_pretty(self).unwrap() + "\n").unwrap();
    }

    /// The node's key.
    pub fn key(&self) -> SigningKey {
        SigningKey::from_seed(&[self.key_seed; 32])
    }

    /// The exchanges over a route.
    pub fn over<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a RecordedExchange> {
        self.exchanges.iter().filter(move |it| it.request.path == path)
    }
}

/// A server between an agent and its control plane, under the fleet's own CA, which passes everything on and writes it
/// down.
pub struct Tap {
    server: TlsServer,
    passed: Arc<Mutex<Vec<RecordedExchange>>>,
    upstream: Arc<Mutex<Upstream>>,
}

/// How the control plane is reached.
#[derive(Clone)]
pub struct Upstream {
    /// Where it is.
    pub url: ServerUrl,
    /// What sessions are opened with.
    pub tls: Arc<ClientConfig>,
}

impl Tap {
    /// Starts under a CA.
    pub async fn start(ca: Ca, upstream: Upstream) -> Tap {
        let (passed, upstream) = (Arc::<Mutex<Vec<_>>>::default(), Arc::new(Mutex::new(upstream)));
        let (writes, leads) = (passed.clone(), upstream.clone());
        let answer = move |request| {
            let (writes, leads) = (writes.clone(), leads.clone());
            async move {
                let to = leads.lock().unwrap().clone();
                let (exchange, response) = pass(request, to).await;
                writes.lock().unwrap().push(exchange);
                response
            }
        };
        let server = TlsServer::under(ca, &["127.0.0.1"], AcceptLimits::default(), false, answer).await;
        Tap { server, passed, upstream }
    }

    /// Where the agent calls.
    pub fn url(&self) -> ServerUrl {
        self.server.url.clone()
    }

    /// From now on sessions are opened with this.
    pub fn lead(&self, upstream: Upstream) {
        *self.upstream.lock().unwrap() = upstream;
    }

    /// What passed, in order.
    pub fn passed(&self) -> Vec<RecordedExchange> {
        self.passed.lock().unwrap().clone()
    }
}

/// What is about one connection, and of no message.
fn is_kept(name: &str) -> bool {
    !matches!(name, "host" | "content-length" | "connection" | "date")
}

fn kept(headers: &HeaderMap) -> BTreeMap<String, String> {
    let text = |(name, value): (&header::HeaderName, &header::HeaderValue)| {
        is_kept(name.as_str()).then(|| (name.to_string(), value.to_str().unwrap().to_owned()))
    };
    headers.iter().filter_map(text).collect()
}

async fn pass(request: Request<Incoming>, to: Upstream) -> (RecordedExchange, Response<Full<Bytes>>) {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let path = parts.uri.path_and_query().unwrap().to_string();
    let asked = RecordedRequest {
        method: parts.method.to_string(),
        path,
        headers: kept(&parts.headers),
        body: RecordedBody::of(&body),
    };
    let mut client = Client::dial(&to.url, to.tls).await.unwrap();
    let response = client.call(asked.again(&to.url), MAX_ANSWER, PATIENCE).await.unwrap();
    let (parts, body) = response.into_parts();
    let answer = RecordedAnswer {
        status: parts.status.as_u16(),
        headers: kept(&parts.headers),
        body: RecordedBody::of(&body),
    };
    let response = Response::from_parts(parts, Full::new(body));
    (RecordedExchange { request: asked, answer }, response)
}

impl RecordedRequest {
    /// The same request to another place.
    pub fn again(&self, url: &ServerUrl) -> Request<Full<Bytes>> {
        let method: Method = self.method.parse().unwrap();
        let uri = format!("https://{}{}", url.authority(), self.path);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(self.body.bytes().into())).unwrap()
    }
}

impl RecordedAnswer {
    /// Whether it is a good one.
    pub fn is_success(&self) -> bool {
        StatusCode::from_u16(self.status).unwrap().is_success()
    }
}
