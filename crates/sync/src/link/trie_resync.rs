//! The requesting half of a resync: the descent of the source's trie, and when to begin one.
//!
//! ```text
//!   Idle -> Wanted -> (Permit ->) Asked -> TrieResync -> Idle
//!                                   |          Sections, Tops*, Objects*, Done{from}
//!                                   +-> Wanted (Wait)
//! ```
//!
//! The replica asks level by level where hashes differ, fetches what is missing or different,
//! and takes its orphans out. The cost is in proportion to the difference. Frames are ordered:
//! all events before the sections precede the snapshot, and none follows before Done. At the end
//! the replica is complete up to the snapshot's place in the feed, and Done says that the source
//! goes on from there.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::cursor::FeedCursor;
use model::descent::{Found, key_of};
use model::replication::SyncPolicy;
use model::set::MAX_SECTIONS;
use model::trie::Leaf;
use model::{Descent, DescentError, Digest, Kind, ObjectKey, SectionKey, Timestamp};

use super::inventory_resync::InventoryResync;
use super::outbox::rank;
use super::permit::PermitUse;
use super::types::{Limits, Note};
use super::{Cx, Link, STAY_AWAY};
use crate::frame::{Event, Frame, MAX_REQUESTED, ResyncRequest, ResyncResponse};
use crate::mode::Role;

/// The most bytes of content asked for at once; one object may always be.
const MAX_FETCH_BYTES: u64 = 4 * 1024 * 1024;

/// So long an operator's word counts also for a comparison after the first: what it is about may
/// reach this side only after the source heard of it.
const APPROVED_FOR: Duration = Duration::from_secs(15);

/// An operator's word that orphans may go, good for one mass of them.
#[derive(Clone, Copy, Debug)]
struct Approval {
    at: Timestamp,
    /// A comparison that began since found no mass.
    walked: bool,
}

/// Where the resync of the replica stands.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// None is wanted.
    #[default]
    Idle,
    /// One is wanted: from this instant.
    Wanted(Timestamp),
    /// The permit was asked for.
    Permit,
    /// The sections were asked for.
    Asked,
    /// The walk is under way.
    TrieResync(Box<TrieResync>),
    /// The other side cannot walk: the resync of the source document.
    InventoryResync(Box<InventoryResync>),
}

/// The asking half.
#[derive(Debug)]
pub(super) struct Resync {
    pub stage: Stage,
    /// Resyncs in a row that did not make the sets equal.
    failures: u32,
    approved: Option<Approval>,
    /// Orphans kept until an operator confirms, and of how many objects.
    pub kept: Option<(usize, usize)>,
    pub began: Timestamp,
    /// The last sign that the source works on a request.
    pub asked_at: Timestamp,
    pub frames: u64,
    pub fetched: usize,
}

impl Resync {
    pub fn new(now: Timestamp) -> Resync {
        Resync {
            stage: Stage::Idle,
            failures: 0,
            approved: None,
            kept: None,
            began: now,
            asked_at: now,
            frames: 0,
            fetched: 0,
        }
    }

    /// The source sends no numbered events: it serves a snapshot.
    pub fn stops_stream(&self) -> bool {
        matches!(self.stage, Stage::TrieResync(_))
    }

    pub fn is_busy(&self) -> bool {
        matches!(self.stage, Stage::Asked | Stage::TrieResync(_) | Stage::InventoryResync(_))
    }

    pub fn is_wanted(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// When a source that does not answer loses the link; `None` when nothing is asked of it.
    fn unanswered_at(&self, limits: &Limits) -> Option<Timestamp> {
        let waits = match &self.stage {
            Stage::Asked => true,
            Stage::TrieResync(walk) => walk.is_waiting(),
            Stage::InventoryResync(inventory) => inventory.is_waiting(),
            Stage::Idle | Stage::Wanted(_) | Stage::Permit => false,
        };
        waits.then(|| self.asked_at.plus(limits.answer_within))
    }

    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.kept = None;
        if matches!(self.stage, Stage::Wanted(_)) {
            self.stage = Stage::Idle;
        }
    }

    pub fn has_failed(&self) -> bool {
        self.failures > 1
    }
}

/// The comparison with a snapshot of the source, and how far it is.
#[derive(Debug)]
pub(super) struct TrieResync {
    /// The snapshot's place in the feed.
    cursor: FeedCursor,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// What came before the snapshot is applied first; then these sections are compared.
    Settling(Vec<(SectionKey, Digest)>),
    /// Nodes are compared; some were asked for.
    Comparing { descent: Box<Descent>, asked: Option<(SectionKey, Vec<Vec<u8>>)> },
    /// Objects that differ are fetched.
    Fetching(Fetching),
}

