//! What opening a log of objects finds, and what becomes of damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::{Incarnation, ObjectKey, Stub};
use sync::feed::State;
use sync::{Change, Saved, SavedFeed, SavedReplica, Side};

use super::compaction::Moving;
use super::index::{Entry, Index};
use super::record::{self, FeedHead, Heads, Record};
use super::{Changes, ObjectLimits, ObjectLog, Opened};
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
) -> Result<Opened> {
    let mut replay = Replay::default();
    let segmented::Opened { log, damaged } =
        SegmentedLog::open(disk, directory, "objects", limits.segment_bytes, &mut |location, payload| {
            record::read(payload).map(|(record, _)| replay.take(record, location)).is_some()
        })?;
    let (index, live) = (Index::default(), BTreeMap::new());
    let mut log = ObjectLog { log, limits, index, live, moved: 0, stuck: false };
    let mut objects = log.begin_with(replay);
    let repairs = if damaged.is_empty() { Vec::new() } else { log.repair(&mut objects, &damaged, fresh)? };
    let saved = log.saved(objects);
    Ok(Opened { log, saved, repairs })
}

/// What is saved of both sets, without how far they are.
struct Objects {
    ours: Vec<Change>,
    theirs: Vec<(ObjectKey, Stub, u64)>,
}

/// A newest record as it was read.
struct Newest {
    entry: Entry,
    state: State,
}

/// The newest records, as of those read so far.
#[derive(Default)]
struct Replay {
    ours: BTreeMap<ObjectKey, Newest>,
    theirs: BTreeMap<ObjectKey, Newest>,
}

impl Replay {
    fn take(&mut self, record: Record<'_>, at: Location) {
        let entry = |live, rev| Entry { at, live, rev };
        match record {
            Record::Forget { ours } => self.side(ours).clear(),
            Record::Put(put) => {
                let (key, stub) = (put.name.key(), put.stub.into_owned());
                let state = State::Live { stub, born: put.born };
                self.side(put.ours).insert(key, Newest { entry: entry(true, put.rev), state });
            }
            Record::Gone(gone) => {
                let state = State::Gone { uid: (&*gone.uid).into() };
                self.ours.insert(gone.name.key(), Newest { entry: entry(false, gone.rev), state });
            }
            Record::Taken(name) => drop(self.theirs.remove(&name.key())),
        }
    }

    fn side(&mut self, ours: bool) -> &mut BTreeMap<ObjectKey, Newest> {
        if ours { &mut self.ours } else { &mut self.theirs }
    }
}

impl ObjectLog {
    /// Takes over what was read; returns the objects.
    fn begin_with(&mut self, replay: Replay) -> Objects {
        let compacted = self.heads().feed.map_or(0, |feed| feed.compacted);
        let mut objects = Objects { ours: Vec::new(), theirs: Vec::new() };
        for (key, Newest { entry, state }) in replay.ours {
            if entry.live || entry.rev > compacted {
                self.place(Side::Ours, &key, entry);
                objects.ours.push(Change { rev: entry.rev, key, state });
            }
        }
        for (key, Newest { entry, state }) in replay.theirs {
            if let State::Live { stub, .. } = state {
                self.place(Side::Theirs, &key, entry);
                objects.theirs.push((key, stub, entry.rev));
            }
        }
        objects
    }

    fn saved(&self, objects: Objects) -> Saved {
        let Heads { feed, cursor } = self.heads();
        let feed = feed.map(|feed| SavedFeed {
            incarnation: feed.incarnation,
            head: feed.head,
            compacted: feed.compacted,
            changes: objects.ours,
        });
        let cursor = cursor.clone();
        Saved { feed, replica: SavedReplica { cursor, objects: objects.theirs } }
    }

    /// Records durably that something is missing, and moves what is sound out of the damaged
    /// segments. What was lost may have been anything, so nothing that rests on what was sent
    /// before is right any more: the cursor, the incarnation of the own feed, tombstones.
    fn repair(&mut self, objects: &mut Objects, damaged: &[u64], fresh: &Incarnation) -> Result<Vec<String>> {
        objects.ours.retain(|change| matches!(change.state, State::Live { .. }));
        let mut heads = Heads { cursor: None, ..self.heads() };
        if heads.feed.is_some() || !objects.ours.is_empty() {
            let sent = heads.feed.as_ref().map_or(0, |feed| feed.head);
            let head = objects.ours.iter().map(|change| change.rev).fold(sent, u64::max);
            heads.feed = Some(FeedHead { incarnation: fresh.clone(), head, compacted: head });
        }
        // A damaged segment is not appended to.
        self.log.rotate();
        self.append(Moving::none(self), &Changes::default(), heads)?;
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
        let mut entries: Vec<_> =
            self.index.all().filter(|(_, _, entry)| entry.at.segment <= *last).collect();
        entries.sort_by_key(|(_, _, entry)| (entry.at.segment, entry.at.offset));
        let mut moving = Moving::none(self);
        for (side, key, entry) in entries {
            let bytes = self.log.reader().record(&entry.at)?;
            moving.push(side, key, entry, &bytes);
            if moving.bytes.len() >= SAVED_AT_A_TIME {
                let full = std::mem::replace(&mut moving, Moving::none(self));
                self.append(full, &Changes::default(), self.heads())?;
            }
        }
        moving.done_below(last + 1);
        let heads = self.heads();
        let compacted = heads.feed.as_ref().map_or(0, |feed| feed.compacted);
        let ((segment, start), aside) =
            self.log.append_without(damaged, &[&moving.bytes], heads, moving.first)?;
        self.take_in_all(moving, &Changes::default(), segment, start, compacted);
        Ok(aside)
    }
}
