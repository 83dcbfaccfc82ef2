//! CNV-5: the log of facts against a plain list, with faults at any point.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use common::{Plan, incarnation, now, open, pending, said};
use proptest::prelude::*;
use spool::{Disk, FactLog, FaultAction};

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    /// Acknowledge this part of what is pending, in percent.
    Ack(u64),
    Anew,
    /// Open again, as after a crash.
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (1..5usize).prop_map(Step::Append),
        3 => (0..=100u64).prop_map(Step::Ack),
        1 => Just(Step::Anew),
        3 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..30)
}

fn faults() -> impl Strategy<Value = BTreeMap<u64, FaultAction>> {
    let action = prop_oneof![
        Just(FaultAction::Fail(ErrorKind::StorageFull)),
        Just(FaultAction::Tear(ErrorKind::StorageFull)),
    ];
    proptest::collection::btree_map(0..200u64, action, 0..30)
}

/// The log as a list, and what failures may have left.
#[derive(Debug, Default)]
struct Model {
    /// Of the facts that were not acknowledged.
    pending: Vec<String>,
    /// How many of them may be acknowledged after all, by calls that failed.
    maybe_acked: Vec<usize>,
    /// Of these appends, which failed, one may be there at the end after all.
    maybe_appended: Vec<Vec<String>>,
}

impl Model {
    fn allows(&self, there: &[String]) -> bool {
        let starts = self.maybe_acked.iter().chain([&0]);
        starts.into_iter().any(|start| {
            let Some(more) = there.strip_prefix(&self.pending[*start..]) else { return false };
            more.is_empty() || self.maybe_appended.iter().any(|texts| texts.starts_with(more))
        })
    }

    fn becomes(&mut self, there: Vec<String>) {
        *self = Model { pending: there, ..Model::default() };
    }
}

fn labels(log: &FactLog) -> Vec<String> {
    let there = pending(log);
    let numbers: Vec<u64> = there.iter().map(|(seq, _)| *seq).collect();
    let first = log.acked() + 1;
    assert_eq!(numbers, (first..first + there.len() as u64).collect::<Vec<_>>(), "numbers have no gap");
    assert_eq!(log.last(), log.acked() + there.len() as u64);
    there.into_iter().map(|(_, text)| text).collect()
}

fn step(log: &mut FactLog, model: &mut Model, step: &Step, count: u64) {
    match step {
        Step::Append(facts) => {
            let texts: Vec<String> = (0..*facts).map(|n| format!("{count}.{n} {}", "x".repeat(40))).collect();
            match log.append_many(texts.iter().map(|text| said(text)).collect(), now()) {
                Ok(_) => {
                    model.pending.extend(texts);
                    model.maybe_appended.clear();
                }
                Err(_) => model.maybe_appended.push(texts),
            }
        }
        Step::Ack(percent) => {
            let part = (model.pending.len() as u64 * percent / 100) as usize;
            match log.ack(log.acked() + part as u64) {
                Ok(()) => {
                    model.pending.drain(..part);
                    // Counted from the new beginning; those before it are sure now.
                    model.maybe_acked =
                        model.maybe_acked.iter().filter_map(|n| n.checked_sub(part)).collect();
                }
                Err(_) => model.maybe_acked.push(part),
            }
        }
        // What may have been appended is not taken along: it was refused.
        Step::Anew => {
            if log.begin_anew(&incarnation(&format!("incarnation-{count}"))).is_ok() {
                let pending = std::mem::take(&mut model.pending);
                model.becomes(pending);
            }
        }
        Step::Reopen => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_is_a_list(steps in steps(), faults in faults()) {
        let directory = common::tempdir();
        let disk = Disk::with_faults(Arc::new(Plan(faults)));
        let mut model = Model::default();
        let mut count = 0;
        let mut log = None;
        for next in steps {
            count += 1;
            // A disk that fails while the log is opened fails the opening; the next try is
            // another day.
            let Some(open_log) = log.as_mut() else {
                if let Ok(opened) = open(&disk, directory.path(), &format!("incarnation-{count}")) {
                    prop_assert_eq!(opened.repairs, Vec::<String>::new(), "a failure is no damage");
                    let there = labels(&opened.log);
                    prop_assert!(model.allows(&there), "{:?} is not what {:?} allows", there, model);
                    model.becomes(there);
                    log = Some(opened.log);
                }
                continue;
            };
            step(open_log, &mut model, &next, count);
            let there = labels(open_log);
            if matches!(next, Step::Anew) && there.len() != model.pending.len() {
                prop_assert!(model.allows(&there));
                model.becomes(there.clone());
            }
            prop_assert_eq!(&there, &model.pending);
            if matches!(next, Step::Reopen) {
                log = None;
            }
        }
        drop(log);
        let opened = open(&Disk::new(), directory.path(), "last").unwrap();
        let there = labels(&opened.log);
        prop_assert!(model.allows(&there), "{:?} is not what {:?} allows", there, model);
    }
}
