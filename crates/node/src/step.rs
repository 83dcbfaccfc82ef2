//! [`Node`]: inputs to effects.

mod counted_answers;
mod delivery;
mod freshness;
mod heal;
mod offer;
mod pause;
mod reboot;
mod renewal;
mod repair;
mod requests;
mod rollout;
mod runs;
mod trusted;
mod waiting_release;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use converge::ResourceId;
use model::exchange::{Answer, CheckIn, Offer, RunNote, TraitReport};
use model::log::FactBody;
use model::unadopted::{UnadoptedCause, UnadoptedRelease};
use model::{Contention, Digest, ObjectSet, Pause, Timestamp, UnmadeRun};
use trust::adopt::Adopted;

use crate::backoff::Spread;
use crate::clock_difference::ClockDifference;
use crate::freshness::FreshnessRecord;
use crate::healing::Healing;
use crate::io::{HeldSettings, Identity, NodeEffect, NodeInput, ObservedTraits, ReadTraits, Restored};
use crate::reboot::Reboots;
use crate::renewal::Renewal;
use crate::reported_contentions::ReportedContentions;
use crate::state::{Adoption, LastRun};

use freshness::Confirmation;
use requests::{RequestNumbers, RunRequests};
use rollout::RolloutParticipation;
use runs::RunUnderWay;
use trusted::{HeldChain, LinkBearer};
use waiting_release::WaitingRelease;

/// The shortest wait that a control plane may ask for between contacts.
pub const MIN_CONTACT: Duration = Duration::from_secs(1);
/// The longest wait that a control plane may ask for between contacts.
pub const MAX_CONTACT: Duration = Duration::from_secs(7 * 24 * 3600);
/// What a control plane may always ask for; beyond it, four times the policy's interval.
pub const LONG_CONTACT: Duration = Duration::from_secs(3600);

/// Where the node stands with its contacts.
#[derive(Debug)]
enum ContactState {
    Idle,
    Traits,
    Waiting,
}

/// A release on its way to be held. Contacts and runs go on meanwhile: a slow content or disk
/// delays neither.
#[derive(Debug, Default)]
enum ReleaseChange {
    #[default]
    None,
    Fetching(Box<FetchingRelease>),
    /// It is here, and waits until it is asked for.
    Waiting(Box<WaitingRelease>),
    Adopting(Box<Adoption>),
    /// Contents of what is held come again.
    FetchingHeld(Box<Adoption>),
    /// What is held is written again, as it was adopted.
    WritingHeld(Box<Adoption>),
}

#[derive(Debug)]
struct FetchingRelease {
    offer: Offer,
    adopted: Adopted,
    set: ObjectSet,
    /// The release whose rollout the answer spoke of.
    rollout_seq: Option<u64>,
}

