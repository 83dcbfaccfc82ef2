//! The requesting half of a resync: what to compare and to fetch, and when to begin.
//!
//! ```text
//!        wanted          due, permit taken           sections           nothing left: Done{from}
//!   Idle ----> Scheduled ----------------> Requested --------> UnderWay ------------------------> Idle
//!               ^  |                           |               ^   |
//!               |  +-- an unfinished one, or no trie resync ---+   |
//!               +------- Wait, or the link is cut -+---------------+
//!
//!   UnderWay:  Settling -> Comparing (Tops*) -> Fetching (Objects*)
//!              Listing (inventory_resync) ----> Fetching (inventory_resync)
//! ```
//!
//! The replica asks level by level where hashes differ, fetches what is missing or different,
//! and takes its orphans out. The cost is in proportion to the difference. The replica applies all
//! events that came before the sections, then compares. Events keep coming meanwhile; an object that
//! changed is not taken for an orphan. At the end the replica is complete up to the cursor of the
//! sections, and a source that was stuck goes on from there after Done.
//! A peer without the trie resync is asked for the names of all its objects instead, then for each
//! object that is there or here; the cursor is where the peer said last that its feed stood.
//!
//! Invariants: one request waits for its response at a time; an unfinished comparison goes on where it
//! was, or from its beginning when what was fetched is not durable, the source's feed is another one or
//! went back, or too much changed; a resync counts as failed until a checkpoint finds the roots equal.

mod orphans;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cursor::FeedCursor;
use model::descent::{Found, key_of};
use model::set::MAX_SECTIONS;
use model::sort::SortCompactly;
use model::trie::Leaf;
use model::{Descent, DescentError, Digest, Kind, ObjectKey, SectionKey, Stub, Timestamp};

use super::outbox::order_of;
use super::proof::{FeedProofs, is_older};
use super::types::{LinkConfig, Span};
use super::{Cx, Link, STAY_AWAY};
use crate::frame::{Capabilities, Event, Frame, MAX_REQUESTED, Op, ResyncRequest, ResyncResponse};
use crate::mode::Role;

/// The link ends when a request of a resync is not answered for so long.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// So long an operator's word counts also for a comparison after the first: what it is about may
/// reach this side only after the source heard of it.
const APPROVED_FOR: Duration = Duration::from_secs(15);

/// The most objects that may change while a comparison goes on; with more it begins anew.
const MAX_CHANGED: usize = 20_000;

/// An operator's word that orphans may go, good for one mass of them.
#[derive(Clone, Copy, Debug)]
struct Approval {
    at: Timestamp,
    /// A comparison that began since found no mass.
    compared: bool,
}

/// Where the resync of the replica stands.
#[derive(Clone, Debug, Default)]
pub(crate) enum ResyncStage {
    /// None is wanted.
    #[default]
    Idle,
    /// One begins at this instant, or the one goes on that was under way.
    Scheduled(Timestamp, Option<Box<Comparison>>),
    /// The sections were asked for.
    Requested,
    /// Both sets are compared, or what differs is fetched.
    UnderWay(Box<Comparison>),
}

/// The asking half. It stays with the replica from link to link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resync {
    pub stage: ResyncStage,
    /// A link of this process was there before.
    pub linked: bool,
    /// Resyncs in a row that did not make the sets equal.
    failures: u32,
    approved: Option<Approval>,
    /// Orphans kept until an operator confirms, and of how many objects.
    pub kept: Option<(usize, usize)>,
    /// Objects that failed for now on a link before: until the sets are equal, they are not here.
    pub failing: u64,
    /// A resync ended, and the roots were different all the same.
    differs: bool,
    pub began: Timestamp,
    /// What the answer to the request under way is to name, so that no answer of before counts.
    pub challenge: String,
    /// Since when the source does not answer a request, or sent nothing of the answer.
    pub asked_at: Option<Timestamp>,
    /// Parts of inventory resyncs that were answered.
    pub parts: u64,
    pub frames: u64,
    pub fetched: usize,
}

