//! A generation is tried: armed, switched to, confirmed.
//!
//! ```text
//! switched |-- 1 --|-- 2 --|-- 3 --|-- 4 --|-- 5 --| deadline
//!          tries: one in each share of the window at most, as soon as every enforcing probe passes
//! ```

use super::{Activation, bounded, forgetting};
use crate::boot::{BootId, BootTime};
use crate::generation::GenerationId;
use crate::io::{
    ActivationEffect, ActivationFact, ActivationInput, ActivationOrder, ActivationRefusal, SwitchEnd,
    WatchdogAlarm,
};
use crate::record::{ActivationRecord, ActivationStage, Probation, ReturnCause, Trial};
use crate::terms::ContactRule;

/// What asks for the boot that a release waits for, where its own switch did not name it.
const DEFERRED_BEFORE: &str = "the release before, which has the same content";

impl Activation {
    pub(super) fn activate(&mut self, order: ActivationOrder, now: BootTime) -> Vec<ActivationEffect> {
        let target = order.target;
        if let Err(error) = order.terms.check() {
            return self.refused(target.id, error.into(), now);
        }
        let is_confirmed = target.id == self.record.confirmed.id;
        let leaves = self.is_to_leave();
        match &self.record.under_way {
            // What is durable may say so already, and the watchdog then has to go on with it.
            ActivationStage::Probation(_) if leaves && !is_confirmed => {
                self.refused(target.id, ActivationRefusal::UnderWay, now)
            }
            ActivationStage::Settled | ActivationStage::Probation(_) => match is_confirmed {
                true => self.renumber(order),
                false => self.arm(order, now),
            },
            // The fleet goes back to what this host is to return to anyway.
            ActivationStage::Armed(_) | ActivationStage::Confirming(_) if is_confirmed => {
                self.go_back(ReturnCause::Superseded, now)
            }
            ActivationStage::Deferred(trial) if trial.target.id != target.id => {
                self.go_back(ReturnCause::Superseded, now)
            }
            ActivationStage::Deferred(trial) if !leaves => {
                let trial = trial.clone();
                self.renumber_deferred(trial, order)
            }
            ActivationStage::Armed(_)
            | ActivationStage::Confirming(_)
            | ActivationStage::Deferred(_)
            | ActivationStage::Returning(_) => self.refused(target.id, ActivationRefusal::UnderWay, now),
        }
    }

    /// Another release with the content that is confirmed: there is nothing to try, and its probes are asked all the same.
    fn renumber(&mut self, order: ActivationOrder) -> Vec<ActivationEffect> {
        self.drop_retried_activation();
        let (before, target) = (self.record.clone(), order.target);
        self.record.confirmed = target;
        self.record.keep(target);
        self.renumbered = Some((target.id, order.probes.clone()));
        let started = ActivationEffect::Report(ActivationFact::Started { target: target.id });
        let then = vec![started, ActivationEffect::Switch(target)];
        match self.is_to_leave() {
            // That is tried until it is done, and this is not.
            true => self.durable_or_restored(before, then),
            false => self.durable_or_again(before, ActivationInput::Activate(Box::new(order)), then),
        }
    }

    /// Another release with the content that waits for its boot: it takes the place of that one, whose rollout may be
    /// through, and waits as that did. It is switched to, so that the host holds it.
    fn renumber_deferred(&mut self, waiting: Trial, order: ActivationOrder) -> Vec<ActivationEffect> {
        self.drop_retried_activation();
        let (before, again) = (self.record.clone(), ActivationInput::Activate(Box::new(order.clone())));
        let ActivationOrder { target, terms, probes } = order;
        let trial = Trial { target, boots_left: terms.boots, terms, probes, ..waiting };
        self.record.under_way = ActivationStage::Deferred(trial.clone());
        self.record.keep(target);
        let started = ActivationEffect::Report(ActivationFact::Started { target: target.id });
        let switch = self.switch_deferred(trial);
        self.durable_or_again(before, again, vec![started, switch])
    }

    /// The switch to another release with the content that waits for its boot.
    pub(super) fn switch_deferred(&mut self, trial: Trial) -> ActivationEffect {
        self.renumbered = Some((trial.target.id, trial.probes));
        ActivationEffect::Switch(trial.target)
    }

