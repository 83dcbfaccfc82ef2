//! [`SegmentedLog`]: batches of records, appended durably to numbered files. The facts, the
//! agent's journals and the synchronized objects are indexes over it (CNV-5, LIF-10).
//!
//! ```text
//! DIRECTORY/00000000000000000007.segment   header  record commit  record record commit
//! DIRECTORY/00000000000000000008.segment   header  record commit  (torn: cut)
//! DIRECTORY/facts.corrupt-1                a damaged segment, set aside
//!
//! append: records and a commit, one write, one fsync; too long a segment: the next one
//! open:   versions -> the last commit -> replay from its first segment -> cut the torn tail
//! ```
//!
//! Invariants: a batch counts whole or not at all, from its commit on. A commit names the first
//! segment that counts; those before it are removed, whole. A segment's header says where the
//! segment before it ends, whatever an append that failed left there. Opening changes nothing
//! before everything was read, so what a newer version wrote is refused unharmed (LIF-4).
//! docs/durable-formats.md has the format, byte by byte.

pub(crate) mod frame;
mod recovery;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use model::collect::CollectInserting;
use serde::{Deserialize, Serialize};

pub(crate) use self::recovery::RecoveredLog;
use crate::atomic::{free_name, read_up_to};
use crate::disk::failed;
use crate::error::{Result, SpoolError};
use crate::{Disk, DiskOp, FORMAT, READABLE_FROM};

/// Begins every segment.
const MAGIC: [u8; 8] = *b"\x89MUSTER\n";
/// The kind of a segment's first record.
const KIND_HEADER: u8 = 0;
/// The kind of the record that ends a batch.
const KIND_COMMIT: u8 = 1;
/// The kind of an index's records.
pub(crate) const KIND_ENTRY: u8 = 2;
/// Records of unknown kinds from this one on are skipped; others are of a version too new.
const KIND_SKIPPABLE: u8 = 128;
/// After a segment's number in its name.
const EXTENSION: &str = ".segment";
/// Mode of the segments.
const MODE: u32 = 0o600;

/// The first record of a segment. `format` and `readableFrom` keep their meaning for ever.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SegmentHeader {
    /// Which index the segment is of.
    log: String,
    format: u32,
    readable_from: u32,
    number: u64,
    /// Where the segment before this one ends, in bytes.
    previous_end: u64,
}

/// The record that ends a batch.
#[derive(Serialize, Deserialize)]
struct CommitRecord<S> {
    /// The first segment that counts.
    first: u64,
    /// What the index keeps of the whole log.
    state: S,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    /// With its frame, in bytes.
    pub(crate) length: u32,
}

/// A batch before it is appended: records of an index, framed.
#[derive(Debug, Default)]
pub(crate) struct RecordBatch {
    pub(crate) bytes: Vec<u8>,
}

impl RecordBatch {
    /// Adds a record whose payload `fill` appends; returns its length with the frame.
    ///
    /// # Errors
    /// [`SpoolError::Encode`] and [`SpoolError::TooLarge`] name `what`; nothing was added then.
    pub(crate) fn push(
        &mut self,
        what: &'static str,
        fill: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
    ) -> Result<u32> {
        frame::push(&mut self.bytes, KIND_ENTRY, what, fill)
    }
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    /// Up to the end of the last batch, in bytes.
    pub(crate) bytes: u64,
}

/// A log whose commits carry an `S`.
#[derive(Debug)]
pub(crate) struct SegmentedLog<S> {
    disk: Disk,
    directory: PathBuf,
    name: &'static str,
    /// A segment is followed by the next one from this size on, in bytes.
    segment_bytes: u64,
    segments: BTreeMap<u64, Segment>,
    /// The last segment, while it may be appended to.
    active: Option<File>,
    /// The number of the next segment.
    next: u64,
    /// The first segment that counts.
    first: u64,
    state: Option<S>,
}

impl<S: Serialize> SegmentedLog<S> {
    /// What the last commit carries; `None` before the first.
    pub(crate) fn state(&self) -> Option<&S> {
        self.state.as_ref()
    }

    /// The segments by number.
    pub(crate) fn segments(&self) -> &BTreeMap<u64, Segment> {
        &self.segments
    }

    /// The first segment that counts.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }

    /// Where the log lies.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the segments that count are still there, as long as they were written.
    pub(crate) fn is_in_place(&self) -> bool {
        let is_whole = |segment: &Segment| {
            segment.path.metadata().is_ok_and(|found| found.is_file() && found.len() >= segment.bytes)
        };
        self.segments.values().all(is_whole)
    }

