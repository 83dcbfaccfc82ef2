//! What the index keeps by itself.

#![allow(clippy::unwrap_used)]

use super::*;

fn inserted(index: &FleetIndex, number: u8) -> Arc<NodeSlot> {
    let key = trust::SigningKey::from_seed(&[number; 32]).public();
    let (id, name) = (key.node_id(), format!("web-{number}").parse().unwrap());
    index.insert(NodeState::new(id.clone(), name, key, Timestamp(0)));
    index.get(&id).unwrap()
}

/// CNV-4: what was read of a release is not kept when the node is pointed to another one meanwhile.
#[test]
fn what_a_release_of_before_declares_is_not_kept() {
    let index = FleetIndex::default();
    let slot = inserted(&index, 1);
    let roots = [Digest::of(b"one"), Digest::of(b"two")];
    let declare = |at: usize, pointed: usize| {
        index.declare(&slot, Some((roots[at], SetFacts::default())), |_| Some(roots[pointed]))
    };
    assert_eq!(declare(1, 1), DeclareOutcome::After(Mode::Off));
    assert_eq!(declare(0, 1), DeclareOutcome::Outdated);
    assert_eq!([0, 1].map(|at| slot.declared_mode(&roots[at])), [None, Some(Mode::Off)]);
    assert_eq!(declare(0, 0), DeclareOutcome::After(Mode::Off));
}

/// Whoever reads what is declared and comes to no end leaves the rest of the nodes where they wait.
#[test]
fn nodes_wait_until_each_is_read() {
    let index = FleetIndex::default();
    let root = Digest::of(b"set");
    for number in 1..4 {
        index.mode_or_queue(&inserted(&index, number), Some(&root));
    }
    let taken = index.take_undeclared().unwrap();
    assert!(!taken.lock().declare_queued && !index.is_all_declared());
    assert_eq!((index.take_undeclared().is_some(), index.take_undeclared().is_some()), (true, true));
    assert!(index.take_undeclared().is_none() && index.is_all_declared());
}

/// What every known node takes in the index by itself, in bytes, with the two counts of its `Arc`: a size class of
/// the allocator, so one byte more costs the next one. What is so of few nodes belongs into
/// [`plane::OpenItems`].
const SLOT_BYTES: usize = 1024;

/// SCL-1: a node that is not connected costs no more than what is known of it.
#[test]
fn a_slot_stays_in_its_size_class() {
    let slot = size_of::<NodeSlot>() + 2 * size_of::<usize>();
    assert!(slot <= SLOT_BYTES, "{slot} bytes");
}
