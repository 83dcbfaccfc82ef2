//! [`Signal`]: a number that tasks wait for: the last change of a feed, or what became of a connection.
//!
//! Invariant: who waits looks at the number after it is woken by each change, so none is missed that
//! lasts; numbers in between may be.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// A number that any number of tasks wait for: what [`tokio::sync::watch`] is, in a sixth of its memory,
/// as each connection and each node has some.
#[derive(Debug, Default)]
pub struct Signal {
    value: AtomicU64,
    news: Notify,
}

impl Signal {
    /// With this number.
    pub fn new(value: u64) -> Signal {
        Signal { value: AtomicU64::new(value), news: Notify::new() }
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    /// Puts another number in its place.
    pub fn set(&self, value: u64) {
        self.value.store(value, Ordering::Release);
        self.news.notify_waiters();
    }

    /// Sets some of its bits.
    pub fn raise(&self, bits: u64) {
        self.value.fetch_or(bits, Ordering::AcqRel);
        self.news.notify_waiters();
    }

    /// Waits until the number is as wanted; gives it. Numbers in between may be missed.
    pub async fn until(&self, wanted: impl Fn(u64) -> bool) -> u64 {
        let mut news = pin!(self.news.notified());
        loop {
            // Before looking, so that nothing is missed in between.
            news.as_mut().enable();
            let value = self.get();
            if wanted(value) {
                return value;
            }
            news.as_mut().await;
            news.set(self.news.notified());
        }
    }
}