    /// Makes the directory where it alone is gone.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn make_directory(&self) -> Result<()> {
        let is_alone = self.directory.parent().is_some_and(Path::is_dir);
        if is_alone && !self.directory.is_dir() { self.disk.make_dir(&self.directory) } else { Ok(()) }
    }

    /// Ends the last segment; returns the number of the one that the next batch begins.
    pub(crate) fn rotate(&mut self) -> u64 {
        self.active = None;
        self.next
    }

    /// Appends the parts of a batch and its commit with one fsync; removes the segments before
    /// `first`. Returns the segment and the offset at which the parts begin.
    ///
    /// # Errors
    /// Those of the disk. The log is then as before; after a crash the batch may be there
    /// whole.
    pub(crate) fn append(&mut self, parts: &[&[u8]], state: S, first: u64) -> Result<(u64, u64)> {
        // What is written to a file that was removed is kept nowhere.
        self.active.take_if(|file| file.metadata().is_ok_and(|found| found.nlink() == 0));
        let full = self.segments.last_key_value().is_none_or(|(_, last)| last.bytes >= self.segment_bytes);
        let fresh = full || self.active.is_none();
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum::<usize>() + 1024);
        if fresh {
            self.push_header(&mut bytes)?;
        }
        let at = bytes.len() as u64;
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let commit = CommitRecord { first, state };
        frame::push(&mut bytes, KIND_COMMIT, "a commit", |out| serde_json::to_writer(out, &commit))?;
        let (number, start) = if fresh { self.append_new(&bytes)? } else { self.append_active(&bytes)? };
        (self.first, self.state) = (first, Some(commit.state));
        self.remove_obsolete();
        Ok((number, start + at))
    }

    fn push_header(&self, bytes: &mut Vec<u8>) -> Result<()> {
        let header = SegmentHeader {
            log: self.name.to_owned(),
            format: FORMAT,
            readable_from: READABLE_FROM,
            number: self.next,
            previous_end: self.segments.get(&(self.next - 1)).map_or(0, |previous| previous.bytes),
        };
        bytes.extend_from_slice(&MAGIC);
        frame::push(bytes, KIND_HEADER, "a header", |out| serde_json::to_writer(out, &header)).map(drop)
    }

    fn append_active(&mut self, bytes: &[u8]) -> Result<(u64, u64)> {
        let (Some(mut last), Some(file)) = (self.segments.last_entry(), self.active.as_mut()) else {
            // Only called when there is one.
            return self.append_new(bytes);
        };
        let (number, segment) = (*last.key(), last.get_mut());
        let start = segment.bytes;
        let written = self
            .disk
            .write(DiskOp::Append, file, &segment.path, bytes)
            .and_then(|()| self.disk.sync(file, &segment.path));
        if let Err(error) = written {
            // What the file holds now is not known for sure, so it is not appended to any
            // more. If the cut fails too, the next segment's header says where this one ends.
            let _ = self.disk.truncate(file, &segment.path, start);
            self.active = None;
            return Err(error);
        }
        segment.bytes += bytes.len() as u64;
        Ok((number, start))
    }

    fn append_new(&mut self, bytes: &[u8]) -> Result<(u64, u64)> {
        let number = self.next;
        let path = segment_path(&self.directory, number);
        let make = || {
            // One left over from an append that failed.
            self.disk.unlink(&path)?;
            let mut file = self.disk.create(&path, MODE)?;
            self.disk.write(DiskOp::Append, &mut file, &path, bytes)?;
            self.disk.sync(&file, &path)?;
            self.disk.sync_dir(&self.directory)?;
            Ok(file)
        };
        match make() {
            Ok(file) => {
                (self.active, self.next) = (Some(file), number + 1);
                self.segments.insert(number, Segment { path, bytes: bytes.len() as u64 });
                Ok((number, 0))
            }
            Err(error) => {
                // If it stays, it is replaced by the next try, or found at the next opening as a
                // batch that was appended after all.
                let _ = self.disk.unlink(&path);
                Err(error)
            }
        }
    }

    /// Removes the segments that do not count any more.
    fn remove_obsolete(&mut self) {
        let kept = self.segments.split_off(&self.first);
        for segment in std::mem::replace(&mut self.segments, kept).into_values() {
            // One that stays is found at the next opening, and is before the first.
            if let Err(error) = self.disk.unlink(&segment.path) {
                tracing::warn!(%error, "a segment that nothing needs stays");
            }
        }
    }

    /// As [`SegmentedLog::append`], in a new segment and with damaged ones set aside; returns
    /// the new names of those besides.
    ///
    /// # Errors
    /// As [`SegmentedLog::append`].
    pub(crate) fn append_without(
        &mut self,
        damaged: &[u64],
        parts: &[&[u8]],
        state: S,
        first: u64,
    ) -> Result<((u64, u64), Vec<PathBuf>)> {
        self.rotate();
        let mut taken: BTreeMap<u64, Segment> =
            damaged.iter().filter_map(|number| self.segments.remove_entry(number)).collect_inserting();
        let at = self.append(parts, state, first).inspect_err(|_| self.segments.append(&mut taken))?;
        let mut names = Vec::new();
        for segment in taken.into_values() {
            let (path, name) = (segment.path, free_name(&self.directory.join(self.name)));
            // One that stays does not count any more, and goes at the next opening.
            match self.disk.rename(&path, &name) {
                Ok(()) => names.push(name),
                Err(error) => tracing::warn!(%error, "a damaged segment was not set aside"),
            }
        }
        Ok((at, names))
    }

    /// Gives the entries of a segment in order to `take`, until it says `false`; returns whether
    /// it never did.
    ///
    /// # Errors
    /// [`SpoolError::Damaged`] when some of the segment is gone, those of the disk, and of `take`.
    pub(crate) fn entries(&self, number: u64, take: &mut dyn FnMut(&[u8]) -> Result<bool>) -> Result<bool> {
        let Some(segment) = self.segments.get(&number) else { return Ok(true) };
        let bytes = read_up_to(&segment.path, segment.bytes)?.unwrap_or_default();
        if (bytes.len() as u64) < segment.bytes {
            return Err(SpoolError::Damaged { path: segment.path.clone() });
        }
        for (kind, payload) in frame::scan(&bytes, MAGIC.len()).records {
            if kind == KIND_ENTRY && !take(&bytes[payload])? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads records.
    pub(crate) fn reader(&self) -> RecordReader<'_> {
        RecordReader { segments: &self.segments, directory: &self.directory, open: None }
    }
}

