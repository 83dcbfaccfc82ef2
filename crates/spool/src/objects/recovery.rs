//! What opening a log of objects finds, and what becomes of damage.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use model::{Incarnation, ObjectKey, Stub};
use sync::feed::State;
use sync::{Change, Saved, SavedFeed, SavedReplica, Side};

use super::compaction::Moving;
use super::index::{Entry, Index};
use super::record::{self, Commit, FeedHead, FileHead, Record, VERSION};
use super::{Batch, MODE, NAME, ObjectLimits, ObjectLog, Opened, Segment, path, read_record};
use crate::atomic::{free_name, read_file};
use crate::disk::failed;
use crate::error::Result;
use crate::{Disk, Op, frame};

/// The largest file that is read, in bytes; those written here are far smaller.
const MAX_FILE: u64 = 1024 * 1024 * 1024;
/// The head of a file lies within so many bytes.
const MAX_FILE_HEAD: u64 = 1024;
/// Of what is saved from damaged files, so much is moved at a time, in bytes.
const SAVED_AT_A_TIME: usize = 4 * 1024 * 1024;

pub(super) fn open(
    disk: &Disk,
    directory: &Path,
    fresh: &Incarnation,
    limits: ObjectLimits,
) -> Result<Opened> {
    disk.make_dir(directory)?;
    let mut replay = Replay::default();
    replay.files(disk, directory)?;
    let mut log = ObjectLog {
        disk: disk.clone(),
        directory: directory.to_owned(),
        limits,
        index: Index::default(),
        commit: Commit::default(),
        files: BTreeMap::new(),
        active: None,
        moved: 0,
        stuck: false,
    };
    let (mut objects, damaged) = log.begin_with(replay);
    log.open_last()?;
    let repairs = if damaged.is_empty() { Vec::new() } else { log.repair(&mut objects, &damaged, fresh)? };
    log.remove_files();
    let saved = log.saved(objects);
    Ok(Opened { log, saved, repairs })
}

/// What is saved of both sets, without how far they are.
struct Objects {
    ours: Vec<Change>,
    theirs: Vec<(ObjectKey, Stub, u64)>,
}

/// A file as it was read.
struct Found {
    segment: Segment,
    damaged: bool,
}

/// A newest record as it was read.
struct Newest {
    entry: Entry,
    state: State,
}

/// The log read from its beginning.
#[derive(Default)]
struct Replay {
    found: BTreeMap<u64, Found>,
    ours: BTreeMap<ObjectKey, Newest>,
    theirs: BTreeMap<ObjectKey, Newest>,
    commit: Commit,
    /// Of the batch that is not yet ended.
    pending: Vec<Step>,
}

enum Step {
    Forget(Side),
    Put(Side, ObjectKey, Newest),
    Taken(ObjectKey),
}

impl Replay {
    fn files(&mut self, disk: &Disk, directory: &Path) -> Result<()> {
        let mut files = list(directory)?;
        // A file is made with its first batch: one that came to none was never
        // acknowledged, and the one before it is the last.
        while let Some((_, path)) = files.last()
            && is_stillborn(path)?
        {
            disk.unlink(path)?;
            files.pop();
        }
        for (at, (number, path)) in files.iter().enumerate() {
            let next = files.get(at + 1);
            let end = match next {
                Some((next, path)) if *next == number + 1 => file_head(path)?.map(|head| head.before),
                _ => None,
            };
            self.file(*number, path, end, next.is_none())?;
        }
        Ok(())
    }

    /// Reads a file up to where the next one says that it ends.
    fn file(&mut self, number: u64, path: &Path, end: Option<u64>, last: bool) -> Result<()> {
        let bytes = read_file(path, MAX_FILE)?.unwrap_or_default();
        let end = end.map_or(bytes.len(), |end| bytes.len().min(usize::try_from(end).unwrap_or(usize::MAX)));
        let bytes = &bytes[..end];
        let scan = frame::scan(bytes);
        let mut damaged = scan.damaged || (scan.torn && !last);
        let mut batch_end = 0;
        for (at, payload) in scan.records.iter().enumerate() {
            match record::read(&bytes[payload.clone()]) {
                Some((Record::File(head), _)) => {
                    damaged |= at != 0 || head.number != number || head.version != VERSION;
                }
                Some((Record::Commit(commit), _)) => {
                    damaged |= commit.records != self.pending.len() as u64;
                    self.end_batch();
                    self.commit = commit;
                    batch_end = payload.end as u64;
                }
                Some((record, _)) => {
                    let offset = (payload.start - frame::HEADER) as u64;
                    let length = (payload.end - payload.start + frame::HEADER) as u32;
                    self.pending.extend(step(record, number, offset, length));
                }
                // Of a newer version.
                None => damaged = true,
            }
        }
        damaged |= !last && (batch_end as usize) < bytes.len();
        if damaged {
            self.end_batch();
        }
        self.pending.clear();
        let segment = Segment { path: path.to_owned(), bytes: batch_end, live: 0 };
        self.found.insert(number, Found { segment, damaged });
        Ok(())
    }

