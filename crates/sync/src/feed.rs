//! [`Feed`]: a set that this side authors, with the order in which it changed.
//!
//! ```text
//! edits --> Planner --> changes --(made durable)--> commit --> Feed
//!                                                               |  by key: newest change of each object
//!             link: a cursor, going through the kinds        <--+  by kind: changes in their order
//!             resync: the set, as a trie                     <--+
//! ```
//!
//! The feed is the send queue: it holds each object once, at its newest change, so state
//! coalesces by itself, nothing is evicted, and its bound is the number of objects.
//!
//! Invariants: changes are numbered 1, 2, 3 within an incarnation; a tombstone is forgotten only behind
//! `compacted`, which says so; the set is worked out when it is looked at.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use crate::cursor::{FeedCursor, Position};
use crate::totals::{Room, SetIndex, Totals};
use model::set::MAX_SECTIONS;
use model::sort::SortCompactly;
use model::{Digest, Incarnation, Kind, ObjectKey, ObjectSet, Stub};

/// The most tombstones that a feed keeps; who is behind an older one resyncs by content.
pub const MAX_TOMBSTONES: usize = 10_000;

/// One change of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its number: rises by one.
    pub rev: u64,
    /// Which object.
    pub key: ObjectKey,
    /// What it is now.
    pub state: ObjectState,
}

/// What a change leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// The object is like this; it came into being (in this uid) with revision `born`.
    Live {
        /// Uid, digest, size.
        stub: Stub,
        /// The revision of its first change under this uid.
        born: u64,
    },
    /// It is gone; the uid of the object that ended.
    Deleted {
        /// Its uid.
        uid: Arc<str>,
    },
}

impl ObjectState {
    /// The object, if it is there.
    pub fn stub(&self) -> Option<&Stub> {
        match self {
            ObjectState::Live { stub, .. } => Some(stub),
            ObjectState::Deleted { .. } => None,
        }
    }

    /// Bytes of its content; `None` when it is gone.
    pub fn size(&self) -> Option<u64> {
        self.stub().map(|stub| stub.size)
    }
}

/// A feed as it is kept on disk: the newest change of each object, live or gone.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedFeed {
    /// One incarnation of the feed; a new one begins where its numbers would go back.
    pub incarnation: Incarnation,
    /// The number of the last change.
    pub head: u64,
    /// Tombstones up to this number are forgotten.
    pub compacted: u64,
    /// The newest change of each object, in any order.
    pub changes: Vec<Change>,
}

/// A change does not follow the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("change {rev} does not follow change {head}")]
pub struct CommitError {
    /// The number of the change.
    pub rev: u64,
    /// The last change of the feed.
    pub head: u64,
}

/// An object would begin one section too many: no trie resync could compare the set any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "too-many-sections: objects may be of at most {MAX_SECTIONS} kinds and namespaces, and {key} is of another one"
)]
pub struct TooManySections {
    /// Which object.
    pub key: ObjectKey,
}

/// Whether a replica can go on by changes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Yes: with the changes after this position.
    From(Position),
    /// No: its cursor is of another incarnation of the feed, or tombstones after it are forgotten.
    Behind,
    /// No: it has more than the feed knows; the feed was restored from an old backup.
    AheadOfHead,
}

/// The changes of one kind by number.
#[derive(Clone, Debug, Default)]
struct KindChanges {
    live: BTreeMap<u64, ObjectKey>,
    gone: BTreeMap<u64, ObjectKey>,
}

impl KindChanges {
    fn of(&mut self, state: &ObjectState) -> &mut BTreeMap<u64, ObjectKey> {
        match state {
            ObjectState::Live { .. } => &mut self.live,
            ObjectState::Deleted { .. } => &mut self.gone,
        }
    }
}

