//! [`CountedAnswers`]: how often a node answers what it is asked of a rollout, whoever asks.

use std::time::Duration;

use model::Timestamp;

/// The most answers to dispatches within [`ANSWERS_WITHIN`]. A control plane asks a node again after a minute at the
/// earliest; one that goes on asking with other words would have it write and call without end.
const MAX_ANSWERS: u32 = 10;
/// See [`MAX_ANSWERS`].
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// Answers to dispatches since a time.
#[derive(Debug, Default)]
pub(super) struct CountedAnswers {
    since: Timestamp,
    count: u32,
}

impl CountedAnswers {
    /// Counts one more, where it may be given.
    pub(super) fn may_answer(&mut self, now: Timestamp) -> bool {
        if now < self.since || now.since(self.since) >= ANSWERS_WITHIN {
            *self = CountedAnswers { since: now, count: 0 };
        }
        let may = self.count < MAX_ANSWERS;
        self.count += u32::from(may);
        may
    }
}
