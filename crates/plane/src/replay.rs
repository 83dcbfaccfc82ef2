//! Refuses replays with sixteen bytes a node (IDN-4).

/// How far below the highest number seen a request may still arrive, out of order.
pub const WIDTH: u64 = 64;

/// A sliding window over a node's request numbers, which only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    highest: u64,
    seen: u64,
}

impl Window {
    /// The highest number seen.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// Whether this number is new. Call only for requests whose signature held.
    pub fn accept(&mut self, number: u64) -> bool {
        if number > self.highest {
            let ahead = number - self.highest;
            self.seen = if ahead >= WIDTH { 0 } else { self.seen << ahead };
            self.seen |= 1;
            self.highest = number;
            return true;
        }
        let behind = self.highest - number;
        if behind >= WIDTH || self.seen & (1 << behind) != 0 {
            return false;
        }
        self.seen |= 1 << behind;
        true
    }
}
