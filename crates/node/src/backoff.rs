//! Waits: jitter around an interval, and exponential backoff with full jitter.

use std::time::Duration;

/// The first wait after a failure.
pub const FIRST: Duration = Duration::from_secs(1);
/// The longest wait after failures, whatever the channel's interval.
pub const LONGEST: Duration = Duration::from_secs(15 * 60);

/// A small deterministic generator for spreading waits; not for secrets. The seed is an
/// argument, so a run can be replayed.
#[derive(Clone, Debug)]
pub struct Spread(u64);

impl Spread {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Spread {
        Spread(seed)
    }

    /// A number (splitmix64).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An even choice from zero to `max`.
    pub fn up_to(&mut self, max: Duration) -> Duration {
        let millis = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(if millis == 0 { 0 } else { self.number() % (millis + 1) })
    }

    /// An interval moved either way by at most `percent` of itself.
    pub fn jitter(&mut self, interval: Duration, percent: u8) -> Duration {
        let reach = interval * u32::from(percent.min(100)) / 100;
        interval - reach + self.up_to(reach * 2)
    }

    /// The wait after `failures` in a row: doubling, capped, then an even choice of its
    /// upper half so that a fleet spreads and nobody hammers.
    pub fn backoff(&mut self, failures: u32, cap: Duration) -> Duration {
        let cap = cap.clamp(FIRST, LONGEST);
        let full = FIRST.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(cap);
        full / 2 + self.up_to(full / 2)
    }
}
