//! What an [`Activation`](crate::Activation) takes in and gives out.

use std::fmt;

use model::health_probe::ProbeTopology;
use serde::{Deserialize, Serialize};

use crate::boot::{BootId, BootTime};
use crate::generation::{Generation, GenerationId};
use crate::probe_results::{HealthProbeOutcome, HealthProbeResult, ProbeFailure};
use crate::record::{ActivationRecord, ReturnCause, WATCHDOG_SLACK};
use crate::terms::{ActivationTerms, CheckTermsError};

/// Who goes on with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationProcess {
    /// The agent, after one that was told to stop, or the first one of this boot.
    Agent,
    /// The agent, after one that died in this boot.
    AgentAfterDeath,
    /// The watchdog: it ended whatever there was of the agent.
    Watchdog,
    /// The watchdog, which saw that nobody goes on with a switch ([`ActivationRecord::is_abandoned`]).
    WatchdogAlone,
}

impl ActivationProcess {
    /// Whether it is the watchdog, which switches to nothing and asks no probe.
    pub fn is_watchdog(self) -> bool {
        matches!(self, ActivationProcess::Watchdog | ActivationProcess::WatchdogAlone)
    }
}

/// A record as a process finds it on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundRecord {
    /// Nothing was ever activated, or guarded, here.
    Absent,
    /// It cannot be read.
    Damaged,
    /// It.
    Record(Box<ActivationRecord>),
}

/// How a process finds the host when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundHost {
    /// Who finds it.
    pub process: ActivationProcess,
    /// What the host runs as a whole; nothing in the middle of a switch or a return. The backend of its generations
    /// knows by a mark of its own, which it takes away, durably and without room on the disk, before it touches the host.
    pub runs: Option<GenerationId>,
}

/// A release to be activated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivationOrder {
    /// What.
    pub target: Generation,
    /// What the release asks of it.
    pub terms: ActivationTerms,
    /// What says that it works.
    pub probes: ProbeTopology,
}

/// How a switch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchEnd {
    /// The host is on the generation.
    Done,
    /// It is, and another program, or another unit, is the agent's: this process is none that the generation would start.
    NeedsNewAgent,
    /// It is once it has booted.
    NeedsReboot {
        /// What asks for it: a kernel, systemd.
        component: String,
    },
    /// It failed, somewhere in the middle.
    Failed {
        /// Why.
        reason: String,
    },
}

impl SwitchEnd {
    /// How a switch ended that came to this. `boot`: what asks for a boot of the host; it counts where nothing did before
    /// the switch (`was_required`), and comes before another agent, as that starts with the boot. `agent`: takes up the
    /// agent of the release; whether it is another one, or why it is refused.
    pub fn after(
        switch: Result<(), String>,
        boot: Option<String>,
        was_required: bool,
        agent: impl FnOnce() -> Result<bool, String>,
    ) -> SwitchEnd {
        let new_agent = match (switch, boot.filter(|_| !was_required)) {
            (Ok(()), Some(component)) => return SwitchEnd::NeedsReboot { component },
            (switch, _) => switch.and_then(|()| agent()),
        };
        match new_agent {
            Ok(true) => SwitchEnd::NeedsNewAgent,
            Ok(false) => SwitchEnd::Done,
            Err(reason) => SwitchEnd::Failed { reason },
        }
    }
}

