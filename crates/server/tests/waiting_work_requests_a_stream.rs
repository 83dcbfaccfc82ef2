//! SYN-10, DLT-5: a node that polls is asked for a stream when something waits for it, at once
//! where it waits in a long poll, and is not asked again and again for the same.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use model::exchange::Answer;
use model::replication::Mode;
use server::api::objects::{Resynced, SyncsView};
use sync::Frame;
use test_support::fleet::link::{Poller, config, handler, hello, post};
use test_support::fleet::synced::{managed, manifest};
use test_support::fleet::{Fleet, Member, body_of, quiet};
use wire::route;

/// Shorter than the wait of a long poll in these tests.
const PROMPT: Duration = Duration::from_secs(10);

async fn poll(node: &Member, held: &model::exchange::HeldRelease, wait: u64) -> Answer {
    let check_in = test_support::fleet::synced::holding(held.clone());
    let path = format!("{}?wait={wait}", route::CHECKIN);
    let request = node.signed(http::Method::POST, &path, body_of(&check_in));
    test_support::fleet::decoded(&node.send(request).await).unwrap()
}

async fn one() -> (Fleet, test_support::fleet::Operator, Member, model::exchange::HeldRelease) {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let mut operator = fleet.operator().await;
    let plan =
        test_support::fleet::release::Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &managed());
    let made = test_support::fleet::release::make(&plan, &fleet.release_key());
    operator.publish(&made).await.unwrap();
    node.check_in(&quiet()).await.unwrap();
    let held = made.held("web-1");
    (fleet, operator, node, held)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_check_in_is_answered_at_once() {
    let (_fleet, mut operator, node, held) = one().await;
    assert!(!poll(&node, &held, 0).await.stream_requested);
    let begun = Instant::now();
    let (answer, _) = tokio::join!(poll(&node, &held, 30), async {
        // The poll may not have begun yet; then it finds what waits, which is as good.
        operator.apply(vec![manifest("web-1", "shop", 1)]).await
    });
    assert!(answer.stream_requested && begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    // The node was notified once, so the next long poll waits; new work notifies it again.
    let begun = Instant::now();
    assert!(poll(&node, &held, 1).await.stream_requested);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    let begun = Instant::now();
    operator.apply(vec![manifest("web-1", "shop", 2)]).await;
    assert!(poll(&node, &held, 30).await.stream_requested);
    assert!(begun.elapsed() < PROMPT);
}

#[tokio::test]
async fn what_waits_is_known_after_a_restart() {
    let (mut fleet, mut operator, mut node, held) = one().await;
    operator.apply(vec![manifest("web-1", "shop", 1)]).await;
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    assert!(poll(&node, &held, 0).await.stream_requested);
    let page: SyncsView = fleet.operator().await.get("/v1/sync").await.unwrap();
    assert_eq!((page.nodes[0].behind, page.nodes[0].reach.as_str()), (1, "promotable"));
}

#[tokio::test]
async fn a_resync_on_an_operators_word_asks_too() {
    let (_fleet, mut operator, node, held) = one().await;
    assert!(!poll(&node, &held, 0).await.stream_requested);
    let asked = serde_json::json!({"nodes": ["web-1"]});
    let told: Resynced = operator.post("/v1/resyncs", &asked).await.unwrap();
    assert_eq!((told.now, told.nodes), (0, 1));
    assert!(poll(&node, &held, 0).await.stream_requested);
}

/// What the first post begins takes several: until both sets are compared a link is asked for.
#[tokio::test]
async fn a_resync_that_polls_have_begun_asks_until_it_ends() {
    let (_fleet, mut operator, node, held) = one().await;
    let asked = serde_json::json!({"nodes": ["web-1"]});
    let _: Resynced = operator.post("/v1/resyncs", &asked).await.unwrap();
    post(&node, vec![Frame::Hello(Box::new(hello(Mode::Managed, "one")))]).await.unwrap();
    assert!(poll(&node, &held, 0).await.stream_requested, "it was passed on, and nothing came of it yet");
    Poller::new(config(Mode::Managed, "one"), &handler("n1")).all(&node).await;
    assert!(!poll(&node, &held, 0).await.stream_requested);
}
