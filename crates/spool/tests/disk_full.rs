//! LIF-10, CNV-5: a full disk is a clear error, loses nothing, and is over when there is
//! room again; the log's own bound has a reserve for what is no run.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{Full, SMALL, incarnation, now, open, pending, said};
use model::log::FactBody;
use model::work::{ActionEvent, ActionFact, ActionOutcome, OutputStream};
use model::{Digest, RunCounts, RunReport};
use spool::{
    BlobStore, Disk, DiskOp, FactLog, FaultAction, Faults, Journal, LogLimits, Point, SpoolError, StateFile,
};

fn run() -> FactBody {
    FactBody::Run(RunReport {
        started: now(),
        duration_ms: 1,
        seq: 1,
        root: Digest::of(b"root"),
        intended: false,
        paused: None,
        partial: None,
        unknown_tags: vec![],
        unswitched: Vec::new(),
        counts: RunCounts::default(),
        items: vec![],
    })
}

#[test]
fn nothing_is_lost_and_it_passes() {
    for tear in [false, true] {
        let directory = common::tempdir();
        let full = Arc::new(Full { tear, ..Full::default() });
        let disk = Disk::with_faults(full.clone());
        let path = directory.path();
        let mut log = open(&disk, &path.join("log"), "one").unwrap().log;
        let mut journal = Journal::<u8, u8>::open(&disk, &path.join("ledger")).unwrap().journal;
        let slot = StateFile::<u8>::new(&disk, path.join("slot"), 0o600);
        let blobs = BlobStore::open_dir(&disk, &path.join("blobs"), 1 << 20).unwrap();
        log.append(said("before"), now()).unwrap();
        journal.put(1, 1).unwrap();
        slot.store(&1).unwrap();
        let kept = blobs.put(&mut b"kept".as_slice(), None, 100).unwrap();

        full.on.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            assert!(log.append(said("during"), now()).unwrap_err().is_full());
            assert!(journal.put(2, 2).unwrap_err().is_full());
            assert!(slot.store(&2).unwrap_err().is_full());
            let lost = blobs.put(&mut b"lost".as_slice(), None, 100).unwrap_err();
            assert!(lost.is_full(), "{lost}");
        }
        assert_eq!(pending(&log), [(1, "before".to_owned())]);
        assert_eq!((journal.get(&1), journal.get(&2)), (Some(&1), None));
        assert_eq!(slot.load().unwrap().value, Some(1));
        assert!(blobs.read(&kept, 100).unwrap().is_some());
        assert_eq!(blobs.total(), 4);

        full.on.store(false, Ordering::Relaxed);
        assert_eq!(log.append(said("after"), now()).unwrap(), 2);
        journal.put(3, 3).unwrap();
        slot.store(&3).unwrap();
        drop((log, journal));
        let log = open(&Disk::new(), &path.join("log"), "two").unwrap();
        assert_eq!(pending(&log.log), [(1, "before".to_owned()), (2, "after".to_owned())]);
        assert_eq!(log.repairs, Vec::<String>::new());
        let journal = Journal::<u8, u8>::open(&Disk::new(), &path.join("ledger")).unwrap();
        assert_eq!(journal.journal.entries(), &[(1, 1), (3, 3)].into());
        assert_eq!(journal.repairs, Vec::<String>::new());
        assert_eq!(slot.load().unwrap().value, Some(3));
    }
}

/// A disk on which nothing can be opened to be written to: a file system that was mounted anew to read alone.
struct ReadOnly;

impl Faults for ReadOnly {
    fn before(&self, point: Point<'_>) -> FaultAction {
        match point.op {
            DiskOp::Open | DiskOp::Write => FaultAction::Fail(ErrorKind::ReadOnlyFilesystem),
            _ => FaultAction::Go,
        }
    }
}

#[test]
fn what_cannot_be_written_any_more_is_read() {
    let directory = common::tempdir();
    let mut journal = Journal::<u8, u8>::open(&Disk::new(), directory.path()).unwrap().journal;
    journal.put(1, 1).unwrap();
    drop(journal);
    let mut journal =
        Journal::<u8, u8>::open(&Disk::with_faults(Arc::new(ReadOnly)), directory.path()).unwrap().journal;
    assert_eq!(journal.get(&1), Some(&1));
    journal.put(2, 2).unwrap_err();
    assert_eq!(journal.get(&2), None);
    drop(journal);
    let mut journal = Journal::<u8, u8>::open(&Disk::new(), directory.path()).unwrap().journal;
    journal.put(3, 3).unwrap();
    assert_eq!(journal.entries(), &[(1, 1), (3, 3)].into());
}

