//! [`FactLog`]: the node's facts, kept until they are acknowledged, and the last of them for longer; an
//! index over a segmented log.
//!
//! ```text
//! position   1 2 3 4 5 6 7 8        rises for ever, is in each record
//!      oldest--^ ^-acked ^-- pending
//! number     position - offset      what the control plane sees, in one incarnation
//! ```
//!
//! Each commit carries incarnation, offset and how far facts were acknowledged. Beginning anew
//! is a commit with another incarnation and offset. So is sending again, with an earlier acknowledgement:
//! of what was acknowledged a segment is kept, as the receiver may have lost it (SCL-4).

use std::collections::BTreeMap;
use std::path::Path;

use model::collect::CollectInserting;
use model::log::{Fact, FactBody, MAX_FACT_BYTES};
use model::work::{ActionEvent, ActionFact, ActionOutcome};
use model::{Incarnation, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Disk;
use crate::error::{Result, SpoolError};
use crate::segmented::{self, RecordBatch, SegmentedLog};

/// The most bytes of facts that wait, by default.
pub const MAX_LOG: u64 = 64 * 1024 * 1024;
/// The part of them that only facts other than runs may use, by default. As much again is kept
/// from what actions say, but for what became of those that ran.
pub const RESERVE: u64 = 8 * 1024 * 1024;
/// A segment is followed by the next one from this size on, by default.
pub const SEGMENT: u64 = 256 * 1024;
/// A commit, and a header where need be, take about so many bytes at most.
const COMMIT_BYTES: u64 = 256;
/// What an error calls a fact.
const FACT: &str = "a fact";

/// How much a log may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// The most bytes that wait.
    pub max_bytes: u64,
    /// The part of them that only facts other than runs may use. As much again is kept from
    /// what the control plane can cause without end: output, beginnings and refusals of actions.
    pub reserve_bytes: u64,
    /// A segment is followed by the next one from this size on, in bytes.
    pub segment_bytes: u64,
}

impl Default for LogLimits {
    fn default() -> LogLimits {
        LogLimits { max_bytes: MAX_LOG, reserve_bytes: RESERVE, segment_bytes: SEGMENT }
    }
}

/// A log, and what had to be done to open it.
#[derive(Debug)]
pub struct OpenedLog {
    /// The log.
    pub log: FactLog,
    /// What was found damaged and what became of it, in words; empty after an ordinary
    /// crash.
    pub repairs: Vec<String>,
}

/// The facts of one node in one incarnation: numbered 1, 2, 3 and so on, appended
/// durably, kept until acknowledged.
#[derive(Debug)]
pub struct FactLog {
    log: SegmentedLog<LogState>,
    limits: LogLimits,
    state: LogState,
    /// The position of the last fact in each segment that has one.
    lasts: BTreeMap<u64, u64>,
    /// The position of the newest fact.
    head: u64,
    /// That of the oldest fact that is still here.
    oldest: u64,
    staged: RecordBatch,
    /// Facts in it.
    staged_count: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct LogState {
    incarnation: Incarnation,
    /// A fact's number is its position less this.
    offset: u64,
    /// Everything up to this position was acknowledged.
    acked: u64,
}

impl FactLog {
    /// Opens the log in a directory, which is made if need be. Only one process at a time
    /// may have it ([`crate::StateLock`]).
    ///
    /// `fresh` must be a new incarnation each time. It is used when the log is new, and
    /// when facts were lost to damage: the numbers of the others would have a gap, so they
    /// begin anew under it. (Those whose acknowledgement was lost too are then reported
    /// twice, which is better than not at all.)
    ///
    /// # Errors
    /// [`SpoolError::TooNew`], and those of the disk.
    pub fn open(disk: &Disk, directory: &Path, fresh: &Incarnation, limits: LogLimits) -> Result<OpenedLog> {
        let (mut lasts, mut head, mut oldest) = (BTreeMap::new(), 0, None);
        let segment = limits.segment_bytes;
        let segmented::RecoveredLog { log, damaged } =
            SegmentedLog::open(disk, directory, "facts", segment, &mut |location, payload| {
                let Some((position, _)) = split(payload) else { return false };
                head = position.max(head);
                oldest.get_or_insert(position);
                lasts.insert(location.segment, head);
                true
            })?;
        let is_new = log.state().is_none();
        let state = log.state().cloned();
        let state = state.unwrap_or_else(|| LogState { incarnation: fresh.clone(), offset: 0, acked: 0 });
        let head = head.max(state.acked);
        let (staged, staged_count) = (RecordBatch::default(), 0);
        let oldest = oldest.unwrap_or(head + 1);
        let mut log = FactLog { log, limits, state, lasts, head, oldest, staged, staged_count };
        let mut repairs = Vec::new();
        if !damaged.is_empty() {
            repairs = log.rewrite(fresh, &[], &damaged)?;
        } else if is_new {
            log.append_staged(log.state.clone())?;
        }
        Ok(OpenedLog { log, repairs })
    }

