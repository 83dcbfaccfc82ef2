//! LIF-10: files that somebody removes from under an open log or journal: what is appended then is on the disk when
//! that is said, and what is in memory is written again. Nothing is appended to a file that has no name any more.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use model::Timestamp;
use model::log::FactBody;
use spool::{Disk, FactLog, Journal, LogLimits, SpoolError};

fn said(text: &str) -> FactBody {
    FactBody::Repaired { message: text.to_owned() }
}

fn open_log(directory: &Path) -> FactLog {
    let fresh = "fresh".parse().unwrap();
    FactLog::open(&Disk::new(), directory, &fresh, LogLimits::default()).unwrap().log
}

fn texts(log: &FactLog) -> Vec<(u64, String)> {
    let facts = log.pending(100, 100_000).unwrap().into_iter();
    facts.map(|fact| (fact.seq, serde_json::to_value(&fact.body).unwrap()["message"].to_string())).collect()
}

#[test]
fn facts_that_are_remembered_are_written_again() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path().join("log");
    let mut log = open_log(&directory);
    for text in ["acked", "a", "b"] {
        log.append(said(text), Timestamp::from_secs(1)).unwrap();
    }
    log.ack(1).unwrap();
    let remembered = log.pending(100, 100_000).unwrap();
    assert_eq!(remembered.len(), 2);

    std::fs::remove_dir_all(&directory).unwrap();
    log.append(said("c"), Timestamp::from_secs(2)).unwrap();
    assert!(directory.is_dir(), "what was appended is on the disk");
    let lost = log.pending(100, 100_000);
    assert!(matches!(lost, Err(SpoolError::Damaged { .. })), "it is not said that nothing waits: {lost:?}");
    assert!(matches!(log.mend(&log.incarnation().clone(), &remembered), Err(SpoolError::SameIncarnation)));
    let repairs = log.mend(&"other".parse().unwrap(), &remembered).unwrap();
    assert_eq!(repairs.len(), 1, "{repairs:?}");
    let all = |log: &FactLog| {
        assert_eq!(texts(log), [(1, "\"a\"".into()), (2, "\"b\"".into()), (3, "\"c\"".into())]);
        assert_eq!((log.incarnation().as_str(), log.acked(), log.last()), ("other", 0, 3));
    };
    all(&log);
    drop(log);
    all(&open_log(&directory));
}

#[test]
fn entries_of_a_journal_are_written_again() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path().join("journal");
    let open = || Journal::<String, u32>::open(&Disk::new(), &directory).unwrap().journal;
    let mut journal = open();
    journal.put("a".to_owned(), 1).unwrap();
    journal.put("b".to_owned(), 2).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    journal.put("c".to_owned(), 3).unwrap();
    assert_eq!(open().entries(), journal.entries());
    assert_eq!(journal.entries().len(), 3);

    // Also without a change, when somebody asks for it.
    std::fs::remove_dir_all(&directory).unwrap();
    journal.write_again_what_is_gone().unwrap();
    assert_eq!(open().entries(), journal.entries());
    let before = std::fs::read_dir(&directory).unwrap().count();
    journal.write_again_what_is_gone().unwrap();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), before, "it is all there");
}
