//! [`Journal`]: a map whose changes are durable, an index over a segmented log.
//!
//! ```text
//! apply(puts, removes) -> one batch -> entries in memory
//! more than twice as many records as entries -> all entries as a batch, earlier segments go
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Disk;
use crate::error::{Result, SpoolError};
use crate::segmented::{self, RecordBatch, SegmentedLog};

/// The most bytes of a journal.
pub const MAX_JOURNAL: u64 = 512 * 1024 * 1024;
/// The most entries of a journal.
pub const MAX_ENTRIES: usize = 1_000_000;
/// The largest batch, in bytes.
pub const MAX_BATCH: usize = 16 * 1024 * 1024;
/// A segment is followed by the next one from this size on, in bytes.
const SEGMENT: u64 = 4 * 1024 * 1024;
/// Records that are obsolete before a compaction is thought of; beyond it there must be
/// more of them than of others.
const SPARE: usize = 1000;
/// What an error calls an entry.
const ENTRY: &str = "an entry of a journal";

/// A map on disk. Reading is from memory; a change is durable when it returns.
#[derive(Debug)]
pub struct Journal<K, V> {
    log: SegmentedLog<()>,
    entries: BTreeMap<K, V>,
    /// Puts and removes in the log.
    written: usize,
}

/// A journal, and what had to be done to open it.
#[derive(Debug)]
pub struct OpenedJournal<K, V> {
    /// The journal, with what was not damaged.
    pub journal: Journal<K, V>,
    /// What was found damaged and what became of it, in words; empty after an ordinary crash.
    pub repairs: Vec<String>,
}

impl<K, V> Journal<K, V>
where
    K: Ord + Clone + Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    /// Opens the journal in a directory, which is made if need be. Only one process at a time
    /// may have it ([`crate::StateLock`]).
    ///
    /// # Errors
    /// [`SpoolError::TooNew`], and those of the disk.
    pub fn open(disk: &Disk, directory: &Path) -> Result<OpenedJournal<K, V>> {
        Journal::open_making_good(disk, directory, |_| {})
    }

    /// As [`Journal::open`]. Where damage lost entries, `make_good` is given those that are left, and what
    /// it puts is durable together with the repair: a crash leaves either the damage or both.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_making_good(
        disk: &Disk,
        directory: &Path,
        make_good: impl FnOnce(&mut BTreeMap<K, V>),
    ) -> Result<OpenedJournal<K, V>> {
        let (mut entries, mut written) = (BTreeMap::new(), 0);
        let segmented::RecoveredLog { log, damaged } =
            SegmentedLog::open(disk, directory, "journal", SEGMENT, &mut |_, payload| {
                let read = serde_json::from_slice::<(K, Option<V>)>(payload).ok();
                written += 1;
                read.map(|(key, value)| remember(&mut entries, key, value)).is_some()
            })?;
        let mut journal = Journal { log, entries, written };
        let repairs = if damaged.is_empty() {
            Vec::new()
        } else {
            make_good(&mut journal.entries);
            segmented::repairs("entries", directory, &journal.compact(&damaged)?)
        };
        Ok(OpenedJournal { journal, repairs })
    }

    /// The entries, and nothing more of the journal.
    pub fn into_entries(self) -> BTreeMap<K, V> {
        self.entries
    }

    /// The entries.
    pub fn entries(&self) -> &BTreeMap<K, V> {
        &self.entries
    }

    /// The entry of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// Puts an entry in place of the one that may be there.
    ///
    /// # Errors
    /// As [`Journal::apply`].
    pub fn put(&mut self, key: K, value: V) -> Result<()> {
        self.apply(vec![(key, Some(value))])
    }

    /// Removes an entry; fine if there is none.
    ///
    /// # Errors
    /// As [`Journal::apply`].
    pub fn remove(&mut self, key: K) -> Result<()> {
        self.apply(vec![(key, None)])
    }

    /// Puts (`Some`) and removes (`None`) entries in order, all or none, with one sync.
    ///
    /// # Errors
    /// [`SpoolError::TooLarge`] beyond [`MAX_BATCH`], [`MAX_ENTRIES`] and [`MAX_JOURNAL`], and
    /// those of the disk; nothing has changed then, but the next opening may find the batch.
    pub fn apply(&mut self, changes: Vec<(K, Option<V>)>) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut batch = RecordBatch::default();
        for change in &changes {
            batch.push(ENTRY, |out| serde_json::to_writer(out, change))?;
        }
        if batch.bytes.len() > MAX_BATCH {
            return Err(SpoolError::TooLarge { what: "a batch of a journal", limit: MAX_BATCH as u64 });
        }
        if self.entries.len() + changes.len() > MAX_ENTRIES
            || self.log.bytes() + batch.bytes.len() as u64 > MAX_JOURNAL
        {
            return Err(SpoolError::TooLarge { what: "a journal", limit: MAX_JOURNAL });
        }
        self.write_again_what_is_gone()?;
        self.log.append(&[&batch.bytes], (), self.log.first())?;
        self.written += changes.len();
        for (key, value) in changes {
            remember(&mut self.entries, key, value);
        }
        if self.written > 2 * self.entries.len() + SPARE
            && let Err(error) = self.compact(&[])
        {
            // The batch is durable all the same; the next one tries again.
            tracing::warn!(path = %self.log.directory().display(), %error, "a journal was not compacted");
        }
        Ok(())
    }

    /// Writes all entries anew where segments that hold them were removed from under this process.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write_again_what_is_gone(&mut self) -> Result<()> {
        if self.log.is_in_place() {
            return Ok(());
        }
        tracing::warn!(path = %self.log.directory().display(), "a journal is gone from the disk: it is written anew");
        self.log.make_directory()?;
        self.compact(&[]).map(drop)
    }

    /// Appends all entries, so that earlier segments go and damaged ones are set aside; returns
    /// where those are.
    fn compact(&mut self, damaged: &[u64]) -> Result<Vec<PathBuf>> {
        let mut batch = RecordBatch::default();
        for (key, value) in &self.entries {
            batch.push(ENTRY, |out| serde_json::to_writer(out, &(key, Some(value))))?;
        }
        let first = self.log.rotate();
        let (_, aside) = self.log.append_without(damaged, &[&batch.bytes], (), first)?;
        self.written = self.entries.len();
        Ok(aside)
    }
}

fn remember<K: Ord, V>(entries: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => entries.insert(key, value),
        None => entries.remove(&key),
    };
}
