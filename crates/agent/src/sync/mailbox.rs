//! [`Mailbox`]: what waits for the reconciler.
//!
//! ```text
//! post(|waiting| ..) --> Waiting --next--> all that waits, in one round of the reconciler
//! ```
//!
//! Each batch and operation matters, and who sent it waits for what became of it. All else is a level:
//! a folder that changed a thousand times while it was being listed is listed once more.
//!
//! Invariants: posting never waits; at most [`MAX_BATCHES`] batches and [`MAX_OPERATIONS`]
//! operations wait, and one more is refused.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use model::replication::SyncPolicy;
use sync::link::{Batch, ItemOutcome, NotKept};
use tokio::sync::oneshot;

use super::operations::Operation;

/// The most batches that wait. A link sends one at a time, and there is one link; those of links
/// that ended may be there still.
const MAX_BATCHES: usize = 8;

/// The most operations that wait. Few run at a time; those that were given up may be there still.
const MAX_OPERATIONS: usize = 16;

/// A batch to be applied.
pub(super) struct BatchRequest {
    pub(super) batch: Arc<Batch>,
    /// The number of the rules that its link was opened under.
    pub(super) rules: u64,
    pub(super) answer: oneshot::Sender<Result<Vec<ItemOutcome>, NotKept>>,
}

/// What was posted and not taken.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) batches: Vec<BatchRequest>,
    pub(super) operations: Vec<Operation>,
    /// Another release is held, which says this.
    pub(super) policy: Option<SyncPolicy>,
    /// Begin the own set in a new incarnation, and answer. Of two who ask the first is gone.
    pub(super) reincarnate: Option<oneshot::Sender<()>>,
    /// An operator confirms that what vanished is to be deleted.
    pub(super) approved: bool,
    /// Both sides compared what the control plane wants, under rules of this number, and it is
    /// equal.
    pub(super) in_sync: Option<u64>,
    /// Something in the backend changed.
    pub(super) changed: bool,
    /// The last handle is gone.
    pub(super) closed: bool,
}

impl Waiting {
    /// Adds a batch; `false` when too many wait, or nobody takes any.
    pub(super) fn batch(&mut self, request: BatchRequest) -> bool {
        let room = !self.closed && self.batches.len() < MAX_BATCHES;
        self.batches.extend(room.then_some(request));
        room
    }

    /// Adds an operation; `false` when too many wait, or nobody takes any.
    pub(super) fn operation(&mut self, operation: Operation) -> bool {
        let room = !self.closed && self.operations.len() < MAX_OPERATIONS;
        self.operations.extend(room.then_some(operation));
        room
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Mailbox {
    /// `None`: nothing was posted.
    waiting: Mutex<Option<Waiting>>,
    posted: Condvar,
}

impl Mailbox {
    /// Changes what waits.
    pub(super) fn post<T>(&self, post: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.posted.notify_one();
        post(waiting.get_or_insert_default())
    }

    /// What is to be done next: all that waits, which is nothing when nothing comes in this time.
    pub(super) fn next(&self, within: Duration) -> Waiting {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.posted.wait_timeout_while(waiting, within, |waiting| waiting.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_folder_is_listed_once() {
        let mailbox = Mailbox::default();
        for rules in 0..1000 {
            mailbox.post(|waiting| (waiting.changed, waiting.in_sync) = (true, Some(rules)));
        }
        let all = mailbox.next(Duration::MAX);
        assert!(all.changed && all.in_sync == Some(999), "a thousand signals are one listing");
        assert!(!mailbox.next(Duration::ZERO).changed);
        mailbox.post(|waiting| waiting.closed = true);
        assert!(mailbox.next(Duration::MAX).closed);
    }
}
