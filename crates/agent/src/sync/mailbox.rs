//! [`Mailbox`]: what waits for the reconciler.
//!
//! Each batch and operation matters, and who sent it waits for what became of it. All else is a level:
//! a folder that changed a thousand times while it was being listed is listed once more.
//!
//! Invariants: posting never waits; at most [`MAX_BATCHES`] batches and [`MAX_OPERATIONS`]
//! operations wait, and one more is refused.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use model::replication::SyncPolicy;
use sync::link::{Batch, Outcome};
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
    pub(super) answer: oneshot::Sender<Vec<Outcome>>,
}

/// What the reconciler is to do.
pub(super) enum ReconcilerEvent {
    Batch(BatchRequest),
    Operation(Operation),
    Policy(SyncPolicy),
    Reincarnate(oneshot::Sender<()>),
    Approved,
    InSync(u64),
    Changed,
    Closed,
}

/// What was posted and not taken.
#[derive(Default)]
pub(super) struct Waiting {
    batches: VecDeque<BatchRequest>,
    operations: VecDeque<Operation>,
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
    /// Adds a batch; `false` when too many wait.
    pub(super) fn batch(&mut self, request: BatchRequest) -> bool {
        push(&mut self.batches, request, if self.closed { 0 } else { MAX_BATCHES })
    }

    /// Adds an operation; `false` when too many wait.
    pub(super) fn operation(&mut self, operation: Operation) -> bool {
        push(&mut self.operations, operation, if self.closed { 0 } else { MAX_OPERATIONS })
    }

    /// A new policy comes before batches of links under the one before, which it refuses.
    fn take(&mut self) -> Option<ReconcilerEvent> {
        use ReconcilerEvent as Event;
        (self.closed.then_some(Event::Closed))
            .or_else(|| self.policy.take().map(Event::Policy))
            .or_else(|| self.batches.pop_front().map(Event::Batch))
            .or_else(|| self.operations.pop_front().map(Event::Operation))
            .or_else(|| self.reincarnate.take().map(Event::Reincarnate))
            .or_else(|| std::mem::take(&mut self.approved).then_some(Event::Approved))
            .or_else(|| self.in_sync.take().map(Event::InSync))
            .or_else(|| std::mem::take(&mut self.changed).then_some(Event::Changed))
    }
}

fn push<T>(queue: &mut VecDeque<T>, one: T, most: usize) -> bool {
    let fits = queue.len() < most;
    if fits {
        queue.push_back(one);
    }
    fits
}

/// See the module.
#[derive(Default)]
pub(super) struct Mailbox {
    waiting: Mutex<Waiting>,
    posted: Condvar,
}

impl Mailbox {
    /// Changes what waits.
    pub(super) fn post<T>(&self, post: impl FnOnce(&mut Waiting) -> T) -> T {
        let posted = post(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        self.posted.notify_one();
        posted
    }

    /// What is to be done next; `None` when nothing comes in this time.
    pub(super) fn next(&self, within: Duration) -> Option<ReconcilerEvent> {
        let (waiting, mut next) = (self.waiting.lock().unwrap_or_else(PoisonError::into_inner), None);
        let take = |waiting: &mut Waiting| {
            next = waiting.take();
            next.is_none()
        };
        drop(self.posted.wait_timeout_while(waiting, within, take));
        next
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
        assert!(matches!(mailbox.next(Duration::ZERO), Some(ReconcilerEvent::InSync(999))));
        assert!(matches!(mailbox.next(Duration::ZERO), Some(ReconcilerEvent::Changed)));
        assert!(mailbox.next(Duration::ZERO).is_none(), "a thousand signals are one listing");
        mailbox.post(|waiting| (waiting.changed, waiting.closed) = (true, true));
        assert!(matches!(mailbox.next(Duration::MAX), Some(ReconcilerEvent::Closed)));
    }
}
