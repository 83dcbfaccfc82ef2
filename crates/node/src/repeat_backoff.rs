//! [`RepeatBackoff`]: how often something costly is done when it is requested again and again.
//!
//! ```text
//! requested -> due at once; again soon -> due after FIRST, twice as long, ... , at most `longest`
//! ```
//!
//! A value: time is an argument. Invariants: what is requested while it is due anyway is done once; nothing
//! that was requested is left undone; after a quiet time the first is at once again.

use std::time::Duration;

use model::Timestamp;

/// The wait after the first time it was done; it doubles with each.
pub const FIRST: Duration = Duration::from_secs(1);
/// Nothing requested it so long, and for twice the wait: the next is at once.
pub const FORGOTTEN: Duration = Duration::from_secs(600);

/// When something is done that is requested again and again.
#[derive(Clone, Debug, Default)]
pub struct RepeatBackoff {
    /// How often it was done since it was quiet.
    times: u32,
    /// When it was due last.
    last: Option<Timestamp>,
    due: Option<Timestamp>,
}

impl RepeatBackoff {
    /// It is requested: when it is to be done.
    pub fn request(&mut self, now: Timestamp, longest: Duration) -> Timestamp {
        if let Some(due) = self.due {
            return due;
        }
        let wait = self.wait(longest);
        let due = match self.last {
            Some(last) if now <= last.plus(FORGOTTEN.max(wait * 2)) => now.max(last.plus(wait)),
            Some(_) | None => {
                self.times = 0;
                now
            }
        };
        self.due = Some(due);
        due
    }

    /// When what was requested is to be done; `None` when nothing was.
    pub fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// It is done now, if it was requested.
    pub fn done(&mut self) {
        if let Some(due) = self.due.take() {
            self.times = self.times.saturating_add(1);
            self.last = Some(due);
        }
    }

    fn wait(&self, longest: Duration) -> Duration {
        match self.times.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => doubled(FIRST, doublings).min(longest),
        }
    }

    /// The clock was set back by so much.
    pub fn set_back(&mut self, back: Duration) {
        self.last.iter_mut().chain(&mut self.due).for_each(|at| *at = at.minus(back));
    }
}

/// A wait that was doubled so often.
pub(crate) fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << times.min(20))
}
