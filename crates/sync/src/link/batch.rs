//! [`ApplyBatch`]: changes for the shell to apply and to make durable together with the cursor.

use crate::cursor::FeedCursor;
use model::ObjectKey;

use crate::durable::{Content, Write};
use crate::frame::Op;

/// One change for the backend.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplyItem {
    /// Which object.
    pub key: ObjectKey,
    /// The change in the source's feed.
    pub rev: u64,
    /// What happened to it at the source, to be done here: a content's digest was compared.
    pub change: Op,
    /// W3C trace context.
    pub trace: Option<String>,
    /// When the source accepted it: milliseconds since 1970.
    pub at: i64,
    /// Where it stands among all that came.
    pub(super) position: u64,
    /// Its number on the link; 0 when it stands outside.
    pub(super) seq: u64,
    pub(super) tries: u32,
    /// It failed again and again: the cursor goes on without it, and roots are compared without it.
    pub(super) released: bool,
}

/// What became of an item (SYN-12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemOutcome {
    /// Applied; it is in the [`Write`] that was made durable.
    Done,
    /// It may work later: retried with growing waits, others go on.
    Temporary(String),
    /// What is here does not fit: fetched anew, a bounded number of times, then permanent.
    Recoverable(String),
    /// Never: the source of truth gets an `error`, and the object is shown as out of sync.
    Permanent {
        /// A stable code.
        code: String,
        /// Why, for people.
        message: String,
    },
}

/// Nothing of a batch is durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotDurable(pub String);

impl ItemOutcome {
    /// Nothing more will be done about it.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self, ItemOutcome::Done | ItemOutcome::Permanent { .. })
    }
}

/// A batch: at most one is under way on a link.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplyBatch {
    /// What to apply, in this order; may be empty, when only the cursor moves.
    pub items: Vec<ApplyItem>,
    /// The cursor once every item is settled; `None`: it does not move.
    pub(super) settled: Option<FeedCursor>,
    /// The cursor when one is not.
    pub(super) unsettled: Option<FeedCursor>,
}

impl ApplyBatch {
    /// The cursor that is good with these outcomes; `None` when it does not move.
    pub fn cursor(&self, outcomes: &[ItemOutcome]) -> Option<FeedCursor> {
        let settled = outcomes.len() == self.items.len() && outcomes.iter().all(ItemOutcome::is_settled);
        if settled { self.settled.clone() } else { self.unsettled.clone() }
    }

    /// What to make durable once every item has an outcome: items done, and the cursor.
    pub fn write(&self, outcomes: &[ItemOutcome]) -> Write {
        let done = self.items.iter().zip(outcomes).filter(|(_, outcome)| **outcome == ItemOutcome::Done);
        let replica = done.map(|(item, _)| {
            let new = match &item.change {
                Op::Put { stub, content, .. } => {
                    let content = Content { bytes: content.clone(), trace: item.trace.clone(), at: item.at };
                    Some((stub.clone(), item.rev, content))
                }
                Op::Delete { .. } => None,
            };
            (item.key.clone(), new)
        });
        Write { replica: replica.collect(), cursor: self.cursor(outcomes), ..Write::default() }
    }
}