/// The agent's step: what the node holds, and what it does next.
#[derive(Debug)]
pub struct Node {
    identity: Identity,
    chain: HeldChain,
    adoption: Option<Adoption>,
    /// How fresh it is.
    freshness: Option<FreshnessRecord>,
    settings: HeldSettings,
    last_run: Option<LastRun>,
    spread: Spread,
    talk: ContactState,
    change: ReleaseChange,
    /// The header held when the last check-in was made: an offer is a difference from there.
    asked_from: Option<Digest>,
    running: Option<RunUnderWay>,
    run_due: bool,
    /// Somebody at the host asks for a run of what has one of these tags.
    tags_due: BTreeSet<String>,
    pause: Option<Pause>,
    healing: Healing,
    reboots: Reboots,
    renewal: Renewal,
    /// What something else changes again and again.
    contended: Vec<Contention>,
    /// The same as it was reported last.
    reported_contentions: ReportedContentions,
    /// Resources whose culprits are to be found out.
    culprits_to_find: BTreeSet<ResourceId>,
    /// Facts came that no check-in has carried yet, or another cause for one.
    contact_pending: bool,
    traits: Option<Arc<TraitReport>>,
    traits_sent: Option<Arc<TraitReport>>,
    traits_acked: Option<Arc<TraitReport>>,
    /// Those of them that a set reads.
    read_traits: Option<ReadTraits>,
    /// The newest time that an input came with.
    seen_at: Timestamp,
    next_contact: Timestamp,
    /// What the last contact out of turn was due at.
    hurried: Option<Timestamp>,
    next_run: Timestamp,
    /// Check-ins in a row that got no answer.
    failures: u32,
    /// Offers in a row that were good and could not be fetched or kept.
    stuck: u32,
    /// What was offered did not fit what is held, or some of it is gone: ask for the whole set.
    want_full: bool,
    /// The control plane asks for the header that is held.
    want_header: bool,
    /// Something of the release that is held is gone: a run follows once it is there again.
    repairing: bool,
    /// Its record was written again since the last run that was made.
    recorded_again: bool,
    /// Why no run can be made.
    unmade: Option<UnmadeRun>,
    /// Why the release that was offered is not held.
    unadopted: Option<UnadoptedRelease>,
    /// How the control plane's clock differed from the host's at its last answer since the start.
    clock_difference: Option<ClockDifference>,
    /// When the control plane answered last, or what is held was adopted.
    answered_at: Option<Timestamp>,
    confirmation: Confirmation,
    warned_offline: bool,
    refused: Option<(Digest, &'static str)>,
    requests: RunRequests,
    rollout: RolloutParticipation,
    /// A contact is to follow a change that can cut the host off.
    awaits_contact: bool,
}

impl Node {
    /// A node as restored, at the start of the agent.
    pub fn new(identity: Identity, restored: Restored, seed: u64, now: Timestamp) -> Node {
        Node {
            answered_at: restored.adoption.as_ref().map(|adoption| adoption.adopted_at),
            freshness: freshness::restored(&restored, now),
            confirmation: Confirmation::default(),
            reboots: Reboots::new(&identity.hostname, restored.last_reboot, now),
            chain: HeldChain::restored(&identity.trust, restored.trust),
            renewal: Renewal::new(restored.certificate),
            identity,
            adoption: restored.adoption,
            settings: restored.settings,
            // A crash may have come between a partial run's report and the note that there was one.
            last_run: restored.last_run.map(LastRun::unreported),
            spread: Spread::new(seed),
            talk: ContactState::Idle,
            change: ReleaseChange::None,
            asked_from: None,
            running: None,
            run_due: false,
            tags_due: BTreeSet::new(),
            pause: restored.pause,
            healing: Healing::default(),
            contended: Vec::new(),
            reported_contentions: ReportedContentions::default(),
            culprits_to_find: BTreeSet::new(),
            contact_pending: restored.facts_pending,
            traits: None,
            traits_sent: None,
            traits_acked: None,
            read_traits: None,
            seen_at: now,
            next_contact: now,
            hurried: None,
            next_run: now,
            failures: 0,
            stuck: 0,
            want_header: false,
            want_full: restored.content_missing,
            repairing: restored.content_missing,
            recorded_again: false,
            unmade: None,
            unadopted: None,
            clock_difference: None,
            warned_offline: false,
            refused: None,
            requests: RunRequests::default(),
            rollout: RolloutParticipation::restored(restored.rollout, restored.trial),
            awaits_contact: false,
        }
    }

    /// The release held, if any.
    pub fn adoption(&self) -> Option<&Adoption> {
        self.adoption.as_ref()
    }

    /// The last run.
    pub fn last_run(&self) -> Option<&LastRun> {
        self.last_run.as_ref()
    }

    /// The highest release accepted, by digest and number: what the node's `seen` document says.
    pub fn newest_header(&self) -> Option<(Digest, u64)> {
        let floor = &self.adoption.as_ref()?.floor;
        floor.header.map(|header| (header, floor.seq))
    }

    /// When something is due next, and what. `None` while an effect is under way.
    pub fn next_deadline(&self) -> Option<(Timestamp, &'static str)> {
        let contact =
            matches!(self.talk, ContactState::Idle).then_some((self.next_contact, "the next check-in"));
        // Without traits no run can begin, so its time alone is no reason to wake up.
        let begins = self.running.is_none() && !self.reboots.goes_down() && !self.rollout.returns();
        let can_run = begins && self.adoption.is_some() && self.traits.is_some();
        let run = can_run.then_some((self.next_run, "the next run on the held set"));
        let pause = self.pause.as_ref().and_then(|pause| pause.until).map(|at| (at, "the end of the pause"));
        let others = self.healing_deadline().into_iter().chain(self.reboot_deadline());
        let others = others.chain(self.freshness_deadline()).chain(self.renewal_deadline());
        contact.into_iter().chain(run).chain(pause).chain(others).min()
    }

