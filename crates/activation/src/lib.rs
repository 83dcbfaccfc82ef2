//! Generations of a node, their trial and the way back (ROL-7, ROL-12).
//!
//! A generation is a release as activated on one node. [`Activation`] is the step: it takes in what happens to an
//! activation, with the time since the boot, and gives out what the shell does about it. [`ActivationRecord`] is what is
//! durable; a watchdog outside of the program under trial reads nothing else.
//!
//! ```text
//!                 ArmWatchdog, Persist        Switch
//! release -> Activate ------------> armed ------------> confirming -- tries, probes --> probation --> settled
//!                                     | needs a reboot     ^   |                            |
//!                                     +--> deferred --boot-+   | window over, wrong boot,   | halt, probe,
//!                                                              | probe, three deaths        | three deaths
//!                              settled <-- returning <---------+----------------------------+
//! ```
//!
//! Which stage follows which (`tests/transitions_are_documented.rs` holds this table; what is not there changes
//! no stage; "returns", "stays" and "probes alone" are what the terms say of it):
//!
//! ```text
//! settled     another release comes           armed
//! armed       the content before comes        returning
//! armed       the switch ends                 confirming
//! armed       the switch replaces the agent   confirming
//! armed       the switch asks for a reboot    deferred
//! armed       the switch fails                returning
//! armed       its time is over                returning
//! armed       its rollout is halted           returning (returns)
//! armed       the agent dies three times      returning
//! armed       nobody goes on with it          returning
//! armed       the host boots                  returning
//! armed       the host boots once too often   returning
//! armed       the watchdog comes, too late    returning
//! confirming  the content before comes        returning
//! confirming  the new agent cannot start      returning
//! confirming  a try is answered               probation
//! confirming  a probe goes on failing         returning
//! confirming  its time is over                returning (returns)
//! confirming  its time is over                returning (stays)
//! confirming  its time is over                probation (probes alone)
//! confirming  its rollout is halted           returning (returns)
//! confirming  the agent dies three times      returning
//! confirming  the host boots                  returning
//! confirming  the host boots once too often   returning
//! confirming  the watchdog comes, too late    returning
//! deferred    another release comes           returning
//! deferred    the content before comes        returning
//! deferred    its rollout is halted           returning (returns)
//! deferred    the host boots                  confirming
//! deferred    the host boots once too often   returning
//! probation   another release comes           armed
//! probation   the content before comes        armed
//! probation   a probe goes on failing         returning (returns)
//! probation   its rollout is halted           returning (returns)
//! probation   its rollout ends                settled
//! probation   the agent dies three times      returning
//! returning   the host is back                settled
//! ```
//!
//! Invariants:
//! - Nothing is switched before its way back is durable and the watchdog is armed; until it is confirmed or the host has
//!   returned, it stays armed.
//! - A return goes to the *recorded* confirmed generation, by identity. It waits for no network and no agent, and for room on
//!   the disk only where the host is on a confirmed generation until it leaves.
//! - A generation is confirmed only in the boot that it is tried in, with every enforcing probe asked after the switch
//!   and passed, within its window; where it replaces the agent, only by an agent that started as it says.
//! - Time is that since the boot, with the boot's id. The wall clock is nowhere in it.
//! - What a host returned from it does not activate again by itself.

mod agent_watch;
mod boot;
mod generation;
pub mod guarded;
mod io;
mod machine;
mod probe_results;
mod quarantine;
mod record;
mod terms;
mod watchdog_look;

pub use agent_watch::{AGENT_LOOKS, AGENT_PATIENCE, AgentWatch, StateHolder};
pub use boot::{BootId, BootMoment, BootTime, MAX_BOOT_ID, ParseBootIdError};
pub use generation::{Generation, GenerationId, GenerationLimits};
pub use io::{
    ActivationEffect, ActivationFact, ActivationInput, ActivationOrder, ActivationProcess, ActivationRefusal,
    FoundHost, FoundRecord, SwitchEnd, WatchdogAlarm,
};
pub use machine::{Activation, ActivationDeadline, PERSIST_RETRY, RETURN_RETRY};
pub use model::health_probe::{
    DeclareProbesError, HealthProbe, HealthProbeKind, HealthProbeMode, MAX_PROBE_ARGS, MAX_PROBE_NAME,
    MAX_PROBE_OUTPUT, MAX_PROBE_TEXT, MAX_PROBE_TIME, MAX_PROBES, MIN_PROBE_INTERVAL, MetricBound,
    ProbeTopology,
};
pub use probe_results::{HealthProbeOutcome, HealthProbeResult, ProbeFailure, ProbeResultRefusal};
pub use quarantine::{MAX_QUARANTINED, Quarantine, QuarantinedGeneration, REBOOTS_BEFORE_QUARANTINE};
pub use record::{
    ActivationRecord, ActivationStage, AgentDeath, EndedReturn, GenerationReturn, MAX_DEATHS, MAX_REASON,
    Probation, RETURN_LIMIT, ReturnCause, Trial, WATCHDOG_SLACK, WatchdogDecision,
};
pub use terms::{
    ActivationTerms, AfterConfirm, CheckTermsError, ContactRule, MAX_BOOTS, MAX_SWITCH, MAX_TRIES,
    MAX_WINDOW, MIN_WINDOW,
};
pub use watchdog_look::{LookDecision, LookingProcess, WatchdogLook, WatchedRecord};
