//! [`BlobStore`]: files named by the digest of their bytes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use model::Digest;
use model::digest::Hasher;
use model::sort::SortCompactly;

use crate::atomic::MAX_SET_ASIDE;
use crate::disk::failed;
use crate::error::{Result, SpoolError};
use crate::{Disk, DiskOp};

/// The most bytes that all blobs together may have, by default.
pub const MAX_BLOBS: u64 = 4 * 1024 * 1024 * 1024;
/// Read and written at a time, in bytes.
const PIECE: usize = 64 * 1024;
/// Mode of the files made here.
const MODE: u32 = 0o600;

/// Blobs below a directory: `blobs/3f/3f2a...` and, while they come, `partial/3f2a...`.
#[derive(Debug)]
pub struct BlobStore {
    disk: Disk,
    whole: PathBuf,
    partial: PathBuf,
    corrupt: PathBuf,
    max_total: u64,
    total: AtomicU64,
    puts: AtomicU64,
}

/// A blob on its way: some of its first bytes may be there.
#[derive(Debug)]
pub struct Partial {
    disk: Disk,
    path: PathBuf,
    file: File,
    offset: u64,
}

/// What a scrub of blobs found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubbedBlobs {
    /// The last that was read; `None` when none is left after it, and the next scrub begins anew.
    pub last: Option<Digest>,
    /// Those that were damaged, and are set aside.
    pub damaged: Vec<Digest>,
}