    /// How the switch ended to another release with the content that is confirmed, or waits for its boot.
    fn renumbered(&mut self, target: GenerationId, end: SwitchEnd, now: BootTime) -> Vec<ActivationEffect> {
        let waits = match &self.record.under_way {
            ActivationStage::Deferred(trial) if trial.target.id == target => true,
            ActivationStage::Settled | ActivationStage::Probation(_)
                if self.record.confirmed.id == target =>
            {
                false
            }
            _ => return Vec::new(),
        };
        let Some((_, probes)) = self.renumbered.take_if(|(id, _)| *id == target) else {
            return Vec::new();
        };
        match end {
            SwitchEnd::Failed { reason } => {
                let reason = bounded(&reason);
                match waits {
                    true => self.go_back(ReturnCause::SwitchFailed { reason }, now),
                    false => vec![ActivationEffect::Report(ActivationFact::SwitchFailed { target, reason })],
                }
            }
            SwitchEnd::NeedsReboot { component } => {
                let component = bounded(&component);
                vec![ActivationEffect::Report(ActivationFact::Deferred { target, component })]
            }
            // For the boot that the switch before asked for.
            SwitchEnd::Done | SwitchEnd::NeedsNewAgent if waits => {
                let component = DEFERRED_BEFORE.to_owned();
                vec![ActivationEffect::Report(ActivationFact::Deferred { target, component })]
            }
            // It is confirmed: no other agent has to do that.
            SwitchEnd::Done | SwitchEnd::NeedsNewAgent => {
                let completed = ActivationEffect::Report(ActivationFact::Completed { target });
                std::iter::once(completed).chain(self.declare_probes(target, &probes, now, now)).collect()
            }
        }
    }

    fn arm(&mut self, order: ActivationOrder, now: BootTime) -> Vec<ActivationEffect> {
        let ActivationOrder { target, terms, probes } = order;
        if let Some(known) = self.record.quarantine.of(target.id) {
            let cause = known.cause.clone();
            return self.refused(target.id, ActivationRefusal::Quarantined { cause }, now);
        }
        if !self.limits.admit(&[self.record.confirmed, target]) {
            let bytes = self.record.confirmed.bytes.saturating_add(target.bytes);
            return self.refused(target.id, ActivationRefusal::TooLarge { bytes }, now);
        }
        let before = self.record.clone();
        let deadline = now.plus(terms.switch);
        self.record.under_way = ActivationStage::Armed(Trial {
            target,
            boot: self.boot.clone(),
            deadline,
            switched: now,
            next_try: 0,
            deaths: 0,
            boots_left: 0,
            terms,
            probes,
        });
        self.record.keep(target);
        let forgotten = forgetting(self.forget_what_is_too_much());
        (self.results, self.retry) = (None, None);
        let then = [
            ActivationEffect::ArmWatchdog(WatchdogAlarm::after(deadline)),
            ActivationEffect::StopProbes,
            ActivationEffect::Report(ActivationFact::Started { target: target.id }),
        ];
        let then = then.into_iter().chain(forgotten).chain([ActivationEffect::Switch(target)]).collect();
        self.durable_and_armed_or_refused(before, target.id, then)
    }

    pub(super) fn switched(
        &mut self,
        target: GenerationId,
        end: SwitchEnd,
        now: BootTime,
    ) -> Vec<ActivationEffect> {
        let trial = match &self.record.under_way {
            ActivationStage::Armed(trial) if trial.target.id == target => trial.clone(),
            // Of another release with the same content; or one that the host went back from.
            _ => return self.renumbered(target, end, now),
        };
        let (before, again) = (self.record.clone(), end.clone());
        let then = match end {
            SwitchEnd::Failed { reason } => {
                return self.go_back(ReturnCause::SwitchFailed { reason: bounded(&reason) }, now);
            }
            SwitchEnd::NeedsReboot { component } => {
                let boots_left = trial.terms.boots;
                self.record.under_way = ActivationStage::Deferred(Trial { boots_left, ..trial });
                let component = bounded(&component);
                vec![
                    ActivationEffect::ArmWatchdog(WatchdogAlarm::AtBoot),
                    ActivationEffect::Report(ActivationFact::Deferred { target, component }),
                ]
            }
            SwitchEnd::Done | SwitchEnd::NeedsNewAgent => {
                let deadline = now.plus(trial.terms.window);
                let trial = Trial { switched: now, deadline, ..trial };
                self.record.under_way = ActivationStage::Confirming(trial.clone());
                let mut then = vec![
                    ActivationEffect::ArmWatchdog(WatchdogAlarm::after(deadline)),
                    ActivationEffect::Report(ActivationFact::Completed { target }),
                ];
                match again {
                    // What confirms it is an agent that it started: this one asks nothing of it.
                    SwitchEnd::NeedsNewAgent => then.push(ActivationEffect::StartAgentAnew),
                    _ => then.extend(self.declare_and_ask(&trial, now)),
                }
                then
            }
        };
        self.durable_or_again(before, ActivationInput::Switched { target, end: again }, then)
    }

    /// The agent cannot start as the generation has it.
    pub(super) fn not_started_anew(&mut self, reason: &str, now: BootTime) -> Vec<ActivationEffect> {
        match self.record.under_way {
            ActivationStage::Confirming(_) => {
                self.go_back(ReturnCause::SwitchFailed { reason: bounded(reason) }, now)
            }
            _ => Vec::new(),
        }
    }

