//! DLT-5, SYN-11: a run that an operator requests is announced on the open link of each node at once, also
//! when it is requested while an earlier request is still being announced, a hundred links at a time.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use model::replication::Mode;
use serde_json::json;
use server::api::RunRequested;
use sync::Frame;
use test_support::fleet::link::{handler, linked, publish_mode};
use test_support::fleet::{Fleet, Operator};
use test_support::memory::MemoryLinkHandler;
use test_support::wait::eventually;

/// After a hundred links the announcement pauses.
const NODES: usize = 101;

/// How often the node was told that there is reason to check in.
fn announced(handler: &Arc<MemoryLinkHandler>) -> usize {
    handler.received().iter().filter(|frame| **frame == Frame::StateUpdated).count()
}

async fn request(operator: &mut Operator, names: &[String]) {
    let asked: RunRequested = operator.post("/v1/run-requests", &json!({"nodes": names})).await.unwrap();
    assert_eq!(asked.nodes, NODES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_requested_during_an_announcement_is_announced_too() {
    let fleet = Fleet::start().await;
    let names: Vec<String> = (0..NODES).map(|n| format!("edge-{n}")).collect();
    let hostnames: Vec<&str> = names.iter().map(String::as_str).collect();
    publish_mode(&fleet, &hostnames, Mode::Managed, 1).await;
    let mut links = Vec::new();
    for name in &names {
        let (node, handler) = (fleet.node(name).await, handler("n1"));
        links.push((linked(&node, Mode::Managed, "one", &handler).await, handler));
    }
    eventually("all links are up", || links.iter().all(|(_, handler)| handler.hellos() > 0)).await;
    let mut operator = fleet.operator().await;
    let before: Vec<usize> = links.iter().map(|(_, handler)| announced(handler)).collect();
    request(&mut operator, &names).await;
    eventually("the first ones hear of it", || {
        links.iter().zip(&before).any(|((_, handler), before)| announced(handler) > *before)
    })
    .await;
    request(&mut operator, &names).await;
    eventually("each hears of both", || {
        links.iter().zip(&before).all(|((_, handler), before)| announced(handler) >= before + 2)
    })
    .await;
    for (link, _) in links {
        link.stop().await;
    }
}
