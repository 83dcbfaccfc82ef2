//! One file of the log of facts: facts with rising numbers.

use std::path::{Path, PathBuf};

use model::log::{Fact, FactBody};
use serde_json::Error;

use crate::atomic::read_file;
use crate::disk::failed;
use crate::error::{Result, SpoolError};
use crate::{Op, frame};

/// The largest file that is read as a segment, in bytes; those written here are far smaller.
const MAX_SEGMENT: u64 = 1024 * 1024 * 1024;
/// Before and after the first number in a segment's name.
const NAME: (&str, &str) = ("facts-", ".log");

/// A segment as it lies on disk.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    /// The number of its first fact.
    pub(crate) first: u64,
    /// The number of its last fact; `first - 1` when it has none.
    pub(crate) last: u64,
    /// Its length up to the end of its last fact, in bytes.
    pub(crate) bytes: u64,
}

/// What a segment holds.
pub(crate) struct Content {
    bytes: Vec<u8>,
    pub(crate) scan: frame::Scan,
}

/// The path of the segment that begins with a number.
pub(crate) fn path(directory: &Path, first: u64) -> PathBuf {
    directory.join(format!("{}{first:020}{}", NAME.0, NAME.1))
}

/// The segments of a directory by their first numbers.
pub(crate) fn list(directory: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(failed(Op::Read, directory, error)),
    };
    for entry in entries {
        let path = entry.map_err(|error| failed(Op::Read, directory, error))?.path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_prefix(NAME.0)?.strip_suffix(NAME.1)?.parse().ok());
        found.extend(number.map(|number: u64| (number, path)));
    }
    found.sort();
    Ok(found)
}

/// Reads a segment.
pub(crate) fn read(path: &Path) -> Result<Content> {
    let bytes = read_file(path, MAX_SEGMENT)?.unwrap_or_default();
    let scan = frame::scan(&bytes);
    Ok(Content { bytes, scan })
}

impl Content {
    /// The records with their numbers.
    pub(crate) fn facts(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.scan.records.iter().filter_map(|range| split(&self.bytes[range.clone()]))
    }
}

/// The record of a fact: its number, then the fact as JSON. The number apart, so that
/// opening a log need not read JSON.
pub(crate) fn push(out: &mut Vec<u8>, fact: &Fact) -> Result<()> {
    let mut payload = fact.seq.to_le_bytes().to_vec();
    serde_json::to_writer(&mut payload, fact)
        .map_err(|source| SpoolError::Encode { what: "a fact", source })?;
    frame::push(out, &payload);
    Ok(())
}

fn split(payload: &[u8]) -> Option<(u64, &[u8])> {
    let (number, json) = payload.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*number), json))
}

/// The fact of a record. One that this version cannot read, because a newer one wrote it,
/// keeps its number, so that those after it are not held up.
pub(crate) fn decode(seq: u64, json: &[u8]) -> Fact {
    let read: Result<Fact, Error> = serde_json::from_slice(json);
    match read {
        Ok(fact) => Fact { seq, ..fact },
        Err(error) => {
            let message = format!("fact {seq} was written by another version and cannot be read: {error}");
            Fact { seq, at: model::Timestamp::default(), body: FactBody::Repaired { message } }
        }
    }
}