    fn end_batch(&mut self) {
        for step in std::mem::take(&mut self.pending) {
            match step {
                Step::Forget(Side::Ours) => self.ours.clear(),
                Step::Forget(Side::Theirs) => self.theirs.clear(),
                Step::Put(Side::Ours, key, newest) => drop(self.ours.insert(key, newest)),
                Step::Put(Side::Theirs, key, newest) => drop(self.theirs.insert(key, newest)),
                Step::Taken(key) => drop(self.theirs.remove(&key)),
            }
        }
    }
}

fn step(record: Record<'_>, file: u64, offset: u64, length: u32) -> Option<Step> {
    let entry = |live, rev| Entry { file, offset, length, live, rev };
    match record {
        Record::Forget { ours } => Some(Step::Forget(record::side(ours))),
        Record::Put(put) => {
            let (key, stub) = (put.name.key(), put.stub.into_owned());
            let state = State::Live { stub, born: put.born };
            Some(Step::Put(record::side(put.ours), key, Newest { entry: entry(true, put.rev), state }))
        }
        Record::Gone(gone) => {
            let state = State::Gone { uid: (&*gone.uid).into() };
            Some(Step::Put(Side::Ours, gone.name.key(), Newest { entry: entry(false, gone.rev), state }))
        }
        Record::Taken(name) => Some(Step::Taken(name.key())),
        Record::File(_) | Record::Commit(_) => None,
    }
}

impl ObjectLog {
    /// Takes over what was read; returns the objects, and the files that are damaged.
    fn begin_with(&mut self, replay: Replay) -> (Objects, Vec<u64>) {
        let Replay { found, ours, theirs, commit, pending: _ } = replay;
        self.commit = commit;
        let first = self.commit.first;
        let last = found.last_key_value().map_or(0, |(number, _)| *number);
        let is_damaged = |number: &u64| found.get(number).is_none_or(|file| file.damaged);
        let damaged = (first.max(1)..=last).filter(is_damaged).collect();
        self.files = found.into_iter().map(|(number, file)| (number, file.segment)).collect();
        let compacted = self.commit.feed.as_ref().map_or(0, |feed| feed.compacted);
        let mut objects = Objects { ours: Vec::new(), theirs: Vec::new() };
        for (key, Newest { entry, state }) in ours {
            let forgotten = matches!(state, State::Gone { .. }) && entry.rev <= compacted;
            // What lies below the first file is left over from files that went.
            if entry.file >= first && !forgotten {
                self.place(Side::Ours, &key, entry);
                objects.ours.push(Change { rev: entry.rev, key, state });
            }
        }
        for (key, Newest { entry, state }) in theirs {
            if let State::Live { stub, .. } = state
                && entry.file >= first
            {
                self.place(Side::Theirs, &key, entry);
                objects.theirs.push((key, stub, entry.rev));
            }
        }
        (objects, damaged)
    }

    fn saved(&self, objects: Objects) -> Saved {
        let feed = self.commit.feed.as_ref().map(|feed| SavedFeed {
            incarnation: feed.incarnation.clone(),
            head: feed.head,
            compacted: feed.compacted,
            changes: objects.ours,
        });
        let replica = SavedReplica { cursor: self.commit.cursor.clone(), objects: objects.theirs };
        Saved { feed, replica }
    }