#[derive(Debug)]
struct Fetching {
    /// Keys and sizes; taken from the end.
    wants: Vec<(ObjectKey, u64)>,
    asked: BTreeSet<ObjectKey>,
    /// Objects were asked for, and the word that all were sent is not here.
    answering: bool,
    orphans: BTreeSet<ObjectKey>,
}

impl Fetching {
    fn of(found: Found, kinds: &[Kind]) -> Fetching {
        let want = |(section, leaf): &(SectionKey, Leaf)| (key_of(section, leaf), leaf.stub.size);
        let mut wants: Vec<_> = found.differing.iter().map(want).collect();
        // The first kind comes first.
        wants.sort_by_key(|(key, _)| std::cmp::Reverse(rank(&key.section.kind, kinds)));
        let orphans = found.orphans.iter().map(|(section, leaf)| key_of(section, leaf)).collect();
        Fetching { wants, asked: BTreeSet::new(), answering: false, orphans }
    }
}

impl TrieResync {
    /// A request is under way.
    fn is_waiting(&self) -> bool {
        match &self.phase {
            Phase::Settling(_) => false,
            Phase::Comparing { asked, .. } => asked.is_some(),
            Phase::Fetching(fetching) => fetching.answering,
        }
    }
}

impl Link {
    /// The sets differ, or changes do not lead on.
    pub(super) fn want_resync(&mut self, cx: &mut Cx<'_>) {
        if self.resync.is_wanted() {
            return;
        }
        let wait = match self.resync.failures {
            0 => std::time::Duration::ZERO,
            n => (self.config.limits.retry_first * (1 << n.min(10))).min(self.config.limits.periodic),
        };
        // Nothing else than before is to be expected: not in a hurry.
        let wait = if self.resync.kept.is_some() || cx.replica.evicted() > 0 {
            self.config.limits.periodic
        } else {
            wait
        };
        self.resync.stage = Stage::Wanted(cx.now.plus(wait));
    }

    /// An operator asked for it, or confirmed: at once.
    pub(super) fn resync_now(&mut self, approved: bool, cx: &mut Cx<'_>) {
        if approved {
            self.resync.approved = Some(Approval { at: cx.now, walked: false });
        }
        if matches!(self.resync.stage, Stage::Idle | Stage::Wanted(_)) {
            self.resync.stage = Stage::Wanted(cx.now);
        }
    }

    /// Begins, repeats and goes on with the resync.
    pub(super) fn step_resync(&mut self, cx: &mut Cx<'_>) {
        if self.peer.is_none() || self.closing.is_some() {
            return;
        }
        match self.resync.stage {
            Stage::Idle | Stage::Permit => {}
            Stage::Wanted(at) if at <= cx.now => {
                if self.config.role == Role::Agent || self.permit.is_held_for(PermitUse::Requesting) {
                    self.begin_resync(cx);
                } else if self.permit.is_free() {
                    self.resync.stage = Stage::Permit;
                    self.permit.want(PermitUse::Requesting, cx);
                }
            }
            Stage::Wanted(_) => {}
            Stage::Asked | Stage::TrieResync(_) => self.step_walk(cx),
            Stage::InventoryResync(_) => self.step_inventory(cx),
        }
    }

    pub(super) fn begin_resync(&mut self, cx: &mut Cx<'_>) {
        self.counters.resyncs += 1;
        cx.replica.forget_unnamed();
        let resync = &mut self.resync;
        (resync.began, resync.asked_at) = (cx.now, cx.now);
        (resync.frames, resync.fetched) = (0, 0);
        if self.both.trie_resync {
            resync.stage = Stage::Asked;
            self.ask(ResyncRequest::Sections, cx);
        } else {
            resync.stage = Stage::InventoryResync(Box::new(InventoryResync::new()));
            self.step_inventory(cx);
        }
    }

    fn ask(&mut self, ask: ResyncRequest, cx: &mut Cx<'_>) {
        self.resync.asked_at = cx.now;
        self.resync.frames += 1;
        self.counters.walk_frames += 1;
        cx.send(Frame::ResyncRequest(Box::new(ask)));
    }

