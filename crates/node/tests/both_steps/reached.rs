//! What hosts of all worlds went through, by name.

use std::collections::BTreeMap;
use std::sync::Mutex;

use activation::{ActivationFact, ReturnCause};

/// What hosts must have gone through, by name.
pub const HOSTS_REACH: &[&str] = &[
    "agent killed",
    "agent died",
    "agent started anew",
    "power cut",
    "watchdog",
    "not persisted",
    "persisted and not synced",
    "not armed",
    "confirmed",
    "returned: NotConfirmed",
    "returned: SwitchFailed",
    "returned: ProbeFailed",
    "returned: Rebooted",
    "returned: AgentDied",
    "returned: Halted",
    "returned: Superseded",
    "failed after confirm",
    "deferred",
];

static REACHED: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// What hosts went through so far.
pub fn reached() -> BTreeMap<&'static str, u64> {
    REACHED.lock().unwrap().clone()
}

pub fn reach(what: &'static str) {
    *REACHED.lock().unwrap().entry(what).or_default() += 1;
}

/// What a fact says was gone through.
pub fn reach_of(fact: &ActivationFact) {
    match fact {
        ActivationFact::Confirmed { .. } => reach("confirmed"),
        ActivationFact::FailedAfterConfirm { .. } => reach("failed after confirm"),
        ActivationFact::Deferred { .. } => reach("deferred"),
        ActivationFact::Returned { cause, .. } => reach(match cause {
            ReturnCause::NotConfirmed => "returned: NotConfirmed",
            ReturnCause::SwitchTooLong => "returned: SwitchTooLong",
            ReturnCause::SwitchFailed { .. } => "returned: SwitchFailed",
            ReturnCause::ProbeFailed { .. } => "returned: ProbeFailed",
            ReturnCause::AgentDied { .. } => "returned: AgentDied",
            ReturnCause::Rebooted => "returned: Rebooted",
            ReturnCause::FoundElsewhere => "returned: FoundElsewhere",
            ReturnCause::Halted => "returned: Halted",
            ReturnCause::Superseded => "returned: Superseded",
            ReturnCause::Unguarded { .. } => "returned: Unguarded",
        }),
        _ => {}
    }
}
