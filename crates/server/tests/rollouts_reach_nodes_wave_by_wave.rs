//! ROL-1, ROL-5: a release with rollout terms reaches the nodes of its channel wave by wave, through the real control
//! plane and its store: one wave after the other, within budgets, and no further where a gate breaks. What is under way
//! goes on after a restart.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::Digest;
use model::exchange::HeldRelease;
use model::rollout::{RolloutDispatch, RolloutEventBody, RolloutTask};
use rollout::cadence::{ContactNeed, slot};
use rollout::{NodeRolloutState, RolloutState};
use server::api::rollouts::{NodeRolloutView, RolloutView};
use store::OperatorRole;
use test_support::fleet::release::{Made, Plan, make, params};
use test_support::fleet::rollouts::RolloutNode;
use test_support::fleet::{Fleet, Operator, now};
use trust::RolloutTerms;
use trust::rollout_terms::{BudgetTerms, GateTerms, OnFailure, WaveMembers, WaveTerms};

/// How often the nodes of a release call while nothing concerns them.
const CONTACT_SECS: u64 = 300;
const GATE: GateTerms = GateTerms { soak_secs: 0, success: 100 };

fn wave(name: &str, members: WaveMembers) -> WaveTerms {
    WaveTerms { name: name.to_owned(), members, not_before: None, gate: GATE }
}

/// A canary of these nodes, then all others, one at a time.
fn terms(canary: &str, on_failure: OnFailure) -> Arc<RolloutTerms> {
    let selector = |text: &str| lang::Selector::parse(text).unwrap();
    Arc::new(RolloutTerms {
        waves: vec![wave("canary", WaveMembers::Where(selector(canary))), wave("rest", WaveMembers::Rest)],
        budgets: vec![BudgetTerms { of: selector("*"), in_flight: None, max: Some(2) }],
        on_failure,
        ..RolloutTerms::default()
    })
}

fn release(fleet: &Fleet, seq: u64, rollout: Option<Arc<RolloutTerms>>) -> Made {
    let mut plan = Plan::new(&fleet.enroll_info().fleet, seq);
    for node in 1..=4 {
        plan = plan.node(&format!("web-{node}"), &[params(&format!("{seq}"))]);
    }
    make(&Plan { rollout, contact_secs: CONTACT_SECS, ..plan }, &fleet.release_key())
}

/// A fleet whose nodes hold release 1, and release 2 on its way to them.
async fn begun(count: usize, terms: Arc<RolloutTerms>) -> (Fleet, Vec<RolloutNode>, Made) {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let first = release(&fleet, 1, None);
    operator.publish(&first).await.unwrap();
    let mut nodes = Vec::new();
    for number in 1..=count {
        let mut node = RolloutNode::new(fleet.node(&format!("web-{number}")).await);
        let answer = node.check_in(Vec::new(), 0).await.unwrap();
        assert!(answer.rollout.is_none() && answer.offer.is_some(), "release 1 goes to all at once");
        node.holds(&first);
        node.check_in(Vec::new(), 0).await.unwrap();
        nodes.push(node);
    }
    let second = release(&fleet, 2, Some(terms));
    operator.publish(&second).await.unwrap();
    (fleet, nodes, second)
}

async fn shown(operator: &mut Operator) -> RolloutView {
    operator.get("/v1/rollouts/stable").await.unwrap()
}

async fn explained(operator: &mut Operator, hostname: &str) -> NodeRolloutView {
    let view: Option<NodeRolloutView> = operator.get(&format!("/v1/nodes/{hostname}/rollout")).await.unwrap();
    view.unwrap()
}

fn task(dispatch: &Option<RolloutDispatch>) -> RolloutTask {
    dispatch.as_ref().unwrap().task
}

