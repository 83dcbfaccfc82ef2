//! [`ProcessMark`]: an agent that runs, so that one that died leaves a trace (ROL-12).
//!
//! `process.json` is written when an agent begins and goes when it ended as it was told to. What a later one finds of the
//! same boot is of an agent that died. It is not synced: after a crash of the host the boot is another one.

use std::path::Path;

use activation::{ActivationProcess, BootId};
use serde::{Deserialize, Serialize};

use crate::generations::boot_moment;
use crate::volatile_file::VolatileFile;

const FILE: VolatileFile<RunningAgent> = VolatileFile::new("process.json", 4096);

/// An agent that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RunningAgent {
    boot: BootId,
}

/// What this process is after.
pub(crate) struct ProcessMark(ActivationProcess);

impl ProcessMark {
    /// This process begins.
    pub(crate) fn begin(state: &Path) -> ProcessMark {
        let boot = boot_moment().ok().map(|moment| moment.boot);
        let before = FILE.read(state).map(|before| before.boot);
        let process = match boot.is_some() && before == boot {
            true => ActivationProcess::AgentAfterDeath,
            false => ActivationProcess::Agent,
        };
        if let Some(boot) = boot
            && let Err(error) = FILE.write(state, &RunningAgent { boot })
        {
            tracing::debug!(%error, "a death of this process would not be noticed");
        }
        ProcessMark(process)
    }

    /// Who goes on with what is under way.
    pub(crate) fn process(&self) -> ActivationProcess {
        self.0
    }

    /// This process ends as it was told to.
    pub(crate) fn end(state: &Path) {
        if let Err(error) = FILE.remove(state) {
            tracing::debug!(%error, "the next start takes this one for one that died");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ROL-12: of an agent that was told to stop nobody says that it died.
    #[test]
    fn a_death_is_told_from_a_stop() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let begin = || ProcessMark::begin(dir.path()).process();
        assert_eq!(begin(), ActivationProcess::Agent);
        assert_eq!(begin(), ActivationProcess::AgentAfterDeath, "the one before died");
        ProcessMark::end(dir.path());
        assert_eq!(begin(), ActivationProcess::Agent);
        FILE.write(dir.path(), &RunningAgent { boot: "another-boot".parse()? })?;
        assert_eq!(begin(), ActivationProcess::Agent, "it went down with its host");
        Ok(())
    }
}
