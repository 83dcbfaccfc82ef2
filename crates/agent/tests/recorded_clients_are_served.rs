//! WIR-1: N and N+1 side by side. What an agent of each kept release sent is accepted by today's control plane, and what
//! its control plane answered is read by today's agent. `tests/recorded` has one file for each such release, which stays as
//! it is for as long as that release is supported, whatever the protocol gains; `MUSTER_RECORD=1` makes that of this version
//! where there is none.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use http::{HeaderMap, HeaderName, Method, header};
use model::exchange::{Acked, Answer, Report, TraitReport};
use model::log::FactBody;
use model::{Digest, Edit, Kind, ObjectKey, Timestamp};
use net::issue::{CertificateRequest, node_request};
use node::{Identity, Node as NodeStep, NodeEffect, NodeInput, ObservedTraits, Restored};
use serde_json::{Value, json};
use sync::Frame;
use sync::frame::Op;
use test_support::fleet::{Fleet, Member, call, decoded, now, number};
use test_support::recorded::recorder::{HOST, Recorder, SEED, publish, request_work};
use test_support::recorded::{FORMAT, RecordedBody, RecordedExchange, Recording, unpacked};
use trust::token;
use wire::enroll::{EnrollAnswer, EnrollRequest, RenewAnswer, RenewRequest};
use wire::{Problem, batch, route, signature};

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

fn kept() -> Vec<Recording> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(recordings()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "a recording of the newest release is kept");
    files.iter().map(|path| Recording::read(path)).collect()
}

/// Makes the recording of this version.
#[tokio::test(flavor = "multi_thread")]
async fn record() {
    let path = recordings().join(format!("agent-{}.json", env!("CARGO_PKG_VERSION")));
    if std::env::var_os("MUSTER_RECORD").is_none() {
        return;
    }
    let mut recorder = Recorder::join().await;
    let made = publish(&recorder.fleet, &mut recorder.operator).await;
    let offered = recorder.first_contact().await.offer.expect("a release is offered");
    let content = *offered
        .set
        .as_ref()
        .unwrap()
        .delta
        .edits
        .values()
        .find_map(|edit| match edit {
            Edit::Add { to } => Some(&to.digest),
            _ => None,
        })
        .unwrap();
    let blob = route::BLOB.replace("{digest}", &content.to_string());
    recorder.session.get_range(&blob, 0).await.unwrap();
    recorder.session.get_range(&blob, 4).await.unwrap();
    recorder.holding(made.held(HOST), Vec::new()).await;
    let done = recorder.poll().await;
    assert!(!done.is_empty());
    let answer = recorder.holding(made.held(HOST), done).await;
    assert!(answer.offer.is_none(), "it holds what it is pointed to");
    let facts = recorder.facts(vec![FactBody::Repaired { message: "told alone".to_owned() }]);
    let report = Report { incarnation: recorder.incarnation.clone(), facts };
    let _: Acked = recorder.session.post(route::REPORT, &report).await.unwrap();
    let csr_pem = node_request(&recorder.key, &HOST.parse().unwrap()).unwrap();
    let _: RenewAnswer = recorder.session.post(route::RENEW, &RenewRequest::of(csr_pem)).await.unwrap();
    let refused: Result<RenewAnswer, _> =
        recorder.session.post(route::RENEW, &RenewRequest::of("none".to_owned())).await;
    assert!(refused.is_err());
    let recording = Recording {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        at: now(),
        fleet: recorder.fleet.enroll_info().fleet,
        hostname: HOST.parse().unwrap(),
        key_seed: SEED,
        exchanges: recorder.tap.passed(),
    };
    recording.write(&path);
}

fn headers(exchange: &RecordedExchange) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &exchange.request.headers {
        headers.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    headers
}

