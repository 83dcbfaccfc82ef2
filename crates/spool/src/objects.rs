//! [`ObjectLog`]: the two sets of objects that a node synchronizes, on disk.
//!
//! A log in files: each write appends its records and one that commits them, and is
//! brought to the disk once. In memory is where each object lies, not its content. What
//! was replaced is dead weight; each write moves some of what is alive out of the oldest
//! file, until that can go. Files go in order, so what a record replaced or took away is
//! never in a later file than the record.

mod compaction;
mod index;
mod record;
mod recovery;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use model::{Incarnation, ObjectKey};
use sync::feed::State;
use sync::{Content, Saved, Side, Write};

use self::compaction::Moving;
use self::index::{Entry, Index};
use self::record::{Commit, FeedHead, FileHead, Gone, Name, Put, Record, VERSION};
use crate::disk::failed;
use crate::error::{Result, SpoolError};
use crate::{Disk, Op, frame};

/// The most bytes of records that count, by default.
pub const MAX_OBJECTS: u64 = 1024 * 1024 * 1024;
/// A file is followed by the next one from this size on, by default, in bytes.
pub const OBJECTS_FILE: u64 = 8 * 1024 * 1024;
/// Each write looks through at least so many bytes of the oldest file, by default, when
/// there is too much dead weight.
pub const COMPACTION_STEP: u64 = 256 * 1024;
/// The most bytes of contents in one write.
pub const MAX_OBJECT_WRITE: usize = 128 * 1024 * 1024;
/// All files together are at most so many times [`ObjectLimits::max_bytes`].
const MAX_WEIGHT: u64 = 4;
/// Before and after the number in a file's name.
const NAME: (&str, &str) = ("objects-", ".log");
/// Mode of the files made here.
const MODE: u32 = 0o600;

/// How much a log of objects may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectLimits {
    /// The most bytes of records that count. All files together have at most three and a
    /// half times what counts and a few files more, and at most four times this.
    pub max_bytes: u64,
    /// A file is followed by the next one from this size on, in bytes.
    pub file_bytes: u64,
    /// Each write looks through at least so many bytes of the oldest file when there is
    /// too much dead weight.
    pub step_bytes: u64,
}

impl Default for ObjectLimits {
    fn default() -> ObjectLimits {
        ObjectLimits { max_bytes: MAX_OBJECTS, file_bytes: OBJECTS_FILE, step_bytes: COMPACTION_STEP }
    }
}

/// A log of objects, and what had to be done to open it.
#[derive(Debug)]
pub struct Opened {
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
    disk: Disk,
    directory: PathBuf,
    limits: ObjectLimits,
    index: Index,
    /// As of the last batch.
    commit: Commit,
    /// By number; the last one is appended to.
    files: BTreeMap<u64, Segment>,
    /// The last file, while it may be appended to.
    active: Option<File>,
    /// How far the oldest file was looked through.
    moved: u64,
    /// The oldest file was found damaged: nothing is moved until the next opening.
    stuck: bool,
}

/// A file as it lies on disk.
#[derive(Debug)]
struct Segment {
    path: PathBuf,
    /// Its length up to the end of its last batch, in bytes.
    bytes: u64,
    /// Bytes of its records that count.
    live: u64,
}

/// What one write appends.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    records: u64,
    placed: Vec<Placed>,
}

/// What a record in a batch does.
enum Placed {
    Forget(Side),
    Put { side: Side, key: ObjectKey, live: bool, rev: u64, at: u64, length: u32 },
    Taken(ObjectKey),
}

