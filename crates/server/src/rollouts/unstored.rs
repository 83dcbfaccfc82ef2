//! [`UnstoredRollouts`]: rollouts that memory is ahead of, as a commit failed, and when they are read again (SCL-3).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rollout::{RolloutCommit, RolloutKey};

/// How long nothing that comes by itself (events, contacts, time) is decided after a commit failed; doubled with each one in a
/// row. People, and what is published, ask the store at once.
const WAIT: Duration = Duration::from_secs(1);
/// The longest such wait.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// What is to be read again before anything more is decided. A store that takes nothing has these read once for each
/// wait, and neither for each event nor each second.
#[derive(Debug, Default)]
pub(super) struct UnstoredRollouts {
    keys: BTreeSet<RolloutKey>,
    /// Commits in a row that failed.
    failures: u32,
    waits_until: Option<Instant>,
}

impl UnstoredRollouts {
    /// What these say is in memory, and not in the store.
    pub(super) fn failed(&mut self, commits: &[RolloutCommit], now: Instant) {
        let changes = commits.iter().flat_map(|commit| &commit.rollouts);
        self.keys.extend(changes.map(|change| change.document.key.clone()));
        let doubled = WAIT.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        self.waits_until = Some(now + doubled.min(MAX_WAIT));
    }

    /// Nothing is tried yet.
    pub(super) fn waits(&self, now: Instant) -> bool {
        self.waits_until.is_some_and(|until| now < until)
    }

    /// What is to be read.
    pub(super) fn keys(&self) -> Vec<RolloutKey> {
        self.keys.iter().cloned().collect()
    }

    /// They were read.
    pub(super) fn read(&mut self) {
        self.keys.clear();
    }

    /// A commit was stored.
    pub(super) fn stored(&mut self) {
        (self.failures, self.waits_until) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_doubled_and_bounded_until_a_commit_is_stored() {
        let (began, mut unstored) = (Instant::now(), UnstoredRollouts::default());
        let waits = |unstored: &UnstoredRollouts, secs| unstored.waits(began + Duration::from_secs(secs));
        assert!(!waits(&unstored, 0));
        for (failures, wait) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (7, 30)] {
            unstored.failed(&[], began);
            unstored.read();
            assert!(waits(&unstored, wait - 1) && !waits(&unstored, wait), "{failures}");
        }
        unstored.stored();
        assert!(!waits(&unstored, 0));
        unstored.failed(&[], began);
        assert!(!waits(&unstored, 1), "it begins anew");
    }
}
