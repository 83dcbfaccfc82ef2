//! [`PrefixJournal`]: the address prefixes of which somebody authenticated, between a listener and whoever keeps them
//! over a restart (SCL-3).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::admission::{AddressPrefix, KNOWN_FOR, MAX_KNOWN};

/// How often at most one prefix is to be kept anew: for so much less than [`KNOWN_FOR`] a restart may know it.
pub const KEPT_EVERY: Duration = Duration::from_secs(3600);

/// Shared by its copies. Holds at most [`MAX_KNOWN`] prefixes of each sort.
#[derive(Clone, Debug, Default)]
pub struct PrefixJournal(Arc<Mutex<JournalState>>);

#[derive(Debug, Default)]
struct JournalState {
    restored: Vec<(AddressPrefix, Duration)>,
    /// When each was handed out last to be kept, or is to be.
    noted: HashMap<AddressPrefix, Instant>,
    waiting: HashMap<AddressPrefix, Instant>,
}

impl PrefixJournal {
    /// Prefixes as they were kept, each with how long ago somebody of it authenticated; the newest first, so that of
    /// too many the oldest are left out, as are those that count no more.
    pub fn restored(prefixes: impl IntoIterator<Item = (AddressPrefix, Duration)>) -> PrefixJournal {
        let known = prefixes.into_iter().filter(|(_, ago)| *ago <= KNOWN_FOR).take(MAX_KNOWN);
        let state = JournalState { restored: known.collect(), ..JournalState::default() };
        PrefixJournal(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, JournalState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The prefixes that are to be kept, each with how long ago somebody of it authenticated; they count as kept.
    pub fn take(&self, now: Instant) -> Vec<(AddressPrefix, Duration)> {
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.into_iter().map(|(prefix, at)| (prefix, now.saturating_duration_since(at))).collect()
    }

    /// What a listener begins with.
    pub(crate) fn known(&self) -> Vec<(AddressPrefix, Duration)> {
        self.lock().restored.clone()
    }

    /// Somebody of a prefix authenticated.
    pub(crate) fn note(&self, prefix: AddressPrefix, now: Instant) {
        let mut state = self.lock();
        let kept = state.noted.get(&prefix);
        if kept.is_some_and(|kept| now.saturating_duration_since(*kept) < KEPT_EVERY) {
            return;
        }
        if state.noted.len() >= MAX_KNOWN {
            // More than that are kept more often; nothing depends on it but how often.
            state.noted.clear();
        }
        state.noted.insert(prefix, now);
        if state.waiting.len() < MAX_KNOWN {
            state.waiting.insert(prefix, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: AddressPrefix = AddressPrefix::V4([10, 0, 0]);

    #[test]
    fn a_prefix_is_kept_once_an_hour_and_all_of_them_within_a_bound() {
        let (journal, now) = (PrefixJournal::default(), Instant::now());
        let later = |secs| now + Duration::from_secs(secs);
        journal.note(PREFIX, now);
        journal.note(PREFIX, later(5));
        assert_eq!(journal.take(later(5)), [(PREFIX, Duration::from_secs(5))]);
        journal.note(PREFIX, later(3599));
        assert_eq!(journal.take(later(3599)), []);
        journal.note(PREFIX, later(3600));
        assert_eq!(journal.take(later(3600)), [(PREFIX, Duration::ZERO)]);
        for number in 0..=(MAX_KNOWN as u32) {
            let [_, a, b, c] = number.to_be_bytes();
            journal.note(AddressPrefix::V4([a, b, c]), later(3601));
        }
        assert_eq!(journal.take(later(3601)).len(), MAX_KNOWN);
    }

    #[test]
    fn what_counts_no_more_is_not_restored() {
        let other = AddressPrefix::V4([10, 0, 1]);
        let kept = [(PREFIX, KNOWN_FOR), (other, KNOWN_FOR + Duration::from_secs(1))];
        assert_eq!(PrefixJournal::restored(kept).known(), [(PREFIX, KNOWN_FOR)]);
        let many = std::iter::repeat_n((PREFIX, Duration::ZERO), MAX_KNOWN + 1);
        assert_eq!(PrefixJournal::restored(many).known().len(), MAX_KNOWN);
    }
}