/// Reading.
impl ObjectLog {
    /// Opens the log in a directory, which is made if need be. Only one process at a time
    /// may have it ([`crate::StateLock`]).
    ///
    /// When something was damaged, the files in which it was are set aside and what is
    /// sound in them stays; the replica is then without a cursor, so that a resync
    /// repairs it, and the own feed goes on in the incarnation `fresh`, which must be a new one
    /// each time.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open(disk: &Disk, directory: &Path, fresh: &Incarnation, limits: ObjectLimits) -> Result<Opened> {
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
        let mut open: Option<(u64, File)> = None;
        let mut contents = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(entry) = self.index.get(side, key).filter(|entry| entry.live) else {
                contents.push(None);
                continue;
            };
            let segment = self.segment(entry.file)?;
            let file = match open.take().filter(|(number, _)| *number == entry.file) {
                Some((_, file)) => file,
                None => File::open(&segment.path).map_err(|error| failed(Op::Open, &segment.path, error))?,
            };
            contents.push(Some(read_content(&file, &segment.path, entry, key)?));
            open = Some((entry.file, file));
        }
        Ok(contents)
    }

    /// Bytes of records that count.
    pub fn live_bytes(&self) -> u64 {
        self.index.live(Side::Ours) + self.index.live(Side::Theirs)
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        self.files.values().map(|segment| segment.bytes).sum()
    }

    fn segment(&self, number: u64) -> Result<&Segment> {
        self.files.get(&number).ok_or_else(|| SpoolError::Damaged { path: path(&self.directory, number) })
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
        let head =
            write.check(self.commit.feed.as_ref().map(|feed| feed.head)).map_err(SpoolError::Unsound)?;
        let batch = Batch::of(write)?;
        self.hold_to_limits(write, &batch)?;
        let commit = self.after(write, head);
        let moving = self.moving(batch.bytes.len() as u64);
        let is_moving = !moving.is_empty();
        match self.append(moving, &batch, commit.clone()) {
            // What it wanted to move may be all that there is no room for.
            Err(error) if is_moving && error.is_full() => self.append(Moving::none(self), &batch, commit),
            appended => appended,
        }
    }

    /// What holds of the log after a write.
    fn after(&self, write: &Write, head: Option<u64>) -> Commit {
        let mut commit = self.commit.clone();
        if let Some(incarnation) = &write.found {
            commit.feed = Some(FeedHead { incarnation: incarnation.clone(), head: 0, compacted: 0 });
        }
        if let Some(feed) = &mut commit.feed {
            feed.head = head.unwrap_or(feed.head);
            feed.compacted = feed.compacted.max(write.compacted.unwrap_or(0));
        }
        if write.forget_theirs {
            commit.cursor = None;
        }
        commit.cursor = write.cursor.clone().or(commit.cursor);
        commit
    }

    fn hold_to_limits(&self, write: &Write, batch: &Batch) -> Result<()> {
        let limit = self.limits.max_bytes;
        let forgotten = |side| match side {
            Side::Ours => write.found.is_some(),
            Side::Theirs => write.forget_theirs,
        };
        let (mut more, mut less) = (0, 0);
        for side in [Side::Ours, Side::Theirs].into_iter().filter(|side| forgotten(*side)) {
            less += self.index.live(side);
        }
        let before = |side, key| self.index.get(side, key).filter(|_| !forgotten(side));
        for placed in &batch.placed {
            let (side, key) = match placed {
                Placed::Put { side, key, length, .. } => {
                    more += u64::from(*length);
                    (*side, key)
                }
                Placed::Taken(key) => (Side::Theirs, key),
                Placed::Forget(_) => continue,
            };
            less += before(side, key).map_or(0, |entry| u64::from(entry.length));
        }
        let grows = more > less;
        let live = (self.live_bytes() + more).saturating_sub(less);
        let weight = self.file_bytes() + batch.bytes.len() as u64;
        if grows && (live > limit || weight > limit.saturating_mul(MAX_WEIGHT)) {
            return Err(SpoolError::ObjectsFull { limit });
        }
        Ok(())
    }

    /// Appends what is moved and a batch, makes them durable, and only then takes them in.
    fn append(&mut self, moving: Moving, batch: &Batch, mut commit: Commit) -> Result<()> {
        (commit.records, commit.first) = (moving.records() + batch.records, moving.first);
        let full = self.files.last_key_value().is_none_or(|(_, last)| last.bytes >= self.limits.file_bytes);
        let fresh = full || self.active.is_none();
        let mut bytes = Vec::with_capacity(moving.bytes.len() + batch.bytes.len() + 1024);
        if fresh {
            let (number, before) = self.next_file();
            record::push(&mut bytes, &Record::File(FileHead { version: VERSION, number, before }), &[])?;
        }
        let moved_at = bytes.len() as u64;
        bytes.extend_from_slice(&moving.bytes);
        let batch_at = bytes.len() as u64;
        bytes.extend_from_slice(&batch.bytes);
        record::push(&mut bytes, &Record::Commit(commit.clone()), &[])?;
        let (file, start) = if fresh { self.append_new(&bytes)? } else { self.append_active(&bytes)? };
        self.commit = commit;
        self.take_in_moved(moving, file, start + moved_at);
        self.take_in(batch, file, start + batch_at);
        let compacted = self.commit.feed.as_ref().map_or(0, |feed| feed.compacted);
        for (_, entry) in self.index.forget_graves(compacted) {
            self.dead(&entry);
        }
        self.remove_files();
        Ok(())
    }

    /// The number of the next file, and where the last one ends.
    fn next_file(&self) -> (u64, u64) {
        self.files.last_key_value().map_or((1, 0), |(number, last)| (number + 1, last.bytes))
    }

    fn append_active(&mut self, bytes: &[u8]) -> Result<(u64, u64)> {
        let (Some(mut last), Some(file)) = (self.files.last_entry(), self.active.as_mut()) else {
            // Only called when there is one.
            return self.append_new(bytes);
        };
        let (number, segment) = (*last.key(), last.get_mut());
        let start = segment.bytes;
        let written = self
            .disk
            .write(Op::Append, file, &segment.path, bytes)
            .and_then(|()| self.disk.sync(file, &segment.path));
        if let Err(error) = written {
            // What the file holds now is not known for sure, so it is not appended to any
            // more. If the cut fails too, the next file's head says where this one ends.
            let _ = self.disk.truncate(file, &segment.path, start);
            self.active = None;
            return Err(error);
        }
        segment.bytes += bytes.len() as u64;
        Ok((number, start))
    }

    fn append_new(&mut self, bytes: &[u8]) -> Result<(u64, u64)> {
        let (number, _) = self.next_file();
        let path = path(&self.directory, number);
        let make = || {
            let mut file = self.disk.create(&path, MODE)?;
            self.disk.write(Op::Append, &mut file, &path, bytes)?;
            self.disk.sync(&file, &path)?;
            self.disk.sync_dir(&self.directory)?;
            Ok(file)
        };
        match make() {
            Ok(file) => {
                self.active = Some(file);
                self.files.insert(number, Segment { path, bytes: bytes.len() as u64, live: 0 });
                Ok((number, 0))
            }
            Err(error) => {
                // If it stays, it is replaced by the next try, or found at the next
                // opening as a write that was made after all.
                let _ = self.disk.unlink(&path);
                Err(error)
            }
        }
    }

    fn take_in(&mut self, batch: &Batch, file: u64, start: u64) {
        for placed in &batch.placed {
            match placed {
                Placed::Forget(side) => {
                    for entry in self.index.clear(*side) {
                        self.dead(&entry);
                    }
                }
                Placed::Put { side, key, live, rev, at, length } => {
                    let entry = Entry { file, offset: start + at, length: *length, live: *live, rev: *rev };
                    self.place(*side, key, entry);
                }
                Placed::Taken(key) => {
                    if let Some(entry) = self.index.remove(Side::Theirs, key) {
                        self.dead(&entry);
                    }
                }
            }
        }
    }

    fn place(&mut self, side: Side, key: &ObjectKey, entry: Entry) {
        if let Some(segment) = self.files.get_mut(&entry.file) {
            segment.live += u64::from(entry.length);
        }
        if let Some(before) = self.index.insert(side, key, entry) {
            self.dead(&before);
        }
    }

    /// A record does not count any more.
    fn dead(&mut self, entry: &Entry) {
        if let Some(segment) = self.files.get_mut(&entry.file) {
            segment.live -= u64::from(entry.length);
        }
    }

    /// Removes the files that do not count any more.
    fn remove_files(&mut self) {
        let kept = self.files.split_off(&self.commit.first);
        for segment in std::mem::replace(&mut self.files, kept).into_values() {
            // One that stays is found at the next opening, and is below the first.
            if let Err(error) = self.disk.unlink(&segment.path) {
                tracing::warn!(%error, "a file of objects that nothing needs stays");
            }
        }
    }
}

