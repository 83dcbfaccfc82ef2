//! What is known of one node, and the answer to its check-in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::contention;
use model::exchange::{Answer, CheckIn, HeldFreshness, HeldRelease, Offer, RunNote, Signed, TraitReport};
use model::invocation::AgentInvocation;
use model::log::{Cursor, Fact, FactBody};
use model::node_conditions::MAX_CONDITION_TEXT;
use model::selection::SelectionEntry;
use model::tags::TaggedRun;
use model::text::bounded_line;
use model::{
    AgentCapabilities, AgentInstance, CertificateValidity, Contention, Digest, Hostname, Incarnation,
    KeyConfirmation, NodeConditions, NodeId, ReleaseVersion, RunsHeard, RunsSummary, Timestamp,
};
use trust::PublicKey;
use trust::chain::MAX_VERSION;
use trust::lists::Revocation;
use trust::seen::SeenError;

use crate::budget::ByteBudget;
use crate::copies::{HolderNotice, InstanceLineage};
use crate::heads::{Head, Heads};
use crate::open_items::{KeptOpenItems, OpenItems};
use crate::renewal::{CertificateIssuer, RenewalAllowance};
use crate::replay::Window;
use crate::rollout::PointedRollout;
use crate::seen::KeptSeen;

/// The wait that a node without a channel is asked for, in seconds.
pub const DEFAULT_CONTACT_SECS: u64 = 300;
/// The wait that a node is asked for while no release has an entry for it, in seconds: its
/// check-in is a long poll, so this is only the pause between two of them.
pub const UNASSIGNED_CONTACT_SECS: u64 = 5;

/// A release and what it gives to a node.
pub type Pointed = (Arc<Head>, SelectionEntry);

/// An entry of the FleetIndex: everything that the hot path needs to know of a node.
#[derive(Clone, Debug)]
pub struct NodeState {
    /// The node's id.
    pub id: NodeId,
    /// Its hostname.
    pub hostname: Hostname,
    /// Its public key: apart, because its 200 bytes would put the node's slot into the next size class of the allocator.
    pub key: Box<PublicKey>,
    /// When it enrolled last.
    pub enrolled_at: Timestamp,
    /// Its certificate; `None` where no session is opened with it, as a proxy ends TLS.
    pub certificate: Option<CertificateValidity>,
    /// The CA that issued it; `None` where that was not recorded.
    pub issuer: Option<CertificateIssuer>,
    /// How many certificates it may get.
    pub renewals: RenewalAllowance,
    /// How its agent is called on its host, as it said at its start.
    pub invocation: Option<Box<AgentInvocation>>,
    /// By what it is revoked, if it is (IDN-6).
    pub revoked: Option<Box<Revocation>>,
    /// What its key was confirmed by (ENR-9).
    pub key_confirmation: KeyConfirmation,
    /// The version of its agent; `None` while what the agent is and can do is not known (ENR-5).
    pub agent_version: Option<ReleaseVersion>,
    lineage: InstanceLineage,
    /// Its certificate was used, so that its token is spent for good (ENR-7).
    pub certificate_used: bool,
    /// Refuses replays.
    pub window: Window,
    /// What it may still send.
    pub budget: ByteBudget,
    /// When it was last heard of.
    pub last_seen: Option<Timestamp>,
    /// Seconds in which the control plane itself was absent since then.
    pub(crate) absent_secs: u32,
    /// The wait that it was promised last.
    pub promised: Duration,
    /// What it holds, by its own word.
    pub held: Option<HeldRelease>,
    /// The version of the trust document that it holds, by its own word; 0 before one was heard.
    pub trust_version: u64,
    /// Its newest run, by its own word.
    pub run: Option<RunNote>,
    /// What was heard of its runs in check-ins.
    pub runs: RunsHeard,
    /// How far its log is durable here.
    pub cursor: Option<Cursor>,
    /// What its reported runs came to.
    pub summary: RunsSummary,
    /// The digest of its traits as stored.
    pub traits: Option<Digest>,
    /// The newest `seen` document that it sent.
    pub seen: Option<Box<KeptSeen>>,
    /// Work waits that wants a stream.
    pub work_waits: bool,
    open_items: KeptOpenItems,
    /// The roots that it was pointed to last, since the control plane's start, at most [`MAX_OFFERED`]; the newest
    /// first.
    offered: Box<[Digest]>,
    /// The version of the heads by which `pointed_head` was worked out; 0 before it was.
    pointed_at: u64,
    pointed_head: Option<(Arc<Head>, Digest)>,
    /// Where a rollout points it.
    pub(crate) rollout: Option<Box<PointedRollout>>,
    /// The release of its channel goes to its nodes by the rollout; worked out with `pointed_head`.
    pub(crate) follows_rollout: bool,
}

