//! What status says of synchronization is what a link has seen, also after a restart, and no
//! word outlives its reason (SYN-5, SYN-6, OPS-4).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use model::replication::Mode;
use server::api::objects::{SyncView, SyncsView};
use streams::MemoryLinkHandler;
use sync::link::Outcome;
use test_support::fleet::link::{handler, item, linked, publish_mode};
use test_support::fleet::{Fleet, Member, Operator, now};
use test_support::wait::until;

async fn fleet(mode: Mode) -> (Fleet, Operator, Member) {
    let fleet = Fleet::start().await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], mode, 1).await;
    let operator = fleet.operator().await;
    (fleet, operator, node)
}

async fn view(operator: &mut Operator) -> SyncView {
    let page: SyncsView = operator.get("/v1/sync").await.unwrap();
    page.nodes.into_iter().next().unwrap()
}

/// Waits until the node is in a state.
async fn becomes(fleet: &Fleet, state: &str) -> SyncView {
    let operator = tokio::sync::Mutex::new(fleet.operator().await);
    until(state, async || {
        let view = view(&mut *operator.lock().await).await;
        (view.state == state).then_some(view)
    })
    .await
}

async fn apply(operator: &mut Operator, name: &str, text: &str) {
    let manifest = serde_json::json!({"apiVersion": "test/v1", "kind": "Item",
        "metadata": {"namespace": "web", "name": name}, "spec": {"text": text}});
    let apply = server::api::objects::Apply {
        manifests: vec![manifest],
        node: Some("edge-1".to_owned()),
        mapping: Default::default(),
        dry_run: false,
        trace: None,
    };
    let _: server::api::objects::Results = operator.post("/v1/objects", &apply).await.unwrap();
}

fn refusing(name: &str) -> Arc<MemoryLinkHandler> {
    let handler = handler("n1");
    let (code, message) = ("no".to_owned(), "it does not fit here".to_owned());
    handler.refuse(item(name), Outcome::Permanent { code, message });
    handler
}

async fn restarted(fleet: &mut Fleet, node: &mut Member) {
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_link_has_compared_is_not_in_sync() {
    let (mut fleet, mut operator, mut node) = fleet(Mode::Autonomous).await;
    let never = view(&mut operator).await;
    assert_eq!(never.state, "unknown");
    assert!(never.why.unwrap().contains("no link"));
    let handler = handler("n1");
    handler.put(item("a"), "u1", "{}".into(), now().0);
    let link = linked(&node, Mode::Autonomous, "l1", &handler).await;
    becomes(&fleet, "in-sync").await;
    link.stop().await;
    // It never checked in, so it is late: it may have changed since.
    let late = becomes(&fleet, "unknown").await;
    assert!(late.why.unwrap().contains("did not call"));
    node.survives().await;
    becomes(&fleet, "in-sync").await;
    restarted(&mut fleet, &mut node).await;
    node.survives().await;
    becomes(&fleet, "in-sync").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_diverged_node_is_diverged_after_a_restart() {
    let (mut fleet, mut operator, mut node) = fleet(Mode::Managed).await;
    apply(&mut operator, "a", "one").await;
    let handler = refusing("a");
    let link = linked(&node, Mode::Managed, "l1", &handler).await;
    becomes(&fleet, "diverged").await;
    link.stop().await;
    restarted(&mut fleet, &mut node).await;
    let kept = view(&mut fleet.operator().await).await;
    assert_eq!((kept.state.as_str(), kept.behind), ("diverged", 0), "{:?}", kept.why);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_object_is_forgotten_once_it_is_taken() {
    let (fleet, mut operator, node) = fleet(Mode::Managed).await;
    apply(&mut operator, "a", "one").await;
    let handler = refusing("a");
    let link = linked(&node, Mode::Managed, "l1", &handler).await;
    becomes(&fleet, "diverged").await;
    handler.refuse(item("other"), Outcome::Done);
    apply(&mut operator, "a", "two").await;
    becomes(&fleet, "in-sync").await;
    link.stop().await;
    assert_eq!(view(&mut operator).await.state, "in-sync");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_what_was_never_sent_is_not_shown() {
    let (fleet, mut operator, node) = fleet(Mode::Managed).await;
    apply(&mut operator, "a", "one").await;
    let link = linked(&node, Mode::Managed, "l1", &handler("n1")).await;
    becomes(&fleet, "in-sync").await;
    let refused = sync::frame::Refused {
        rev: 1,
        key: item("never"),
        code: "no".to_owned(),
        message: "never heard of".to_owned(),
    };
    let word = streams::LinkCommand::Say(Box::new(sync::Frame::Refused(Box::new(refused))));
    assert!(link.orders.tell_in_turn(word).await);
    // What is applied after it has been heard after it.
    apply(&mut operator, "a", "two").await;
    becomes(&fleet, "in-sync").await;
    link.stop().await;
    let after = view(&mut operator).await;
    assert_eq!(after.state, "in-sync", "{:?}", after.why);
}
