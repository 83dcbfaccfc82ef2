//! Moves what is alive out of the oldest segments, a step with each write.

use model::ObjectKey;
use sync::Side;

use super::ObjectLog;
use super::index::IndexEntry;
use super::record::{self, Record};
use crate::error::{Result, SpoolError};
use crate::segmented::{KIND_ENTRY, Location, RECORDS_BEGIN, Reader, frame};

/// For each byte that is written, so many of the oldest segments are looked through: enough
/// to be through with all of them before they have grown by much.
const PACE: u64 = 4;
/// Dead weight up to what is alive and so many segments is left alone.
const SLACK_SEGMENTS: u64 = 4;
/// The least that is read at a time, in bytes.
const PIECE: u64 = 512;

/// Records on their way to the end of the log.
pub(super) struct Moving {
    pub(super) bytes: Vec<u8>,
    moves: Vec<Move>,
    /// The first segment that counts when they are there.
    pub(super) first: u64,
    /// How far that one was looked through.
    moved: u64,
}

struct Move {
    side: Side,
    key: ObjectKey,
    entry: IndexEntry,
    at: u64,
}

impl Moving {
    /// Nothing moves.
    pub(super) fn none(log: &ObjectLog) -> Moving {
        Moving { bytes: Vec::new(), moves: Vec::new(), first: log.log.first(), moved: log.moved }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    pub(super) fn push(&mut self, side: Side, key: ObjectKey, entry: IndexEntry, record: &[u8]) {
        self.moves.push(Move { side, key, entry, at: self.bytes.len() as u64 });
        self.bytes.extend_from_slice(record);
    }

    /// Segments below this number do not count any more.
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
                tracing::warn!(%error, "what the oldest segment of objects holds cannot be moved");
                Moving::none(self)
            }
        }
    }

    fn step(&self, incoming: u64) -> Result<Moving> {
        let mut moving = Moving::none(self);
        let mut reader = self.log.reader();
        let mut left = self.limits.step_bytes.saturating_add(incoming.saturating_mul(PACE));
        let mut weight = self.log.bytes();
        let light = 2 * self.live_bytes() + SLACK_SEGMENTS * self.limits.segment_bytes;
        let segments = self.log.segments();
        let last = segments.last_key_value().map_or(0, |(number, _)| *number);
        // The last one is still appended to.
        for (number, segment) in segments.range(..last) {
            let mut alive = self.index.live_in(*number);
            while alive > 0 && moving.moved < segment.bytes {
                if weight <= light || left == 0 {
                    return Ok(moving);
                }
                let rest = segment.bytes - moving.moved;
                let looked = self.look_through(&mut reader, *number, rest, left, &mut moving)?;
                left = left.saturating_sub(looked.bytes);
                weight += looked.alive;
                alive = alive.saturating_sub(looked.alive);
            }
            if alive > 0 {
                return Err(reader.damaged(*number));
            }
            moving.done_below(number + 1);
            weight -= segment.bytes;
        }
        Ok(moving)
    }

    /// Takes along what is alive in the next piece of a segment.
    fn look_through(
        &self,
        reader: &mut Reader<'_>,
        segment: u64,
        rest: u64,
        most: u64,
        moving: &mut Moving,
    ) -> Result<Looked> {
        let from = moving.moved.max(RECORDS_BEGIN);
        let bytes = read_piece(reader, segment, from, rest - (from - moving.moved), most)?;
        let (mut at, mut alive) = (0, 0);
        while at < bytes.len() {
            let Some((kind, payload)) = frame::record_at(&bytes, at) else {
                // The piece ends within a record; the next one begins with it.
                if at > 0 && frame::length_at(&bytes[at..]).is_none_or(|l| at as u64 + l > bytes.len() as u64)
                {
                    break;
                }
                return Err(reader.damaged(segment));
            };
            let offset = from + at as u64;
            let name = if kind == KIND_ENTRY { named(&bytes[payload.clone()]) } else { None };
            if let Some((side, key)) = name
                && let Some(entry) = self.index.get(side, &key)
                && (entry.at.segment, entry.at.offset) == (segment, offset)
            {
                alive += u64::from(entry.at.length);
                moving.push(side, key, *entry, &bytes[at..payload.end]);
            }
            at = payload.end;
        }
        moving.moved = from + at as u64;
        Ok(Looked { bytes: at as u64, alive })
    }

    /// What was moved is here now.
    pub(super) fn take_in_moved(&mut self, moving: Moving, segment: u64, start: u64) {
        for Move { side, key, entry, at } in moving.moves {
            let at = Location { segment, offset: start + at, ..entry.at };
            self.index.insert(side, &key, IndexEntry { at, ..entry });
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

/// The object that a record is the newest of, perhaps.
fn named(payload: &[u8]) -> Option<(Side, ObjectKey)> {
    match record::read(payload)?.0 {
        Record::Put(put) => Some((record::side(put.ours), put.name.key())),
        Record::Gone(gone) => Some((Side::Ours, gone.name.key())),
        Record::Forget { .. } | Record::Taken(_) => None,
    }
}

/// The next piece of a segment: about as much as is asked for, but one whole record.
fn read_piece(reader: &mut Reader<'_>, segment: u64, from: u64, rest: u64, most: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; rest.min(most.max(PIECE)) as usize];
    reader.fill(segment, from, &mut bytes)?;
    let first = frame::length_at(&bytes).unwrap_or(0);
    if first > bytes.len() as u64 && first <= rest {
        bytes.resize(first as usize, 0);
        reader.fill(segment, from, &mut bytes)?;
    }
    Ok(bytes)
}