/// How many of the roots that a node was pointed to are remembered. One that holds an older one gets its set named
/// in full.
const MAX_OFFERED: usize = 3;

/// A refusal of the release that the node is pointed to, as the node reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedRefusal {
    /// Its stable code.
    pub code: Box<str>,
    /// What was wrong, for people.
    pub message: Box<str>,
}

/// The version of the trust document that a node says that it holds. One that cannot be is as if it said none: a
/// single node must not have the fleet's data look old.
fn trust_version_of(request: &CheckIn) -> u64 {
    match &request.trust {
        None => 1,
        Some(held) if held.version > MAX_VERSION => 0,
        Some(held) => held.version,
    }
}

/// What to do about a check-in.
#[derive(Debug)]
pub struct Step {
    /// The answer, complete but for [`Step::wanted`], the cursor of new facts, and who else fails for
    /// the same cause.
    pub answer: Answer,
    /// The set to put into the offer, if one has to travel.
    pub wanted: Option<SetWanted>,
    /// Facts to make durable before anything is acknowledged.
    pub facts: Vec<Fact>,
    /// Traits to store.
    pub traits: Option<TraitReport>,
    /// A request for a run that the node carried out.
    pub run_confirmed: Option<u64>,
    /// A request for a run by tag that the node carried out.
    pub tagged_run_confirmed: Option<TaggedRun>,
    /// This is the first request under the node's certificate.
    pub first_use: bool,
    /// It says something else than the one before of what is the matter with the node, or of its trust document.
    pub conditions_changed: bool,
    /// What the agent is and can do, to store.
    pub capabilities: Option<Box<AgentCapabilities>>,
    /// Two hosts turn out to hold the node's key, at this time: to be made durable before the answer (IDN-10).
    pub newly_copied: Option<Timestamp>,
    /// Nothing but the time differs; there is nothing to wait for on a long poll either.
    pub unchanged: bool,
}

/// What the difference to a set starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetBase {
    /// Nothing: every object is named, and small contents come along.
    Nothing,
    /// The root that the node holds, and that it was pointed to.
    Offered(Digest),
    /// The node holds something else, perhaps by its own word alone. A difference from that would say what is in
    /// another node's set: every object is named instead, and the node fetches what it lacks (DLT-3).
    Unknown,
}

/// A set that has to travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetWanted {
    /// What the difference starts from.
    pub base: SetBase,
    /// The root that it is to get.
    pub target: Digest,
}

impl NodeState {
    /// A node just enrolled.
    pub fn new(id: NodeId, hostname: Hostname, key: PublicKey, enrolled_at: Timestamp) -> NodeState {
        NodeState {
            id,
            hostname,
            key: Box::new(key),
            enrolled_at,
            certificate: None,
            issuer: None,
            renewals: RenewalAllowance::default(),
            invocation: None,
            revoked: None,
            key_confirmation: KeyConfirmation::None,
            agent_version: None,
            lineage: InstanceLineage::default(),
            certificate_used: false,
            window: Window::default(),
            budget: ByteBudget::default(),
            last_seen: None,
            absent_secs: 0,
            promised: Duration::from_secs(DEFAULT_CONTACT_SECS),
            held: None,
            trust_version: 0,
            run: None,
            runs: RunsHeard::default(),
            cursor: None,
            summary: RunsSummary::default(),
            traits: None,
            seen: None,
            work_waits: false,
            open_items: KeptOpenItems::default(),
            offered: Box::default(),
            pointed_at: 0,
            pointed_head: None,
            rollout: None,
            follows_rollout: false,
        }
    }