    /// What to do about an input.
    pub fn handle(&mut self, input: NodeInput, now: Timestamp) -> Vec<NodeEffect> {
        let mut effects = Vec::new();
        self.notice_time(now);
        self.end_pause_in_time(now, &mut effects);
        self.end_patience(now, &mut effects);
        match input {
            NodeInput::Tick => {}
            NodeInput::RunNow(tags) if tags.is_empty() => self.run_due = self.adoption.is_some(),
            NodeInput::RunNow(tags) => self.tags_due.extend(tags),
            NodeInput::Pause(pause) => self.on_pause(pause, &mut effects),
            NodeInput::Resume => self.on_resume(&mut effects),
            NodeInput::Nudge => {
                self.next_contact = now;
                self.contact_pending = true;
                self.run_due = self.adoption.is_some();
            }
            NodeInput::FactsWait => {
                self.contact_pending = true;
                if self.failures == 0 {
                    self.hurry(now);
                }
            }
            NodeInput::SuspectedDrift(drift) => self.on_suspected_drift(drift, now),
            NodeInput::Traits(traits) => self.on_traits(traits, now, &mut effects),
            NodeInput::TraitsLeftOut => self.traits_sent = None,
            NodeInput::Answered(answer) => self.on_answer(*answer, now, &mut effects),
            NodeInput::Unreachable(why) => self.on_unreachable(&why, now, &mut effects),
            NodeInput::Fetched => self.on_fetched(now, &mut effects),
            NodeInput::FetchFailed(why) => {
                self.on_stuck(UnadoptedCause::Fetch, &why, now, &mut effects);
            }
            NodeInput::Prepared(prepared) => self.on_prepared(prepared, now, &mut effects),
            NodeInput::QuarantineLifted => self.on_quarantine_lifted(&mut effects),
            NodeInput::DispatchReported(rollout, at) => self.on_dispatch_reported(&rollout, Some(at), now),
            NodeInput::DispatchNotReported(rollout) => self.on_dispatch_reported(&rollout, None, now),
            NodeInput::Delivered(cursor) => self.on_delivered(&cursor, now),
            NodeInput::Trial(report) => self.on_trial(report, now),
            NodeInput::Switch(adoption) => self.on_switch(adoption),
            NodeInput::TryConfirm => self.on_try_confirm(now, &mut effects),
            NodeInput::AwaitsContact(awaits) => self.awaits_contact = awaits,
            NodeInput::Returned(returned) => self.on_returned(*returned, now, &mut effects),
            NodeInput::Adopted(settings) => self.on_adopted(settings, now, &mut effects),
            NodeInput::AdoptFailed(why) => {
                // Its record cannot be written without its contents.
                self.want_full |= self.repairing;
                self.switch_failed(&why, &mut effects);
                self.on_stuck(UnadoptedCause::Keep, &why, now, &mut effects);
            }
            NodeInput::ForeignServer => self.on_foreign_server(&mut effects),
            NodeInput::TrustLinks(links) => self.on_links(&links, LinkBearer::Anybody, now, &mut effects),
            NodeInput::TrustSaved => self.on_trust_saved(now),
            NodeInput::TrustNotSaved(why) => self.on_trust_not_saved(&why, &mut effects),
            NodeInput::TrustPinned(document) => self.on_trust_pinned(&document, now),
            NodeInput::NotAppended => self.report_next_run(&mut effects),
            NodeInput::ServerTime(server_time) => {
                self.clock_difference = Some(ClockDifference::between(server_time, now));
            }
            NodeInput::Ran(report) => self.on_ran(&report, now, &mut effects),
            NodeInput::RebootFailed(why) => self.on_reboot_failed(&why, now, &mut effects),
            NodeInput::RunFailed(failure) => self.on_run_failed(&failure, now, &mut effects),
            NodeInput::ContentMissing => self.on_content_missing(now),
            NodeInput::Renewed(validity) => self.on_renewed(validity, now),
            NodeInput::RenewalFailed(why) => self.on_renewal_failed(why, now, &mut effects),
            NodeInput::CertificateEnded => self.renewal.refused_as_ended(),
            NodeInput::CertificateRejected => self.renewal.rejected(),
            NodeInput::ServerCertificateEnded => self.renewal.doubts_the_clock(),
        }
        self.judge_freshness(now, &mut effects);
        self.report_contentions(now, &mut effects);
        self.start_what_is_due(now, &mut effects);
        effects
    }

