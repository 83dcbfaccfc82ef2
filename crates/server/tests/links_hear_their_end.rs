//! SYN-13, SYN-1: server-sent events and `Push` end, with the reason, when another link of the node takes their
//! place, when the node is removed and when the control plane stops; also while nobody reads them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use http::Method;
use model::replication::Mode;
use serde_json::json;
use server::api::NodeView;
use server::api::objects::{ObjectResults, SyncsView};
use sync::Frame;
use test_support::fleet::link::{Poller, Sse, config, handler, linked, publish_mode};
use test_support::fleet::{Fleet, Member};
use test_support::wait::{DEADLINE, soon, until};
use tokio::task::JoinHandle;
use wire::grpc::GrpcStatus;
use wire::route;

use crate::refusals_name_their_reason::{call, greeting};

async fn fleet() -> (Fleet, Member) {
    let fleet = Fleet::start().await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], Mode::Managed, 1).await;
    (fleet, node)
}

/// A push whose way up stays open, once it is the node's link; how it is answered.
async fn pushing(fleet: &Fleet, node: &Member) -> JoinHandle<GrpcStatus> {
    let (mut client, request) = (node.dial().await, call(node, route::PUSH));
    let answered = tokio::spawn(async move {
        let stream = client.open_stream(request, greeting().into(), DEADLINE).await.unwrap();
        GrpcStatus::read(&stream.response.headers).expect("headers alone")
    });
    until("the push is the node's link", async || {
        let page: SyncsView = fleet.operator().await.get("/v1/sync").await.unwrap();
        page.nodes[0].link
    })
    .await;
    answered
}

/// The node's events, once their hello came.
async fn events(node: &Member) -> Sse {
    let mut events = Sse::open(node, "one").await.unwrap();
    events.hears(|frame| matches!(frame, Frame::Hello(_))).await;
    events
}

/// With what the control plane ends the events.
async fn code(events: &mut Sse) -> String {
    let Frame::GoAway(away) = events.hears(|frame| matches!(frame, Frame::GoAway(_))).await else { panic!() };
    away.code
}

async fn remove(fleet: &Fleet) {
    let _: NodeView = fleet.operator().await.delete("/v1/nodes/edge-1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_hears_that_it_is_replaced() {
    let (fleet, node) = fleet().await;
    let push = pushing(&fleet, &node).await;
    let link = linked(&node, Mode::Managed, "one", &handler("n1")).await;
    assert_eq!(soon(push).await.unwrap().reason.as_deref(), Some("replaced"));
    assert!(!link.ended.is_finished());
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_hears_that_its_node_is_removed() {
    let (fleet, node) = fleet().await;
    let push = pushing(&fleet, &node).await;
    remove(&fleet).await;
    assert_eq!(soon(push).await.unwrap().reason.as_deref(), Some("removed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_hears_that_its_connection_is_to_end() {
    let (mut fleet, node) = fleet().await;
    let push = pushing(&fleet, &node).await;
    fleet.stop().await;
    assert_eq!(soon(push).await.unwrap().reason.as_deref(), Some("shutdown"));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_hear_that_they_are_replaced() {
    let (_fleet, node) = fleet().await;
    let mut events = events(&node).await;
    let link = linked(&node, Mode::Managed, "one", &handler("n1")).await;
    assert_eq!(code(&mut events).await, "replaced");
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_hear_that_their_node_is_removed() {
    let (fleet, node) = fleet().await;
    let mut events = events(&node).await;
    remove(&fleet).await;
    assert_eq!(code(&mut events).await, "removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_hear_that_their_connection_is_to_end() {
    let (mut fleet, node) = fleet().await;
    let mut events = events(&node).await;
    let ((), code) = tokio::join!(fleet.stop(), code(&mut events));
    assert_eq!(code, "shutdown");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_nobody_reads_end_too() {
    let (fleet, node) = fleet().await;
    // Nothing goes down before the node's cursor is known.
    Poller::new(config(Mode::Managed, "one"), &handler("n1")).all(&node).await;
    let _unread = events(&node).await;
    // Each change sends what is not acknowledged anew, until no more fits on the way.
    for n in 0..16 {
        let text = "x".repeat(900_000);
        let manifest = json!({"apiVersion": "test/v1", "kind": "Item",
            "metadata": {"namespace": "web", "name": format!("i{n}")}, "spec": {"text": text}});
        let apply = json!({"manifests": [manifest], "node": "edge-1"});
        let _: ObjectResults = fleet.operator().await.post("/v1/objects", &apply).await.unwrap();
    }
    remove(&fleet).await;
    until("the link is over", async || {
        let metrics = fleet.operator().await.raw(Method::GET, "/metrics", Vec::new()).await;
        let text = String::from_utf8(metrics.body().to_vec()).unwrap();
        text.contains("muster_link_duration_seconds_count{transport=\"sse\"} 1\n").then_some(())
    })
    .await;
}
