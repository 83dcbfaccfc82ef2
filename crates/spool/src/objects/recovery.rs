//! What opening a log of objects finds, and what becomes of damage.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use model::{Incarnation, ObjectKey, Stub};
use sync::feed::ObjectState;
use sync::{Change, Saved, SavedFeed, SavedReplica, Side};

use super::compaction::Moving;
use super::index::{IndexEntry, ObjectIndex};
use super::record::{self, FeedHead, SetHeads, SetRecord};
use super::{ObjectLimits, ObjectLog, OpenedObjects, WriteRecords};
use crate::Disk;
use crate::error::Result;
use crate::segmented::{self, Location, SegmentedLog};

/// Of what is saved from damaged segments, so much is moved at a time, in bytes.
const SAVED_AT_A_TIME: usize = 4 * 1024 * 1024;

pub(super) fn open(
    disk: &Disk,
    directory: &Path,
    fresh: &Incarnation,
    limits: ObjectLimits,
) -> Result<OpenedObjects> {
    let mut replay = Replay::default();
    let segmented::RecoveredLog { log, damaged } =
        SegmentedLog::open(disk, directory, "objects", limits.segment_bytes, &mut |location, payload| {
            record::read(payload).map(|(record, _)| replay.take(record, location)).is_some()
        })?;
    let mut log = ObjectLog { log, limits, index: replay.index, oldest: VecDeque::new(), stuck: false };
    let mut objects = log.objects(replay.states);
    let repairs = if damaged.is_empty() { Vec::new() } else { log.repair(&mut objects, &damaged, fresh)? };
    let saved = log.saved(objects);
    Ok(OpenedObjects { log, saved, repairs })
}

/// What is saved of both sets, without how far they are.
struct SavedObjects {
    feed: Vec<Change>,
    replica: Vec<(ObjectKey, Stub, u64)>,
}

/// What the records read so far come to.
#[derive(Default)]
struct Replay {
    index: ObjectIndex,
    states: BTreeMap<(Side, ObjectKey), ObjectState>,
}

impl Replay {
    fn take(&mut self, record: SetRecord<'_>, at: Location) {
        match record {
            SetRecord::Forget { ours } => {
                let forgotten = record::side(ours);
                self.index.clear(forgotten);
                self.states.retain(|(side, _), _| *side != forgotten);
            }
            SetRecord::Put(put) => {
                let (key, stub) = (put.name.key(), put.stub.into_owned());
                let entry = IndexEntry { at, live: true, rev: put.rev };
                self.put(record::side(put.ours), key, entry, ObjectState::Live { stub, born: put.born });
            }
            SetRecord::Tombstone(gone) => {
                let entry = IndexEntry { at, live: false, rev: gone.rev };
                self.put(
                    Side::Feed,
                    gone.name.key(),
                    entry,
                    ObjectState::Deleted { uid: (&*gone.uid).into() },
                );
            }
            SetRecord::Taken(name) => {
                let key = name.key();
                self.index.remove(Side::Replica, &key);
                self.states.remove(&(Side::Replica, key));
            }
        }
    }

    fn put(&mut self, side: Side, key: ObjectKey, entry: IndexEntry, state: ObjectState) {
        self.index.insert(side, &key, entry);
        self.states.insert((side, key), state);
    }
}

impl ObjectLog {
    /// What counts of the states that were read.
    fn objects(&mut self, states: BTreeMap<(Side, ObjectKey), ObjectState>) -> SavedObjects {
        self.index.forget_graves(self.heads().feed.map_or(0, |feed| feed.compacted));
        let mut objects = SavedObjects { feed: Vec::new(), replica: Vec::new() };
        for ((side, key), state) in states {
            let Some(IndexEntry { rev, .. }) = self.index.get(side, &key).copied() else { continue };
            match (side, state) {
                (Side::Feed, state) => objects.feed.push(Change { rev, key, state }),
                (Side::Replica, ObjectState::Live { stub, .. }) => objects.replica.push((key, stub, rev)),
                (Side::Replica, ObjectState::Deleted { .. }) => {}
            }
        }
        objects
    }

    fn saved(&self, objects: SavedObjects) -> Saved {
        let SetHeads { feed, cursor } = self.heads();
        let feed = feed.map(|feed| SavedFeed {
            incarnation: feed.incarnation,
            head: feed.head,
            compacted: feed.compacted,
            changes: objects.feed,
        });
        let cursor = cursor.clone();
        Saved { feed, replica: SavedReplica { cursor, objects: objects.replica } }
    }

    /// Records durably that something is missing, and moves what is sound out of the damaged
    /// segments. What was lost may have been anything, so nothing that rests on what was sent
    /// before is right any more: the cursor, the incarnation of the own feed, tombstones.
    fn repair(
        &mut self,
        objects: &mut SavedObjects,
        damaged: &[u64],
        fresh: &Incarnation,
    ) -> Result<Vec<String>> {
        objects.feed.retain(|change| matches!(change.state, ObjectState::Live { .. }));
        let mut heads = SetHeads { cursor: None, ..self.heads() };
        if heads.feed.is_some() || !objects.feed.is_empty() {
            let sent = heads.feed.as_ref().map_or(0, |feed| feed.head);
            let head = objects.feed.iter().map(|change| change.rev).fold(sent, u64::max);
            heads.feed = Some(FeedHead { incarnation: fresh.clone(), head, compacted: head });
        }
        // A damaged segment is not appended to.
        self.log.rotate();
        self.append(Moving::none(self), &WriteRecords::default(), heads)?;
        let directory = self.log.directory().to_owned();
        match self.empty_damaged(damaged) {
            Ok(aside) => Ok(segmented::repairs("synchronized objects", &directory, &aside)),
            // It is tried again at the next opening.
            Err(error) => {
                let directory = directory.display();
                Ok(vec![format!(
                    "synchronized objects in {directory} are damaged, and stay for now: {error}"
                )])
            }
        }
    }

    /// Moves what counts out of the damaged segments and those before them, and sets the
    /// damaged ones aside.
    fn empty_damaged(&mut self, damaged: &[u64]) -> Result<Vec<PathBuf>> {
        let Some(last) = damaged.last() else { return Ok(Vec::new()) };
        let mut moving = Moving::none(self);
        for (side, key, entry) in self.index.alive_in(0..=*last) {
            let bytes = self.log.reader().record(&entry.at)?;
            moving.push(side, key, entry, &bytes);
            if moving.bytes.len() >= SAVED_AT_A_TIME {
                let full = std::mem::replace(&mut moving, Moving::none(self));
                self.append(full, &WriteRecords::default(), self.heads())?;
            }
        }
        moving.first = last + 1;
        let (heads, first) = (self.heads(), moving.first);
        let (at, aside) = self.log.append_without(damaged, &[&moving.bytes], heads, first)?;
        self.take_in(moving, &WriteRecords::default(), at);
        Ok(aside)
    }
}
