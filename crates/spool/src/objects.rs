//! [`ObjectLog`]: the two sets of objects that a node synchronizes, on disk.
//!
//! An index over a segmented log: each write is a batch. In memory is where each object lies,
//! not its content.
//!
//! ```text
//! write -> batch (+ some of what is alive in the oldest segment) -> index
//! oldest segment has nothing alive -> the next commit begins after it, it goes
//! ```
//!
//! What was replaced is dead weight; each write moves some of what is alive out of the oldest
//! segment, until that can go. Segments go in order, so what a record replaced or took away is
//! never in a later segment than the record.

mod compaction;
mod index;
mod record;
mod recovery;

use std::collections::VecDeque;
use std::path::Path;

use bytes::Bytes;
use model::{Incarnation, ObjectKey};
use sync::feed::ObjectState;
use sync::{Content, Saved, Side, Write};

use self::compaction::Moving;
use self::index::{Alive, IndexEntry, ObjectIndex};
use self::record::{FeedHead, Put, RecordKey, SetHeads, SetRecord, Tombstone};
use crate::Disk;
use crate::error::{Result, SpoolError};
use crate::segmented::{Location, RecordBatch, SegmentedLog, frame};

/// The most bytes of records that count, by default.
pub const MAX_OBJECTS: u64 = 1024 * 1024 * 1024;
/// A segment is followed by the next one from this size on, by default, in bytes.
pub const OBJECTS_SEGMENT: u64 = 8 * 1024 * 1024;
/// Each write looks through at least so many bytes of the oldest segment, by default, when
/// there is too much dead weight.
pub const COMPACTION_STEP: u64 = 256 * 1024;
/// The most bytes of contents in one write.
pub const MAX_OBJECT_WRITE: usize = 128 * 1024 * 1024;
/// All segments together are at most so many times [`ObjectLimits::max_bytes`].
const MAX_WEIGHT: u64 = 4;

/// How much a log of objects may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectLimits {
    /// The most bytes of records that count. All segments together have at most three and a
    /// half times what counts and a few segments more, and at most four times this.
    pub max_bytes: u64,
    /// A segment is followed by the next one from this size on, in bytes.
    pub segment_bytes: u64,
    /// Each write looks through at least so many bytes of the oldest segment when there is
    /// too much dead weight.
    pub step_bytes: u64,
}

impl Default for ObjectLimits {
    fn default() -> ObjectLimits {
        ObjectLimits { max_bytes: MAX_OBJECTS, segment_bytes: OBJECTS_SEGMENT, step_bytes: COMPACTION_STEP }
    }
}

/// A log of objects, and what had to be done to open it.
#[derive(Debug)]
pub struct OpenedObjects {
    /// The log.
    pub log: ObjectLog,
    /// Everything in it, contents apart.
    pub saved: Saved,
    /// What was found damaged and what became of it, in words; empty after an ordinary
    /// crash.
    pub repairs: Vec<String>,
}

/// The own feed and the replica of one node, durable.
#[derive(Debug)]
pub struct ObjectLog {
    log: SegmentedLog<SetHeads>,
    limits: ObjectLimits,
    index: ObjectIndex,
    /// What is alive in the oldest segment, in its order, while that is moved.
    oldest: VecDeque<Alive>,
    /// The oldest segment was found damaged: nothing is moved until the next opening.
    stuck: bool,
}

/// What one write appends.
#[derive(Default)]
struct WriteRecords {
    batch: RecordBatch,
    placed: Vec<RecordEffect>,
}

/// What a record in a batch does.
enum RecordEffect {
    Forget(Side),
    Put { side: Side, key: ObjectKey, live: bool, rev: u64, at: u64, length: u32 },
    Taken(ObjectKey),
}

/// Reading.
impl ObjectLog {
    /// Opens the log in a directory, which is made if need be. Only one process at a time
    /// may have it ([`crate::StateLock`]).
    ///
    /// When something was damaged, the segments in which it was are set aside and what is
    /// sound in them stays; the replica is then without a cursor, so that a resync
    /// repairs it, and the own feed goes on in the incarnation `fresh`, which must be a new one
    /// each time.
    ///
    /// # Errors
    /// [`SpoolError::TooNew`], and those of the disk.
    pub fn open(
        disk: &Disk,
        directory: &Path,
        fresh: &Incarnation,
        limits: ObjectLimits,
    ) -> Result<OpenedObjects> {
        recovery::open(disk, directory, fresh, limits)
    }