impl BlobStore {
    /// Opens the blobs below a directory, which is made if need be, with a bound for all
    /// of them together, in bytes. What was left half written is gone, downloads that can
    /// be resumed excepted.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open_dir(disk: &Disk, directory: &Path, max_total: u64) -> Result<BlobStore> {
        let store = BlobStore {
            disk: disk.clone(),
            whole: directory.join("blobs"),
            partial: directory.join("partial"),
            corrupt: directory.join("corrupt"),
            max_total,
            total: AtomicU64::new(0),
            puts: AtomicU64::new(0),
        };
        disk.make_dir(&store.whole)?;
        disk.make_dir(&store.partial)?;
        let mut total = 0;
        for (_, path) in store.all()? {
            total += length(&path)?;
        }
        store.total.store(total, Ordering::Relaxed);
        for path in files(&store.partial)? {
            if digest_of_name(&path).is_none() {
                disk.unlink(&path)?;
            }
        }
        Ok(store)
    }

    /// The bytes of all blobs together.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// The bytes of all downloads that are on their way.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn partial_total(&self) -> Result<u64> {
        self.make_partial()?;
        files(&self.partial)?.iter().map(|path| length(path)).sum()
    }

    /// Whether a blob is there. Its bytes are not read.
    pub fn has(&self, digest: &Digest) -> bool {
        self.path(digest).is_file()
    }

    /// The bytes of a blob; none where it is not there. They are not read.
    pub fn size(&self, digest: &Digest) -> Option<u64> {
        length(&self.path(digest)).ok()
    }

    /// Whether a copy of a blob was found damaged, and is set aside.
    pub fn was_damaged(&self, digest: &Digest) -> bool {
        self.corrupt.join(digest.to_string()).is_file()
    }

    /// Removes the copy of a blob that was found damaged; fine if there is none.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn forget_damaged(&self, digest: &Digest) -> Result<()> {
        self.disk.unlink(&self.corrupt.join(digest.to_string()))
    }

    /// Stores what `source` holds, at most `max` bytes; durable when it returns.
    ///
    /// # Errors
    /// [`SpoolError::WrongDigest`] when it is not what was expected,
    /// [`SpoolError::TooLarge`], and those of the disk; nothing is stored then.
    pub fn put(&self, source: &mut dyn Read, expected: Option<Digest>, max: u64) -> Result<Digest> {
        let put = self.puts.fetch_add(1, Ordering::Relaxed);
        let path = self.partial.join(format!("put-{put}"));
        self.make_partial()?;
        let stored = self.put_at(&path, source, expected, max);
        if stored.is_err() {
            // If it stays, the next opening removes it.
            let _ = self.disk.unlink(&path);
        }
        stored.map_err(|error| self.without_temporary_name(error, &path))
    }

    /// Opens a blob at its beginning, its bytes verified; `None` when it is not there. One
    /// whose bytes do not match is set aside and counts as not there.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open(&self, digest: &Digest) -> Result<Option<File>> {
        let path = self.path(digest);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(DiskOp::Open, &path, error)),
        };
        let (found, length) = hash(&mut file).map_err(|error| failed(DiskOp::Read, &path, error))?;
        if found != *digest {
            self.forget(length);
            self.set_aside(&path)?;
            return Ok(None);
        }
        file.seek(SeekFrom::Start(0)).map_err(|error| failed(DiskOp::Read, &path, error))?;
        Ok(Some(file))
    }

    /// The bytes of a blob, verified; `None` as for [`BlobStore::open`].
    ///
    /// # Errors
    /// [`SpoolError::TooLarge`] when there are more than `max`, and those of the disk.
    pub fn read(&self, digest: &Digest, max: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path(digest);
        let Some(bytes) = crate::atomic::read_file(&path, max)? else { return Ok(None) };
        if Digest::of(&bytes) != *digest {
            self.forget(bytes.len() as u64);
            self.set_aside(&path)?;
            return Ok(None);
        }
        Ok(Some(bytes))
    }

    /// Verifies the blobs whose digests come after one, in their order, until as many bytes were read: a damaged one is
    /// set aside before anything needs it. At least one blob is read where one is left.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn scrub(&self, after: Option<Digest>, bytes: u64) -> Result<ScrubbedBlobs> {
        let mut left = self.all()?;
        left.retain(|(digest, _)| after.is_none_or(|after| *digest > after));
        left.sort_compactly_by(|(one, _), (other, _)| one.cmp(other));
        let (mut read, mut scrubbed) = (0, ScrubbedBlobs::default());
        for (digest, path) in left {
            if read >= bytes {
                return Ok(scrubbed);
            }
            // What is removed meanwhile has no length.
            read += length(&path).unwrap_or(0);
            if self.open(&digest)?.is_none() && self.was_damaged(&digest) {
                scrubbed.damaged.push(digest);
            }
            scrubbed.last = Some(digest);
        }
        Ok(ScrubbedBlobs { last: None, ..scrubbed })
    }

    /// Begins a download, or goes on with one that was interrupted.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn partial(&self, digest: &Digest) -> Result<Partial> {
        let path = self.partial.join(digest.to_string());
        self.make_partial()?;
        let file = self.disk.open_append(&path, MODE)?;
        let offset = file.metadata().map_err(|error| failed(DiskOp::Read, &path, error))?.len();
        Ok(Partial { disk: self.disk.clone(), path, file, offset })
    }

    /// Ends a download: verifies what came and makes it a blob; durable when it returns.
    ///
    /// # Errors
    /// [`SpoolError::WrongDigest`] when the bytes are not those of the digest; they are
    /// gone then, and the next download begins at 0. [`SpoolError::TooLarge`] when there
    /// is no room for it, and those of the disk.
    pub fn finish(&self, digest: &Digest) -> Result<()> {
        let path = self.partial.join(digest.to_string());
        let mut file = File::open(&path).map_err(|error| failed(DiskOp::Open, &path, error))?;
        let (found, length) = hash(&mut file).map_err(|error| failed(DiskOp::Read, &path, error))?;
        if found != *digest {
            self.disk.unlink(&path)?;
            return Err(SpoolError::WrongDigest { expected: *digest, found });
        }
        self.disk.sync(&file, &path)?;
        self.keep(&path, digest, length)
    }

    /// Removes all blobs and downloads but these.
    ///
    /// # Errors
    /// When the disk refuses; some may be removed then.
    pub fn retain(&self, keep: &BTreeSet<Digest>) -> Result<()> {
        for (digest, path) in self.all()? {
            if !keep.contains(&digest) {
                let bytes = length(&path)?;
                self.disk.unlink(&path)?;
                self.forget(bytes);
            }
        }
        for path in files(&self.partial)? {
            if digest_of_name(&path).is_some_and(|digest| !keep.contains(&digest)) {
                self.disk.unlink(&path)?;
            }
        }
        Ok(())
    }

    /// Removes a blob; fine if there is none.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn remove(&self, digest: &Digest) -> Result<()> {
        let path = self.path(digest);
        if !path.is_file() {
            return Ok(());
        }
        let bytes = length(&path)?;
        self.disk.unlink(&path)?;
        self.forget(bytes);
        Ok(())
    }

    fn put_at(
        &self,
        path: &Path,
        source: &mut dyn Read,
        expected: Option<Digest>,
        max: u64,
    ) -> Result<Digest> {
        self.disk.unlink(path)?;
        let mut file = self.disk.create(path, MODE)?;
        let (mut hasher, mut length) = (Hasher::new(), 0);
        let mut piece = vec![0; PIECE];
        loop {
            let read = source.read(&mut piece).map_err(|error| failed(DiskOp::Read, path, error))?;
            if read == 0 {
                break;
            }
            length += read as u64;
            if length > max {
                return Err(SpoolError::TooLarge { what: "a blob", limit: max });
            }
            hasher.update(&piece[..read]);
            self.disk.write(DiskOp::Write, &mut file, path, &piece[..read])?;
        }
        let found = hasher.finish();
        if let Some(expected) = expected
            && expected != found
        {
            return Err(SpoolError::WrongDigest { expected, found });
        }
        self.disk.sync(&file, path)?;
        self.keep(path, &found, length)?;
        Ok(found)
    }

    /// Makes a file that is on disk and verified a blob.
    fn keep(&self, path: &Path, digest: &Digest, length: u64) -> Result<()> {
        let target = self.path(digest);
        let before = if target.is_file() { self::length(&target)? } else { 0 };
        if self.total().saturating_sub(before) + length > self.max_total {
            return Err(SpoolError::TooLarge { what: "all blobs together", limit: self.max_total });
        }
        if let Some(parent) = target.parent() {
            self.disk.make_dir(parent)?;
        }
        self.disk.rename(path, &target)?;
        self.total.fetch_add(length, Ordering::Relaxed);
        self.forget(before);
        self.disk.sync_parent(&target)
    }

    /// Makes the directory of what is on its way, where it is gone.
    fn make_partial(&self) -> Result<()> {
        if self.partial.is_dir() { Ok(()) } else { self.disk.make_dir(&self.partial) }
    }

    /// Names the directory instead of a file that is another one each time, so that one cause has one text.
    fn without_temporary_name(&self, error: SpoolError, temporary: &Path) -> SpoolError {
        match error {
            SpoolError::Disk { op, path, source } if path == temporary => {
                SpoolError::Disk { op, path: self.partial.clone(), source }
            }
            other => other,
        }
    }

    fn forget(&self, bytes: u64) {
        let less = |total: u64| Some(total.saturating_sub(bytes));
        // The closure never refuses.
        let _ = self.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn set_aside(&self, path: &Path) -> Result<()> {
        self.disk.make_dir(&self.corrupt)?;
        let name = path.file_name().unwrap_or(path.as_os_str());
        if files(&self.corrupt)?.len() >= MAX_SET_ASIDE as usize {
            tracing::warn!(path = %path.display(), "a damaged blob was removed");
            return self.disk.unlink(path);
        }
        tracing::warn!(path = %path.display(), "a damaged blob was set aside");
        self.disk.rename(path, &self.corrupt.join(name))
    }

    /// Where a blob lies, if it is there.
    pub fn path(&self, digest: &Digest) -> PathBuf {
        let name = digest.to_string();
        self.whole.join(&name[..2]).join(name)
    }

    fn all(&self) -> Result<Vec<(Digest, PathBuf)>> {
        let mut all = Vec::new();
        for directory in entries(&self.whole)? {
            if directory.is_dir() {
                all.extend(
                    files(&directory)?.into_iter().filter_map(|path| Some((digest_of_name(&path)?, path))),
                );
            }
        }
        Ok(all)
    }
}

