//! [`WatchdogLook`]: what a look at this host's records means, for a process that does not have the host's state
//! (ROL-7, ROL-12).
//!
//! ```text
//! a record                              who has the state   the look
//! absent, or nothing could fail         -                   ends the watch, where that is so of both records
//! damaged                               -                   goes on with it
//! of a boot before; its time is over    -                   goes on with it
//! waits for its boot; is confirming     -                   waits
//! the host is switched                  the agent, of late  waits
//!                                       nobody for minutes  goes on with it: the switch is abandoned
//! the host goes back                    somebody            waits
//!                                       nobody              goes on with it
//! ```
//!
//! Whoever goes on takes the state first, and then begins as [`crate::Activation::start`] decides by what it finds.

use crate::agent_watch::{AgentWatch, StateHolder};
use crate::boot::BootMoment;
use crate::io::{ActivationProcess, FoundRecord};
use crate::record::{ActivationRecord, ActivationStage, WatchdogDecision};

/// Who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookingProcess {
    /// The watchdog, which ends the agent and starts it again.
    Watchdog,
    /// The agent, before it begins. It goes on with a switch itself.
    StartingAgent,
}

/// Which record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedRecord {
    /// Of releases on trial.
    Trial,
    /// Of guarded runs (CNV-11).
    Guard,
}

/// What a look comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookDecision {
    /// Nothing is under way: the watch may end.
    EndWatch,
    /// It is not time yet, or somebody else sees to it.
    Wait,
    /// Who looks goes on with this record now, as this process.
    GoOn(WatchedRecord, ActivationProcess),
}

/// What a look finds.
#[derive(Clone, Copy, Debug)]
pub struct WatchdogLook<'a> {
    /// Who looks.
    pub looking: LookingProcess,
    /// The record of releases on trial.
    pub trial: &'a FoundRecord,
    /// The record of guarded runs.
    pub guard: &'a FoundRecord,
    /// When.
    pub now: &'a BootMoment,
}

impl WatchdogLook<'_> {
    /// Whether it matters who has the host's state. The shell asks only then: asking takes the state's lock for a moment.
    pub fn asks_holder(&self) -> bool {
        self.watches_agent() || self.waits_in(|stage| matches!(stage, ActivationStage::Returning(_)))
    }

    /// Whether it matters besides who had the state at the looks before ([`AgentWatch`]).
    pub fn watches_agent(&self) -> bool {
        self.looking == LookingProcess::Watchdog
            && self.waits_in(|stage| matches!(stage, ActivationStage::Armed(_)))
    }

    /// Decides. `holder`: who has the state; nothing where that was not asked. `watch`: with this look; nothing where it
    /// was not asked, or cannot be remembered from look to look: the switch has its time then.
    pub fn decide(&self, holder: Option<StateHolder>, watch: Option<&AgentWatch>) -> LookDecision {
        let watch = watch.filter(|_| self.watches_agent());
        // A trial undoes more than a guarded run, and comes first.
        let records = [(self.trial, WatchedRecord::Trial), (self.guard, WatchedRecord::Guard)];
        let goes_on = records.into_iter().find_map(|(found, record)| {
            Some(LookDecision::GoOn(record, self.goes_on_as(found, holder, watch)?))
        });
        goes_on.unwrap_or(match records.iter().all(|(found, _)| self.is_nothing(found)) {
            true => LookDecision::EndWatch,
            false => LookDecision::Wait,
        })
    }

    /// As which process a record is gone on with now, if so.
    fn goes_on_as(
        &self,
        found: &FoundRecord,
        holder: Option<StateHolder>,
        watch: Option<&AgentWatch>,
    ) -> Option<ActivationProcess> {
        let record = match found {
            FoundRecord::Absent => return None,
            // What it means is decided by whoever has the state.
            FoundRecord::Damaged => return Some(ActivationProcess::Watchdog),
            FoundRecord::Record(record) => record,
        };
        match (record.watchdog(self.now), &record.under_way) {
            (WatchdogDecision::CountBoot | WatchdogDecision::Return(_), _) => {
                Some(ActivationProcess::Watchdog)
            }
            // Whoever returned is gone, and has left the agent stopped: its deadline is not waited for.
            (WatchdogDecision::Wait(_), ActivationStage::Returning(_)) => {
                (holder == Some(StateHolder::Nobody)).then_some(ActivationProcess::Watchdog)
            }
            (WatchdogDecision::Wait(_), ActivationStage::Armed(_)) => watch
                .is_some_and(|watch| record.is_abandoned(watch, self.now))
                .then_some(ActivationProcess::WatchdogAlone),
            (WatchdogDecision::Nothing | WatchdogDecision::Wait(_) | WatchdogDecision::WaitForBoot, _) => {
                None
            }
        }
    }

    fn is_nothing(&self, found: &FoundRecord) -> bool {
        match found {
            FoundRecord::Absent => true,
            FoundRecord::Damaged => false,
            FoundRecord::Record(record) => record.watchdog(self.now) == WatchdogDecision::Nothing,
        }
    }

    /// Whether a record waits for its time in such a stage.
    fn waits_in(&self, is_stage: impl Fn(&ActivationStage) -> bool) -> bool {
        let waits = |record: &ActivationRecord| {
            is_stage(&record.under_way) && matches!(record.watchdog(self.now), WatchdogDecision::Wait(_))
        };
        [self.trial, self.guard]
            .into_iter()
            .any(|found| matches!(found, FoundRecord::Record(record) if waits(record)))
    }
}
