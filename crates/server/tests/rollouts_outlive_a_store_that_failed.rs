//! SCL-3, ROL-5: after a commit of rollouts that failed nothing is shown that was not stored, and who asks finds the store again
//! at once; what went out meanwhile leaves no node without a release.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use model::rollout::RolloutTask;
use rollout::RolloutState;
use rusqlite::Connection;
use server::api::rollouts::RolloutView;
use test_support::fleet::release::{Made, Plan, make, params};
use test_support::fleet::rollouts::RolloutNode;
use test_support::fleet::{Fleet, Operator};
use trust::RolloutTerms;
use trust::rollout_terms::{GateTerms, WaveMembers, WaveTerms};
use wire::route;

/// `web-1`, then all others.
fn waves() -> Option<Arc<RolloutTerms>> {
    let wave = |name: &str, members| {
        let gate = GateTerms { soak_secs: 0, success: 100 };
        WaveTerms { name: name.to_owned(), members, not_before: None, gate }
    };
    let canary = WaveMembers::Where(lang::Selector::parse("web-1").unwrap());
    let waves = vec![wave("canary", canary), wave("rest", WaveMembers::Rest)];
    Some(Arc::new(RolloutTerms { waves, ..RolloutTerms::default() }))
}

fn release(fleet: &Fleet, seq: u64, rollout: Option<Arc<RolloutTerms>>) -> Made {
    let mut plan = Plan::new(&fleet.enroll_info().fleet, seq);
    for node in 1..=3 {
        plan = plan.node(&format!("web-{node}"), &[params(&format!("{seq}"))]);
    }
    make(&Plan { rollout, ..plan }, &fleet.release_key())
}

/// A fleet of one node that holds release 1, which went to all at once.
async fn started() -> (Fleet, Operator, RolloutNode, Made) {
    let fleet = Fleet::start().await;
    let mut operator = fleet.operator().await;
    let first = release(&fleet, 1, None);
    operator.publish(&first).await.unwrap();
    let mut node = RolloutNode::new(fleet.node("web-1").await);
    node.holds(&first);
    node.check_in(Vec::new(), 0).await.unwrap();
    (fleet, operator, node, first)
}

/// A store that does not take what is said of rollouts.
struct Refusing(Connection);

impl Refusing {
    fn begin(fleet: &Fleet) -> Refusing {
        let database = Connection::open(fleet.dir.path().join("muster.db")).unwrap();
        database.busy_timeout(test_support::fleet::PATIENCE).unwrap();
        for what in ["INSERT", "UPDATE"] {
            let refuse = format!(
                "CREATE TRIGGER refuse_{what} BEFORE {what} ON rollout BEGIN SELECT RAISE(ABORT, 'not now'); END"
            );
            database.execute_batch(&refuse).unwrap();
        }
        Refusing(database)
    }

    fn end(self) {
        self.0.execute_batch("DROP TRIGGER refuse_INSERT; DROP TRIGGER refuse_UPDATE").unwrap();
    }
}

/// An operator's word that was not stored is shown nowhere, and the next one is taken as soon as the store takes it.
#[tokio::test]
async fn a_word_that_was_not_stored_is_not_shown_and_may_be_said_again_at_once() {
    let (fleet, mut operator, node, _) = started().await;
    operator.publish(&release(&fleet, 2, waves())).await.unwrap();
    node.until_asked().await;
    let refusing = Refusing::begin(&fleet);
    let order = serde_json::json!({});
    for _ in 0..3 {
        let refused = operator.post::<_, RolloutView>("/v1/rollouts/stable/pause", &order).await.unwrap_err();
        assert_eq!(refused.status, 503, "{refused:?}");
        let view: RolloutView = operator.get("/v1/rollouts/stable").await.unwrap();
        assert!(view.paused.is_none(), "{view:?}");
    }
    refusing.end();
    let paused: RolloutView = operator.post("/v1/rollouts/stable/pause", &order).await.unwrap();
    assert!(paused.paused.is_some(), "{paused:?}");
    operator.publish(&release(&fleet, 3, waves())).await.unwrap();
    node.check_in(Vec::new(), 0).await.unwrap();
}

/// ROL-2: a release whose rollout never began was tried by nobody: a host that joins is not given it as the one of before.
#[tokio::test]
async fn a_release_whose_rollout_never_began_is_not_proven() {
    let (fleet, mut operator, node, first) = started().await;
    let refusing = Refusing::begin(&fleet);
    operator.publish(&release(&fleet, 2, waves())).await.unwrap_err();
    refusing.end();
    operator.publish(&release(&fleet, 3, waves())).await.unwrap();
    node.until_asked().await;
    let late = RolloutNode::new(fleet.node("web-2").await);
    let (_, answer) = late.until(|dispatch| dispatch.task == RolloutTask::Hold).await;
    assert_eq!(answer.offer.unwrap().header, first.header);
}

/// A release that goes to its nodes at once takes the place of one in waves: no answer in between says that nothing is
/// published for the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_member_is_without_a_release_while_a_rollout_is_replaced() {
    let (fleet, mut operator, node, _) = started().await;
    for seq in [2, 4, 6, 8] {
        operator.publish(&release(&fleet, seq, waves())).await.unwrap();
        let at_once = release(&fleet, seq + 1, None);
        {
            let publishes = operator.publish(&at_once);
            tokio::pin!(publishes);
            loop {
                tokio::select! {
                    biased;
                    published = &mut publishes => {
                        published.unwrap();
                        break;
                    }
                    answer = node.check_in(Vec::new(), 0) => assert!(!answer.unwrap().unassigned),
                }
            }
        }
        assert_eq!(node.check_in(Vec::new(), 0).await.unwrap().offer.unwrap().header, at_once.header);
        let view: RolloutView = operator.get("/v1/rollouts/stable").await.unwrap();
        assert_eq!(view.state, RolloutState::Superseded, "{view:?}");
    }
}

/// ROL-5: a poll for dispatches passes over what it does not answer, and leaves it to the next check-in.
#[tokio::test]
async fn a_poll_for_dispatches_takes_no_word_from_a_check_in() {
    let (fleet, mut operator, node, first) = started().await;
    let mut other = RolloutNode::new(fleet.node("web-2").await);
    other.holds(&first);
    other.check_in(Vec::new(), 0).await.unwrap();
    operator.publish(&release(&fleet, 2, waves())).await.unwrap();
    node.until_asked().await;
    assert_eq!(dispatch(&other).await.status(), StatusCode::NO_CONTENT);
    let waits = other.check_in(Vec::new(), 60);
    let answer = tokio::time::timeout(std::time::Duration::from_secs(30), waits).await;
    let answer = answer.expect("a check-in that may wait is told at once").unwrap();
    assert_eq!(answer.rollout.unwrap().task, RolloutTask::Hold);
}

async fn dispatch(node: &RolloutNode) -> Response<Bytes> {
    let path = format!("{}?wait=0", route::DISPATCH);
    node.member.send(node.member.signed(Method::GET, &path, Vec::new())).await
}
