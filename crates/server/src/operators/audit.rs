//! [`RequestAudit`]: the one entry of a request in the audit log, and how many refusals get one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use model::Timestamp;
use store::Store;
use store::audit::{AuditDraft, AuditSubject};
use wire::Problem;

use crate::answer::{chain, store_problem};

/// The most refusals of one author that get entries within a minute; the next entry says how many did not.
const REFUSALS_IN_MINUTE: u32 = 20;
/// The most authors whose refusals are counted; of others none gets an entry meanwhile.
const MAX_REFUSED_AUTHORS: usize = 2 * crate::api::operators::MAX_OPERATORS;
/// A minute, in milliseconds.
const MINUTE: i64 = 60_000;

/// The entry of one request.
pub(crate) struct RequestAudit {
    store: Arc<Store>,
    draft: Mutex<AuditDraft>,
    /// It changes nothing after all.
    unwritten: AtomicBool,
    /// Whatever is written has the entry in its transaction.
    with_writes: AtomicBool,
}

impl RequestAudit {
    /// The entry of a request of this id for an operation (`POST /v1/tasks`).
    pub(crate) fn new(
        store: Arc<Store>,
        at: Timestamp,
        by: &str,
        request: &str,
        operation: String,
    ) -> RequestAudit {
        let (by, request) = (by.to_owned(), request.to_owned());
        let subject = AuditSubject::default();
        let draft = AuditDraft { at, by, request, operation, subject, refused: None, left_out: 0 };
        let (unwritten, with_writes) = (AtomicBool::new(false), AtomicBool::new(false));
        RequestAudit { store, draft: Mutex::new(draft), unwritten, with_writes }
    }

    fn draft(&self) -> AuditDraft {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn about(&self, subject: AuditSubject) {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner).subject = subject;
    }

    /// The store, whose first write makes the entry durable too, in one transaction.
    pub(crate) fn store(&self, subject: AuditSubject) -> Arc<Store> {
        self.about(subject);
        self.with_writes.store(true, Ordering::Relaxed);
        Arc::new(self.store.recording(self.draft()))
    }

    /// Makes the entry durable before what is done, where that is no write of the store.
    pub(crate) async fn record(&self, subject: AuditSubject) -> Result<(), Problem> {
        self.about(subject);
        self.store.append_audit(self.draft()).await.map_err(store_problem)
    }

    /// The request was to say what would be done.
    pub(crate) fn nothing_is_written(&self) {
        self.unwritten.store(true, Ordering::Relaxed);
    }

    /// What was done has its entry; what turned out to change nothing gets one where that can be written.
    pub(crate) async fn done(&self) -> Result<(), Problem> {
        if self.unwritten.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.store.append_audit(self.draft()).await {
            Err(error) if self.with_writes.load(Ordering::Relaxed) => {
                tracing::warn!(error = %chain(&error), "a request that changed nothing has no entry in the audit log");
                Ok(())
            }
            appended => appended.map_err(store_problem),
        }
    }

    /// It was refused.
    pub(crate) async fn refused(&self, refusals: &Refusals, code: &str) {
        let draft = self.draft();
        let Some(left_out) = refusals.admit(&draft.by, draft.at) else { return };
        let draft = AuditDraft { refused: Some(code.to_owned()), left_out, ..draft };
        if let Err(error) = self.store.append_refusal(draft).await {
            tracing::warn!(error = %chain(&error), "a refusal could not be written into the audit log");
        }
    }
}

/// How many refusals had entries lately.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<String, RefusedLately>>);

/// The refusals of one author within a minute.
#[derive(Clone, Copy)]
struct RefusedLately {
    since: Timestamp,
    count: u32,
    left_out: u64,
}

impl Refusals {
    /// Whether a refusal gets an entry: how many before it did not, or `None`.
    fn admit(&self, author: &str, at: Timestamp) -> Option<u64> {
        let mut authors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if authors.len() >= MAX_REFUSED_AUTHORS && !authors.contains_key(author) {
            authors.retain(|_, lately| lately.left_out > 0 || lately.is_of(at));
            if authors.len() >= MAX_REFUSED_AUTHORS {
                return None;
            }
        }
        let new = RefusedLately { since: at, count: 0, left_out: 0 };
        let lately = authors.entry(author.to_owned()).or_insert(new);
        if !lately.is_of(at) {
            *lately = RefusedLately { left_out: lately.left_out, ..new };
        }
        if lately.count >= REFUSALS_IN_MINUTE {
            lately.left_out += 1;
            return None;
        }
        lately.count += 1;
        Some(std::mem::take(&mut lately.left_out))
    }
}

impl RefusedLately {
    /// The minute that it counts is not over; one that began in the future is, as the clock was set back.
    fn is_of(&self, at: Timestamp) -> bool {
        (0..MINUTE).contains(&at.0.saturating_sub(self.since.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_beyond_their_rate_are_counted() {
        let refusals = Refusals::default();
        let at = |ms| Timestamp(1_000_000 + ms);
        let admitted = (0..100).filter(|ms| refusals.admit("eve", at(*ms)).is_some()).count();
        assert_eq!(admitted, REFUSALS_IN_MINUTE as usize);
        assert_eq!(refusals.admit("alice", at(50)), Some(0), "one does not count for another");
        assert_eq!(refusals.admit("eve", at(MINUTE - 1)), None);
        assert_eq!(refusals.admit("eve", at(MINUTE)), Some(81), "the next entry says how many had none");
        assert_eq!(refusals.admit("eve", at(MINUTE + 1)), Some(0));
    }
}
