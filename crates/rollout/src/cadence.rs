//! When a node calls next (ROL-8): every node has a slot of the polling interval that follows from its
//! hostname, so that a fleet does not call all at once after a push.

use std::time::Duration;

use model::{Hostname, Timestamp};

use crate::placement::hashed;

/// How often a node calls at least while a rollout of its channel concerns it, in seconds.
pub const ROLLOUT_CONTACT_SECS: u64 = 60;

/// What concerns a node's next contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContactNeed {
    /// A rollout of its channel is to change it; its channel's own interval, in seconds.
    Rollout(u64),
    /// Nothing; its channel's own interval, in seconds.
    Idle(u64),
}

impl ContactNeed {
    /// How often the node calls, in seconds, at least 1. A rollout has nobody call less often than without it.
    pub fn interval_secs(self) -> u64 {
        match self {
            ContactNeed::Rollout(idle) => idle.clamp(1, ROLLOUT_CONTACT_SECS),
            ContactNeed::Idle(secs) => secs.max(1),
        }
    }
}

/// Seconds until a node is to call next, at least 1 and at most its interval: until the next time that its
/// slot comes round. A node that calls in its slot is told the whole interval.
pub fn next_checkin_secs(hostname: &Hostname, need: ContactNeed, now: Timestamp) -> u64 {
    let interval = need.interval_secs();
    let slot = slot(hostname, Duration::from_secs(interval)).as_secs();
    let into = u64::try_from(now.secs().rem_euclid(i64::try_from(interval).unwrap_or(i64::MAX))).unwrap_or(0);
    let wait = (slot + interval - into) % interval;
    if wait == 0 { interval } else { wait }
}

/// A node's slot of an interval, in whole seconds; the slots of many nodes are spread evenly.
pub fn slot(hostname: &Hostname, interval: Duration) -> Duration {
    let number = hashed([b"muster contact slot\0".as_slice()], hostname);
    Duration::from_secs(number % interval.as_secs().max(1))
}