impl Resync {
    /// What a link left, on the next one: requests that were not answered are made again. What the
    /// principal asks in an exchange the node answers with the next one, so these wait for a while.
    pub fn continued(mut self: Box<Self>, config: &LinkConfig, now: Timestamp) -> Box<Resync> {
        let waits = config.role == Role::Principal && config.span != Span::Transport;
        let within = ANSWER_WITHIN / 2;
        self.asked_at = self.asked_at.filter(|at| waits && now.since(*at) < within);
        if self.is_busy() {
            self.go_on_at(now);
        }
        self
    }

    /// What is under way goes on at that instant.
    fn go_on_at(&mut self, at: Timestamp) {
        let unfinished = match std::mem::take(&mut self.stage) {
            ResyncStage::UnderWay(mut comparison) => {
                comparison.resumed = true;
                Some(comparison)
            }
            _ => None,
        };
        self.stage = ResyncStage::Scheduled(at, unfinished);
    }

    /// The source stands here: a comparison with a set of another incarnation, or with one that the
    /// source does not have yet, is of no use.
    pub fn source_stands_at(&mut self, head: &FeedCursor, now: Timestamp) {
        let cursor = match &self.stage {
            ResyncStage::UnderWay(comparison) | ResyncStage::Scheduled(_, Some(comparison)) => {
                &comparison.cursor
            }
            _ => return,
        };
        if cursor.incarnation != head.incarnation || cursor.revision > head.revision {
            self.compare_anew(now);
        }
    }

    /// A change of this object came: it is newer than what a comparison finds.
    pub fn changed(&mut self, key: &ObjectKey, now: Timestamp) {
        let (ResyncStage::UnderWay(comparison) | ResyncStage::Scheduled(_, Some(comparison))) =
            &mut self.stage
        else {
            return;
        };
        if comparison.changed.len() < MAX_CHANGED {
            comparison.changed.insert(key.clone());
        } else {
            // What was compared is old by now.
            self.compare_anew(now);
        }
    }

    /// Gives up a comparison that is under way, for one from its beginning.
    pub fn compare_anew(&mut self, now: Timestamp) {
        match &mut self.stage {
            ResyncStage::UnderWay(_) => self.stage = ResyncStage::Scheduled(now, None),
            ResyncStage::Scheduled(_, unfinished) => *unfinished = None,
            _ => {}
        }
    }

    /// Objects that this side lacks or has too many, whoever is to blame.
    pub fn lacking(&self) -> u64 {
        let kept = self.kept.map_or(0, |(kept, _)| kept as u64);
        // With these the difference is explained.
        self.failing.saturating_add(kept).max(self.differs.into())
    }

    /// The roots are different. After a resync the source gets a frame: it would take the sets for equal.
    pub fn differed(&mut self) {
        self.differs |= self.failures > 0;
    }

    /// Where the source's feed stood when the comparison under way began.
    fn compared_at(&self) -> u64 {
        if let ResyncStage::UnderWay(comparison) = &self.stage { comparison.cursor.revision } else { 0 }
    }

    /// What was asked for is not at the source any more, as far as anything proves.
    pub(super) fn is_not_there(&mut self, key: &ObjectKey) {
        if let Some(Phase::Fetching(fetching)) = self.phase() {
            fetching.asked.remove(key);
        }
    }

    /// How far the comparison under way is.
    pub(super) fn phase(&mut self) -> Option<&mut Phase> {
        if let ResyncStage::UnderWay(comparison) = &mut self.stage {
            Some(&mut comparison.phase)
        } else {
            None
        }
    }

    pub fn is_busy(&self) -> bool {
        matches!(self.stage, ResyncStage::Requested | ResyncStage::UnderWay(_))
    }

    /// One began and is not at its end, on this link or for the next.
    pub fn is_under_way(&self) -> bool {
        self.is_busy() || matches!(self.stage, ResyncStage::Scheduled(_, Some(_)))
    }

    pub fn is_wanted(&self) -> bool {
        !matches!(self.stage, ResyncStage::Idle)
    }

