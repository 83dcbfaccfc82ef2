//! ROL-1, ROL-5: what operators say, and a halt, take effect within one second on all that was not yet begun: a node
//! that was asked is answered with a hold, and an acknowledgement that comes after it begins nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::exchange::Answer;
use model::rollout::{RolloutEventBody, RolloutTask};
use rollout::{NodeRolloutState, RolloutState};
use server::api::rollouts::RolloutView;
use test_support::fleet::release::{Made, Plan, make, params};
use test_support::fleet::rollouts::RolloutNode;
use test_support::fleet::{Fleet, Operator};
use trust::RolloutTerms;
use trust::rollout_terms::{BudgetTerms, GateTerms, WaveMembers, WaveTerms};

/// From an operator's command, or a node's event, to the answer of another node's poll.
const BOUND: Duration = Duration::from_secs(1);
/// How long a poll would wait, in seconds.
const POLL: u64 = 30;

fn release(fleet: &Fleet, seq: u64, rollout: Option<Arc<RolloutTerms>>) -> Made {
    let mut plan = Plan::new(&fleet.enroll_info().fleet, seq);
    for node in 1..=3 {
        plan = plan.node(&format!("web-{node}"), &[params(&format!("{seq}"))]);
    }
    make(&Plan { rollout, ..plan }, &fleet.release_key())
}

/// Three nodes, of which two are asked at once.
async fn begun() -> (Fleet, Vec<RolloutNode>, Made) {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let first = release(&fleet, 1, None);
    operator.publish(&first).await.unwrap();
    let mut nodes = Vec::new();
    for number in 1..=3 {
        let mut node = RolloutNode::new(fleet.node(&format!("web-{number}")).await);
        node.holds(&first);
        node.check_in(Vec::new(), 0).await.unwrap();
        nodes.push(node);
    }
    let gate = GateTerms { soak_secs: 0, success: 100 };
    let rest = WaveTerms { name: "all".to_owned(), members: WaveMembers::Rest, not_before: None, gate };
    let of = lang::Selector::parse("*").unwrap();
    let budgets = vec![BudgetTerms { of, in_flight: None, max: Some(2) }];
    let terms = RolloutTerms { waves: vec![rest], budgets, ..RolloutTerms::default() };
    let second = release(&fleet, 2, Some(Arc::new(terms)));
    operator.publish(&second).await.unwrap();
    (fleet, nodes, second)
}

/// Those that were asked first, and the one that was not.
async fn asked_first(mut nodes: Vec<RolloutNode>) -> (RolloutNode, RolloutNode, RolloutNode) {
    let begun = Instant::now();
    loop {
        let mut asked = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let task = node.asked().await.map(|dispatch| dispatch.task);
            if matches!(task, Some(RolloutTask::Acknowledge { .. })) {
                asked.push(at);
            }
        }
        if let [one, other] = asked[..] {
            let (other, one) = (nodes.remove(other), nodes.remove(one));
            return (one, other, nodes.remove(0));
        }
        assert!(begun.elapsed() < test_support::wait::DEADLINE, "{asked:?} are asked");
    }
}

fn task(answer: &Answer) -> RolloutTask {
    answer.rollout.as_ref().unwrap().task
}

async fn turn(operator: &mut Operator, turn: &str) -> RolloutView {
    operator.post(&format!("/v1/rollouts/stable/{turn}"), &serde_json::json!({})).await.unwrap()
}

/// What a node is answered that calls once this is done, and how long after its beginning.
async fn answered_after<T>(node: &RolloutNode, act: impl Future<Output = T>) -> (Answer, Duration) {
    let from = Instant::now();
    act.await;
    let answer = node.check_in(Vec::new(), POLL).await.unwrap();
    (answer, from.elapsed())
}

#[tokio::test]
async fn a_pause_and_an_abort_reach_what_was_asked() {
    let (fleet, nodes, _) = begun().await;
    let mut operator = fleet.operator().await;
    let (mut one, mut other, mut third) = asked_first(nodes).await;
    for word in ["pause", "abort"] {
        let (answer, after) = answered_after(&one, turn(&mut operator, word)).await;
        assert_eq!(task(&answer), RolloutTask::Hold, "{word}");
        assert!(after < BOUND, "{word} is answered after {after:?}");
        assert_eq!(third.asked().await.unwrap().task, RolloutTask::Hold);
        // What the other one acknowledges now was called off before.
        let rollout = answer.rollout.unwrap().rollout;
        let said = other.say(&rollout, RolloutEventBody::DispatchAck).await;
        assert_eq!(task(&said), RolloutTask::Hold, "{word}");
        if word == "pause" {
            turn(&mut operator, "resume").await;
            // Of the three any two may have the slots now.
            (one, other, third) = asked_first(vec![one, other, third]).await;
        }
    }
    let view: RolloutView = operator.get("/v1/rollouts/stable").await.unwrap();
    assert_eq!(view.nodes, [(NodeRolloutState::Pending, 3)].into(), "{view:?}");
}

#[tokio::test]
async fn a_halt_reaches_what_was_asked() {
    let (fleet, nodes, second) = begun().await;
    let mut operator = fleet.operator().await;
    let (mut one, other, third) = asked_first(nodes).await;
    let rollout = one.until_asked().await;
    one.begins(&rollout).await;
    one.activates(&rollout, &second).await;
    let failed = RolloutEventBody::Failed { message: "nginx does not answer".into() };
    let (answer, after) = answered_after(&other, one.say(&rollout, failed)).await;
    assert_eq!(task(&answer), RolloutTask::Hold);
    assert!(after < BOUND, "a halt is answered after {after:?}");
    assert_eq!(third.asked().await.unwrap().task, RolloutTask::Hold);
    let view: RolloutView = operator.get("/v1/rollouts/stable").await.unwrap();
    assert_eq!((view.state, view.nodes[&NodeRolloutState::Pending]), (RolloutState::Failed, 2), "{view:?}");
    // The fleet says of the node why it is not well, though it is pointed to what it had.
    let shown: server::api::NodeView =
        operator.get(&format!("/v1/nodes/{}", one.member.hostname)).await.unwrap();
    assert_eq!(shown.state, model::status::Overall::Failed);
    let cause = shown.cause.unwrap();
    assert!(cause.contains("nginx does not answer") && cause.contains(rollout.as_str()), "{cause}");
}