#[tokio::test]
async fn a_canary_first_then_the_rest_within_the_budget() {
    let (fleet, mut nodes, second) = begun(4, terms("web-1", OnFailure::Halt)).await;
    let mut operator = fleet.operator().await;
    let rollout = nodes[0].until_asked().await;
    for node in &nodes[1..] {
        let answer = node.check_in(Vec::new(), 0).await.unwrap();
        assert_eq!(task(&answer.rollout), RolloutTask::Hold);
        assert!(answer.offer.is_none(), "it is pointed to what it has");
        assert!(answer.next_checkin_secs <= 60, "ROL-8: {}", answer.next_checkin_secs);
    }
    let why = explained(&mut operator, "web-2").await;
    assert!(why.cause.as_ref().unwrap().contains("its wave is closed"), "{why:?}");
    let answer = nodes[0].begins(&rollout).await;
    assert_eq!(answer.offer.unwrap().header, second.header);
    nodes[0].confirms(&rollout, &second).await;

    // Two of the three others, never three.
    let mut confirmed = 1;
    for node in &mut nodes[1..] {
        let _ = node.check_in(Vec::new(), 0).await.unwrap();
    }
    let mut left: Vec<RolloutNode> = nodes.drain(1..).collect();
    while !left.is_empty() {
        let mut asked = Vec::new();
        for (at, node) in left.iter().enumerate() {
            if matches!(task(&node.asked().await), RolloutTask::Acknowledge { .. }) {
                asked.push(at);
            }
        }
        let view = shown(&mut operator).await;
        assert!(asked.len() <= 2, "{view:?}");
        let Some(at) = asked.first() else { continue };
        let mut node = left.remove(*at);
        node.begins(&rollout).await;
        node.confirms(&rollout, &second).await;
        confirmed += 1;
    }
    let view = shown(&mut operator).await;
    assert_eq!((view.state, confirmed), (RolloutState::Terminal, 4), "{view:?}");
    assert_eq!(view.nodes, [(NodeRolloutState::Converged, 4)].into());
    assert!(explained(&mut operator, "web-4").await.cause.is_none());
    let (ended, _) = nodes[0].until(|dispatch| dispatch.is_through()).await;
    assert_eq!(ended.task, RolloutTask::Proceed);
    let channel = operator.status().await.channels.remove(0).rollout.unwrap();
    assert_eq!((channel.state, channel.confirmed, channel.nodes), (RolloutState::Terminal, 4, 4));
}

#[tokio::test]
async fn a_failure_in_the_first_wave_stops_it() {
    let (fleet, mut nodes, second) = begun(3, terms("web-1", OnFailure::Halt)).await;
    let mut operator = fleet.operator().await;
    let rollout = nodes[0].until_asked().await;
    nodes[0].begins(&rollout).await;
    nodes[0].activates(&rollout, &second).await;
    nodes[0].say(&rollout, RolloutEventBody::Failed { message: "nginx does not answer".into() }).await;
    let view = shown(&mut operator).await;
    assert_eq!(view.state, RolloutState::Failed);
    assert!(view.halt.as_ref().unwrap().cause.contains("one is web-1"), "{view:?}");
    for node in &nodes[1..] {
        assert_eq!(task(&node.asked().await), RolloutTask::Hold);
    }
    let why = explained(&mut operator, "web-2").await.cause.unwrap();
    assert!(why.contains("starts nothing any more"), "{why}");
    let why = explained(&mut operator, "web-1").await.cause.unwrap();
    assert!(why.contains("nginx does not answer"), "{why}");
    let channel = operator.status().await.channels.remove(0).rollout.unwrap();
    assert!(channel.cause.unwrap().contains("in wave canary failed"));
    // Going on in spite of it is an operator's word.
    let _: RolloutView = operator.post("/v1/rollouts/stable/resume", &serde_json::json!({})).await.unwrap();
    nodes[1].until_asked().await;
}

/// ROL-5: who asks why a node has not changed hears of the release that waits behind its rollout too.
#[tokio::test]
async fn what_waits_behind_a_rollout_is_told_with_a_node() {
    let (fleet, nodes, _) = begun(2, terms("web-1", OnFailure::Halt)).await;
    let mut operator = fleet.operator().await;
    assert_eq!(explained(&mut operator, "web-2").await.newer, None);
    let third = release(&fleet, 3, Some(terms("web-1", OnFailure::Halt)));
    operator.publish(&third).await.unwrap();
    let newer = explained(&mut operator, "web-2").await.newer.unwrap();
    assert_eq!((newer.seq, newer.state, newer.at_once), (3, Some(RolloutState::Opening), false));
    assert!(newer.waits.as_ref().unwrap().contains("release 2"), "{newer:?}");
    drop(nodes);
}

