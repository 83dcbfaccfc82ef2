//! [`StolenControl`]: a control plane with every key of its own stolen. It has the CA of the fleet's nodes and the
//! key and certificate of its server and the key that proves its feeds, and answers each route as a test says. What it lacks is the release key, the root
//! key and the nodes' own keys.
//!
//! ```text
//! check-in, contents   the stage: an offer, and whatever a test makes of the answer
//! events               a real end of a link, whose feed holds whatever a test puts there
//! renewals             a certificate of the CA, for the key and name that a test says
//! any route            another answer in its place, also one that never ends
//! ```

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use model::{Kind, ObjectKey};
use net::ServerUrl;
use net::accept::AcceptLimits;
use net::issue::Ca;
use streams::Exchange;
use sync::link::{FeedProofs, FeedProver, LinkConfig, Note};
use sync::{Mode, Role};
use trust::FeedSigner;
use wire::batch::{self, MAX_REQUEST};
use wire::body::{JSON, MAX_ANSWER};
use wire::cloudevents::Origin;
use wire::enroll::RenewAnswer;
use wire::{Code, Problem, route};

use super::stage::{CONTROL_PLANE, Stage};
use super::{Reply, json, key, problem, reply};
use crate::memory::MemoryLinkHandler;
use crate::tls_server::TlsServer;

type AnyReply = Response<BoxBody<Bytes, Infallible>>;

/// What a route answers in place of what it would.
#[derive(Clone)]
pub enum Instead {
    /// This.
    Reply(Reply),
    /// 200, with this over and over: the answer has no end.
    Endless {
        /// How its body is said to be packed.
        coding: Option<&'static str>,
        /// Its beginning.
        first: Bytes,
        /// What follows again and again.
        piece: Bytes,
    },
}

/// What the control plane says besides the stage.
#[derive(Default)]
struct Script {
    /// By path.
    instead: BTreeMap<String, Instead>,
    /// What a renewal is answered with.
    certificate: Option<String>,
    /// How often each path was asked.
    asked: BTreeMap<String, usize>,
}

/// The control plane. It ends when it is dropped.
pub struct StolenControl {
    server: TlsServer,
    /// What it offers, and what it hears.
    pub stage: Stage,
    /// Its end of links: what it puts there, the node is told of.
    pub feed: Arc<MemoryLinkHandler>,
    script: Arc<Mutex<Script>>,
}

impl StolenControl {
    /// Serves on loopback under its CA.
    pub async fn start(mode: Mode, kinds: &[&str]) -> StolenControl {
        let (stage, script) = (Stage::default(), Arc::<Mutex<Script>>::default());
        let signer = FeedSigner::new("test-1".parse().unwrap(), key(CONTROL_PLANE));
        let prover = FeedProver { owner: signer.owner(key(1).public().node_id()), signer: signer.into() };
        let feed = Arc::new(MemoryLinkHandler::new("s1".parse().unwrap()).proving(prover.clone()));
        let kinds: Vec<Kind> = kinds.iter().map(|kind| Kind::new(kind)).collect();
        let mut config = LinkConfig::new(Role::Principal, mode, "stolen", kinds);
        config.proofs = FeedProofs::Made(prover);
        let says = Answers {
            stage: stage.clone(),
            feed: feed.clone(),
            script: script.clone(),
            config: config.into(),
        };
        let answer = move |request| {
            let says = says.clone();
            async move { says.answer(request).await }
        };
        let server = TlsServer::named(&["127.0.0.1"], AcceptLimits::default(), false, answer).await;
        StolenControl { server, stage, feed, script }
    }

    /// Where nodes call.
    pub fn url(&self) -> ServerUrl {
        self.server.url.clone()
    }

    /// The CA of its server and of the fleet's nodes.
    pub fn ca(&self) -> &Ca {
        &self.server.ca
    }

    /// From now on a route answers this.
    pub fn instead(&self, path: &str, instead: Instead) {
        self.script().instead.insert(path.to_owned(), instead);
    }

    /// From now on each route answers as it does.
    pub fn as_usual(&self) {
        self.script().instead.clear();
    }

    /// From now on renewals are answered with this certificate.
    pub fn certify(&self, cert_pem: String) {
        self.script().certificate = Some(cert_pem);
    }

    /// How often a path was asked.
    pub fn asked(&self, path: &str) -> usize {
        self.script().asked.get(path).copied().unwrap_or(0)
    }

