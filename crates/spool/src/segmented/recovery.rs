//! Opening a log: which versions wrote it, where it begins, what counts, what is damaged.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use model::sort::SortCompactly;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    CommitRecord, EXTENSION, KIND_COMMIT, KIND_ENTRY, KIND_HEADER, KIND_SKIPPABLE, Location, MAGIC, MODE,
    Segment, SegmentHeader, SegmentedLog, frame,
};
use crate::atomic::read_up_to;
use crate::disk::failed;
use crate::error::{Result, SpoolError};
use crate::{Disk, DiskOp, FORMAT};

/// The largest segment that is read, in bytes; those written here are far smaller.
const MAX_SEGMENT: u64 = 1024 * 1024 * 1024;
/// A header lies within so many bytes.
const MAX_HEADER: u64 = 1024;

/// A log, and what is damaged in it.
pub(crate) struct RecoveredLog<S> {
    pub(crate) log: SegmentedLog<S>,
    /// The numbers of the segments that are damaged, and the last of those missing in a row. The
    /// index has to append without them ([`SegmentedLog::append_without`]) before anything else.
    pub(crate) damaged: Vec<u64>,
}

/// A segment's file, not yet read.
struct Candidate {
    number: u64,
    path: PathBuf,
    /// `None` when it is not sound.
    header: Option<SegmentHeader>,
}

/// What a segment's file holds.
struct SegmentContent {
    bytes: Vec<u8>,
    scan: frame::Scan,
}

impl<S: Serialize + DeserializeOwned> SegmentedLog<S> {
    /// Opens the log of the index `name` in a directory, which is made if need be. Only one
    /// process at a time may have it. `take` gets each entry that counts, in order, and says
    /// whether it could read it.
    ///
    /// # Errors
    /// [`SpoolError::TooNew`] when a newer version wrote what this one cannot read; nothing was
    /// changed then. Those of the disk.
    pub(crate) fn open(
        disk: &Disk,
        directory: &Path,
        name: &'static str,
        segment_bytes: u64,
        take: &mut dyn FnMut(Location, &[u8]) -> bool,
    ) -> Result<RecoveredLog<S>> {
        disk.make_dir(directory)?;
        let mut files = candidates(directory)?;
        let mut log = SegmentedLog {
            disk: disk.clone(),
            directory: directory.to_owned(),
            name,
            segment_bytes,
            segments: BTreeMap::new(),
            active: None,
            next: 1,
            first: 1,
            state: None,
        };
        // A segment is made with its first batch: one that came to none was never acknowledged,
        // and the one before it is the last.
        let mut stillborn = Vec::new();
        // What the last one holds is read and verified once: mostly it is all that there is.
        let mut content = None;
        while let Some(last) = files.last() {
            let read = SegmentContent::read(&last.path, None)?;
            if !read.is_stillborn() {
                content = Some(read);
                break;
            }
            stillborn.extend(files.pop());
        }
        log.next = files.last().map_or(1, |last| last.number + 1);
        log.find_first(&files, content.as_ref())?;
        let damaged = log.replay(&files, content, take)?;
        // Everything was read. From here on the log is changed.
        for file in stillborn.iter().chain(files.iter().filter(|file| file.number < log.first)) {
            disk.unlink(&file.path)?;
        }
        let of_this_format = |header: &SegmentHeader| header.format == FORMAT;
        let last = files.last().and_then(|last| last.header.as_ref());
        if damaged.is_empty() && last.is_some_and(of_this_format) {
            log.open_last()?;
        }
        Ok(RecoveredLog { log, damaged })
    }

