//! What follows where an effect could not be carried out: nothing is switched that is not durable and guarded, and a
//! return waits for no disk.
//!
//! A record that could not be made durable may be there all the same, where its file has its name and only the
//! directory could not be synced. Whoever gives the step up writes what counts in its place, until that is durable: the
//! next process would go on with what was given up otherwise.

use super::{Activation, PERSIST_RETRY, RetriedStep, bounded};
use crate::boot::BootTime;
use crate::generation::GenerationId;
use crate::io::{ActivationEffect, ActivationFact, ActivationInput, ActivationRefusal};
use crate::record::{ActivationRecord, ActivationStage, ReturnCause};

/// The step whose effects are carried out.
#[derive(Debug)]
pub(super) struct LastStep {
    /// What was durable before.
    before: ActivationRecord,
    /// What follows where the record cannot be made durable.
    unpersisted: Unpersisted,
    /// What follows where the watchdog cannot be armed.
    unarmed: Unarmed,
    effects: Vec<ActivationEffect>,
}

/// What follows where a record cannot be made durable.
#[derive(Debug)]
enum Unpersisted {
    /// The step was not made.
    Restore,
    /// The step was not made, and is made later.
    Again(Box<ActivationInput>),
    /// The rest is done all the same.
    GoOn,
    /// The host goes back.
    Return,
    /// The host goes back later, once that is durable.
    ReturnLater(ReturnCause),
    /// The release is not activated.
    Refuse(GenerationId),
}

/// What follows where the watchdog cannot be armed.
#[derive(Debug)]
enum Unarmed {
    /// The rest is done all the same: what was armed before counts.
    GoOn,
    /// The host goes back.
    Return,
    /// The host goes back later, once it is guarded.
    ReturnLater(ReturnCause),
    /// The release is not activated.
    Refuse(GenerationId),
}

impl Activation {
    /// Nothing is switched without a durable way back: the release is refused otherwise.
    pub(super) fn durable_and_armed_or_refused(
        &mut self,
        before: ActivationRecord,
        target: GenerationId,
        then: Vec<ActivationEffect>,
    ) -> Vec<ActivationEffect> {
        self.step(before, Unpersisted::Refuse(target), Unarmed::Refuse(target), then)
    }

    /// The step is made once it is durable, or not at all.
    pub(super) fn durable_or_restored(
        &mut self,
        before: ActivationRecord,
        then: Vec<ActivationEffect>,
    ) -> Vec<ActivationEffect> {
        self.step(before, Unpersisted::Restore, Unarmed::GoOn, then)
    }

    /// The step is made once it is durable, and tried until it is.
    pub(super) fn durable_or_again(
        &mut self,
        before: ActivationRecord,
        input: ActivationInput,
        then: Vec<ActivationEffect>,
    ) -> Vec<ActivationEffect> {
        self.step(before, Unpersisted::Again(Box::new(input)), Unarmed::GoOn, then)
    }

    /// The step waits neither for the disk nor for the watchdog.
    pub(super) fn durable_if_possible(
        &mut self,
        before: ActivationRecord,
        then: Vec<ActivationEffect>,
    ) -> Vec<ActivationEffect> {
        self.step(before, Unpersisted::GoOn, Unarmed::GoOn, then)
    }

    /// The host leaves a generation that is confirmed, or gives up one that waits for a reboot, once that is durable and guarded: the watchdog would not go on with it
    /// otherwise.
    pub(super) fn durable_or_later(
        &mut self,
        before: ActivationRecord,
        cause: ReturnCause,
        then: Vec<ActivationEffect>,
    ) -> Vec<ActivationEffect> {
        self.step(before, Unpersisted::ReturnLater(cause.clone()), Unarmed::ReturnLater(cause), then)
    }

    /// A boot that cannot be counted is one too many.
    pub(super) fn durable_and_armed_or_back(
        &mut self,
        before: ActivationRecord,
        then: Vec<ActivationEffect>,
    ) -> Vec<ActivationEffect> {
        self.step(before, Unpersisted::Return, Unarmed::Return, then)
    }