    /// When the next one begins.
    pub fn begins_at(&self) -> Option<Timestamp> {
        if let ResyncStage::Scheduled(at, _) = self.stage { Some(at) } else { None }
    }

    /// Since when the source does not answer; `None` when nothing is asked of it.
    pub fn waits_since(&self) -> Option<Timestamp> {
        self.asked_at.filter(|_| self.is_busy())
    }

    /// The source works on what was asked.
    pub fn is_answered(&mut self, now: Timestamp) {
        self.asked_at = self.asked_at.map(|_| now);
    }

    pub fn succeeded(&mut self) {
        (self.failures, self.failing, self.kept, self.differs) = (0, 0, None, false);
        if matches!(self.stage, ResyncStage::Scheduled(..)) {
            self.stage = ResyncStage::Idle;
        }
    }

    pub fn has_failed(&self) -> bool {
        self.failures > 1
    }
}

/// The comparison with the source's set, and how far it is.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// Where the feed stood when it began.
    cursor: FeedCursor,
    phase: Phase,
    /// A link before this one began it: the source may have been restored since.
    resumed: bool,
    /// Objects whose changes came since.
    changed: BTreeSet<ObjectKey>,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// What came before the sections is applied first; then these sections are compared.
    Settling(Vec<(SectionKey, Digest)>),
    /// Nodes are compared.
    Comparing(Descent),
    /// Without the trie resync: the objects here, and the names of those there.
    Listing(BTreeSet<ObjectKey>),
    /// Objects that differ are fetched.
    Fetching(Fetching),
}

