//! OPS-2: work that a newer release allows is not refused by the older one that the node still
//! holds: the node checks in and adopts first. A refusal names what was held and what was needed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::Timestamp;
use model::work::{ActionEvent, ActionFact, ActionOutcome, ActionRefusal, Order, RefusalCode, Work};
use node::work::{RestoredWork, WorkEffect, WorkInput, WorkMachine, WorkPermit, WorkTime};

const EXPIRES: i64 = 60_000;

fn at(ms: i64) -> WorkTime {
    WorkTime { now: Timestamp(ms), trusted: Timestamp(ms) }
}

/// An order of a control plane that points to this release.
fn order(release: Option<u64>) -> Order {
    Order {
        task: "t".into(),
        work: Work::Command { argv: vec!["/bin/true".into()] },
        timeout_secs: 10,
        expires: Timestamp(EXPIRES),
        cancel: false,
        release,
    }
}

fn refuses(_: &Work) -> Result<WorkPermit<()>, ActionRefusal> {
    Err(ActionRefusal { code: RefusalCode::NotDelegated, message: "no (holds 3)".into() })
}

fn allows(_: &Work) -> Result<WorkPermit<()>, ActionRefusal> {
    Ok(WorkPermit { permitted: (), timeout_secs: 10 })
}

/// A node that holds release 3, which refuses all; an order of this release comes.
fn asked(release: Option<u64>) -> (WorkMachine, Vec<WorkEffect<()>>) {
    let restored = RestoredWork { held_seq: 3, ..RestoredWork::default() };
    let (mut work, _) = WorkMachine::new(restored, at(0), &refuses);
    let put = WorkInput::Put { id: "a".into(), order: Ok(order(release)) };
    let effects = work.handle(put, at(1), &refuses);
    (work, effects)
}

#[track_caller]
fn refusal(effects: &[WorkEffect<()>]) -> &str {
    match effects {
        [WorkEffect::End { fact: ActionFact { event: ActionEvent::Ended { outcome, .. }, .. }, .. }] => {
            match outcome {
                ActionOutcome::Refused { code: RefusalCode::NotDelegated, message } => message,
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_newer_release_is_adopted_first_and_then_judges() {
    let (mut work, effects) = asked(Some(4));
    assert_eq!(effects, [WorkEffect::CheckIn]);
    assert_eq!(work.handle(WorkInput::Tick, at(2), &refuses), [], "it does not check in again and again");
    assert_eq!(work.waiting(), 1);
    let adopted = work.handle(WorkInput::Delegations { seq: 4 }, at(3), &allows);
    assert!(matches!(&adopted[..], [WorkEffect::Begin { id, .. }] if id == "a"), "{adopted:?}");
}

#[test]
fn the_release_that_was_waited_for_may_refuse_too() {
    let (mut work, _) = asked(Some(4));
    let adopted = work.handle(WorkInput::Delegations { seq: 4 }, at(3), &refuses);
    assert_eq!(refusal(&adopted), "no (holds 3)");
}

#[test]
fn what_is_held_already_refuses_at_once() {
    for release in [None, Some(2), Some(3)] {
        assert_eq!(refusal(&asked(release).1), "no (holds 3)", "{release:?}");
    }
}

#[test]
fn a_release_that_does_not_come_in_time_is_named() {
    let (mut work, _) = asked(Some(4));
    assert_eq!(work.next_deadline(at(1)), Some(Timestamp(EXPIRES + 1)));
    let late = work.handle(WorkInput::Tick, at(EXPIRES + 1), &refuses);
    assert_eq!(refusal(&late), "no (holds 3); it was to adopt release 4 first, and did not in time");
}

#[test]
fn what_waits_for_a_release_can_be_cancelled_and_withdrawn() {
    let (mut work, _) = asked(Some(4));
    let cancel = WorkInput::Put { id: "a".into(), order: Ok(Order { cancel: true, ..order(Some(4)) }) };
    let effects = work.handle(cancel, at(2), &refuses);
    let cancelled = |effect: &WorkEffect<()>| {
        matches!(
            effect,
            WorkEffect::End {
                fact: ActionFact { event: ActionEvent::Ended { outcome: ActionOutcome::Cancelled, .. }, .. },
                ..
            }
        )
    };
    assert!(effects.iter().any(cancelled), "{effects:?}");
    let (mut work, _) = asked(Some(4));
    work.handle::<()>(WorkInput::Removed { id: "a".into() }, at(2), &refuses);
    assert_eq!(work.waiting(), 0);
    assert_eq!(work.handle(WorkInput::Delegations { seq: 4 }, at(3), &allows), []);
}
