//! The watchdog looks, and knows nothing but who has the host's state.

use std::time::Duration;

use activation::{
    AGENT_PATIENCE, ActivationEffect, ActivationFact, ActivationProcess, ActivationStage, AgentDeath,
    AgentWatch, BootMoment, BootTime, ReturnCause, StateHolder,
};

use super::{LONGEST_WHILE, SECOND, SimulatedHost, boot_id};

/// How often it looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(15);

impl SimulatedHost {
    /// The watchdog looks again and again, of which only a switch that nobody goes on with makes a difference.
    pub(super) fn is_looked_at(&self) -> bool {
        let is_watched = self.process.as_ref().is_some_and(|process| process.is_watchdog);
        self.armed.is_some() && !is_watched && matches!(self.record().under_way, ActivationStage::Armed(_))
    }

    /// All looks up to now: between two things that happen the process is the same.
    pub(super) fn look(&mut self) {
        while self.is_looked_at() && self.looks_at <= self.now {
            let at = self.looks_at;
            // Of many looks at an agent that lives, two say what all do.
            let is_alive = self.process.is_some() && self.now.since(at) > 3 * LOOK_EVERY;
            self.looks_at = if is_alive { self.now } else { at.plus(LOOK_EVERY) };
            self.look_once(at);
        }
        self.looks_at = self.looks_at.max(self.now);
    }

    fn look_once(&mut self, at: BootTime) {
        let holder = self.process.as_ref().map_or(StateHolder::Nobody, |of| StateHolder::Process(of.number));
        let (now, before) = (BootMoment { at, ..self.moment() }, self.watch.take());
        let watch = AgentWatch::look(before, holder, &now);
        if self.record().is_abandoned(&watch, &now) {
            self.armed = None;
            self.end_process(true);
            self.begin(ActivationProcess::WatchdogAlone);
        }
        self.watch = Some(watch);
    }

    /// A host whose agent ended in the middle of a switch is not left there until the switch has no more time.
    pub(super) fn check_is_not_left(&self) {
        let ActivationStage::Armed(trial) = &self.record().under_way else { return };
        let is_gone = self.process.is_none() && trial.boot == boot_id(self.boot);
        let Some(died_at) = self.died_at.filter(|_| is_gone) else { return };
        let gone = self.now.since(died_at.max(trial.switched));
        let longest_while = SECOND * u32::try_from(LONGEST_WHILE).unwrap();
        assert!(gone <= AGENT_PATIENCE + LOOK_EVERY + 2 * longest_while, "nobody goes on for {gone:?}");
    }
}

/// Whether the host goes back because nobody goes on with a switch.
pub(super) fn is_of_gone_agent(effect: &ActivationEffect) -> bool {
    let cause = ReturnCause::AgentDied { how: AgentDeath::Gone };
    matches!(effect, ActivationEffect::Report(ActivationFact::Returning { cause: told, .. }) if *told == cause)
}