/// A set with the order of its changes.
#[derive(Clone, Debug)]
pub struct Feed {
    incarnation: Incarnation,
    head: u64,
    compacted: u64,
    most_gone: usize,
    by_key: BTreeMap<ObjectKey, (u64, ObjectState)>,
    by_kind: BTreeMap<Kind, KindChanges>,
    index: SetIndex,
    /// The set that a proven resync is answered from, until its end: in memory alone.
    frozen: Option<ObjectSet>,
}

impl Feed {
    /// An empty feed at the beginning of its incarnation.
    pub fn new(incarnation: Incarnation) -> Feed {
        Feed {
            incarnation,
            head: 0,
            compacted: 0,
            most_gone: MAX_TOMBSTONES,
            by_key: BTreeMap::new(),
            by_kind: BTreeMap::new(),
            index: SetIndex::default(),
            frozen: None,
        }
    }

    /// The feed as it was kept. Of two changes of one object the newer counts.
    pub fn restore(saved: SavedFeed) -> Feed {
        let mut feed = Feed::new(saved.incarnation);
        let mut changes = saved.changes;
        changes.sort_compactly_by_key(|change| change.rev);
        for change in changes {
            feed.insert(change);
        }
        feed.head = saved.head.max(feed.head);
        feed.compacted = saved.compacted;
        feed
    }

    /// Keeps at most `most` tombstones instead of [`MAX_TOMBSTONES`]; at least one.
    #[must_use]
    pub fn keeping_tombstones(mut self, most: usize) -> Feed {
        self.most_gone = most.max(1);
        self
    }

