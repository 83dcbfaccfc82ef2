//! A node's share of what the control plane takes in (SCL-3).

use model::Timestamp;

/// What a node may send at once after a silence, in bytes: all that its log can hold.
pub const BURST: u64 = 64 * 1024 * 1024;
/// What it may send for ever, in bytes a second.
pub const RATE: u64 = 16 * 1024;

/// A bucket of bytes that fills with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteBudget {
    left: u64,
    at: Timestamp,
}

impl Default for ByteBudget {
    fn default() -> ByteBudget {
        ByteBudget { left: BURST, at: Timestamp::default() }
    }
}

impl ByteBudget {
    /// Takes bytes out; `false`, and nothing is taken, when there are not as many.
    pub fn take(&mut self, bytes: u64, now: Timestamp) -> bool {
        self.fill(now);
        if bytes > self.left {
            return false;
        }
        self.left -= bytes;
        true
    }

    /// The bytes that there are.
    pub fn left(&mut self, now: Timestamp) -> u64 {
        self.fill(now);
        self.left
    }

    fn fill(&mut self, now: Timestamp) {
        let filled = now.since(self.at).as_secs().saturating_mul(RATE);
        if filled > 0 {
            self.left = self.left.saturating_add(filled).min(BURST);
            self.at = now;
        }
    }
}
