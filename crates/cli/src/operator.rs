//! [`Operator`]: the operator port, called.

mod objects;
mod work;

pub use objects::ObjectFilter;
pub use work::Turn;

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use model::chunk::Chunk;
use model::exchange::TraitReport;
use model::{Digest, Incarnation};
use net::client::{Client, ClientError};
use net::tls::{self, ClientKey, TlsError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use server::Credentials;
use server::api::{
    Beacons, Chunks, Commit, Digests, HeadView, MAX_JSON, NodeView, NodesView, Push, Pushed, StatusView,
    pack_contents,
};
use store::{FactRecord, Release, RunRecord};
use wire::body::{self, BodyError, GZIP, JSON};
use wire::headers::{PROTOCOL, PROTOCOL_HEADER};
use wire::problem::PROBLEM_JSON;
use wire::{Code, Problem};

use crate::exit::Exit;
use crate::failure::UserError;

/// How long an answer may take.
const CALL: Duration = Duration::from_secs(30);
/// How long an answer may take to a request that carries much, or has much stored.
const UPLOAD: Duration = Duration::from_secs(180);
/// The largest content that is read.
const MAX_CONTENT: usize = model::object::MAX_BLOB as usize;

/// Why the control plane did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The credentials cannot be used for TLS.
    #[error("the operator's credentials cannot be used")]
    Credentials(#[source] TlsError),
    /// It cannot be spoken to.
    #[error("the control plane does not answer")]
    Unreachable(#[source] ClientError),
    /// It refused.
    #[error("the control plane refuses: {0}")]
    Refused(Box<Problem>),
    /// Its answer is not what this program knows.
    #[error("the answer to {path} cannot be read")]
    Answer {
        /// What was asked.
        path: String,
        /// What is wrong with it.
        #[source]
        source: BodyError,
    },
    /// It answered with a status and nothing that explains it.
    #[error("the answer to {path} is {status}, without a reason")]
    Status {
        /// What was asked.
        path: String,
        /// The HTTP status.
        status: StatusCode,
    },
    /// The request cannot be made.
    #[error("the request {path} cannot be made")]
    Request {
        /// What was to be asked.
        path: String,
        /// Why not.
        #[source]
        source: http::Error,
    },
}

impl CallError {
    /// The refusal's code, if it was one.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            CallError::Refused(problem) => Some(&problem.code),
            _ => None,
        }
    }
}

impl UserError for CallError {
    fn exit(&self) -> Exit {
        let policy = [
            Code::ReleaseRefused,
            Code::NotEntitled,
            Code::OtherNode,
            Code::CertificateRequired,
            Code::SyncOff,
            Code::NotDelegated,
            Code::UnknownKind,
        ];
        match self {
            CallError::Unreachable(_) => Exit::Unreachable,
            CallError::Refused(problem) if policy.iter().any(|code| code.as_str() == problem.code) => {
                Exit::Refused
            }
            _ => Exit::Error,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            CallError::Unreachable(ClientError::Handshake { .. }) => Some(
                "the credentials are of another control plane; use the operator.json that this one wrote"
                    .to_owned(),
            ),
            CallError::Unreachable(_) => {
                Some("is `muster server` running, and can its operator port be reached from here?".to_owned())
            }
            CallError::Refused(problem) => problem.help.clone(),
            CallError::Answer { .. } | CallError::Status { .. } => {
                Some("use a muster of the control plane's version".to_owned())
            }
            _ => None,
        }
    }

    fn code(&self) -> Option<&str> {
        self.refusal()
    }
}

type Called<T> = Result<T, CallError>;

/// A connection to a control plane's operator port. Cheap to clone; requests share it.
#[derive(Clone, Debug)]
pub struct Operator {
    client: Client,
}

impl Operator {
    /// Dials with an operator's credentials.
    ///
    /// # Errors
    /// [`CallError`] says whether it cannot be reached or the credentials are wrong.
    pub async fn dial(credentials: &Credentials) -> Called<Operator> {
        let Credentials { url, ca_pem, cert_pem, key_pem } = credentials;
        let tls = tls::client(ca_pem, cert_pem, ClientKey::Pem(key_pem)).map_err(CallError::Credentials)?;
        let client = Client::dial(url, tls).await.map_err(CallError::Unreachable)?;
        Ok(Operator { client })
    }