    /// The last sound commit says where the log begins; `last` is what the last segment holds.
    fn find_first(&mut self, files: &[Candidate], last: Option<&SegmentContent>) -> Result<()> {
        for (at, file) in files.iter().enumerate().rev() {
            let read;
            let content = match last.filter(|_| at + 1 == files.len()) {
                Some(content) => content,
                None => {
                    read = SegmentContent::read(&file.path, end(files, at))?;
                    &read
                }
            };
            let commits = content.scan.records.iter().filter(|(kind, _)| *kind == KIND_COMMIT);
            let sound = commits.rev().find_map(|(_, payload)| content.parse::<CommitRecord<S>>(payload));
            if let Some(commit) = sound {
                (self.first, self.state) = (commit.first, Some(commit.state));
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads what counts; returns the segments that are damaged or missing. `content` is what the last one holds.
    fn replay(
        &mut self,
        files: &[Candidate],
        mut content: Option<SegmentContent>,
        take: &mut dyn FnMut(Location, &[u8]) -> bool,
    ) -> Result<Vec<u64>> {
        let mut damaged = Vec::new();
        let mut expected = self.first;
        for (at, file) in files.iter().enumerate().filter(|(_, file)| file.number >= self.first) {
            if file.number > expected {
                damaged.push(file.number - 1);
            }
            expected = file.number + 1;
            let last = at + 1 == files.len();
            let content = match content.take_if(|_| last) {
                Some(content) => content,
                None => SegmentContent::read(&file.path, end(files, at))?,
            };
            let mut sound = self.is_expected(file) && !content.scan.damaged && (last || !content.scan.torn);
            let commits = content.scan.records.iter().filter(|(kind, _)| *kind == KIND_COMMIT);
            let batches_end = commits.map(|(_, payload)| payload.end).max().unwrap_or(0);
            sound &= last || batches_end == content.scan.end;
            // What is left of a batch whose commit was lost to damage counts.
            let end = if sound { batches_end } else { content.scan.end };
            for (kind, payload) in content.scan.records.iter().filter(|(_, payload)| payload.end <= end) {
                let location = Location {
                    segment: file.number,
                    offset: (payload.start - frame::HEADER) as u64,
                    length: (payload.len() + frame::HEADER) as u32,
                };
                let is_read = match *kind {
                    KIND_HEADER | KIND_SKIPPABLE.. => true,
                    KIND_COMMIT => content.parse::<CommitRecord<S>>(payload).is_some(),
                    KIND_ENTRY => take(location, &content.bytes[payload.clone()]),
                    _ => false,
                };
                // A sound record that cannot be read is of a newer version, or a defect.
                if let Some(header) = file.header.as_ref().filter(|header| !is_read && header.format > FORMAT)
                {
                    return Err(too_new(&file.path, header.format, header.format));
                }
                sound &= is_read;
            }
            if !sound {
                damaged.push(file.number);
            }
            let segment = Segment { path: file.path.clone(), bytes: end as u64 };
            self.segments.insert(file.number, segment);
        }
        Ok(damaged)
    }

    fn is_expected(&self, file: &Candidate) -> bool {
        let expected = |header: &SegmentHeader| header.log == self.name && header.number == file.number;
        file.header.as_ref().is_some_and(expected)
    }

    /// Makes the last segment ready to be appended to: cuts off what was not acknowledged. On a file system
    /// that only reads, the log is read all the same: an append begins a segment, or says why it cannot.
    fn open_last(&mut self) -> Result<()> {
        let Some((_, last)) = self.segments.last_key_value() else { return Ok(()) };
        let Ok(file) = self.disk.open_append(&last.path, MODE) else { return Ok(()) };
        let length = file.metadata().map_err(|error| failed(DiskOp::Read, &last.path, error))?.len();
        if length > last.bytes {
            self.disk.truncate(&file, &last.path, last.bytes)?;
            self.disk.sync(&file, &last.path)?;
        }
        self.active = Some(file);
        Ok(())
    }
}

impl SegmentContent {
    /// Reads a segment up to where the next one says that it ends.
    fn read(path: &Path, end: Option<u64>) -> Result<SegmentContent> {
        let bytes = read_up_to(path, end.unwrap_or(u64::MAX).min(MAX_SEGMENT))?.unwrap_or_default();
        // A beginning that is no magic is damage that costs no record.
        let magic = bytes.len().min(MAGIC.len());
        let is_ours = bytes[..magic] == MAGIC[..magic];
        let mut scan = frame::scan(&bytes, if is_ours { magic } else { 0 });
        if is_ours && magic < MAGIC.len() {
            scan.torn = true;
        }
        Ok(SegmentContent { bytes, scan })
    }

    /// Holds no batch, and nothing that was one once.
    fn is_stillborn(&self) -> bool {
        !self.scan.damaged && self.scan.records.iter().all(|(kind, _)| *kind != KIND_COMMIT)
    }

    fn parse<T: DeserializeOwned>(&self, payload: &Range<usize>) -> Option<T> {
        serde_json::from_slice(&self.bytes[payload.clone()]).ok()
    }
}

/// Where a segment ends, as the next one says.
fn end(files: &[Candidate], at: usize) -> Option<u64> {
    let next = files.get(at + 1).filter(|next| next.number == files[at].number + 1)?;
    Some(next.header.as_ref()?.previous_end)
}

/// The segments of a directory by number.
fn candidates(directory: &Path) -> Result<Vec<Candidate>> {
    let read = |error| failed(DiskOp::Read, directory, error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(read)? {
        let path = entry.map_err(read)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_suffix(EXTENSION)?.parse().ok());
        // The largest number has no next one, and was never written.
        if let Some(number) = number.filter(|number| *number < u64::MAX) {
            files.push(Candidate { number, header: header(&path)?, path });
        }
    }
    files.sort_compactly_by_key(|file| file.number);
    Ok(files)
}

/// The header of a segment; `None` when it is not sound.
fn header(path: &Path) -> Result<Option<SegmentHeader>> {
    let bytes = read_up_to(path, MAX_HEADER)?.unwrap_or_default();
    let Some((KIND_HEADER, payload)) = frame::record_at(&bytes, MAGIC.len()) else { return Ok(None) };
    let header: Option<SegmentHeader> = serde_json::from_slice(&bytes[payload]).ok();
    let header = header.filter(|_| bytes.starts_with(&MAGIC));
    match header {
        Some(header) if header.readable_from > FORMAT => {
            Err(too_new(path, header.format, header.readable_from))
        }
        header => Ok(header),
    }
}

fn too_new(path: &Path, format: u32, needed: u32) -> SpoolError {
    SpoolError::TooNew { path: path.to_owned(), format, needed }
}
