//! Whether an agent lives, as a watchdog sees it: by who has the state directory, remembered from look to look.

use std::path::Path;

use activation::{AgentWatch, BootMoment, StateHolder};
use spool::{SpoolError, StateLock};

use crate::render::chain;
use crate::volatile_file::VolatileFile;

/// What was seen up to the last look, while a switch is under way.
const SEEN: VolatileFile<AgentWatch> = VolatileFile::new("watched-agent.json", 4096);

/// Who has the state directory.
///
/// # Errors
/// When that cannot be looked at.
pub(super) fn holder(state: &Path) -> Result<StateHolder, SpoolError> {
    match StateLock::acquire(state) {
        Ok(_) => Ok(StateHolder::Nobody),
        Err(SpoolError::Locked { pid, .. }) => Ok(pid.map_or(StateHolder::Unnamed, StateHolder::Process)),
        Err(error) => Err(error),
    }
}

/// Remembers who has it for the next look; nothing where that cannot be, as on a disk that is full: a switch has its
/// time then.
pub(super) fn watch(state: &Path, holder: StateHolder, now: &BootMoment) -> Option<AgentWatch> {
    let seen = AgentWatch::look(SEEN.read(state), holder, now);
    match SEEN.write(state, &seen) {
        Ok(()) => Some(seen),
        Err(error) => {
            tracing::warn!(error = %chain(&error), "an agent that ends in the middle of a switch is not noticed");
            None
        }
    }
}
