//! [`Mailbox`]: what waits for the reconciler.
//!
//! Each batch matters, and the link that sent it waits for what became of it. All else is a level:
//! a folder that changed a thousand times while it was being listed is listed once more.
//!
//! Invariants: posting never waits; at most [`MAX_BATCHES`] batches wait, and one more is refused.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::replication::SyncPolicy;
use sync::link::{Batch, Outcome};
use tokio::sync::oneshot;

/// The most batches that wait. A link sends one at a time, and there is one link; those of links
/// that ended may be there still.
const MAX_BATCHES: usize = 8;

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
    /// Another release is held, which says this.
    Policy(SyncPolicy),
    /// Begin the own set in a new incarnation, and answer.
    Reincarnate(Vec<oneshot::Sender<()>>),
    /// An operator confirms that what vanished is to be deleted.
    Approved,
    /// Both sides compared what the control plane wants, under rules of this number, and it is
    /// equal.
    InSync(u64),
    /// Something in the backend changed.
    Changed,
    /// The last handle is gone.
    Closed,
}

#[derive(Default)]
struct Waiting {
    batches: VecDeque<BatchRequest>,
    policy: Option<SyncPolicy>,
    reincarnate: Vec<oneshot::Sender<()>>,
    approved: bool,
    in_sync: Option<u64>,
    changed: bool,
    closed: bool,
}

impl Waiting {
    /// A new policy comes before batches of links under the one before, which it refuses.
    fn take(&mut self) -> Option<ReconcilerEvent> {
        if self.closed {
            return Some(ReconcilerEvent::Closed);
        }
        if let Some(policy) = self.policy.take() {
            return Some(ReconcilerEvent::Policy(policy));
        }
        if let Some(request) = self.batches.pop_front() {
            return Some(ReconcilerEvent::Batch(request));
        }
        if !self.reincarnate.is_empty() {
            return Some(ReconcilerEvent::Reincarnate(std::mem::take(&mut self.reincarnate)));
        }
        if std::mem::take(&mut self.approved) {
            return Some(ReconcilerEvent::Approved);
        }
        if let Some(rules) = self.in_sync.take() {
            return Some(ReconcilerEvent::InSync(rules));
        }
        std::mem::take(&mut self.changed).then_some(ReconcilerEvent::Changed)
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Mailbox {
    waiting: Mutex<Waiting>,
    posted: Condvar,
}

impl Mailbox {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post<T>(&self, post: impl FnOnce(&mut Waiting) -> T) -> T {
        let posted = post(&mut self.waiting());
        self.posted.notify_one();
        posted
    }

    /// Posts a batch; gives it back when too many wait.
    pub(super) fn batch(&self, request: BatchRequest) -> Result<(), BatchRequest> {
        self.post(|waiting| {
            if waiting.closed || waiting.batches.len() >= MAX_BATCHES {
                return Err(request);
            }
            waiting.batches.push_back(request);
            Ok(())
        })
    }

    /// Posts [`ReconcilerEvent::Policy`]; the newest one counts.
    pub(super) fn policy(&self, policy: SyncPolicy) {
        self.post(|waiting| waiting.policy = Some(policy));
    }

    /// Posts [`ReconcilerEvent::Reincarnate`]; done once for all who ask meanwhile.
    pub(super) fn reincarnate(&self, answer: oneshot::Sender<()>) {
        self.post(|waiting| {
            waiting.reincarnate.retain(|waits| !waits.is_closed());
            waiting.reincarnate.push(answer);
        });
    }

    /// Posts [`ReconcilerEvent::Approved`].
    pub(super) fn approved(&self) {
        self.post(|waiting| waiting.approved = true);
    }

    /// Posts [`ReconcilerEvent::InSync`]; the newest rules count.
    pub(super) fn in_sync(&self, rules: u64) {
        self.post(|waiting| waiting.in_sync = Some(rules));
    }

    /// Posts [`ReconcilerEvent::Changed`].
    pub(super) fn changed(&self) {
        self.post(|waiting| waiting.changed = true);
    }

    /// Posts [`ReconcilerEvent::Closed`].
    pub(super) fn close(&self) {
        self.post(|waiting| waiting.closed = true);
    }

    /// What is to be done next; `None` when nothing comes in this time.
    pub(super) fn next(&self, within: Duration) -> Option<ReconcilerEvent> {
        let empty = |waiting: &mut Waiting| waiting.is_empty();
        let waited = self.posted.wait_timeout_while(self.waiting(), within, empty);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.take()
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        let Waiting { batches, policy, reincarnate, approved, in_sync, changed, closed } = self;
        let levels = *approved || *changed || *closed;
        batches.is_empty() && policy.is_none() && reincarnate.is_empty() && in_sync.is_none() && !levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_folder_is_listed_once() {
        let mailbox = Mailbox::default();
        for rules in 0..1000 {
            mailbox.changed();
            mailbox.in_sync(rules);
        }
        assert!(matches!(mailbox.next(Duration::ZERO), Some(ReconcilerEvent::InSync(999))));
        assert!(matches!(mailbox.next(Duration::ZERO), Some(ReconcilerEvent::Changed)));
        assert!(mailbox.next(Duration::ZERO).is_none(), "a thousand signals are one listing");
        mailbox.changed();
        mailbox.close();
        assert!(matches!(mailbox.next(Duration::MAX), Some(ReconcilerEvent::Closed)));
    }
}
