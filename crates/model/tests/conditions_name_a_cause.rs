//! CNV-3, OPS-1: every condition of synchronization has a stable reason code, words, and (unless it
//! is green) a next step; green carries the comparison that it rests on; and what is kept or sent
//! is read back as it was.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use model::Timestamp;
use model::condition::{
    Attention, ConditionStatus, Delivery, Difference, Direction, Evidence, NodeProblem, Rejection,
    SetCondition, SyncCause, SyncCondition, SyncState,
};
use model::log::Cursor;

fn evidence() -> Evidence {
    let up = Some(Cursor { incarnation: "n1".parse().unwrap(), seq: 7 });
    Evidence { at: Timestamp(1_000), instance: "i1".to_owned(), down: None, up }
}

fn differences() -> Vec<Difference> {
    let object = "Item/web/a".parse().unwrap();
    vec![
        Difference::Rejected { object, rejection: Rejection::new("no-uid", "it has none"), others: 2 },
        Difference::HeldOtherwise { objects: 3 },
        Difference::DeletionsUnconfirmed { kept: 30, of: 40 },
        Difference::NoRoom { objects: 1 },
        Difference::ResyncWithoutEffect,
    ]
}

fn causes() -> Vec<SyncCause> {
    let behind = |delivery| SyncCause::Behind { down: 2, up: 1, delivery };
    let mut causes = vec![
        SyncCause::Off,
        SyncCause::DuplicateIdentity,
        SyncCause::NeverCompared,
        SyncCause::NotComparedSinceRestart { last: evidence() },
        SyncCause::Interrupted,
        SyncCause::NodeLate { last: evidence() },
        SyncCause::Connecting,
        SyncCause::Comparing,
        behind(Delivery::UnderWay),
        behind(Delivery::NextContact),
        behind(Delivery::NodeLate),
        SyncCause::InSync(evidence()),
    ];
    let (folder, message) = ("folder /srv/x".to_owned(), "it is gone".to_owned());
    let manifest = "folder /srv/x/a.yaml".to_owned();
    for problem in [
        NodeProblem::FolderUnusable { folder, message: message.clone() },
        NodeProblem::DeletionsHeldBack { kept: 30, of: 40 },
        NodeProblem::ManifestsUnreadable { manifest, message, others: 2 },
    ] {
        let content = serde_json::to_vec(&problem).unwrap();
        assert_eq!(NodeProblem::from_content(&content), Some(problem.clone()));
        causes.push(SyncCause::AtNode { problem });
    }
    for direction in [Direction::Down, Direction::Up] {
        causes.extend(
            differences().into_iter().map(|difference| SyncCause::OutOfSync { direction, difference }),
        );
    }
    causes
}

#[test]
fn every_cause_has_a_code_words_and_a_next_step() {
    let mut seen = BTreeSet::new();
    for cause in causes() {
        seen.insert(cause.reason());
        assert!(!cause.message().is_empty());
        let green = cause.state() == SyncState::InSync;
        assert_eq!(cause.next_step("web-1").is_none(), green, "{cause:?}");
        assert_eq!(cause.status() == ConditionStatus::True, green, "{cause:?}");
        let acts = cause.state() == SyncState::OutOfSync;
        assert_eq!(cause.attention() == Attention::Act, acts, "{cause:?}");
        assert!(!green || cause.evidence().is_some(), "green rests on a comparison");
    }
    assert_eq!(seen, BTreeSet::from(SyncCause::REASONS));
}

#[test]
fn what_is_kept_is_read_back() {
    for cause in causes() {
        let condition = SyncCondition::new(cause, Some(Timestamp(5)));
        let json = serde_json::to_string(&condition).unwrap();
        assert_eq!(serde_json::from_str::<SyncCondition>(&json).unwrap(), condition, "{json}");
        assert!(json.len() < 4096);
    }
    assert_eq!(serde_json::from_str::<SyncState>("\"of-a-later-version\"").unwrap(), SyncState::Other);
    for state in SyncState::ALL {
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<SyncState>(&json).unwrap(), state);
    }
}

#[test]
fn a_long_message_is_cut() {
    let long = "ä".repeat(10_000);
    let rejection = Rejection::new(&long, &long);
    assert!(rejection.message.len() <= model::condition::MAX_MESSAGE && rejection.code.len() < 1024);
}

#[test]
fn a_link_that_compared_nothing_is_not_in_sync() {
    use SetCondition::{Behind, Comparing, Connecting, InSync, OutOfSync};
    let of = |down, up| SyncCause::of_link(down, up, Some(evidence()));
    assert_eq!(SyncCause::of_link(InSync, InSync, None), SyncCause::Connecting);
    assert_eq!(of(InSync, InSync), SyncCause::InSync(evidence()));
    assert_eq!(of(InSync, Connecting), SyncCause::Connecting);
    assert_eq!(of(Comparing, Behind(3)), SyncCause::Comparing);
    assert_eq!(of(Behind(2), InSync), SyncCause::Behind { down: 2, up: 0, delivery: Delivery::UnderWay });
    assert_eq!(of(InSync, Behind(2)), SyncCause::Behind { down: 0, up: 2, delivery: Delivery::UnderWay });
    let difference = Difference::ResyncWithoutEffect;
    let up = SyncCause::OutOfSync { direction: Direction::Up, difference: difference.clone() };
    assert_eq!(
        of(Comparing, OutOfSync(difference)),
        up,
        "what stays wrong is told before what ends by itself"
    );
}

#[test]
fn words_say_who_lacks_what_and_what_to_do() {
    let told = |direction, at: usize| {
        let cause = SyncCause::OutOfSync { direction, difference: differences().remove(at) };
        (cause.message(), cause.next_step("web-1").unwrap())
    };
    let (message, next) = told(Direction::Down, 0);
    assert_eq!(message, "the node does not take Item/web/a: it has none (no-uid) (and 2 more)");
    assert!(next.contains("muster help no-uid"), "{next}");
    let (message, next) = told(Direction::Up, 2);
    assert_eq!(message, "30 of 40 objects are gone at the node, and their deletion is not confirmed");
    assert_eq!(next, "if they may go: `muster object resync web-1 --approve-deletions`");
    let late = SyncCause::NodeLate { last: evidence() };
    assert!(late.message().contains("compared at"), "{}", late.message());
}