    /// A clock that was set back does not lengthen what is being waited for: a host that
    /// started with a date of next year would otherwise be silent for a year.
    fn notice_time(&mut self, now: Timestamp) {
        let back = self.seen_at.since(now);
        self.seen_at = now;
        if back > Duration::ZERO {
            self.next_contact = self.next_contact.minus(back);
            self.next_run = self.next_run.minus(back);
            self.healing.set_back(back);
            self.reported_contentions.set_back(back);
            self.reboots.set_back(back);
            self.renewal.set_back(back);
            self.clock_difference = self.clock_difference.map(|difference| difference.set_back(back));
            self.answered_at = self.answered_at.map(|at| at.minus(back));
            self.set_freshness_back(back);
            if let Some(unadopted) = &mut self.unadopted {
                unadopted.since = unadopted.since.minus(back);
            }
            if let Some(until) = self.pause.as_mut().and_then(|pause| pause.until.as_mut()) {
                *until = until.minus(back);
            }
        }
    }

    fn start_what_is_due(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        self.renew_what_is_due(now, effects);
        if matches!(self.talk, ContactState::Idle) && now >= self.next_contact {
            self.talk = ContactState::Traits;
            effects.push(NodeEffect::CollectTraits);
        }
        if self.switch_what_is_due(effects) {
            return;
        }
        // Without traits nothing can be bound; the contact that collects them comes first.
        if self.running.is_some() || self.traits.is_none() || self.reboots.goes_down() {
            return;
        }
        if self.run_due || now >= self.next_run {
            // What somebody asked for is a part of it.
            self.tags_due.clear();
            self.start_run(now, effects);
        } else if !self.tags_due.is_empty() || self.tagged_request_is_due() {
            self.start_run_by_tag(effects);
        } else if self.rollout.keeps_others_out() || !self.reboot_what_is_due(now, effects) {
            // No boot is ordered in mid-trial: it would take the host back.
            self.heal_what_is_due(now, effects);
        }
    }

    /// Whether a run that an operator requests by tag may begin: not while the host is paused, and not
    /// before a release that came with the request is held, whose tags it may mean.
    fn tagged_request_is_due(&self) -> bool {
        let settled = matches!(self.change, ReleaseChange::None);
        self.requests.wants_tagged() && self.pause.is_none() && settled
    }

    fn on_traits(&mut self, observed: ObservedTraits, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        if self.reboots.observed(&observed.report, now) {
            self.tell_reboot(effects);
        }
        effects.extend(self.reboots.came_up(&observed.report).map(NodeEffect::SaveReboot));
        let before = self.traits.is_some().then(|| self.traits_that_count());
        let as_before = self.traits.as_ref().is_some_and(|known| known.digest == observed.report.digest);
        let reads_as_before =
            self.read_traits.map(|read| read.root) == observed.read.as_ref().map(|read| read.root);
        self.traits = Some(Arc::new(observed.report));
        self.read_traits = observed.read;
        let counts = self.traits_that_count();
        match (before, &self.adoption) {
            // A changed trait binds anew at once, offline too (DLT-4).
            (Some(before), _) if reads_as_before => self.run_due |= before != counts,
            // The set that is held now reads others, and one of them may have changed since its run.
            (Some(_), Some(_)) if !as_before => self.run_due = true,
            // Its first run was over these, too.
            (Some(before), Some(held)) => {
                let (ran, reads) = (inputs_digest(&held.root, &before), inputs_digest(&held.root, &counts));
                if let Some(last) = self.last_run.as_mut().filter(|last| last.inputs == ran) {
                    last.inputs = reads;
                    // Else a start after this would take drift for a change that was intended.
                    effects.push(NodeEffect::SaveRun(last.clone()));
                }
                if let Some(RunUnderWay::Full { inputs, .. }) = &mut self.running
                    && *inputs == ran
                {
                    *inputs = reads;
                }
            }
            (None, _) | (_, None) => {}
        }
        if !matches!(self.talk, ContactState::Traits) {
            return;
        }
        self.talk = ContactState::Waiting;
        let check_in = Box::new(self.check_in(now));
        effects.push(NodeEffect::CheckIn(check_in, self.check_in_way()));
    }

