//! [`FactLog`]: the node's facts, kept until they are acknowledged.

mod recovery;

use std::fs::File;
use std::path::{Path, PathBuf};

use model::log::{Fact, FactBody, MAX_FACT_BYTES};
use model::work::{ActionEvent, ActionFact, Outcome};
use model::{Incarnation, Timestamp};
use serde::{Deserialize, Serialize};

use crate::atomic::{Slot, free_name};
use crate::error::{Result, SpoolError};
use crate::segment::{self, Segment};
use crate::{Disk, Op};

/// The most bytes of facts that wait, by default.
pub const MAX_LOG: u64 = 64 * 1024 * 1024;
/// The part of them that only facts other than runs may use, by default. As much again is kept
/// from what actions say, but for what became of those that ran.
pub const RESERVE: u64 = 8 * 1024 * 1024;
/// A file of the log is followed by the next one from this size on, by default.
pub const SEGMENT: u64 = 256 * 1024;
/// Mode of the files made here.
const MODE: u32 = 0o600;

/// How much a log may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes that wait.
    pub max_bytes: u64,
    /// The part of them that only facts other than runs may use. As much again is kept from
    /// what the control plane can cause without end: output, beginnings and refusals of actions.
    pub reserve_bytes: u64,
    /// A file is followed by the next one from this size on, in bytes.
    pub segment_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_bytes: MAX_LOG, reserve_bytes: RESERVE, segment_bytes: SEGMENT }
    }
}

/// A log, and what had to be done to open it.
#[derive(Debug)]
pub struct Opened {
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
    disk: Disk,
    directory: PathBuf,
    limits: Limits,
    slot: Slot<State>,
    state: State,
    /// In order; the last one is appended to.
    segments: Vec<Segment>,
    /// The last segment, while it may be appended to.
    active: Option<File>,
    /// A change of incarnation failed, so which one is on disk is not known for sure: it has to
    /// be written again before anything is appended to this one.
    unsure: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    incarnation: Incarnation,
    /// Everything up to this number was acknowledged.
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
    /// When the disk refuses.
    pub fn open(disk: &Disk, directory: &Path, fresh: &Incarnation, limits: Limits) -> Result<Opened> {
        disk.make_dir(directory)?;
        let slot: Slot<State> = Slot::new(disk, directory.join("log.json"), MODE);
        let loaded = slot.load()?;
        let mut repairs: Vec<String> = Vec::new();
        if let Some(aside) = loaded.set_aside {
            repairs.push(format!("the log's state was damaged; it is now {}", aside.display()));
        }
        let known = loaded.value;
        let state = match &known {
            Some(state) => state.clone(),
            None => State { incarnation: recovery::abandoned(directory)?.unwrap_or(fresh.clone()), acked: 0 },
        };
        let mut log = FactLog {
            disk: disk.clone(),
            directory: directory.to_owned(),
            limits,
            slot,
            state,
            segments: vec![],
            active: None,
            unsure: false,
        };
        let found = log.read_segments()?;
        if found.gap || (known.is_none() && !log.segments.is_empty()) {
            log.restart(fresh)?;
        } else if known.is_none() {
            log.state.incarnation = fresh.clone();
            log.slot.store(&log.state)?;
        } else {
            log.open_last()?;
        }
        for path in found.damaged {
            let aside = free_name(&directory.join("facts"));
            disk.rename(&path, &aside)?;
            repairs.push(format!("facts were damaged; what is left of them is in {}", aside.display()));
        }
        if found.gap && repairs.is_empty() {
            repairs.push("facts are missing from the log".into());
        }
        log.remove_other_lives()?;
        Ok(Opened { log, repairs })
    }

    /// The incarnation of this log.
    pub fn incarnation(&self) -> &Incarnation {
        &self.state.incarnation
    }

    /// Everything up to this number was acknowledged.
    pub fn acked(&self) -> u64 {
        self.state.acked
    }

    /// The number of the newest fact; 0 when there was none.
    pub fn last(&self) -> u64 {
        self.segments.last().map_or(self.state.acked, |segment| segment.last.max(self.state.acked))
    }

    /// The bytes that wait.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Appends a fact; returns its number. Durable when it returns.
    ///
    /// # Errors
    /// As [`FactLog::append_many`].
    pub fn append(&mut self, body: FactBody, at: Timestamp) -> Result<u64> {
        self.append_many(vec![body], at).map(|_| self.last())
    }

    /// Appends facts, all or none; returns their numbers. Durable when it returns.
    ///
    /// # Errors
    /// [`SpoolError::LogFull`] when too much waits (actions first, then runs: other facts
    /// have a reserve, and so has what became of an action that ran), [`SpoolError::TooLarge`] for a fact that no request could carry, and
    /// those of the disk.
    pub fn append_many(&mut self, bodies: Vec<FactBody>, at: Timestamp) -> Result<Vec<u64>> {
        // Facts of several kinds at once go by the one with the most room.
        let kept_from = bodies.iter().map(reserves).min().unwrap_or(0);
        let first = self.last() + 1;
        let mut bytes = Vec::new();
        let mut numbers = Vec::with_capacity(bodies.len());
        for (seq, body) in (first..).zip(bodies) {
            let before = bytes.len();
            segment::push(&mut bytes, &Fact { seq, at, body })?;
            if bytes.len() - before > MAX_FACT_BYTES {
                return Err(SpoolError::TooLarge { what: "a fact", limit: MAX_FACT_BYTES as u64 });
            }
            numbers.push(seq);
        }
        let reserve = self.limits.reserve_bytes.saturating_mul(kept_from);
        let limit = self.limits.max_bytes.saturating_sub(reserve);
        if self.bytes() + bytes.len() as u64 > limit {
            return Err(SpoolError::LogFull { limit });
        }
        if let Some(last) = numbers.last() {
            self.append_bytes(&bytes, first, *last)?;
        }
        Ok(numbers)
    }

