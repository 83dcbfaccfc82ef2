//! [`Journal`]: keyed records in one append-only file, compacted now and then.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::atomic::{free_name, read_file, set_aside, write_file};
use crate::disk::failed;
use crate::error::{Result, SpoolError};
use crate::{Disk, Op, frame};

/// The largest file of a journal, in bytes.
pub const MAX_JOURNAL: u64 = 512 * 1024 * 1024;
/// The most entries of a journal.
pub const MAX_ENTRIES: usize = 1_000_000;
/// The largest batch, in bytes of JSON.
pub const MAX_BATCH: usize = 16 * 1024 * 1024;
/// Records that are obsolete before a compaction is thought of; beyond it there must be
/// more of them than of others.
const SPARE: usize = 1000;
/// Entries in one record of a compacted file.
const IN_RECORD: usize = 512;
/// Mode of the file.
const MODE: u32 = 0o600;

/// A map on disk. Reading is from memory; a change is durable when it returns.
#[derive(Debug)]
pub struct Journal<K, V> {
    disk: Disk,
    path: PathBuf,
    entries: BTreeMap<K, V>,
    /// Puts and removes in the file.
    written: usize,
    /// Its length up to the end of the last record; `None` when that is not known for
    /// sure, after a compaction that failed.
    bytes: Option<u64>,
    /// The file, while it may be appended to.
    file: Option<File>,
}

/// A journal, and what had to be done to open it.
#[derive(Debug)]
pub struct Opened<K, V> {
    /// The journal.
    pub journal: Journal<K, V>,
    /// A copy of the file as it was, if some of it was damaged. What was not is in the
    /// journal.
    pub set_aside: Option<PathBuf>,
}

impl<K, V> Journal<K, V>
where
    K: Ord + Clone + Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    /// Opens the journal at a path; an empty one if there is none. The directory must be
    /// there. Only one process at a time may have it ([`crate::StateLock`]).
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open(disk: &Disk, path: &Path) -> Result<Opened<K, V>> {
        let bytes = match read_file(path, MAX_JOURNAL) {
            Ok(bytes) => bytes.unwrap_or_default(),
            // Far from anything that was ever written here.
            Err(SpoolError::TooLarge { .. }) => {
                let set_aside = Some(set_aside(disk, path)?);
                return Ok(Opened { set_aside, ..Journal::open(disk, path)? });
            }
            Err(error) => return Err(error),
        };
        let scan = frame::scan(&bytes);
        let mut damaged = scan.damaged;
        let mut journal = Journal {
            disk: disk.clone(),
            path: path.to_owned(),
            entries: BTreeMap::new(),
            written: 0,
            bytes: Some(scan.end as u64),
            file: None,
        };
        for record in &scan.records {
            match serde_json::from_slice::<Vec<(K, Option<V>)>>(&bytes[record.clone()]) {
                Ok(batch) => journal.remember(batch),
                Err(_) => damaged = true,
            }
        }
        if !damaged {
            return Ok(Opened { journal, set_aside: None });
        }
        let aside = free_name(path);
        write_file(disk, &aside, &bytes, MODE)?;
        tracing::warn!(path = %path.display(), aside = %aside.display(), "a journal was damaged");
        journal.compact()?;
        Ok(Opened { journal, set_aside: Some(aside) })
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
    /// [`SpoolError::TooLarge`] beyond [`MAX_BATCH`] and [`MAX_ENTRIES`], and those of the
    /// disk; nothing has changed then, but after a crash the batch may be there.
    pub fn apply(&mut self, batch: Vec<(K, Option<V>)>) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let payload = encode(&batch)?;
        if payload.len() > MAX_BATCH {
            return Err(SpoolError::TooLarge { what: "a batch of a journal", limit: MAX_BATCH as u64 });
        }
        if self.entries.len() + batch.len() > MAX_ENTRIES
            || self.bytes.unwrap_or(0) + frame::framed(payload.len()) > MAX_JOURNAL
        {
            return Err(SpoolError::TooLarge { what: "a journal", limit: MAX_JOURNAL });
        }
        self.append(&payload)?;
        self.remember(batch);
        if self.written > 2 * self.entries.len() + SPARE
            && let Err(error) = self.compact()
        {
            // The batch is durable all the same; the next one tries again.
            tracing::warn!(path = %self.path.display(), %error, "a journal was not compacted");
        }
        Ok(())
    }

    fn remember(&mut self, batch: Vec<(K, Option<V>)>) {
        self.written += batch.len();
        for (key, value) in batch {
            match value {
                Some(value) => self.entries.insert(key, value),
                None => self.entries.remove(&key),
            };
        }
    }

    fn append(&mut self, payload: &[u8]) -> Result<()> {
        let mut record = Vec::with_capacity(payload.len());
        frame::push(&mut record, payload);
        let end = match self.bytes {
            Some(bytes) => bytes,
            None => frame::scan(&read_file(&self.path, MAX_JOURNAL)?.unwrap_or_default()).end as u64,
        };
        self.bytes = Some(end);
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.reopen(end)?,
        };
        let written = self
            .disk
            .write(Op::Append, &mut file, &self.path, &record)
            .and_then(|()| self.disk.sync(&file, &self.path));
        match written {
            Ok(()) => {
                self.bytes = Some(end + record.len() as u64);
                self.file = Some(file);
                Ok(())
            }
            Err(error) => {
                // If the cut fails too, the next append makes it before it writes.
                let _ = self.disk.truncate(&file, &self.path, end);
                Err(error)
            }
        }
    }

    /// Opens the file with nothing after its last record.
    fn reopen(&self, end: u64) -> Result<File> {
        let file = self.disk.open_append(&self.path, MODE)?;
        let length = file.metadata().map_err(|error| failed(Op::Read, &self.path, error))?.len();
        if length != end {
            self.disk.truncate(&file, &self.path, end)?;
            self.disk.sync(&file, &self.path)?;
        }
        self.disk.sync_parent(&self.path)?;
        Ok(file)
    }

    /// Writes the file anew with the entries alone.
    fn compact(&mut self) -> Result<()> {
        let entries: Vec<(&K, Option<&V>)> = self.entries.iter().map(|(k, v)| (k, Some(v))).collect();
        let mut bytes = Vec::new();
        for part in entries.chunks(IN_RECORD) {
            frame::push(&mut bytes, &encode(part)?);
        }
        (self.file, self.bytes) = (None, None);
        write_file(&self.disk, &self.path, &bytes, MODE)?;
        self.written = self.entries.len();
        self.bytes = Some(bytes.len() as u64);
        Ok(())
    }
}

fn encode<T: Serialize + ?Sized>(batch: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(batch).map_err(|source| SpoolError::Encode { what: "a journal's entries", source })
}