    /// When the next try to confirm may be made: not while a probe fails, nor by a process that is to be started anew.
    pub(super) fn next_try(&self) -> Option<BootTime> {
        let ActivationStage::Confirming(trial) = &self.record.under_way else { return None };
        let may_try = trial.next_try < trial.terms.tries && self.probes_pass();
        let may_try = may_try && self.retry.is_none() && self.rewrite.is_none();
        may_try.then(|| trial.switched.plus(trial.terms.try_begins(trial.next_try)))
    }

    pub(super) fn confirming(&mut self, now: BootTime) -> Vec<ActivationEffect> {
        let ActivationStage::Confirming(trial) = &self.record.under_way else { return Vec::new() };
        let failed = self.results.as_ref().and_then(|results| results.sustained_failure(now));
        if let Some(failure) = failed {
            return self.go_back(ReturnCause::ProbeFailed(failure), now);
        }
        if trial.deadline <= now {
            return match trial.terms.contact {
                ContactRule::ProbesAlone if self.probes_pass() => {
                    let (before, then) = self.confirmed();
                    // There is no later try.
                    self.durable_and_armed_or_back(before, then)
                }
                ContactRule::ProbesAlone | ContactRule::Required => self.overdue(now),
            };
        }
        if self.next_try().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let number = trial.terms.try_at(now.since(trial.switched)) + 1;
        let (before, generation) = (self.record.clone(), trial.target.id);
        self.record.under_way = ActivationStage::Confirming(Trial { next_try: number, ..trial.clone() });
        let asked = ActivationEffect::TryConfirm { generation, boot: self.boot.clone(), number };
        // What cannot be written down now could not be confirmed either.
        self.durable_or_again(before, ActivationInput::Tick, vec![asked])
    }

    pub(super) fn confirm_answered(
        &mut self,
        generation: GenerationId,
        boot: BootId,
        now: BootTime,
    ) -> Vec<ActivationEffect> {
        match &self.record.under_way {
            ActivationStage::Confirming(trial)
                if trial.target.id == generation && self.boot == boot && now < trial.deadline =>
            {
                match self.probes_pass() {
                    true => {
                        let (before, then) = self.confirmed();
                        self.durable_or_restored(before, then)
                    }
                    false => self.try_failed("a probe has failed meanwhile"),
                }
            }
            // It was confirmed by an answer before this one.
            ActivationStage::Probation(_) if self.record.confirmed.id == generation && self.boot == boot => {
                Vec::new()
            }
            _ => vec![ActivationEffect::Report(ActivationFact::ConfirmRefused { generation, boot })],
        }
    }

    /// The window goes on as it was: neither shorter nor over.
    pub(super) fn try_failed(&mut self, reason: &str) -> Vec<ActivationEffect> {
        let ActivationStage::Confirming(trial) = &self.record.under_way else { return Vec::new() };
        let (target, reason) = (trial.target.id, bounded(reason));
        vec![ActivationEffect::Report(ActivationFact::TryFailed { target, reason })]
    }

    /// The generation is the confirmed one: the record before, and what follows once this is durable.
    fn confirmed(&mut self) -> (ActivationRecord, Vec<ActivationEffect>) {
        let before = self.record.clone();
        let ActivationStage::Confirming(trial) = std::mem::take(&mut self.record.under_way) else {
            self.record.under_way = before.under_way.clone();
            return (before, Vec::new());
        };
        let Trial { target, deaths, terms, probes, .. } = trial;
        let previous = std::mem::replace(&mut self.record.confirmed, target);
        self.record.under_way = ActivationStage::Probation(Probation { previous, deaths, terms, probes });
        self.record.quarantine.lift(target.id);
        self.record.returned = None;
        let forgotten = forgetting(self.forget_what_is_too_much());
        let confirmed = ActivationEffect::Report(ActivationFact::Confirmed { generation: target.id });
        (before, [ActivationEffect::Disarm, confirmed].into_iter().chain(forgotten).collect())
    }

    pub(super) fn rollout_ended(&mut self, generation: GenerationId) -> Vec<ActivationEffect> {
        let is_of_it = self.record.confirmed.id == generation;
        // One that is to be left is left, as soon as the disk lets it.
        let is_on_probation = matches!(self.record.under_way, ActivationStage::Probation(_));
        if !is_of_it || !is_on_probation || self.is_to_leave() {
            return Vec::new();
        }
        let before = self.record.clone();
        self.record.under_way = ActivationStage::Settled;
        let forgotten = forgetting(self.forget_what_is_too_much());
        let then = std::iter::once(ActivationEffect::StopProbes).chain(forgotten).collect();
        self.durable_or_restored(before, then)
    }
}