/// What is reported of damage in a log.
pub(crate) fn repairs(what: &str, directory: &Path, aside: &[PathBuf]) -> Vec<String> {
    let aside: Vec<String> = aside.iter().map(|path| path.display().to_string()).collect();
    let left = if aside.is_empty() {
        "missing".to_owned()
    } else {
        format!("what is left is in {}", aside.join(", "))
    };
    vec![format!("{what} in {} were damaged: {left}", directory.display())]
}

/// Reads records, and keeps the segment open that it read last.
pub(crate) struct RecordReader<'a> {
    segments: &'a BTreeMap<u64, Segment>,
    directory: &'a Path,
    open: Option<(u64, File)>,
}

impl RecordReader<'_> {
    /// A record with its frame, checked.
    ///
    /// # Errors
    /// [`SpoolError::Damaged`] when it is not what was written, and those of the disk.
    pub(crate) fn record(&mut self, at: &Location) -> Result<Vec<u8>> {
        let mut bytes = vec![0; at.length as usize];
        self.fill(at.segment, at.offset, &mut bytes)?;
        match frame::record_at(&bytes, 0) {
            Some((_, payload)) if payload.end == bytes.len() => Ok(bytes),
            _ => Err(self.damaged(at.segment)),
        }
    }

    /// Fills a buffer from an offset on.
    ///
    /// # Errors
    /// As [`RecordReader::record`].
    pub(crate) fn fill(&mut self, segment: u64, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let path = &self.segments.get(&segment).ok_or_else(|| self.damaged(segment))?.path;
        let file = match self.open.take().filter(|(number, _)| *number == segment) {
            Some((_, file)) => file,
            None => File::open(path).map_err(|error| failed(DiskOp::Open, path, error))?,
        };
        let read = file.read_exact_at(bytes, offset);
        self.open = Some((segment, file));
        read.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged(segment),
            _ => failed(DiskOp::Read, path, error),
        })
    }

    /// The error of a segment that does not hold what was written.
    pub(crate) fn damaged(&self, segment: u64) -> SpoolError {
        SpoolError::Damaged { path: segment_path(self.directory, segment) }
    }
}

/// The path of the segment of a number.
fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:020}{EXTENSION}"))
}
