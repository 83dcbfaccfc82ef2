//! The way back to the recorded confirmed generation. From a trial it needs neither the network nor room on the disk; it is gone
//! until the host is there.

use super::{Activation, RETURN_RETRY, RetriedStep, bounded, forgetting};
use crate::boot::{BootMoment, BootTime};
use crate::generation::GenerationId;
use crate::io::{ActivationEffect, ActivationFact, ActivationInput, WatchdogAlarm};
use crate::record::{ActivationStage, EndedReturn, GenerationReturn, RETURN_LIMIT, ReturnCause};
use crate::terms::AfterConfirm;

impl Activation {
    /// The host goes back, whatever it does now.
    pub(super) fn go_back(&mut self, cause: ReturnCause, now: BootTime) -> Vec<ActivationEffect> {
        let before = self.record.clone();
        let from = match std::mem::take(&mut self.record.under_way) {
            ActivationStage::Settled => return Vec::new(),
            ActivationStage::Armed(trial)
            | ActivationStage::Confirming(trial)
            | ActivationStage::Deferred(trial) => trial.target,
            ActivationStage::Probation(probation) => {
                std::mem::replace(&mut self.record.confirmed, probation.previous)
            }
            ActivationStage::Returning(back) => back.from,
        };
        let deadline = now.plus(RETURN_LIMIT);
        let (boot, to) = (self.boot.clone(), self.record.confirmed);
        self.record.under_way =
            ActivationStage::Returning(GenerationReturn { from, cause: cause.clone(), boot, deadline });
        (self.results, self.retry, self.return_failure) = (None, None, None);
        let waits_for_disk = match &before.under_way {
            ActivationStage::Probation(_) => true,
            // The host runs what is confirmed still.
            ActivationStage::Deferred(trial) => trial.boot == self.boot,
            _ => false,
        };
        let then = vec![
            ActivationEffect::ArmWatchdog(WatchdogAlarm::after(deadline)),
            ActivationEffect::StopProbes,
            ActivationEffect::Report(ActivationFact::Returning {
                from: from.id,
                to: to.id,
                cause: cause.clone(),
            }),
            ActivationEffect::Return { from: from.id, to },
        ];
        match waits_for_disk {
            true => self.durable_or_later(before, cause, then),
            false => self.durable_if_possible(before, then),
        }
    }

    pub(super) fn overdue(&mut self, now: BootTime) -> Vec<ActivationEffect> {
        self.go_back(self.record.under_way.overdue(), now)
    }

    /// The same return once more: it failed, did not end, or another process began it.
    pub(super) fn return_again(&mut self, now: BootTime) -> Vec<ActivationEffect> {
        let before = self.record.clone();
        let ActivationStage::Returning(back) = &mut self.record.under_way else { return Vec::new() };
        back.deadline = now.plus(RETURN_LIMIT);
        let (from, deadline) = (back.from.id, back.deadline);
        let then = vec![
            ActivationEffect::ArmWatchdog(WatchdogAlarm::after(deadline)),
            ActivationEffect::Return { from, to: self.record.confirmed },
        ];
        self.durable_if_possible(before, then)
    }

    pub(super) fn returned(&mut self, now: BootTime) -> Vec<ActivationEffect> {
        let before = self.record.clone();
        let ActivationStage::Returning(back) = std::mem::take(&mut self.record.under_way) else {
            self.record = before;
            return Vec::new();
        };
        let GenerationReturn { from, cause, .. } = back;
        let at = BootMoment { boot: self.boot.clone(), at: now };
        self.record.quarantine.note(&from, &cause, &at);
        self.record.returned = Some(EndedReturn { from, cause: cause.clone(), at });
        self.record.kept.retain(|kept| kept.id != from.id);
        self.retry = None;
        let (from, to) = (from.id, self.record.confirmed.id);
        let then = [
            ActivationEffect::Disarm,
            ActivationEffect::Report(ActivationFact::Returned { from, to, cause }),
        ];
        let then = then.into_iter().chain(forgetting(vec![from])).collect();
        self.durable_or_again(before, ActivationInput::Returned, then)
    }

    /// It is tried until it is done; the same reason is told once.
    pub(super) fn return_failed(&mut self, reason: &str, now: BootTime) -> Vec<ActivationEffect> {
        if !matches!(self.record.under_way, ActivationStage::Returning(_)) {
            return Vec::new();
        }
        self.retry = Some((now.plus(RETURN_RETRY), RetriedStep::Return));
        let reason = bounded(reason);
        if self.return_failure.as_ref() == Some(&reason) {
            return Vec::new();
        }
        self.return_failure = Some(reason.clone());
        let to = self.record.confirmed.id;
        vec![ActivationEffect::Report(ActivationFact::ReturnFailed { to, reason })]
    }

    /// What a halt means is signed with the release.
    pub(super) fn halted(&mut self, generation: GenerationId, now: BootTime) -> Vec<ActivationEffect> {
        let terms = match &self.record.under_way {
            ActivationStage::Armed(trial)
            | ActivationStage::Confirming(trial)
            | ActivationStage::Deferred(trial)
                if trial.target.id == generation =>
            {
                trial.terms
            }
            ActivationStage::Probation(probation) if self.record.confirmed.id == generation => {
                probation.terms
            }
            ActivationStage::Settled if self.record.confirmed.id == generation => {
                return vec![ActivationEffect::Report(ActivationFact::NoWayBack { generation })];
            }
            _ => return Vec::new(),
        };
        match terms.after_confirm {
            AfterConfirm::Return => self.go_back(ReturnCause::Halted, now),
            AfterConfirm::Stay => Vec::new(),
        }
    }
}
