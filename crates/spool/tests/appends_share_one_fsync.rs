//! CNV-5: facts that are staged one after the other become durable with one fsync, all or none,
//! each within its own bound; a log can be handed to the thread that waits for the disk.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{incarnation, now, open, pending, said};
use spool::{Disk, DiskOp, FactLog, FaultAction, Faults, Journal, LogLimits, ObjectLog, Point, SpoolError};

/// Counts fsyncs of files; fails them while the switch is on.
#[derive(Default)]
struct Syncs {
    count: AtomicU64,
    fail: AtomicBool,
}

impl Faults for Syncs {
    fn before(&self, point: Point<'_>) -> FaultAction {
        if point.op != DiskOp::Sync {
            return FaultAction::Go;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        if self.fail.load(Ordering::Relaxed) { FaultAction::Fail(ErrorKind::Other) } else { FaultAction::Go }
    }
}

#[test]
fn staged_facts_and_an_acknowledgement_cost_one_fsync() {
    let directory = common::tempdir();
    let syncs = Arc::new(Syncs::default());
    let mut log = open(&Disk::with_faults(syncs.clone()), directory.path(), "one").unwrap().log;
    log.append(said("first"), now()).unwrap();
    let before = syncs.count.load(Ordering::Relaxed);
    assert_eq!(log.stage(vec![said("a"), said("b")], now()).unwrap(), [2, 3]);
    assert_eq!(log.stage(vec![said("c")], now()).unwrap(), [4]);
    assert_eq!((log.last(), pending(&log).len()), (1, 1), "what is staged counts for nothing");
    log.ack(1).unwrap();
    assert_eq!(syncs.count.load(Ordering::Relaxed), before + 1);
    let texts = |log: &FactLog| pending(log).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    assert_eq!((log.acked(), texts(&log)), (1, vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));

    log.stage(vec![said("lost")], now()).unwrap();
    syncs.fail.store(true, Ordering::Relaxed);
    log.commit().unwrap_err();
    syncs.fail.store(false, Ordering::Relaxed);
    log.commit().unwrap();
    assert_eq!(log.stage(vec![said("d")], now()).unwrap(), [5], "nothing of it is staged any more");
    log.commit().unwrap();
    assert_eq!(texts(&log).last().unwrap(), "d");
    drop(log);
    let opened = open(&Disk::new(), directory.path(), "two").unwrap();
    assert_eq!((texts(&opened.log).len(), opened.log.last(), opened.repairs), (4, 5, vec![]));
}

#[test]
fn a_fact_without_room_leaves_the_others_staged() {
    let directory = common::tempdir();
    let limits = LogLimits { max_bytes: 2000, reserve_bytes: 0, ..LogLimits::default() };
    let mut log = FactLog::open(&Disk::new(), directory.path(), &incarnation("one"), limits).unwrap().log;
    log.stage(vec![said("fits")], now()).unwrap();
    let refused = log.stage(vec![said("x"), said(&"x".repeat(2000))], now()).unwrap_err();
    assert!(matches!(refused, SpoolError::LogFull { .. }), "{refused:?}");
    assert_eq!(log.stage(vec![said("fits too")], now()).unwrap(), [2]);
    log.commit().unwrap();
    assert_eq!(pending(&log), [(1, "fits".to_owned()), (2, "fits too".to_owned())]);
}

#[test]
fn logs_can_be_given_to_a_thread() {
    fn sent<T: Send>() {}
    sent::<FactLog>();
    sent::<ObjectLog>();
    sent::<Journal<String, u32>>();
}
