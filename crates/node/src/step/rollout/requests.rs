//! What is answered to a request: that the node will begin, or why it does not.

use model::Timestamp;
use model::rollout::{RolloutDispatch, RolloutEventBody, RolloutId};
use rollout::{BeginRefusal, Placement};

use super::super::waiting_release::{PreparedWave, RolloutNames};
use super::super::{Node, ReleaseChange};
use super::{Acknowledgement, RejectedDispatch};
use crate::io::NodeEffect;
use crate::rollout_part::TrialStage;

impl Node {
    pub(super) fn on_request(
        &mut self,
        dispatch: &RolloutDispatch,
        until: Timestamp,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) -> bool {
        if self.rollout.is_part(dispatch).is_some() {
            // It is to go back, or the control plane lost what was said: what follows says which.
            self.acknowledge(&dispatch.rollout, Some(until), now, effects);
            return false;
        }
        let is_asked = match &self.change {
            ReleaseChange::Waiting(waiting) => waiting.names.has(dispatch),
            ReleaseChange::None if self.rollout.trial == TrialStage::Settled => {
                self.prepare_what_is_held(dispatch, effects);
                false
            }
            _ => false,
        };
        if is_asked {
            self.answer_request(dispatch, Some(until), now, effects);
        } else {
            self.forget_other(dispatch);
        }
        true
    }

    /// A request of another rollout takes the place of the one that was acknowledged.
    pub(super) fn forget_other(&mut self, dispatch: &RolloutDispatch) {
        if self.rollout.acknowledged(&dispatch.rollout).is_none() {
            self.rollout.acknowledgement = None;
        }
    }

    /// The release that is held is asked for: it is activated as any other, though nothing of it changes the host.
    fn prepare_what_is_held(&mut self, dispatch: &RolloutDispatch, effects: &mut Vec<NodeEffect>) {
        let Some(held) = self.adoption.clone().filter(|held| held.seq == dispatch.seq && !held.is_as_found())
        else {
            return;
        };
        let Ok(header) = self.chain.document().header(&held.header) else { return };
        if header.rollout.is_some() && RolloutNames::of(&header, &held.digest).has(dispatch) {
            self.prepare(held, &header, false, effects);
        }
    }

    /// Says that it will begin, or why it does not.
    pub(super) fn answer_request(
        &mut self,
        dispatch: &RolloutDispatch,
        until: Option<Timestamp>,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) {
        let ReleaseChange::Waiting(waiting) = &self.change else { return };
        let Some(wave) = &waiting.prepared else { return };
        let Some(why) = self.refusal(wave, now) else {
            return self.acknowledge(&dispatch.rollout, until, now, effects);
        };
        self.rollout.acknowledgement = None;
        let rejected = RejectedDispatch { rollout: dispatch.rollout.clone(), until, why };
        if self.rollout.rejected.as_ref() == Some(&rejected) || !self.rollout.answers.may_answer(now) {
            return;
        }
        let difference = self.clock_difference.filter(|_| why != BeginRefusal::Paused);
        let clocks = difference.map(|difference| difference.text()).unwrap_or_default();
        let code = why.code();
        effects.push(NodeEffect::Warn(format!("release {} is not begun: {code}{clocks}", dispatch.seq)));
        let event = RolloutEventBody::DispatchReject { code: code.to_owned() };
        effects.push(NodeEffect::ReportDispatch(dispatch.rollout.clone(), event));
        self.rollout.rejected = Some(rejected);
        self.contact_pending = true;
        self.deliver_soon(now);
    }

    /// Why a release does not begin now: by its signed terms, or as somebody paused the host.
    pub(super) fn refusal(&self, wave: &PreparedWave, now: Timestamp) -> Option<BeginRefusal> {
        self.begin_refusal(wave, now).or(self.pause.as_ref().map(|_| BeginRefusal::Paused))
    }

    /// Why a release must not begin now, by its signed terms.
    pub(super) fn begin_refusal(&self, wave: &PreparedWave, now: Timestamp) -> Option<BeginRefusal> {
        let placement = Placement {
            // A host that holds nothing has nothing that it could be pinned to.
            pinned: wave.placement.pinned.filter(|_| !self.holds_nothing()),
            ..wave.placement
        };
        // By the host's own time: a control plane that says another one opens no wave early.
        wave.rules.refusal(&placement, self.trust_time(now).own())
    }

    /// Each request is acknowledged once, however often it is said.
    pub(super) fn acknowledge(
        &mut self,
        rollout: &RolloutId,
        until: Option<Timestamp>,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) {
        let is_said = self.rollout.acknowledged(rollout).is_some_and(|known| known.until == until);
        if is_said || !self.rollout.answers.may_answer(now) {
            return;
        }
        // Called back again, or kept from beginning again, it says so again.
        (self.rollout.unbegun, self.rollout.rejected) = (None, None);
        let rollout = rollout.clone();
        let said =
            Acknowledgement { rollout: rollout.clone(), until, fact: None, delivered: false, called: false };
        self.rollout.acknowledgement = Some(said);
        effects.push(NodeEffect::ReportDispatch(rollout, RolloutEventBody::DispatchAck));
    }
}
