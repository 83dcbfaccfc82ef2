//! The ledger and what runs owe, in the state directory (CNV-10).

use std::collections::BTreeSet;
use std::path::PathBuf;

use converge::{Ledger, LedgerEntry, Pending, Record, ResourceId};
use model::Digest;
use spool::{Disk, Journal, PeekedFile, StateFile};

use super::resting_journal::RestingJournal;
use super::{Durable, StateError, locked, spool};
use crate::guard::{CHANGES_FILE, GuardedChanges};

/// The ledger's journal: in memory while a run may record something, and on disk alone otherwise, as it has an
/// entry for each thing that Muster changed. Each run so notices what was damaged since the last one.
pub(super) struct LedgerJournal {
    journal: RestingJournal<ResourceId, LedgerEntry>,
    /// Runs under way that may record something.
    runs: usize,
}

impl LedgerJournal {
    /// The journal in a directory, read, so that one of a newer version is refused. It stays in memory until
    /// the first run ended.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn open(
        disk: &Disk,
        directory: PathBuf,
        repaired: impl FnMut(String),
    ) -> Result<LedgerJournal, StateError> {
        let mut journal = RestingJournal::new(disk, directory);
        journal.get(repaired).map_err(spool("read the ledger"))?;
        Ok(LedgerJournal { journal, runs: 0 })
    }

    /// Lets go of it, unless a run may record something in it.
    fn settle(&mut self) {
        if self.runs == 0 {
            self.journal.rest();
        }
    }
}

/// A run that may record something: while there is one the ledger is in memory.
pub(crate) struct RecordingRun<'a>(&'a Durable);

impl Drop for RecordingRun<'_> {
    fn drop(&mut self) {
        let mut ledger = locked(&self.0.ledger);
        ledger.runs = ledger.runs.saturating_sub(1);
        ledger.settle();
        drop(ledger);
        self.0.versions.end_run();
    }
}

impl Durable {
    /// What is still owed.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn pending(&self) -> Result<Pending, StateError> {
        Ok(self.load(&self.pending, "read what is owed")?.unwrap_or_default())
    }

    /// A run begins that may record something: its records are numbered from the start.
    pub(crate) fn begin_run(&self) -> RecordingRun<'_> {
        *locked(&self.written) = 0;
        locked(&self.ledger).runs += 1;
        self.versions.begin_run();
        RecordingRun(self)
    }

    /// The ledger.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn ledger(&self) -> Result<Ledger, StateError> {
        let mut ledger = locked(&self.ledger);
        let repaired = |repair| self.repaired(repair);
        let entries = match ledger.runs > 0 || ledger.journal.is_in_memory() {
            true => ledger.journal.get(repaired).map(|journal| journal.entries().clone()),
            false => ledger.journal.take(repaired).map(Journal::into_entries),
        };
        Ok(Ledger { entries: entries.map_err(spool("read the ledger"))? })
    }

    /// Makes records of a run durable, with one sync of each file. Records of jobs beside each
    /// other may come out of order; an older `pending` is not written over a newer one.
    ///
    /// # Errors
    /// When they cannot be written; the host must not be touched then.
    pub fn persist(&self, records: &[Record]) -> Result<(), StateError> {
        let mut batch = Vec::new();
        for record in records {
            batch.extend(record.put.iter().map(|(id, entry)| (id.clone(), Some(entry.clone()))));
            batch.extend(record.remove.iter().map(|id| (id.clone(), None)));
        }
        if !batch.is_empty() {
            let mut ledger = locked(&self.ledger);
            let journal =
                ledger.journal.get(|repair| self.repaired(repair)).map_err(spool("read the ledger"))?;
            let applied = journal.apply(batch).map_err(spool("record in the ledger"));
            // A job that ends after its run was not waited for.
            ledger.settle();
            applied?;
        }
        let owed = records.iter().filter_map(|record| Some((record.generation, record.pending.as_ref()?)));
        let Some((generation, pending)) = owed.max_by_key(|(generation, _)| *generation) else {
            return Ok(());
        };
        let mut written = locked(&self.written);
        if generation < *written {
            return Ok(());
        }
        self.pending.store(pending).map_err(spool("record what is owed"))?;
        *written = generation;
        Ok(())
    }

    /// Digests of what undoing and removing need.
    pub(super) fn kept_for_undo(&self) -> Result<BTreeSet<Digest>, StateError> {
        // The script that removes what it made.
        let script = |entry: &LedgerEntry| entry.attributes.get("sha256")?.as_str()?.parse().ok();
        let mut kept = BTreeSet::new();
        for entry in self.ledger()?.entries.values() {
            kept.extend(entry.prior.digests().into_iter().chain(script(entry)));
        }
        let pending = self.pending()?;
        kept.extend(pending.unverified.values().flatten().flat_map(|undo| undo.prior.digests()));
        let guarded: StateFile<GuardedChanges> =
            StateFile::new(&self.disk, self.path.join(CHANGES_FILE), super::MODE);
        if let PeekedFile::Value(changes) =
            guarded.peek().map_err(super::spool("read what a guarded run changed"))?
        {
            kept.extend(changes.digests());
        }
        Ok(kept)
    }
}