    /// Answers a check-in (DLT-1 to DLT-5). Whether a proof can be made is the release's
    /// affair; one that cannot be proven was refused when it was published.
    pub fn check_in(&mut self, mut request: CheckIn, heads: &Heads, now: Timestamp) -> Step {
        let first_use = !std::mem::replace(&mut self.certificate_used, true);
        let run_confirmed = self.confirm_run(request.run_confirmed);
        let tagged_run_confirmed = self.confirm_tagged_run(request.tagged_run_confirmed);
        let traits = self.take_traits(request.traits.take());
        let instance = request.instance.take();
        let newly_copied = instance.as_ref().and_then(|instance| self.hears(instance, now));
        let capabilities = self.take_capabilities(request.capabilities.take());
        // One of before would be asked in vain, in each answer.
        let want_capabilities = instance.is_some() && self.agent_version.is_none();
        let conditions_changed = self.take_word(&mut request, now) || newly_copied.is_some();
        let pointed = self.pointed(heads);
        let next_checkin_secs = self.promise_contact(pointed.as_ref(), now);
        // Of two holders of its key neither is told anything new.
        let is_copied = self.open_items().copied.is_some();
        let offerable = pointed.as_ref().filter(|_| !is_copied);
        let (offer, wanted) = self.offer_pointed(offerable, request.full);
        let beacon = match (&pointed, &offer, request.freshness) {
            (Some((head, _)), None, Some(held)) => self.newer_beacon(head, held),
            _ => None,
        };
        let unchanged =
            offer.is_none() && beacon.is_none() && !self.awaits_request() && request.facts.is_empty();
        let unchanged = unchanged && !self.has_untold_rollout();
        let unchanged = unchanged || is_copied && request.facts.is_empty();
        let answer = Answer {
            next_checkin_secs,
            offer,
            beacon,
            unassigned: pointed.is_none() && !self.waits_for_rollout(heads),
            rollout: if is_copied { None } else { self.tell_rollout() },
            want_capabilities,
            ..self.answer(&request, heads)
        };
        let facts = request.facts;
        Step {
            answer,
            wanted,
            facts,
            traits,
            run_confirmed,
            tagged_run_confirmed,
            first_use,
            conditions_changed,
            capabilities,
            newly_copied,
            unchanged,
        }
    }

    /// Takes in which start of which agent speaks; the time, where that shows that two hosts hold the node's key.
    pub fn hears(&mut self, instance: &AgentInstance, now: Timestamp) -> Option<Timestamp> {
        let lineage = &mut self.lineage;
        let notice = self.open_items.change(|it| lineage.heard(instance, &mut it.displaced));
        if notice == HolderNotice::Two { self.is_copied(now) } else { None }
    }

    /// Two hosts hold the node's key; the time, where that was not known before.
    pub fn is_copied(&mut self, now: Timestamp) -> Option<Timestamp> {
        let before = self.open_items.change(|it| it.copied.replace(it.copied.unwrap_or(now)));
        before.is_none().then_some(now)
    }

    /// An operator says that one host alone holds the node's key from now on. What its agent is was perhaps said by the
    /// other one: it is asked for anew.
    pub fn copy_resolved(&mut self) {
        self.lineage = InstanceLineage::default();
        self.agent_version = None;
        self.open_items.change(|it| (it.copied, it.displaced) = (None, Vec::new()));
    }

    /// What the agent is and can do, where a check-in says so.
    fn take_capabilities(&mut self, said: Option<Box<AgentCapabilities>>) -> Option<Box<AgentCapabilities>> {
        let said = said?.bounded();
        self.keep_agent_version(&said.version);
        Some(Box::new(said))
    }

    /// Keeps the version of its agent; one that cannot be read is older than any.
    pub fn keep_agent_version(&mut self, version: &str) {
        self.agent_version = Some(ReleaseVersion::parse(version).unwrap_or_default());
    }