    /// The incarnation of this log.
    pub fn incarnation(&self) -> &Incarnation {
        &self.state.incarnation
    }

    /// Everything up to this number was acknowledged.
    pub fn acked(&self) -> u64 {
        self.state.acked - self.state.offset
    }

    /// The number of the newest fact; 0 when there was none.
    pub fn last(&self) -> u64 {
        self.head - self.state.offset
    }

    /// The bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Appends a fact; returns its number. Durable when it returns.
    ///
    /// # Errors
    /// As [`FactLog::append_many`].
    pub fn append(&mut self, body: FactBody, at: Timestamp) -> Result<u64> {
        self.append_many(vec![body], at).map(|_| self.last())
    }

    /// Appends facts, all or none; returns their numbers. Durable when it returns, with what was
    /// staged before.
    ///
    /// # Errors
    /// As [`FactLog::stage`] and [`FactLog::commit`].
    pub fn append_many(&mut self, bodies: Vec<FactBody>, at: Timestamp) -> Result<Vec<u64>> {
        let numbers = self.stage(bodies, at)?;
        self.commit()?;
        Ok(numbers)
    }

    /// Puts facts beside those that the next [`FactLog::commit`] appends; returns the numbers
    /// that they then have, in this incarnation. They count for nothing before.
    ///
    /// # Errors
    /// [`SpoolError::LogFull`] when too much waits (actions first, then runs: other facts
    /// have a reserve, and so has what became of an action that ran), and
    /// [`SpoolError::TooLarge`] for a fact that no request could carry. What was staged before
    /// stays staged.
    pub fn stage(&mut self, bodies: Vec<FactBody>, at: Timestamp) -> Result<Vec<u64>> {
        // Facts of several kinds at once go by the one with the most room.
        let reserves = bodies.iter().map(reserves).min().unwrap_or(0);
        let staged = self.staged.bytes.len();
        let first = self.last() + self.staged_count + 1;
        let numbers: Vec<u64> = (first..first + bodies.len() as u64).collect();
        let facts = numbers.iter().zip(bodies).map(|(seq, body)| Fact { seq: *seq, at, body });
        let reserve = self.limits.reserve_bytes.saturating_mul(reserves);
        let limit = self.limits.max_bytes.saturating_sub(reserve);
        let pushed = facts.map(|fact| push(&mut self.staged, self.state.offset + fact.seq, &fact));
        let pushed = pushed.collect::<Result<()>>().and_then(|()| {
            let bytes = self.pending_bytes() + self.staged.bytes.len() as u64 + COMMIT_BYTES;
            if bytes > limit { Err(SpoolError::LogFull { limit }) } else { Ok(()) }
        });
        if let Err(error) = pushed {
            self.staged.bytes.truncate(staged);
            return Err(error);
        }
        self.staged_count += numbers.len() as u64;
        Ok(numbers)
    }

    /// Appends what was staged, all or none, with one fsync. Durable when it returns.
    ///
    /// # Errors
    /// Those of the disk; nothing is staged any more, and nothing of it was appended, but after
    /// a crash it may be there.
    pub fn commit(&mut self) -> Result<()> {
        if self.staged_count == 0 { Ok(()) } else { self.append_staged(self.state.clone()) }
    }

    /// Facts that were not acknowledged, in order: at most so many, and so many bytes as
    /// JSON, but at least one if there is any.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn pending(&self, max_facts: usize, max_bytes: usize) -> Result<Vec<Fact>> {
        let mut facts = Vec::new();
        let mut bytes = 0;
        self.each_pending(&mut |position, json| {
            bytes += json.len();
            if facts.len() >= max_facts || (bytes > max_bytes && !facts.is_empty()) {
                return Ok(false);
            }
            facts.push(decode(position - self.state.offset, json));
            Ok(true)
        })?;
        Ok(facts)
    }