/// ROL-5: an id is named by seven of its digits, and who gives fewer is told so.
#[tokio::test]
async fn an_id_may_be_shortened_to_seven_digits() {
    let (fleet, _nodes, _) = begun(1, terms("web-1", OnFailure::Halt)).await;
    let mut operator = fleet.operator().await;
    let id = shown(&mut operator).await.id;
    let digits = id.as_str().find('@').unwrap() + 1;
    let named = |count: usize| format!("/v1/rollouts/{}", &id.as_str()[..digits + count]);
    let found: RolloutView = operator.get(&named(7)).await.unwrap();
    assert_eq!(found.id, id);
    let refused = operator.get::<RolloutView>(&named(6)).await.unwrap_err();
    assert!(refused.help.as_ref().unwrap().contains("shortened to 7 digits"), "{refused:?}");
}

/// OPS-5: why a node waits is told to an operator who may see that node alone without what becomes of others.
#[tokio::test]
async fn a_scope_shows_nothing_of_other_nodes() {
    let (fleet, mut nodes, second) = begun(3, terms("web-1", OnFailure::Halt)).await;
    let mut scoped = fleet.operator_with("erik", OperatorRole::Viewer, Some("web-2")).await;
    let rollout = nodes[0].until_asked().await;
    let told = explained(&mut scoped, "web-2").await.cause.unwrap();
    assert_eq!(told, "its wave is closed: the gate of wave canary did not pass yet");
    nodes[0].begins(&rollout).await;
    nodes[0].activates(&rollout, &second).await;
    nodes[0].say(&rollout, RolloutEventBody::Failed { message: "no".into() }).await;
    let told = explained(&mut scoped, "web-2").await.cause.unwrap();
    assert_eq!(told, "the rollout starts nothing any more: more nodes of wave canary failed than may");
    let told = explained(&mut fleet.operator().await, "web-2").await.cause.unwrap();
    assert!(told.contains("one is web-1"), "who may see the fleet is told which: {told}");
}

#[tokio::test]
async fn what_was_started_goes_back_where_the_terms_say_so() {
    let (fleet, mut nodes, second) = begun(3, terms("web-1,web-2", OnFailure::Rollback)).await;
    let mut operator = fleet.operator().await;
    let first = release(&fleet, 1, None);
    let rollout = nodes[0].until_asked().await;
    nodes[0].begins(&rollout).await;
    nodes[0].confirms(&rollout, &second).await;
    nodes[1].until_asked().await;
    nodes[1].begins(&rollout).await;
    nodes[1].activates(&rollout, &second).await;
    nodes[1].say(&rollout, RolloutEventBody::Failed { message: "no".into() }).await;
    // The one that failed goes back, and the confirmed one is asked to.
    assert_eq!(task(&nodes[1].asked().await), RolloutTask::GoBack);
    nodes[1].say(&rollout, RolloutEventBody::RollbackComplete { release: 1 }).await;
    let (_, answer) =
        nodes[0].until(|dispatch| matches!(dispatch.task, RolloutTask::Acknowledge { .. })).await;
    assert_eq!(
        answer.offer.unwrap().header.payload,
        first_header(&fleet).await,
        "the release of before is served"
    );
    nodes[0].say(&rollout, RolloutEventBody::DispatchAck).await;
    nodes[0].say(&rollout, RolloutEventBody::RollbackComplete { release: 1 }).await;
    let view = shown(&mut operator).await;
    assert_eq!((view.state, first.held("web-1").seq), (RolloutState::Reverted, 1), "{view:?}");
}

/// The header of release 1 as it was published.
async fn first_header(fleet: &Fleet) -> String {
    let releases: Vec<store::Release> = fleet.operator().await.get("/v1/releases?before=2").await.unwrap();
    releases[0].headers.values().next().unwrap().payload.clone()
}

#[tokio::test]
async fn a_restart_in_the_middle_loses_nothing() {
    let (mut fleet, mut nodes, second) = begun(2, terms("web-1", OnFailure::Halt)).await;
    let rollout = nodes[0].until_asked().await;
    nodes[0].begins(&rollout).await;
    fleet.stop().await;
    fleet.start_again().await;
    for node in &mut nodes {
        node.member.url = fleet.url();
    }
    assert_eq!(task(&nodes[0].asked().await), RolloutTask::Proceed, "it began");
    assert_eq!(task(&nodes[1].asked().await), RolloutTask::Hold);
    nodes[0].confirms(&rollout, &second).await;
    let asked = nodes[1].until_asked().await;
    assert_eq!(asked, rollout);
    fleet.stop().await;
    fleet.start_again().await;
    nodes[1].member.url = fleet.url();
    assert!(
        matches!(task(&nodes[1].asked().await), RolloutTask::Acknowledge { .. }),
        "the request is durable"
    );
    nodes[1].begins(&rollout).await;
    nodes[1].confirms(&rollout, &second).await;
    assert_eq!(shown(&mut fleet.operator().await).await.state, RolloutState::Terminal);
}

