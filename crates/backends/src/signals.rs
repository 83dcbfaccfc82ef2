//! [`Signals`]: what happened in a backend, for the one who watches it.
//!
//! Signals are hints: who gets one looks. So those not yet taken are merged, the sender never
//! waits, and the bound is the number of keys remembered.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::ObjectKey;

/// The most keys in one signal; beyond, the whole backend has changed.
pub const MAX_KEYS: usize = 10_000;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Somebody else changed something.
    Changed(Changes),
    /// The backend is gone, and why. Nothing is deleted by that.
    Gone(String),
    /// It is there again: look at everything.
    Back,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// These objects: made, edited, deleted, or with another status. None when only the
    /// problems or the completeness of the listing changed.
    Keys(BTreeSet<ObjectKey>),
    /// Any.
    Everything,
}

/// The receiving end. Dropping it ends the watch.
#[derive(Debug)]
pub struct Signals {
    shared: Arc<Shared>,
    /// Ends what the sender runs for this watch.
    #[expect(dead_code, reason = "held for its drop")]
    guard: Option<Guard>,
}

/// The sending end.
#[derive(Clone, Debug)]
pub(crate) struct Sender(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    pending: Mutex<Pending>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Pending {
    changes: Option<Changes>,
    /// The last word on being there.
    presence: Option<Presence>,
}

#[derive(Debug)]
enum Presence {
    Gone(String),
    Back,
}

/// Runs something when dropped.
struct Guard(Option<Box<dyn FnOnce() + Send>>);

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

/// Both ends; `end` runs when the receiving one is dropped.
pub(crate) fn pair(end: Option<Box<dyn FnOnce() + Send>>) -> (Sender, Signals) {
    let shared = Arc::new(Shared::default());
    let guard = end.map(|end| Guard(Some(end)));
    (Sender(shared.clone()), Signals { shared, guard })
}

impl Signals {
    /// The next signal, if there is one.
    pub fn try_next(&self) -> Option<Signal> {
        self.shared.lock().take()
    }

    /// The next signal, waiting for it at most `timeout`.
    pub fn next(&self, timeout: Duration) -> Option<Signal> {
        let idle = |pending: &mut Pending| pending.changes.is_none() && pending.presence.is_none();
        let waited = self.shared.wake.wait_timeout_while(self.shared.lock(), timeout, idle);
        let (mut pending, _) = waited.unwrap_or_else(PoisonError::into_inner);
        pending.take()
    }
}

impl Sender {
    /// Tells, unless nothing happened.
    pub(crate) fn send(&self, signal: Signal) {
        let mut pending = self.0.lock();
        match signal {
            Signal::Changed(changes) => pending.merge(changes),
            Signal::Gone(why) => pending.presence = Some(Presence::Gone(why)),
            Signal::Back => pending.presence = Some(Presence::Back),
        }
        drop(pending);
        self.0.wake.notify_all();
    }
}

impl Shared {
    /// A holder that panicked left at worst a hint too few merged.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn take(&mut self) -> Option<Signal> {
        match self.presence.take() {
            Some(Presence::Gone(why)) => return Some(Signal::Gone(why)),
            Some(Presence::Back) => return Some(Signal::Back),
            None => {}
        }
        self.changes.take().map(Signal::Changed)
    }

    fn merge(&mut self, new: Changes) {
        self.changes = Some(match (self.changes.take(), new) {
            (None, new) => new,
            (Some(Changes::Keys(mut old)), Changes::Keys(new)) => {
                old.extend(new);
                if old.len() > MAX_KEYS { Changes::Everything } else { Changes::Keys(old) }
            }
            _ => Changes::Everything,
        });
    }
}
