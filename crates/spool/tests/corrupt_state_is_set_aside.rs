//! LIF-10: damaged state is set aside and named, what is sound goes on, and there is no
//! crash loop.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::{Path, PathBuf};

use common::{incarnation, now, open, pending, said};
use spool::{Disk, Journal, StateFile};

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x20;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_slot_with_one_flipped_bit_is_no_value() {
    let directory = common::tempdir();
    let path = directory.path().join("adopted.json");
    let slot: StateFile<Vec<String>> = StateFile::new(&Disk::new(), &path, 0o600);
    let value = vec!["a".to_owned(), "b".to_owned()];
    slot.store(&value).unwrap();
    let length = std::fs::read(&path).unwrap().len();
    for at in 0..length {
        slot.store(&value).unwrap();
        assert_eq!(slot.load().unwrap().value.as_ref(), Some(&value));
        flip(&path, at);
        let damaged = std::fs::read(&path).unwrap();
        let loaded = slot.load().unwrap();
        assert_eq!(loaded.value, None, "flipped at {at}");
        assert_eq!(std::fs::read(loaded.set_aside.unwrap()).unwrap(), damaged);
        assert!(!path.exists());
    }
    assert_eq!(files(directory.path()).len(), 5, "only so many are kept");
    for bytes in [b"".as_slice(), b"\n", b"not a checksum\n{}", &[0xff; 100]] {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(slot.load().unwrap().value, None);
    }
    assert_eq!(slot.load().unwrap().set_aside, None, "none is not damaged");
}

/// A log of 12 facts in several segments, 2 of them acknowledged.
fn log_of_twelve(directory: &Path) -> Vec<PathBuf> {
    let mut log = open(&Disk::new(), directory, "one").unwrap().log;
    for n in 1..=12 {
        log.append(said(&format!("fact {n}")), now()).unwrap();
    }
    log.ack(2).unwrap();
    drop(log);
    let segments = files(directory);
    assert!(segments.len() >= 3);
    segments
}

fn said_in(log: &spool::FactLog) -> Vec<String> {
    pending(log).into_iter().map(|(_, text)| text).collect()
}

#[test]
fn a_damaged_fact_costs_only_itself() {
    let lengths: Vec<usize> = {
        let directory = common::tempdir();
        let segments = log_of_twelve(directory.path());
        segments.iter().map(|segment| std::fs::read(segment).unwrap().len()).collect()
    };
    for (which, length) in lengths.into_iter().enumerate() {
        for at in (5..length).step_by(29) {
            let directory = common::tempdir();
            let segments = log_of_twelve(directory.path());
            flip(&segments[which], at);
            let opened = open(&Disk::new(), directory.path(), "two").unwrap();
            let when = format!("segment {which} flipped at {at}");
            let there = said_in(&opened.log);
            let lost = (3..=12).filter(|n| !there.contains(&format!("fact {n}"))).count();
            assert!(lost <= 1, "{when}: {there:?}");
            assert!(there.len() + lost >= 10, "{when}: {there:?}");
            let numbers: Vec<u64> = pending(&opened.log).iter().map(|(seq, _)| *seq).collect();
            let first = opened.log.acked() + 1;
            assert_eq!(numbers, (first..first + numbers.len() as u64).collect::<Vec<_>>(), "{when}");
            if opened.log.incarnation() == &incarnation("two") {
                assert_eq!(opened.repairs.len(), 1, "{when}");
                // A commit that is lost may have been the one that let segments go.
                let missing = opened.repairs[0].ends_with("missing");
                assert!(missing || directory.path().join("facts.corrupt-1").exists(), "{when}");
            } else {
                // Only a flipped length of the last record looks like an append cut short.
                assert!(which > 0 || lost == 0, "{when}");
            }
            let again = open(&Disk::new(), directory.path(), "three").unwrap();
            assert_eq!((said_in(&again.log), again.repairs), (there, vec![]), "{when}: it is over");
        }
    }
}

#[test]
fn a_log_without_its_newest_state_begins_anew_with_what_is_there() {
    for damage in [b"garbage".as_slice(), &[0xff; 4000]] {
        let directory = common::tempdir();
        let segments = log_of_twelve(directory.path());
        let last = segments.last().unwrap();
        std::fs::write(last, [damage, &std::fs::read(last).unwrap()[100..]].concat()).unwrap();
        let opened = open(&Disk::new(), directory.path(), "two").unwrap();
        assert_eq!(opened.repairs.len(), 1);
        assert_eq!(opened.log.incarnation(), &incarnation("two"));
        let there = said_in(&opened.log);
        assert!(there.len() >= 9, "{there:?}");
        assert!(segments.iter().all(|segment| !segment.exists()), "it goes on in a segment of its own");
    }
}

#[test]
fn a_missing_segment_is_noticed() {
    for which in 0..2 {
        let directory = common::tempdir();
        let segments = log_of_twelve(directory.path());
        std::fs::remove_file(&segments[which]).unwrap();
        let opened = open(&Disk::new(), directory.path(), "two").unwrap();
        assert_eq!(
            opened.log.incarnation(),
            &incarnation("two"),
            "numbers with a gap would never be accepted"
        );
        assert!(!opened.repairs.is_empty());
        assert_eq!(said_in(&opened.log).last().unwrap(), "fact 12");
    }
}

#[test]
fn an_old_copy_begins_anew() {
    let directory = common::tempdir();
    let mut log = open(&Disk::new(), directory.path(), "one").unwrap().log;
    log.append_many(vec![said("a"), said("b")], now()).unwrap();
    let refused = log.ack(3).unwrap_err();
    assert!(matches!(refused, spool::SpoolError::AckBeyond { acked: 3, last: 2 }), "{refused:?}");
    log.ack(1).unwrap();
    assert!(log.begin_anew(&incarnation("one")).is_err());
    log.begin_anew(&incarnation("two")).unwrap();
    assert_eq!((pending(&log), log.acked()), (vec![(1, "b".to_owned())], 0));
    log.append(said("c"), now()).unwrap();
    drop(log);
    let log = open(&Disk::new(), directory.path(), "three").unwrap().log;
    assert_eq!(log.incarnation(), &incarnation("two"));
    assert_eq!(pending(&log), [(1, "b".to_owned()), (2, "c".to_owned())]);
}

#[test]
fn a_damaged_journal_keeps_what_is_sound() {
    let directory = common::tempdir();
    let path = directory.path().join("ledger");
    let write = || {
        let _ = std::fs::remove_dir_all(&path);
        let mut journal = Journal::<u32, String>::open(&Disk::new(), &path).unwrap().journal;
        for n in 0..5 {
            journal.put(n, format!("value {n}")).unwrap();
        }
    };
    write();
    let segment = path.join("00000000000000000001.segment");
    let length = std::fs::read(&segment).unwrap().len();
    for at in 0..length * 4 / 5 {
        write();
        flip(&segment, at);
        let opened = Journal::<u32, String>::open(&Disk::new(), &path).unwrap();
        assert!(opened.journal.entries().len() >= 4, "flipped at {at}");
        assert_eq!(opened.repairs.len(), 1);
        assert_eq!(std::fs::read(path.join("journal.corrupt-1")).unwrap().len(), length);
        let entries = opened.journal.entries().clone();
        drop(opened.journal);
        let again = Journal::<u32, String>::open(&Disk::new(), &path).unwrap();
        assert_eq!((again.journal.entries(), again.repairs), (&entries, vec![]), "it is over");
    }
}
