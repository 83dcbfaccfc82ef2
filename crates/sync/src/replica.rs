//! [`Replica`]: what the other side authors, as far as it came here.
//!
//! ```text
//! batch applied and durable --> put, remove --> objects --+
//! object that is not taken  --> reject ------> rejected --+--> set as received --> root
//!                                  (no room: only counted: evicted)
//! ```
//!
//! The replica holds what is durable and applied here. What was received and is not applied, never or not
//! for now, is remembered beside it while the replica is in memory, so that roots can be compared: the set
//! *as received* is the objects with the rejected ones laid over them. A new link forgets rejections whose
//! reason may be gone, so that their objects come again. A resync that is not at its end waits here for
//! the next link, in memory alone.
//!
//! Invariants: what is here of objects is durable; a link changes it once its batch is durable, and the
//! shell alone takes a durable write into it ([`crate::Write::commit`]) or another replica in its place;
//! what is evicted is in no root; a uid belongs to one object of a kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cursor::{FeedCursor, Position};
use model::{Digest, Incarnation, Kind, ObjectKey, ObjectSet, Stub};

use crate::durable::SavedReplica;
use crate::frame::Op;
use crate::link::Resync;
use crate::refusal;
use crate::totals::{SetIndex, Totals};

/// The most objects of a replica: all that one side may author, and a status of each.
pub const MAX_OBJECTS: usize = 200_000;
/// The most bytes of their contents, together.
pub const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// The most objects that could not be taken and are remembered, each by name.
pub const MAX_REJECTED_OBJECTS: usize = 1000;
/// The longest name of one of those, kind and namespace included, in bytes.
const MAX_REJECTED_KEY_LEN: usize = 2048;
/// The longest reason that is kept of one, in bytes.
const MAX_REJECTED_MESSAGE_LEN: usize = 512;

/// An object of the source that could not be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedObject {
    /// What it is at the source; `None` when its removal failed.
    pub stub: Option<Stub>,
    /// The change that could not be applied.
    pub rev: u64,
    /// A stable code.
    pub code: String,
    /// Why, for people.
    pub message: String,
}

impl RejectedObject {
    pub(crate) fn of(op: &Op, rev: u64, code: &str, mut message: String) -> RejectedObject {
        message.truncate(message.floor_char_boundary(MAX_REJECTED_MESSAGE_LEN));
        RejectedObject { stub: op.stub().cloned(), rev, code: code.to_owned(), message }
    }
}

/// A replica of the other side's feed.
#[derive(Clone, Debug, Default)]
pub struct Replica {
    cursor: Option<FeedCursor>,
    /// The incarnation of the feed whose changes are taken as they come.
    incarnation: Option<Incarnation>,
    objects: BTreeMap<ObjectKey, (Stub, u64)>,
    uids: BTreeMap<(Kind, Arc<str>), ObjectKey>,
    rejected: BTreeMap<ObjectKey, RejectedObject>,
    /// Others that could not be taken, of which nothing is kept.
    evicted: u64,
    index: SetIndex,
    /// How far the resync came of which a link was cut, for the next link: in memory alone.
    resync: Option<Box<Resync>>,
}

impl Replica {
    /// A replica of which nothing is known.
    pub fn new() -> Replica {
        Replica::default()
    }

    /// The replica as it was kept.
    pub fn restore(saved: SavedReplica) -> Replica {
        let incarnation = saved.cursor.as_ref().map(|cursor| cursor.incarnation.clone());
        let mut replica = Replica { cursor: saved.cursor, incarnation, ..Replica::default() };
        for (key, stub, rev) in saved.objects {
            replica.put(key, stub, rev);
        }
        replica
    }