fn body<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> T {
    wire::body::decode(bytes).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

/// What a joining host was answered, which the rest is verified with.
fn joined(recording: &Recording) -> EnrollAnswer {
    let exchange = recording.over(route::ENROLL).next().expect("a join is recorded");
    body(&unpacked(&exchange.answer.headers, &exchange.answer.body))
}

/// By the time that it was made at, each signature, token and request holds, byte by byte.
#[test]
fn what_was_signed_holds() {
    for recording in kept() {
        let (key, trust) = (recording.key(), joined(&recording).trust);
        let mut signed = 0;
        for exchange in &recording.exchanges {
            let asked = &exchange.request;
            let sent = asked.body.bytes();
            if asked.path == route::ENROLL {
                let request: EnrollRequest = body(&unpacked(&asked.headers, &asked.body));
                let token = request.token.unwrap();
                let claims = token::peek(&token).unwrap();
                let at = claims.issued_at;
                token::verify(&token, &trust.root, HOST, &key.public(), at).unwrap();
                assert_eq!(claims.trust, trust.digest().unwrap());
                assert_eq!(*CertificateRequest::read(&request.csr_pem).unwrap().key(), key.public());
                continue;
            }
            let headers = headers(exchange);
            let parsed = signature::parse(&headers).unwrap();
            let (method, uri) = (asked.method.parse::<Method>().unwrap(), asked.path.parse().unwrap());
            let verified =
                parsed.verify(&method, &uri, &recording.fleet, &key.public(), recording.at).unwrap();
            verified.holds(&sent).unwrap();
            signed += 1;
        }
        assert!(signed > 5, "{}: {signed} signed requests", recording.version);
    }
}

/// The fleet of a recording in its place today, and the same node.
struct Replay {
    fleet: Fleet,
    node: Member,
}

impl Replay {
    async fn join(recording: &Recording) -> Replay {
        let fleet = Fleet::start().await;
        let mut operator = fleet.operator().await;
        let join = recording.over(route::ENROLL).next().unwrap();
        // The same request but for the token, which is of another fleet.
        let text = String::from_utf8(unpacked(&join.request.headers, &join.request.body)).unwrap();
        let recorded: EnrollRequest = body(text.as_bytes());
        let text = text.replace(recorded.token.as_ref().unwrap(), &fleet.token(HOST));
        let mut request = join.request.clone();
        request.headers.remove(header::CONTENT_ENCODING.as_str());
        request.body = RecordedBody::Body(text);
        let response = call(&mut fleet.anonymous().await, request.again(&fleet.url())).await;
        let answer: EnrollAnswer = decoded(&response).unwrap();
        let node = fleet.member(HOST, recording.key(), &answer);
        publish(&fleet, &mut operator).await;
        request_work(&mut operator).await;
        Replay { fleet, node }
    }

    /// Sends a recorded request, signed anew and otherwise byte by byte.
    async fn send(&self, exchange: &RecordedExchange) -> http::Response<bytes::Bytes> {
        let asked = &exchange.request;
        let method = asked.method.parse().unwrap();
        let mut request = self.node.signed_at(method, &asked.path, asked.body.bytes(), now(), number());
        for (name, value) in headers(exchange) {
            let name = name.unwrap();
            let is_of_signature = ["signature", "signature-input", "content-digest"].contains(&name.as_str());
            if !is_of_signature {
                request.headers_mut().insert(name, value);
            }
        }
        self.node.send(request).await
    }
}

/// Everything that was accepted is accepted, and what it brought is there.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_is_accepted() {
    for recording in kept() {
        let replay = Replay::join(&recording).await;
        let mut events = BTreeSet::new();
        for exchange in recording.exchanges.iter().filter(|it| it.request.path != route::ENROLL) {
            let asked = &exchange.request;
            let response = replay.send(exchange).await;
            let what = format!("{} {} of {}", asked.method, asked.path, recording.version);
            assert_eq!(
                response.status().as_u16(),
                exchange.answer.status,
                "{what}: {}",
                String::from_utf8_lossy(response.body())
            );
            let coding =
                response.headers().get(header::CONTENT_ENCODING).map(|it| it.to_str().unwrap().to_owned());
            let bytes =
                wire::body::unpack(response.body().to_vec(), coding.as_deref(), wire::body::MAX_ANSWER)
                    .unwrap();
            if asked.path == route::EVENTS {
                let frames =
                    batch::decode(&bytes.into(), Some("principal"), batch::MAX_ANSWER).unwrap().frames;
                assert!(matches!(frames.first(), Some(Frame::Hello(_))), "{what}: {frames:?}");
                events.extend(puts(&frames).map(|(key, _)| key.section.kind.to_string()));
            }
        }
        assert!(events.contains("Item") && events.contains(Kind::ACTION), "{events:?}");
        let mut operator = replay.fleet.operator().await;
        let facts: Value = operator.get(&format!("/v1/nodes/{HOST}/facts")).await.unwrap();
        let text = facts.to_string();
        for kind in ["started", "adopted", "refused", "repaired", "fileRestored", "action"] {
            assert!(text.contains(&format!("\"kind\":\"{kind}\"")), "{kind}: {text}");
        }
        let traits: Value = operator.get(&format!("/v1/nodes/{HOST}/traits")).await.unwrap();
        assert!(traits.to_string().contains("debian"), "{traits}");
    }
}