    /// The source answers.
    pub(super) fn told(&mut self, tell: ResyncResponse, cx: &mut Cx<'_>) {
        let incarnation = self.peer_incarnation().cloned();
        self.resync.frames += 1;
        self.counters.walk_frames += 1;
        match (&mut self.resync.stage, tell) {
            (Stage::Asked, ResyncResponse::Sections { sections, .. }) if sections.len() > MAX_SECTIONS => {
                self.too_many(cx);
            }
            (Stage::Asked, ResyncResponse::Sections { cursor, sections })
                if Some(&cursor.incarnation) == incarnation.as_ref() =>
            {
                let walk = TrieResync { cursor, phase: Phase::Settling(sections) };
                self.resync.stage = Stage::TrieResync(Box::new(walk));
                self.inbox.mark = None;
            }
            (Stage::Asked, ResyncResponse::Wait(secs)) => {
                let wait = std::time::Duration::from_secs(secs.clamp(1, 600));
                self.resync.stage = Stage::Wanted(cx.now.plus(wait));
                self.permit.give_back(cx);
            }
            (Stage::TrieResync(walk), ResyncResponse::Tops { section, tops }) => {
                let Phase::Comparing { descent, asked } = &mut walk.phase else {
                    self.counters.ignored += 1;
                    return;
                };
                let answered = |(of, paths): &mut (SectionKey, Vec<Vec<u8>>)| {
                    *of == section && tops.iter().map(|(path, _)| path).eq(&*paths)
                };
                if asked.take_if(answered).is_none() {
                    self.counters.ignored += 1;
                    return;
                }
                let supplied =
                    tops.into_iter().try_for_each(|(path, node)| descent.supply_at(&section, &path, node));
                if let Err(error) = supplied {
                    self.end_descent(&error, cx);
                }
            }
            (Stage::TrieResync(walk), ResyncResponse::Objects(_)) => match &mut walk.phase {
                Phase::Fetching(fetching) => {
                    // What did not come by now is not at the source in a form that it can send.
                    fetching.asked.clear();
                    fetching.answering = false;
                }
                _ => self.counters.ignored += 1,
            },
            _ => self.counters.ignored += 1,
        }
    }

    /// An event with number 0: for the walk, for the inventory resync, or back to who asked.
    pub(super) fn resync_answer(&mut self, event: Event, cx: &mut Cx<'_>) -> Option<Event> {
        match &mut self.resync.stage {
            Stage::TrieResync(walk) => {
                let Phase::Fetching(fetching) = &mut walk.phase else { return Some(event) };
                if !fetching.asked.remove(&event.key) {
                    return Some(event);
                }
            }
            Stage::InventoryResync(inventory) => {
                if inventory.keeps(&event, cx.replica) {
                    return None;
                }
            }
            _ => return Some(event),
        }
        self.resync.fetched += 1;
        self.counters.walk_objects += 1;
        self.resync.asked_at = cx.now;
        self.accept(event, 0, cx);
        None
    }

    fn step_walk(&mut self, cx: &mut Cx<'_>) {
        let drained = self.inbox.is_drained();
        let most = self.config.limits.asked.min(MAX_REQUESTED);
        let objects = self.config.limits.objects;
        let Stage::TrieResync(walk) = &mut self.resync.stage else { return };
        if let Phase::Settling(sections) = &mut walk.phase {
            if !drained {
                return;
            }
            cx.replica.begin_incarnation(&walk.cursor.incarnation);
            let known = cx.replica.set().clone();
            match Descent::new(std::mem::take(sections), known, objects) {
                Ok(descent) => {
                    walk.phase = Phase::Comparing { descent: Box::new(descent), asked: None };
                }
                Err(error) => return self.end_descent(&error, cx),
            }
        }
        if walk.is_waiting() {
            return;
        }
        if let Phase::Comparing { descent, asked } = &mut walk.phase {
            if let Some((section, paths)) = descent.needs_at(most) {
                *asked = Some((section.clone(), paths.clone()));
                return self.ask(ResyncRequest::Tops { section, paths }, cx);
            }
            match std::mem::take(&mut **descent).finish() {
                Ok(found) => walk.phase = Phase::Fetching(Fetching::of(found, &self.config.kinds)),
                Err(error) => return self.end_descent(&error, cx),
            }
        }
        self.fetch_objects(most, cx);
    }