    /// Plans changes that become durable together.
    pub fn planner(&self) -> Planner<'_> {
        Planner { feed: self, next: self.head + 1, room: self.index.room(), over: BTreeMap::new() }
    }

    /// Takes a change that is durable, and forgets tombstones when there are too many.
    ///
    /// # Errors
    /// When the change does not follow the last one.
    pub fn commit(&mut self, change: Change) -> Result<(), CommitError> {
        if change.rev != self.head + 1 {
            return Err(CommitError { rev: change.rev, head: self.head });
        }
        self.insert(change);
        if self.tombstones() > self.most_gone {
            self.forget_tombstones();
        }
        Ok(())
    }

    fn insert(&mut self, change: Change) {
        let Change { rev, key, state } = change;
        self.head = self.head.max(rev);
        let of_kind = match self.by_kind.get_mut(&key.section.kind) {
            Some(of_kind) => of_kind,
            None => self.by_kind.entry(key.section.kind.clone()).or_default(),
        };
        of_kind.of(&state).insert(rev, key.clone());
        let size = state.size();
        let old = match self.by_key.get_mut(&key) {
            Some(entry) => Some(std::mem::replace(entry, (rev, state))),
            None => self.by_key.insert(key.clone(), (rev, state)),
        };
        if let Some((old, was)) = &old {
            of_kind.of(was).remove(old);
        }
        self.index.replace(&key.section, old.and_then(|(_, was)| was.size()), size);
        if self.index.changed(key) {
            self.set();
        }
    }

    /// Forgets an eighth of the tombstones, oldest first, so that it is not done each time.
    fn forget_tombstones(&mut self) {
        let keep = self.most_gone - self.most_gone / 8;
        while self.tombstones() > keep {
            let oldest = self.by_kind.values_mut().filter(|of_kind| !of_kind.gone.is_empty());
            let Some((rev, key)) = oldest
                .min_by_key(|of_kind| of_kind.gone.keys().next().copied())
                .and_then(|of_kind| of_kind.gone.pop_first())
            else {
                break;
            };
            self.compacted = rev;
            self.by_key.remove(&key);
        }
    }

    /// Which incarnation of the feed this is.
    pub fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    /// The number of the last change; 0 before the first.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Tombstones up to this number are forgotten.
    pub fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Where the feed stands.
    pub fn cursor(&self) -> FeedCursor {
        FeedCursor::at(self.incarnation.clone(), self.head)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.index.totals.objects
    }

    /// There is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Objects, and bytes of their contents.
    pub fn totals(&self) -> Totals {
        self.index.totals
    }

    /// How many objects of a kind there are.
    pub fn len_of(&self, kind: &Kind) -> usize {
        self.by_kind.get(kind).map_or(0, |of_kind| of_kind.live.len())
    }

    /// How many tombstones there are.
    pub fn tombstones(&self) -> usize {
        self.by_key.len() - self.len()
    }

    /// The newest change of an object, live or gone.
    pub fn get(&self, key: &ObjectKey) -> Option<(u64, &ObjectState)> {
        self.by_key.get(key).map(|(rev, state)| (*rev, state))
    }

    /// The stub of an object that is there.
    pub fn stub(&self, key: &ObjectKey) -> Option<&Stub> {
        self.by_key.get(key)?.1.stub()
    }

    /// The objects that are there, in the order of their keys.
    pub fn objects(&self) -> impl Iterator<Item = (&ObjectKey, &Stub)> {
        self.objects_after(None)
    }

    /// The objects that are there, in the order of their keys, beginning after one.
    pub fn objects_after(&self, key: Option<&ObjectKey>) -> impl Iterator<Item = (&ObjectKey, &Stub)> {
        let from = key.map_or(Unbounded, Excluded);
        let from = self.by_key.range::<ObjectKey, _>((from, Unbounded));
        from.filter_map(|(key, (_, state))| Some((key, state.stub()?)))
    }

    /// The newest change of each object, in the order of their numbers.
    pub fn changes(&self) -> Vec<Change> {
        let change = |(key, (rev, state)): (&ObjectKey, &(u64, ObjectState))| Change {
            rev: *rev,
            key: key.clone(),
            state: state.clone(),
        };
        let mut changes: Vec<Change> = self.by_key.iter().map(change).collect();
        changes.sort_compactly_by_key(|change| change.rev);
        changes
    }

    /// The kinds that the feed has changes of.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.by_kind.keys()
    }

    /// The first change of a kind after `rev` and up to `to`, of those that left an object
    /// (`live`) or of those that took one.
    pub fn by_kind_after(&self, kind: &Kind, live: bool, rev: u64, to: u64) -> Option<(u64, &ObjectKey)> {
        if rev >= to {
            return None;
        }
        let of_kind = self.by_kind.get(kind)?;
        let map = if live { &of_kind.live } else { &of_kind.gone };
        map.range((Excluded(rev), Included(to))).next().map(|(rev, key)| (*rev, key))
    }

    /// How many changes after `rev` are of other kinds than this one. Those that are forgotten may all
    /// have been.
    pub fn count_after_without(&self, rev: u64, kind: &Kind) -> u64 {
        let at = rev.max(self.compacted);
        let after = |map: &BTreeMap<u64, ObjectKey>| map.range((Excluded(at), Unbounded)).count() as u64;
        let others = self.by_kind.iter().filter(|(other, _)| *other != kind);
        at - rev + others.map(|(_, of_kind)| after(&of_kind.live) + after(&of_kind.gone)).sum::<u64>()
    }

    /// Whether a replica that stands at a cursor can go on by changes alone.
    pub fn can_resume(&self, cursor: &FeedCursor) -> Resume {
        let (position, same) = (cursor.position(), cursor.incarnation == self.incarnation);
        if same && position.highest() > self.head {
            Resume::AheadOfHead
        } else if same && position.needs_deletes_after() >= self.compacted {
            Resume::From(position)
        } else {
            Resume::Behind
        }
    }

    /// The same objects in a new incarnation, numbered anew; tombstones are not carried over. For a
    /// feed restored from an old backup, whose numbers were given out before.
    #[must_use]
    pub fn reincarnate(&self, incarnation: Incarnation) -> Feed {
        let mut feed = Feed::new(incarnation).keeping_tombstones(self.most_gone);
        for change in self.changes() {
            if let ObjectState::Live { stub, .. } = change.state {
                let rev = feed.head + 1;
                feed.insert(Change { rev, key: change.key, state: ObjectState::Live { stub, born: rev } });
            }
        }
        feed
    }

    /// The set. Changes are worked into it here, many at once; a clone is cheap and stays.
    pub fn set(&mut self) -> &ObjectSet {
        let now = |key: &ObjectKey| self.by_key.get(key)?.1.stub().cloned();
        self.index.set(now)
    }

    /// Keeps the set as it is now for the answers of a proven resync, or lets go of the one that was kept.
    pub(crate) fn freeze(&mut self, proven: bool) {
        self.frozen = proven.then(|| self.set().clone());
    }

    /// The set that a proven resync is answered from, while one goes on.
    pub(crate) fn frozen(&self) -> Option<&ObjectSet> {
        self.frozen.as_ref()
    }

    /// The root of the set.
    pub fn root(&mut self) -> Digest {
        self.set().root()
    }
}