    /// A switch goes on, which may have begun: what is durable is so already.
    pub(super) fn armed_or_back(&mut self, then: Vec<ActivationEffect>) -> Vec<ActivationEffect> {
        let before = self.record.clone();
        let (unpersisted, unarmed) = (Unpersisted::GoOn, Unarmed::Return);
        self.last = Some(LastStep { before, unpersisted, unarmed, effects: then.clone() });
        then
    }

    /// What is armed goes on, and was armed in this boot before.
    pub(super) fn armed_if_possible(&mut self, then: Vec<ActivationEffect>) -> Vec<ActivationEffect> {
        let before = self.record.clone();
        let (unpersisted, unarmed) = (Unpersisted::GoOn, Unarmed::GoOn);
        self.last = Some(LastStep { before, unpersisted, unarmed, effects: then.clone() });
        then
    }

    /// The same as [`Activation::armed_or_back`], with a death that is counted: what cannot be made durable of that is counted by the deadline.
    pub(super) fn counted_and_armed_or_back(&mut self, then: Vec<ActivationEffect>) -> Vec<ActivationEffect> {
        let before = self.record.clone();
        self.step(before, Unpersisted::GoOn, Unarmed::Return, then)
    }

    fn step(
        &mut self,
        before: ActivationRecord,
        unpersisted: Unpersisted,
        unarmed: Unarmed,
        then: Vec<ActivationEffect>,
    ) -> Vec<ActivationEffect> {
        // First the alarm: what is durable then is looked at in any case, also where this process ends in between.
        let mut effects = then;
        let first = usize::from(matches!(effects.first(), Some(ActivationEffect::ArmWatchdog(_))));
        effects.insert(first, ActivationEffect::Persist(Box::new(self.record.clone())));
        self.last = Some(LastStep { before, unpersisted, unarmed, effects: effects.clone() });
        effects
    }

    pub(super) fn not_persisted(
        &mut self,
        last: Option<LastStep>,
        reason: &str,
        now: BootTime,
    ) -> Vec<ActivationEffect> {
        let Some(LastStep { before, unpersisted, unarmed, effects }) = last else { return Vec::new() };
        let reason = bounded(reason);
        let told = self.tell_not_persisted(&reason);
        match unpersisted {
            Unpersisted::Restore => {
                self.record = before;
                self.write_later(now);
                told
            }
            Unpersisted::Again(input) => {
                self.record = before;
                self.retry = Some((now.plus(PERSIST_RETRY), RetriedStep::Input(input)));
                told
            }
            Unpersisted::GoOn => {
                let rest = after(effects, |effect| matches!(effect, ActivationEffect::Persist(_)));
                let unpersisted = Unpersisted::GoOn;
                self.last = Some(LastStep { before, unpersisted, unarmed, effects: rest.clone() });
                self.write_later(now);
                told.into_iter().chain(rest).collect()
            }
            Unpersisted::Return => {
                self.record = before;
                self.go_back(ReturnCause::Unguarded { reason }, now)
            }
            Unpersisted::ReturnLater(cause) => {
                self.leave_later(before, cause, now);
                told
            }
            Unpersisted::Refuse(target) => {
                // What was refused may be durable.
                let refused = std::mem::replace(&mut self.record, before);
                let then = self.not_activated(target, reason, now);
                self.durable_if_possible(refused, then)
            }
        }
    }

    /// What is durable may be a record that was given up: what counts is written in its place.
    fn write_later(&mut self, now: BootTime) {
        self.rewrite = Some(now.plus(PERSIST_RETRY));
    }

    /// What counts is made durable once more.
    pub(super) fn write_again(&mut self) -> Vec<ActivationEffect> {
        let before = self.record.clone();
        self.durable_if_possible(before, Vec::new())
    }

