//! Damage to contents is looked for before they are needed: a node that is offline by then could not fetch them.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use model::Digest;

use super::{Durable, StateError, spool};

/// How often a part of the contents is read again.
const SCRUB_EVERY: Duration = Duration::from_secs(3600);
/// How many bytes that part has: 768 MiB a day, at the cost of a second of one core.
const SCRUB_BYTES: u64 = 32 * 1024 * 1024;

/// How far contents were read again.
#[derive(Debug, Default)]
pub(super) struct ScrubProgress {
    /// When the last part was read; `None` before the first.
    at: Option<Instant>,
    /// The last content of that part.
    last: Option<Digest>,
}

impl Durable {
    /// Verifies the next part of the contents, where that is due, and sets aside what is damaged. Says whether a
    /// content that the release held needs is gone by now.
    ///
    /// # Errors
    /// When the contents cannot be read.
    pub fn scrub_when_due(&self, at: Instant) -> Result<bool, StateError> {
        let mut progress = self.scrubbed.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.at.is_some_and(|last| at.saturating_duration_since(last) < SCRUB_EVERY) {
            return Ok(false);
        }
        // Also where it fails: a disk that refuses is not asked after each run.
        progress.at = Some(at);
        let scrubbed =
            self.contents.scrub(progress.last, SCRUB_BYTES).map_err(spool("verify the contents"))?;
        progress.last = scrubbed.last;
        Ok(self.adoption()?.is_some_and(|held| self.lacks_content(&held)))
    }
}