impl Batch {
    fn of(write: &Write) -> Result<Batch> {
        let mut batch =
            Batch { bytes: Vec::with_capacity(write.bytes() + 300 * write.changes()), ..Batch::default() };
        if write.found.is_some() {
            batch.forget(Side::Ours)?;
        }
        if write.forget_theirs {
            batch.forget(Side::Theirs)?;
        }
        for (change, content) in &write.ours {
            let (key, rev) = (&change.key, change.rev);
            match (&change.state, content) {
                (State::Live { stub, born }, Some(content)) => {
                    let put = Put::of(Side::Ours, key, stub, (rev, *born), content);
                    batch.put(Side::Ours, key, rev, true, &Record::Put(put), &content.bytes)?;
                }
                (State::Gone { uid }, _) => {
                    let gone = Gone { name: Name::of(key), rev, uid: (&**uid).into() };
                    batch.put(Side::Ours, key, rev, false, &Record::Gone(gone), &[])?;
                }
                // The check of the write lets no such change through.
                (State::Live { .. }, None) => {}
            }
        }
        for (key, put) in &write.theirs {
            match put {
                Some((stub, rev, content)) => {
                    let put = Put::of(Side::Theirs, key, stub, (*rev, 0), content);
                    batch.put(Side::Theirs, key, *rev, true, &Record::Put(put), &content.bytes)?;
                }
                None => {
                    batch.push(&Record::Taken(Name::of(key)), &[])?;
                    batch.placed.push(Placed::Taken(key.clone()));
                }
            }
        }
        Ok(batch)
    }

