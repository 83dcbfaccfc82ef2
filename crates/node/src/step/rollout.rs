//! What the node does of a rollout (ROL-5, ROL-7): a release whose signed header has rollout terms is not adopted at once.
//!
//! ```text
//! offer -> judged, fetched -> Prepare -> prepared: its wave by its signed set
//! answer {acknowledge}  -> not before its time, in a freeze, pinned: DispatchReject
//!                          else DispatchAck in the log, and a contact at once
//! answer {proceed}      -> that acknowledgement was taken, and it may begin still: Activate
//!                          in a freeze, a pin or a pause that came since: DispatchReject, and it is asked anew
//! answer {hold}, or of another rollout: what was prepared is dropped
//! answer of a later release's rollout, and nothing is held: adopted once its wave's signed time lets it
//! Switch -> adopted, a full run -> Switched
//! answer {goBack}       -> the signed terms let it: GoBack, to the generation that the host's record names
//!                          not begun: RollbackComplete in the log; confirmed, and nothing before it kept: Failed
//! ```
//!
//! What the host returned from is never adopted at once, and says why (ROL-12). Asked for it is begun all the same: the
//! activation refuses it, and the rollout hears that.
//!
//! Invariants: on a host that holds a release, nothing is begun whose acknowledgement was not taken by the control plane;
//! what would have it refuse a request keeps it from beginning; one release is switched to or left at a time;
//! the signed terms, and nothing that an answer says, decide the wave, its time, freezes, pins, its soak and whether a halt
//! takes the host back.

mod requests;
mod trial;

use activation::{ActivationRefusal, ReturnCause};
use model::Timestamp;
use model::exchange::{Answer, Offer};
use model::log::Cursor;
use model::rollout::{RolloutDispatch, RolloutEventBody, RolloutId, RolloutTask};
use model::unadopted::UnadoptedCause;
use rollout::BeginRefusal;
use trust::Header;
use trust::rollout_terms::OnFailure;

use super::counted_answers::CountedAnswers;
use super::waiting_release::{PreparedWave, RolloutNames, WaitingRelease, wave_of};
use super::{Node, ReleaseChange};
use crate::io::NodeEffect;
use crate::rollout_activation::NO_WAY_BACK;
use crate::rollout_part::{
    ActivationRequest, PreparedRelease, RequestNumber, RolloutPart, TrialStage, activation_terms,
};
use crate::state::Adoption;

/// How the node stands in rollouts.
#[derive(Debug, Default)]
pub(super) struct RolloutParticipation {
    /// What it activates, or has activated while the rollout goes on.
    part: Option<RolloutPart>,
    trial: TrialStage,
    /// The newest request to activate a release.
    requests: RequestNumber,
    acknowledgement: Option<Acknowledgement>,
    /// What was refused last: each request once.
    rejected: Option<RejectedDispatch>,
    /// What it began last, where the host did not leave it since: it was refused, where it is no part of the node any more.
    begun: Option<RolloutId>,
    /// It was to go back in this rollout, which changed nothing here, and said so: once for each time that it is asked.
    unbegun: Option<RolloutId>,
    answers: CountedAnswers,
    switch: Option<SwitchStage>,
    try_to_confirm: Option<ConfirmTry>,
    /// That no run is under way was said since the host is to go back.
    freed: bool,
}

/// An answer to a dispatch.
#[derive(Debug)]
struct Acknowledgement {
    rollout: RolloutId,
    /// Which request it answers: one that is made again has another end.
    until: Option<Timestamp>,
    /// Its number in the log, once it is durable.
    fact: Option<Cursor>,
    /// The control plane has it.
    delivered: bool,
    /// It was called since, so that its answers follow from that.
    called: bool,
}