    /// Everything up to `seq` is durable at the receiver. Durable here when it returns, with what
    /// was staged; segments that hold nothing else go.
    ///
    /// # Errors
    /// [`SpoolError::AckBeyond`] when there is no such fact here, and as [`FactLog::commit`].
    pub fn ack(&mut self, seq: u64) -> Result<()> {
        let last = self.last();
        if seq > last {
            return Err(SpoolError::AckBeyond { acked: seq, last });
        }
        if seq <= self.acked() {
            return Ok(());
        }
        self.append_staged(LogState { acked: self.state.offset + seq, ..self.state.clone() })
    }

    /// Begins a new incarnation with the facts that were not acknowledged, numbered from 1: when
    /// this state turned out to be an old copy, or when the other side has lost what it
    /// had acknowledged.
    ///
    /// # Errors
    /// When the disk refuses; the log is then as before.
    pub fn begin_anew(&mut self, fresh: &Incarnation) -> Result<()> {
        if *fresh == self.state.incarnation {
            return Err(SpoolError::SameIncarnation);
        }
        let acked = self.state.acked;
        self.append_staged(LogState { incarnation: fresh.clone(), offset: acked, acked })
    }

    /// The receiver has facts up to `seq` alone, though it acknowledged more: those after it are pending again.
    /// Where one of them is gone, those that are left begin a new incarnation (SCL-4).
    ///
    /// # Errors
    /// When the disk refuses; the log is then as before.
    pub fn resend_after(&mut self, seq: u64, fresh: &Incarnation) -> Result<()> {
        let (acked, oldest) = (self.state.offset + seq, self.oldest.max(self.state.offset + 1));
        if acked >= self.state.acked {
            return Ok(());
        }
        if acked + 1 >= oldest {
            return self.append_staged(LogState { acked, ..self.state.clone() });
        }
        if *fresh == self.state.incarnation {
            return Err(SpoolError::SameIncarnation);
        }
        let before = oldest - 1;
        self.append_staged(LogState { incarnation: fresh.clone(), offset: before, acked: before })
    }

    /// Segments with pending facts are gone, or are not what was written there: the facts of `remembered`, and those
    /// that can be read, begin a new incarnation. Says what was lost, in words.
    ///
    /// # Errors
    /// When the disk refuses; the log is then as before.
    pub fn mend(&mut self, fresh: &Incarnation, remembered: &[Fact]) -> Result<Vec<String>> {
        if *fresh == self.state.incarnation {
            return Err(SpoolError::SameIncarnation);
        }
        self.rewrite(fresh, remembered, &[])
    }

    /// The first segment that is needed in a state: of pending facts, or the newest.
    fn first_needed(&self, state: &LogState) -> u64 {
        let pending = self.lasts.iter().find(|(_, last)| **last > state.acked);
        let newest = self.log.segments().last_key_value().map_or(self.log.first(), |(number, _)| *number);
        pending.map_or(newest, |(number, _)| *number)
    }

    /// The bytes of the segments that are needed.
    fn pending_bytes(&self) -> u64 {
        let needed = self.log.segments().range(self.first_needed(&self.state)..);
        needed.map(|(_, segment)| segment.bytes).sum()
    }

    /// Makes what was staged and a state durable; segments without pending facts go, but for the newest.
    fn append_staged(&mut self, state: LogState) -> Result<()> {
        let (batch, count) = (std::mem::take(&mut self.staged), std::mem::take(&mut self.staged_count));
        let needed = self.first_needed(&state);
        self.log.make_directory()?;
        let first = self.lasts.range(..needed).next_back().map_or(needed, |(number, _)| *number);
        let (segment, _) = self.log.append(&[&batch.bytes], state.clone(), first)?;
        if count > 0 {
            self.head += count;
            self.lasts.insert(segment, self.head);
        }
        let kept = self.lasts.split_off(&first);
        if let Some((_, last)) = std::mem::replace(&mut self.lasts, kept).last_key_value() {
            self.oldest = last + 1;
        }
        self.state = state;
        Ok(())
    }