    /// Bytes sent so far, TLS included.
    pub fn sent(&self) -> u64 {
        self.client.traffic.up.load(Ordering::Relaxed)
    }

    /// The connection is gone; dial anew.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Changes what the control plane logs.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn set_log_level(&self, level: &str) -> Called<server::api::LogLevel> {
        self.post("log-level", &server::api::LogLevel { level: level.to_owned() }, CALL).await
    }

    /// How the fleet does.
    pub async fn status(&self) -> Called<StatusView> {
        self.get("/v1/status").await
    }

    /// One page of nodes, from a hostname on.
    pub async fn nodes(&self, pattern: Option<&str>, from: Option<&str>) -> Called<NodesView> {
        let mut query = Vec::new();
        query.extend(pattern.map(|pattern| format!("match={}", escape(pattern))));
        query.extend(from.map(|from| format!("from={}", escape(from))));
        self.get(&format!("/v1/nodes?{}", query.join("&"))).await
    }

    /// All nodes, page by page.
    pub async fn all_nodes(&self, pattern: Option<&str>) -> Called<Vec<NodeView>> {
        let mut page = self.nodes(pattern, None).await?;
        let mut all = page.nodes;
        while let Some(next) = page.next {
            page = self.nodes(pattern, Some(next.as_str())).await?;
            all.append(&mut page.nodes);
        }
        Ok(all)
    }

    /// One node, by hostname or id.
    pub async fn node(&self, name: &str) -> Called<NodeView> {
        self.get(&format!("/v1/nodes/{}", escape(name))).await
    }

    /// Removes a node.
    pub async fn remove(&self, name: &str) -> Called<NodeView> {
        let path = format!("/v1/nodes/{}", escape(name));
        self.json(Method::DELETE, &path, Bytes::new(), CALL).await
    }

    /// What a node observed of itself, when it told.
    pub async fn traits(&self, name: &str) -> Called<Option<TraitReport>> {
        self.get(&format!("/v1/nodes/{}/traits", escape(name))).await
    }

    /// The newest facts of a node's log.
    pub async fn facts(&self, name: &str, limit: usize) -> Called<Vec<FactRecord>> {
        self.get(&format!("/v1/nodes/{}/facts?limit={limit}", escape(name))).await
    }

    /// The newest runs, of all nodes or of one.
    pub async fn runs(&self, node: Option<&str>, limit: usize) -> Called<Vec<RunRecord>> {
        let node = node.map(|node| format!("&node={}", escape(node))).unwrap_or_default();
        self.get(&format!("/v1/runs?limit={limit}{node}")).await
    }

    /// One run.
    pub async fn run(&self, node: &str, incarnation: &Incarnation, seq: u64) -> Called<RunRecord> {
        self.get(&format!("/v1/runs/{}/{incarnation}/{seq}", escape(node))).await
    }

    /// What a publish starts from.
    pub async fn head(&self) -> Called<HeadView> {
        self.get("/v1/head").await
    }

    /// The newest releases, below a number.
    pub async fn releases(&self, limit: usize, before: Option<u64>) -> Called<Vec<Release>> {
        let before = before.map(|seq| format!("&before={seq}")).unwrap_or_default();
        self.get(&format!("/v1/releases?limit={limit}{before}")).await
    }

    /// The chunks of these digests; those that the control plane lacks are left out.
    pub async fn fetch(&self, chunks: &[Digest]) -> Called<Vec<Chunk>> {
        let asked = Digests { chunks: chunks.to_vec(), contents: Vec::new() };
        let fetched: Chunks = self.post("fetch", &asked, UPLOAD).await?;
        Ok(fetched.chunks)
    }

    /// A content by digest.
    pub async fn content(&self, digest: &Digest) -> Called<Bytes> {
        let request = self.request(Method::GET, &format!("/v1/contents/{digest}"), None, Bytes::new())?;
        self.send(request, MAX_CONTENT, UPLOAD).await
    }

    /// Which of these the control plane lacks.
    pub async fn missing(&self, asked: &Digests) -> Called<Digests> {
        self.post("missing", asked, UPLOAD).await
    }

    /// Stores contents.
    pub async fn put_contents(&self, contents: &[&[u8]]) -> Called<()> {
        let body = pack_contents(contents.iter().copied());
        let request =
            self.request(Method::POST, "/v1/contents", Some("application/octet-stream"), body.into())?;
        self.send(request, MAX_JSON, UPLOAD).await.map(drop)
    }

    /// Stores chunks; everything that they need is stored, or among them.
    pub async fn put_chunks(&self, chunks: Vec<Chunk>) -> Called<()> {
        self.post::<_, usize>("chunks", &Chunks { chunks }, UPLOAD).await.map(drop)
    }

    /// Commits a release; gives its number.
    pub async fn commit(&self, commit: &Commit) -> Called<u64> {
        self.post("releases", commit, UPLOAD).await
    }

    /// Hands proofs of freshness over.
    pub async fn beacons(&self, beacons: &Beacons) -> Called<usize> {
        self.post("beacons", beacons, CALL).await
    }

    /// Asks nodes to converge now.
    pub async fn push(&self, push: &Push) -> Called<Pushed> {
        self.post("pushes", push, CALL).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Called<T> {
        self.json(Method::GET, path, Bytes::new(), CALL).await
    }

    async fn post<M: Serialize, T: DeserializeOwned>(
        &self,
        order: &str,
        message: &M,
        timeout: Duration,
    ) -> Called<T> {
        let path = format!("/v1/{order}");
        let body =
            body::encode(message).map_err(|source| CallError::Answer { path: path.clone(), source })?;
        self.json(Method::POST, &path, body.into(), timeout).await
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        timeout: Duration,
    ) -> Called<T> {
        let request = self.request(method, path, Some(JSON), body)?;
        let bytes = self.send(request, MAX_JSON, timeout).await?;
        body::decode(&bytes).map_err(|source| CallError::Answer { path: path.to_owned(), source })
    }

    /// A request; a long body is compressed.
    fn request(
        &self,
        method: Method,
        path: &str,
        kind: Option<&'static str>,
        body: Bytes,
    ) -> Called<Request<Full<Bytes>>> {
        let uri = format!("https://{}{path}", self.client.url().authority());
        let packed = body::compress(&body);
        let coding = packed.as_ref().map(|_| HeaderValue::from_static(GZIP));
        let body = packed.map_or(body, Bytes::from);
        let built = Request::builder().method(method).uri(uri).body(Full::new(body));
        let mut request = built.map_err(|source| CallError::Request { path: path.to_owned(), source })?;
        let headers = request.headers_mut();
        headers.insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(GZIP));
        headers.extend(kind.map(|kind| (header::CONTENT_TYPE, HeaderValue::from_static(kind))));
        headers.extend(coding.map(|coding| (header::CONTENT_ENCODING, coding)));
        Ok(request)
    }

    /// Sends a request; gives the body of a good answer, unpacked.
    async fn send(&self, request: Request<Full<Bytes>>, limit: usize, timeout: Duration) -> Called<Bytes> {
        let path = request.uri().path().to_owned();
        let mut client = self.client.clone();
        let response = client.call(request, limit, timeout).await.map_err(CallError::Unreachable)?;
        let text = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let (status, is_problem) = (response.status(), text(header::CONTENT_TYPE) == Some(PROBLEM_JSON));
        let bytes = match text(header::CONTENT_ENCODING) {
            None => response.body().clone(),
            coding => {
                let unpacked = body::unpack(response.body().to_vec(), coding, limit);
                unpacked.map_err(|source| CallError::Answer { path: path.clone(), source })?.into()
            }
        };
        if status.is_success() {
            return Ok(bytes);
        }
        match body::decode::<Problem>(&bytes) {
            Ok(problem) if is_problem => Err(CallError::Refused(Box::new(problem))),
            Ok(_) | Err(_) => Err(CallError::Status { path, status }),
        }
    }
}

/// Escapes a text for a path or a query.
fn escape(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'~');
    let mut out = String::new();
    for byte in text.bytes() {
        if plain(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
