//! CNV-3, LIF-10: why a node does not hold the release that it is pointed to is a cause, one for all nodes where the
//! same fails, within a bound and until the node says it no more.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::RunCounts;
use model::exchange::CheckIn;
use model::log::{Fact, FactBody};
use model::node_conditions::MAX_CONDITION_TEXT;
use model::status::Overall;
use model::unadopted::{UnadoptedCause, UnadoptedRelease};
use test_support::fleet::release::{Plan, make, params};
use test_support::fleet::{Fleet, now, quiet};

#[tokio::test]
async fn nodes_whose_disks_are_full_are_one_line() {
    let fleet = Fleet::start().await;
    let (one, other) = (fleet.node("web-1").await, fleet.node("web-2").await);
    let plan = Plan::new(&fleet.enroll_info().fleet, 1);
    let plan = plan.node("web-1", &[params("a")]).node("web-2", &[params("a")]);
    fleet.operator().await.publish(&make(&plan, &fleet.release_key())).await.unwrap();
    let says = |reason: String| {
        let unadopted = Some(UnadoptedRelease { since: now(), cause: UnadoptedCause::Keep, reason });
        CheckIn { unadopted, ..quiet() }
    };
    one.check_in(&says("cannot write /a/put-1: No space left on device".to_owned())).await.unwrap();
    other.check_in(&says("x".repeat(MAX_CONDITION_TEXT * 9))).await.unwrap();
    let mut operator = fleet.operator().await;
    let status = operator.status().await;
    let [line] = status.causes.as_slice() else { panic!("{:?}", status.causes) };
    assert_eq!((line.count, line.next.as_str()), (2, "on web-1: muster-agent doctor"));
    assert!(line.cause.contains("/a/put-1: No space left on device"), "{line:?}");
    assert_eq!(operator.node("web-1").await.cause.as_ref(), Some(&line.cause));
    assert!(operator.node("web-2").await.cause.unwrap().len() < MAX_CONDITION_TEXT + 100);

    one.check_in(&quiet()).await.unwrap();
    let status = operator.status().await;
    let counts: Vec<_> = status.causes.iter().map(|line| (line.count, line.cause.contains("disk"))).collect();
    assert!(counts.contains(&(1, true)) && counts.contains(&(1, false)), "{:?}", status.causes);
}

/// What it says now and what is kept of a release of before are lines of their own, each with its next step.
#[tokio::test]
async fn a_refusal_that_is_kept_hides_nothing() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[params("a")]);
    fleet.operator().await.publish(&make(&plan, &fleet.release_key())).await.unwrap();
    let body = FactBody::Refused {
        code: trust::adopt::REQUIRES_CODE.to_owned(),
        message: "it requires more than this agent knows".to_owned(),
    };
    let since = now();
    let unadopted = Some(UnadoptedRelease::new(since, UnadoptedCause::Fetch, "no route"));
    let facts = vec![Fact { seq: 1, at: now(), body }];
    node.check_in(&CheckIn { unadopted: unadopted.clone(), facts, ..quiet() }).await.unwrap();
    let mut operator = fleet.operator().await;
    let mut lines: Vec<_> =
        operator.status().await.causes.into_iter().map(|line| (line.cause, line.next)).collect();
    lines.sort();
    let [refused, unfetched] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(refused.0, "it requires more than this agent knows");
    assert_eq!(refused.1, "install a newer muster-agent on web-1");
    assert!(unfetched.0.ends_with("could not be fetched: no route"), "{unfetched:?}");
    assert_eq!(unfetched.1, "on web-1: muster-agent doctor");
    let shown = operator.node("web-1").await;
    assert_eq!((shown.cause.as_ref(), shown.since), (Some(&unfetched.0), Some(since)));
    assert_eq!(shown.unadopted, unadopted);
}

/// A node that fails has another state, and the release that would mend it cannot be fetched.
#[tokio::test]
async fn a_node_of_another_state_says_it_too() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let of = |seq, text| {
        let plan = Plan::new(&fleet.enroll_info().fleet, seq).node("web-1", &[params(text)]);
        make(&plan, &fleet.release_key())
    };
    let (first, mended) = (of(1, "a"), of(2, "b"));
    let mut operator = fleet.operator().await;
    operator.publish(&first).await.unwrap();
    let held = first.held("web-1");
    let report = model::RunReport {
        started: now(),
        duration_ms: 1,
        seq: 1,
        root: held.root,
        intended: true,
        paused: None,
        partial: None,
        unknown_tags: vec![],
        unswitched: Vec::new(),
        counts: RunCounts { modules: 1, failed: 1, ..RunCounts::default() },
        items: vec![],
    };
    let facts = vec![Fact { seq: 1, at: now(), body: FactBody::Run(report) }];
    node.check_in(&CheckIn { held: Some(held.clone()), facts, ..quiet() }).await.unwrap();
    operator.publish(&mended).await.unwrap();
    let since = now();
    let unadopted = Some(UnadoptedRelease::new(since, UnadoptedCause::Fetch, "no route"));
    node.check_in(&CheckIn { held: Some(held), unadopted: unadopted.clone(), ..quiet() }).await.unwrap();
    let shown = operator.node("web-1").await;
    assert_eq!((shown.state, shown.unadopted), (Overall::Failed, unadopted));
    let causes = operator.status().await.causes;
    let line = causes.iter().find(|line| line.cause.contains("could not be fetched: no route")).unwrap();
    assert_eq!(
        (line.since, line.next.as_str()),
        (Some(since), "on web-1: muster-agent doctor"),
        "{causes:?}"
    );
}
