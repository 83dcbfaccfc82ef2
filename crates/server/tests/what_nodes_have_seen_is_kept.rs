//! WIR-1: the control plane verifies the `seen` document of a check-in, keeps the newest of each
//! node over restarts, asks for one that it lacks, and refuses one that is not the node's own.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::exchange::{CheckIn, HeldRelease, Signed};
use model::log::{Fact, FactBody};
use test_support::fleet::release::{Plan, make, params};
use test_support::fleet::{Fleet, Member, now, quiet, refuses};
use trust::seen::Seen;
use wire::Code;

async fn one_node() -> (Fleet, Member, HeldRelease) {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[params("a")]);
    let made = make(&plan, &fleet.release_key());
    fleet.operator().await.publish(&made).await.unwrap();
    let held = made.held("web-1");
    (fleet, node, held)
}

fn saying(held: &HeldRelease, seen: Option<Signed>) -> CheckIn {
    CheckIn { held: Some(held.clone()), seen, ..quiet() }
}

async fn kept(fleet: &Fleet) -> Option<Seen> {
    fleet.operator().await.node("web-1").await.seen
}

#[tokio::test]
async fn the_newest_is_kept_over_a_restart_and_asked_for_when_it_is_lacking() {
    let (mut fleet, mut node, held) = one_node().await;
    assert!(!node.check_in(&quiet()).await.unwrap().want_seen, "it holds nothing that it could have seen");
    assert!(node.check_in(&saying(&held, None)).await.unwrap().want_seen);
    let seen = node.seen(&held, 0);
    let document = seen.sign(&node.key).unwrap();
    assert!(!node.check_in(&saying(&held, Some(document.clone()))).await.unwrap().want_seen);
    assert!(!node.check_in(&saying(&held, None)).await.unwrap().want_seen, "an unchanged check-in has none");
    assert_eq!(kept(&fleet).await, Some(seen.clone()));
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    assert_eq!(kept(&fleet).await, Some(seen));
    assert!(!node.check_in(&saying(&held, None)).await.unwrap().want_seen);
    // A fact that it does not cover.
    let body = FactBody::Repaired { message: "x".to_owned() };
    let facts = vec![Fact { seq: 1, at: now(), body }];
    node.check_in(&CheckIn { facts, ..saying(&held, None) }).await.unwrap();
    assert!(node.check_in(&saying(&held, None)).await.unwrap().want_seen);
    let newest = node.seen(&held, 1);
    let answer = node.check_in(&saying(&held, Some(newest.sign(&node.key).unwrap()))).await.unwrap();
    assert!(!answer.want_seen);
    // The earlier one, late: taken for what it is, and not kept.
    node.check_in(&saying(&held, Some(document))).await.unwrap();
    assert_eq!(kept(&fleet).await, Some(newest));
}

#[tokio::test]
async fn one_that_is_not_the_node_s_own_is_refused_by_its_code() {
    let (fleet, node, held) = one_node().await;
    let other = fleet.node("web-2").await;
    let good = node.seen(&held, 0).sign(&node.key).unwrap();
    let mut changed = good.clone();
    changed.payload = changed.payload.replace(r#""seq":1"#, r#""seq":2"#);
    assert_ne!(changed, good);
    let mut unsigned = good.clone();
    unsigned.signatures.clear();
    let forged = node.seen(&held, 0).sign(&other.key).unwrap();
    let borrowed = other.seen(&held, 0).sign(&node.key).unwrap();
    let replayed = other.seen(&held, 0).sign(&other.key).unwrap();
    for document in [changed, unsigned, forged, borrowed, replayed] {
        refuses(node.check_in(&saying(&held, Some(document))).await, Code::SeenRefused);
        assert_eq!(kept(&fleet).await, None);
    }
    node.check_in(&saying(&held, Some(good))).await.unwrap();
    assert!(kept(&fleet).await.is_some());
    node.survives().await;
}