    /// Facts that were not acknowledged, in order: at most so many, and so many bytes as
    /// JSON, but at least one if there is any.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn pending(&self, max_facts: usize, max_bytes: usize) -> Result<Vec<Fact>> {
        let mut facts = Vec::new();
        let mut bytes = 0;
        self.each_pending(&mut |seq, json| {
            bytes += json.len();
            if facts.len() >= max_facts || (bytes > max_bytes && !facts.is_empty()) {
                return Ok(false);
            }
            facts.push(segment::decode(seq, json));
            Ok(true)
        })?;
        Ok(facts)
    }

    /// Everything up to `seq` is durable at the receiver. Durable here when it returns;
    /// files that hold nothing else go.
    ///
    /// # Errors
    /// [`SpoolError::AckBeyond`] when there is no such fact here, and those of the disk.
    pub fn ack(&mut self, seq: u64) -> Result<()> {
        let last = self.last();
        if seq > last {
            return Err(SpoolError::AckBeyond { acked: seq, last });
        }
        if seq <= self.state.acked {
            return Ok(());
        }
        let state = State { acked: seq, ..self.state.clone() };
        self.slot.store(&state)?;
        self.state = state;
        while self.segments.first().is_some_and(|first| first.last <= seq) {
            let done = self.segments.remove(0);
            if self.segments.is_empty() {
                self.active = None;
            }
            // What stays is found again at the next opening, and is below the cursor.
            if let Err(error) = self.disk.unlink(&done.path) {
                tracing::warn!(%error, "an acknowledged part of the log stays");
            }
        }
        Ok(())
    }

    /// Begins a new incarnation with the facts that were not acknowledged, numbered from 1: when
    /// this state turned out to be an old copy, or when the other side has lost what it
    /// had acknowledged.
    ///
    /// # Errors
    /// When the disk refuses; the log is then as before.
    pub fn begin_anew(&mut self, fresh: &Incarnation) -> Result<()> {
        self.restart(fresh)?;
        self.remove_other_lives()
    }
}

/// How many reserves a fact may not use.
fn reserves(body: &FactBody) -> u64 {
    match body {
        // At most as many as run at a time, and none begins when its beginning has no room.
        FactBody::Action(ActionFact { event: ActionEvent::Ended { outcome, .. }, .. }) => match outcome {
            Outcome::Exited { .. }
            | Outcome::Signalled { .. }
            | Outcome::TimedOut
            | Outcome::Unknown
            | Outcome::Answered { .. } => 0,
            Outcome::Cancelled | Outcome::Refused { .. } | Outcome::Failed { .. } | Outcome::Expired => 2,
        },
        FactBody::Action(_) => 2,
        FactBody::Run(_) => 1,
        _ => 0,
    }
}

/// Appending.
impl FactLog {
    fn append_bytes(&mut self, bytes: &[u8], first: u64, last: u64) -> Result<()> {
        if self.unsure {
            self.slot.store(&self.state)?;
            self.unsure = false;
        }
        let full = self.segments.last().is_none_or(|segment| segment.bytes >= self.limits.segment_bytes);
        if full || self.active.is_none() {
            let (segment, file) = self.new_segment(first, bytes, last)?;
            self.segments.push(segment);
            self.active = Some(file);
            return Ok(());
        }
        let (Some(segment), Some(file)) = (self.segments.last_mut(), self.active.as_mut()) else {
            return Ok(());
        };
        let written = self
            .disk
            .write(Op::Append, file, &segment.path, bytes)
            .and_then(|()| self.disk.sync(file, &segment.path));
        if let Err(error) = written {
            // What the file holds now is not known for sure, so it is not appended to any
            // more. If the cut fails too, the next segment's first number says where this
            // one ends.
            let _ = self.disk.truncate(file, &segment.path, segment.bytes);
            self.active = None;
            return Err(error);
        }
        segment.bytes += bytes.len() as u64;
        segment.last = last;
        Ok(())
    }

    fn new_segment(&self, first: u64, bytes: &[u8], last: u64) -> Result<(Segment, File)> {
        let incarnation = self.incarnation_path();
        self.disk.make_dir(&incarnation)?;
        let path = segment::path(&incarnation, first);
        let make = || {
            let mut file = self.disk.create(&path, MODE)?;
            self.disk.write(Op::Append, &mut file, &path, bytes)?;
            self.disk.sync(&file, &path)?;
            self.disk.sync_dir(&incarnation)?;
            Ok(file)
        };
        match make() {
            Ok(file) => Ok((Segment { path, first, last, bytes: bytes.len() as u64 }, file)),
            Err(error) => {
                // If it stays, it is replaced by the next try, or found at the next
                // opening as facts that were appended after all.
                let _ = self.disk.unlink(&path);
                Err(error)
            }
        }
    }

    fn incarnation_path(&self) -> PathBuf {
        self.directory.join(self.state.incarnation.as_str())
    }
}
