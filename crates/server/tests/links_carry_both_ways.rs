//! Over each transport objects go down and come up, durably, and both sides say so
//! (SYN-1, SYN-4, SYN-5).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::condition::SyncState;
use model::replication::Mode;
use model::replication::TransportKind;
use serde_json::{Value, json};
use server::api::objects::{Apply, Mapping, ObjectResults, ObjectsView, SyncsView};
use test_support::fleet::link::{config, handler, item, linked, publish_mode, running, websocket};
use test_support::fleet::{Fleet, Operator, now};
use test_support::wait::{eventually, until};

fn manifest(name: &str, text: &str) -> Value {
    json!({"apiVersion": "test/v1", "kind": "Item",
        "metadata": {"namespace": "web", "name": name}, "spec": {"text": text}})
}

async fn apply(operator: &mut Operator, node: &str, manifests: Vec<Value>) -> ObjectResults {
    let apply = Apply {
        manifests,
        node: Some(node.to_owned()),
        mapping: Mapping::default(),
        dry_run: false,
        trace: None,
    };
    operator.post("/v1/objects", &apply).await.unwrap()
}

async fn state(operator: &mut Operator, node: &str) -> (SyncState, Option<TransportKind>) {
    let syncs: SyncsView = operator.get(&format!("/v1/sync?match={node}")).await.unwrap();
    (syncs.nodes[0].condition.state, syncs.nodes[0].link)
}

#[tokio::test(flavor = "multi_thread")]
async fn managed_objects_go_down_over_grpc() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    publish_mode(&fleet, &["web-1"], Mode::Managed, 1).await;
    let mut operator = fleet.operator().await;
    apply(&mut operator, "web-1", vec![manifest("a", "one"), manifest("b", "two")]).await;
    let handler = handler("n1");
    let link = linked(&node, Mode::Managed, "incarnation-1", &handler).await;
    eventually("both objects are at the node", || handler.their_count() == 2).await;
    apply(&mut operator, "web-1", vec![manifest("a", "three")]).await;
    let three = || {
        let theirs = handler.theirs();
        theirs.get(&item("a")).is_some_and(|bytes| String::from_utf8_lossy(bytes).contains("three"))
    };
    eventually("the update is at the node", three).await;
    let operator = tokio::sync::Mutex::new(operator);
    let transport = until("both sides are in sync", async || {
        let (state, transport) = state(&mut *operator.lock().await, "web-1").await;
        (state == SyncState::InSync).then_some(transport)
    });
    assert_eq!(transport.await, Some(TransportKind::Grpc));
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn autonomous_objects_come_up_over_grpc_and_survive_a_restart() {
    let mut fleet = Fleet::start().await;
    let mut node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], Mode::Autonomous, 1).await;
    let handler = handler("n1");
    for number in 0..300 {
        handler.put(
            item(&format!("i{number}")),
            &format!("u{number}"),
            json!({"n": number}).to_string().into(),
            now().0,
        );
    }
    let link = linked(&node, Mode::Autonomous, "incarnation-1", &handler).await;
    eventually("all is acknowledged", || handler.acked() == 300).await;
    link.cut().await;
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    let mut operator = fleet.operator().await;
    let listed: ObjectsView = operator.get("/v1/objects?node=edge-1&limit=1000").await.unwrap();
    assert_eq!(listed.objects.len(), 300, "what was acknowledged is durable");
    handler.remove(&item("i7"));
    let link = linked(&node, Mode::Autonomous, "incarnation-1", &handler).await;
    eventually("the removal is acknowledged", || handler.acked() == 301).await;
    let listed: ObjectsView = operator.get("/v1/objects?node=edge-1&limit=1000").await.unwrap();
    assert_eq!(listed.objects.len(), 299);
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_carries_the_same() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    publish_mode(&fleet, &["web-1"], Mode::Managed, 1).await;
    let mut operator = fleet.operator().await;
    apply(&mut operator, "web-1", vec![manifest("a", "one")]).await;
    let handler = handler("n1");
    let ends = websocket(&node).await.expect("the socket opens");
    let link = running(config(Mode::Managed, "incarnation-1"), &handler, ends);
    eventually("the object is at the node", || handler.their_count() == 1).await;
    link.stop().await;
}