    /// Takes in what a node says of itself: what it holds and ran, its trust document, and what is the matter with it.
    /// Says whether of the last two it says something else than before.
    fn take_word(&mut self, request: &mut CheckIn, now: Timestamp) -> bool {
        (self.last_seen, self.absent_secs) = (Some(now), 0);
        let root = |held: &Option<HeldRelease>| held.as_ref().map(|held| held.root);
        let is_another_set = root(&request.held) != root(&self.held);
        self.runs.check_in(request, self.run.as_ref(), is_another_set, now);
        let conditions_changed = self.take_conditions(request);
        (self.held, self.run) = (request.held.take(), request.run.take());
        conditions_changed
    }

    /// Remembers when the node is to call again and runs, by the release that it is pointed to; in how many seconds it
    /// is to call, which in a rollout is at most what is promised.
    fn promise_contact(&mut self, pointed: Option<&Pointed>, now: Timestamp) -> u64 {
        if let Some((head, entry)) = pointed
            && self.holds(entry)
        {
            self.runs.times = head.runs;
        }
        let contact_secs = pointed.map_or(UNASSIGNED_CONTACT_SECS, |(head, _)| head.contact_secs);
        let by_channel = (Duration::from_secs(contact_secs), contact_secs);
        let (promised, next) = self.rollout_cadence(contact_secs, now).unwrap_or(by_channel);
        self.promised = promised;
        next
    }

    /// The offer of what the node is pointed to, unless it holds that; `full`: it asks for all of it anew.
    fn offer_pointed(&mut self, pointed: Option<&Pointed>, full: bool) -> (Option<Offer>, Option<SetWanted>) {
        let Some((head, entry)) = pointed else { return (None, None) };
        self.note_offered(entry.root);
        if let Some(held) = self.held.as_mut().filter(|held| held.channel == entry.channel) {
            held.channel = entry.channel.clone();
        }
        let (offer, wanted) = self.offer(head, entry, full || self.open_items().run_request.is_some());
        if offer.is_none() {
            // It holds what it is pointed to. A move of the pointer alone is no fact that
            // would have said so.
            self.open_items.change(|it| it.refusal = None);
        }
        (offer, wanted)
    }

    /// What a check-in is answered, but for what the node is pointed to.
    fn answer(&self, request: &CheckIn, heads: &Heads) -> Answer {
        let is_copied = self.open_items().copied.is_some();
        let reports_run = request.facts.iter().any(|fact| matches!(fact.body, FactBody::Run(_)));
        Answer {
            next_checkin_secs: self.promised.as_secs(),
            acked: None,
            offer: None,
            beacon: None,
            run_request: self.open_items().run_request.filter(|_| !is_copied),
            tagged_run: self.open_items().tagged_run.clone().filter(|_| !is_copied),
            rollout: None,
            stream_requested: self.work_waits && !is_copied,
            want_traits: self.traits.is_none() && self.open_items().untaken_traits.is_none(),
            want_seen: self.wants_seen(&request.incarnation),
            want_header: self.held.as_ref().is_some_and(|held| heads.lacks(held.seq, &held.header)),
            want_run: self.run.is_some() && self.awaits_run() && !reports_run,
            unassigned: false,
            same_cause: BTreeMap::new(),
            server_time: None,
            trust_links: Vec::new(),
            renew_certificate: false,
            want_capabilities: false,
            identity_copied: is_copied,
        }
    }

    /// What is so of few nodes.
    pub fn open_items(&self) -> &OpenItems {
        self.open_items.get()
    }

    /// Changes what is so of few nodes.
    pub fn change_open_items<T>(&mut self, change: impl FnOnce(&mut OpenItems) -> T) -> T {
        self.open_items.change(change)
    }

    /// A run was requested that the node has not confirmed.
    pub fn awaits_request(&self) -> bool {
        let open_items = self.open_items();
        open_items.run_request.is_some() || open_items.tagged_run.is_some()
    }

    /// Takes what a check-in says is the matter with the node, and of its trust document; says whether it is something
    /// else than before.
    fn take_conditions(&mut self, request: &CheckIn) -> bool {
        let (version, conditions) = (trust_version_of(request), NodeConditions::of(request));
        let is_other_version = std::mem::replace(&mut self.trust_version, version) != version;
        let differ = conditions != self.open_items().conditions;
        self.open_items.change(|it| it.conditions = conditions);
        is_other_version || differ
    }

