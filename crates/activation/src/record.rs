//! [`ActivationRecord`]: what is durable of activations, and what a watchdog does that reads nothing else.
//!
//! ```json
//! {"confirmed":{"id":"5f…","seq":41,"bytes":120000},
//!  "underWay":{"stage":"confirming","target":{…},"boot":"0c…","deadlineMillis":734000,…}}
//! ```
//!
//! The agent under trial writes it, and the watchdog that reads it is of the release before: fields may be added that one
//! may ignore, and no field and no stage changes its meaning.
//!
//! The host goes back to `confirmed` when `underWay` has another `boot` than the host, or its deadline is over.

use std::fmt;
use std::time::Duration;

use model::health_probe::ProbeTopology;
use serde::{Deserialize, Serialize};

use crate::agent_watch::AGENT_PATIENCE;
use crate::boot::{BootId, BootMoment, BootTime};
use crate::generation::{Generation, GenerationId};
use crate::probe_results::ProbeFailure;
use crate::quarantine::Quarantine;
use crate::terms::ActivationTerms;

/// How long the watchdog leaves a deadline that is over to an agent that lives: that does the same without being ended.
pub const WATCHDOG_SLACK: Duration = Duration::from_secs(30);
/// How often an agent may die in one generation that is on trial (ROL-12).
pub const MAX_DEATHS: u8 = 3;
/// How long a return may take until it is begun anew.
pub const RETURN_LIMIT: Duration = Duration::from_secs(3600);
/// How much is kept of a reason, in bytes.
pub const MAX_REASON: usize = 512;

/// As much of a reason as is kept.
pub(crate) fn bounded(reason: &str) -> String {
    model::text::beginning(reason, MAX_REASON).to_owned()
}

/// Why a host returns to its confirmed generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum ReturnCause {
    /// The window ended, and nothing had confirmed the generation.
    NotConfirmed,
    /// The switch did not end in its time.
    SwitchTooLong,
    /// The switch failed.
    SwitchFailed {
        /// Why.
        reason: String,
    },
    /// An enforcing probe went on failing.
    ProbeFailed(ProbeFailure),
    /// The agent died in it.
    AgentDied {
        /// How that was known.
        #[serde(default, skip_serializing_if = "AgentDeath::is_counted")]
        how: AgentDeath,
    },
    /// The host went down before the generation was confirmed, and the switch had not asked for it; or it had, and the
    /// boots that it may take were used up.
    Rebooted,
    /// The host was found on another one, or in the middle of a return: the boot loader fell back, or the return could not
    /// be made durable before its process ended.
    FoundElsewhere,
    /// The rollout was halted, and its signed policy lets the node go back.
    Halted,
    /// Another release came while this one waited for a reboot.
    Superseded,
    /// It could not be made sure that the host would come back.
    Unguarded {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for ReturnCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReturnCause::NotConfirmed => write!(f, "nothing confirmed it within its window"),
            ReturnCause::SwitchTooLong => write!(f, "the switch did not end in its time"),
            ReturnCause::SwitchFailed { reason } => write!(f, "the switch failed: {reason}"),
            ReturnCause::ProbeFailed(failure) => write!(f, "{failure}"),
            ReturnCause::AgentDied { how: AgentDeath::Counted } => {
                write!(f, "the agent died in it {MAX_DEATHS} times")
            }
            ReturnCause::AgentDied { how: AgentDeath::Gone } => {
                let minutes = AGENT_PATIENCE.as_secs() / 60;
                write!(
                    f,
                    "the agent ended in the middle of the switch, and none went on with it for {minutes} minutes"
                )
            }
            ReturnCause::Rebooted => write!(f, "the host went down before it was confirmed"),
            ReturnCause::FoundElsewhere => write!(f, "the host was found on something else"),
            ReturnCause::Halted => write!(f, "its rollout was halted"),
            ReturnCause::Superseded => write!(f, "another release came while it waited for a reboot"),
            ReturnCause::Unguarded { reason } => write!(f, "nothing would have undone it: {reason}"),
        }
    }
}

/// How it is known that the agent died of a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentDeath {
    /// It died [`MAX_DEATHS`] times.
    #[default]
    Counted,
    /// It ended in the middle of the switch, and none was seen since ([`AGENT_PATIENCE`]).
    Gone,
}

impl AgentDeath {
    fn is_counted(&self) -> bool {
        *self == AgentDeath::Counted
    }
}

