//! SYN-4: what is kept of synchronization against plain maps, with faults at any point: a
//! write is there whole when it was acknowledged, and whole or not at all when it failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use common::objects::{Sets, cursor, gone, open, ours, put, their, theirs};
use common::{Plan, incarnation};
use proptest::prelude::*;
use spool::objects::OpenedObjects;
use spool::{Disk, FaultAction};
use sync::Write;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// One object that changes: its name's number, and its content's length if it stays.
type Touch = (usize, Option<usize>);

#[derive(Clone, Debug)]
enum Step {
    Write {
        feed: Vec<Touch>,
        replica: Vec<Touch>,
        found: bool,
        forget: bool,
        compacted: bool,
        cursor: bool,
    },
    /// Open again, as after a crash.
    Reopen,
}

fn touches() -> impl Strategy<Value = Vec<Touch>> {
    proptest::collection::vec((0..NAMES.len(), proptest::option::weighted(0.7, 0..300usize)), 0..4)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rarely = || proptest::bool::weighted(0.05);
    let write = (touches(), touches(), rarely(), rarely(), proptest::bool::weighted(0.2), any::<bool>());
    let write = write.prop_map(|(ours, theirs, found, forget, compacted, cursor)| Step::Write {
        feed: ours,
        replica: theirs,
        found,
        forget,
        compacted,
        cursor,
    });
    proptest::collection::vec(prop_oneof![6 => write, 1 => Just(Step::Reopen)], 1..50)
}

fn faults() -> impl Strategy<Value = BTreeMap<u64, FaultAction>> {
    let action = prop_oneof![
        Just(FaultAction::Fail(ErrorKind::StorageFull)),
        Just(FaultAction::Tear(ErrorKind::StorageFull)),
        Just(FaultAction::Fail(ErrorKind::Other)),
        Just(FaultAction::Tear(ErrorKind::Other)),
    ];
    proptest::collection::btree_map(0..250u64, action, 0..40)
}

fn write(step: &Step, sets: &Sets, count: u64) -> Option<Write> {
    let Step::Write { feed: own, replica: other, found, forget, compacted, cursor: with_cursor } = step
    else {
        return None;
    };
    let found = *found || sets.feed.is_none();
    let mut rev = if found { 0 } else { sets.head() };
    let text = |length: usize| format!("{count}-{}", "x".repeat(length));
    let ours = own.iter().map(|(name, stays)| {
        rev += 1;
        match stays {
            Some(length) => put(rev, NAMES[*name], &text(*length)),
            None => gone(rev, NAMES[*name]),
        }
    });
    let ours = ours.collect();
    let theirs = other.iter().map(|(name, stays)| match stays {
        Some(length) => their(count, NAMES[*name], &text(*length)),
        None => (theirs(NAMES[*name]), None),
    });
    Some(Write {
        begin: found.then(|| incarnation(&format!("incarnation-{count}"))),
        feed: ours,
        proofs: Vec::new(),
        compacted: compacted.then_some(rev / 2),
        replica: theirs.collect(),
        cursor: with_cursor.then(|| cursor("t", count).unwrap()),
        forget_replica: *forget,
    })
}

/// What is there, and what may be there in its place.
#[derive(Debug, Default)]
struct Model {
    sets: Sets,
    /// With one of the writes that failed since the last one that did not.
    maybe: Vec<Sets>,
}

impl Model {
    fn opened(&mut self, opened: &OpenedObjects) {
        assert_eq!(opened.repairs, Vec::<String>::new(), "a failure is no damage");
        let there = Sets::of(opened);
        let allowed = there == self.sets || self.maybe.contains(&there);
        assert!(allowed, "{there:#?}\nis not what is allowed:\n{self:#?}");
        *self = Model { sets: there, maybe: vec![] };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_is_two_maps(steps in steps(), faults in faults()) {
        let directory = common::tempdir();
        let disk = Disk::with_faults(Arc::new(Plan(faults)));
        let mut model = Model::default();
        let mut log = None;
        for (count, next) in (1..).zip(steps) {
            let Some(open_log) = log.as_mut() else {
                if let Ok(opened) = open(&disk, directory.path(), &format!("fresh-{count}")) {
                    model.opened(&opened);
                    log = Some(opened.log);
                }
                continue;
            };
            let Some(write) = write(&next, &model.sets, count) else {
                log = None;
                continue;
            };
            let after = model.sets.after(&write);
            match open_log.write(&write) {
                Ok(()) => model = Model { sets: after, maybe: vec![] },
                Err(_) => model.maybe.push(after),
            }
            model.sets.assert_contents(open_log, &NAMES);
        }
        drop(log);
        model.opened(&open(&Disk::new(), directory.path(), "last").unwrap());
    }
}

#[test]
fn a_refused_write_changes_nothing() {
    let directory = common::tempdir();
    let mut log = open(&Disk::new(), directory.path(), "fresh").unwrap().log;
    let first = Write { begin: Some(incarnation("f")), feed: vec![put(1, "a", "one")], ..Write::default() };
    log.write(&first).unwrap();
    for unsound in [vec![put(1, "a", "x")], vec![put(3, "a", "x")], vec![(put(2, "a", "x").0, None)]] {
        let write = Write { feed: unsound, replica: vec![their(1, "b", "b")], ..Write::default() };
        assert!(matches!(log.write(&write), Err(spool::SpoolError::Unsound(_))));
    }
    let opened = open(&Disk::new(), directory.path(), "fresh").unwrap();
    assert_eq!(Sets::of(&opened), Sets::default().after(&first));
    assert_eq!(opened.log.content(sync::Side::Feed, &ours("b")).unwrap(), None);
}
