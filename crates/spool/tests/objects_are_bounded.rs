//! SYN-3, LIF-10: what synchronization keeps on a node has bounds: of what counts, and of
//! the dead weight beside it; a full disk loses nothing, and is over when there is room.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::objects::{SMALL, Sets, cursor, gone, open, put, their, theirs};
use common::{Full, incarnation};
use spool::objects::{ObjectLimits, ObjectLog};
use spool::{Disk, SpoolError};
use sync::Write;

fn text(n: u64) -> String {
    format!("{n} {}", "x".repeat(200))
}

#[test]
fn dead_weight_is_bounded_whatever_changes() {
    // One object that changes all the time beside 50 that never do; all in turn; removals.
    type Name = fn(u64) -> String;
    let patterns: [(&str, Name); 3] = [
        ("one", |_| "hot".into()),
        ("all", |n| format!("cold-{}", n % 50)),
        ("some", |n| format!("cold-{}", (n * n) % 50)),
    ];
    for (pattern, name) in patterns {
        let directory = common::tempdir();
        let mut log = open(&Disk::new(), directory.path(), "unused").unwrap().log;
        let mut sets = Sets::default();
        let mut first = Write::default();
        first.replica.extend((0..50).map(|n| their(n, &format!("cold-{n}"), &text(n))));
        sets = sets.after(&first);
        log.write(&first).unwrap();
        let mut most = 0;
        for n in 0..2000 {
            let name = name(n);
            let write = if n % 11 == 3 {
                Write { replica: vec![(theirs(&name), None)], ..Write::default() }
            } else {
                Write { replica: vec![their(n, &name, &text(n))], cursor: cursor("t", n), ..Write::default() }
            };
            log.write(&write).unwrap();
            sets = sets.after(&write);
            let bound = 7 * log.live_bytes() / 2 + 6 * SMALL.segment_bytes;
            assert!(log.bytes() <= bound, "{pattern} {n}: {} of {bound}", log.bytes());
            most = most.max(log.bytes());
        }
        assert!(most > log.live_bytes());
        let opened = open(&Disk::new(), directory.path(), "unused").unwrap();
        assert_eq!(Sets::of(&opened), sets, "{pattern}");
        let on_disk: u64 =
            std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(on_disk, opened.log.bytes());
    }
}

#[test]
fn what_counts_is_bounded_and_removing_makes_room() {
    let directory = common::tempdir();
    let limits = ObjectLimits { max_bytes: 4000, ..SMALL };
    let mut log =
        ObjectLog::open(&Disk::new(), directory.path(), &incarnation("unused"), limits).unwrap().log;
    let mut rev = 0;
    let mut write = Write { begin: Some(incarnation("f")), ..Write::default() };
    let refused = loop {
        write.feed = vec![put(rev + 1, &format!("o{rev}"), &text(rev))];
        match log.write(&write) {
            Ok(()) => rev += 1,
            Err(refused) => break refused,
        }
        write.begin = None;
        assert!(rev < 100);
    };
    assert!(matches!(refused, SpoolError::ObjectsFull { .. }) && refused.is_full(), "{refused}");
    assert!(log.live_bytes() <= limits.max_bytes);
    // What replaces as much goes on, and so does what takes away.
    write.feed = vec![put(rev + 1, "o0", &text(7))];
    log.write(&write).unwrap();
    write.feed = vec![gone(rev + 2, "o1")];
    log.write(&write).unwrap();
    write.feed = vec![gone(rev + 3, "o2")];
    log.write(&write).unwrap();
    write.feed = vec![put(rev + 4, "new", &text(7))];
    log.write(&write).unwrap();
    let large = Write { replica: vec![their(1, "l", &"x".repeat(5000))], ..Write::default() };
    assert!(log.write(&large).unwrap_err().is_full());
}

#[test]
fn a_full_disk_loses_nothing_and_it_passes() {
    for tear in [false, true] {
        let directory = common::tempdir();
        let full = Arc::new(Full { tear, ..Full::default() });
        let disk = Disk::with_faults(full.clone());
        let mut log = open(&disk, directory.path(), "unused").unwrap().log;
        let mut sets = Sets::default();
        for n in 1..=60 {
            let write = Write {
                begin: (n == 1).then(|| incarnation("f")),
                feed: vec![put(n, &format!("o{}", n % 7), &text(n))],
                replica: vec![their(n, &format!("t{}", n % 9), &text(n))],
                ..Write::default()
            };
            if n % 5 == 0 {
                full.on.store(true, Ordering::Relaxed);
                for _ in 0..3 {
                    assert!(log.write(&write).unwrap_err().is_full());
                }
                sets.assert_contents(&log, &["o1", "t1"]);
                full.on.store(false, Ordering::Relaxed);
            }
            log.write(&write).unwrap();
            sets = sets.after(&write);
        }
        drop(log);
        let opened = open(&Disk::new(), directory.path(), "unused").unwrap();
        assert_eq!(opened.repairs, Vec::<String>::new());
        assert_eq!(Sets::of(&opened), sets);
    }
}

/// A disk with room for what is written, but not for what would be moved besides.
struct Tight {
    /// The most bytes in all files.
    room: u64,
    directory: std::path::PathBuf,
}

impl spool::Faults for Tight {
    fn before(&self, point: spool::Point<'_>) -> spool::FaultAction {
        let used: u64 =
            std::fs::read_dir(&self.directory).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        if point.op == spool::DiskOp::Append && used > self.room {
            return spool::FaultAction::Tear(std::io::ErrorKind::StorageFull);
        }
        spool::FaultAction::Go
    }
}

#[test]
fn a_disk_that_was_full_is_moved_out_of() {
    let directory = common::tempdir();
    let tight = Tight { room: 12_000, directory: directory.path().to_owned() };
    let disk = Disk::with_faults(Arc::new(tight));
    let mut log = open(&disk, directory.path(), "unused").unwrap().log;
    let mut sets = Sets::default();
    for n in 1..=400 {
        let write = Write { replica: vec![their(n, &format!("t{}", n % 8), &text(n))], ..Write::default() };
        log.write(&write).unwrap();
        sets = sets.after(&write);
    }
    let opened = open(&Disk::new(), directory.path(), "unused").unwrap();
    assert_eq!(Sets::of(&opened), sets);
}
