//! What becomes of a batch: what is done counts, what failed is tried again, rejected or evicted
//! (SYN-12).
//!
//! ```text
//! Done ----------> replica, acknowledged
//! Temporary -----> held, tried again; after `shown_after` tries rejected as `fails-for-now`, still tried
//! Recoverable ---> held, fetched anew at most `refetches` times, then rejected
//!                  either without room to hold it: evicted, a resync brings it again
//! Permanent -----> rejected: the source gets an `error`, the set as received has it
//! NotDurable ----> all of the batch is Temporary; the next batch waits as long as a first retry
//! ```
//!
//! Invariants: the cursor stays below what is held, until that is rejected; roots are different while
//! something is evicted.

use std::time::Duration;

use model::ObjectKey;

use super::batch::{ApplyItem, ItemOutcome, NotDurable};
use super::inbox::{Hold, PendingItem};
use super::inventory_resync::resource;
use super::types::Note;
use super::{Cx, Link};
use crate::frame::{Frame, Interop, Op, Refused};
use crate::refusal;
use crate::replica::RejectedObject;

/// The longest wait before a retry.
const RETRY_LONGEST: Duration = Duration::from_secs(60);

impl Link {
    /// A batch is durable, or nothing of it is.
    pub(super) fn applied(&mut self, outcomes: Result<Vec<ItemOutcome>, NotDurable>, cx: &mut Cx<'_>) {
        let Some(in_flight) = self.inbox.in_flight.take() else { return };
        let batch = in_flight.batch;
        let outcomes = match outcomes {
            Ok(mut outcomes) => {
                let unsaid = || ItemOutcome::Temporary("the shell said nothing of it".to_owned());
                outcomes.resize_with(batch.items.len(), unsaid);
                if let Some(cursor) = batch.cursor(&outcomes) {
                    cx.replica.set_cursor(cursor);
                }
                outcomes
            }
            Err(NotDurable(why)) => {
                self.inbox.batch_again = Some(cx.now.plus(self.config.limits.retry_first));
                vec![ItemOutcome::Temporary(why); batch.items.len()]
            }
        };
        let mut oldest = i64::MAX;
        let mut done = 0;
        for (item, outcome) in batch.items.iter().zip(outcomes) {
            match outcome {
                ItemOutcome::Done => {
                    done += 1;
                    oldest = if item.at > 0 { oldest.min(item.at) } else { oldest };
                    match &item.change {
                        Op::Put { stub, .. } => cx.replica.put(item.key.clone(), stub.clone(), item.rev),
                        Op::Delete { .. } => cx.replica.remove(&item.key),
                    }
                }
                other => {
                    let pending = PendingItem { item: item.clone(), hold: Hold::Ready, due: cx.now };
                    self.failed(pending, other, cx);
                }
            }
        }
        self.counters.applied += done as u64;
        if done > 0 {
            cx.note(Note::Applied { items: done, oldest: if oldest == i64::MAX { 0 } else { oldest } });
        }
        if cx.replica.forget_what_fits(self.config.limits.replica) {
            self.want_resync(cx);
        }
        self.inbox.forget_uptos();
        self.inbox.ack_due = true;
    }

    /// An item did not work out.
    pub(super) fn failed(&mut self, mut pending: PendingItem, outcome: ItemOutcome, cx: &mut Cx<'_>) {
        let newer = self.inbox.waiting.contains_key(&pending.item.key);
        if newer && !matches!(outcome, ItemOutcome::Permanent { .. }) {
            self.counters.superseded += 1;
            return;
        }
        pending.item.tries += 1;
        let wait = self.config.limits.retry_first * (1 << (pending.item.tries - 1).min(16));
        pending.due = cx.now.plus(wait.min(RETRY_LONGEST));
        let bytes = pending.item.change.content_len();
        match outcome {
            ItemOutcome::Permanent { code, message } => {
                return self.reject(&pending.item, &code, message, cx);
            }
            ItemOutcome::Recoverable(why) if pending.item.tries > self.config.limits.refetches => {
                let message = format!("fetched anew {} times: {why}", self.config.limits.refetches);
                return self.reject(&pending.item, refusal::RECOVERY_FAILED, message, cx);
            }
            ItemOutcome::Temporary(why) | ItemOutcome::Recoverable(why)
                if !self.inbox.may_hold(bytes, &self.config.limits) =>
            {
                return self.evict(pending.item, why, cx);
            }
            ItemOutcome::Temporary(why) => {
                pending.hold = Hold::Retry;
                self.release(&mut pending, why, cx);
            }
            ItemOutcome::Recoverable(_) => {
                pending.hold = Hold::Fetch;
                self.refetch(&pending.item.key, cx);
            }
            ItemOutcome::Done => pending.hold = Hold::Retry,
        }
        // Acknowledgements go on past what waits, as long as there is room for it.
        if pending.item.seq > 0 && self.inbox.held.objects < self.config.limits.pending_retries {
            pending.item.seq = 0;
        }
        self.inbox.insert(pending);
    }

    /// What fails again and again is shown as out of sync, and the source gets an `error`; the cursor and
    /// comparisons go on without it. When the link or the process ends before it works, the roots will
    /// differ, and a resync brings it again.
    fn release(&mut self, pending: &mut PendingItem, why: String, cx: &mut Cx<'_>) {
        let (limits, item) = (&self.config.limits, &mut pending.item);
        let released = || self.inbox.waiting.values().filter(|other| other.item.released).count();
        if item.tries < limits.shown_after || item.released || released() >= limits.pending_retries {
            return;
        }
        (item.seq, item.released) = (0, true);
        self.report_rejection(item, refusal::FAILS, why, cx);
    }

    /// There is no room to hold it for a retry: a comparison finds it again, in a while.
    fn evict(&mut self, item: ApplyItem, why: String, cx: &mut Cx<'_>) {
        let ApplyItem { key, rev, .. } = item;
        let code = refusal::FAILS.to_owned();
        cx.send(Frame::Refused(Box::new(Refused { rev, key, code, message: why })));
        cx.replica.evict();
        self.want_resync(cx);
        self.inbox.ack_due = true;
    }

    /// An object is never taken.
    pub(super) fn reject(&mut self, item: &ApplyItem, code: &str, message: String, cx: &mut Cx<'_>) {
        self.counters.refused_here += 1;
        self.report_rejection(item, code, message, cx);
    }

    /// Says here and there that an object is not taken, or not for now; here of many in a short time the
    /// first alone.
    fn report_rejection(&mut self, item: &ApplyItem, code: &str, message: String, cx: &mut Cx<'_>) {
        let rejected = RejectedObject::of(&item.change, item.rev, code, message);
        let (key, code, message) = (item.key.clone(), code.to_owned(), rejected.message.clone());
        let refused = Refused { rev: item.rev, key, code, message };
        self.note_some(Note::RefusedHere(refused.clone()), cx);
        cx.send(Frame::Refused(Box::new(refused)));
        cx.replica.reject(item.key.clone(), rejected);
        self.inbox.ack_due = true;
    }

    fn refetch(&mut self, key: &ObjectKey, cx: &mut Cx<'_>) {
        let resource = resource(key, "", None);
        cx.send(Frame::Interop(Box::new(Interop::RequestUpdate(resource))));
    }
}