fn puts(frames: &[Frame]) -> impl Iterator<Item = (ObjectKey, bytes::Bytes)> {
    frames.iter().filter_map(|frame| match frame {
        Frame::Event(event) => match &event.op {
            Op::Put { content, .. } => Some((event.key.clone(), content.clone())),
            Op::Delete { .. } => None,
        },
        _ => None,
    })
}

/// The node of a recording, which is about to check in.
fn waiting(recording: &Recording, at: Timestamp) -> NodeStep {
    let trust = joined(recording).trust;
    let (hostname, incarnation) = (recording.hostname.clone(), "i1".parse().unwrap());
    let identity = Identity { hostname, incarnation, trust, built: Timestamp(0) };
    let mut node = NodeStep::new(identity, Restored::default(), 7, at);
    node.handle(NodeInput::Tick, at);
    let report = TraitReport { digest: Digest::ZERO, base: None, values: json!({}), removed: Vec::new() };
    node.handle(NodeInput::Traits(ObservedTraits { report, read: None }), at);
    node
}

/// What the control plane answered is read, believed and carried out by today's agent.
#[test]
fn what_was_answered_is_understood() {
    for recording in kept() {
        let at = recording.at;
        let (mut adopted, mut objects) = (false, Vec::new());
        for exchange in &recording.exchanges {
            let (asked, answer) = (&exchange.request, &exchange.answer);
            let bytes = unpacked(&answer.headers, &answer.body);
            if !answer.is_success() {
                let problem: Problem = body(&bytes);
                assert_eq!(problem.status, answer.status);
                continue;
            }
            match asked.path.as_str() {
                route::CHECKIN => {
                    let answer: Answer = body(&bytes);
                    assert!(answer.acked.is_some() && answer.next_checkin_secs > 0);
                    if answer.offer.is_some() {
                        let effects =
                            waiting(&recording, at).handle(NodeInput::Answered(Box::new(answer)), at);
                        let fetches = |effect: &NodeEffect| matches!(effect, NodeEffect::Fetch { .. });
                        assert!(effects.iter().any(fetches), "the release is believed: {effects:?}");
                        adopted = true;
                    }
                }
                route::EVENTS => {
                    let frames = batch::decode(&bytes.into(), Some("principal"), batch::MAX_ANSWER).unwrap();
                    objects.extend(puts(&frames.frames));
                }
                route::RENEW => {
                    let renewed: RenewAnswer = body(&bytes);
                    let der = net::tls::certificates(&renewed.cert_pem).unwrap().remove(0);
                    let net::PeerRole::Node { key, hostname, .. } = net::identity::read(&der).unwrap().role
                    else {
                        panic!("it names no node");
                    };
                    assert_eq!((*key, hostname), (recording.key().public(), recording.hostname.clone()));
                }
                path if path.starts_with("/v1/blobs/") => {
                    assert!(answer.headers.contains_key(header::CONTENT_RANGE.as_str()), "{path}");
                    let whole = answer.headers[header::CONTENT_RANGE.as_str()].starts_with("bytes 0-");
                    assert!(!whole || path.ends_with(&Digest::of(&bytes).to_string()), "{path}");
                }
                _ => {}
            }
        }
        assert!(adopted, "a release was offered");
        let orders = objects.iter().filter(|(key, _)| key.section.kind.as_str() == Kind::ACTION);
        let orders: Vec<_> = orders.map(|(_, content)| node::work::order_of(content).unwrap()).collect();
        assert!(!orders.is_empty(), "work was requested");
        assert!(objects.iter().any(|(key, _)| key.section.kind.as_str() == "Item"), "an object came");
    }
}
