//! ROL-5, CNV-5: a fact is accepted once by (node, incarnation, seq), whatever is
//! repeated, reordered or left out on the way.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use model::log::Fact;
use proptest::prelude::*;
use store::Store;

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

use fixture::{at, enrolled, incarnation, run, started};

const LIVES: [&str; 2] = ["one", "two"];

/// Facts as they arrive: which node, which incarnation, which numbers.
#[derive(Clone, Debug)]
struct Batch {
    node: u32,
    incarnation: usize,
    seqs: Vec<u64>,
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let batch = (0..2u32, 0..2usize, proptest::collection::vec(0..12u64, 0..12));
    let batch = batch.prop_map(|(node, incarnation, seqs)| Batch { node, incarnation, seqs });
    proptest::collection::vec(batch, 1..20)
}

/// The fact of a number, the same in every repetition.
fn fact(seq: u64) -> Fact {
    if seq.is_multiple_of(3) { started(seq) } else { run(seq, u32::from(seq.is_multiple_of(2)), false) }
}

#[derive(Default)]
struct Model {
    logs: BTreeMap<(u32, usize), u64>,
    streaks: BTreeMap<u32, u32>,
    accepted: Vec<(u32, usize, u64)>,
}

impl Model {
    fn append(&mut self, batch: &Batch) -> Vec<u64> {
        let cursor = self.logs.entry((batch.node, batch.incarnation)).or_default();
        let mut new = Vec::new();
        while batch.seqs.contains(&(*cursor + 1)) {
            *cursor += 1;
            new.push(*cursor);
            self.accepted.push((batch.node, batch.incarnation, *cursor));
            let streak = self.streaks.entry(batch.node).or_default();
            match *cursor {
                seq if seq.is_multiple_of(3) => {}
                seq if seq.is_multiple_of(2) => *streak += 1,
                _ => *streak = 0,
            }
        }
        new
    }
}

async fn hold_against_model(store: &Store, batches: &[Batch]) -> Result<(), TestCaseError> {
    let nodes = [enrolled(store, 0).await, enrolled(store, 1).await];
    let mut model = Model::default();
    for batch in batches {
        let facts = batch.seqs.iter().map(|seq| fact(*seq)).collect();
        let node = &nodes[batch.node as usize];
        let accepted =
            store.append_facts(node, &incarnation(LIVES[batch.incarnation]), facts, at(1)).await.unwrap();
        let expected = model.append(batch);
        let new: Vec<u64> = accepted.new.iter().map(|fact| fact.seq).collect();
        prop_assert_eq!(&new, &expected);
        prop_assert_eq!(accepted.cursor.seq, model.logs[&(batch.node, batch.incarnation)]);
        let streak = store.node(node).await.unwrap().unwrap().runs.streak;
        prop_assert_eq!(streak, model.streaks.get(&batch.node).copied().unwrap_or(0));
    }
    for (n, node) in (0u32..).zip(&nodes) {
        let mut there = Vec::new();
        for record in store.facts(node, None, 1000).await.unwrap().into_iter().rev() {
            prop_assert_eq!(&record.fact, &fact(record.fact.seq));
            let incarnation =
                LIVES.iter().position(|incarnation| *incarnation == record.incarnation.as_str()).unwrap();
            there.push((n, incarnation, record.fact.seq));
        }
        let expected: Vec<_> = model.accepted.iter().filter(|(node, ..)| *node == n).copied().collect();
        prop_assert_eq!(there, expected, "in the order of acceptance");
    }
    Ok(())
}

fn on(store: &Store, batches: &[Batch]) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(hold_against_model(store, batches))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn sqlite(batches in batches()) {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        on(&Store::open(directory.path().join("muster.db")).unwrap(), &batches)?;
    }
}
