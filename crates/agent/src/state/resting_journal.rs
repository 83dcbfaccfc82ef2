//! [`RestingJournal`]: a journal that is on disk alone while nobody needs it.

use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spool::{Disk, Journal, SpoolError};

/// A journal that is read when it is needed and stays in memory until it rests: thousands of small entries hold the pages of
/// what was allocated beside them and is freed.
pub(crate) struct RestingJournal<K, V> {
    disk: Disk,
    directory: PathBuf,
    journal: Option<Journal<K, V>>,
}

impl<K, V> RestingJournal<K, V>
where
    K: Ord + Clone + Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    /// That of a directory; nothing is read yet.
    pub(crate) fn new(disk: &Disk, directory: PathBuf) -> RestingJournal<K, V> {
        RestingJournal { disk: disk.clone(), directory, journal: None }
    }

    /// The journal, which stays in memory from here on. What was found damaged is set aside and given to `repaired`, in
    /// words.
    ///
    /// # Errors
    /// When it cannot be read, or is of a newer version.
    pub(crate) fn get(&mut self, repaired: impl FnMut(String)) -> Result<&mut Journal<K, V>, SpoolError> {
        let journal = self.take(repaired)?;
        Ok(self.journal.insert(journal))
    }

    /// The journal, which is out of memory once the caller drops it.
    ///
    /// # Errors
    /// As [`RestingJournal::get`].
    pub(crate) fn take(&mut self, repaired: impl FnMut(String)) -> Result<Journal<K, V>, SpoolError> {
        if let Some(journal) = self.journal.take() {
            return Ok(journal);
        }
        let opened = Journal::open(&self.disk, &self.directory)?;
        opened.repairs.into_iter().for_each(repaired);
        Ok(opened.journal)
    }

    /// Whether it is in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.journal.is_some()
    }

    /// Lets go of it: the next use reads it from the disk.
    pub(crate) fn rest(&mut self) {
        self.journal = None;
    }
}
