//! Moves what is alive out of the oldest files, a step with each write.

use std::fs::File;
use std::os::unix::fs::FileExt;

use model::ObjectKey;
use sync::Side;

use super::index::Entry;
use super::record::{self, Record};
use super::{ObjectLog, Segment};
use crate::disk::failed;
use crate::error::{Result, SpoolError};
use crate::{Op, frame};

/// For each byte that is written, so many of the oldest files are looked through: enough
/// to be through with all of them before they have grown by much.
const PACE: u64 = 4;
/// Dead weight up to what is alive and so many files is left alone.
const SLACK_FILES: u64 = 4;
/// The least that is read at a time, in bytes.
const PIECE: u64 = 512;

/// Records on their way to the end of the log.
pub(super) struct Moving {
    pub(super) bytes: Vec<u8>,
    moves: Vec<Move>,
    /// The first file that counts when they are there.
    pub(super) first: u64,
    /// How far that one was looked through.
    moved: u64,
}

struct Move {
    side: Side,
    key: ObjectKey,
    entry: Entry,
    at: u64,
}

impl Moving {
    /// Nothing moves.
    pub(super) fn none(log: &ObjectLog) -> Moving {
        Moving { bytes: Vec::new(), moves: Vec::new(), first: log.commit.first, moved: log.moved }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    pub(super) fn records(&self) -> u64 {
        self.moves.len() as u64
    }

    pub(super) fn push(&mut self, side: Side, key: ObjectKey, entry: Entry, record: &[u8]) {
        self.moves.push(Move { side, key, entry, at: self.bytes.len() as u64 });
        self.bytes.extend_from_slice(record);
    }

    /// Files below this number do not count any more.
    pub(super) fn done_below(&mut self, first: u64) {
        (self.first, self.moved) = (first, 0);
    }
}

impl ObjectLog {
    /// What moves with a write of so many bytes.
    pub(super) fn moving(&mut self, incoming: u64) -> Moving {
        if self.stuck {
            return Moving::none(self);
        }
        match self.step(incoming) {
            Ok(moving) => moving,
            Err(error) => {
                self.stuck = matches!(error, SpoolError::Damaged { .. });
                tracing::warn!(%error, "what the oldest file of objects holds cannot be moved");
                Moving::none(self)
            }
        }
    }

    fn step(&self, incoming: u64) -> Result<Moving> {
        let mut moving = Moving::none(self);
        let mut left = self.limits.step_bytes.saturating_add(incoming.saturating_mul(PACE));
        let mut weight = self.file_bytes();
        let light = 2 * self.live_bytes() + SLACK_FILES * self.limits.file_bytes;
        let last = self.files.last_key_value().map_or(0, |(number, _)| *number);
        // The last one is still appended to.
        for (number, segment) in self.files.range(..last) {
            let mut alive = segment.live;
            while alive > 0 && moving.moved < segment.bytes {
                if weight <= light || left == 0 {
                    return Ok(moving);
                }
                let looked = self.look_through(*number, segment, left, &mut moving)?;
                left = left.saturating_sub(looked.bytes);
                weight += looked.alive;
                alive = alive.saturating_sub(looked.alive);
            }
            if alive > 0 {
                return Err(SpoolError::Damaged { path: segment.path.clone() });
            }
            moving.done_below(number + 1);
            weight -= segment.bytes;
        }
        Ok(moving)
    }

    /// Takes along what is alive in the next piece of a file.
    fn look_through(&self, number: u64, segment: &Segment, most: u64, moving: &mut Moving) -> Result<Looked> {
        let damaged = || SpoolError::Damaged { path: segment.path.clone() };
        let bytes = read_piece(segment, moving.moved, most)?;
        let (mut at, mut alive) = (0, 0);
        while at < bytes.len() {
            let Some(payload) = frame::record_at(&bytes, at) else {
                // The piece ends within a record; the next one begins with it.
                if at > 0 && frame::length_at(&bytes[at..]).is_none_or(|l| at as u64 + l > bytes.len() as u64)
                {
                    break;
                }
                return Err(damaged());
            };
            let offset = moving.moved + at as u64;
            let (record, _) = record::read(&bytes[payload.clone()]).ok_or_else(damaged)?;
            let name = match &record {
                Record::Put(put) => Some((record::side(put.ours), put.name.key())),
                Record::Gone(gone) => Some((Side::Ours, gone.name.key())),
                _ => None,
            };
            if let Some((side, key)) = name
                && let Some(entry) = self.index.get(side, &key)
                && (entry.file, entry.offset) == (number, offset)
            {
                alive += u64::from(entry.length);
                moving.push(side, key, *entry, &bytes[at..payload.end]);
            }
            at = payload.end;
        }
        moving.moved += at as u64;
        Ok(Looked { bytes: at as u64, alive })
    }

    /// What was moved lies here now.
    pub(super) fn take_in_moved(&mut self, moving: Moving, file: u64, start: u64) {
        for Move { side, key, entry, at } in moving.moves {
            self.place(side, &key, Entry { file, offset: start + at, ..entry });
        }
        self.moved = moving.moved;
    }
}

/// What a step came to.
struct Looked {
    bytes: u64,
    /// Of them, those that moved.
    alive: u64,
}

/// The next piece of a file: about as much as is asked for, but one whole record.
fn read_piece(segment: &Segment, from: u64, most: u64) -> Result<Vec<u8>> {
    let file = File::open(&segment.path).map_err(|error| failed(Op::Open, &segment.path, error))?;
    let rest = segment.bytes - from;
    let mut bytes = vec![0; rest.min(most.max(PIECE)) as usize];
    let read = |bytes: &mut [u8]| {
        file.read_exact_at(bytes, from).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => SpoolError::Damaged { path: segment.path.clone() },
            _ => failed(Op::Read, &segment.path, error),
        })
    };
    read(&mut bytes)?;
    let first = frame::length_at(&bytes).unwrap_or(0);
    if first > bytes.len() as u64 && first <= rest {
        bytes.resize(first as usize, 0);
        read(&mut bytes)?;
    }
    Ok(bytes)
}
