//! [`BegunSwitch`]: whether something asked for a boot before a switch began, for an agent that goes on with it: what asks
//! since then is the switch itself (CNV-12, ROL-7).
//!
//! Not synced: after a crash of the host there is no such switch to go on with.

use std::path::Path;

use activation::{BootId, BootTime, GenerationId, Trial};
use serde::{Deserialize, Serialize};

use crate::volatile_file::VolatileFile;

const FILE: VolatileFile<BegunSwitch> = VolatileFile::new("begun-switch.json", 4096);

/// A switch, as its first process found the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BegunSwitch {
    target: GenerationId,
    boot: BootId,
    #[serde(rename = "beganMillis")]
    began: BootTime,
    boot_was_required: bool,
}

/// Whether something asked for a boot before this trial's switch began, where something does now or does not.
pub(super) fn boot_was_required(state: &Path, trial: &Trial, is_required: bool) -> bool {
    let (target, boot, began) = (trial.target.id, trial.boot.clone(), trial.switched);
    let begun = BegunSwitch { target, boot, began, boot_was_required: is_required };
    let is_same = |before: &BegunSwitch| {
        let key = |of: &BegunSwitch| (of.target, of.boot.clone(), of.began);
        key(before) == key(&begun)
    };
    if let Some(before) = FILE.read(state).filter(is_same) {
        return before.boot_was_required;
    }
    if let Err(error) = FILE.write(state, &begun) {
        tracing::debug!(%error, "an agent that goes on with the switch may miss a boot that it asks for");
    }
    is_required
}

#[cfg(test)]
mod tests {
    use activation::{ActivationTerms, Generation, ProbeTopology};
    use model::Digest;

    use super::*;

    #[test]
    fn an_agent_that_goes_on_tells_what_the_switch_asks_for() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let trial = |target: &[u8], began: u64| -> Result<Trial, Box<dyn std::error::Error>> {
            Ok(Trial {
                target: Generation { id: GenerationId(Digest::of(target)), seq: 1, bytes: 1 },
                boot: "boot-1".parse()?,
                deadline: BootTime::BOOT,
                switched: BootTime::after_boot(std::time::Duration::from_secs(began)),
                next_try: 0,
                deaths: 0,
                boots_left: 0,
                terms: ActivationTerms::default(),
                probes: ProbeTopology::default(),
            })
        };
        let asks = |trial: &Trial, is_required| boot_was_required(dir.path(), trial, is_required);
        let one = trial(b"one", 10)?;
        assert!(!asks(&one, false));
        assert!(!asks(&one, true), "the switch asked for it, and the agent was restarted by it");
        // The same release once more, later: what asks now asked before.
        let again = trial(b"one", 500)?;
        assert!(asks(&again, true));
        assert!(asks(&again, false));
        assert!(!asks(&trial(b"two", 500)?, false));
        Ok(())
    }
}