impl Phase {
    /// Whether a peer that can do this answers its requests.
    fn suits(&self, peer: &Capabilities) -> bool {
        match self {
            Phase::Settling(_) | Phase::Comparing(_) => peer.trie_resync,
            Phase::Listing(_) => !peer.trie_resync,
            Phase::Fetching(_) => true,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Fetching {
    /// Objects as the comparison found them, where it did; taken from the end.
    wants: Vec<(ObjectKey, Option<Stub>)>,
    asked: BTreeMap<ObjectKey, Option<Stub>>,
    orphans: BTreeSet<ObjectKey>,
}

impl Fetching {
    fn of(found: &Found) -> Fetching {
        let want = |(section, leaf): &(SectionKey, Leaf)| (key_of(section, leaf), Some(leaf.stub.clone()));
        let orphans = found.orphans.iter().map(|(section, leaf)| key_of(section, leaf)).collect();
        Fetching { wants: found.differing.iter().map(want).collect(), orphans, ..Fetching::default() }
    }

    /// What is wanted, and what was asked for in vain, is taken from the end: the first kind comes first.
    fn wanted(mut self, kinds: &[Kind]) -> Phase {
        self.wants.extend(std::mem::take(&mut self.asked));
        self.wants.sort_compactly_by_key(|(key, _)| std::cmp::Reverse(order_of(key, kinds)));
        Phase::Fetching(self)
    }
}

impl Link {
    /// The sets differ, or changes do not lead on.
    pub(super) fn want_resync(&mut self, cx: &mut Cx<'_>) {
        if self.resync.is_wanted() {
            return;
        }
        let wait = match self.resync.failures {
            0 => Duration::ZERO,
            n => (self.config.limits.retry_first * (1 << n.min(10))).min(self.config.limits.periodic),
        };
        // Nothing else than before is to be expected: not in a hurry.
        let wait = if self.resync.kept.is_some() || cx.replica.evicted() > 0 {
            self.config.limits.periodic
        } else {
            wait
        };
        self.resync.stage = ResyncStage::Scheduled(cx.now.plus(wait), None);
    }

    /// An operator asked for it, or confirmed: at once.
    pub(super) fn resync_now(&mut self, approved: bool, cx: &mut Cx<'_>) {
        if approved {
            self.resync.approved = Some(Approval { at: cx.now, compared: false });
        }
        match &mut self.resync.stage {
            ResyncStage::Scheduled(at, _) => *at = cx.now,
            stage @ ResyncStage::Idle => *stage = ResyncStage::Scheduled(cx.now, None),
            _ => {}
        }
    }

    /// Begins, repeats and goes on with the resync.
    pub(super) fn step_resync(&mut self, cx: &mut Cx<'_>) {
        if !self.has_met() && !self.sends_before_hello() || self.closing {
            return;
        }
        match &self.resync.stage {
            ResyncStage::Scheduled(at, _) if *at <= cx.now => {
                let permit = self.take_permit(cx);
                match (permit, &mut self.resync.stage) {
                    (Err(wait), ResyncStage::Scheduled(at, _)) => *at = cx.now.plus(wait),
                    _ => self.begin_resync(cx),
                }
            }
            _ => self.step_comparison(cx),
        }
    }

    fn begin_resync(&mut self, cx: &mut Cx<'_>) {
        let peer = self.peer_incarnation.clone();
        let resync = &mut self.resync;
        let unfinished = match (std::mem::take(&mut resync.stage), peer) {
            (ResyncStage::Scheduled(_, Some(mut unfinished)), _) if unfinished.phase.suits(&self.both) => {
                if let (Phase::Fetching(fetching), None) = (&mut unfinished.phase, resync.asked_at) {
                    unfinished.phase = std::mem::take(fetching).wanted(&self.config.kinds);
                }
                Some(unfinished)
            }
            (_, Some(incarnation)) if !self.both.trie_resync => {
                cx.replica.begin_incarnation(&incarnation);
                let here = cx.replica.objects().map(|(key, _)| key).chain(cx.replica.rejected().keys());
                let phase = Phase::Listing(here.cloned().collect());
                let cursor = FeedCursor::at(incarnation, self.peer_head);
                (resync.asked_at, resync.frames, resync.fetched) = (None, 0, 0);
                // What was asked before may still be answered, and is not this.
                resync.parts += 1;
                Some(Box::new(Comparison { cursor, phase, resumed: false, changed: BTreeSet::new() }))
            }
            (_, None) if !self.both.trie_resync => {
                resync.stage = ResyncStage::Scheduled(cx.now, None);
                return;
            }
            _ => None,
        };
        self.counters.resyncs += 1;
        cx.replica.reset_evicted();
        resync.began = cx.now;
        if let Some(comparison) = unfinished {
            resync.stage = ResyncStage::UnderWay(comparison);
            return self.step_comparison(cx);
        }
        (resync.stage, resync.frames, resync.fetched) = (ResyncStage::Requested, 0, 0);
        let request = self.sections_request(cx.now);
        self.request(request, cx);
    }

    fn request(&mut self, request: ResyncRequest, cx: &mut Cx<'_>) {
        self.resync.asked_at = Some(cx.now);
        self.resync.frames += 1;
        self.counters.resync_frames += 1;
        cx.send(Frame::ResyncRequest(Box::new(request)));
    }

    /// The source answers.
    pub(super) fn resync_responded(&mut self, response: ResyncResponse, cx: &mut Cx<'_>) {
        if let ResyncResponse::Sections { cursor, sections, proof } = &response {
            self.observe_peer_head(cursor.revision);
            if matches!(self.resync.stage, ResyncStage::Requested)
                && let Err(why) = self.proves_sections(cursor, sections, proof.as_ref())
            {
                return self.unproven_set(why, cx);
            }
        }
        let (incarnation, head) = (self.peer_incarnation.clone(), self.peer_head);
        let most = self.config.limits.requested.min(MAX_REQUESTED);
        self.resync.frames += 1;
        self.counters.resync_frames += 1;
        match (&mut self.resync.stage, response) {
            (ResyncStage::Requested, ResyncResponse::Sections { sections, .. })
                if sections.len() > MAX_SECTIONS =>
            {
                self.too_many(cx);
            }
            (ResyncStage::Requested, ResyncResponse::Sections { cursor, sections, .. })
                if Some(&cursor.incarnation) == incarnation.as_ref() =>
            {
                self.resync.asked_at = None;
                self.inbox.announced = self.inbox.announced.max(cursor.revision);
                let (phase, changed) = (Phase::Settling(sections), BTreeSet::new());
                let comparison = Comparison { cursor, phase, resumed: false, changed };
                self.resync.stage = ResyncStage::UnderWay(Box::new(comparison));
            }
            (ResyncStage::Requested | ResyncStage::UnderWay(_), ResyncResponse::Wait(secs)) => {
                self.resync.asked_at = None;
                self.resync.go_on_at(cx.now.plus(Duration::from_secs(secs.clamp(1, 600))));
            }
            (ResyncStage::UnderWay(comparison), ResyncResponse::Tops { section, tops }) => {
                let answers = |descent: &&mut Descent| {
                    descent.needs_at(most).is_some_and(|(of, paths)| {
                        of == section && tops.iter().map(|(path, _)| path).eq(&paths)
                    })
                };
                let asked =
                    if let Phase::Comparing(descent) = &mut comparison.phase { Some(descent) } else { None };
                let Some(descent) = asked.filter(answers).filter(|_| self.resync.asked_at.take().is_some())
                else {
                    return;
                };
                // What is proven is answered from one set.
                let proven = matches!(self.config.proofs, FeedProofs::Required(_));
                let changed = !proven && (comparison.resumed || head > comparison.cursor.revision);
                let supplied = tops.into_iter().try_for_each(|(path, node)| match changed {
                    true => descent.supply_current_at(&section, &path, node),
                    false => descent.supply_at(&section, &path, node),
                });
                match supplied {
                    // The source does not have that set any more: it was on a link before, or in an exchange.
                    Err(DescentError::Unwanted(_)) if proven && comparison.resumed => {
                        self.resync.compare_anew(cx.now);
                    }
                    Err(error) => self.end_descent(&error, cx),
                    Ok(()) => {}
                }
            }
            (ResyncStage::UnderWay(_), ResyncResponse::Objects(_)) => self.all_answered(),
            _ => {}
        }
    }

    /// The source sent all that was asked for.
    pub(super) fn all_answered(&mut self) {
        let Some(phase) = self.resync.phase() else { return };
        match phase {
            Phase::Listing(names) => {
                let wants = std::mem::take(names).into_iter().map(|key| (key, None)).collect();
                *phase = Fetching { wants, ..Fetching::default() }.wanted(&self.config.kinds);
            }
            // What did not come by now is not at the source in a form that it can send, or is like that here.
            Phase::Fetching(fetching) => fetching.asked.clear(),
            Phase::Settling(_) | Phase::Comparing(_) => return,
        }
        self.resync.asked_at = None;
    }

    /// An event with number 0: for the resync, or back to who asked. What is gone at the source goes with
    /// the orphans.
    pub(super) fn resync_answer(&mut self, event: Event, cx: &mut Cx<'_>) -> Option<Event> {
        let compared_at = self.resync.compared_at();
        let Some(Phase::Fetching(fetching)) = self.resync.phase() else { return Some(event) };
        let Some(found) = fetching.asked.remove(&event.key) else { return Some(event) };
        if matches!(self.config.proofs, FeedProofs::Required(_))
            && is_older(&event, compared_at, found.as_ref())
        {
            // One of before is withheld as if it were not there: the roots go on differing.
            return None;
        }
        if matches!(event.op, Op::Delete { .. }) {
            if cx.replica.received(&event.key).is_some() {
                fetching.orphans.insert(event.key);
            }
            return None;
        }
        self.resync.fetched += 1;
        self.counters.resync_objects += 1;
        self.resync.is_answered(cx.now);
        self.accept(event, cx);
        None
    }

    fn step_comparison(&mut self, cx: &mut Cx<'_>) {
        let drained = self.inbox.is_drained();
        let most = self.config.limits.requested.min(MAX_REQUESTED);
        let objects = self.config.limits.replica.objects;
        let ResyncStage::UnderWay(comparison) = &mut self.resync.stage else { return };
        if let Phase::Settling(sections) = &mut comparison.phase {
            if !drained {
                return;
            }
            cx.replica.begin_incarnation(&comparison.cursor.incarnation);
            let known = cx.replica.set().clone();
            match Descent::new(std::mem::take(sections), known, objects) {
                Ok(descent) => comparison.phase = Phase::Comparing(descent),
                Err(error) => return self.end_descent(&error, cx),
            }
        }
        if self.resync.asked_at.is_some() {
            return;
        }
        match &mut comparison.phase {
            Phase::Comparing(descent) => {
                if let Some((section, paths)) = descent.needs_at(most) {
                    return self.request(ResyncRequest::Tops { section, paths }, cx);
                }
                match std::mem::take(descent).finish() {
                    Ok(found) => comparison.phase = Fetching::of(&found).wanted(&self.config.kinds),
                    Err(error) => return self.end_descent(&error, cx),
                }
            }
            Phase::Listing(_) => return self.request_list(cx),
            Phase::Settling(_) | Phase::Fetching(_) => {}
        }
        self.fetch_objects(most, cx);
    }

    /// Asks for objects that differ; ends the resync when there are no more.
    fn fetch_objects(&mut self, most: usize, cx: &mut Cx<'_>) {
        let full = self.inbox.is_full(self.config.limits.window_events, self.config.limits.window_bytes);
        // One object may always be asked for.
        let most_bytes = self.config.limits.batch_bytes;
        let Some(Phase::Fetching(fetching)) = self.resync.phase() else { return };
        if fetching.wants.is_empty() {
            // What was fetched is durable first: else the next link compares anew.
            if self.inbox.in_flight.is_none() {
                self.end_comparison(cx);
            }
            return;
        }
        if full {
            return;
        }
        let (mut keys, mut bytes) = (Vec::new(), 0);
        while let Some((key, stub)) = fetching.wants.last() {
            bytes = stub.as_ref().map_or(0, |stub| stub.size).saturating_add(bytes);
            if fetching.asked.len() >= most || (bytes > most_bytes && !fetching.asked.is_empty()) {
                break;
            }
            fetching.asked.insert(key.clone(), stub.clone());
            keys.push(key.clone());
            fetching.wants.pop();
        }
        if self.both.trie_resync {
            self.request(ResyncRequest::Objects(keys), cx);
        } else {
            self.request_updates(&keys, cx);
        }
    }

    /// The source's answers lead nowhere.
    fn end_descent(&mut self, error: &DescentError, cx: &mut Cx<'_>) {
        match error {
            DescentError::TooMany(_) => self.too_many(cx),
            _ => {
                self.resync.stage = ResyncStage::Idle;
                self.go_away("wrong-node", &format!("a resync was answered wrongly: {error}"), Some(60), cx);
            }
        }
    }

    /// The other side has more than is taken here.
    pub(super) fn too_many(&mut self, cx: &mut Cx<'_>) {
        self.resync.stage = ResyncStage::Idle;
        self.go_away("too-many", "the other side has more than a replica holds", Some(STAY_AWAY), cx);
    }

    fn end_comparison(&mut self, cx: &mut Cx<'_>) {
        let ResyncStage::UnderWay(comparison) = std::mem::take(&mut self.resync.stage) else { return };
        let Comparison { cursor, phase, changed, .. } = *comparison;
        // One that came meanwhile may be of an older set; after Done comes a newer one.
        self.inbox.checkpoint = None;
        if let Phase::Fetching(mut fetching) = phase {
            fetching.orphans.retain(|key| !changed.contains(key));
            self.take_orphans(fetching.orphans, cursor.revision, cx);
        }
        self.inbox.complete_to(cursor.clone(), cx.replica.cursor());
        // The source goes on with the changes after it.
        self.request(ResyncRequest::Done { from: cursor }, cx);
        self.resync.asked_at = None;
        // Until a checkpoint says that it helped.
        self.resync.failures += 1;
    }
}