    /// Says that something is missing, durably, and moves what is sound out of the damaged
    /// files. What was lost may have been anything, so nothing that rests on what was said
    /// before is right any more: the cursor, the incarnation of the own feed, tombstones.
    fn repair(&mut self, objects: &mut Objects, damaged: &[u64], fresh: &Incarnation) -> Result<Vec<String>> {
        objects.ours.retain(|change| matches!(change.state, State::Live { .. }));
        let mut commit = Commit { cursor: None, ..self.commit.clone() };
        if commit.feed.is_some() || !objects.ours.is_empty() {
            let said = commit.feed.as_ref().map_or(0, |feed| feed.head);
            let head = objects.ours.iter().map(|change| change.rev).fold(said, u64::max);
            commit.feed = Some(FeedHead { incarnation: fresh.clone(), head, compacted: head });
        }
        // A damaged file is not appended to.
        self.active = None;
        self.append(Moving::none(self), &Batch::default(), commit)?;
        let names = damaged.iter().map(|number| path(&self.directory, *number));
        let names: Vec<String> = names.map(|path| path.display().to_string()).collect();
        let what = format!("synchronized objects were damaged in {}", names.join(", "));
        Ok(match self.empty_damaged(damaged) {
            Ok(aside) if aside.is_empty() => vec![format!("{what}: missing")],
            Ok(aside) => {
                let aside: Vec<String> = aside.iter().map(|path| path.display().to_string()).collect();
                vec![format!("{what}; what is left of that is in {}", aside.join(", "))]
            }
            // It is tried again at the next opening.
            Err(error) => vec![format!("{what}, which stays for now: {error}")],
        })
    }

    /// Moves what counts out of the damaged files and those before them, and sets the
    /// damaged ones aside.
    fn empty_damaged(&mut self, damaged: &[u64]) -> Result<Vec<PathBuf>> {
        let Some(last) = damaged.last() else { return Ok(Vec::new()) };
        let mut entries: Vec<_> = self.index.all().filter(|(_, _, entry)| entry.file <= *last).collect();
        entries.sort_by_key(|(_, _, entry)| (entry.file, entry.offset));
        let mut moving = Moving::none(self);
        for (side, key, entry) in entries {
            let path = &self.segment(entry.file)?.path;
            let file = File::open(path).map_err(|error| failed(Op::Open, path, error))?;
            let bytes = read_record(&file, path, entry.offset, entry.length)?;
            moving.push(side, key, entry, &bytes);
            if moving.bytes.len() >= SAVED_AT_A_TIME {
                let full = std::mem::replace(&mut moving, Moving::none(self));
                self.append(full, &Batch::default(), self.commit.clone())?;
            }
        }
        moving.done_below(last + 1);
        let aside: Vec<(u64, Segment)> =
            damaged.iter().filter_map(|number| self.files.remove_entry(number)).collect();
        if let Err(error) = self.append(moving, &Batch::default(), self.commit.clone()) {
            self.files.extend(aside);
            return Err(error);
        }
        let mut names = Vec::new();
        for (_, segment) in aside {
            let name = free_name(&self.directory.join("objects"));
            self.disk.rename(&segment.path, &name)?;
            names.push(name);
        }
        Ok(names)
    }

    /// Makes the last file ready to be appended to: cuts off what was not acknowledged.
    fn open_last(&mut self) -> Result<()> {
        let Some((_, last)) = self.files.last_key_value() else { return Ok(()) };
        let file = self.disk.open_append(&last.path, MODE)?;
        let length = file.metadata().map_err(|error| failed(Op::Read, &last.path, error))?.len();
        if length > last.bytes {
            self.disk.truncate(&file, &last.path, last.bytes)?;
            self.disk.sync(&file, &last.path)?;
        }
        self.active = Some(file);
        Ok(())
    }
}

/// The files by their numbers.
fn list(directory: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let read = |error| failed(Op::Read, directory, error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(read)? {
        let path = entry.map_err(read)?.path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_prefix(NAME.0)?.strip_suffix(NAME.1)?.parse().ok());
        files.extend(number.map(|number: u64| (number, path)));
    }
    files.sort();
    Ok(files)
}

/// The head of a file; `None` when it is not sound.
fn file_head(path: &Path) -> Result<Option<FileHead>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_HEAD).read_to_end(&mut bytes));
    read.map_err(|error| failed(Op::Read, path, error))?;
    let payload = frame::record_at(&bytes, 0).and_then(|payload| record::read(&bytes[payload]));
    Ok(payload.and_then(|(record, _)| match record {
        Record::File(head) => Some(head),
        _ => None,
    }))
}

/// Whether a file holds no batch, and nothing that was one once.
fn is_stillborn(path: &Path) -> Result<bool> {
    let bytes = read_file(path, MAX_FILE)?.unwrap_or_default();
    let scan = frame::scan(&bytes);
    let is_commit = |payload: &std::ops::Range<usize>| {
        matches!(record::read(&bytes[payload.clone()]), Some((Record::Commit(_), _)) | None)
    };
    Ok(!scan.damaged && !scan.records.iter().any(is_commit))
}
