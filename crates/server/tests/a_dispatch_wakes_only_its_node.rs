//! ROL-1, ROL-5: the long poll of a node is answered when what the rollout asks of that node changes, and stays open while
//! others acknowledge, activate, confirm and fail, and when the rollout enters another state. So a rollout of 100,000 nodes
//! costs one answer a step, and not 100,000.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use http::Method;
use model::exchange::Answer;
use model::rollout::{RolloutEventBody, RolloutId, RolloutTask};
use rollout::RolloutState;
use serde_json::{Value, json};
use server::api::rollouts::RolloutView;
use test_support::fleet::release::{Made, Plan, make, params};
use test_support::fleet::rollouts::RolloutNode;
use test_support::fleet::{Fleet, Operator};
use test_support::wait::{soon, until};
use tokio::task::JoinHandle;
use trust::RolloutTerms;
use trust::rollout_terms::{GateTerms, WaveMembers, WaveTerms};

/// How long a poll would wait, in seconds: longer than a test waits for anything.
const POLL: u64 = 60;

/// A poll that is held.
type HeldPoll = JoinHandle<(RolloutNode, Answer)>;

fn release(fleet: &Fleet, seq: u64, rollout: Option<Arc<RolloutTerms>>) -> Made {
    let mut plan = Plan::new(&fleet.enroll_info().fleet, seq);
    for node in 1..=3 {
        plan = plan.node(&format!("web-{node}"), &[params(&format!("{seq}"))]);
    }
    make(&Plan { rollout, ..plan }, &fleet.release_key())
}

/// Three nodes in waves of these, and all others in a last one; what was said to each before is told.
async fn begun(waves: &[&str]) -> (Fleet, [RolloutNode; 3], Made) {
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
    let wave = |name: &str, members| WaveTerms { name: name.to_owned(), members, not_before: None, gate };
    let named = waves
        .iter()
        .zip(["first", "second"])
        .map(|(nodes, name)| wave(name, WaveMembers::Where(lang::Selector::parse(nodes).unwrap())));
    let waves = named.chain([wave("rest", WaveMembers::Rest)]).collect();
    let terms = RolloutTerms { waves, ..RolloutTerms::default() };
    let second = release(&fleet, 2, Some(Arc::new(terms)));
    operator.publish(&second).await.unwrap();
    (fleet, nodes.try_into().ok().unwrap(), second)
}

async fn checkins(operator: &mut Operator) -> u64 {
    let metrics = operator.raw(Method::GET, "/metrics", Vec::new()).await;
    let text = String::from_utf8(metrics.body().to_vec()).unwrap();
    text.lines().find_map(|line| line.strip_prefix("muster_checkins_total ")?.parse().ok()).unwrap()
}

/// Has a node poll; its check-in is taken in when this returns.
async fn polls(operator: &mut Operator, node: RolloutNode) -> HeldPoll {
    let before = checkins(operator).await;
    let poll = tokio::spawn(async move {
        let answer = node.check_in(Vec::new(), POLL).await.unwrap();
        (node, answer)
    });
    until("the check-in is taken in", async || (checkins(operator).await > before).then_some(())).await;
    if poll.is_finished() {
        panic!("there is nothing to say, and it is told {:?}", poll.await.unwrap().1);
    }
    poll
}

fn task(answer: &Answer) -> RolloutTask {
    answer.rollout.as_ref().unwrap().task
}

/// Asks a node to run: its poll is answered by that at the latest.
async fn requests_run(operator: &mut Operator, node: &str) {
    let _: Value = operator.post("/v1/run-requests", &json!({ "nodes": [node] })).await.unwrap();
}

async fn goes_through(node: &mut RolloutNode, rollout: &RolloutId, made: &Made) {
    node.begins(rollout).await;
    node.confirms(rollout, made).await;
}

#[tokio::test]
async fn others_go_on_beside_a_poll_that_stays_open() {
    let (fleet, [mut one, mut other, third], second) = begun(&["web-1", "web-2"]).await;
    let mut operator = fleet.operator().await;
    let rollout = one.until_asked().await;
    third.until(|dispatch| dispatch.task == RolloutTask::Hold).await;
    let third = polls(&mut operator, third).await;
    goes_through(&mut one, &rollout, &second).await;
    other.until_asked().await;
    // A node that is confirmed polls too.
    one.check_in(Vec::new(), 0).await.unwrap();
    let one = polls(&mut operator, one).await;
    goes_through(&mut other, &rollout, &second).await;
    let (mut third, answer) = soon(third).await.unwrap();
    assert!(
        matches!(task(&answer), RolloutTask::Acknowledge { .. }),
        "its own request is the first answer: {answer:?}"
    );
    goes_through(&mut third, &rollout, &second).await;
    let view: RolloutView = operator.get("/v1/rollouts/stable").await.unwrap();
    assert_eq!(view.state, RolloutState::Terminal, "{view:?}");
    // The end of the rollout is said with the next answer, and is no reason for one.
    requests_run(&mut operator, "web-1").await;
    let (_, answer) = soon(one).await.unwrap();
    assert!(answer.run_request.is_some(), "{answer:?}");
    assert!(answer.rollout.unwrap().is_through());
}

#[tokio::test]
async fn a_halt_is_said_to_those_that_were_asked() {
    let (fleet, [mut one, other, third], second) = begun(&["web-1,web-2"]).await;
    let mut operator = fleet.operator().await;
    let rollout = one.until_asked().await;
    other.until_asked().await;
    third.until(|dispatch| dispatch.task == RolloutTask::Hold).await;
    let third = polls(&mut operator, third).await;
    one.begins(&rollout).await;
    one.activates(&rollout, &second).await;
    one.say(&rollout, RolloutEventBody::Failed { message: "nginx does not answer".into() }).await;
    // Who is asked is offered the release, so that its polls are answered at once until it has it.
    let answer = other.check_in(Vec::new(), POLL).await.unwrap();
    assert_eq!(task(&answer), RolloutTask::Hold);
    let view: RolloutView = operator.get("/v1/rollouts/stable").await.unwrap();
    assert_eq!(view.state, RolloutState::Failed, "{view:?}");
    requests_run(&mut operator, "web-3").await;
    let (_, answer) = soon(third).await.unwrap();
    assert_eq!((task(&answer), answer.run_request.is_some()), (RolloutTask::Hold, true), "{answer:?}");
}
