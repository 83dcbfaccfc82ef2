//! CNV-3, LIF-10: why a node does not hold the release that it is pointed to is a cause, one for all nodes where the
//! same fails, within a bound and until the node says it no more.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::exchange::CheckIn;
use model::unadopted::{MAX_UNADOPTED_REASON, UnadoptedCause, UnadoptedRelease};
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
    other.check_in(&says("x".repeat(MAX_UNADOPTED_REASON * 9))).await.unwrap();
    let mut operator = fleet.operator().await;
    let status = operator.status().await;
    let [line] = status.causes.as_slice() else { panic!("{:?}", status.causes) };
    assert_eq!((line.count, line.next.as_str()), (2, "on web-1: muster-agent doctor"));
    assert!(line.cause.contains("/a/put-1: No space left on device"), "{line:?}");
    assert_eq!(operator.node("web-1").await.cause.as_ref(), Some(&line.cause));
    assert!(operator.node("web-2").await.cause.unwrap().len() < MAX_UNADOPTED_REASON + 100);

    one.check_in(&quiet()).await.unwrap();
    let status = operator.status().await;
    let counts: Vec<_> = status.causes.iter().map(|line| (line.count, line.cause.contains("disk"))).collect();
    assert!(counts.contains(&(1, true)) && counts.contains(&(1, false)), "{:?}", status.causes);
}