    /// Everything of the source up to here is in it, durably.
    pub fn cursor(&self) -> Option<&FeedCursor> {
        self.cursor.as_ref()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// There is no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Bytes of the contents of all objects.
    pub fn bytes(&self) -> u64 {
        self.index.totals.bytes
    }

    /// How many sections there are.
    pub fn sections(&self) -> usize {
        self.index.sections()
    }

    pub(crate) fn index(&self) -> &SetIndex {
        &self.index
    }

    /// An object and the revision that it is of.
    pub fn get(&self, key: &ObjectKey) -> Option<(&Stub, u64)> {
        self.objects.get(key).map(|(stub, rev)| (stub, *rev))
    }

    /// An object as it was received: as the source has it, also where it could not be taken.
    pub(crate) fn received(&self, key: &ObjectKey) -> Option<&Stub> {
        match self.rejected.get(key) {
            Some(rejected) => rejected.stub.as_ref(),
            None => self.objects.get(key).map(|(stub, _)| stub),
        }
    }

    /// All objects in the order of their keys.
    pub fn objects(&self) -> impl Iterator<Item = (&ObjectKey, &Stub)> {
        self.objects.iter().map(|(key, (stub, _))| (key, stub))
    }

    /// What could not be taken, and why: at most [`MAX_REJECTED_OBJECTS`] objects.
    pub fn rejected(&self) -> &BTreeMap<ObjectKey, RejectedObject> {
        &self.rejected
    }

    /// How many times more than [`Replica::rejected`] says something could not be taken, since the
    /// last resync began. While there are any, the roots differ.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// How many objects could not be taken, as far as that is known.
    pub fn refused(&self) -> u64 {
        self.evicted.saturating_add(self.rejected.len() as u64)
    }

    /// The key under which an object of a kind with this uid is here.
    pub fn holder(&self, kind: &Kind, uid: &Arc<str>) -> Option<&ObjectKey> {
        self.uids.get(&(kind.clone(), uid.clone()))
    }

    /// The set as received: with what could not be taken laid over it. Changes are worked in
    /// here, many at once; a clone is cheap and stays.
    pub fn set(&mut self) -> &ObjectSet {
        let (objects, rejected) = (&self.objects, &self.rejected);
        self.index.set(|key| match rejected.get(key) {
            Some(rejected) => rejected.stub.clone(),
            None => objects.get(key).map(|(stub, _)| stub.clone()),
        })
    }

    /// The root of the set as received.
    pub fn root(&mut self) -> Digest {
        self.set().root()
    }

    /// Whether changes after this cursor are what the replica lacks; of the very first it may have
    /// nothing.
    pub(crate) fn stands_at(&self, cursor: &FeedCursor) -> bool {
        let nothing = cursor.position() == Position::default() && self.is_empty() && self.refused() == 0;
        nothing || self.cursor.as_ref() == Some(cursor)
    }

    /// A resync that a link began is not at its end.
    pub fn is_resyncing(&self) -> bool {
        self.resync.as_ref().is_some_and(|resync| resync.is_under_way())
    }

    pub(crate) fn take_resync(&mut self) -> Box<Resync> {
        self.resync.take().unwrap_or_default()
    }

    pub(crate) fn keep_resync(&mut self, resync: Box<Resync>) {
        self.resync = Some(resync);
    }

    /// The incarnation whose changes are taken; `None` before the first.
    pub(crate) fn incarnation(&self) -> Option<&Incarnation> {
        self.incarnation.as_ref()
    }

    /// Whether changes of this incarnation can be taken as they come.
    pub(crate) fn is_of(&self, incarnation: &Incarnation) -> bool {
        self.incarnation.as_ref() == Some(incarnation) || (self.objects.is_empty() && self.refused() == 0)
    }

    /// Changes of this incarnation are taken from now on; revisions of another one are older than all
    /// of it.
    pub(crate) fn begin_incarnation(&mut self, incarnation: &Incarnation) {
        if self.incarnation.as_ref() != Some(incarnation) {
            self.objects.values_mut().for_each(|(_, rev)| *rev = 0);
        }
        self.incarnation = Some(incarnation.clone());
    }

    pub(crate) fn set_cursor(&mut self, cursor: FeedCursor) {
        self.cursor = Some(cursor);
    }

    pub(crate) fn put(&mut self, key: ObjectKey, stub: Stub, rev: u64) {
        if !self.rejected.is_empty() {
            self.rejected.remove(&key);
        }
        let (uid, size) = (stub.uid.clone(), Some(stub.size));
        let old = match self.objects.get_mut(&key) {
            Some(entry) => Some(std::mem::replace(entry, (stub, rev))),
            None => self.objects.insert(key.clone(), (stub, rev)),
        };
        let old = old.map(|(old, _)| old);
        self.index.replace(&key.section, old.as_ref().map(|old| old.size), size);
        if old.as_ref().is_none_or(|old| old.uid != uid) {
            let kind = &key.section.kind;
            old.map(|old| self.uids.remove(&(kind.clone(), old.uid)));
            self.uids.insert((kind.clone(), uid), key.clone());
        }
        self.changed(key);
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) {
        self.rejected.remove(key);
        if let Some((old, _)) = self.objects.remove(key) {
            self.index.replace(&key.section, Some(old.size), None);
            self.uids.remove(&(key.section.kind.clone(), old.uid));
        }
        self.changed(key.clone());
    }

    /// Remembers what could not be taken; only counts it when there is no room for more.
    pub(crate) fn reject(&mut self, key: ObjectKey, rejected: RejectedObject) {
        let name = key.section.kind.as_str().len() + key.section.namespace.len() + key.name.len();
        let full = self.rejected.len() >= MAX_REJECTED_OBJECTS && !self.rejected.contains_key(&key);
        if full || name > MAX_REJECTED_KEY_LEN {
            return self.evict();
        }
        self.rejected.insert(key.clone(), rejected);
        self.changed(key);
    }

    /// Something could not be taken, and nothing is remembered of it.
    pub(crate) fn evict(&mut self) {
        self.evicted = self.evicted.saturating_add(1);
    }

    /// A resync counts anew what there is no room to remember.
    pub(crate) fn reset_evicted(&mut self) {
        self.evicted = 0;
    }

    /// Forgets what the link that begins may take: what failed for now on the one before, as nobody tries
    /// it any more, and what was of a kind that is taken by now. How many objects these are.
    pub(crate) fn forget_for_link(&mut self, takes: impl Fn(&ObjectKey) -> bool) -> u64 {
        self.forget(|_, key, rejected| match rejected.code.as_str() {
            refusal::FAILS => true,
            refusal::KIND | refusal::WRONG_SIDE => takes(key),
            _ => false,
        })
    }

    /// Forgets rejections whose reason is gone: for want of room once there is room for all of them, and
    /// for a uid that no other object has any more; whether there were any.
    pub(crate) fn forget_what_fits(&mut self, most: Totals) -> bool {
        let mut room = self.index.room();
        let fits = self.rejected.iter().all(|(key, rejected)| {
            let old = self.objects.get(key).map(|(stub, _)| stub.size);
            let new = rejected.stub.as_ref().map_or(0, |stub| stub.size);
            rejected.code != refusal::TOO_MANY
                || room.put(&self.index, &key.section, (old, new), most).is_ok()
        });
        let is_free = |replica: &Replica, key: &ObjectKey, stub: &Stub| {
            replica.holder(&key.section.kind, &stub.uid).is_none_or(|holder| holder == key)
        };
        self.forget(|replica, key, rejected| match rejected.code.as_str() {
            refusal::TOO_MANY => fits,
            refusal::UID_TWICE => rejected.stub.as_ref().is_some_and(|stub| is_free(replica, key, stub)),
            _ => false,
        }) > 0
    }

    /// Forgets rejections; how many.
    fn forget(&mut self, which: impl Fn(&Replica, &ObjectKey, &RejectedObject) -> bool) -> u64 {
        let rejected = self.rejected.iter().filter(|(key, rejected)| which(self, key, rejected));
        let rejected: Vec<ObjectKey> = rejected.map(|(key, _)| key.clone()).collect();
        let count = rejected.len() as u64;
        for key in rejected {
            self.rejected.remove(&key);
            self.changed(key);
        }
        count
    }

    fn changed(&mut self, key: ObjectKey) {
        if self.index.changed(key) {
            self.set();
        }
    }
}