/// What happens to an activation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActivationInput {
    /// A verified release is to be activated.
    Activate(Box<ActivationOrder>),
    /// The switch ended.
    Switched {
        /// To which generation.
        target: GenerationId,
        /// How.
        end: SwitchEnd,
    },
    /// A probe said something.
    Probe(HealthProbeResult),
    /// The control plane answered a try to confirm.
    ConfirmAnswered {
        /// The generation that it was told of.
        generation: GenerationId,
        /// The boot that it was told of.
        boot: BootId,
    },
    /// A try to confirm failed.
    TryFailed {
        /// Why.
        reason: String,
    },
    /// [`ActivationEffect::StartAgentAnew`] is refused.
    NotStartedAnew {
        /// Why.
        reason: String,
    },
    /// The rollout of a generation was halted; the signature of what says so was verified.
    Halted(GenerationId),
    /// The rollout of a generation is at its end.
    RolloutEnded(GenerationId),
    /// The administrator of the host lets what is held back of the release with this number be tried again
    /// ([`crate::Quarantine::lift_release`]). The record says whether that is durable: where it is not, the content is held
    /// back as before.
    LiftQuarantine(u64),
    /// The host is on its confirmed generation again.
    Returned,
    /// It is not.
    ReturnFailed {
        /// Why.
        reason: String,
    },
    /// [`ActivationEffect::Persist`] failed: what is durable is what was before, or already the new record, and nothing
    /// after it in the list was carried out.
    NotPersisted {
        /// Why.
        reason: String,
    },
    /// [`ActivationEffect::ArmWatchdog`] failed: what was armed before is so still, and nothing after it in the list was carried out.
    NotArmed {
        /// Why.
        reason: String,
    },
    /// What a generation takes was measured, now that the host was switched to it: the trees that its archives were unpacked
    /// to are known only then.
    Measured {
        /// The generation.
        generation: GenerationId,
        /// What keeping it takes, in bytes.
        bytes: u64,
    },
    /// Time went on.
    Tick,
}

/// When the watchdog looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogAlarm {
    /// Then, and after each boot.
    At(BootTime),
    /// After each boot.
    AtBoot,
}

impl WatchdogAlarm {
    /// After a deadline, when an agent that lives would have acted.
    pub(crate) fn after(deadline: BootTime) -> WatchdogAlarm {
        WatchdogAlarm::At(deadline.plus(WATCHDOG_SLACK))
    }
}

/// What the shell does, in this order. Where one cannot be done, those after it in the list are not either, and the
/// input that says so follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActivationEffect {
    /// Makes the record durable.
    Persist(Box<ActivationRecord>),
    /// Makes sure that the watchdog looks, whatever becomes of this process; takes the place of what was armed before.
    ArmWatchdog(WatchdogAlarm),
    /// Switches to a generation, once more where that was begun already. [`ActivationInput::Switched`] follows.
    Switch(Generation),
    /// Ends this process, so that the agent starts as the generation on trial has it: that one goes on, and confirms.
    /// [`ActivationInput::NotStartedAnew`] follows where that cannot be.
    StartAgentAnew,
    /// Asks the probes from now on.
    StartProbes {
        /// The generation.
        generation: GenerationId,
        /// The boot.
        boot: BootId,
        /// The probes.
        probes: ProbeTopology,
    },
    /// Asks no probe any more.
    StopProbes,
    /// Tells the control plane. [`ActivationInput::ConfirmAnswered`] or [`ActivationInput::TryFailed`] follows.
    TryConfirm {
        /// The generation.
        generation: GenerationId,
        /// The boot.
        boot: BootId,
        /// The number of the try, from 1.
        number: u8,
    },
    /// The watchdog has nothing to do any more.
    Disarm,
    /// Goes back to a generation, once more where that was begun already; ends a switch, or a return, that is under way,
    /// so that nothing is heard of it any more. [`ActivationInput::Returned`] or
    /// [`ActivationInput::ReturnFailed`] follows.
    Return {
        /// What the host leaves.
        from: GenerationId,
        /// Where it goes back to.
        to: Generation,
    },
    /// Generations are needed no more.
    Forget(Vec<GenerationId>),
    /// A fact for the node's log.
    Report(ActivationFact),
}

/// Why a release was not activated, with the host as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "refusal", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum ActivationRefusal {
    /// Another activation, or a return, is under way.
    UnderWay,
    /// This host returned from the same content before.
    Quarantined {
        /// Why.
        cause: ReturnCause,
    },
    /// What the release asks cannot be kept.
    Terms {
        /// Why.
        reason: String,
    },
    /// It and the confirmed generation do not fit beside each other.
    TooLarge {
        /// The bytes that both take.
        bytes: u64,
    },
    /// It could not be made sure that the host would come back.
    NotArmed {
        /// Why.
        reason: String,
    },
}

