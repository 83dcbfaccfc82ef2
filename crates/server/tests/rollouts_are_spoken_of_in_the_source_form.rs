//! ROL-3, ROL-5, ROL-6: the routes of the source document say what a check-in says: dispatch, one event a request,
//! heartbeat, the signed header byte for byte, and of no rollout that is evicted or of another channel.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use model::rollout::{RolloutId, RolloutTask};
use rollout::{MAX_SUPERSEDED, NodeRolloutState, RolloutState};
use server::api::rollouts::{NodeRolloutView, RolloutView};
use test_support::fleet::release::{Made, Plan, make, params};
use test_support::fleet::rollouts::RolloutNode;
use test_support::fleet::{Fleet, decoded, refused};
use trust::rollout_terms::{GateTerms, WaveMembers, WaveTerms};
use trust::{RolloutTerms, signed};
use wire::rollout::{DispatchAnswer, HeartbeatAnswer};
use wire::{Code, route};

/// A commit, which is the rollout's ref.
const COMMIT: &str = "4f1c2a90d3b7e6581c0a9f24d7b83e61c5a0f9d2";

fn release(fleet: &Fleet, seq: u64) -> Made {
    let gate = GateTerms { soak_secs: 0, success: 100 };
    let wave = WaveTerms { name: "all".to_owned(), members: WaveMembers::Rest, not_before: None, gate };
    let terms = Arc::new(RolloutTerms { waves: vec![wave], ..RolloutTerms::default() });
    let plan = Plan::new(&fleet.enroll_info().fleet, seq).node("web-1", &[params(&seq.to_string())]);
    let (rollout, label) = ((seq > 1).then_some(terms), Some(COMMIT.to_owned()));
    make(&Plan { rollout, label, ..plan }, &fleet.release_key())
}

/// A node that holds release 1, while nothing else is published.
async fn holding() -> (Fleet, RolloutNode) {
    let fleet = Fleet::start().await;
    let first = release(&fleet, 1);
    fleet.operator().await.publish(&first).await.unwrap();
    let mut node = RolloutNode::new(fleet.node("web-1").await);
    node.check_in(Vec::new(), 0).await.unwrap();
    node.holds(&first);
    node.check_in(Vec::new(), 0).await.unwrap();
    (fleet, node)
}

async fn dispatch(node: &RolloutNode, wait: u64) -> Response<Bytes> {
    let path = format!("{}?wait={wait}", route::DISPATCH);
    node.member.send(node.member.signed(Method::GET, &path, Vec::new())).await
}

async fn post(node: &RolloutNode, event: String) -> Response<Bytes> {
    node.member.send(node.member.signed(Method::POST, route::EVENTS, event.into_bytes())).await
}

async fn manifest(node: &RolloutNode, id: &str, accept: Option<&str>) -> Response<Bytes> {
    let path = route::ROLLOUT.replace("{id}", id);
    let mut request = node.member.signed(Method::GET, &path, Vec::new());
    if let Some(accept) = accept {
        request.headers_mut().insert(header::ACCEPT, accept.parse().unwrap());
    }
    node.member.send(request).await
}

async fn state(fleet: &Fleet) -> NodeRolloutState {
    let view: Option<NodeRolloutView> = fleet.operator().await.get("/v1/nodes/web-1/rollout").await.unwrap();
    view.unwrap().state
}