    /// Asks for objects that differ; ends the resync when there are no more.
    fn fetch_objects(&mut self, most: usize, cx: &mut Cx<'_>) {
        let full = self.inbox.is_full(self.config.limits.window_events, self.config.limits.window_bytes);
        let Stage::TrieResync(walk) = &mut self.resync.stage else { return };
        let Phase::Fetching(fetching) = &mut walk.phase else { return };
        if fetching.wants.is_empty() {
            return self.end_walk(cx);
        }
        if full {
            return;
        }
        let mut bytes = 0;
        while let Some((key, size)) = fetching.wants.last() {
            bytes = size.saturating_add(bytes);
            if fetching.asked.len() >= most || (bytes > MAX_FETCH_BYTES && !fetching.asked.is_empty()) {
                break;
            }
            fetching.asked.insert(key.clone());
            fetching.wants.pop();
        }
        fetching.answering = true;
        let keys = fetching.asked.iter().cloned().collect();
        self.ask(ResyncRequest::Objects(keys), cx);
    }

    /// The source's answers lead nowhere.
    fn end_descent(&mut self, error: &DescentError, cx: &mut Cx<'_>) {
        match error {
            DescentError::TooMany(_) => self.too_many(cx),
            _ => self.go_away("wrong-node", &format!("a resync was answered wrongly: {error}"), Some(60), cx),
        }
    }

    /// The other side has more than is taken here.
    pub(super) fn too_many(&mut self, cx: &mut Cx<'_>) {
        self.go_away("too-many", "the other side has more than a replica holds", Some(STAY_AWAY), cx);
    }

    fn end_walk(&mut self, cx: &mut Cx<'_>) {
        let Stage::TrieResync(walk) = std::mem::take(&mut self.resync.stage) else { return };
        if let Phase::Fetching(fetching) = walk.phase {
            self.take_orphans(fetching.orphans, walk.cursor.revision, cx);
        }
        self.inbox.complete_to(walk.cursor.clone(), cx.replica.cursor());
        self.end_resync(walk.cursor, cx);
    }

    /// Deletes orphans, or keeps them all when they are too many to go unasked.
    pub(super) fn take_orphans(&mut self, orphans: BTreeSet<ObjectKey>, rev: u64, cx: &mut Cx<'_>) {
        let kinds = &self.config.kinds;
        let counts = |key: &ObjectKey| kinds.contains(&key.section.kind);
        let many = orphans.iter().filter(|key| counts(key)).count();
        let all = cx.replica.objects().filter(|(key, _)| counts(key)).count();
        let share = usize::from(self.config.max_delete_percent);
        let mass = many >= SyncPolicy::FEW_ORPHANS && many * 100 > share * all;
        let approved = self.resync.approved.take();
        let counts = |word: &Approval| !word.walked || cx.now.since(word.at) < APPROVED_FOR;
        if !mass {
            let began = self.resync.began;
            self.resync.approved =
                approved.map(|word| Approval { walked: word.walked || began >= word.at, ..word });
        } else if !approved.as_ref().is_some_and(counts) {
            self.resync.kept = Some((many, all));
            // The source is told: it would take the sets for equal.
            self.inbox.ack_due = true;
            self.note_resynced(0, orphans.len(), cx);
            return;
        }
        self.inbox.ack_due |= self.resync.kept.take().is_some();
        let mut orphans: Vec<ObjectKey> = orphans.into_iter().collect();
        orphans.sort_by_key(|key| std::cmp::Reverse(rank(&key.section.kind, kinds)));
        self.note_resynced(orphans.len(), 0, cx);
        for key in orphans {
            self.delete_orphan(key, rev, cx);
        }
    }

    fn note_resynced(&mut self, deleted: usize, kept: usize, cx: &mut Cx<'_>) {
        let (frames, fetched) = (self.resync.frames, self.resync.fetched);
        cx.note(Note::Resynced { frames, fetched, deleted, kept, took: cx.now.since(self.resync.began) });
    }

    /// The source goes on with the changes after `from`.
    pub(super) fn end_resync(&mut self, from: FeedCursor, cx: &mut Cx<'_>) {
        self.ask(ResyncRequest::Done { from }, cx);
        self.resync.stage = Stage::Idle;
        // Until a mark says that it helped.
        self.resync.failures += 1;
        self.permit.give_back(cx);
    }

    pub(super) fn resync_deadline(&self) -> Option<Timestamp> {
        match self.resync.stage {
            Stage::Wanted(at)
                if self.peer.is_some() && (self.config.role == Role::Agent || self.permit.is_free()) =>
            {
                Some(at)
            }
            _ => self.resync.unanswered_at(&self.config.limits),
        }
    }

    /// Ends the link with a source that does not answer.
    pub(super) fn check_resync_answered(&mut self, cx: &mut Cx<'_>) {
        if self.resync.unanswered_at(&self.config.limits).is_some_and(|at| at <= cx.now) {
            self.go_away("no-answer", "a request of a resync was not answered", Some(1), cx);
        }
    }
}