    fn forget(&mut self, side: Side) -> Result<()> {
        self.push(&Record::Forget { ours: side == Side::Ours }, &[])?;
        self.placed.push(Placed::Forget(side));
        Ok(())
    }

    fn put(
        &mut self,
        side: Side,
        key: &ObjectKey,
        rev: u64,
        live: bool,
        record: &Record<'_>,
        content: &[u8],
    ) -> Result<()> {
        let at = self.bytes.len() as u64;
        // At most the bound of a write, which is far below 4 GiB.
        let length = self.push(record, content)? as u32;
        self.placed.push(Placed::Put { side, key: key.clone(), live, rev, at, length });
        Ok(())
    }

    fn push(&mut self, record: &Record<'_>, content: &[u8]) -> Result<u64> {
        self.records += 1;
        record::push(&mut self.bytes, record, content)
    }
}

/// The path of the file of a number.
fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{}{number:020}{}", NAME.0, NAME.1))
}

/// The bytes of a record, checked.
fn read_record(file: &File, path: &Path, offset: u64, length: u32) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, offset).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => SpoolError::Damaged { path: path.to_owned() },
        _ => failed(Op::Read, path, error),
    })?;
    match frame::record_at(&bytes, 0) {
        Some(payload) if payload.end == bytes.len() => Ok(bytes),
        _ => Err(SpoolError::Damaged { path: path.to_owned() }),
    }
}

fn read_content(file: &File, path: &Path, entry: &Entry, key: &ObjectKey) -> Result<Content> {
    let bytes = read_record(file, path, entry.offset, entry.length)?;
    let (at, trace, start) = match record::read(&bytes[frame::HEADER..]) {
        Some((Record::Put(put), start)) if put.name.key() == *key => {
            (put.at, put.trace.map(|trace| trace.into_owned()), start)
        }
        _ => return Err(SpoolError::Damaged { path: path.to_owned() }),
    };
    Ok(Content { bytes: Bytes::from(bytes).slice(frame::HEADER + start..), trace, at })
}