    /// The digest of the traits that a run depends on.
    fn traits_that_count(&self) -> Digest {
        let all = self.traits.as_ref().map_or(Digest::ZERO, |traits| traits.digest);
        self.read_traits.map_or(all, |read| read.digest)
    }

    fn check_in(&mut self, now: Timestamp) -> CheckIn {
        let acked = self.traits_acked.as_ref();
        let unsaid = |traits: &&Arc<TraitReport>| acked.is_none_or(|acked| acked.digest != traits.digest);
        self.traits_sent = self.traits.as_ref().filter(unsaid).cloned();
        let traits = self.traits_sent.as_ref().map(|traits| match acked {
            Some(acked) => traits.since(acked),
            None => TraitReport::clone(traits),
        });
        // The shell adds all facts that wait to this one.
        self.contact_pending = false;
        self.rollout.called();
        self.try_is_asked();
        self.asked_from = self.adoption.as_ref().map(|adoption| adoption.digest);
        let confirms = self.asks_for_confirmation(now);
        let mut check_in = CheckIn {
            held: self.adoption.as_ref().map(Adoption::held),
            incarnation: self.identity.incarnation.clone(),
            facts: Vec::new(),
            run: self.last_run.as_ref().map(|run| RunNote { at: run.at, outcome: run.outcome }),
            unmade_run: self.unmade.clone(),
            freshness: self.freshness(),
            running_since: self.running_since(),
            traits,
            full: self.want_full || confirms,
            run_confirmed: None,
            tagged_run_confirmed: None,
            // The shell adds it, as it knows where the log ends.
            seen: None,
            header: self.adoption.as_ref().filter(|_| self.want_header).map(|held| held.header.clone()),
            // The shell knows it.
            acked: None,
            trust: self.chain.asks(),
            renewal_failure: self.renewal.failure().map(str::to_owned),
            unadopted: self.unadopted.clone(),
            // The shell knows both.
            instance: None,
            capabilities: None,
        };
        self.requests.confirm(&mut check_in);
        check_in
    }

    fn on_unreachable(&mut self, why: &str, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        self.failures = self.failures.saturating_add(1);
        self.confirmation.asked = None;
        self.renewal.unreachable();
        self.talk = ContactState::Idle;
        self.next_contact = now.plus(self.spread.backoff(self.failures, self.settings.policy.contact()));
        self.tried(Err(why), now, effects);
        let grace = self.settings.policy.offline_grace_secs;
        let silent = self.answered_at.is_some_and(|at| now.since(at).as_secs() > grace);
        if silent && !self.warned_offline {
            self.warned_offline = true;
            effects.push(NodeEffect::Warn(format!(
                "no contact with the control plane for more than {grace} s ({why}); converging on what is held"
            )));
        }
    }

    /// Contact is kept, but what was offered could not be fetched or kept: it is tried again
    /// ever later, however well the contacts in between go. It is logged once for each cause in turn.
    fn on_stuck(&mut self, cause: UnadoptedCause, why: &str, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        self.change = ReleaseChange::None;
        self.tell_unadopted(cause, why, now, effects);
        self.stuck = self.stuck.saturating_add(1);
        self.next_contact = now.plus(self.spread.backoff(self.stuck, self.settings.policy.contact()));
    }

    fn tell_unadopted(
        &mut self,
        cause: UnadoptedCause,
        why: &str,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) {
        let since = self.unadopted.as_ref().map_or(now, |unadopted| unadopted.since);
        let unadopted = UnadoptedRelease::new(since, cause, why);
        if self.unadopted.as_ref() != Some(&unadopted) {
            effects.push(NodeEffect::Warn(unadopted.text()));
        }
        self.unadopted = Some(unadopted);
    }

    fn not_stuck(&mut self) {
        (self.stuck, self.unadopted) = (0, None);
    }

    /// Why the release that was offered is not adopted; `None` while nothing is in its way (LIF-10).
    pub fn unadopted(&self) -> Option<&UnadoptedRelease> {
        self.unadopted.as_ref()
    }

