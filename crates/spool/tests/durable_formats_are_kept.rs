//! LIF-4: what a released version wrote stays readable, and this version writes what its format
//! says. The golden files of each format are in `golden/format-N`; those of a format that was
//! released are never changed. `MUSTER_BLESS=1` writes those of the current one anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::{Path, PathBuf};

use common::objects::{Sets, cursor, gone, put, their, theirs};
use common::{incarnation, now, pending, said};
use serde::{Deserialize, Serialize};
use spool::objects::{ObjectLimits, ObjectLog};
use spool::{Disk, FORMAT, FactLog, Journal, LogLimits, StateFile};
use sync::Write;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Value {
    list: Vec<u64>,
    text: String,
}

fn value() -> Value {
    Value { list: vec![1, 2, 3], text: "ü".to_owned() }
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// All files below a directory, by path.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let below = path.strip_prefix(directory).unwrap().to_owned();
            found.push((below, std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

fn facts(directory: &Path) -> FactLog {
    let limits = LogLimits { segment_bytes: 500, ..LogLimits::default() };
    FactLog::open(&Disk::new(), &directory.join("facts"), &incarnation("one"), limits).unwrap().log
}

fn journal(directory: &Path) -> Journal<String, u32> {
    Journal::open(&Disk::new(), &directory.join("journal")).unwrap().journal
}

fn objects(directory: &Path) -> spool::objects::OpenedObjects {
    let limits = ObjectLimits { segment_bytes: 1500, ..ObjectLimits::default() };
    ObjectLog::open(&Disk::new(), &directory.join("objects"), &incarnation("fresh"), limits).unwrap()
}

fn object_writes() -> [Write; 4] {
    [
        Write {
            begin: Some(incarnation("f")),
            feed: vec![put(1, "a", "one"), put(2, "b", "two")],
            replica: vec![their(7, "s", "status"), their(8, "t", "")],
            cursor: cursor("t", 8),
            ..Write::default()
        },
        Write { feed: vec![gone(3, "a")], replica: vec![(theirs("s"), None)], ..Write::default() },
        Write {
            feed: vec![gone(4, "b")],
            compacted: Some(3),
            replica: vec![their(9, "u", &"x".repeat(2000))],
            cursor: cursor("t", 9),
            ..Write::default()
        },
        Write { replica: vec![their(10, "v", "in the next segment")], ..Write::default() },
    ]
}

fn write_all(directory: &Path) {
    let mut log = facts(directory);
    for n in 1..=4 {
        log.append_many(vec![said(&format!("fact {n}")), said("two of a batch")], now()).unwrap();
    }
    log.ack(3).unwrap();
    let mut log = journal(directory);
    log.put("a".to_owned(), 1).unwrap();
    log.apply(vec![("b".to_owned(), Some(2)), ("a".to_owned(), None)]).unwrap();
    let mut log = objects(directory).log;
    for write in object_writes() {
        log.write(&write).unwrap();
    }
    let slot = StateFile::new(&Disk::new(), directory.join("state.json"), 0o600);
    slot.store(&value()).unwrap();
}

#[test]
fn this_version_writes_its_format() {
    let directory = common::tempdir();
    write_all(directory.path());
    let golden = golden().join(format!("format-{FORMAT}"));
    if std::env::var_os("MUSTER_BLESS").is_some() {
        let _ = std::fs::remove_dir_all(&golden);
        for (path, bytes) in files(directory.path()) {
            std::fs::create_dir_all(golden.join(&path).parent().unwrap()).unwrap();
            std::fs::write(golden.join(&path), bytes).unwrap();
        }
    }
    let (written, golden) = (files(directory.path()), files(&golden));
    let names = |files: &[(PathBuf, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&written), names(&golden));
    for ((path, bytes), (_, golden)) in written.iter().zip(&golden) {
        let at = bytes.iter().zip(golden).position(|(a, b)| a != b).unwrap_or(bytes.len().min(golden.len()));
        assert!(bytes == golden, "{} is written differently from byte {at} on", path.display());
    }
}

#[test]
fn this_version_reads_each_format() {
    let mut formats = 0;
    for entry in std::fs::read_dir(golden()).unwrap() {
        let directory = common::tempdir();
        for (path, bytes) in files(&entry.unwrap().path()) {
            std::fs::create_dir_all(directory.path().join(&path).parent().unwrap()).unwrap();
            std::fs::write(directory.path().join(path), bytes).unwrap();
        }
        let log = facts(directory.path());
        assert_eq!((log.incarnation(), log.acked(), log.last()), (&incarnation("one"), 3, 8));
        let texts: Vec<String> = pending(&log).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["two of a batch", "fact 3", "two of a batch", "fact 4", "two of a batch"]);
        assert_eq!(journal(directory.path()).entries(), &[("b".to_owned(), 2)].into());
        let opened = objects(directory.path());
        assert_eq!(opened.repairs, Vec::<String>::new());
        assert_eq!(
            Sets::of(&opened),
            object_writes().iter().fold(Sets::default(), |s, write| s.after(write))
        );
        let slot = StateFile::<Value>::new(&Disk::new(), directory.path().join("state.json"), 0o600);
        assert_eq!(slot.load().unwrap().value, Some(value()));
        formats += 1;
    }
    assert!(formats >= FORMAT);
}
