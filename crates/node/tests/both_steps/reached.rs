//! What hosts of all worlds went through, by name.

use std::cell::RefCell;
use std::collections::BTreeMap;

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
    "switch hangs",
    "mark lost",
    "returned: NotConfirmed",
    "returned: SwitchTooLong",
    "returned: SwitchFailed",
    "returned: ProbeFailed",
    "returned: Rebooted",
    "returned: AgentDied",
    "returned: FoundElsewhere",
    "returned: Halted",
    "returned: Superseded",
    "failed after confirm",
    "deferred",
];

/// What must have happened in a world of very many hosts, beside what becomes of releases.
pub const LARGE_REACHES: &[&str] = &[
    "restart",
    "died before it stored",
    "lie",
    "contact",
    "answer lost",
    "agent killed",
    "agent died",
    "power cut",
    "watchdog",
    "not persisted",
    "switch hangs",
    "mark lost",
];

thread_local! {
    /// A world is played by one thread.
    static REACHED: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// What hosts of this thread went through since this was asked last.
pub fn take_reached() -> BTreeMap<&'static str, u64> {
    REACHED.take()
}

pub fn reach(what: &'static str) {
    REACHED.with_borrow_mut(|reached| *reached.entry(what).or_default() += 1);
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
