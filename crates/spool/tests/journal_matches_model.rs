//! CNV-10: the ledger's journal against a plain map, with faults at any point.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use common::Plan;
use proptest::prelude::*;
use spool::{Disk, FaultAction, Journal};

type Map = BTreeMap<u8, u16>;
type Batch = Vec<(u8, Option<u16>)>;

#[derive(Clone, Debug)]
enum Step {
    Apply(Batch),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let entry = (0..20u8, proptest::option::weighted(0.7, any::<u16>()));
    let small = proptest::collection::vec(entry.clone(), 1..10);
    // Large enough that some sequences compact.
    let large = proptest::collection::vec(entry, 400..500);
    let step = prop_oneof![
        5 => small.prop_map(Step::Apply),
        3 => large.prop_map(Step::Apply),
        2 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..20)
}

fn faults() -> impl Strategy<Value = BTreeMap<u64, FaultAction>> {
    let action = prop_oneof![
        Just(FaultAction::Fail(ErrorKind::StorageFull)),
        Just(FaultAction::Tear(ErrorKind::StorageFull)),
        Just(FaultAction::Fail(ErrorKind::Other)),
    ];
    proptest::collection::btree_map(0..80u64, action, 0..12)
}

fn applied(map: &Map, batch: &Batch) -> Map {
    let mut map = map.clone();
    for (key, value) in batch {
        match value {
            Some(value) => map.insert(*key, *value),
            None => map.remove(key),
        };
    }
    map
}

/// A crash: the segments as they are, opened without faults.
fn crashed(path: &Path) -> Map {
    let copy = common::tempdir();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let opened = Journal::<u8, u16>::open(&Disk::new(), copy.path()).unwrap();
    assert_eq!(opened.repairs, Vec::<String>::new(), "a failed append is no damage");
    opened.journal.entries().clone()
}

/// Opened as often as the disk's faults ask for.
fn reopened(disk: &Disk, path: &Path) -> Journal<u8, u16> {
    (0..100).find_map(|_| Journal::open(disk, path).ok()).unwrap().journal
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_journal_is_a_map(steps in steps(), faults in faults()) {
        let directory = common::tempdir();
        let path = directory.path().join("ledger");
        let disk = Disk::with_faults(Arc::new(Plan(faults)));
        let Ok(opened) = Journal::<u8, u16>::open(&disk, &path) else { return Ok(()) };
        let mut journal = opened.journal;
        let mut model = Map::new();
        for step in steps {
            // What may be there after a crash although it was refused.
            let mut maybe = model.clone();
            match step {
                Step::Apply(batch) => match journal.apply(batch.clone()) {
                    Ok(()) => {
                        model = applied(&model, &batch);
                        maybe = model.clone();
                    }
                    Err(_) => maybe = applied(&model, &batch),
                },
                Step::Reopen => {
                    drop(journal);
                    journal = reopened(&disk, &path);
                    let there = journal.entries().clone();
                    prop_assert!(there == model);
                }
            }
            prop_assert_eq!(journal.entries(), &model);
            let there = crashed(&path);
            prop_assert!(there == model || there == maybe, "{:?} is neither {:?} nor {:?}", there, model, maybe);
            if there != model {
                // Go on from what the crash left, as a restarted agent does.
                drop(journal);
                journal = reopened(&disk, &path);
                model = there;
            }
        }
    }
}
