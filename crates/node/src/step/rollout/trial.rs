//! What the node does while its host is switched to a release, confirms it or goes back.

use model::{Pause, RunReport, Timestamp};

use super::super::{ContactState, Node, ReleaseChange};
use super::{ConfirmTry, SwitchStage};
use crate::io::{CheckInWay, NodeEffect, RunFailure};
use crate::rollout_part::{ReturnedRelease, TrialReport, TrialStage};
use crate::state::Adoption;

impl Node {
    /// A release that nothing holds back comes while another one waits for a boot: that is given up first, and the end of
    /// that leads to the next check-in.
    pub(in crate::step) fn supersedes(&mut self, adoption: &Adoption, effects: &mut Vec<NodeEffect>) -> bool {
        let waits = matches!(self.rollout.trial, TrialStage::WaitsForBoot);
        if waits {
            effects.push(NodeEffect::Supersede(Box::new(adoption.clone())));
        }
        waits
    }

    pub(in crate::step) fn on_trial(&mut self, report: TrialReport, now: Timestamp) {
        // It is of what was there before the newest request, whose own report follows.
        if report.heard < self.rollout.requests {
            return;
        }
        let stage = report.stage;
        let was = std::mem::replace(&mut self.rollout.trial, stage);
        match stage {
            TrialStage::Settled => {
                (self.rollout.part, self.rollout.switch, self.rollout.try_to_confirm) = (None, None, None);
                if was != stage {
                    // Another release may have waited for this.
                    self.hurry(now);
                }
            }
            TrialStage::Returning => {
                (self.rollout.switch, self.rollout.try_to_confirm, self.rollout.freed) = (None, None, false);
                self.rollout.begun = None;
            }
            TrialStage::UnderWay | TrialStage::OnProbation => {}
            TrialStage::WaitsForBoot => self.rollout.try_to_confirm = None,
        }
    }

    pub(in crate::step) fn on_switch(&mut self, adoption: Box<Adoption>) {
        self.rollout.switch = Some(SwitchStage::Due(adoption));
    }

    /// Begins the switch once nothing else is under way; says whether runs wait for it.
    pub(in crate::step) fn switch_what_is_due(&mut self, effects: &mut Vec<NodeEffect>) -> bool {
        if self.rollout.returns() {
            if self.running.is_none() && !std::mem::replace(&mut self.rollout.freed, true) {
                effects.push(NodeEffect::HostIsFree);
            }
            return true;
        }
        let is_idle = match &self.change {
            ReleaseChange::None => true,
            // It is offered again.
            ReleaseChange::Waiting(waiting) => waiting.prepared.is_some(),
            _ => false,
        };
        let is_free = is_idle && self.running.is_none() && !self.awaits_contact;
        match self.rollout.switch.take() {
            Some(SwitchStage::Due(adoption)) if is_free => {
                effects.push(NodeEffect::Adopt(adoption.clone()));
                self.change = ReleaseChange::Adopting(adoption);
                self.rollout.switch = Some(SwitchStage::Adopting);
            }
            other => self.rollout.switch = other,
        }
        matches!(self.rollout.switch, Some(SwitchStage::Due(_) | SwitchStage::Adopting))
    }

    /// What was adopted is what is switched to: its full run follows.
    pub(in crate::step) fn switch_adopted(&mut self) -> bool {
        let is_switch = matches!(self.rollout.switch, Some(SwitchStage::Adopting));
        if is_switch {
            self.rollout.switch = Some(SwitchStage::Running);
        }
        is_switch
    }

    /// Something of a switch could not be done.
    pub(in crate::step) fn switch_failed(&mut self, why: &str, effects: &mut Vec<NodeEffect>) {
        if matches!(self.rollout.switch, Some(SwitchStage::Adopting | SwitchStage::Running)) {
            self.rollout.switch = None;
            effects.push(NodeEffect::Switched(Err(why.to_owned())));
        }
    }

    /// A full run that could not be made is a switch that failed.
    pub(in crate::step) fn switch_run_failed(&mut self, failure: &RunFailure, effects: &mut Vec<NodeEffect>) {
        if matches!(self.rollout.switch, Some(SwitchStage::Running)) {
            self.switch_failed(&failure.reason, effects);
        }
    }

    /// The pause that a run minds. A switch that began ends: one that waited for the end of a pause would be left, and
    /// would count against its release.
    pub(in crate::step) fn pause_of_run(&self) -> Option<Pause> {
        self.pause.clone().filter(|_| !matches!(self.rollout.switch, Some(SwitchStage::Running)))
    }

    /// A full run ended. What failed of its resources is for probes to judge, but for what is switched as a whole or not at
    /// all.
    pub(in crate::step) fn switch_ran(&mut self, report: &RunReport, effects: &mut Vec<NodeEffect>) {
        if matches!(self.rollout.switch, Some(SwitchStage::Running)) {
            self.rollout.switch = None;
            effects.push(NodeEffect::Switched(report.not_switched().map_or(Ok(()), Err)));
        }
    }

    pub(in crate::step) fn on_try_confirm(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        if matches!(self.talk, ContactState::Waiting) {
            // The try before was dialled after the switch too: its answer counts.
            if self.rollout.try_to_confirm == Some(ConfirmTry::Sent) {
                return;
            }
            effects.push(NodeEffect::HurryCheckIn);
        }
        self.rollout.try_to_confirm = Some(ConfirmTry::Requested);
        self.next_contact = self.next_contact.min(now);
    }

    /// A check-in is made.
    pub(in crate::step) fn try_is_asked(&mut self) {
        if self.rollout.try_to_confirm == Some(ConfirmTry::Requested) {
            self.rollout.try_to_confirm = Some(ConfirmTry::Sent);
        }
    }

    /// How the check-in goes that is made now.
    pub(in crate::step) fn check_in_way(&self) -> CheckInWay {
        match self.rollout.try_to_confirm {
            Some(ConfirmTry::Sent) => CheckInWay::NewConnection,
            Some(ConfirmTry::Requested) | None => CheckInWay::AnyConnection,
        }
    }

    /// A check-in ended.
    pub(in crate::step) fn tried(
        &mut self,
        outcome: Result<(), &str>,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) {
        match self.rollout.try_to_confirm {
            Some(ConfirmTry::Sent) => {
                self.rollout.try_to_confirm = None;
                effects.push(NodeEffect::ConfirmTried(outcome.map_err(str::to_owned)));
            }
            // That check-in was made before.
            Some(ConfirmTry::Requested) => self.next_contact = self.next_contact.min(now),
            None => {}
        }
    }

    pub(in crate::step) fn on_returned(
        &mut self,
        returned: ReturnedRelease,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) {
        self.change = ReleaseChange::None;
        self.run_due = false;
        self.next_run = now.plus(self.interval());
        if returned.last_run.is_some() {
            self.last_run = returned.last_run;
        }
        self.adoption = returned.adoption;
        self.settings = returned.settings;
        self.read_traits = None;
        self.not_stuck();
        self.freshness_follows(now, effects);
        self.contact_pending = true;
        self.hurry(now);
    }
}
