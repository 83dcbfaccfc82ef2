//! ROL-5: each event of a rollout takes effect once, whatever becomes of the request that carried it; what is forged, of
//! no rollout, or from before a restore changes nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use model::log::{Fact, FactBody};
use model::rollout::{ProbeOutcome, RolloutEventBody, RolloutTask};
use rollout::{NodeRolloutState, RolloutState};
use rusqlite::Connection;
use server::api::rollouts::{NodeRolloutView, RolloutView};
use test_support::fleet::release::{Made, Plan, make, params};
use test_support::fleet::rollouts::RolloutNode;
use test_support::fleet::{Fleet, Operator};
use test_support::wait::until;
use trust::RolloutTerms;
use trust::rollout_terms::{GateTerms, WaveMembers, WaveTerms};

fn release(fleet: &Fleet, seq: u64) -> Made {
    let gate = GateTerms { soak_secs: 0, success: 100 };
    let wave = WaveTerms { name: "all".to_owned(), members: WaveMembers::Rest, not_before: None, gate };
    let terms = Arc::new(RolloutTerms { waves: vec![wave], ..RolloutTerms::default() });
    let plan = Plan::new(&fleet.enroll_info().fleet, seq).node("web-1", &[params(&seq.to_string())]);
    make(&Plan { rollout: (seq > 1).then_some(terms), ..plan }, &fleet.release_key())
}

async fn begun() -> (Fleet, RolloutNode, Made) {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let first = release(&fleet, 1);
    operator.publish(&first).await.unwrap();
    let mut node = RolloutNode::new(fleet.node("web-1").await);
    node.check_in(Vec::new(), 0).await.unwrap();
    node.holds(&first);
    node.check_in(Vec::new(), 0).await.unwrap();
    let second = release(&fleet, 2);
    operator.publish(&second).await.unwrap();
    (fleet, node, second)
}

async fn state(operator: &mut Operator) -> NodeRolloutState {
    let view: Option<NodeRolloutView> = operator.get("/v1/nodes/web-1/rollout").await.unwrap();
    view.unwrap().state
}