#[tokio::test]
async fn a_node_that_is_removed_in_mid_wave_holds_nobody() {
    let (fleet, mut nodes, _) = begun(2, terms("web-1", OnFailure::Halt)).await;
    let mut operator = fleet.operator().await;
    let rollout = nodes[0].until_asked().await;
    nodes[0].begins(&rollout).await;
    let _: server::api::NodeView = operator.delete("/v1/nodes/web-1").await.unwrap();
    nodes[1].until_asked().await;
    assert_eq!(shown(&mut operator).await.nodes.values().sum::<usize>(), 1);
}

/// A node that joins while a rollout waits for its first wave has the release of before until its own wave opens.
#[tokio::test]
async fn who_joins_in_the_middle_waits_for_its_wave() {
    let (fleet, nodes, _) = begun(2, terms("web-1", OnFailure::Halt)).await;
    nodes[0].until_asked().await;
    let late = RolloutNode::new(fleet.node("web-3").await);
    let (dispatch, answer) = late.until(|dispatch| dispatch.task == RolloutTask::Hold).await;
    assert_eq!((dispatch.seq, dispatch.wave.as_str()), (2, "rest"));
    assert_eq!(answer.offer.unwrap().header.payload, first_header(&fleet).await);
}

/// Behind a halt too it has a release of before: the newest that was through, and none that halted, runs, or gave way while
/// it waited.
#[tokio::test]
async fn who_joins_behind_a_halt_has_what_was_through() {
    let (fleet, mut nodes, second) = begun(1, terms("web-1", OnFailure::Halt)).await;
    let mut operator = fleet.operator().await;
    let rollout = nodes[0].until_asked().await;
    nodes[0].begins(&rollout).await;
    nodes[0].confirms(&rollout, &second).await;
    for seq in [3, 4] {
        let next = release(&fleet, seq, Some(terms("web-1", OnFailure::Halt)));
        operator.publish(&next).await.unwrap();
        nodes[0].event_seq = 0;
        let rollout = nodes[0].until_asked().await;
        nodes[0].begins(&rollout).await;
        if seq == 3 {
            nodes[0].say(&rollout, RolloutEventBody::Failed { message: "no".into() }).await;
            assert_eq!(shown(&mut operator).await.state, RolloutState::Failed);
            nodes[0].say(&rollout, RolloutEventBody::RollbackComplete { release: 2 }).await;
        }
    }
    for seq in [5, 6] {
        let next = release(&fleet, seq, Some(terms("web-1", OnFailure::Halt)));
        operator.publish(&next).await.unwrap();
    }
    let late = RolloutNode::new(fleet.node("web-3").await);
    let (dispatch, answer) = late.until(|dispatch| dispatch.task == RolloutTask::Hold).await;
    assert_eq!((dispatch.seq, dispatch.wave.as_str()), (4, "rest"));
    assert_eq!(answer.offer.unwrap().header, second.header);
}

/// A channel whose newest release says nothing of a rollout goes to all of its nodes at once, whatever was under way.
#[tokio::test]
async fn a_release_without_terms_ends_what_is_under_way() {
    let (fleet, mut nodes, _) = begun(2, terms("web-1", OnFailure::Halt)).await;
    let mut operator = fleet.operator().await;
    let rollout = nodes[0].until_asked().await;
    nodes[0].begins(&rollout).await;
    let third = release(&fleet, 3, None);
    operator.publish(&third).await.unwrap();
    for node in &nodes {
        let answer = node.check_in(Vec::new(), 0).await.unwrap();
        assert!(answer.rollout.is_none());
        assert_eq!(answer.offer.unwrap().header, third.header);
    }
    let view = shown(&mut operator).await;
    assert_eq!(view.state, RolloutState::Superseded, "{view:?}");
    assert!(view.halt.unwrap().cause.contains("release 3"));
    let view: Option<NodeRolloutView> = operator.get("/v1/nodes/web-1/rollout").await.unwrap();
    assert!(view.is_none(), "no rollout says where it goes: {view:?}");
    // The next rollout leads from what the nodes have, and takes none for one that is on its way.
    for node in &mut nodes {
        node.holds(&third);
        node.check_in(Vec::new(), 0).await.unwrap();
    }
    let fourth = release(&fleet, 4, Some(terms("web-1", OnFailure::Rollback)));
    operator.publish(&fourth).await.unwrap();
    let rollout = nodes[0].until_asked().await;
    nodes[0].event_seq = 0;
    nodes[0].begins(&rollout).await;
    nodes[0].activates(&rollout, &fourth).await;
    nodes[0].say(&rollout, RolloutEventBody::Failed { message: "no".into() }).await;
    let (_, answer) = nodes[0].until(|dispatch| dispatch.task == RolloutTask::GoBack).await;
    assert_eq!(answer.offer.unwrap().header, third.header, "it is sent back to what it had");
}