#[test]
fn facts_can_be_acknowledged_on_a_full_disk_as_soon_as_there_is_room() {
    let directory = common::tempdir();
    let full = Arc::new(Full::default());
    let disk = Disk::with_faults(full.clone());
    let mut log = open(&disk, directory.path(), "one").unwrap().log;
    log.append_many(vec![said("a"), said("b")], now()).unwrap();
    full.on.store(true, Ordering::Relaxed);
    assert!(log.ack(1).unwrap_err().is_full());
    assert_eq!(pending(&log).len(), 2, "what could not be noted is sent again");
    full.on.store(false, Ordering::Relaxed);
    log.ack(1).unwrap();
    assert_eq!(pending(&log), [(2, "b".to_owned())]);
}

#[test]
fn runs_stop_first_then_all() {
    let directory = common::tempdir();
    let limits = LogLimits { max_bytes: 8000, reserve_bytes: 2000, ..SMALL };
    let mut log = FactLog::open(&Disk::new(), directory.path(), &incarnation("one"), limits).unwrap().log;
    let refused = loop {
        if let Err(refused) = log.append(run(), now()) {
            break refused;
        }
    };
    assert!(matches!(refused, SpoolError::LogFull { limit: 6000 }), "{refused:?}");
    assert!(log.bytes() <= 6000);
    let runs = log.last();
    assert!(log.append_many(vec![run(), said("with a run")], now()).is_ok(), "other facts have a reserve");
    while log.append(said(&"x".repeat(100)), now()).is_ok() {}
    assert!(log.bytes() <= 8000 && log.bytes() > 7000, "{}", log.bytes());
    assert!(log.append(run(), now()).unwrap_err().is_full());
    // Nothing that was accepted made room for it.
    assert_eq!(pending(&log).len() as u64, log.last());
    log.ack(runs).unwrap();
    log.append(run(), now()).unwrap();
}

#[test]
fn what_actions_say_leaves_room_for_runs_and_for_the_rest() {
    let directory = common::tempdir();
    let limits = LogLimits { max_bytes: 8000, reserve_bytes: 2000, ..SMALL };
    let mut log = FactLog::open(&Disk::new(), directory.path(), &incarnation("one"), limits).unwrap().log;
    let action = |event: ActionEvent| FactBody::Action(ActionFact { id: "t.n".into(), event });
    let ended = |outcome: ActionOutcome| action(ActionEvent::Ended { outcome, duration_ms: 0 });
    let refused = || {
        ended(ActionOutcome::Refused { code: Default::default(), message: "no release delegates it".into() })
    };
    while log.append(refused(), now()).is_ok() {}
    assert!(log.bytes() <= 4000, "refusals fill the log");
    let (text, stream) = ("x".repeat(200), OutputStream::Stdout);
    assert!(log.append(action(ActionEvent::Output { stream, text, dropped: 0 }), now()).is_err());
    while log.append(action(ActionEvent::Started), now()).is_ok() {}
    for outcome in [
        ActionOutcome::Expired,
        ActionOutcome::Cancelled,
        ActionOutcome::Failed { message: "no".repeat(100) },
    ] {
        assert!(matches!(log.append(ended(outcome), now()), Err(SpoolError::LogFull { limit: 4000 })));
    }
    while log.append(run(), now()).is_ok() {}
    assert!((5500..=6000).contains(&log.bytes()), "runs have more room: {}", log.bytes());
    // What became of an action that ran is told all the same.
    for outcome in [ActionOutcome::Exited { code: 0 }, ActionOutcome::Unknown, ActionOutcome::TimedOut] {
        log.append(ended(outcome), now()).unwrap();
    }
    log.append(said("and the rest"), now()).unwrap();
}

#[test]
fn a_fact_that_no_request_could_carry_is_refused() {
    let directory = common::tempdir();
    let mut log =
        FactLog::open(&Disk::new(), directory.path(), &incarnation("one"), LogLimits::default()).unwrap().log;
    let refused = log.append(said(&"x".repeat(model::log::MAX_FACT_BYTES)), now()).unwrap_err();
    assert!(matches!(refused, SpoolError::TooLarge { .. }), "{refused:?}");
    assert_eq!(log.last(), 0);
}

#[test]
fn requests_are_filled_up_to_their_bounds() {
    let directory = common::tempdir();
    let mut log = open(&Disk::new(), directory.path(), "one").unwrap().log;
    log.append_many((0..50).map(|n| said(&format!("{n:0100}"))).collect(), now()).unwrap();
    assert_eq!(log.pending(7, usize::MAX).unwrap().len(), 7);
    let some = log.pending(usize::MAX, 1000).unwrap();
    let bytes: usize = some.iter().map(|fact| serde_json::to_vec(fact).unwrap().len()).sum();
    assert!((2..20).contains(&some.len()) && bytes <= 1000, "{} facts, {bytes} bytes", some.len());
    assert_eq!(log.pending(usize::MAX, 1).unwrap().len(), 1, "one too large for a bound is sent alone");
}
