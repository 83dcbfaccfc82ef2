//! SYN-6, OPS-2: a node that was asked to do something is not behind: status tells of objects, and
//! of how many changes of them a node lacks, also after a restart of the control plane.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use model::condition::SyncState;
use model::replication::Mode;
use model::{Kind, ObjectKey};
use serde_json::{Value, json};
use server::api::objects::{SyncView, SyncsView};
use sync::link::ItemOutcome;
use test_support::fleet::link::{handler, linked, policy};
use test_support::fleet::release::params;
use test_support::fleet::synced::{delegation, publish};
use test_support::fleet::{Fleet, Member, Operator};
use test_support::memory::MemoryLinkHandler;
use test_support::wait::until;

/// State, how far behind, and how many objects go down.
async fn stands(operator: &mut Operator) -> (SyncState, u64, u64) {
    let page: SyncsView = operator.get("/v1/sync").await.unwrap();
    let SyncView { condition, behind, down, .. } = page.nodes.into_iter().next().unwrap();
    (condition.state, behind, down)
}

fn is(state: SyncState, behind: u64, down: u64) -> (SyncState, u64, u64) {
    (state, behind, down)
}

fn item(name: &str, text: &str) -> Value {
    json!({"kind": "Item", "metadata": {"name": name, "namespace": "web-1"}, "spec": {"text": text}})
}

/// One object is at the node, and both sides know it; the link is over.
async fn one_in_sync(fleet: &Fleet, node: &Member) -> Arc<MemoryLinkHandler> {
    let mut operator = fleet.operator().await;
    let objects = vec![params("a"), policy(Mode::Managed), delegation()];
    publish(fleet, &mut operator, &[("web-1", objects)]).await;
    node.survives().await;
    operator.apply(vec![item("a", "one")]).await;
    let handler = handler("n1");
    let link = linked(node, Mode::Managed, "l1", &handler).await;
    until("in sync", async || {
        let mut operator = fleet.operator().await;
        (stands(&mut operator).await == is(SyncState::InSync, 0, 1)).then_some(())
    })
    .await;
    link.stop().await;
    handler
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_that_wait_are_no_objects_that_lack() {
    let mut fleet = Fleet::start().await;
    let mut node = fleet.node("web-1").await;
    let mut operator = fleet.operator().await;
    let handler = one_in_sync(&fleet, &node).await;
    for _ in 0..3 {
        operator.begin("web-1", &["/bin/true"]).await;
    }
    operator.actions_when("web-1", 3).await;
    assert_eq!(stands(&mut operator).await, is(SyncState::InSync, 0, 1));
    // What is called off changes its action once more.
    let task = operator.begin("web-1", &["/bin/true"]).await;
    operator.actions_when("web-1", 4).await;
    let _: server::api::work::TaskView =
        operator.post(&format!("/v1/tasks/{}/cancel", task.id), &json!({})).await.unwrap();
    operator.apply(vec![item("a", "two"), item("b", "one")]).await;
    assert_eq!(stands(&mut operator).await, is(SyncState::Behind, 2, 2));

    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    node.survives().await;
    let mut operator = fleet.operator().await;
    // Whoever needs its sets finds out what is of objects.
    operator.begin("web-1", &["/bin/true"]).await;
    operator.actions_when("web-1", 5).await;
    assert_eq!(stands(&mut operator).await, is(SyncState::Behind, 2, 2));
    let link = linked(&node, Mode::Managed, "l2", &handler).await;
    until("in sync again", async || {
        let mut operator = fleet.operator().await;
        (stands(&mut operator).await == is(SyncState::InSync, 0, 2)).then_some(())
    })
    .await;
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_of_objects_outlives_a_link_that_was_lost_with_an_action_under_way() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let mut operator = fleet.operator().await;
    let handler = one_in_sync(&fleet, &node).await;
    operator.begin("web-1", &["/bin/true"]).await;
    let action = operator.actions_when("web-1", 1).await.remove(0);
    let busy = ItemOutcome::Temporary("busy".to_owned());
    handler.refuse(ObjectKey::of(Kind::ACTION, action.as_str()), busy);
    let link = linked(&node, Mode::Managed, "l1", &handler).await;
    // A second try: the link knows of the first, and holds the action.
    until("the action is tried again", async || (handler.refusals() > 1).then_some(())).await;
    assert_eq!(stands(&mut operator).await, is(SyncState::InSync, 0, 1), "while the action is under way");
    link.cut().await;
    let unlinked = async || {
        let mut operator = fleet.operator().await;
        let page: SyncsView = operator.get("/v1/sync").await.unwrap();
        page.nodes[0].link.is_none().then_some(())
    };
    until("the link is over", unlinked).await;
    assert_eq!(stands(&mut operator).await, is(SyncState::InSync, 0, 1), "and when it was lost");
}

#[tokio::test]
async fn a_node_that_synchronizes_nothing_is_off_while_work_waits_for_it() {
    let mut fleet = Fleet::start().await;
    let mut node = fleet.node("web-1").await;
    let mut operator = fleet.operator().await;
    publish(&fleet, &mut operator, &[("web-1", vec![params("a"), delegation()])]).await;
    node.survives().await;
    operator.begin("web-1", &["/bin/true"]).await;
    operator.actions_when("web-1", 1).await;
    assert_eq!(stands(&mut operator).await, is(SyncState::Off, 0, 0));
    // It is asked for a link all the same.
    assert!(node.check_in(&test_support::fleet::quiet()).await.unwrap().stream_requested);
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    assert_eq!(stands(&mut fleet.operator().await).await, is(SyncState::Off, 0, 0));
    assert!(node.check_in(&test_support::fleet::quiet()).await.unwrap().stream_requested);
}
