//! What a store keeps of a rollout has the form of the golden file, and what an earlier version wrote is read.
//! `MUSTER_BLESS=1` writes the golden file anew: only ever with fields that are added.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::model::{Digest, NodeId, Timestamp};
use rollout::event::{EventCursor, ProbeMode, ProbeOutcome};
use rollout::member::{ProbeRecord, StartRequest};
use rollout::record::{GateApproval, Halt, HaltCause, PausedRollout};
use rollout::{
    BeginRefusal, HeldOff, MemberFailure, MemberGoal, MemberRecord, NodeRolloutState, Placement,
    RolloutDocument, RolloutId, RolloutKey, RolloutState,
};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(1_800_000_000 + secs)
}

fn documents() -> Vec<RolloutDocument> {
    let key = RolloutKey { channel: "stable".parse().unwrap(), seq: 41 };
    let plain = RolloutDocument {
        id: RolloutId::of_release(&key.channel, None, &Digest::of(b"r41"), |_| false),
        key,
        version: 1,
        header: Digest::of(b"r41"),
        published: at(0),
        state: RolloutState::Opening,
        since: at(0),
        was_through: false,
        opened: Vec::new(),
        approvals: Vec::new(),
        paused: None,
        halt: None,
        latest: at(0),
    };
    let cause =
        HaltCause::Gate { wave: "canary".to_owned(), failed: 2, allowed: 1, example: "h1".parse().unwrap() };
    let full = RolloutDocument {
        version: 12,
        state: RolloutState::Failed,
        opened: vec![at(1), at(2)],
        approvals: vec![
            GateApproval { wave: None, by: "ada".to_owned(), at: at(1) },
            GateApproval { wave: Some(0), by: "ada".to_owned(), at: at(2) },
        ],
        paused: Some(PausedRollout { by: "bob".to_owned(), at: at(3) }),
        halt: Some(Halt { at: at(4), cause, goes_back: true }),
        ..plain.clone()
    };
    let aborted = Halt { at: at(4), cause: HaltCause::Aborted { by: "ada".to_owned() }, goes_back: false };
    let back = Halt { at: at(4), cause: HaltCause::RolledBack { by: "ada".to_owned() }, goes_back: true };
    let replaced = Halt { at: at(4), cause: HaltCause::ReplacedAtOnce { seq: 42 }, goes_back: false };
    let with = |state, halt| RolloutDocument { state, halt: Some(halt), ..plain.clone() };
    let halted = with(RolloutState::Reverted, back);
    let through = RolloutDocument { was_through: true, ..halted.clone() };
    vec![
        plain.clone(),
        full,
        with(RolloutState::Failed, aborted),
        halted,
        through,
        with(RolloutState::Superseded, replaced),
    ]
}

fn members() -> Vec<MemberRecord> {
    let plain = MemberRecord {
        node: NodeId::of_key(b"key"),
        hostname: "h1.example.com".parse().unwrap(),
        placement: Placement { wave: 1, ..Placement::default() },
        enforcing: Arc::new([]),
        before: Some(40),
        state: NodeRolloutState::Pending,
        since: at(0),
        goal: MemberGoal::Target,
        asked: None,
        first_asked: None,
        attempts: 0,
        held_off: None,
        retry_at: None,
        deadline: None,
        slot_until: None,
        slot_left: false,
        started: false,
        boot: None,
        probes: None,
        failure: None,
        as_found: false,
        forgiven: false,
        skipped: None,
        passed_on: false,
        cursor: EventCursor::default(),
    };
    let probe = |name: &str, mode, outcome| ProbeRecord { name: name.to_owned(), mode, outcome };
    let full = MemberRecord {
        placement: Placement { wave: 1, budgets: 5, before: 1, after: 2, pinned: Some(at(9)) },
        enforcing: Arc::new(["web".to_owned()]),
        state: NodeRolloutState::Soaking,
        goal: MemberGoal::Before,
        asked: Some(StartRequest { at: at(1), until: at(601) }),
        first_asked: Some(at(1)),
        attempts: 2,
        retry_at: Some(at(60)),
        deadline: Some(at(3600)),
        slot_until: Some(at(3000)),
        slot_left: true,
        started: true,
        boot: Some("boot-1".to_owned()),
        probes: Some(vec![
            probe("web", ProbeMode::Enforce, Some(ProbeOutcome::Pass)),
            probe("eye", ProbeMode::Observe, Some(ProbeOutcome::Fail)),
            probe("off", ProbeMode::Disabled, None),
        ]),
        as_found: true,
        forgiven: true,
        skipped: Some("ada".to_owned()),
        passed_on: true,
        cursor: EventCursor {
            incarnation: Some("log2".parse().unwrap()),
            taken: 7,
            lost: 1,
            earlier: vec!["log1".parse().unwrap()],
        },
        ..plain.clone()
    };
    let failed = [
        MemberFailure::Reported { message: "exit 1".to_owned() },
        MemberFailure::Silent { was: NodeRolloutState::Activating },
        MemberFailure::Returned,
        MemberFailure::Refused { code: "proof".to_owned() },
        MemberFailure::Unanswered,
    ];
    let failed = failed.map(|failure| MemberRecord {
        state: NodeRolloutState::Failed,
        failure: Some(failure),
        ..plain.clone()
    });
    let states = NodeRolloutState::ALL.map(|state| MemberRecord { state, ..plain.clone() });
    let held_off = BeginRefusal::ALL.map(|why| MemberRecord {
        held_off: Some(HeldOff { why, times: 2 }),
        retry_at: Some(at(120)),
        ..plain.clone()
    });
    [plain, full].into_iter().chain(failed).chain(states).chain(held_off).collect()
}

fn keep<T>(name: &str, values: &[T])
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let written: String = values.iter().map(|value| serde_json::to_string(value).unwrap() + "\n").collect();
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::create_dir_all(golden("").parent().unwrap()).unwrap();
        std::fs::write(golden(name), &written).unwrap();
    }
    let kept = std::fs::read_to_string(golden(name)).unwrap();
    assert_eq!(written, kept);
    let read: Vec<T> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, values);
}

#[test]
fn documents_are_those_of_the_golden_file() {
    keep("documents.jsonl", &documents());
}

#[test]
fn members_are_those_of_the_golden_file() {
    keep("members.jsonl", &members());
}