impl From<CheckTermsError> for ActivationRefusal {
    fn from(error: CheckTermsError) -> ActivationRefusal {
        ActivationRefusal::Terms { reason: error.to_string() }
    }
}

impl fmt::Display for ActivationRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ActivationRefusal::UnderWay => f.write_str("another activation is under way"),
            ActivationRefusal::Quarantined { cause } => write!(f, "this host returned from it: {cause}"),
            ActivationRefusal::Terms { reason } => write!(f, "its terms cannot be kept: {reason}"),
            ActivationRefusal::TooLarge { bytes } => {
                write!(f, "it and the confirmed generation take {bytes} bytes, more than are allowed")
            }
            ActivationRefusal::NotArmed { reason } => {
                write!(f, "nothing would undo it, so nothing was switched: {reason}")
            }
        }
    }
}

/// What is told of an activation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ActivationFact {
    /// Nothing was switched.
    Refused {
        /// What was to be.
        target: GenerationId,
        /// Why not.
        #[serde(flatten)]
        refusal: ActivationRefusal,
    },
    /// The way back is durable, and the switch begins.
    Started {
        /// What is switched to.
        target: GenerationId,
    },
    /// The switch ended.
    Completed {
        /// What was switched to.
        target: GenerationId,
    },
    /// The switch asked for a reboot.
    Deferred {
        /// What was switched to.
        target: GenerationId,
        /// What asks for it.
        component: String,
    },
    /// These probes decide, before any result of them counts.
    ProbesDeclared {
        /// The generation.
        generation: GenerationId,
        /// The probes.
        probes: ProbeTopology,
    },
    /// A probe said something else than before.
    ProbeResult {
        /// The generation.
        generation: GenerationId,
        /// The boot.
        boot: BootId,
        /// The probe.
        probe: String,
        /// What it came to.
        #[serde(flatten)]
        outcome: HealthProbeOutcome,
    },
    /// A probe began to fail.
    ProbeFailureFirst {
        /// The generation.
        generation: GenerationId,
        /// The probe.
        probe: String,
        /// Since when, in milliseconds since the boot.
        since_millis: BootTime,
    },
    /// A generation that was confirmed has failed, and stays, as its policy says.
    FailedAfterConfirm {
        /// The generation.
        generation: GenerationId,
        /// What says so.
        #[serde(flatten)]
        failure: ProbeFailure,
    },
    /// A release with the content that is confirmed was not switched to: there is nothing to go back to.
    SwitchFailed {
        /// What was switched to.
        target: GenerationId,
        /// Why not.
        reason: String,
    },
    /// The rollout of the confirmed generation was halted, and the host has given up the one before.
    NoWayBack {
        /// The generation.
        generation: GenerationId,
    },
    /// A try to confirm failed.
    TryFailed {
        /// The generation.
        target: GenerationId,
        /// Why.
        reason: String,
    },
    /// It is the confirmed generation from now on.
    Confirmed {
        /// The generation.
        generation: GenerationId,
    },
    /// The host goes back.
    Returning {
        /// What it leaves.
        from: GenerationId,
        /// Where it goes back to.
        to: GenerationId,
        /// Why.
        #[serde(flatten)]
        cause: ReturnCause,
    },
    /// It could not go back, and tries again.
    ReturnFailed {
        /// Where it goes back to.
        to: GenerationId,
        /// Why not.
        reason: String,
    },
    /// The host is on its confirmed generation again.
    Returned {
        /// What it left.
        from: GenerationId,
        /// Where it is.
        to: GenerationId,
        /// Why it went back.
        #[serde(flatten)]
        cause: ReturnCause,
    },
    /// An answer counted for nothing: it was of another generation or another boot, or came too late.
    ConfirmRefused {
        /// The generation that it was of.
        generation: GenerationId,
        /// The boot that it was of.
        boot: BootId,
    },
    /// The watchdog could not be set anew; what was armed before counts still.
    WatchdogNotSet {
        /// Why.
        reason: String,
    },
    /// The record could not be made durable; it is tried again.
    NotPersisted {
        /// Why.
        reason: String,
    },
}