    /// The traits that are to be stored. Those that are too large are not, and are not asked for again; the rest of the
    /// check-in counts (TRT-2).
    fn take_traits(&mut self, traits: Option<TraitReport>) -> Option<TraitReport> {
        let traits = traits?;
        if !traits.is_within_bounds() {
            self.open_items.change(|it| it.untaken_traits = Some(traits.digest));
            return None;
        }
        // What differs from traits that were not taken is asked for whole.
        self.open_items.change(|it| it.untaken_traits = None);
        let new = self.traits != Some(traits.digest);
        self.traits = Some(traits.digest);
        Some(traits).filter(|_| new)
    }

    /// Takes the `seen` document of a check-in, before the rest of it; says whether it is to be
    /// stored. One that came before is neither verified nor stored again.
    ///
    /// # Errors
    /// When it is not believed: the check-in is refused.
    pub fn take_seen(&mut self, document: &Signed) -> Result<bool, SeenError> {
        let kept = KeptSeen::after(self.seen.as_deref(), document, &self.key)?;
        let new = kept.is_some();
        self.keep_seen(kept);
        Ok(new)
    }

    /// Remembers a `seen` document that was verified, if there is one.
    pub fn keep_seen(&mut self, seen: Option<KeptSeen>) {
        let Some(mut kept) = seen else { return };
        if kept.seen.node == self.id {
            kept.seen.node = self.id.clone();
        }
        self.seen = Some(Box::new(kept));
        self.share_incarnation();
    }

    /// One copy of a text for each place where an entry has it: there are as many entries as nodes.
    fn share_incarnation(&mut self) {
        if let (Some(seen), Some(cursor)) = (&self.seen, &mut self.cursor)
            && seen.seen.log_head.incarnation == cursor.incarnation
        {
            cursor.incarnation = seen.seen.log_head.incarnation.clone();
        }
    }

    /// A node that holds a release says more than its newest `seen` document does.
    fn wants_seen(&self, incarnation: &Incarnation) -> bool {
        let (held, cursor) = (self.held.as_ref(), self.cursor.as_ref());
        held.is_some() && self.seen.as_ref().is_none_or(|seen| seen.lacks(held, incarnation, cursor))
    }

    /// The release and entry that the node is pointed to; worked out once a head.
    pub fn pointed(&mut self, heads: &Heads) -> Option<Pointed> {
        if self.pointed_at != heads.version {
            let pointed = self.worked_out(heads);
            self.pointed_head = pointed.map(|(head, entry)| (head, entry.root));
            self.follows_rollout =
                self.rollout().is_some_and(|pointer| heads.has_rollout(&pointer.rollout.channel));
            self.pointed_at = heads.version;
        }
        self.pointed_as_known()
    }

    /// As [`NodeState::pointed`], and remembers nothing.
    pub(crate) fn pointed_now(&self, heads: &Heads) -> Option<Pointed> {
        if self.pointed_at == heads.version { self.pointed_as_known() } else { self.worked_out(heads) }
    }

    fn worked_out(&self, heads: &Heads) -> Option<Pointed> {
        heads.pointed_in_rollout(&self.hostname, self.rollout())
    }

    /// What it is pointed to is worked out anew when it is asked for next.
    pub(crate) fn pointed_anew(&mut self) {
        self.pointed_at = 0;
    }

    fn pointed_as_known(&self) -> Option<Pointed> {
        let (head, root) = self.pointed_head.as_ref()?;
        let entry = SelectionEntry { channel: head.header.channel.clone(), root: *root };
        Some((head.clone(), entry))
    }

    fn offer(&self, head: &Head, entry: &SelectionEntry, full: bool) -> (Option<Offer>, Option<SetWanted>) {
        let held = self.held.as_ref();
        let same_release = held.is_some_and(|held| held.seq == head.header.seq && held.header == head.digest);
        let same_root = held.is_some_and(|held| held.root == entry.root);
        if same_release && same_root && !full {
            return (None, None);
        }
        let name = self.hostname.as_str();
        let Ok(proof) = head.selection.prove(name, head.patterns.first(name)) else {
            return (None, None);
        };
        let offer = Offer {
            header: (*head.signed).clone(),
            beacon: head.beacon.as_deref().cloned(),
            entry: entry.clone(),
            proof,
            set: None,
        };
        let base = match held {
            Some(held) if !full && self.offered.contains(&held.root) => SetBase::Offered(held.root),
            Some(_) if !full => SetBase::Unknown,
            _ => SetBase::Nothing,
        };
        let wanted = (full || !same_root).then_some(SetWanted { base, target: entry.root });
        (Some(offer), wanted)
    }