    /// Writes what is sound anew, and what is remembered, in a new incarnation; sets the damaged segments aside,
    /// and those that turn out to be.
    fn rewrite(&mut self, fresh: &Incarnation, remembered: &[Fact], damaged: &[u64]) -> Result<Vec<String>> {
        let (acked, offset) = (self.state.acked, self.state.offset);
        let waits = remembered.iter().filter(|fact| offset + fact.seq > acked);
        let mut facts: BTreeMap<u64, Fact> =
            waits.map(|fact| (offset + fact.seq, fact.clone())).collect_inserting();
        let mut damaged = damaged.to_vec();
        for number in self.lasts.iter().filter(|(_, last)| **last > acked).map(|(number, _)| *number) {
            let read = self.log.entries(number, &mut |payload| {
                if let Some((position, json)) = split(payload).filter(|(position, _)| *position > acked) {
                    facts.insert(position, decode(position - offset, json));
                }
                Ok(true)
            });
            match read {
                Ok(_) => {}
                Err(SpoolError::Damaged { .. }) => damaged.push(number),
                Err(error) => return Err(error),
            }
        }
        let mut batch = RecordBatch::default();
        let mut count = 0;
        for fact in facts.into_values() {
            count += 1;
            push(&mut batch, self.head + count, &Fact { seq: count, ..fact })?;
        }
        let state = LogState { incarnation: fresh.clone(), offset: self.head, acked: self.head };
        let first = self.log.rotate();
        let parts = [batch.bytes.as_slice()];
        self.log.make_directory()?;
        let (_, aside) = self.log.append_without(&damaged, &parts, state.clone(), first)?;
        self.oldest = self.head + 1;
        (self.state, self.head) = (state, self.head + count);
        self.lasts = BTreeMap::from([(first, self.head)]);
        Ok(segmented::repairs("facts", self.log.directory(), &aside))
    }

    /// Gives position and JSON of each pending fact in order to `take`, until it says `false`.
    fn each_pending(&self, take: &mut dyn FnMut(u64, &[u8]) -> Result<bool>) -> Result<()> {
        for (number, _) in self.lasts.iter().filter(|(_, last)| **last > self.state.acked) {
            let goes_on = self.log.entries(*number, &mut |payload| match split(payload) {
                Some((position, json)) if position > self.state.acked => take(position, json),
                _ => Ok(true),
            })?;
            if !goes_on {
                break;
            }
        }
        Ok(())
    }
}

/// Adds the record of a fact: its position, then the fact as JSON. The position apart, so that
/// opening a log need not read JSON.
fn push(batch: &mut RecordBatch, position: u64, fact: &Fact) -> Result<()> {
    let length = batch.push(FACT, |out| {
        out.extend_from_slice(&position.to_le_bytes());
        serde_json::to_writer(out, fact)
    })?;
    if length as usize > MAX_FACT_BYTES {
        return Err(SpoolError::TooLarge { what: FACT, limit: MAX_FACT_BYTES as u64 });
    }
    Ok(())
}

fn split(payload: &[u8]) -> Option<(u64, &[u8])> {
    let (position, json) = payload.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*position), json))
}

/// The fact of a record. One that this version cannot read, because a newer one wrote it,
/// keeps its number, so that those after it are not held up.
fn decode(seq: u64, json: &[u8]) -> Fact {
    match serde_json::from_slice::<Fact>(json) {
        Ok(fact) => Fact { seq, ..fact },
        Err(error) => {
            let message = format!("fact {seq} was written by another version and cannot be read: {error}");
            Fact { seq, at: Timestamp::default(), body: FactBody::Repaired { message } }
        }
    }
}

/// How many reserves a fact may not use.
fn reserves(body: &FactBody) -> u64 {
    match body {
        // At most as many as run at a time, and none begins when its beginning has no room.
        FactBody::Action(ActionFact { event: ActionEvent::Ended { outcome, .. }, .. }) => match outcome {
            ActionOutcome::Exited { .. }
            | ActionOutcome::Signalled { .. }
            | ActionOutcome::TimedOut
            | ActionOutcome::Unknown
            | ActionOutcome::Answered { .. }
            | ActionOutcome::HandedOver => 0,
            ActionOutcome::Cancelled
            | ActionOutcome::Refused { .. }
            | ActionOutcome::Failed { .. }
            | ActionOutcome::Expired => 2,
        },
        FactBody::Action(_) | FactBody::Rollout(_) => 2,
        FactBody::Run(_) | FactBody::Contended { .. } => 1,
        _ => 0,
    }
}
