//! What archives were unpacked to: a file for each directory.

use std::fs;
use std::io;
use std::path::PathBuf;

use catalog::types::is_image_store;
use converge::kinds::image;
use model::sort::SortCompactly;
use model::{Digest, Fields};
use serde::{Deserialize, Serialize};
use spool::{Disk, DiskOp, PeekedFile, SpoolError, StateFile};

/// The most archives, trees of images and pairs of commands that are remembered. The archive that was written first is
/// forgotten for another: it is unpacked once more. What a return needs goes only where there is nothing else.
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
        if !self.path_of(path).exists() {
            self.make_room()?;
        }
        let record = UnpackedRecord { path: path.to_owned(), unpacked: unpacked.clone() };
        file.store(&record).map_err(io::Error::other)
    }

    /// What the trees take that the images of this host were switched to last, in bytes. What cannot be read counts nothing.
    pub(super) fn bytes_of_trees_in_use(&self) -> Result<u64, SpoolError> {
        let read = |source| SpoolError::Disk { op: DiskOp::Read, path: self.directory.clone(), source };
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries.map_err(read)?,
        };
        let mut bytes: u64 = 0;
        for entry in entries {
            let path = entry.map_err(read)?.path();
            let file: StateFile<UnpackedRecord> = StateFile::new(&self.disk, path, super::MODE);
            let PeekedFile::Value(store) = file.peek()? else { continue };
            if !is_image_store(&store.path) {
                continue;
            }
            let in_use = image::in_order(Some(&store.unpacked)).into_iter().next();
            let tree = in_use.map(|name| self.find(&format!("{}/{name}", store.path))).transpose()?.flatten();
            bytes = bytes.saturating_add(tree.as_ref().map_or(0, image::bytes_of));
        }
        Ok(bytes)
    }

    fn make_room(&self) -> Result<(), io::Error> {
        let mut known = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            known.push((false, entry.metadata()?.modified()?, entry.path()));
        }
        if known.len() >= MAX_ARCHIVES {
            for (is_needed, _, path) in &mut known {
                let file: StateFile<UnpackedRecord> = StateFile::new(&self.disk, path.clone(), super::MODE);
                let found = file.peek().map_err(io::Error::other)?;
                *is_needed =
                    matches!(found, PeekedFile::Value(record) if is_needed_for_a_return(&record.path));
            }
            known.sort_compactly();
            for (.., path) in known.iter().take(known.len() + 1 - MAX_ARCHIVES) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn path_of(&self, path: &str) -> PathBuf {
        self.directory.join(format!("{}.json", Digest::of(path.as_bytes())))
    }

    fn file(&self, path: &str) -> StateFile<UnpackedRecord> {
        StateFile::new(&self.disk, self.path_of(path), super::MODE)
    }
}

/// What an image or a pair of commands remembers: without it the way back fetches anew, or runs a command once more.
fn is_needed_for_a_return(path: &str) -> bool {
    let is_path = path.starts_with('/');
    !is_path || is_image_store(path) || path.rsplit_once('/').is_some_and(|(store, _)| is_image_store(store))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ROL-10: the bound of kept generations counts what their archives were unpacked to.
    #[test]
    fn the_trees_in_use_are_counted() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let archives = UnpackedArchives::new(&Disk::default(), dir.path().join("unpacked"));
        assert_eq!(archives.bytes_of_trees_in_use()?, 0);
        let file = |size: u64| format!("sha256:{} {size} bytes 0644 root root", Digest::ZERO);
        let tree = |sizes: &[u64]| {
            let files =
                sizes.iter().zip(0..).map(|(size, number): (_, u32)| (format!("f{number}"), file(*size)));
            files.chain([("archive".to_owned(), "x".to_owned())]).collect::<Fields>()
        };
        archives.keep("/opt/.app.generations", Some(&image::ordered("new", &["old".to_owned()])))?;
        archives.keep("/opt/.app.generations/new", Some(&tree(&[1000, 20])))?;
        archives.keep("/opt/.app.generations/old", Some(&tree(&[5])))?;
        archives.keep("/srv/.web.generations", Some(&image::ordered("only", &[])))?;
        archives.keep("/srv/.web.generations/only", Some(&tree(&[300])))?;
        // Its tree was lost; and an archive that is no image.
        archives.keep("/srv/.gone.generations", Some(&image::ordered("lost", &[])))?;
        archives.keep("/srv/plain", Some(&tree(&[70_000])))?;
        assert_eq!(archives.bytes_of_trees_in_use()?, 1320);
        Ok(())
    }

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
        // What a return needs was written first, and stays.
        let needed = ["switch:firmware", "/opt/.app.generations", "/opt/.app.generations/tree"];
        for path in needed {
            archives.keep(path, Some(&state("y")))?;
        }
        for number in 0..=MAX_ARCHIVES {
            archives.keep(&format!("/opt/{number}"), Some(&state("x")))?;
        }
        assert_eq!(fs::read_dir(dir.path().join("unpacked"))?.count(), MAX_ARCHIVES);
        assert_eq!(archives.find(&format!("/opt/{MAX_ARCHIVES}"))?, Some(state("x")));
        // What is remembered already takes no other's place.
        archives.keep(&format!("/opt/{MAX_ARCHIVES}"), Some(&state("z")))?;
        assert_eq!(fs::read_dir(dir.path().join("unpacked"))?.count(), MAX_ARCHIVES);
        for path in needed {
            assert_eq!(archives.find(path)?, Some(state("y")), "{path}");
        }
        Ok(())
    }
}
