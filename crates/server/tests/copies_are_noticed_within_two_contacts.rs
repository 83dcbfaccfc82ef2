//! IDN-10: two live holders of one key are noticed within two contacts, over check-ins and links; neither gets releases,
//! contents, actions or objects until an operator decides, whatever restarts meanwhile. One agent that restarts is one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::exchange::{Answer, CheckIn};
use model::{AgentInstance, Digest};
use serde_json::{Value, json};
use test_support::fleet::release::{Plan, make, module, params};
use test_support::fleet::{Fleet, Member, quiet, refused};
use wire::Code;

const BLOB: &[u8] = b"content";

fn says(id: &str, after: Option<&str>) -> CheckIn {
    let instance = AgentInstance { id: id.to_owned(), after: after.map(str::to_owned) };
    CheckIn { instance: Some(instance), ..quiet() }
}

async fn contact(node: &Member, id: &str, after: Option<&str>) -> Answer {
    node.check_in(&says(id, after)).await.unwrap()
}

async fn one_node() -> (Fleet, Member) {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let plan =
        Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[params("a"), module("m", "t", &[BLOB])]);
    let plan = Plan { blobs: vec![BLOB.to_vec()], ..plan };
    fleet.operator().await.publish(&make(&plan, &fleet.release_key())).await.unwrap();
    (fleet, node)
}

fn gets_something(answer: &Answer) -> bool {
    answer.offer.is_some()
        || answer.run_request.is_some()
        || answer.tagged_run.is_some()
        || answer.stream_requested
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_of_two_holders_gets_anything_until_an_operator_decides() {
    let (mut fleet, mut node) = one_node().await;
    assert!(gets_something(&contact(&node, "x", None).await));
    // The clone speaks for the first time: it could be a restart.
    assert!(!contact(&node, "clone", Some("x")).await.identity_copied);
    let mut operator = fleet.operator().await;
    let _: Value = operator.post("/v1/run-requests", &json!({"nodes": ["web-1"]})).await.unwrap();
    // The second contact tells.
    let answer = contact(&node, "x", None).await;
    assert!(answer.identity_copied && !gets_something(&answer), "{answer:?}");
    let answer = contact(&node, "clone", Some("x")).await;
    assert!(answer.identity_copied && !gets_something(&answer), "{answer:?}");
    refused(&node.blob(&Digest::of(BLOB), None).await, Code::DuplicateIdentity);

    let view = operator.node("web-1").await;
    assert!(view.copied_since.is_some() && view.cause.unwrap().contains("two hosts hold its key"));
    let status = operator.status().await;
    let cause = status.causes.iter().find(|cause| cause.cause.contains("two hosts")).unwrap();
    assert!(cause.next.contains("muster node approve web-1 --copy-resolved"), "{}", cause.next);

    // It stays so over a restart, also for who says nothing of itself.
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    let answer = node.check_in(&quiet()).await.unwrap();
    assert!(answer.identity_copied && !gets_something(&answer));

    let mut operator = fleet.operator().await;
    let resolved: server::api::NodeView =
        operator.post("/v1/nodes/web-1/resolve-copy", &json!({})).await.unwrap();
    assert_eq!(resolved.copied_since, None);
    let answer = contact(&node, "x", None).await;
    assert!(!answer.identity_copied && gets_something(&answer));
    // Should the copy speak again, it is noticed anew.
    contact(&node, "clone", Some("x")).await;
    assert!(contact(&node, "x", None).await.identity_copied);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_restarts_is_one() {
    let (mut fleet, mut node) = one_node().await;
    let mut before = None;
    for number in 0..6 {
        let id = format!("start-{number}");
        for _ in 0..2 {
            let answer = contact(&node, &id, before.as_deref()).await;
            assert!(!answer.identity_copied && gets_something(&answer), "{id}");
        }
        before = Some(id);
        if number == 3 {
            fleet.stop().await;
            fleet.start_again().await;
            node.url = fleet.url();
        }
    }
    // An agent of before says nothing of itself.
    assert!(!node.check_in(&quiet()).await.unwrap().identity_copied);
    assert_eq!(fleet.operator().await.node("web-1").await.copied_since, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_crash_before_each_contact_are_noticed() {
    let (_fleet, node) = one_node().await;
    contact(&node, "x", None).await;
    contact(&node, "a1", Some("x")).await;
    assert!(!contact(&node, "b1", Some("x")).await.identity_copied);
    assert!(contact(&node, "a2", Some("a1")).await.identity_copied);
}