    /// The content of an object; `None` when there is no such object.
    ///
    /// # Errors
    /// [`SpoolError::Damaged`] when its record is not what was written, and those of the
    /// disk.
    pub fn content(&self, side: Side, key: &ObjectKey) -> Result<Option<Content>> {
        Ok(self.contents(side, std::slice::from_ref(key))?.pop().flatten())
    }

    /// As [`ObjectLog::content`], of several objects, in the order of the keys.
    ///
    /// # Errors
    /// As [`ObjectLog::content`].
    pub fn contents(&self, side: Side, keys: &[ObjectKey]) -> Result<Vec<Option<Content>>> {
        let mut reader = self.log.reader();
        let content = |key: &ObjectKey| {
            let Some(entry) = self.index.get(side, key).filter(|entry| entry.live) else { return Ok(None) };
            let bytes = reader.record(&entry.at)?;
            let (at, trace, start) = match record::read(&bytes[frame::HEADER..]) {
                Some((SetRecord::Put(put), start)) if put.name.key() == *key => {
                    (put.at, put.trace.map(|trace| trace.into_owned()), start)
                }
                _ => return Err(reader.damaged(entry.at.segment)),
            };
            Ok(Some(Content { bytes: Bytes::from(bytes).slice(frame::HEADER + start..), trace, at }))
        };
        keys.iter().map(content).collect()
    }

    /// Bytes of records that count.
    pub fn live_bytes(&self) -> u64 {
        self.index.live(Side::Feed) + self.index.live(Side::Replica)
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// How far both sets are.
    fn heads(&self) -> SetHeads {
        self.log.state().cloned().unwrap_or_default()
    }
}

/// Writing.
impl ObjectLog {
    /// Makes a write durable as a whole, with one sync.
    ///
    /// # Errors
    /// [`SpoolError::Unsound`] when it does not follow what is kept,
    /// [`SpoolError::ObjectsFull`] when there is no room for what it adds,
    /// [`SpoolError::TooLarge`] beyond [`MAX_OBJECT_WRITE`], and those of the disk. What is
    /// kept is then as before; after a crash the write may be there whole.
    pub fn write(&mut self, write: &Write) -> Result<()> {
        if write.bytes() > MAX_OBJECT_WRITE {
            return Err(SpoolError::TooLarge {
                what: "a write of synchronized objects",
                limit: MAX_OBJECT_WRITE as u64,
            });
        }
        let mut heads = self.heads();
        let head = write.check(heads.feed.as_ref().map(|feed| feed.head)).map_err(SpoolError::Unsound)?;
        let changes = WriteRecords::of(write)?;
        self.hold_to_limits(write, &changes)?;
        heads.change(write, head);
        let moving = self.moving(changes.batch.bytes.len() as u64);
        let is_moving = !moving.is_empty();
        match self.append(moving, &changes, heads.clone()) {
            // What it wanted to move may be all that there is no room for.
            Err(error) if is_moving && error.is_full() => self.append(Moving::none(self), &changes, heads),
            appended => appended,
        }
    }

    fn hold_to_limits(&self, write: &Write, changes: &WriteRecords) -> Result<()> {
        let limit = self.limits.max_bytes;
        let forgotten = |side| match side {
            Side::Feed => write.begin.is_some(),
            Side::Replica => write.forget_replica,
        };
        let (mut more, mut less) = (0, 0);
        for side in [Side::Feed, Side::Replica].into_iter().filter(|side| forgotten(*side)) {
            less += self.index.live(side);
        }
        let before = |side, key| self.index.get(side, key).filter(|_| !forgotten(side));
        for placed in &changes.placed {
            let (side, key) = match placed {
                RecordEffect::Put { side, key, length, .. } => {
                    more += u64::from(*length);
                    (*side, key)
                }
                RecordEffect::Taken(key) => (Side::Replica, key),
                RecordEffect::Forget(_) => continue,
            };
            less += before(side, key).map_or(0, |entry| u64::from(entry.at.length));
        }
        let grows = more > less;
        let live = (self.live_bytes() + more).saturating_sub(less);
        let weight = self.bytes() + changes.batch.bytes.len() as u64;
        if grows && (live > limit || weight > limit.saturating_mul(MAX_WEIGHT)) {
            return Err(SpoolError::ObjectsFull { limit });
        }
        Ok(())
    }