async fn counted(fleet: &Fleet, outcome: &str) -> u64 {
    let text = fleet.operator().await.raw(http::Method::GET, "/metrics", Vec::new()).await;
    let text = String::from_utf8(text.body().to_vec()).unwrap();
    let name = format!("muster_rollout_events_total{{outcome=\"{outcome}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn a_request_that_comes_twice_changes_nothing_the_second_time() {
    let (fleet, mut node, _) = begun().await;
    let mut operator = fleet.operator().await;
    let rollout = node.until_asked().await;
    let ack = node.event(&rollout, RolloutEventBody::DispatchAck);
    for _ in 0..2 {
        let answer = node.check_in(vec![ack.clone()], 0).await.unwrap();
        assert_eq!(answer.rollout.unwrap().task, RolloutTask::Proceed);
    }
    assert_eq!(state(&mut operator).await, NodeRolloutState::Activating);
    assert_eq!((counted(&fleet, "taken").await, counted(&fleet, "duplicate").await), (1, 1));
}

#[tokio::test]
async fn what_is_of_no_rollout_is_kept_and_changes_nothing() {
    let (fleet, mut node, _) = begun().await;
    let mut operator = fleet.operator().await;
    node.until_asked().await;
    let other = "stable@0123456789".parse().unwrap();
    node.say(&other, RolloutEventBody::DispatchAck).await;
    assert_eq!(state(&mut operator).await, NodeRolloutState::Pending);
    assert_eq!(counted(&fleet, "unknown-rollout").await, 1);
}

/// Events that the node lost are noted, and the next one counts.
#[tokio::test]
async fn a_lost_event_holds_up_none_after_it() {
    let (fleet, mut node, _) = begun().await;
    let mut operator = fleet.operator().await;
    let rollout = node.until_asked().await;
    node.event_seq += 3;
    node.begins(&rollout).await;
    assert_eq!(state(&mut operator).await, NodeRolloutState::Activating);
    // One of before comes late.
    node.event_seq -= 3;
    node.say(&rollout, RolloutEventBody::Failed { message: "late".into() }).await;
    assert_eq!(state(&mut operator).await, NodeRolloutState::Activating);
}

/// An event whose fact is behind a gap takes no effect: those before it are neither lost nor duplicates of it once they
/// come (SCL-4).
#[tokio::test]
async fn an_event_behind_a_gap_comes_again_with_its_fact() {
    let (fleet, mut node, _) = begun().await;
    let mut operator = fleet.operator().await;
    let rollout = node.until_asked().await;
    let first = node.event(&rollout, RolloutEventBody::DispatchAck);
    let second = node.event(&rollout, RolloutEventBody::Failed { message: "it does not start".into() });
    let answer = node.check_in(vec![second.clone()], 0).await.unwrap();
    assert_eq!(answer.acked.unwrap().seq, 0, "the fact is asked for again");
    assert_eq!(state(&mut operator).await, NodeRolloutState::Pending);
    // Where the first is here, the one behind the gap is as little taken.
    let fourth = Fact { seq: 4, ..node.event(&rollout, RolloutEventBody::DispatchAck) };
    let answer = node.check_in(vec![fourth, first.clone()], 0).await.unwrap();
    assert_eq!(answer.acked.unwrap().seq, 1);
    assert_eq!(state(&mut operator).await, NodeRolloutState::Activating);
    node.check_in(vec![first, second], 0).await.unwrap();
    assert_eq!(state(&mut operator).await, NodeRolloutState::Failed);
    assert_eq!((counted(&fleet, "taken").await, counted(&fleet, "duplicate").await), (2, 1));
    assert_eq!(counted(&fleet, "refused").await, 0);
}

/// SCL-3: where a decision could not be stored, what it was about is read again and nothing else: that another rollout
/// cannot be read, or takes long to read, keeps none from going on.
#[tokio::test]
async fn what_could_not_be_stored_is_read_again_alone() {
    let (fleet, mut node, second) = begun().await;
    let mut operator = fleet.operator().await;
    let rollout = node.until_asked().await;
    node.begins(&rollout).await;
    node.confirms(&rollout, &second).await;
    operator.publish(&release(&fleet, 3)).await.unwrap();
    node.event_seq = 0;
    let rollout = node.until_asked().await;
    let database = Connection::open(fleet.dir.path().join("muster.db")).unwrap();
    database.busy_timeout(test_support::fleet::PATIENCE).unwrap();
    assert_eq!(database.execute("UPDATE rollout SET document = '{}' WHERE seq = 2", []).unwrap(), 1);
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON rollout_member
        BEGIN SELECT RAISE(ABORT, 'not now'); END";
    database.execute_batch(refuse).unwrap();
    let ack = node.event(&rollout, RolloutEventBody::DispatchAck);
    let taken = counted(&fleet, "taken").await;
    let refused = node.check_in(vec![ack.clone()], 0).await.unwrap_err();
    assert_eq!(refused.status, 503, "{refused}");
    database.execute_batch("DROP TRIGGER refuse").unwrap();
    let says = async || node.check_in(vec![ack.clone()], 0).await.ok();
    let answer = until("the event is taken", says).await;
    assert_eq!(answer.rollout.unwrap().task, RolloutTask::Proceed);
    assert_eq!(state(&mut operator).await, NodeRolloutState::Activating);
    assert_eq!(counted(&fleet, "taken").await, taken + 1);
}

/// An acknowledgement of a request that was withdrawn begins nothing.
#[tokio::test]
async fn a_withdrawn_request_begins_nothing() {
    let (fleet, mut node, _) = begun().await;
    let mut operator = fleet.operator().await;
    let rollout = node.until_asked().await;
    let _: RolloutView = operator.post("/v1/rollouts/stable/pause", &serde_json::json!({})).await.unwrap();
    let answer = node.say(&rollout, RolloutEventBody::DispatchAck).await;
    assert_eq!(answer.rollout.unwrap().task, RolloutTask::Hold);
    assert_eq!(state(&mut operator).await, NodeRolloutState::Pending);
    assert_eq!(counted(&fleet, "refused").await, 1);
}

/// What a probe found counts only under the host's own key, of this rollout, number and boot.
#[tokio::test]
async fn a_forged_probe_result_confirms_nothing() {
    let (fleet, mut node, second) = begun().await;
    let mut operator = fleet.operator().await;
    let rollout = node.until_asked().await;
    node.begins(&rollout).await;
    node.activates(&rollout, &second).await;
    let boot = node.boot.clone();
    let passes = RolloutEventBody::ProbeResult { probe: "up".into(), outcome: ProbeOutcome::Pass, boot };
    let mut unsigned = node.event(&rollout, passes.clone());
    let FactBody::Rollout(event) = &mut unsigned.body else { unreachable!() };
    event.signature = None;
    node.check_in(vec![unsigned], 0).await.unwrap();
    // The evidence of one event shown for another.
    let mut replayed = node.event(&rollout, passes.clone());
    let FactBody::Rollout(event) = &mut replayed.body else { unreachable!() };
    event.event_seq += 1;
    node.event_seq += 1;
    node.check_in(vec![replayed], 0).await.unwrap();
    let confirm = |node: &RolloutNode| RolloutEventBody::Converged {
        release: 2,
        boot: node.boot.clone(),
        soaked_secs: 0,
    };
    let says = confirm(&node);
    node.say(&rollout, says).await;
    assert_eq!(state(&mut operator).await, NodeRolloutState::Soaking);
    assert_eq!(counted(&fleet, "forged").await, 2);
    node.say(&rollout, passes).await;
    let says = confirm(&node);
    node.say(&rollout, says).await;
    assert_eq!(state(&mut operator).await, NodeRolloutState::Converged);
}

/// A control plane that was put back to a backup asks again; the node's log is new to it, and nothing begins by an
/// acknowledgement that it never saw.
#[tokio::test]
async fn events_from_before_a_restore_are_taken_again() {
    let (mut fleet, mut node, second) = begun().await;
    let rollout = node.until_asked().await;
    fleet.stop().await;
    let backup = fleet.backup();
    fleet.start_again().await;
    node.member.url = fleet.url();
    node.until_asked().await;
    let ack = node.event(&rollout, RolloutEventBody::DispatchAck);
    node.check_in(vec![ack.clone()], 0).await.unwrap();
    fleet.stop().await;
    fleet.restore(&backup);
    fleet.start_again().await;
    node.member.url = fleet.url();
    assert!(matches!(node.asked().await.unwrap().task, RolloutTask::Acknowledge { .. }));
    // The log sends again what is not acknowledged any more.
    let answer = node.check_in(vec![ack], 0).await.unwrap();
    assert_eq!(answer.rollout.unwrap().task, RolloutTask::Proceed);
    node.confirms(&rollout, &second).await;
    let view: RolloutView = fleet.operator().await.get("/v1/rollouts/stable").await.unwrap();
    assert_eq!(view.state, RolloutState::Terminal);
}
