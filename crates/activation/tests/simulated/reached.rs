//! What happens in histories, by name.

use activation::{ActivationEffect, ActivationFact, ActivationRefusal, AgentDeath, ReturnCause};

/// Everything that the histories must have gone through.
pub const MUST_REACH: &[&str] = &[
    "refused: under way",
    "refused: quarantined",
    "refused: not armed",
    "started",
    "completed",
    "deferred",
    "switch of the confirmed content failed",
    "no way back",
    "probe failure",
    "failed after confirm",
    "try failed",
    "confirmed",
    "confirm refused",
    "returned: not confirmed",
    "returned: switch too long",
    "returned: switch failed",
    "returned: probe failed",
    "returned: agent died",
    "returned: agent gone",
    "returned: rebooted",
    "returned: found elsewhere",
    "returned: halted",
    "returned: superseded",
    "returned: unguarded",
    "return failed",
    "watchdog not set",
    "not persisted",
];

/// The name of what a fact says.
pub fn name(fact: &ActivationFact) -> &'static str {
    match fact {
        ActivationFact::Refused { refusal, .. } => match refusal {
            ActivationRefusal::UnderWay => "refused: under way",
            ActivationRefusal::Quarantined { .. } => "refused: quarantined",
            ActivationRefusal::NotArmed { .. } => "refused: not armed",
            ActivationRefusal::Terms { .. } | ActivationRefusal::TooLarge { .. } => "refused",
        },
        ActivationFact::Returned { cause, .. } => match cause {
            ReturnCause::NotConfirmed => "returned: not confirmed",
            ReturnCause::SwitchTooLong => "returned: switch too long",
            ReturnCause::SwitchFailed { .. } => "returned: switch failed",
            ReturnCause::ProbeFailed { .. } => "returned: probe failed",
            ReturnCause::AgentDied { how: AgentDeath::Counted } => "returned: agent died",
            ReturnCause::AgentDied { how: AgentDeath::Gone } => "returned: agent gone",
            ReturnCause::Rebooted => "returned: rebooted",
            ReturnCause::FoundElsewhere => "returned: found elsewhere",
            ReturnCause::Halted => "returned: halted",
            ReturnCause::Superseded => "returned: superseded",
            ReturnCause::Unguarded { .. } => "returned: unguarded",
        },
        ActivationFact::Started { .. } => "started",
        ActivationFact::Completed { .. } => "completed",
        ActivationFact::Deferred { .. } => "deferred",
        ActivationFact::ProbeFailureFirst { .. } => "probe failure",
        ActivationFact::FailedAfterConfirm { .. } => "failed after confirm",
        ActivationFact::TryFailed { .. } => "try failed",
        ActivationFact::Confirmed { .. } => "confirmed",
        ActivationFact::ConfirmRefused { .. } => "confirm refused",
        ActivationFact::ReturnFailed { .. } => "return failed",
        ActivationFact::WatchdogNotSet { .. } => "watchdog not set",
        ActivationFact::NotPersisted { .. } => "not persisted",
        ActivationFact::SwitchFailed { .. } => "switch of the confirmed content failed",
        ActivationFact::NoWayBack { .. } => "no way back",
        ActivationFact::ProbesDeclared { .. }
        | ActivationFact::ProbeResult { .. }
        | ActivationFact::Returning { .. } => "others",
    }
}

/// An effect in one line.
pub fn short(effect: &ActivationEffect) -> String {
    match effect {
        ActivationEffect::Persist(record) => {
            let stage = serde_json::to_value(&record.under_way).unwrap();
            format!("Persist({}, on {})", stage["stage"], record.confirmed.seq)
        }
        ActivationEffect::StartProbes { .. } => "StartProbes".to_owned(),
        other => format!("{other:?}").chars().take(160).collect(),
    }
}
