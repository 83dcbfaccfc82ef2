//! [`Mailbox`]: what waits for the reconciler.
//!
//! ```text
//! post(|waiting| ..), run(job) --> MailboxContents --next--> all of it, in one round of the reconciler
//! ```
//!
//! Each job (a batch, an operation) matters, and its sender waits for what it comes to. All else is a
//! level: a folder that changed a thousand times while it was being listed is listed once more.
//!
//! Invariants: posting never waits; at most [`MAX_JOBS`] jobs wait, and one more is refused.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use model::replication::SyncPolicy;

use super::reconciler::Reconciler;

/// The most jobs that wait. A link sends one batch at a time, and there is one link; few operations
/// run at a time. Those of links that ended, and operations that were given up, may be there still.
const MAX_JOBS: usize = 24;

/// What is done on the reconciler's thread.
type ReconcilerJob = Box<dyn FnOnce(&mut Reconciler) + Send>;

/// What was posted and not taken.
#[derive(Default)]
pub(super) struct MailboxContents {
    pub(super) jobs: Vec<ReconcilerJob>,
    /// Another release is held, which says this.
    pub(super) policy: Option<SyncPolicy>,
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

/// See the module.
#[derive(Default)]
pub(super) struct Mailbox {
    /// `None`: nothing was posted.
    waiting: Mutex<Option<MailboxContents>>,
    posted: Condvar,
}

impl Mailbox {
    /// Changes what waits.
    pub(super) fn post<T>(&self, post: impl FnOnce(&mut MailboxContents) -> T) -> T {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.posted.notify_one();
        post(waiting.get_or_insert_default())
    }

    /// Has the reconciler do a job; `false` when too many wait, or none is done any more.
    pub(super) fn run(&self, job: impl FnOnce(&mut Reconciler) + Send + 'static) -> bool {
        self.post(|waiting| {
            let room = !waiting.closed && waiting.jobs.len() < MAX_JOBS;
            if room {
                waiting.jobs.push(Box::new(job));
            }
            room
        })
    }

    /// What is to be done next: all that waits, which is nothing when nothing comes in this time.
    pub(super) fn next(&self, within: Duration) -> MailboxContents {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.posted.wait_timeout_while(waiting, within, |waiting| waiting.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_folder_is_listed_once_and_jobs_are_bounded() {
        let mailbox = Mailbox::default();
        for rules in 0..1000 {
            mailbox.post(|waiting| (waiting.changed, waiting.in_sync) = (true, Some(rules)));
        }
        let all = mailbox.next(Duration::MAX);
        assert!(all.changed && all.in_sync == Some(999), "a thousand signals are one listing");
        assert!(!mailbox.next(Duration::ZERO).changed);
        let ran = (0..=MAX_JOBS).map(|_| mailbox.run(|_| ()));
        assert_eq!(ran.filter(|ran| *ran).count(), MAX_JOBS, "one more is refused");
        mailbox.post(|waiting| waiting.closed = true);
        assert!(mailbox.next(Duration::MAX).closed);
    }
}
