#![allow(dead_code, reason = "each test file uses its own part")]

pub mod objects;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::log::{Fact, FactBody};
use model::{Incarnation, Timestamp};
use spool::log::OpenedLog;
use spool::{Disk, FactLog, FaultAction, Faults, LogLimits, Point};

/// A directory in memory where there is one: no test here waits for a disk.
pub fn tempdir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Faults at given points.
pub struct Plan(pub BTreeMap<u64, FaultAction>);

impl Faults for Plan {
    fn before(&self, point: Point<'_>) -> FaultAction {
        self.0.get(&point.number).copied().unwrap_or(FaultAction::Go)
    }
}

/// A disk with one fault.
pub fn fault_at(point: u64, action: FaultAction) -> Disk {
    Disk::with_faults(Arc::new(Plan(BTreeMap::from([(point, action)]))))
}

/// A disk that is full while the switch is on.
#[derive(Default)]
pub struct Full {
    pub on: AtomicBool,
    /// Writes are done by half before they fail.
    pub tear: bool,
}

impl Faults for Full {
    fn before(&self, point: Point<'_>) -> FaultAction {
        use spool::DiskOp::{Append, MakeDir, Open, Write};
        if !self.on.load(Ordering::Relaxed) || !matches!(point.op, Append | Write | MakeDir | Open) {
            return FaultAction::Go;
        }
        if self.tear {
            FaultAction::Tear(ErrorKind::StorageFull)
        } else {
            FaultAction::Fail(ErrorKind::StorageFull)
        }
    }
}

/// Small segments, so that a few facts fill several.
pub const SMALL: LogLimits = LogLimits { max_bytes: 1 << 20, reserve_bytes: 1 << 18, segment_bytes: 300 };

pub fn incarnation(name: &str) -> Incarnation {
    name.parse().unwrap()
}

pub fn open(disk: &Disk, directory: &Path, fresh: &str) -> spool::Result<OpenedLog> {
    FactLog::open(disk, directory, &incarnation(fresh), SMALL)
}

/// A fact that says this.
pub fn said(text: &str) -> FactBody {
    FactBody::Repaired { message: text.into() }
}

pub fn now() -> Timestamp {
    Timestamp::from_secs(1_800_000_000)
}

/// What the facts say, with their numbers.
pub fn texts(facts: &[Fact]) -> Vec<(u64, String)> {
    let text = |fact: &Fact| match &fact.body {
        FactBody::Repaired { message } => message.clone(),
        other => other.kind().into(),
    };
    facts.iter().map(|fact| (fact.seq, text(fact))).collect()
}

/// All that is pending.
pub fn pending(log: &FactLog) -> Vec<(u64, String)> {
    texts(&log.pending(usize::MAX, usize::MAX).unwrap())
}
