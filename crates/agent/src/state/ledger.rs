//! The ledger and what runs owe, in the state directory (CNV-10).

use std::collections::BTreeSet;
use std::path::PathBuf;

use converge::{Ledger, LedgerEntry, Pending, Record, ResourceId};
use model::Digest;
use spool::{Disk, Journal, PeekedFile, StateFile};

use super::{Durable, StateError, locked, spool};
use crate::guard::{CHANGES_FILE, GuardedChanges};

/// The ledger's journal: in memory while a run may record something, and on disk alone otherwise, as it has an
/// entry for each thing that Muster changed.
pub(super) struct LedgerJournal {
    disk: Disk,
    directory: PathBuf,
    journal: Option<Journal<ResourceId, LedgerEntry>>,
    /// Runs under way that may record something.
    runs: usize,
}

impl LedgerJournal {
    /// The journal in a directory, read, so that one of a newer version is refused. It stays in memory until
    /// the first run ended.
    ///
    /// # Errors
    /// As [`LedgerJournal::read`].
    pub(super) fn open(
        disk: &Disk,
        directory: PathBuf,
        repaired: impl FnMut(String),
    ) -> Result<LedgerJournal, StateError> {
        let mut ledger = LedgerJournal { disk: disk.clone(), directory, journal: None, runs: 0 };
        ledger.journal = Some(ledger.read(repaired)?);
        Ok(ledger)
    }

    /// Takes the journal out of memory, or reads it. What was found damaged is set aside and given to
    /// `repaired`, in words.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&mut self, repaired: impl FnMut(String)) -> Result<Journal<ResourceId, LedgerEntry>, StateError> {
        if let Some(journal) = self.journal.take() {
            return Ok(journal);
        }
        let opened = Journal::open(&self.disk, &self.directory).map_err(spool("read the ledger"))?;
        opened.repairs.into_iter().for_each(repaired);
        Ok(opened.journal)
    }
}

/// A run that may record something: while there is one the ledger is in memory.
pub(crate) struct RecordingRun<'a>(&'a Durable);

impl Drop for RecordingRun<'_> {
    fn drop(&mut self) {
        let mut ledger = locked(&self.0.ledger);
        ledger.runs = ledger.runs.saturating_sub(1);
        if ledger.runs == 0 {
            ledger.journal = None;
        }
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
        RecordingRun(self)
    }

    /// The ledger.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn ledger(&self) -> Result<Ledger, StateError> {
        let mut ledger = locked(&self.ledger);
        let stays = ledger.runs > 0 || ledger.journal.is_some();
        let journal = ledger.read(|repair| self.repaired(repair))?;
        if !stays {
            return Ok(Ledger { entries: journal.into_entries() });
        }
        Ok(Ledger { entries: ledger.journal.insert(journal).entries().clone() })
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
            let mut journal = ledger.read(|repair| self.repaired(repair))?;
            let applied = journal.apply(batch).map_err(spool("record in the ledger"));
            // A job that ends after its run was not waited for.
            ledger.journal = (ledger.runs > 0).then_some(journal);
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