    /// The beacon for what the node holds, where it says that it has none as new.
    fn newer_beacon(&self, head: &Head, held: HeldFreshness) -> Option<Signed> {
        let holds_it = self.held.as_ref().is_some_and(|held| held.header == head.digest);
        let newer = holds_it && head.signed_at > held.signed_at;
        head.beacon.as_deref().filter(|_| newer).cloned()
    }

    /// Remembers a root that the node is pointed to.
    fn note_offered(&mut self, root: Digest) {
        if self.offered.first() != Some(&root) {
            self.offered =
                std::iter::once(root).chain(self.offered.iter().copied()).take(MAX_OFFERED).collect();
        }
    }

    fn confirm_run(&mut self, confirmed: Option<u64>) -> Option<u64> {
        confirmed?;
        self.open_items.change(|it| it.run_request.take_if(|request| confirmed == Some(*request)))
    }

    fn confirm_tagged_run(&mut self, confirmed: Option<u64>) -> Option<TaggedRun> {
        confirmed?;
        self.open_items.change(|it| it.tagged_run.take_if(|run| confirmed == Some(run.number)))
    }

    /// The node has another certificate, by renewing the one before. Its token is spent by that.
    pub fn certified(&mut self, validity: CertificateValidity, issuer: CertificateIssuer) {
        (self.certificate, self.certificate_used) = (Some(validity), true);
        self.issuer = Some(issuer);
        self.open_items.change(|it| it.conditions.renewal_failure = None);
    }

    /// Facts of the node were made durable: `new` are those not seen before.
    pub fn accepted(&mut self, cursor: Cursor, new: &[Fact]) {
        self.cursor = Some(cursor);
        self.share_incarnation();
        for fact in new {
            match &fact.body {
                FactBody::Run(report) => {
                    self.summary = self.summary.after(report);
                    self.runs.report(report, fact.at, self.run.as_ref());
                }
                FactBody::Adopted { .. } => self.open_items.change(|it| it.refusal = None),
                FactBody::Refused { code, message } => self.keep_refusal(code, message),
                FactBody::Contended { resources, .. } => self.keep_contended(resources),
                // What it does not say again is over.
                FactBody::Started { invocation, .. } => {
                    self.open_items.change(|it| it.contended = Vec::new());
                    self.keep_invocation(invocation.clone());
                }
                FactBody::Repaired { .. }
                | FactBody::FileRestored { .. }
                | FactBody::Rebooting { .. }
                | FactBody::NotRebooted { .. }
                | FactBody::Freshness { .. }
                | FactBody::Action(_)
                | FactBody::Rollout(_)
                | FactBody::Unknown => {}
            }
        }
    }

    /// Keeps how the node says that its agent is called.
    pub fn keep_invocation(&mut self, invocation: Option<AgentInvocation>) {
        self.invocation = invocation.filter(AgentInvocation::is_plain).map(Box::new);
    }

    /// How its agent is called on its host, as far as is known.
    pub fn agent(&self) -> AgentInvocation {
        self.invocation.as_deref().cloned().unwrap_or_default()
    }

    /// Keeps what the node says of what it refused.
    pub fn keep_refusal(&mut self, code: &str, message: &str) {
        let line = |text| bounded_line(text, MAX_CONDITION_TEXT).into();
        let (code, message) = (line(code), line(message));
        self.open_items.change(|it| it.refusal = Some(ReportedRefusal { code, message }));
    }

    /// Keeps what the node says is changed again and again.
    pub fn keep_contended(&mut self, resources: &[Contention]) {
        self.open_items.change(|it| it.contended = contention::kept(resources));
    }
}