    /// Appends what is moved and a batch, makes them durable, and only then takes them in.
    fn append(&mut self, moving: Moving, changes: &WriteRecords, heads: SetHeads) -> Result<()> {
        let parts = [moving.bytes.as_slice(), &changes.batch.bytes];
        let at = self.log.append(&parts, heads, moving.first)?;
        self.take_in(moving, changes, at);
        Ok(())
    }

    fn take_in(&mut self, moving: Moving, changes: &WriteRecords, (segment, start): (u64, u64)) {
        let changes_at = start + moving.bytes.len() as u64;
        self.take_in_moved(moving, segment, start);
        for placed in &changes.placed {
            match placed {
                RecordEffect::Forget(side) => self.index.clear(*side),
                RecordEffect::Put { side, key, live, rev, at, length } => {
                    let at = Location { segment, offset: changes_at + at, length: *length };
                    self.index.insert(*side, key, IndexEntry { at, live: *live, rev: *rev });
                }
                RecordEffect::Taken(key) => self.index.remove(Side::Replica, key),
            }
        }
        let compacted = self.heads().feed.map_or(0, |feed| feed.compacted);
        self.index.forget_graves(compacted);
    }
}

impl SetHeads {
    /// What holds after a write, by which the own feed comes to `head`.
    fn change(&mut self, write: &Write, head: Option<u64>) {
        if let Some(incarnation) = &write.begin {
            self.feed = Some(FeedHead { incarnation: incarnation.clone(), head: 0, compacted: 0 });
        }
        if let Some(feed) = &mut self.feed {
            feed.head = head.unwrap_or(feed.head);
            feed.compacted = feed.compacted.max(write.compacted.unwrap_or(0));
        }
        if write.forget_replica {
            self.cursor = None;
        }
        if let Some(cursor) = &write.cursor {
            self.cursor = Some(cursor.clone());
        }
    }
}

impl WriteRecords {
    fn of(write: &Write) -> Result<WriteRecords> {
        let mut changes = WriteRecords::default();
        changes.batch.bytes.reserve(write.bytes() + 300 * write.changes());
        if write.begin.is_some() {
            changes.forget(Side::Feed)?;
        }
        if write.forget_replica {
            changes.forget(Side::Replica)?;
        }
        for (change, content) in &write.feed {
            let (key, rev) = (&change.key, change.rev);
            match (&change.state, content) {
                (ObjectState::Live { stub, born }, Some(content)) => {
                    let put = Put::of(Side::Feed, key, stub, (rev, *born), content);
                    changes.put(Side::Feed, key, rev, true, &SetRecord::Put(put), &content.bytes)?;
                }
                (ObjectState::Deleted { uid }, _) => {
                    let gone = Tombstone { name: RecordKey::of(key), rev, uid: (&**uid).into() };
                    changes.put(Side::Feed, key, rev, false, &SetRecord::Tombstone(gone), &[])?;
                }
                // The check of the write lets no such change through.
                (ObjectState::Live { .. }, None) => {}
            }
        }
        for (key, put) in &write.replica {
            match put {
                Some((stub, rev, content)) => {
                    let put = Put::of(Side::Replica, key, stub, (*rev, 0), content);
                    changes.put(Side::Replica, key, *rev, true, &SetRecord::Put(put), &content.bytes)?;
                }
                None => {
                    changes.push(&SetRecord::Taken(RecordKey::of(key)), &[])?;
                    changes.placed.push(RecordEffect::Taken(key.clone()));
                }
            }
        }
        Ok(changes)
    }

    fn forget(&mut self, side: Side) -> Result<()> {
        self.push(&SetRecord::Forget { ours: side == Side::Feed }, &[])?;
        self.placed.push(RecordEffect::Forget(side));
        Ok(())
    }

    fn put(
        &mut self,
        side: Side,
        key: &ObjectKey,
        rev: u64,
        live: bool,
        record: &SetRecord<'_>,
        content: &[u8],
    ) -> Result<()> {
        let at = self.batch.bytes.len() as u64;
        let length = self.push(record, content)?;
        self.placed.push(RecordEffect::Put { side, key: key.clone(), live, rev, at, length });
        Ok(())
    }

    fn push(&mut self, record: &SetRecord<'_>, content: &[u8]) -> Result<u32> {
        record::push(&mut self.batch, record, content)
    }
}
