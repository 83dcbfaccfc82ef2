//! [`PrefixLimits`]: how often those who show no certificate may ask for one thing, by the prefix of their address.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use model::Timestamp;
use net::admission::AddressPrefix;
use sync::admission::RateLimiter;
use wire::Code;

/// The most address prefixes that are counted; beyond them others are refused.
const MAX_PREFIXES: usize = 4096;
/// After so long a prefix is forgotten: by then it may ask as often as one that is new.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// How often something was asked for from where lately.
pub(crate) struct PrefixLimits {
    /// Of one prefix in a second, after a burst.
    per_sec: u32,
    /// Of one prefix at once after a rest; at most what comes again until it is forgotten.
    at_once: u32,
    prefixes: Mutex<BTreeMap<AddressPrefix, PrefixRequests>>,
}

struct PrefixRequests {
    limiter: RateLimiter,
    last: Timestamp,
}

impl PrefixLimits {
    pub(crate) fn new(per_sec: u32, at_once: u32) -> PrefixLimits {
        PrefixLimits { per_sec, at_once, prefixes: Mutex::default() }
    }

    /// Takes one.
    ///
    /// # Errors
    /// [`Code::Busy`] where the prefix asks too often, or too many prefixes ask.
    pub(crate) fn take(&self, prefix: AddressPrefix, now: Timestamp) -> Result<(), Code> {
        let mut prefixes = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        if prefixes.len() >= MAX_PREFIXES && !prefixes.contains_key(&prefix) {
            prefixes.retain(|_, requests| now.since(requests.last) < FORGOTTEN_AFTER);
            if prefixes.len() >= MAX_PREFIXES {
                return Err(Code::Busy);
            }
        }
        let limiter = || RateLimiter::new(self.per_sec, self.at_once, now);
        let requests =
            prefixes.entry(prefix).or_insert_with(|| PrefixRequests { limiter: limiter(), last: now });
        requests.last = now;
        requests.limiter.take(now).map_err(|_| Code::Busy)
    }
}
