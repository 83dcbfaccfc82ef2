//! LIF-10, SYN-6: damage to what is kept of synchronization is set aside and named, what
//! is sound stays, and both sides learn that they have to resync: the replica has no
//! cursor, the own feed a new incarnation.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::objects::{SMALL, Sets, content, cursor, gone, open, ours, put, their, theirs};
use common::{Full, incarnation};
use spool::objects::ObjectLog;
use spool::{Disk, SpoolError};
use sync::feed::ObjectState;
use sync::{Side, Write};

fn files(directory: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "segment")).collect();
    paths.sort();
    paths
}

fn text(n: u64) -> String {
    format!("{n} {}", "x".repeat(100))
}

/// Some objects of ours and theirs in several files, with a removal and a tombstone.
fn filled(directory: &Path) -> Sets {
    let mut log = open(&Disk::new(), directory, "unused").unwrap().log;
    let mut sets = Sets::default();
    for n in 1..=12 {
        let mut write = Write {
            begin: (n == 1).then(|| incarnation("f")),
            feed: vec![put(n, &format!("o{n}"), &text(n))],
            replica: vec![their(n, &format!("t{n}"), &text(n))],
            cursor: cursor("t", n),
            ..Write::default()
        };
        if n == 12 {
            write.feed = vec![gone(12, "o1")];
            write.replica.push((theirs("t1"), None));
        }
        log.write(&write).unwrap();
        sets = sets.after(&write);
    }
    assert!(files(directory).len() >= 3);
    sets
}

/// Opens a damaged log, and holds it to what must be true of it.
fn repaired(directory: &Path, before: &Sets, when: &str) -> usize {
    let opened = open(&Disk::new(), directory, "fresh").unwrap();
    assert_eq!(opened.repairs.len(), 1, "{when}: {:?}", opened.repairs);
    let there = Sets::of(&opened);
    assert_eq!(there.cursor, None, "{when}");
    if let Some(feed) = &there.feed {
        assert_eq!(feed.incarnation, incarnation("fresh"), "{when}");
        assert_eq!(feed.head, feed.compacted, "{when}");
        assert!(there.ours.values().all(|(change, _)| change.rev <= feed.head), "{when}");
    }
    for (key, (change, kept)) in &there.ours {
        let n: u64 = key.name[1..].parse().unwrap();
        assert!(matches!(change.state, ObjectState::Live { .. }), "{when}: tombstones say nothing now");
        assert_eq!(kept.as_ref(), Some(&content(&text(n))), "{when}");
    }
    for (key, (_, rev, kept)) in &there.theirs {
        assert_eq!(kept, &content(&text(*rev)), "{when}");
        assert_eq!(*key.name, *format!("t{rev}"), "{when}");
    }
    let lost = before.ours.keys().filter(|key| !there.ours.contains_key(*key)).count()
        + before.theirs.keys().filter(|key| !there.theirs.contains_key(*key)).count();

    // It is over: the next opening finds nothing, and there is no crash loop.
    let again = open(&Disk::new(), directory, "fresher").unwrap();
    assert_eq!(again.repairs, Vec::<String>::new(), "{when}");
    assert_eq!(Sets::of(&again), there, "{when}");
    let mut log = again.log;
    let next = Write { replica: vec![their(50, "new", "new")], cursor: cursor("t", 50), ..Write::default() };
    log.write(&next).unwrap();
    let last = open(&Disk::new(), directory, "freshest").unwrap();
    assert_eq!(last.repairs, Vec::<String>::new(), "{when}");
    assert_eq!(Sets::of(&last), there.after(&next), "{when}");
    lost
}

#[test]
fn a_flipped_bit_costs_at_most_one_record() {
    let lengths: Vec<usize> = {
        let directory = common::tempdir();
        filled(directory.path());
        files(directory.path()).iter().map(|path| std::fs::read(path).unwrap().len()).collect()
    };
    for (which, length) in lengths.iter().enumerate() {
        for at in (0..*length).step_by(7) {
            let directory = common::tempdir();
            let sets = filled(directory.path());
            let path = &files(directory.path())[which];
            let mut bytes = std::fs::read(path).unwrap();
            bytes[at] ^= 0x20;
            std::fs::write(path, &bytes).unwrap();
            let in_last_record = which + 1 == lengths.len() && length - at < 400;
            if in_last_record {
                // What it left may look like a write that was torn.
                open(&Disk::new(), directory.path(), "fresh").unwrap();
                continue;
            }
            // A tombstone is always lost.
            let lost = repaired(directory.path(), &sets, &format!("file {which}, byte {at}"));
            assert!(lost <= 2, "file {which}, byte {at}: {lost} were lost");
            let aside = std::fs::read(directory.path().join("objects.corrupt-1")).unwrap();
            assert_eq!(aside, bytes, "the damaged file is kept");
        }
    }
}