#[tokio::test]
async fn a_dispatch_is_polled_for_and_answered_event_by_event() {
    let (fleet, node) = holding().await;
    assert_eq!(dispatch(&node, 0).await.status(), StatusCode::NO_CONTENT);
    let second = release(&fleet, 2);
    let mut operator = fleet.operator().await;
    // The poll is held until the rollout asks.
    let (polled, published) = tokio::join!(dispatch(&node, 30), operator.publish(&second));
    published.unwrap();
    let asked: DispatchAnswer = decoded(&polled).unwrap();
    assert_eq!(asked.rollout_id.to_string(), format!("stable@{COMMIT}"));
    assert_eq!((asked.release, asked.target_closure), (2, second.sets["web-1"].root()));
    assert!(matches!(asked.task, RolloutTask::Acknowledge { .. }));

    let id = &asked.rollout_id;
    let enveloped = |seq: u64, event: &str| format!(r#"{{"rolloutId":"{id}","seq":{seq},"event":{event}}}"#);
    let ack = enveloped(1, r#"{"kind":"DispatchAck"}"#);
    for _ in 0..2 {
        assert_eq!(post(&node, ack.clone()).await.status(), StatusCode::NO_CONTENT, "twice is once");
    }
    assert_eq!(state(&fleet).await, NodeRolloutState::Activating);
    // What skips a number is not taken.
    let done = |seq| {
        format!(
            r#"{{"kind":"ActivationComplete","rollout_id":"{id}","seq":{seq},"release":2,"boot_id":"b1"}}"#
        )
    };
    let gap = refused(&post(&node, done(4)).await, Code::EventGap);
    assert_eq!(gap.next_number, Some(2));
    assert_eq!(post(&node, done(2)).await.status(), StatusCode::NO_CONTENT, "the other spelling");
    // What does not go with how the node stands is refused once and for all, and so is what nobody signed.
    refused(&post(&node, enveloped(3, r#"{"kind":"DispatchAck"}"#)).await, Code::EventRefused);
    let forged = r#"{"kind":"ProbeResult","probe":"up","outcome":"pass","boot":"b1"}"#;
    refused(&post(&node, enveloped(4, forged)).await, Code::EventRefused);
    refused(&post(&node, enveloped(4, r#"{"seq":4}"#)).await, Code::BadBody);
    refused(
        &post(&node, r#"{"rolloutId":"stable@00","seq":1,"event":{"kind":"DispatchAck"}}"#.into()).await,
        Code::NotFound,
    );
    assert_eq!(state(&fleet).await, NodeRolloutState::Soaking);
    // A body with frames is a poll, as it was, wherever they stand in it; any other is an event.
    for poll in [r#"{"frames":[]}"#, r#"{ "kind": "DispatchAck", "frames": [] }"#] {
        let refusal = refused(&post(&node, poll.into()).await, Code::BadBody);
        assert!(refusal.detail.unwrap().contains("hello"), "{poll}");
    }
    let refusal = refused(&post(&node, "{}".into()).await, Code::BadBody);
    assert!(refusal.detail.unwrap().contains("`kind`"));
    let long = enveloped(3, &format!(r#"{{"kind":"Failed","message":"{}"}}"#, "x".repeat(20_000)));
    refused(&post(&node, long).await, Code::BodyTooLarge);

    let heartbeat = serde_json::json!({ "last_event_seq_by_rollout": { id.to_string(): 9 } });
    let heard: HeartbeatAnswer = node.member.post(route::HEARTBEAT, &heartbeat).await.unwrap();
    assert_eq!(heard.replay_from, [(id.to_string(), 4)].into());
    assert_eq!(state(&fleet).await, NodeRolloutState::Soaking, "it moves nothing");

    // As a client of the source says it: the set that it is on, and not the number of a release.
    let topology = enveloped(4, r#"{"kind":"ProbeTopologyDeclared","declared_at":"x","probes":[]}"#);
    assert_eq!(post(&node, topology).await.status(), StatusCode::NO_CONTENT);
    let converged = |closure: &model::Digest| {
        format!(
            r#"{{"kind":"Converged","rollout_id":"{id}","seq":5,"boot_id":"b1","current_closure":"{closure}"}}"#
        )
    };
    refused(&post(&node, converged(&model::Digest::of(b"another"))).await, Code::EventRefused);
    assert_eq!(post(&node, converged(&asked.target_closure)).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(state(&fleet).await, NodeRolloutState::Converged);
}

#[tokio::test]
async fn the_signed_header_is_served_byte_for_byte() {
    let (fleet, node) = holding().await;
    let second = release(&fleet, 2);
    fleet.operator().await.publish(&second).await.unwrap();
    let view: RolloutView = fleet.operator().await.get("/v1/rollouts/stable").await.unwrap();
    let id: RolloutId = view.id;
    let json = manifest(&node, id.as_str(), None).await;
    assert_eq!(json.body(), second.header.payload.as_bytes());
    assert_eq!(json.headers()[header::CONTENT_TYPE], "application/json");
    let bytes = manifest(&node, id.as_str(), Some("application/octet-stream")).await;
    let signature = data_encoding::BASE64.decode(second.header.signatures[0].sig.as_bytes()).unwrap();
    assert_eq!(bytes.body(), &signature);
    for unknown in ["stable@00", "STABLE@00", "stable", "..%2Fetc", "stable@xyz"] {
        refused(&manifest(&node, unknown, None).await, Code::NotFound);
    }
    let path = route::ROLLOUT.replace("{id}", id.as_str());
    refused(
        &node.member.send(node.member.signed(Method::POST, &path, Vec::new())).await,
        Code::MethodNotAllowed,
    );
}

/// Only its document is left of a rollout that was evicted; and no node reads what is of another channel than its own.
#[tokio::test]
async fn what_is_evicted_or_of_another_channel_is_not_served() {
    let (fleet, node) = holding().await;
    let mut operator = fleet.operator().await;
    // The first rollout goes on. Each later one waits for it, and takes the place of the one that waited before.
    let last = 3 + MAX_SUPERSEDED as u64;
    let mut releases = Vec::new();
    for seq in 2..=last {
        releases.push(release(&fleet, seq));
        operator.publish(releases.last().unwrap()).await.unwrap();
    }
    let [_, oldest, next, ..] = &releases[..] else { panic!() };
    // The commit is taken by the first one: these are called by the digests of their headers.
    let id = |made: &Made| format!("stable@{}", signed::digest(&made.header));
    for made in [oldest, next] {
        assert_eq!(manifest(&node, &id(made), None).await.body(), made.header.payload.as_bytes());
    }
    operator.publish(&release(&fleet, last + 1)).await.unwrap();
    let evicted: RolloutView = operator.get(&format!("/v1/rollouts/{}", id(oldest))).await.unwrap();
    assert_eq!(evicted.state, RolloutState::Pruned, "its document is there");
    refused(&manifest(&node, &id(oldest), None).await, Code::NotFound);
    assert_eq!(manifest(&node, &id(next), None).await.status(), StatusCode::OK);

    // The node is in another channel from now on.
    let plan = Plan::new(&fleet.enroll_info().fleet, last + 2).node("web-1", &[params("elsewhere")]);
    let elsewhere = make(&Plan { channel: "edge".parse().unwrap(), ..plan }, &fleet.release_key());
    operator.publish(&elsewhere).await.unwrap();
    for accept in [None, Some("application/octet-stream")] {
        refused(&manifest(&node, &id(next), accept).await, Code::NotEntitled);
    }
    refused(&manifest(&node, &id(oldest), None).await, Code::NotFound);
}
