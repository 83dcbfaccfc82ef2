//! CNV-3: what was heard of a node's runs is kept with the node, so that a restart of the control plane changes neither
//! its state nor its cause; and operators read since when a run has been under way and which was the last successful.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use model::exchange::{CheckIn, HeldFreshness, HeldTrust, RunNote};
use model::log::{Fact, FactBody};
use model::status::Overall;
use model::{Digest, RunCounts, RunReport, Timestamp, UnmadeRun, UnmadeRunCause};
use server::api::NodeView;
use test_support::fleet::release::{Made, Plan, make, params};
use test_support::fleet::{Fleet, Member, now, quiet};

async fn one_node() -> (Fleet, Member, Made) {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let made =
        make(&Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[params("a")]), &fleet.release_key());
    fleet.operator().await.publish(&made).await.unwrap();
    (fleet, node, made)
}

fn report(made: &Made, failed: u32) -> RunReport {
    RunReport {
        started: now(),
        duration_ms: 1,
        seq: 1,
        root: made.held("web-1").root,
        intended: true,
        paused: None,
        partial: None,
        unknown_tags: vec![],
        unswitched: Vec::new(),
        counts: RunCounts { modules: 1, ok: 3, failed, ..RunCounts::default() },
        items: vec![],
    }
}

/// What the node ended last, with its report.
fn ran(made: &Made, seq: u64, at: Timestamp, report: RunReport) -> CheckIn {
    let run = Some(RunNote { at, outcome: report.outcome() });
    let facts = vec![Fact { seq, at, body: FactBody::Run(report) }];
    CheckIn { held: Some(made.held("web-1")), run, facts, ..quiet() }
}

async fn before_and_after_a_restart(mut fleet: Fleet) -> [NodeView; 2] {
    let before = fleet.operator().await.node("web-1").await;
    fleet.stop().await;
    fleet.start_again().await;
    [before, fleet.operator().await.node("web-1").await]
}

#[tokio::test]
async fn why_no_run_can_be_made_is_kept() {
    let (fleet, node, made) = one_node().await;
    let at = now();
    node.check_in(&ran(&made, 1, at, report(&made, 0))).await.unwrap();
    let unmade_run = Some(UnmadeRun::new(now(), UnmadeRunCause::MissingContent, "content 1234 is missing"));
    let run = Some(RunNote { at, outcome: report(&made, 0).outcome() });
    node.check_in(&CheckIn { unmade_run, run, held: Some(made.held("web-1")), ..quiet() }).await.unwrap();
    for view in before_and_after_a_restart(fleet).await {
        assert_eq!(view.state, Overall::Stalled);
        assert!(view.cause.as_ref().unwrap().ends_with(": content 1234 is missing"), "{:?}", view.cause);
        assert_eq!(view.successful_run, Some(at));
    }
}

#[tokio::test]
async fn the_last_successful_run_and_the_one_under_way_are_kept() {
    let (fleet, node, made) = one_node().await;
    let good = now().minus(Duration::from_secs(60));
    node.check_in(&ran(&made, 1, good, report(&made, 0))).await.unwrap();
    node.check_in(&ran(&made, 2, now(), report(&made, 1))).await.unwrap();
    let since = now();
    let run = Some(RunNote { at: now(), outcome: report(&made, 1).outcome() });
    let call = CheckIn { run, running_since: Some(since), held: Some(made.held("web-1")), ..quiet() };
    node.check_in(&call).await.unwrap();
    for view in before_and_after_a_restart(fleet).await {
        assert_eq!((view.successful_run, view.running_since), (Some(good), Some(since)));
        assert_eq!(view.state, Overall::Degraded);
    }
}

/// A first run that takes long is why the node is `changing`, in one line for all nodes.
#[tokio::test]
async fn a_run_under_way_is_a_cause() {
    let (fleet, node, made) = one_node().await;
    let since = now();
    // Its report of another set is here.
    let mut other = report(&made, 0);
    other.root = Digest::of(b"other");
    node.check_in(&ran(&made, 1, now(), other)).await.unwrap();
    let call = CheckIn { running_since: Some(since), held: Some(made.held("web-1")), ..quiet() };
    node.check_in(&call).await.unwrap();
    let mut operator = fleet.operator().await;
    let view = operator.node("web-1").await;
    assert_eq!(view.state, Overall::Changing);
    assert_eq!(view.cause, Some(format!("a run has been under way since {since}")));
    let status = operator.status().await;
    let [line] = status.causes.as_slice() else { panic!("{:?}", status.causes) };
    assert_eq!(Some(&line.cause), view.cause.as_ref());
}

/// IDN-2, IDN-8, IDN-10: so is what the node says is the matter, with the trust document that it holds.
#[tokio::test]
async fn what_the_node_says_is_the_matter_is_kept() {
    let (fleet, node, made) = one_node().await;
    let at = now();
    let freshness = HeldFreshness { signed_at: at, not_fresh_since: Some(at), stale_since: None };
    let trust = HeldTrust {
        version: 7,
        digest: Digest::of(b"7"),
        refused: Some("older-trust".to_owned()),
        authority: None,
    };
    let call = CheckIn {
        freshness: Some(freshness),
        trust: Some(trust),
        renewal_failure: Some("the disk is full".to_owned()),
        ..ran(&made, 1, at, report(&made, 0))
    };
    node.check_in(&call).await.unwrap();
    for view in before_and_after_a_restart(fleet).await {
        assert_eq!((view.freshness, view.state), (Some(freshness), Overall::NotFresh));
        assert_eq!((view.trust_version, view.refused_trust.as_deref()), (Some(7), Some("older-trust")));
        assert_eq!(view.renewal_failure.as_deref(), Some("the disk is full"));
    }
}