#[test]
fn a_missing_file_is_missed() {
    let count = {
        let directory = common::tempdir();
        filled(directory.path());
        files(directory.path()).len()
    };
    for which in 0..count - 1 {
        let directory = common::tempdir();
        let sets = filled(directory.path());
        std::fs::remove_file(&files(directory.path())[which]).unwrap();
        let lost = repaired(directory.path(), &sets, &format!("without file {which}"));
        assert!(lost > 2);
    }
}

#[test]
fn garbage_is_an_empty_log() {
    let directory = common::tempdir();
    std::fs::write(directory.path().join("00000000000000000001.segment"), [0xff; 3000]).unwrap();
    let opened = open(&Disk::new(), directory.path(), "fresh").unwrap();
    assert_eq!(opened.repairs.len(), 1);
    assert_eq!(Sets::of(&opened), Sets::default());
    let opened = open(&Disk::new(), directory.path(), "fresher").unwrap();
    assert_eq!(opened.repairs, Vec::<String>::new());
}

#[test]
fn damage_under_a_running_log_is_told_and_not_moved_on() {
    let directory = common::tempdir();
    let sets = filled(directory.path());
    let mut log = open(&Disk::new(), directory.path(), "fresh").unwrap().log;
    let path = &files(directory.path())[0];
    let bytes = std::fs::read(path).unwrap();
    let of = |log: &ObjectLog, n: u64| {
        let own = log.content(Side::Feed, &ours(&format!("o{n}")));
        let their = log.content(Side::Replica, &theirs(&format!("t{n}")));
        [own, their].map(|read| matches!(read, Err(SpoolError::Damaged { .. })))
    };
    let damaged = |log: &ObjectLog| (1..=12).flat_map(|n| of(log, n)).filter(|damaged| *damaged).count();
    let texts = bytes.windows(4).enumerate().filter(|(_, window)| window.ends_with(b" xx"));
    let harmed = texts.map(|(at, _)| at + 20).find(|at| {
        let mut harmed = bytes.clone();
        harmed[*at] ^= 0x20;
        // In place, as a disk does it.
        std::fs::write(path, &harmed).unwrap();
        damaged(&log) > 0
    });
    assert!(harmed.is_some(), "something in the oldest segment counts");
    let before = damaged(&log);
    // Dead weight that would have it moved.
    for n in 0..200 {
        log.write(&Write { replica: vec![their(100 + n, "new", &text(n))], ..Write::default() }).unwrap();
    }
    assert_eq!(damaged(&log), before);
    drop(log);
    let opened = open(&Disk::new(), directory.path(), "fresh").unwrap();
    assert_eq!(opened.repairs.len(), 1);
    assert_eq!(damaged(&opened.log), 0);
    let there = Sets::of(&opened);
    assert!(there.theirs.len() + 1 >= sets.theirs.len() && there.ours.len() + 2 >= sets.ours.len());
}

#[test]
fn what_cannot_be_moved_for_now_is_moved_later() {
    let directory = common::tempdir();
    filled(directory.path());
    let path = files(directory.path())[0].clone();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[300] ^= 0x20;
    std::fs::write(&path, &bytes).unwrap();
    let full = Arc::new(Full::default());
    full.on.store(true, Ordering::Relaxed);
    let disk = Disk::with_faults(full);
    let refused = ObjectLog::open(&disk, directory.path(), &incarnation("fresh"), SMALL);
    assert!(refused.unwrap_err().is_full(), "it cannot say that something is missing");
    let opened = open(&Disk::new(), directory.path(), "fresh").unwrap();
    assert_eq!(opened.repairs.len(), 1);
    assert!(Sets::of(&opened).theirs.len() >= 10);
}
