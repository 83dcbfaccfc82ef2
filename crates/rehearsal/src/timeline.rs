//! [`Timeline`]: what happens next, in virtual time. What happens at the same time happens in the order in which it was
//! put there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use model::Timestamp;

use crate::host::HostEvent;

/// Something that happens to the host of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Occurrence {
    /// It speaks with the control plane.
    Exchange(usize),
    /// Something happens on it.
    Host(usize, HostEvent),
    /// The control plane looks whether it is heard of still.
    Contact(usize),
    /// One that calls seldom calls.
    Call(usize),
}

#[derive(Debug, Default)]
pub(crate) struct Timeline {
    next: BinaryHeap<Reverse<(Timestamp, u64, Occurrence)>>,
    entered: u64,
}

impl Timeline {
    pub(crate) fn enter(&mut self, at: Timestamp, occurrence: Occurrence) {
        self.entered += 1;
        self.next.push(Reverse((at, self.entered, occurrence)));
    }

    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.next.peek().map(|Reverse((at, ..))| *at)
    }

    /// What is next, if that is not after a time.
    pub(crate) fn pop_until(&mut self, now: Timestamp) -> Option<Occurrence> {
        self.next_at().filter(|at| *at <= now)?;
        self.next.pop().map(|Reverse((.., occurrence))| occurrence)
    }
}