    /// The last step was carried out as a whole.
    pub(super) fn carried_out(&mut self, last: &LastStep) {
        if last.effects.iter().any(|effect| matches!(effect, ActivationEffect::Persist(_))) {
            (self.persist_failure, self.rewrite) = (None, None);
        }
    }

    pub(super) fn not_armed(
        &mut self,
        last: Option<LastStep>,
        reason: &str,
        now: BootTime,
    ) -> Vec<ActivationEffect> {
        let Some(LastStep { before, unpersisted, unarmed, effects }) = last else { return Vec::new() };
        let reason = bounded(reason);
        match unarmed {
            Unarmed::GoOn => {
                let told = ActivationEffect::Report(ActivationFact::WatchdogNotSet { reason });
                let rest = after(effects, |effect| matches!(effect, ActivationEffect::ArmWatchdog(_)));
                let unarmed = Unarmed::GoOn;
                self.last = Some(LastStep { before, unpersisted, unarmed, effects: rest.clone() });
                std::iter::once(told).chain(rest).collect()
            }
            Unarmed::ReturnLater(cause) => {
                self.leave_later(before, cause, now);
                vec![ActivationEffect::Report(ActivationFact::WatchdogNotSet { reason })]
            }
            Unarmed::Return => self.go_back(ReturnCause::Unguarded { reason }, now),
            Unarmed::Refuse(target) => {
                self.record = before;
                self.not_activated(target, reason, now)
            }
        }
    }

    fn leave_later(&mut self, before: ActivationRecord, cause: ReturnCause, now: BootTime) {
        self.record = before;
        self.retry = Some((now.plus(PERSIST_RETRY), RetriedStep::Leave(cause)));
    }

    /// A newer release is activated: one before it that could not be made durable is not tried again.
    pub(super) fn drop_retried_activation(&mut self) {
        self.retry.take_if(|(_, step)| match step {
            RetriedStep::Input(input) => matches!(**input, ActivationInput::Activate(_)),
            RetriedStep::Return | RetriedStep::Leave(_) => false,
        });
    }

    /// The host is to leave what is confirmed, or waits for its boot, once that is durable and guarded.
    pub(super) fn is_to_leave(&self) -> bool {
        matches!(self.retry, Some((_, RetriedStep::Leave(_))))
    }

    /// The same reason is told once, until something could be made durable.
    fn tell_not_persisted(&mut self, reason: &str) -> Vec<ActivationEffect> {
        if self.persist_failure.as_deref() == Some(reason) {
            return Vec::new();
        }
        self.persist_failure = Some(reason.to_owned());
        vec![ActivationEffect::Report(ActivationFact::NotPersisted { reason: reason.to_owned() })]
    }

    fn not_activated(
        &mut self,
        target: GenerationId,
        reason: String,
        now: BootTime,
    ) -> Vec<ActivationEffect> {
        let refused = self.refused(target, ActivationRefusal::NotArmed { reason }, now);
        std::iter::once(ActivationEffect::Disarm).chain(refused).collect()
    }

    /// A release is not activated. What was on probation before goes on so.
    pub(super) fn refused(
        &mut self,
        target: GenerationId,
        refusal: ActivationRefusal,
        now: BootTime,
    ) -> Vec<ActivationEffect> {
        let mut effects = vec![ActivationEffect::Report(ActivationFact::Refused { target, refusal })];
        if let ActivationStage::Probation(probation) = &self.record.under_way
            && self.results.is_none()
        {
            let probes = probation.probes.clone();
            effects.push(self.ask_probes(self.record.confirmed.id, &probes, now, now));
        }
        effects
    }
}

/// The effects after the first of a sort.
fn after(effects: Vec<ActivationEffect>, is_it: impl Fn(&ActivationEffect) -> bool) -> Vec<ActivationEffect> {
    effects.into_iter().skip_while(|effect| !is_it(effect)).skip(1).collect()
}
