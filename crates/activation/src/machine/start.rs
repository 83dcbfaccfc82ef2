//! A process begins, and goes on where the one before it ended: stopped, dead, or gone with its boot.

use super::Activation;
use crate::ProbeTopology;
use crate::boot::{BootMoment, BootTime};
use crate::generation::{GenerationId, GenerationLimits};
use crate::io::{ActivationEffect, ActivationFact, ActivationProcess, FoundHost, WatchdogAlarm};
use crate::record::{
    ActivationRecord, ActivationStage, AgentDeath, MAX_DEATHS, ReturnCause, Trial, WatchdogDecision,
};

impl Activation {
    /// Goes on with a record; the effects come before any input.
    pub fn start(
        record: ActivationRecord,
        limits: GenerationLimits,
        found: FoundHost,
        now: &BootMoment,
    ) -> (Activation, Vec<ActivationEffect>) {
        let boot = now.boot.clone();
        let mut activation = Activation {
            record,
            boot,
            limits,
            results: None,
            renumbered: None,
            failure_told: false,
            return_failure: None,
            persist_failure: None,
            last: None,
            retry: None,
            rewrite: None,
        };
        let effects = activation.begin(found, now.at);
        (activation, effects)
    }

    fn begin(&mut self, found: FoundHost, now: BootTime) -> Vec<ActivationEffect> {
        let boot = match &self.record.under_way {
            ActivationStage::Settled | ActivationStage::Probation(_) => None,
            ActivationStage::Armed(trial)
            | ActivationStage::Confirming(trial)
            | ActivationStage::Deferred(trial) => Some(&trial.boot),
            ActivationStage::Returning(back) => Some(&back.boot),
        };
        if boot.is_some_and(|boot| *boot != self.boot) {
            return self.booted(found, now);
        }
        if let ActivationStage::Armed(trial) = &self.record.under_way
            && !found.process.is_watchdog()
            && trial.deadline <= now
        {
            return self.overdue(now);
        }
        if let ActivationStage::Confirming(trial) = &self.record.under_way
            && !found.process.is_watchdog()
            && found.runs != Some(trial.target.id)
        {
            return self.go_back(ReturnCause::FoundElsewhere, now);
        }
        // It was being switched to another release with its content.
        if let ActivationStage::Deferred(trial) = &self.record.under_way
            && !found.process.is_watchdog()
            && found.runs.is_none()
        {
            let trial = trial.clone();
            let switch = self.switch_deferred(trial);
            return self
                .armed_if_possible(vec![ActivationEffect::ArmWatchdog(WatchdogAlarm::AtBoot), switch]);
        }
        // It was confirmed by a record that could not be synced, so it was not; and the return could not be made durable.
        if let ActivationStage::Probation(probation) = &self.record.under_way
            && !found.process.is_watchdog()
            && found.runs == Some(probation.previous.id)
        {
            return self.go_back(ReturnCause::FoundElsewhere, now);
        }
        match found.process {
            ActivationProcess::Watchdog => self.watched(now),
            ActivationProcess::WatchdogAlone => self.abandoned(now),
            ActivationProcess::Agent => self.went_on(now),
            ActivationProcess::AgentAfterDeath => self.died(now),
        }
    }

    /// The host has booted since.
    fn booted(&mut self, found: FoundHost, now: BootTime) -> Vec<ActivationEffect> {
        match (self.record.under_way.after_boot(), &self.record.under_way) {
            (
                WatchdogDecision::CountBoot,
                ActivationStage::Confirming(trial) | ActivationStage::Deferred(trial),
            ) => {
                if found.runs != Some(trial.target.id) {
                    // It booted in the middle of the switch to another release with this content, as that asks for: nothing
                    // is said against the content.
                    let is_mid_switch =
                        found.runs.is_none() && matches!(self.record.under_way, ActivationStage::Deferred(_));
                    let cause =
                        if is_mid_switch { ReturnCause::Rebooted } else { ReturnCause::FoundElsewhere };
                    return self.go_back(cause, now);
                }
                let trial = trial.clone();
                self.count_boot(trial, found.process, now)
            }
            (WatchdogDecision::Return(cause), _) => self.go_back(cause, now),
            _ => Vec::new(),
        }
    }

