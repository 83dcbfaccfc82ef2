//! [`AgentWatch`]: whether somebody goes on with a switch, as a watchdog sees it that knows nothing but who has the host's
//! state, from one look to the next (ROL-12).
//!
//! ```text
//! who has the state       nobody  41  41  52  57  63  nobody ...
//! somebody goes on          -     -  yes  -   -   -     -         the same process at two looks
//! ```
//!
//! An agent that a package restarts is gone for seconds, and goes on with the switch. One that ends at each start is not
//! the same process twice, so that it does not count as alive; where it comes far enough, its deaths are counted before
//! ([`crate::MAX_DEATHS`]).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::boot::{BootId, BootMoment, BootTime};
use crate::record::{ActivationRecord, ActivationStage};

/// How long nobody goes on with a switch before the host goes back. An agent that a package restarts is gone for the minute
/// that its unit has to stop, and a system that is switched starts what it stopped at its end.
pub const AGENT_PATIENCE: Duration = Duration::from_secs(300);
/// In how many looks nobody did, besides: a host that slept shows the first one only what was before it slept.
pub const AGENT_LOOKS: u32 = 8;

/// Who has the host's state at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateHolder {
    /// Nobody: no agent runs, or one that has not come so far.
    Nobody,
    /// The process with this number.
    Process(u32),
    /// A process that did not say its number.
    Unnamed,
}

/// What a watchdog saw of the agent up to its last look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentWatch {
    /// The boot that it looked in.
    boot: BootId,
    /// The process that had the state then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    process: Option<u32>,
    /// When one lived on for the last time; before that was seen, the first look.
    #[serde(rename = "livedMillis")]
    lived: BootTime,
    /// The looks since then.
    missed: u32,
}

impl AgentWatch {
    /// A look, after what was seen before.
    #[must_use]
    pub fn look(before: Option<AgentWatch>, holder: StateHolder, now: &BootMoment) -> AgentWatch {
        let before = before.filter(|before| before.boot == now.boot);
        let process = match holder {
            StateHolder::Process(process) => Some(process),
            StateHolder::Nobody | StateHolder::Unnamed => None,
        };
        let lives_on = |before: &AgentWatch| match holder {
            StateHolder::Nobody => false,
            StateHolder::Process(process) => before.process == Some(process),
            StateHolder::Unnamed => true,
        };
        match before {
            Some(before) if !lives_on(&before) => {
                AgentWatch { process, missed: before.missed.saturating_add(1), ..before }
            }
            _ => AgentWatch { boot: now.boot.clone(), process, lived: now.at, missed: 0 },
        }
    }
}

impl ActivationRecord {
    /// Whether a switch was begun in this boot and nobody goes on with it: the release ended its agent in the middle, and
    /// what it made of the host would stay so until the switch has no more time.
    pub fn is_abandoned(&self, watch: &AgentWatch, now: &BootMoment) -> bool {
        let ActivationStage::Armed(trial) = &self.under_way else { return false };
        // What was seen may be of a trial before this one.
        let since = watch.lived.max(trial.switched);
        trial.boot == now.boot
            && watch.boot == now.boot
            && watch.missed >= AGENT_LOOKS
            && now.at.since(since) >= AGENT_PATIENCE
    }
}
