//! A resource that failed and is tried again (CFG-5).
//!
//! ```text
//! guard, check or apply fails -> tries left? -> Wait -> guard or check -> apply -> ...
//!                                no          -> failed, with how often it was tried
//! ```
//!
//! What a failed apply put into [`super::Pending`] stays there until the last try has failed: it
//! may have changed something, so a later try that finds all as declared is a change.

use super::module::ModulePhase;
use super::slot::Applying;
use super::{JobFailure, Run};
use crate::RunPurpose;
use crate::kinds::Applied;

/// Earlier tries of the current slot.
#[derive(Debug, Default)]
pub(super) struct Tries {
    failed: u8,
    /// Why the last one failed.
    reason: Option<JobFailure>,
    /// What the applies among them began.
    applying: Option<Applying>,
}

impl Tries {
    /// Nothing was tried before.
    pub(super) fn is_first(&self) -> bool {
        self.failed == 0
    }
}

impl Run {
    /// A try failed: another one, or the end. `applying` is what a failed apply began.
    pub(super) fn try_failed(
        &mut self,
        m: usize,
        slot: usize,
        reason: JobFailure,
        applying: Option<Applying>,
    ) {
        let retries = match self.scope().purpose() {
            RunPurpose::Converge => self.resource(m, slot).retry.retries,
            // It is tried again by a later run: until this one ends nothing else is repaired.
            RunPurpose::Repair => 0,
        };
        let tries = &mut self.modules[m].tries;
        tries.applying = match (tries.applying.take(), applying) {
            (Some(first), Some(last)) => Some(first.and(last)),
            (first, last) => first.or(last),
        };
        tries.reason = Some(reason);
        tries.failed += 1;
        if tries.failed <= retries {
            self.modules[m].phase = ModulePhase::Wait(slot);
        } else {
            self.give_up(m, slot);
        }
    }

    /// No further try.
    pub(super) fn give_up(&mut self, m: usize, slot: usize) {
        let Tries { failed, reason, applying } = std::mem::take(&mut self.modules[m].tries);
        let edit = applying.as_ref().and_then(|applying| applying.edit.clone());
        if let Some(applying) = applying {
            self.half_applied(m, slot, applying);
        }
        let reason = reason.unwrap_or_else(|| "it was not tried".into());
        let reason = match failed {
            2.. => reason.told(|why| format!("tried {failed} times: {why}")),
            _ => reason,
        };
        self.fail_at(m, slot, edit.as_ref(), reason);
    }

    /// What earlier tries may have changed; a check that now finds all as declared ends them.
    pub(super) fn changed_by_earlier_try(&mut self, m: usize, slot: usize) -> bool {
        let Some(applying) = self.modules[m].tries.applying.take() else { return false };
        self.modules[m].applying = Some(applying);
        self.applied(m, slot, Ok(Applied { edit: None, changed: true, output: None }));
        true
    }

    /// What is being applied, with what earlier tries began.
    pub(super) fn take_applying(&mut self, m: usize) -> (Applying, bool) {
        let progress = &mut self.modules[m];
        let last = progress.applying.take().unwrap_or_default();
        match progress.tries.applying.take() {
            Some(first) => (first.and(last), true),
            None => (last, false),
        }
    }
}