/// ROL-7: who is confirmed in a rollout that was through gave up the release of before, and is not sent back to it.
#[tokio::test]
async fn a_failure_after_the_end_sends_back_nobody_else() {
    let (fleet, mut nodes, second) = begun(2, terms("web-1", OnFailure::Rollback)).await;
    let mut operator = fleet.operator().await;
    for node in &mut nodes {
        let rollout = node.until_asked().await;
        node.begins(&rollout).await;
        node.confirms(&rollout, &second).await;
    }
    let through = shown(&mut operator).await;
    assert_eq!(through.state, RolloutState::Terminal);
    let order = serde_json::json!({});
    let refused = operator.post::<_, RolloutView>("/v1/rollouts/stable/rollback", &order).await.unwrap_err();
    assert_eq!((refused.code.as_str(), refused.status), ("wrong-phase", 409), "{refused:?}");
    assert!(refused.detail.as_ref().unwrap().contains("`muster release rollback NUMBER`"), "{refused:?}");
    let view = shown(&mut operator).await;
    assert_eq!((view.state, view.since), (RolloutState::Terminal, through.since), "nothing happened");

    let mut late = RolloutNode::new(fleet.node("web-3").await);
    let rollout = late.until_asked().await;
    late.begins(&rollout).await;
    late.activates(&rollout, &second).await;
    late.say(&rollout, RolloutEventBody::Failed { message: "no".into() }).await;
    let view = shown(&mut operator).await;
    let halt = view.halt.unwrap();
    assert_eq!((view.state, halt.goes_back, view.was_through), (RolloutState::Failed, true, true));
    assert_eq!(task(&late.asked().await), RolloutTask::GoBack);
    late.say(&rollout, RolloutEventBody::RollbackComplete { release: 1 }).await;
    let view = shown(&mut operator).await;
    let stand = [(NodeRolloutState::Converged, 2), (NodeRolloutState::Reverted, 1)];
    assert_eq!((view.state, view.nodes), (RolloutState::Reverted, stand.into()));
    for node in &nodes {
        let dispatch = node.asked().await.unwrap();
        assert_eq!((dispatch.task, dispatch.is_through()), (RolloutTask::Proceed, true), "{dispatch:?}");
    }
}