    /// One of the boots that the switch asked for: the window begins anew.
    fn count_boot(
        &mut self,
        trial: Trial,
        process: ActivationProcess,
        now: BootTime,
    ) -> Vec<ActivationEffect> {
        let before = self.record.clone();
        let deadline = now.plus(trial.terms.window);
        let trial = Trial {
            boot: self.boot.clone(),
            boots_left: trial.boots_left.saturating_sub(1),
            switched: now,
            deadline,
            next_try: 0,
            ..trial
        };
        self.record.under_way = ActivationStage::Confirming(trial.clone());
        let target = trial.target.id;
        let mut then = vec![
            ActivationEffect::ArmWatchdog(WatchdogAlarm::after(deadline)),
            ActivationEffect::Report(ActivationFact::Completed { target }),
        ];
        if !process.is_watchdog() {
            then.extend(self.declare_and_ask(&trial, now));
        }
        self.durable_and_armed_or_back(before, then)
    }

    /// The probes are declared, and asked from now on.
    pub(super) fn declare_and_ask(&mut self, trial: &Trial, now: BootTime) -> [ActivationEffect; 2] {
        self.declare_probes(trial.target.id, &trial.probes, trial.switched, now)
    }

    pub(super) fn declare_probes(
        &mut self,
        generation: GenerationId,
        probes: &ProbeTopology,
        switched: BootTime,
        now: BootTime,
    ) -> [ActivationEffect; 2] {
        let asked = self.ask_probes(generation, probes, switched, now);
        let declared = ActivationFact::ProbesDeclared { generation, probes: probes.clone() };
        [ActivationEffect::Report(declared), asked]
    }

    /// The watchdog looks, in the boot that the record is of.
    fn watched(&mut self, now: BootTime) -> Vec<ActivationEffect> {
        if matches!(self.record.under_way, ActivationStage::Returning(_)) {
            // Whoever returned is gone.
            return self.return_again(now);
        }
        let moment = BootMoment { boot: self.boot.clone(), at: now };
        match self.record.watchdog(&moment) {
            WatchdogDecision::Nothing | WatchdogDecision::CountBoot => vec![ActivationEffect::Disarm],
            WatchdogDecision::Wait(at) => vec![ActivationEffect::ArmWatchdog(WatchdogAlarm::At(at))],
            WatchdogDecision::WaitForBoot => vec![ActivationEffect::ArmWatchdog(WatchdogAlarm::AtBoot)],
            WatchdogDecision::Return(cause) => self.go_back(cause, now),
        }
    }

    /// The watchdog saw that nobody goes on with a switch.
    fn abandoned(&mut self, now: BootTime) -> Vec<ActivationEffect> {
        match self.record.under_way {
            ActivationStage::Armed(_) => self.go_back(ReturnCause::AgentDied { how: AgentDeath::Gone }, now),
            _ => self.watched(now),
        }
    }

    /// The agent goes on after one that died. Where the host waits for a reboot it runs what it ran before, and
    /// nobody dies of the generation that is to come.
    fn died(&mut self, now: BootTime) -> Vec<ActivationEffect> {
        let before = self.record.clone();
        let deaths = match &mut self.record.under_way {
            ActivationStage::Armed(trial) | ActivationStage::Confirming(trial) => &mut trial.deaths,
            ActivationStage::Probation(probation) => &mut probation.deaths,
            ActivationStage::Settled | ActivationStage::Deferred(_) | ActivationStage::Returning(_) => {
                return self.went_on(now);
            }
        };
        *deaths = deaths.saturating_add(1);
        if *deaths >= MAX_DEATHS {
            return self.go_back(ReturnCause::AgentDied { how: AgentDeath::Counted }, now);
        }
        let is_switching = matches!(self.record.under_way, ActivationStage::Armed(_));
        let then = self.went_on(now);
        match is_switching {
            true => self.counted_and_armed_or_back(then),
            false => self.durable_if_possible(before, then),
        }
    }

    fn went_on(&mut self, now: BootTime) -> Vec<ActivationEffect> {
        match self.record.under_way.clone() {
            ActivationStage::Settled => Vec::new(),
            ActivationStage::Armed(trial) => self.armed_or_back(vec![
                ActivationEffect::ArmWatchdog(WatchdogAlarm::after(trial.deadline)),
                ActivationEffect::Switch(trial.target),
            ]),
            ActivationStage::Confirming(trial) => {
                let mut then = vec![ActivationEffect::ArmWatchdog(WatchdogAlarm::after(trial.deadline))];
                then.extend(self.declare_and_ask(&trial, now));
                self.armed_if_possible(then)
            }
            ActivationStage::Deferred(_) => {
                self.armed_if_possible(vec![ActivationEffect::ArmWatchdog(WatchdogAlarm::AtBoot)])
            }
            ActivationStage::Probation(probation) => {
                vec![self.ask_probes(self.record.confirmed.id, &probation.probes, now, now)]
            }
            ActivationStage::Returning(_) => self.return_again(now),
        }
    }
}
