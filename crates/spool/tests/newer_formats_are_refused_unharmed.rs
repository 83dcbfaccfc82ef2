//! LIF-4: what a newer version wrote is read when it says that this version can, and refused
//! unharmed when it says that it cannot; it never counts as damage. The segments here are made
//! by hand, from docs/durable-formats.md alone.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::objects::{SMALL, Sets};
use common::{incarnation, open, pending};
use model::Digest;
use spool::objects::ObjectLog;
use spool::{Disk, FactLog, Journal, LogLimits, SpoolError, StateFile};

/// A record: mark, kind, length, checksum of kind, length and payload, payload.
fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    let checked = [&[kind], length.as_slice()].concat();
    let sum = Digest::of(&[checked.as_slice(), payload].concat());
    [b"\xf5Mr".as_slice(), &checked, &sum.as_bytes()[..8], payload].concat()
}

/// A segment: magic, header, records.
fn segment(log: &str, format: u32, readable_from: u32, records: &[Vec<u8>]) -> Vec<u8> {
    let header = format!(
        r#"{{"log":"{log}","format":{format},"readableFrom":{readable_from},"number":1,"previousEnd":0,"new":1}}"#
    );
    [b"\x89MUSTER\n".to_vec(), record(0, header.as_bytes()), records.concat()].concat()
}

