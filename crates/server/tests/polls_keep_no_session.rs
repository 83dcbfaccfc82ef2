//! SYN-1, SYN-4, SYN-11: everything works by polls alone. Of a poll the control plane keeps nothing
//! but the node's durable cursors: one that was restarted answers the next poll, and a poll whose
//! answer was lost costs what was on its way.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use model::condition::SyncState;
use model::replication::Mode;
use serde_json::json;
use server::api::objects::{ObjectResults, SyncsView};
use streams::{Exchange, LinkHandler};
use sync::Frame;
use sync::frame::{Interop, ResyncRequest};
use test_support::fleet::link::{Poller, config, handler, item, post, publish_mode};
use test_support::fleet::{Fleet, Member, now};

const MIB: usize = 1024 * 1024;
/// What the control plane may author for one node.
const OBJECTS: usize = 112;

async fn fleet(mode: Mode) -> (Fleet, Member) {
    let fleet = Fleet::start().await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], mode, 1).await;
    (fleet, node)
}

/// Text that gzip does not shorten much.
fn text(seed: usize, bytes: usize) -> String {
    let mut state = seed as u64 + 1;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + (state >> 59) as u8 % 26)
    };
    (0..bytes).map(|_| letter()).collect()
}

/// Applies objects of nearly a MiB each.
async fn apply(fleet: &Fleet, names: std::ops::Range<usize>) {
    let manifests: Vec<_> = names
        .map(|n| {
            json!({"apiVersion": "test/v1", "kind": "Item",
                "metadata": {"namespace": "web", "name": format!("i{n}")}, "spec": {"text": text(n, MIB - 1000)}})
        })
        .collect();
    let apply = json!({"manifests": manifests, "node": "edge-1"});
    let _: ObjectResults = fleet.operator().await.post("/v1/objects", &apply).await.unwrap();
}

/// How the node stands, which keeps its time; and how many objects came up.
async fn state(fleet: &Fleet, node: &Member) -> (SyncState, u64) {
    node.survives().await;
    let page: SyncsView = fleet.operator().await.get("/v1/sync").await.unwrap();
    (page.nodes[0].condition.state, page.nodes[0].up)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_a_node_may_have_comes_by_polls_also_over_a_restart() {
    let (mut fleet, mut node) = fleet(Mode::Managed).await;
    for first in (0..OBJECTS).step_by(8) {
        apply(&fleet, first..(first + 8).min(OBJECTS)).await;
    }
    let handler = handler("n1");
    let mut poller = Poller::new(config(Mode::Managed, "one"), &handler);
    for _ in 0..20 {
        assert!(poller.poll(&node).await.unwrap(), "there is more");
    }
    assert!((10..OBJECTS).contains(&handler.their_count()), "{}", handler.their_count());
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    let before = handler.their_count();
    let polls = poller.all(&node).await;
    assert_eq!(handler.their_count(), OBJECTS);
    // Each brings one object or two, and the last ones find that all is there.
    assert!(polls <= OBJECTS - before + 5, "{polls} polls for {} objects", OBJECTS - before);
    assert_eq!(state(&fleet, &node).await, (SyncState::InSync, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_whose_answer_is_lost_costs_what_was_on_its_way() {
    let (fleet, node) = fleet(Mode::Autonomous).await;
    let handler = handler("n1");
    let own = |n: usize| (item(&format!("i{n}")), format!("u{n}").into(), Bytes::from(text(n, 40_000)));
    handler.put_all((0..200).map(own), now().0);
    let mut poller = Poller::new(config(Mode::Autonomous, "one"), &handler);
    poller.poll(&node).await.unwrap();
    let mut sent = 0;
    for _ in 0..5 {
        // What was posted arrives; its answer does not.
        let after = Some(sync::FeedCursor::at("n1".parse().unwrap(), 0));
        let mut exchange = Exchange::open(config(Mode::Autonomous, "one"), after, handler.clone());
        post(&node, exchange.step(Vec::new()).await.frames).await.unwrap();
        sent += exchange.end().await.counters.sent;
    }
    poller.all(&node).await;
    assert_eq!(state(&fleet, &node).await, (SyncState::InSync, 200));
    assert!(sent < 100, "{sent}");
    assert_eq!(handler.with_sets(|feed, _| feed.head()), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resync_both_ways_goes_on_from_poll_to_poll() {
    let (fleet, node) = fleet(Mode::Autonomous).await;
    let first = handler("n1");
    let own =
        |n: usize| (item(&format!("i{n}")), format!("u{n}").into(), Bytes::from(format!("{{\"n\":{n}}}")));
    first.put_all((0..3000).map(own), now().0);
    Poller::new(config(Mode::Autonomous, "one"), &first).all(&node).await;
    assert_eq!(state(&fleet, &node).await, (SyncState::InSync, 3000));
    // The node begins a new incarnation with some other objects: the control plane compares.
    let second = handler("n2");
    second.put_all((100..3100).map(own), now().0);
    let polls = Poller::new(config(Mode::Autonomous, "one"), &second).all(&node).await;
    assert_eq!(state(&fleet, &node).await, (SyncState::InSync, 3000), "{polls} polls");
}

/// A post that is refused takes nothing of what an operator asked for: the next one does it at both ends.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_asks_for_outlives_a_refused_post() {
    let (fleet, node) = fleet(Mode::Autonomous).await;
    let handler = handler("n1");
    handler.put(item("i0"), "u0", Bytes::from_static(b"one"), now().0);
    let mut poller = Poller::new(config(Mode::Autonomous, "one"), &handler);
    poller.all(&node).await;
    let asked = json!({"nodes": ["edge-1"]});
    let _: server::api::objects::Resynced = fleet.operator().await.post("/v1/resyncs", &asked).await.unwrap();
    let refused = post(&node, vec![Frame::StateUpdated]).await.unwrap_err();
    assert_eq!(refused.code, "bad-body", "a post begins with a hello");

    let hello = Exchange::open(config(Mode::Autonomous, "one"), None, handler.clone()).step(Vec::new()).await;
    let said = post(&node, hello.frames.clone()).await.unwrap().frames;
    assert!(said.contains(&Frame::Interop(Box::new(Interop::RequestResync))), "the node is asked");
    let request = Frame::ResyncRequest(Box::new(ResyncRequest::Sections));
    assert!(said.contains(&request), "and the control plane resyncs itself");
    let said = post(&node, hello.frames).await.unwrap().frames;
    assert!(!said.contains(&Frame::Interop(Box::new(Interop::RequestResync))), "once");
}
