//! What status says of synchronization rests on a comparison with this instance of the control
//! plane, names its cause, and does not outlive it (CNV-3, SYN-5, SYN-6, OPS-4).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use model::condition::{Attention, ConditionStatus, SyncState};
use model::replication::Mode;
use server::api::objects::{SyncView, SyncsView};
use sync::link::ItemOutcome;
use test_support::fleet::link::{handler, item, linked, publish_mode};
use test_support::fleet::{Fleet, Member, Operator, now, quiet};
use test_support::memory::MemoryLinkHandler;
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

/// Waits until the node stands so for this reason.
async fn becomes(fleet: &Fleet, reason: &str) -> SyncView {
    let operator = tokio::sync::Mutex::new(fleet.operator().await);
    until(reason, async || {
        let view = view(&mut *operator.lock().await).await;
        (view.condition.reason == reason).then_some(view)
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
    let _: server::api::objects::ObjectResults = operator.post("/v1/objects", &apply).await.unwrap();
}

fn refusing(name: &str) -> Arc<MemoryLinkHandler> {
    let handler = handler("n1");
    let (code, message) = ("no".to_owned(), "it does not fit here".to_owned());
    handler.refuse(item(name), ItemOutcome::Permanent { code, message });
    handler
}

async fn restarted(fleet: &mut Fleet, node: &mut Member) {
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
}

/// Opens a link, waits until the sets are compared, and closes it.
async fn compared(fleet: &Fleet, node: &Member, handler: &Arc<MemoryLinkHandler>) -> SyncView {
    let link = linked(node, Mode::Managed, "compares", handler).await;
    let view = becomes(fleet, "in-sync").await;
    link.stop().await;
    view
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_link_has_compared_is_not_in_sync() {
    let (fleet, mut operator, node) = fleet(Mode::Autonomous).await;
    let never = view(&mut operator).await.condition;
    assert_eq!((never.status, never.reason.as_str()), (ConditionStatus::Unknown, "never-compared"));
    assert!(never.evidence.is_none() && never.next_step.is_some(), "{never:?}");
    let handler = handler("n1");
    handler.put(item("a"), "u1", "{}".into(), now().0);
    let before = now();
    let link = linked(&node, Mode::Autonomous, "l1", &handler).await;
    let linked = becomes(&fleet, "in-sync").await.condition;
    let evidence = linked.evidence.unwrap();
    assert!(evidence.at >= before && evidence.up.is_some(), "{evidence:?}");
    link.stop().await;
    // It never checked in, so it is late: it may have changed since.
    let late = becomes(&fleet, "node-late").await.condition;
    assert_eq!(late.evidence, Some(evidence), "the last comparison is still told");
    node.survives().await;
    becomes(&fleet, "in-sync").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_before_a_restart_is_no_evidence_and_a_new_one_is_asked_for() {
    let (mut fleet, mut operator, mut node) = fleet(Mode::Managed).await;
    apply(&mut operator, "a", "one").await;
    let handler = handler("n1");
    let first = compared(&fleet, &node, &handler).await.condition.evidence.unwrap();
    node.survives().await;
    assert!(!node.check_in(&quiet()).await.unwrap().stream_requested, "nothing waits");
    restarted(&mut fleet, &mut node).await;
    assert!(node.check_in(&quiet()).await.unwrap().stream_requested, "a comparison is wanted");
    let after = view(&mut fleet.operator().await).await.condition;
    assert_eq!(
        (after.status, after.reason.as_str()),
        (ConditionStatus::Unknown, "not-compared-since-restart")
    );
    assert_eq!(after.evidence.as_ref(), Some(&first), "it says when they were compared last");
    assert!(after.since.unwrap() > first.at, "and since when that does not count");
    let again = compared(&fleet, &node, &handler).await.condition.evidence.unwrap();
    assert_ne!(again.instance, first.instance);
    assert!(!node.check_in(&quiet()).await.unwrap().stream_requested, "it was compared");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_does_not_say_in_sync_and_the_next_contact_heals_it() {
    let (mut fleet, mut operator, mut node) = fleet(Mode::Managed).await;
    apply(&mut operator, "kept", "one").await;
    let handler = handler("n1");
    compared(&fleet, &node, &handler).await;
    fleet.stop().await;
    let backup = fleet.backup();
    fleet.start_again().await;
    node.url = fleet.url();
    // The node gets what the backup does not know of.
    let mut operator = fleet.operator().await;
    apply(&mut operator, "later", "one").await;
    compared(&fleet, &node, &handler).await;
    assert_eq!(handler.their_count(), 2);
    fleet.stop().await;
    fleet.restore(&backup);
    fleet.start_again().await;
    node.url = fleet.url();
    node.survives().await;
    let restored = view(&mut fleet.operator().await).await;
    assert_eq!(restored.condition.reason, "not-compared-since-restart");
    assert!(node.check_in(&quiet()).await.unwrap().stream_requested);
    // The first link finds that the feed went back, and the next one puts it right.
    let first = linked(&node, Mode::Managed, "first", &handler).await;
    let ended = tokio::time::timeout(Duration::from_secs(20), first.ended).await.unwrap().unwrap();
    assert!(!ended.message.is_empty());
    compared(&fleet, &node, &handler).await;
    assert_eq!(handler.their_count(), 1, "the node holds what the control plane knows");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_the_node_rejects_is_named_also_after_a_restart() {
    let (mut fleet, mut operator, mut node) = fleet(Mode::Managed).await;
    apply(&mut operator, "a", "one").await;
    let handler = refusing("a");
    let link = linked(&node, Mode::Managed, "l1", &handler).await;
    let rejected = becomes(&fleet, "objects-rejected").await.condition;
    assert_eq!((rejected.status, rejected.attention), (ConditionStatus::False, Attention::Act));
    assert!(rejected.message.contains("it does not fit here (no)"), "{rejected:?}");
    link.stop().await;
    restarted(&mut fleet, &mut node).await;
    let kept = view(&mut fleet.operator().await).await;
    assert_eq!((kept.condition.state, kept.behind), (SyncState::OutOfSync, 0), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_object_is_forgotten_once_it_is_taken() {
    let (fleet, mut operator, node) = fleet(Mode::Managed).await;
    node.survives().await;
    apply(&mut operator, "a", "one").await;
    let handler = refusing("a");
    let link = linked(&node, Mode::Managed, "l1", &handler).await;
    becomes(&fleet, "objects-rejected").await;
    handler.refuse(item("other"), ItemOutcome::Done);
    apply(&mut operator, "a", "two").await;
    becomes(&fleet, "in-sync").await;
    link.stop().await;
    becomes(&fleet, "in-sync").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_of_what_was_never_sent_is_not_shown() {
    let (fleet, mut operator, node) = fleet(Mode::Managed).await;
    node.survives().await;
    apply(&mut operator, "a", "one").await;
    let link = linked(&node, Mode::Managed, "l1", &handler("n1")).await;
    becomes(&fleet, "in-sync").await;
    let refused = sync::frame::Refused {
        rev: 1,
        key: item("never"),
        code: "no".to_owned(),
        message: "never heard of".to_owned(),
    };
    let word = streams::LinkCommand::Send(Box::new(sync::Frame::Refused(Box::new(refused))));
    assert!(link.commands.send(word).await);
    // What is applied after it has been heard after it.
    apply(&mut operator, "a", "two").await;
    becomes(&fleet, "in-sync").await;
    link.stop().await;
    let after = view(&mut operator).await.condition;
    assert_eq!(after.state, SyncState::InSync, "{after:?}");
}

/// SCL-4: a backup from before a node's first comparison, or its first object.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_the_data_never_compared_compares_after_a_start() {
    let (mut fleet, _, mut node) = fleet(Mode::Managed).await;
    node.survives().await;
    fleet.stop().await;
    let backup = fleet.backup();
    fleet.start_again().await;
    node.url = fleet.url();
    apply(&mut fleet.operator().await, "later", "one").await;
    let handler = handler("n1");
    compared(&fleet, &node, &handler).await;
    assert_eq!(handler.their_count(), 1);
    fleet.stop().await;
    fleet.restore(&backup);
    fleet.start_again().await;
    node.url = fleet.url();
    assert!(node.check_in(&quiet()).await.unwrap().stream_requested, "a comparison is wanted");
    compared(&fleet, &node, &handler).await;
    assert_eq!(handler.their_count(), 0, "the node holds what the control plane knows");
    assert!(!node.check_in(&quiet()).await.unwrap().stream_requested, "it was compared");
}

/// A node that synchronizes nothing is asked for no link, whatever it did before.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_synchronizes_nothing_is_left_alone() {
    let (mut fleet, mut operator, mut node) = fleet(Mode::Managed).await;
    apply(&mut operator, "a", "one").await;
    compared(&fleet, &node, &handler("n1")).await;
    publish_mode(&fleet, &["edge-1"], Mode::Off, 2).await;
    restarted(&mut fleet, &mut node).await;
    assert!(node.check_in(&quiet()).await.unwrap().stream_requested, "whether it is off, a link shows");
    let off = linked(&node, Mode::Off, "off", &handler("n1")).await;
    let operator = tokio::sync::Mutex::new(fleet.operator().await);
    until("the link is met", async || {
        let shown = view(&mut *operator.lock().await).await;
        // It is met once the node said what it does not take.
        (shown.condition.reason == "objects-rejected" && shown.link.is_some()).then_some(())
    })
    .await;
    off.stop().await;
    assert!(!node.check_in(&quiet()).await.unwrap().stream_requested);
}

/// What a node acknowledged to an instance before is not known to be there: the data may be a backup's.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_delivered_by_this_instance_s_word() {
    let (mut fleet, mut operator, mut node) = fleet(Mode::Managed).await;
    apply(&mut operator, "a", "one").await;
    let handler = handler("n1");
    compared(&fleet, &node, &handler).await;
    let delivered = async |fleet: &Fleet| {
        let page: server::api::objects::ObjectsView =
            fleet.operator().await.get("/v1/objects").await.unwrap();
        page.objects[0].delivered
    };
    assert_eq!(delivered(&fleet).await, Some(true));
    restarted(&mut fleet, &mut node).await;
    assert_eq!(delivered(&fleet).await, None, "nobody knows yet");
    compared(&fleet, &node, &handler).await;
    assert_eq!(delivered(&fleet).await, Some(true));
}