fn commit(state: &str) -> Vec<u8> {
    record(1, format!(r#"{{"first":1,"state":{state},"new":true}}"#).as_bytes())
}

const FACTS: &str = r#"{"incarnation":"one","offset":0,"acked":0,"new":7}"#;

fn fact(position: u64, body: &str) -> Vec<u8> {
    let json = format!(r#"{{"seq":{position},"at":"2026-01-01T00:00:00Z","body":{body}}}"#);
    record(2, &[position.to_le_bytes().as_slice(), json.as_bytes()].concat())
}

fn object(content: &str) -> Vec<u8> {
    let json = format!(
        r#"{{"put":{{"o":false,"key":{{"k":"Job:status","s":"default","n":"a"}},"r":1,"b":0,"stub":{{"uid":"s","digest":"{}","size":{}}},"at":7,"new":1}}}}"#,
        Digest::of(content.as_bytes()),
        content.len()
    );
    record(2, &[&(json.len() as u32).to_le_bytes(), json.as_bytes(), content.as_bytes()].concat())
}

fn put(directory: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join("00000000000000000001.segment"), bytes).unwrap();
}

fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Opens a segment as each of the three logs; the errors, if they are.
fn open_each(directory: &Path) -> [Result<(), SpoolError>; 3] {
    let disk = Disk::new();
    [
        open(&disk, directory, "fresh").map(drop),
        Journal::<String, u32>::open(&disk, directory).map(drop),
        ObjectLog::open(&disk, directory, &incarnation("fresh"), SMALL).map(drop),
    ]
}

#[test]
fn a_segment_that_needs_a_newer_reader_is_refused_unharmed() {
    let directory = common::tempdir();
    // With a torn tail, which a reader that could read it would cut.
    let records = [record(2, b"whatever comes"), commit("[1, 2]"), b"\xf5Mr".to_vec()];
    put(directory.path(), &segment("facts", 9, 8, &records));
    let before = files(directory.path());
    for opened in open_each(directory.path()) {
        let refused = opened.unwrap_err();
        assert!(matches!(refused, SpoolError::TooNew { format: 9, needed: 8, .. }), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains("format 9") && text.contains("reads format 8"), "{text}");
        assert_eq!(files(directory.path()), before, "nothing was changed");
    }
}

#[test]
fn a_newer_segment_that_this_version_can_read_is_read() {
    let directory = common::tempdir();
    let skipped = record(128, b"a record that may be skipped");
    let body = r#"{"kind":"repaired","message":"m","new":1}"#;
    let unknown = r#"{"kind":"ofTheFuture","what":1}"#;
    let records = [fact(1, body), skipped.clone(), fact(2, unknown), commit(FACTS)];
    put(&directory.path().join("facts"), &segment("facts", 2, 1, &records));
    let path = directory.path().join("facts");
    let limits = LogLimits::default();
    let opened = FactLog::open(&Disk::new(), &path, &incarnation("fresh"), limits).unwrap();
    assert_eq!((opened.repairs, opened.log.incarnation()), (vec![], &incarnation("one")));
    let facts = pending(&opened.log);
    assert_eq!(facts[0], (1, "m".to_owned()));
    assert_eq!(facts[1].0, 2, "a fact of a kind that is not known keeps its number");
    let mut log = opened.log;
    log.append(common::said("ours"), common::now()).unwrap();
    let paths: Vec<PathBuf> = files(&directory.path().join("facts")).into_keys().collect();
    assert_eq!(paths.len(), 2, "what this version writes is in a segment of its own format");

    let records = [record(2, br#"["a",1]"#), skipped.clone(), commit("null")];
    put(&directory.path().join("journal"), &segment("journal", 2, 1, &records));
    let opened = Journal::<String, u32>::open(&Disk::new(), &directory.path().join("journal")).unwrap();
    assert_eq!((opened.journal.get(&"a".to_owned()), opened.repairs), (Some(&1), vec![]));

    let state = r#"{"cursor":{"incarnation":"t","revision":5,"later":{"to":9}}}"#;
    let records = [object("hello"), skipped, commit(state)];
    put(&directory.path().join("objects"), &segment("objects", 2, 1, &records));
    let opened = common::objects::open(&Disk::new(), &directory.path().join("objects"), "fresh").unwrap();
    assert_eq!(opened.repairs, Vec::<String>::new());
    let sets = Sets::of(&opened);
    assert_eq!(sets.cursor.unwrap(), sync::FeedCursor::at("t".parse().unwrap(), 5));
    assert_eq!(sets.theirs.into_values().next().unwrap().2.bytes, "hello");
}

#[test]
fn a_record_that_may_not_be_skipped_is_refused_unharmed() {
    for (log, state) in [("facts", FACTS), ("journal", "null"), ("objects", "{}")] {
        // A kind that this version does not know, and a known one that it cannot read.
        for records in [[record(3, b"x"), commit(state)], [record(2, b"\x01"), commit(state)]] {
            let directory = common::tempdir();
            put(directory.path(), &segment(log, 2, 1, &records));
            let before = files(directory.path());
            let which = ["facts", "journal", "objects"].iter().position(|name| *name == log).unwrap();
            let refused = open_each(directory.path()).into_iter().nth(which).unwrap().unwrap_err();
            assert!(matches!(refused, SpoolError::TooNew { format: 2, needed: 2, .. }), "{log}: {refused:?}");
            assert_eq!(files(directory.path()), before, "{log}");
        }
    }
}

fn state_file(format: u32, readable_from: u32, json: &str) -> String {
    let head = format!("muster-state {format} {readable_from} ");
    let digest = Digest::of(format!("{head}{json}").as_bytes());
    format!("{head}{digest}\n{json}")
}

#[test]
fn state_files_keep_to_the_same_rule() {
    let directory = common::tempdir();
    let path = directory.path().join("adoption.json");
    let slot: StateFile<Vec<u8>> = StateFile::new(&Disk::new(), &path, 0o600);
    std::fs::write(&path, state_file(2, 1, "[1, 2]")).unwrap();
    assert_eq!(slot.load().unwrap().value, Some(vec![1, 2]));
    for (format, readable_from, json) in [(9, 8, "[1]"), (2, 1, r#"{"new": 1}"#)] {
        let text = state_file(format, readable_from, json);
        std::fs::write(&path, &text).unwrap();
        let refused = slot.load().unwrap_err();
        assert!(matches!(refused, SpoolError::TooNew { .. }), "{refused:?}");
        assert_eq!(files(directory.path()), BTreeMap::from([(path.clone(), text.into_bytes())]));
    }
    // A flipped bit does not make it newer.
    std::fs::write(&path, state_file(1, 1, "[1]").replace(" 1 1 ", " 9 9 ")).unwrap();
    assert!(slot.load().unwrap().set_aside.is_some());
}

#[test]
fn state_from_before_formats_had_numbers_is_named_and_set_aside_whole() {
    let directory = common::tempdir();
    let path = directory.path().join("membership.json");
    let text = format!("{}\n{}", Digest::of(b"[1]"), "[1]");
    std::fs::write(&path, &text).unwrap();
    std::fs::write(directory.path().join("identity.key"), "key").unwrap();
    std::fs::create_dir(directory.path().join("log")).unwrap();
    let slot: StateFile<Vec<u8>> = StateFile::new(&Disk::new(), &path, 0o600);
    let refused = slot.load().unwrap_err();
    assert!(matches!(refused, SpoolError::Unnumbered { .. }), "{refused:?}");
    for number in 1..3 {
        let aside =
            spool::atomic::set_aside_earlier(&Disk::new(), directory.path(), &["identity.key"]).unwrap();
        assert_eq!(aside, directory.path().join(format!("earlier-{number}")));
    }
    assert_eq!(std::fs::read_to_string(directory.path().join("earlier-1/membership.json")).unwrap(), text);
    assert!(directory.path().join("earlier-1/log").is_dir());
    assert_eq!(slot.load().unwrap().value, None);
    assert!(directory.path().join("identity.key").exists());
}