/// ROL-1: the first release of a channel goes in waves as well. A host that had no release before goes back to how it was
/// found, and is not pointed to the release that it failed in as to one of before.
#[tokio::test]
async fn the_first_release_of_a_channel_goes_wave_by_wave() {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let mut nodes = Vec::new();
    for number in 1..=3 {
        nodes.push(RolloutNode::new(fleet.node(&format!("web-{number}")).await));
    }
    let first = release(&fleet, 1, Some(terms("web-1", OnFailure::Rollback)));
    operator.publish(&first).await.unwrap();

    let rollout = nodes[0].until_asked().await;
    let answer = nodes[0].begins(&rollout).await;
    assert_eq!(answer.offer.unwrap().header, first.header);
    nodes[0].activates(&rollout, &first).await;
    nodes[0].say(&rollout, RolloutEventBody::Failed { message: "nginx does not answer".into() }).await;
    let answer = nodes[0].check_in(Vec::new(), 0).await.unwrap();
    let asked = (task(&answer.rollout), answer.offer.is_none());
    assert_eq!(
        asked,
        (RolloutTask::Hold, true),
        "there is nothing to send it back to; its host goes back by itself"
    );
    nodes[0].held = Some(HeldRelease { root: Digest::ZERO, ..first.held("web-1") });
    nodes[0].say(&rollout, RolloutEventBody::RollbackComplete { release: 0 }).await;

    let view = shown(&mut operator).await;
    let stand = [(NodeRolloutState::Pending, 2), (NodeRolloutState::Reverted, 1)];
    assert_eq!((view.state, view.nodes), (RolloutState::Failed, stand.into()), "it goes nowhere back");
    assert!(view.halt.is_some_and(|halt| !halt.goes_back));
    let why = explained(&mut operator, "web-1").await.cause.unwrap();
    assert!(why.contains("nginx does not answer"), "{why}");
    for node in &nodes[1..] {
        let answer = node.check_in(Vec::new(), 0).await.unwrap();
        assert_eq!(task(&answer.rollout), RolloutTask::Hold);
        assert!(answer.offer.is_none() && !answer.unassigned, "{answer:?}");
        let why = explained(&mut operator, node.member.hostname.as_str()).await.cause.unwrap();
        assert!(why.contains("starts nothing any more"), "{why}");
    }

    // The next one has another canary: no host that waits for it is on a release of before.
    let second = release(&fleet, 2, Some(terms("web-2", OnFailure::Rollback)));
    operator.publish(&second).await.unwrap();
    nodes[1].until_asked().await;
    for node in [&nodes[0], &nodes[2]] {
        let (dispatch, answer) = node.until(|dispatch| dispatch.seq == 2).await;
        assert_eq!(dispatch.task, RolloutTask::Hold);
        assert!(answer.offer.is_none(), "{} is offered {:?}", node.member.hostname, answer.offer);
    }
    // One that goes to all at once ends both rollouts. Where another one comes before a host took it, the host is on it until
    // its wave opens, and not on what it says that it failed in.
    let third = release(&fleet, 3, None);
    operator.publish(&third).await.unwrap();
    let fourth = release(&fleet, 4, Some(terms("web-2", OnFailure::Rollback)));
    operator.publish(&fourth).await.unwrap();
    let (dispatch, answer) = nodes[0].until(|dispatch| dispatch.seq == 4).await;
    assert_eq!((dispatch.task, answer.offer.unwrap().header), (RolloutTask::Hold, third.header));
}

/// ROL-8: each node is told to call in the slot that its hostname gives it: of a minute while a rollout is to change it, of
/// its channel's own interval once that is over for it.
#[tokio::test]
async fn nodes_call_in_slots_of_their_hostnames() {
    let (fleet, mut nodes, second) = begun(4, terms("web-1", OnFailure::Halt)).await;
    let rollout = nodes[0].until_asked().await;
    let mut slots = BTreeSet::new();
    for node in &nodes[1..] {
        slots.insert(calls_in_its_slot(node, ContactNeed::Rollout(CONTACT_SECS)).await);
    }
    assert!(slots.len() > 1, "the slots differ: {slots:?}");
    nodes[0].begins(&rollout).await;
    nodes[0].confirms(&rollout, &second).await;
    while let Some(at) =
        nodes.iter().position(|node| node.held != Some(second.held(node.member.hostname.as_str())))
    {
        let node = &mut nodes[at];
        node.until_asked().await;
        node.begins(&rollout).await;
        node.confirms(&rollout, &second).await;
    }
    assert_eq!(shown(&mut fleet.operator().await).await.state, RolloutState::Terminal);
    let mut slots = BTreeSet::new();
    for node in &nodes {
        node.until(|dispatch| dispatch.is_through()).await;
        slots.insert(calls_in_its_slot(node, ContactNeed::Idle(CONTACT_SECS)).await);
    }
    assert!(slots.len() > 1, "the slots differ: {slots:?}");
}

/// The slot, in seconds of the interval, in which a node is told to call; the same each time that it asks.
async fn calls_in_its_slot(node: &RolloutNode, need: ContactNeed) -> u64 {
    let interval = need.interval_secs();
    let own = slot(&node.member.hostname, Duration::from_secs(interval)).as_secs();
    for _ in 0..3 {
        let before = now();
        let wait = node.check_in(Vec::new(), 0).await.unwrap().next_checkin_secs;
        assert!((1..=interval).contains(&wait), "{wait}");
        // It was told so in one of these seconds.
        let mut seconds = before.secs()..=now().secs();
        let is_own = |second: i64| (second.unsigned_abs() + wait) % interval == own;
        assert!(seconds.any(is_own), "{}: {wait} s at {before}", node.member.hostname);
    }
    own
}