/// A generation on its way to be confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// What was, or is being, switched to.
    pub target: Generation,
    /// The boot that it is tried in, or that it asked to end.
    pub boot: BootId,
    /// When the host goes back.
    #[serde(rename = "deadlineMillis")]
    pub deadline: BootTime,
    /// When the switch ended; before that, when it began.
    #[serde(rename = "switchedMillis")]
    pub switched: BootTime,
    /// The try to confirm that may be made next, counted from 0.
    pub next_try: u8,
    /// How often the agent died since the trial began.
    pub deaths: u8,
    /// How many more boots it may take; none where the switch did not ask for one.
    pub boots_left: u8,
    /// What the release asks of it.
    pub terms: ActivationTerms,
    /// What says that it works.
    pub probes: ProbeTopology,
}

/// A generation that is confirmed, of a rollout that is under way still: the one before is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probation {
    /// The generation that was confirmed before.
    pub previous: Generation,
    /// How often the agent died since the trial began.
    pub deaths: u8,
    /// What the release asks of it.
    pub terms: ActivationTerms,
    /// What says that it works.
    pub probes: ProbeTopology,
}

/// A return to the confirmed generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerationReturn {
    /// What the host leaves.
    pub from: Generation,
    /// Why.
    #[serde(flatten)]
    pub cause: ReturnCause,
    /// The boot that it was begun in.
    pub boot: BootId,
    /// When the watchdog begins it anew.
    #[serde(rename = "deadlineMillis")]
    pub deadline: BootTime,
}

/// A return that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndedReturn {
    /// What the host left.
    pub from: Generation,
    /// Why.
    #[serde(flatten)]
    pub cause: ReturnCause,
    /// When it was back.
    pub at: BootMoment,
}

/// What is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "kebab-case")]
pub enum ActivationStage {
    /// Nothing: the host is on its confirmed generation, for good.
    #[default]
    Settled,
    /// The way back is made sure; the switch has begun, or is about to.
    Armed(Trial),
    /// The switch has ended: the generation is to be confirmed.
    Confirming(Trial),
    /// The switch asked for a reboot, and the host has not gone down yet.
    Deferred(Trial),
    /// It is confirmed; the rollout is not at its end.
    Probation(Probation),
    /// The host goes back.
    Returning(GenerationReturn),
}

/// All that is durable of activations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivationRecord {
    /// Where the host is, or goes back to: by identity, whatever was activated in between.
    pub confirmed: Generation,
    /// What is under way.
    #[serde(default)]
    pub under_way: ActivationStage,
    /// What is kept on the disk, from the oldest to the newest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Generation>,
    /// What this host returned from.
    #[serde(default)]
    pub quarantine: Quarantine,
    /// The last return, where nothing was confirmed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<EndedReturn>,
}

impl Default for ActivationRecord {
    fn default() -> ActivationRecord {
        ActivationRecord {
            confirmed: Generation::AS_FOUND,
            under_way: ActivationStage::Settled,
            kept: Vec::new(),
            quarantine: Quarantine::default(),
            returned: None,
        }
    }
}

/// What a watchdog does about a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchdogDecision {
    /// Nothing is under way that could fail.
    Nothing,
    /// It looks again then, and after each boot.
    Wait(BootTime),
    /// It waits for a boot.
    WaitForBoot,
    /// A boot that the switch asked for is counted.
    CountBoot,
    /// The host goes back.
    Return(ReturnCause),
}

impl ActivationRecord {
    /// The record, as the process goes on with it that has the state directory.
    ///
    /// - Nothing is under way: what the host holds is what is confirmed. So it is where a release was adopted without a
    ///   trial, also by an agent that knows no generations.
    /// - A release is on probation, and the host holds neither it nor the one before: another one was adopted at once, and
    ///   is what is confirmed.
    /// - The record is gone or damaged: where the agent of a generation that is not held is kept, a trial was under way,
    ///   and the host goes back to that generation. Else what it holds is confirmed. What it returned from before is
    ///   forgotten.
    pub fn found(
        kept: Option<ActivationRecord>,
        held: Generation,
        ways_back: &[Generation],
        now: &BootMoment,
    ) -> ActivationRecord {
        if let Some(mut record) = kept {
            if record.under_way == ActivationStage::Settled && record.confirmed.id != held.id {
                record.confirmed = held;
                record.keep(held);
                // Another release came at once.
                record.returned = None;
            }
            // So it did here, and its process ended before that was written down.
            if record.is_replaced_by(held.id) {
                record.under_way = ActivationStage::Settled;
                record.confirmed = held;
                record.keep(held);
                record.returned = None;
            }
            return record;
        }
        let mut record = ActivationRecord { confirmed: held, ..ActivationRecord::default() };
        record.keep(held);
        if let Some(back) = ways_back.iter().rfind(|back| back.id != held.id) {
            record.confirmed = *back;
            record.keep(*back);
            // It is due already: whoever looks goes on with it.
            record.under_way = ActivationStage::Returning(GenerationReturn {
                from: held,
                cause: ReturnCause::FoundElsewhere,
                boot: now.boot.clone(),
                deadline: BootTime::BOOT,
            });
        }
        record
    }

