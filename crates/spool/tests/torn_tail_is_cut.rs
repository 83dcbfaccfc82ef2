//! CNV-5, LIF-10: an append that was cut short leaves the facts before it, and no repair.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::PathBuf;

use common::{incarnation, now, open, pending, said};
use spool::{Disk, FactLog, Journal, LogLimits};

fn last_segment(directory: &std::path::Path) -> PathBuf {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.pop().unwrap()
}

#[test]
fn a_log_cut_anywhere_holds_what_was_whole() {
    let directory = common::tempdir();
    let mut log = open(&Disk::new(), directory.path(), "one").unwrap().log;
    log.append(said("first"), now()).unwrap();
    let path = last_segment(directory.path());
    let one = std::fs::metadata(&path).unwrap().len() as usize;
    log.append_many(vec![said("second"), said("third")], now()).unwrap();
    drop(log);
    let whole = std::fs::read(&path).unwrap();
    for end in one..whole.len() {
        std::fs::write(&path, &whole[..end]).unwrap();
        let opened = open(&Disk::new(), directory.path(), "two").unwrap();
        assert_eq!(opened.repairs, Vec::<String>::new(), "cut at {end}");
        let mut log = opened.log;
        assert_eq!(log.incarnation(), &incarnation("one"));
        let mut expected = vec![(1, "first".to_owned())];
        assert_eq!(pending(&log), expected, "cut at {end}: a batch is whole or not there");
        let seq = log.append(said("next"), now()).unwrap();
        assert_eq!(seq, expected.len() as u64 + 1);
        expected.push((seq, "next".to_owned()));
        drop(log);
        let again = open(&Disk::new(), directory.path(), "three").unwrap();
        assert_eq!((pending(&again.log), again.repairs), (expected, vec![]), "cut at {end}");
    }
}

#[test]
fn a_first_append_cut_anywhere_leaves_an_empty_log() {
    let directory = common::tempdir();
    let mut log = open(&Disk::new(), directory.path(), "one").unwrap().log;
    log.append(said("first"), now()).unwrap();
    drop(log);
    let path = last_segment(directory.path());
    let whole = std::fs::read(&path).unwrap();
    for end in 0..whole.len() {
        std::fs::write(&path, &whole[..end]).unwrap();
        let opened = open(&Disk::new(), directory.path(), "two").unwrap();
        assert_eq!((pending(&opened.log), opened.repairs), (vec![], vec![]), "cut at {end}");
        let mut log = opened.log;
        assert_eq!(log.append(said("next"), now()).unwrap(), 1);
    }
}

#[test]
fn zeros_at_the_end_are_cut() {
    let directory = common::tempdir();
    let limits = LogLimits::default();
    let mut log = FactLog::open(&Disk::new(), directory.path(), &incarnation("one"), limits).unwrap().log;
    log.append(said("first"), now()).unwrap();
    drop(log);
    let path = last_segment(directory.path());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend([0; 4096]);
    std::fs::write(&path, bytes).unwrap();
    let opened = FactLog::open(&Disk::new(), directory.path(), &incarnation("two"), limits).unwrap();
    assert!(opened.repairs.is_empty());
    let mut log = opened.log;
    log.append(said("second"), now()).unwrap();
    assert_eq!(pending(&log).len(), 2);
}

#[test]
fn a_journal_cut_anywhere_holds_what_was_whole() {
    let directory = common::tempdir();
    let ledger = directory.path().join("ledger");
    let mut journal = Journal::<String, u32>::open(&Disk::new(), &ledger).unwrap().journal;
    journal.put("a".into(), 1).unwrap();
    let path = last_segment(&directory.path().join("ledger"));
    let one = std::fs::metadata(&path).unwrap().len() as usize;
    journal.apply(vec![("b".into(), Some(2)), ("a".into(), None)]).unwrap();
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    for end in one..whole.len() {
        std::fs::write(&path, &whole[..end]).unwrap();
        let opened = Journal::<String, u32>::open(&Disk::new(), &ledger).unwrap();
        assert_eq!(opened.repairs, Vec::<String>::new(), "cut at {end}");
        let mut journal = opened.journal;
        assert_eq!(
            journal.entries(),
            &[("a".to_owned(), 1)].into(),
            "cut at {end}: a batch is whole or not there"
        );
        journal.put("c".into(), 3).unwrap();
        let again = Journal::<String, u32>::open(&Disk::new(), &ledger).unwrap();
        assert_eq!(again.journal.entries(), &[("a".to_owned(), 1), ("c".to_owned(), 3)].into());
        assert_eq!(again.repairs, Vec::<String>::new(), "cut at {end}: nothing is left of it");
    }
}