/// Plans changes that become durable together, each seeing those before it.
#[derive(Debug)]
pub struct Planner<'a> {
    feed: &'a Feed,
    next: u64,
    room: Room,
    over: BTreeMap<ObjectKey, ObjectState>,
}

impl Planner<'_> {
    /// The change that puts an object; `None` when it is like that already.
    ///
    /// # Errors
    /// When it would begin one section more than a set may have.
    pub fn put(&mut self, key: &ObjectKey, stub: &Stub) -> Result<Option<Change>, TooManySections> {
        let born = match self.now(key) {
            Some(ObjectState::Live { stub: old, .. }) if old.uid == stub.uid && old.digest == stub.digest => {
                return Ok(None);
            }
            Some(ObjectState::Live { stub: old, born }) if old.uid == stub.uid => *born,
            _ => self.next,
        };
        let (old, all) =
            (self.stub(key).map(|old| old.size), Totals { objects: usize::MAX, bytes: u64::MAX });
        self.room
            .put(&self.feed.index, &key.section, (old, stub.size), all)
            .map_err(|_| TooManySections { key: key.clone() })?;
        Ok(Some(self.change(key, ObjectState::Live { stub: stub.clone(), born })))
    }

    /// The change that takes an object out; `None` when it is not there.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Change> {
        match self.now(key) {
            Some(ObjectState::Live { stub, .. }) => {
                let (uid, size) = (stub.uid.clone(), stub.size);
                self.room.remove(size);
                Some(self.change(key, ObjectState::Deleted { uid }))
            }
            _ => None,
        }
    }

    /// The key with the names that the feed has already: to compare it takes a moment, and the feed does
    /// not keep the same names once more.
    pub fn key(&self, key: ObjectKey) -> ObjectKey {
        self.feed.by_key.get_key_value(&key).map_or(key, |(known, _)| known.clone())
    }

    /// An object that is there, or is planned.
    pub fn stub(&self, key: &ObjectKey) -> Option<&Stub> {
        self.now(key)?.stub()
    }

    /// All objects, those that are planned last.
    pub fn objects(&self) -> impl Iterator<Item = (&ObjectKey, &Stub)> {
        let kept = self.feed.objects().filter(|(key, _)| !self.over.contains_key(*key));
        kept.chain(self.over.iter().filter_map(|(key, state)| Some((key, state.stub()?))))
    }

    /// Objects, and bytes of their contents, with what is planned.
    pub fn totals(&self) -> Totals {
        self.room.totals
    }

    fn now(&self, key: &ObjectKey) -> Option<&ObjectState> {
        self.over.get(key).or_else(|| self.feed.by_key.get(key).map(|(_, state)| state))
    }

    fn change(&mut self, key: &ObjectKey, state: ObjectState) -> Change {
        let rev = self.next;
        self.next += 1;
        self.over.insert(key.clone(), state.clone());
        Change { rev, key: key.clone(), state }
    }
}