    fn on_answer(&mut self, mut answer: Answer, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        if !matches!(self.talk, ContactState::Waiting) {
            return;
        }
        self.failures = 0;
        self.renewal.answered(answer.renew_certificate);
        self.warned_offline = false;
        self.answered_at = Some(now);
        self.talk = ContactState::Idle;
        let under_way = self.running.as_ref().map_or(RequestNumbers::default(), RunUnderWay::requests);
        self.requests.answered(&mut answer, under_way);
        if let Some(cursor) = answer.acked.clone() {
            effects.push(NodeEffect::Ack(cursor));
        }
        if answer.want_run {
            self.report_anew(effects);
        }
        let sent = self.traits_sent.take();
        self.traits_acked = if answer.want_traits { None } else { sent.or(self.traits_acked.take()) };
        // By the policy, which is signed: a control plane cannot send its nodes away for long.
        let most = self.settings.policy.contact().saturating_mul(4).clamp(LONG_CONTACT, MAX_CONTACT);
        let asked = Duration::from_secs(answer.next_checkin_secs).clamp(MIN_CONTACT, most);
        self.next_contact = now.plus(self.spread.jitter(asked, self.settings.policy.jitter_percent));
        // Soon, but not again and again for a control plane that does not take it.
        let asked_before = std::mem::replace(&mut self.want_header, answer.want_header);
        let asks_first = answer.want_header && !asked_before;
        if self.contact_pending || asks_first {
            self.deliver_soon(now);
        }
        self.tried(Ok(()), now, effects);
        self.on_links(&answer.trust_links, LinkBearer::ControlPlane, now, effects);
        // As the offer: the newer trust document may judge it otherwise. It comes again.
        if let Some(beacon) = answer.beacon.as_ref().filter(|_| !self.chain.is_changing()) {
            self.on_beacon(beacon, now, effects);
        }
        let follows_pointer = self.on_dispatch(&answer, now, effects);
        let rollout_seq = answer.rollout.as_ref().map(|dispatch| dispatch.seq);
        match answer.offer.filter(|_| follows_pointer) {
            // The newer trust document may judge it otherwise.
            Some(_) if self.chain.is_changing() => self.run_after_answer(now),
            Some(offer) => self.on_offer(offer, rollout_seq, now, effects),
            None => {
                self.not_stuck();
                // A no-change answer still leads to a full run on the held set (CNV-1).
                self.run_after_answer(now);
            }
        }
    }

    fn on_adopted(&mut self, settings: HeldSettings, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        let adoption = match std::mem::take(&mut self.change) {
            ReleaseChange::Adopting(adoption) => adoption,
            ReleaseChange::WritingHeld(held) => return self.on_held_written(*held, settings),
            other => return self.change = other,
        };
        self.settings = settings;
        self.refused = None;
        self.want_full = false;
        self.not_stuck();
        let is_switch = self.switch_adopted();
        let same = self.adoption.as_ref().is_some_and(|held| held.root == adoption.root);
        let is_other = |held: &Adoption| (held.digest, held.root) != (adoption.digest, adoption.root);
        if !is_switch && self.adoption.as_ref().is_none_or(is_other) {
            effects.push(NodeEffect::AdoptedAtOnce(adoption.root));
        }
        let body = FactBody::Adopted { seq: adoption.seq, header: adoption.digest, root: adoption.root };
        self.adoption = Some(*adoption);
        self.freshness_follows(now, effects);
        let runs_anew = std::mem::take(&mut self.repairing) || is_switch;
        if same && runs_anew {
            self.run_due = true;
        } else if same {
            // Only the pointer moved (DLT-2): the next check-in says so, no row is needed.
            self.run_after_answer(now);
        } else {
            self.run_due = true;
            self.append(body, now, effects);
        }
    }

    fn interval(&self) -> Duration {
        self.settings.policy.converge().clamp(MIN_CONTACT, MAX_CONTACT)
    }
}

/// The digest of what a run binds: the set's root and the digest of the traits that it reads.
pub fn inputs_digest(root: &Digest, traits: &Digest) -> Digest {
    Digest::of_parts([&root.0[..], &traits.0[..]])
}
