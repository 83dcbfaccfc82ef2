//! A node's disk: what was written survives the power; the power may go at any write.

use std::collections::BTreeMap;

use model::log::{Fact, FactBody};
use model::{Digest, Incarnation, Timestamp};
use node::{Adoption, FreshnessRecord, LastRun};

/// What is on the disk.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) adoption: Option<Adoption>,
    pub(crate) freshness: Option<FreshnessRecord>,
    pub(crate) last_run: Option<LastRun>,
    pub(crate) contents: BTreeMap<Digest, String>,
    pub(crate) log: Log,
}

/// The log of facts that wait.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) incarnation: Incarnation,
    pub(crate) facts: Vec<Fact>,
    pub(crate) last: u64,
}

impl Log {
    pub(crate) fn new(incarnation: Incarnation) -> Log {
        Log { incarnation, facts: vec![], last: 0 }
    }

    pub(crate) fn append(&mut self, body: FactBody, at: Timestamp) {
        self.last += 1;
        self.facts.push(Fact { seq: self.last, at, body });
    }

    pub(crate) fn ack(&mut self, seq: u64) {
        self.facts.retain(|fact| fact.seq > seq);
    }
}

/// The power went, and with it everything that was not on the disk; or the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    PowerLost,
    Full,
}

/// Whether the write at which the power goes was still done.
#[derive(Clone, Copy, Debug)]
struct Fuse {
    writes: usize,
    done: bool,
}

/// Files, and what is going to happen to them.
#[derive(Debug)]
pub(crate) struct Disk {
    files: Files,
    fuse: Option<Fuse>,
    pub(crate) full: bool,
}

impl Disk {
    pub(crate) fn new(incarnation: Incarnation) -> Disk {
        let files = Files {
            adoption: None,
            freshness: None,
            last_run: None,
            contents: BTreeMap::new(),
            log: Log::new(incarnation),
        };
        Disk { files, fuse: None, full: false }
    }

    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// The power goes at the write after so many others, before or after it is done.
    pub(crate) fn lose_power_after(&mut self, writes: usize, done: bool) {
        self.fuse = Some(Fuse { writes, done });
    }

    /// One atomic, durable write.
    pub(crate) fn write(&mut self, change: impl FnOnce(&mut Files)) -> Result<(), WriteError> {
        match &mut self.fuse {
            Some(Fuse { writes: 0, done }) => {
                if *done && !self.full {
                    change(&mut self.files);
                }
                self.fuse = None;
                return Err(WriteError::PowerLost);
            }
            Some(fuse) => fuse.writes -= 1,
            None => {}
        }
        if self.full {
            return Err(WriteError::Full);
        }
        change(&mut self.files);
        Ok(())
    }

    /// The log was found damaged: a new one begins, under a new name.
    pub(crate) fn lose_log(&mut self, incarnation: Incarnation) {
        self.files.log = Log::new(incarnation);
    }
}
