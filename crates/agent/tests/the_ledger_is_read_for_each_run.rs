//! CNV-10, CNV-12, LIF-10: between runs the ledger is on disk alone. Each run reads what is there; what was damaged
//! meanwhile is set aside and told, and the rest counts.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::Path;

use agent::state::{Durable, StateDir};
use catalog::module::OnRemove;
use converge::{LedgerEntry, Prior, Record, ResourceId};
use model::{PathState, Timestamp};
use spool::Disk;

fn open(state: &Path) -> Durable {
    StateDir::at(state, Disk::new()).open().unwrap()
}

fn entry(number: usize) -> (ResourceId, LedgerEntry) {
    let path = format!("/etc/{number}");
    let entry = LedgerEntry {
        kind: "file".to_owned(),
        path: path.clone(),
        prior: Prior::Path(PathState::Missing),
        kept: false,
        on_remove: OnRemove::Delete,
        at: Timestamp(1),
        sensitive: false,
        attributes: BTreeMap::new(),
        made: Vec::new(),
        generation: None,
    };
    (ResourceId::new("m", "file", &path), entry)
}

/// A job records, that ends after its run was not waited for any more.
fn record(durable: &Durable, number: usize) {
    durable.persist(&[Record { put: vec![entry(number)], ..Record::default() }]).unwrap();
}

fn recorded(durable: &Durable) -> Vec<String> {
    durable.ledger().unwrap().entries.into_values().map(|entry| entry.path).collect()
}

#[test]
fn what_a_run_recorded_is_read_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    StateDir::create(&state).unwrap();
    let durable = open(&state);
    record(&durable, 1);
    // It is added to what is on disk.
    record(&durable, 2);
    assert_eq!(recorded(&durable), ["/etc/1", "/etc/2"]);
    assert_eq!(durable.take_repairs(), Vec::<String>::new());
    drop(durable);
    assert_eq!(recorded(&open(&state)), ["/etc/1", "/etc/2"]);
}

#[test]
fn what_was_damaged_between_two_runs_is_told_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    StateDir::create(&state).unwrap();
    let durable = open(&state);
    record(&durable, 1);
    damage(&state.join("ledger"));
    assert_eq!(recorded(&durable), Vec::<String>::new());
    let repairs = durable.take_repairs();
    assert!(repairs.len() == 1 && repairs[0].contains("ledger"), "{repairs:?}");
    record(&durable, 2);
    assert_eq!(recorded(&durable), ["/etc/2"]);
    assert_eq!(durable.take_repairs(), Vec::<String>::new(), "it is told once");
}

/// Changes a byte of the path in the only segment.
fn damage(ledger: &Path) {
    let mut segments = std::fs::read_dir(ledger).unwrap().map(|entry| entry.unwrap().path());
    let segment = segments.find(|path| path.extension().is_some_and(|end| end == "segment")).unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(6).position(|window| window == b"/etc/1").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
}