impl Partial {
    /// How many bytes are there; the download goes on from here.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Adds bytes at the end. They are brought to the disk by [`BlobStore::finish`].
    ///
    /// # Errors
    /// [`SpoolError::TooLarge`] when there would be more than `max`, and those of the disk.
    pub fn write(&mut self, bytes: &[u8], max: u64) -> Result<()> {
        if self.offset + bytes.len() as u64 > max {
            return Err(SpoolError::TooLarge { what: "a blob", limit: max });
        }
        if let Err(error) = self.disk.write(DiskOp::Append, &mut self.file, &self.path, bytes) {
            // If this fails too, the verification at the end finds it.
            let _ = self.disk.truncate(&self.file, &self.path, self.offset);
            return Err(error);
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

fn hash(file: &mut File) -> std::io::Result<(Digest, u64)> {
    let mut hasher = Hasher::new();
    let length = std::io::copy(file, &mut hasher)?;
    Ok((hasher.finish(), length))
}

fn length(path: &Path) -> Result<u64> {
    let metadata = path.metadata().map_err(|error| failed(DiskOp::Read, path, error))?;
    Ok(metadata.len())
}

fn digest_of_name(path: &Path) -> Option<Digest> {
    path.file_name()?.to_str()?.parse().ok()
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    Ok(entries(directory)?.into_iter().filter(|path| path.is_file()).collect())
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let read = |error| failed(DiskOp::Read, directory, error);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(read)? {
        paths.push(entry.map_err(read)?.path());
    }
    paths.sort_compactly();
    Ok(paths)
}
