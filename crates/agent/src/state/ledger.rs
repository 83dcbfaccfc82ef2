//! The ledger and what runs owe, in the state directory (CNV-10).

use std::collections::BTreeSet;
use std::path::PathBuf;

use converge::{Ledger, LedgerEntry, Pending, Record, ResourceId};
use model::Digest;
use spool::{Disk, Journal};

use super::{Durable, StateError, locked, spool};

/// The ledger's journal: in memory while a run needs it, and on disk alone between runs, as it has an entry for
/// each thing that Muster changed.
pub(super) struct LedgerJournal {
    disk: Disk,
    directory: PathBuf,
    journal: Option<Journal<ResourceId, LedgerEntry>>,
}

impl LedgerJournal {
    pub(super) fn new(disk: &Disk, directory: PathBuf) -> LedgerJournal {
        LedgerJournal { disk: disk.clone(), directory, journal: None }
    }

    /// The journal, read from the disk where it is not in memory. What was found damaged is set aside and
    /// given to `repaired`, in words.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn open(
        &mut self,
        repaired: impl FnMut(String),
    ) -> Result<&mut Journal<ResourceId, LedgerEntry>, StateError> {
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => {
                let opened = Journal::open(&self.disk, &self.directory).map_err(spool("read the ledger"))?;
                opened.repairs.into_iter().for_each(repaired);
                opened.journal
            }
        };
        Ok(self.journal.insert(journal))
    }

    fn close(&mut self) {
        self.journal = None;
    }
}

impl Durable {
    /// What is still owed. A new run begins with this call: its records count from here.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn pending(&self) -> Result<Pending, StateError> {
        Ok(self.load(&self.pending, "read what is owed")?.unwrap_or_default())
    }

    /// A new run begins: its records are numbered from the start.
    pub fn begin_run(&self) {
        *locked(&self.written) = 0;
    }

    /// A run ended: what only runs need of the state is not kept in memory until the next one.
    pub fn end_run(&self) {
        locked(&self.ledger).close();
    }

    /// The ledger.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn ledger(&self) -> Result<Ledger, StateError> {
        let mut ledger = locked(&self.ledger);
        let journal = ledger.open(|repair| self.repaired(repair))?;
        Ok(Ledger { entries: journal.entries().clone() })
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
            let journal = ledger.open(|repair| self.repaired(repair))?;
            journal.apply(batch).map_err(spool("record in the ledger"))?;
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
        Ok(kept)
    }
}
