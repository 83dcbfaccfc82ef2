//! [`RefusalLimiter`]: a number at once, and then so many a second.

use std::time::Duration;

use model::Timestamp;

use super::{REFUSAL_EVERY, REFUSALS};

/// What may be said at once, as time that it counts for.
const AHEAD: Duration = REFUSAL_EVERY.saturating_mul(REFUSALS);

/// When the next one may be said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RefusalLimiter {
    /// When all that was said would have been, one after the other.
    until: Timestamp,
}

impl RefusalLimiter {
    /// When one more may be said; it counts as said then.
    pub(super) fn next(&mut self, now: Timestamp) -> Timestamp {
        self.until = self.until.max(now).plus(REFUSAL_EVERY);
        self.until.minus(AHEAD).max(now)
    }

    /// The clock was set back by this: that is no reason to wait any longer.
    pub(super) fn set_back(&mut self, by: Duration) {
        self.until = self.until.minus(by);
    }
}
