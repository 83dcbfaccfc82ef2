//! When a host that was not let in yet asks again (ENR-9, WIR-6): [`JoinPatience`].

use std::time::Duration;

use model::Timestamp;

use crate::backoff::Spread;

/// The longest wait between two tries, jitter left out.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// A wait is lengthened by up to so many percent of itself, so that hosts that were told the same do not come together.
const JITTER_PERCENT: u32 = 20;

/// Why a try did not end the join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinDelay {
    /// The control plane said when to come back, in this time.
    Asked(Duration),
    /// It could not be reached, or said nothing of when.
    Unknown,
}

/// For how long a host asks to be let in, and how often.
#[derive(Clone, Debug)]
pub struct JoinPatience {
    until: Timestamp,
    spread: Spread,
    failures: u32,
}

impl JoinPatience {
    /// Until then; `seed` spreads the waits of hosts.
    pub fn new(until: Timestamp, seed: u64) -> JoinPatience {
        JoinPatience { until, spread: Spread::new(seed), failures: 0 }
    }

    /// How long to wait before the next try; `None` when there is none any more.
    pub fn wait(&mut self, delay: JoinDelay, now: Timestamp) -> Option<Duration> {
        let wait = match delay {
            JoinDelay::Asked(wait) => {
                self.failures = 0;
                let wait = wait.clamp(Duration::from_secs(1), LONGEST_WAIT);
                wait + self.spread.up_to(wait * JITTER_PERCENT / 100)
            }
            JoinDelay::Unknown => {
                self.failures = self.failures.saturating_add(1);
                self.spread.backoff(self.failures, LONGEST_WAIT)
            }
        };
        (now.plus(wait) <= self.until).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WIR-6: never sooner than told, at most a fifth later, and not for ever.
    #[test]
    fn a_host_comes_back_when_it_was_told_to() {
        let now = Timestamp::from_secs(1_800_000_000);
        let mut patience = JoinPatience::new(now.plus(Duration::from_secs(3600)), 7);
        for told in [0, 1, 15, 300, 86_400] {
            let told = Duration::from_secs(told);
            let least = told.clamp(Duration::from_secs(1), LONGEST_WAIT);
            let wait = patience.wait(JoinDelay::Asked(told), now).unwrap_or_default();
            assert!(wait >= least && wait <= least * 6 / 5, "{told:?}: {wait:?}");
        }
        let waits: Vec<_> =
            (0..20).map(|_| patience.wait(JoinDelay::Unknown, now).unwrap_or_default()).collect();
        assert!(waits[0] <= Duration::from_secs(1) && waits.iter().all(|wait| *wait <= LONGEST_WAIT));
        // A wait grows while nobody says how long, and no longer than that.
        assert!(waits[19] > waits[0] * 10, "{waits:?}");
        patience.wait(JoinDelay::Asked(Duration::from_secs(15)), now);
        assert!(patience.wait(JoinDelay::Unknown, now) <= Some(Duration::from_secs(1)));
        // Those who were told the same come at different times.
        let spread = |seed| {
            let mut patience = JoinPatience::new(now.plus(Duration::from_secs(3600)), seed);
            patience.wait(JoinDelay::Asked(Duration::from_secs(100)), now).unwrap_or_default()
        };
        assert!((0..20).any(|seed| spread(seed) > Duration::from_secs(110)));
        // The last moment is one at which it may ask.
        for (short, want) in [(0, Some(spread(3))), (1, None)] {
            let until = now.plus(spread(3)).minus(Duration::from_millis(short));
            let wait = JoinPatience::new(until, 3).wait(JoinDelay::Asked(Duration::from_secs(100)), now);
            assert_eq!(wait, want);
        }
        let late = now.plus(Duration::from_secs(3590));
        assert_eq!(patience.wait(JoinDelay::Asked(Duration::from_secs(15)), late), None);
    }
}