    /// Another release than the one on probation and the one before is held: it came at once, and there is no way back from
    /// it to either.
    pub fn is_replaced_by(&self, held: GenerationId) -> bool {
        match &self.under_way {
            ActivationStage::Probation(probation) => {
                ![self.confirmed.id, probation.previous.id].contains(&held)
            }
            _ => false,
        }
    }

    /// The host is on its confirmed generation by what was durable before, and leaves it with this record. `before`:
    /// nothing where there was none.
    pub fn begins_trial(&self, before: Option<&ActivationRecord>) -> bool {
        let is_on_confirmed = before.is_none_or(|before| !before.under_way.is_guarded());
        is_on_confirmed && matches!(self.under_way, ActivationStage::Armed(_))
    }

    /// A generation is what is on the disk last.
    pub(crate) fn keep(&mut self, generation: Generation) {
        self.kept.retain(|kept| kept.id != generation.id);
        if generation.id != GenerationId::AS_FOUND {
            self.kept.push(generation);
        }
    }

    /// What a watchdog does about it at a time. An agent that lives comes before it by [`WATCHDOG_SLACK`].
    pub fn watchdog(&self, now: &BootMoment) -> WatchdogDecision {
        let (boot, deadline) = match &self.under_way {
            ActivationStage::Settled | ActivationStage::Probation(_) => return WatchdogDecision::Nothing,
            ActivationStage::Deferred(trial) if trial.boot == now.boot => {
                return WatchdogDecision::WaitForBoot;
            }
            ActivationStage::Armed(trial)
            | ActivationStage::Confirming(trial)
            | ActivationStage::Deferred(trial) => (&trial.boot, trial.deadline),
            ActivationStage::Returning(back) => (&back.boot, back.deadline),
        };
        if *boot != now.boot {
            return self.under_way.after_boot();
        }
        let patience = deadline.plus(WATCHDOG_SLACK);
        match now.at < patience {
            true => WatchdogDecision::Wait(patience),
            false => WatchdogDecision::Return(self.under_way.overdue()),
        }
    }

    /// The generations that cannot be done without: where the host is, and where it may have to go.
    pub fn needed(&self) -> Vec<GenerationId> {
        let other = match &self.under_way {
            ActivationStage::Settled => None,
            ActivationStage::Armed(trial)
            | ActivationStage::Confirming(trial)
            | ActivationStage::Deferred(trial) => Some(trial.target.id),
            ActivationStage::Probation(probation) => Some(probation.previous.id),
            ActivationStage::Returning(back) => Some(back.from.id),
        };
        [Some(self.confirmed.id), other].into_iter().flatten().collect()
    }
}

impl ActivationStage {
    /// A watchdog looks after it.
    pub fn is_guarded(&self) -> bool {
        !matches!(self, ActivationStage::Settled | ActivationStage::Probation(_))
    }

    /// What follows where the host has booted since.
    pub(crate) fn after_boot(&self) -> WatchdogDecision {
        match self {
            ActivationStage::Settled | ActivationStage::Probation(_) => WatchdogDecision::Nothing,
            // Only a switch that asked for a reboot leaves boots.
            ActivationStage::Confirming(trial) | ActivationStage::Deferred(trial) if trial.boots_left > 0 => {
                WatchdogDecision::CountBoot
            }
            ActivationStage::Armed(_) | ActivationStage::Confirming(_) | ActivationStage::Deferred(_) => {
                WatchdogDecision::Return(ReturnCause::Rebooted)
            }
            ActivationStage::Returning(back) => WatchdogDecision::Return(back.cause.clone()),
        }
    }

    /// Why a host whose deadline is over goes back.
    pub(crate) fn overdue(&self) -> ReturnCause {
        match self {
            ActivationStage::Armed(_) => ReturnCause::SwitchTooLong,
            ActivationStage::Returning(back) => back.cause.clone(),
            ActivationStage::Settled
            | ActivationStage::Confirming(_)
            | ActivationStage::Deferred(_)
            | ActivationStage::Probation(_) => ReturnCause::NotConfirmed,
        }
    }
}
