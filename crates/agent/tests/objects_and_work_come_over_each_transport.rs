//! SYN-1, SYN-5, SYN-10, OPS-2: objects that an operator applies are on the node, and what the
//! node is asked for is done and told, over each transport.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::replication::{Mode, TransportPolicy};
use test_support::agent_pair::{Pair, item, says};
use test_support::wait::until;

async fn over(transport: TransportPolicy, transport_kind: &str) {
    let says = says(Mode::Managed, None, transport).delegating(&[&["/bin/echo", "**"]]);
    let mut pair = Pair::new(&says).await;
    let daemon = pair.daemon();
    pair.apply(vec![item("a", "one"), item("b", "two")]).await;
    until("two objects are on the node", async || (pair.status()["replicaObjects"] == 2).then_some(())).await;
    let task = pair.begin(&["/bin/echo", "it", "works"]).await;
    let task = pair.task_over(&task.id).await;
    assert_eq!(task.summary.progress.succeeded, 1, "{task:?}");
    assert_eq!(pair.output(&task.id).await, "it works\n");
    until("the action's object is gone again", async || (pair.status()["replicaObjects"] == 2).then_some(()))
        .await;
    let log = daemon.log();
    assert!(log.contains(&format!("transport_kind=\"{transport_kind}\"")), "{log}");
    assert!(daemon.end().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn over_grpc() {
    over(TransportPolicy::Grpc, "grpc").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_websocket() {
    over(TransportPolicy::Websocket, "websocket").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_server_sent_events() {
    over(TransportPolicy::Sse, "sse").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_polling() {
    over(TransportPolicy::Poll, "poll").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_itself() {
    over(TransportPolicy::Auto, "grpc").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_transport_is_taken_when_the_release_names_it() {
    let mut pair = Pair::new(&says(Mode::Managed, None, TransportPolicy::Grpc)).await;
    let _daemon = pair.daemon();
    until("a link over gRPC", async || (pair.status()["link"] == "grpc").then_some(())).await;
    pair.publish(&says(Mode::Managed, None, TransportPolicy::Websocket)).await;
    until("a link over a WebSocket", async || (pair.status()["link"] == "websocket").then_some(())).await;
}