    /// The codes of the objects that the node says it will never take, by name.
    pub fn refused(&self) -> BTreeMap<ObjectKey, String> {
        let refused = self.feed.notes().into_iter().filter_map(|note| match note {
            Note::RefusedThere(refused) => Some((refused.key, refused.code)),
            _ => None,
        });
        refused.collect()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }
}

#[derive(Clone)]
struct Answers {
    stage: Stage,
    feed: Arc<MemoryLinkHandler>,
    script: Arc<Mutex<Script>>,
    config: Arc<LinkConfig>,
}

impl Answers {
    async fn answer(&self, request: Request<Incoming>) -> AnyReply {
        let (parts, body) = request.into_parts();
        let sent = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let path = parts.uri.path().to_owned();
        let instead = {
            let mut script = self.script.lock().unwrap();
            *script.asked.entry(path.clone()).or_default() += 1;
            let by_digest = script.instead.get(route::BLOB).filter(|_| path.starts_with("/v1/blobs/"));
            script.instead.get(&path).or(by_digest).cloned()
        };
        match instead {
            Some(Instead::Reply(reply)) => reply.map(BodyExt::boxed),
            Some(Instead::Endless { coding, first, piece }) => endless(coding, first, piece),
            None => self.usual(&path, &parts, unpacked(&parts, sent)).await.map(BodyExt::boxed),
        }
    }

    async fn usual(&self, path: &str, parts: &Parts, body: Bytes) -> Reply {
        match path {
            route::CHECKIN => self.stage.answer(parts, &body),
            route::EVENTS => self.events(body).await,
            route::RENEW | route::RECOVER => match self.script.lock().unwrap().certificate.clone() {
                Some(cert_pem) => json(&RenewAnswer::of(cert_pem)),
                None => problem(&Problem::new(Code::Busy, "no certificate")),
            },
            _ if path.starts_with("/v1/blobs/") => self.stage.answer(parts, &body),
            _ => problem(&Problem::new(Code::NotFound, "nothing here")),
        }
    }

    /// A poll, answered by a real end of a link.
    async fn events(&self, body: Bytes) -> Reply {
        let came = batch::decode(&body, None, MAX_REQUEST).unwrap();
        let mut exchange = Exchange::open(LinkConfig::clone(&self.config), None, self.feed.clone());
        let answer = exchange.step(came.frames).await;
        exchange.end().await;
        let bytes = batch::encode(&mut Origin::principal("stolen"), &answer).unwrap();
        reply(StatusCode::OK, JSON, bytes)
    }
}

fn unpacked(parts: &Parts, sent: Bytes) -> Bytes {
    let coding = parts.headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap());
    wire::body::unpack(sent.to_vec(), coding, MAX_ANSWER).unwrap().into()
}

fn endless(coding: Option<&'static str>, first: Bytes, piece: Bytes) -> AnyReply {
    let body = EndlessBody { first: Some(first).filter(|first| !first.is_empty()), piece };
    let mut response = Response::builder().status(StatusCode::OK).header(header::CONTENT_TYPE, JSON);
    if let Some(coding) = coding {
        response = response.header(header::CONTENT_ENCODING, coding);
    }
    // Of a content it says that all of the world follows.
    let response = response.header(header::CONTENT_RANGE, format!("bytes 0-1/{}", u64::MAX));
    response.body(BodyExt::boxed(body)).unwrap()
}

/// A body that goes on for as long as somebody takes it.
struct EndlessBody {
    first: Option<Bytes>,
    piece: Bytes,
}

impl Body for EndlessBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.first.take().unwrap_or_else(|| self.piece.clone());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

/// Bytes that gzip unpacks to so many zeros.
pub fn bomb(zeros: u64) -> Vec<u8> {
    use std::io::Read;
    let mut packer =
        flate2::read::GzEncoder::new(std::io::repeat(b' ').take(zeros), flate2::Compression::best());
    let mut packed = Vec::new();
    packer.read_to_end(&mut packed).unwrap();
    packed
}

/// An answer of these bytes.
pub fn said(status: StatusCode, kind: &str, coding: Option<&str>, bytes: Vec<u8>) -> Reply {
    let mut response = Response::builder().status(status).header(header::CONTENT_TYPE, kind);
    if let Some(coding) = coding {
        response = response.header(header::CONTENT_ENCODING, coding);
    }
    response.body(Full::new(bytes.into())).unwrap()
}
