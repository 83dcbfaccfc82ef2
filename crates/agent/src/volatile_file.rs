//! [`VolatileFile`]: a value in a small JSON file of the state directory that need not outlive a crash of the host,
//! as the next contact, run or look writes it anew.
//!
//! A reader sees the old or the new value whole, never a part; a damaged file is none. Nothing is synced.

use std::marker::PhantomData;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spool::atomic::WholeFile;
use spool::{Disk, SpoolError};

/// A file of the state directory with a `T`.
pub struct VolatileFile<T> {
    name: &'static str,
    mode: u32,
    max_bytes: u64,
    value: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> VolatileFile<T> {
    /// The file of this name, for root alone, of which at most so many bytes are read.
    pub const fn new(name: &'static str, max_bytes: u64) -> VolatileFile<T> {
        VolatileFile { name, mode: 0o600, max_bytes, value: PhantomData }
    }

    /// The same, which others may read where they can enter the directory.
    pub const fn readable(self) -> VolatileFile<T> {
        VolatileFile { mode: 0o644, ..self }
    }

    /// Writes the value in place of the one that may be there.
    ///
    /// # Errors
    /// When the disk refuses; the value before is then still there.
    pub fn write(&self, state: &Path, value: &T) -> Result<(), SpoolError> {
        let json =
            serde_json::to_vec(value).map_err(|source| SpoolError::Encode { what: self.name, source })?;
        let path = state.join(self.name);
        WholeFile { durable: false, ..WholeFile::new(&path, self.mode) }.write(&Disk::new(), &json)
    }

    /// The value; `None` when there is none, or the file is damaged or cannot be read.
    pub fn read(&self, state: &Path) -> Option<T> {
        let bytes = spool::atomic::read_file(&state.join(self.name), self.max_bytes).ok()??;
        serde_json::from_slice(&bytes).ok()
    }

    /// Removes the file.
    ///
    /// # Errors
    /// When the disk refuses, and when there is none.
    pub fn remove(&self, state: &Path) -> std::io::Result<()> {
        std::fs::remove_file(state.join(self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_whole_or_not_at_all() -> Result<(), Box<dyn std::error::Error>> {
        let file: VolatileFile<Vec<u32>> = VolatileFile::new("numbers.json", 8);
        let dir = tempfile::tempdir()?;
        assert_eq!(file.read(dir.path()), None);
        file.write(dir.path(), &vec![1, 2])?;
        assert_eq!(file.read(dir.path()), Some(vec![1, 2]));
        std::fs::write(dir.path().join("numbers.json"), "[1, ")?;
        assert_eq!(file.read(dir.path()), None, "it is damaged");
        file.write(dir.path(), &vec![1, 2, 3, 4, 5])?;
        assert_eq!(file.read(dir.path()), None, "it is larger than may be read");
        file.remove(dir.path())?;
        assert!(file.remove(dir.path()).is_err());
        assert!(file.write(&dir.path().join("gone"), &vec![1]).is_err());
        Ok(())
    }
}
