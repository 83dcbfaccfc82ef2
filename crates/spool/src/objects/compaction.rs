//! Moves what is alive out of the oldest segments, a step with each write.

use std::collections::VecDeque;

use model::ObjectKey;
use sync::Side;

use super::ObjectLog;
use super::index::{Alive, IndexEntry};
use crate::error::{Result, SpoolError};
use crate::segmented::Location;

/// For each byte that is written, so many of the oldest segments are looked through: enough
/// to be through with all of them before they have grown by much.
const PACE: u64 = 4;
/// Dead weight up to what is alive and so many segments is left alone.
const SLACK_SEGMENTS: u64 = 4;

/// Records on their way to the end of the log.
pub(super) struct Moving {
    pub(super) bytes: Vec<u8>,
    moves: Vec<Move>,
    /// The first segment that counts when they are there.
    pub(super) first: u64,
    /// What is alive in that one then, if this was asked.
    left: VecDeque<Alive>,
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
        Moving { bytes: Vec::new(), moves: Vec::new(), first: log.log.first(), left: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    pub(super) fn push(&mut self, side: Side, key: ObjectKey, entry: IndexEntry, record: &[u8]) {
        self.moves.push(Move { side, key, entry, at: self.bytes.len() as u64 });
        self.bytes.extend_from_slice(record);
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

    fn step(&mut self, incoming: u64) -> Result<Moving> {
        let mut moving = Moving::none(self);
        let mut reader = self.log.reader();
        let mut left = self.limits.step_bytes.saturating_add(incoming.saturating_mul(PACE));
        let mut weight = self.log.bytes();
        let small_enough = 2 * self.live_bytes() + SLACK_SEGMENTS * self.limits.segment_bytes;
        let segments = self.log.segments();
        let last = segments.last_key_value().map_or(0, |(number, _)| *number);
        // If this write fails, what lies in the segment is asked of the index again.
        let mut alive = std::mem::take(&mut self.oldest);
        // The last one is still appended to.
        'segments: for (number, segment) in segments.range(..last) {
            if alive.is_empty() && self.index.live_in(*number) > 0 {
                if weight <= small_enough || left == 0 {
                    break;
                }
                alive = self.index.alive_in(*number..=*number).into();
            }
            let mut passed = alive.front().map_or(0, |(_, _, entry)| entry.at.offset);
            while let Some((side, key, entry)) = alive.pop_front() {
                if self.index.get(side, &key) != Some(&entry) {
                    continue;
                }
                if weight <= small_enough || left == 0 {
                    alive.push_front((side, key, entry));
                    break 'segments;
                }
                let record = reader.record(&entry.at)?;
                let end = entry.at.offset + record.len() as u64;
                left = left.saturating_sub(end - std::mem::replace(&mut passed, end));
                weight += record.len() as u64;
                moving.push(side, key, entry, &record);
            }
            moving.first = number + 1;
            weight -= segment.bytes;
        }
        moving.left = alive;
        Ok(moving)
    }

    /// What was moved is here now.
    pub(super) fn take_in_moved(&mut self, moving: Moving, segment: u64, start: u64) {
        for Move { side, key, entry, at } in moving.moves {
            let at = Location { segment, offset: start + at, ..entry.at };
            self.index.insert(side, &key, IndexEntry { at, ..entry });
        }
        self.oldest = moving.left;
    }
}