impl Acknowledgement {
    /// What an answer says follows from it. One that was not asked for may follow a refusal that the control plane did not
    /// have when it made an answer which is under way yet.
    fn is_taken(&self) -> bool {
        self.delivered && (self.until.is_some() || self.called)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct RejectedDispatch {
    rollout: RolloutId,
    until: Option<Timestamp>,
    why: BeginRefusal,
}

/// How far a switch is.
#[derive(Debug)]
enum SwitchStage {
    /// It begins once no run is under way.
    Due(Box<Adoption>),
    /// The release is being adopted.
    Adopting,
    /// The full run is made.
    Running,
}

/// How far a try to confirm is.
#[derive(Debug, PartialEq, Eq)]
enum ConfirmTry {
    /// The next check-in carries it.
    Requested,
    /// Its check-in is under way.
    Sent,
}

impl RolloutParticipation {
    pub(super) fn restored(part: Option<RolloutPart>, trial: TrialStage) -> RolloutParticipation {
        RolloutParticipation { part, trial, ..RolloutParticipation::default() }
    }

    /// The host goes back, so that no run may begin.
    pub(super) fn returns(&self) -> bool {
        self.trial == TrialStage::Returning
    }

    /// A release is being activated, or left: no other one is taken.
    pub(super) fn keeps_others_out(&self) -> bool {
        matches!(self.trial, TrialStage::UnderWay | TrialStage::Returning) || self.switch.is_some()
    }

    fn is_part(&self, dispatch: &RolloutDispatch) -> Option<&RolloutPart> {
        let part = self.part.as_ref()?;
        (part.rollout == dispatch.rollout && part.seq == dispatch.seq).then_some(part)
    }

    /// Facts up to this are durable at the control plane; whether the acknowledgement is one that was not before.
    fn delivered(&mut self, cursor: &Cursor) -> bool {
        let Some(Acknowledgement { fact: Some(fact), delivered, .. }) = &mut self.acknowledgement else {
            return false;
        };
        let has_it = fact.incarnation == cursor.incarnation && fact.seq <= cursor.seq;
        has_it && !std::mem::replace(delivered, true)
    }

    /// What is answered from now on follows from all that was delivered.
    pub(super) fn called(&mut self) {
        if let Some(acknowledgement) = &mut self.acknowledgement {
            acknowledgement.called = acknowledgement.delivered;
        }
    }

    fn acknowledged(&self, rollout: &RolloutId) -> Option<&Acknowledgement> {
        self.acknowledgement.as_ref().filter(|acknowledgement| acknowledgement.rollout == *rollout)
    }
}

impl Node {
    /// The rollout whose release the node activates, or has activated while it goes on.
    pub fn rollout_part(&self) -> Option<&RolloutPart> {
        self.rollout.part.as_ref()
    }

    /// The release waits until it is asked for.
    pub(super) fn prepare(
        &mut self,
        adoption: Adoption,
        header: &Header,
        is_before: bool,
        effects: &mut Vec<NodeEffect>,
    ) {
        let names = RolloutNames::of(header, &adoption.digest);
        effects.push(NodeEffect::Prepare(Box::new(adoption.clone())));
        let waiting = WaitingRelease { adoption, names, prepared: None, is_before };
        self.change = ReleaseChange::Waiting(Box::new(waiting));
    }

    /// Whether a release is the one that waits already; another one takes its place.
    pub(super) fn waits_for(&mut self, offer: &Offer) -> bool {
        let ReleaseChange::Waiting(waiting) = &self.change else { return false };
        let is_same = waiting.adoption.digest == trust::signed::digest(&offer.header);
        if !is_same && waiting.prepared.is_some() {
            self.drop_waiting();
        }
        is_same
    }

    /// What was prepared is not begun any more. What is read still ends first.
    fn drop_waiting(&mut self) {
        self.rollout.acknowledgement = None;
        if matches!(&self.change, ReleaseChange::Waiting(waiting) if waiting.prepared.is_some()) {
            self.change = ReleaseChange::None;
        }
    }

    pub(super) fn on_prepared(
        &mut self,
        prepared: Result<Box<PreparedRelease>, String>,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) {
        let ReleaseChange::Waiting(waiting) = &mut self.change else { return };
        let header = self.chain.document().header(&waiting.adoption.header);
        let terms = header.ok().and_then(|header: Header| header.rollout);
        let wave = prepared.and_then(|prepared| {
            let terms = terms.ok_or("its rollout cannot be read")?;
            wave_of(terms, &self.identity.hostname, *prepared)
        });
        match wave {
            Ok(wave) => {
                let is_before = waiting.is_before;
                let quarantined = wave.quarantined.clone();
                waiting.prepared = Some(wave);
                match quarantined {
                    None => self.not_stuck(),
                    Some(cause) => self.tell_quarantined(cause, now, effects),
                }
                match is_before {
                    true => self.adopt_release_before(now, effects),
                    // The control plane asked before it was here.
                    false => self.hurry(now),
                }
            }
            Err(why) => self.on_stuck(UnadoptedCause::Keep, &why, now, effects),
        }
    }

    /// Why what the host is pointed to is not held, while it is not asked for, or when its activation is refused.
    fn tell_quarantined(&mut self, cause: ReturnCause, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        self.stuck = 0;
        let why = ActivationRefusal::Quarantined { cause }.to_string();
        self.tell_unadopted(UnadoptedCause::Other, &why, now, effects);
    }

    /// Nothing was adopted yet, or what was failed and the host is as it was found.
    pub(super) fn holds_nothing(&self) -> bool {
        self.adoption.as_ref().is_none_or(Adoption::is_as_found)
    }

    /// A host that holds nothing takes the release that it is pointed to until a later one begins: the rollout of that one
    /// is through, nobody asks for it any more, and it has nothing that could break. Its signed terms say when, as of any.
    fn adopt_release_before(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        if !self.holds_nothing() {
            return;
        }
        let ReleaseChange::Waiting(waiting) = &self.change else { return };
        let Some(wave) = &waiting.prepared else { return };
        // What the host returned from may have been well everywhere else.
        if wave.quarantined.is_some() || self.begin_refusal(wave, now).is_some() {
            return;
        }
        let adoption = waiting.adoption.clone();
        self.change = ReleaseChange::None;
        self.adopt(adoption, effects);
    }

    pub(super) fn on_dispatch_reported(&mut self, rollout: &RolloutId, at: Option<Cursor>, now: Timestamp) {
        if at.is_none() && self.rollout.unbegun.as_ref() == Some(rollout) {
            self.rollout.unbegun = None;
        }
        if at.is_none() && self.rollout.rejected.as_ref().is_some_and(|known| known.rollout == *rollout) {
            self.rollout.rejected = None;
        }
        let Some(acknowledgement) = &mut self.rollout.acknowledgement else { return };
        if acknowledgement.rollout != *rollout {
            return;
        }
        match at {
            Some(at) => {
                acknowledgement.fact = Some(at);
                self.contact_pending = true;
                self.hurry(now);
            }
            // The next answer that asks is answered again.
            None => self.rollout.acknowledgement = None,
        }
    }

    pub(super) fn on_delivered(&mut self, cursor: &Cursor, now: Timestamp) {
        if self.rollout.delivered(cursor) {
            // Only an answer lets it begin.
            self.hurry(now);
        }
    }

    /// What an answer says of the rollout that the node is in. Whether the rest of what it points to counts: a
    /// release that the node is to go back to is no offer, as it is kept here.
    pub(super) fn on_dispatch(
        &mut self,
        answer: &Answer,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) -> bool {
        if let Some(acked) = &answer.acked
            && self.rollout.delivered(acked)
        {
            self.rollout.called();
        }
        let Some(dispatch) = &answer.rollout else {
            // Nothing is asked. What is pointed to may wait on.
            if answer.offer.is_none() {
                self.drop_waiting();
            }
            return true;
        };
        let over = self.rollout.part.as_ref().filter(|part| dispatch.through.as_ref() == Some(&part.rollout));
        let over = over.map(|part| NodeEffect::RolloutEnded(part.root));
        let counts = match dispatch.task {
            RolloutTask::Hold | RolloutTask::Unknown => {
                self.drop_waiting();
                // It stays on what it began, where that failed and its terms say so: what it had before is no offer.
                self.rollout.is_part(dispatch).is_none()
            }
            RolloutTask::Acknowledge { until } => self.on_request(dispatch, until, now, effects),
            RolloutTask::Proceed => {
                self.on_proceed(dispatch, now, effects);
                true
            }
            RolloutTask::GoBack => {
                self.on_go_back(dispatch, now, effects);
                false
            }
        };
        // A release that begins by this answer takes the place of that one first, which ends its soak as well.
        effects.extend(over);
        counts
    }

    fn on_proceed(&mut self, dispatch: &RolloutDispatch, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        let taken = self.rollout.acknowledged(&dispatch.rollout).is_some_and(Acknowledgement::is_taken);
        if let Some(root) = self.rollout.is_part(dispatch).map(|part| part.root) {
            if taken {
                self.rollout.acknowledgement = None;
                effects.push(NodeEffect::RestateRollout(root));
            }
            return;
        }
        let ReleaseChange::Waiting(waiting) = &self.change else { return self.forget_other(dispatch) };
        if !waiting.names.has(dispatch) {
            return self.drop_waiting();
        }
        let refusal = waiting.prepared.as_ref().map(|wave| self.refusal(wave, now));
        match taken {
            // What came since would have had the request refused: it is asked anew, and holds no slot until then.
            true if matches!(refusal, Some(Some(_))) => self.answer_request(dispatch, None, now, effects),
            true if refusal.is_some() && self.is_free() => self.begin(dispatch, now, effects),
            // It waits as it is, for a moment: the control plane says it again.
            true => {}
            // An agent that starts anew has forgotten what it said. One that began knows better, and was refused: it said so,
            // and would be again, whatever the control plane made of that.
            false
                if self.rollout.acknowledged(&dispatch.rollout).is_none()
                    && self.rollout.begun.as_ref() != Some(&dispatch.rollout) =>
            {
                self.answer_request(dispatch, None, now, effects);
            }
            false => {}
        }
    }

    /// No other release is switched to or left, and no contact is to follow a guarded change (CNV-11).
    fn is_free(&self) -> bool {
        !self.awaits_contact && !self.rollout.keeps_others_out()
    }

    fn begin(&mut self, dispatch: &RolloutDispatch, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        let waiting = match std::mem::take(&mut self.change) {
            ReleaseChange::Waiting(waiting) => waiting,
            other => return self.change = other,
        };
        let WaitingRelease { adoption, prepared, .. } = *waiting;
        let Some(PreparedWave { rules, placement, probes, .. }) = prepared else { return };
        self.rollout.acknowledgement = None;
        self.rollout.begun = Some(dispatch.rollout.clone());
        let terms = rules.terms();
        let part = RolloutPart {
            rollout: dispatch.rollout.clone(),
            seq: adoption.seq,
            root: adoption.root,
            soak_secs: rules.gate(usize::from(placement.wave)).soak_secs,
            on_failure: terms.on_failure,
        };
        let waits_for_boot = matches!(self.rollout.trial, TrialStage::WaitsForBoot);
        // What waits for its boot is left first, and its part with it; another release with its set waits in its place.
        let takes_over = self.rollout.part.as_ref().is_some_and(|known| known.root == part.root);
        if !waits_for_boot || takes_over {
            self.rollout.part = Some(part.clone());
            self.rollout.trial = TrialStage::UnderWay;
        }
        let terms = activation_terms(&terms.confirm, terms.on_failure);
        let adoption = adoption.begun_on(self.adoption.as_ref(), now);
        self.rollout.requests = self.rollout.requests.next();
        let request = ActivationRequest { number: self.rollout.requests, part, adoption, terms, probes };
        effects.push(NodeEffect::Activate(Box::new(request)));
    }

    /// A stolen control plane can go back one generation, where the release lets it, and no further: the host goes to the
    /// one that its own record names.
    fn on_go_back(&mut self, dispatch: &RolloutDispatch, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        self.forget_other(dispatch);
        let Some(part) = self.rollout.is_part(dispatch) else {
            return self.changed_nothing(dispatch, now, effects);
        };
        // There is no way back from it: what the host had before is the same, and what an activation would go back to is
        // of a rollout before. One that waits for its boot has one: it was never confirmed.
        let leads_nowhere =
            self.adoption.as_ref().is_some_and(|held| held.root == part.root && held.leads_nowhere(part.seq));
        if leads_nowhere && self.rollout.trial != TrialStage::WaitsForBoot {
            return self.changed_nothing(dispatch, now, effects);
        }
        // Whatever is pointed to: the control plane may not know yet what the host had.
        if part.on_failure == OnFailure::Rollback {
            effects.push(NodeEffect::GoBack(part.root));
        }
    }

    /// What it acknowledged is called back before it began, or gave it the set that it had before: it is on what it had,
    /// and says so. Until then it counts as under way, and keeps its slot of a budget. Where it is on what it is called back
    /// from, for good, it says that: the control plane is one that lost how far it was.
    fn changed_nothing(&mut self, dispatch: &RolloutDispatch, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        if self.rollout.keeps_others_out() {
            return;
        }
        self.drop_waiting();
        let held = self.adoption.as_ref().filter(|held| !held.is_as_found());
        let before = held.map_or(Some(0), |held| match held.seq == dispatch.seq {
            true => held.same_as,
            false => Some(held.seq),
        });
        if before.is_none() && self.rollout.trial != TrialStage::Settled {
            return;
        }
        let is_said = self.rollout.unbegun.as_ref() == Some(&dispatch.rollout);
        if is_said || !self.rollout.answers.may_answer(now) {
            return;
        }
        let event = match before {
            Some(release) => RolloutEventBody::RollbackComplete { release },
            None => RolloutEventBody::Failed { message: NO_WAY_BACK.to_owned() },
        };
        effects.push(NodeEffect::ReportDispatch(dispatch.rollout.clone(), event));
        self.rollout.unbegun = Some(dispatch.rollout.clone());
        self.contact_pending = true;
        self.deliver_soon(now);
    }
}
