//! What archives were unpacked to: a file for each directory.

use std::fs;
use std::io;
use std::path::PathBuf;

use model::sort::SortCompactly;
use model::{Digest, Fields};
use serde::{Deserialize, Serialize};
use spool::{Disk, SpoolError, StateFile};

/// The most archives that are remembered. The one that was written first is forgotten for another: it is
/// unpacked once more.
const MAX_ARCHIVES: usize = 512;

/// What is remembered of an archive.
#[derive(Debug, Serialize, Deserialize)]
struct UnpackedRecord {
    /// Its directory.
    path: String,
    /// What it was unpacked to.
    unpacked: Fields,
}

/// The directory of these files; made when the first is written.
#[derive(Debug)]
pub(super) struct UnpackedArchives {
    disk: Disk,
    directory: PathBuf,
}

impl UnpackedArchives {
    pub(super) fn new(disk: &Disk, directory: PathBuf) -> UnpackedArchives {
        UnpackedArchives { disk: disk.clone(), directory }
    }

    /// What was unpacked in a directory. What is damaged is set aside, and unpacked again.
    pub(super) fn find(&self, path: &str) -> Result<Option<Fields>, SpoolError> {
        let record = self.file(path).load()?.value;
        Ok(record.filter(|record| record.path == path).map(|record| record.unpacked))
    }

    /// Remembers or forgets it.
    pub(super) fn keep(&self, path: &str, unpacked: Option<&Fields>) -> Result<(), io::Error> {
        let file = self.file(path);
        let Some(unpacked) = unpacked else { return file.clear().map_err(io::Error::other) };
        fs::create_dir_all(&self.directory)?;
        self.make_room()?;
        let record = UnpackedRecord { path: path.to_owned(), unpacked: unpacked.clone() };
        file.store(&record).map_err(io::Error::other)
    }

    fn make_room(&self) -> Result<(), io::Error> {
        let mut known = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            known.push((entry.metadata()?.modified()?, entry.path()));
        }
        if known.len() >= MAX_ARCHIVES {
            known.sort_compactly();
            for (_, path) in known.iter().take(known.len() + 1 - MAX_ARCHIVES) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn file(&self, path: &str) -> StateFile<UnpackedRecord> {
        let name = format!("{}.json", Digest::of(path.as_bytes()));
        StateFile::new(&self.disk, self.directory.join(name), super::MODE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_unpacked_is_remembered_up_to_a_bound() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let archives = UnpackedArchives::new(&Disk::default(), dir.path().join("unpacked"));
        let state = |text: &str| Fields::from([("archive".to_owned(), text.to_owned())]);
        assert_eq!(archives.find("/opt/a")?, None);
        archives.keep("/opt/a", Some(&state("a")))?;
        archives.keep("/opt/a", Some(&state("b")))?;
        assert_eq!(archives.find("/opt/a")?, Some(state("b")));
        archives.keep("/opt/a", None)?;
        archives.keep("/opt/a", None)?;
        assert_eq!(archives.find("/opt/a")?, None);
        for number in 0..=MAX_ARCHIVES {
            archives.keep(&format!("/opt/{number}"), Some(&state("x")))?;
        }
        assert_eq!(fs::read_dir(dir.path().join("unpacked"))?.count(), MAX_ARCHIVES);
        assert_eq!(archives.find(&format!("/opt/{MAX_ARCHIVES}"))?, Some(state("x")));
        Ok(())
    }
}
