//! Reading what a path really leads to: opened once, and judged by where it lies.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use model::Digest;
use model::digest::Hasher;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};

use crate::find::{mode_of, what};
use crate::{Host, HostError, HostOperation, MAX_FILE, PathProblem};

/// Neither a last link nor a FIFO nor a device is waited for or followed.
const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Something on the host, looked up through every link on its way and held by where it
/// really lies: what happens to the path afterwards changes nothing of it.
#[derive(Debug)]
pub struct Real {
    path: String,
    /// Open where it is a file or a directory.
    open: Option<OwnedFd>,
    stat: Stat,
}

impl Host {
    /// Looks a path up through all links that can be trusted (those that only root and the
    /// agent could have made); `None` when there is nothing. Nothing is read yet: ask
    /// [`Real::path`] first whether it may be.
    ///
    /// # Errors
    /// When something on the way cannot be passed, or opened.
    pub fn real(&self, path: &str) -> Result<Option<Real>, HostError> {
        match self.find_real(path) {
            Ok(real) => Ok(Some(real)),
            Err(PathProblem::NoParent | PathProblem::NotDirectory) => Ok(None),
            Err(source) => Err(HostOperation::Look.failed(path)(source)),
        }
    }

    fn find_real(&self, path: &str) -> Result<Real, PathProblem> {
        let entry = self.entry_followed(path)?;
        let stat = statat(&entry.dir, &entry.name, AtFlags::SYMLINK_NOFOLLOW)?;
        let openable =
            matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Directory);
        if !openable {
            let mut path = self.path_of(&entry.dir)?;
            path.push(&entry.name);
            return Ok(Real { path: text(path)?, open: None, stat });
        }
        let open = openat(&entry.dir, &entry.name, OPEN, Mode::empty())?;
        // What was opened counts, not what was seen before.
        let stat = fstat(&open)?;
        Ok(Real { path: text(self.path_of(&open)?)?, open: Some(open), stat })
    }

    /// Where something open lies, by the kernel's word, below the host's root.
    pub(crate) fn path_of(&self, open: &OwnedFd) -> Result<PathBuf, PathProblem> {
        let link = format!("/proc/self/fd/{}", open.as_raw_fd());
        let target = readlinkat(rustix::fs::CWD, &link, Vec::new())?;
        let real = PathBuf::from(OsString::from_vec(target.into_bytes()));
        let below = real
            .strip_prefix(self.root())
            .map_err(|_| PathProblem::BadPath("it lies outside of the root"))?;
        Ok(Path::new("/").join(below))
    }
}

fn text(path: PathBuf) -> Result<String, PathProblem> {
    path.into_os_string()
        .into_string()
        .map_err(|_| PathProblem::BadPath("it really lies at a path that is not UTF-8"))
}

impl Real {
    /// Where it really lies on the host. One that was removed meanwhile ends in ` (deleted)`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What it is: `a file`, `a directory`, `a FIFO`.
    pub fn kind(&self) -> &'static str {
        what(FileType::from_raw_mode(self.stat.st_mode))
    }

    /// It is a regular file.
    pub fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::RegularFile
    }

    /// Permission bits.
    pub fn mode(&self) -> u32 {
        mode_of(&self.stat)
    }

    /// The owner's number.
    pub fn uid(&self) -> u32 {
        self.stat.st_uid
    }

    /// The group's number.
    pub fn gid(&self) -> u32 {
        self.stat.st_gid
    }

    /// Length in bytes.
    pub fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    /// When its content changed last, in seconds since 1970.
    pub fn modified(&self) -> i64 {
        self.stat.st_mtime
    }

    /// The digest of a regular file's bytes, and its first `limit` bytes.
    ///
    /// # Errors
    /// When it is no regular file, larger than [`MAX_FILE`], or cannot be read.
    pub fn read(&self, limit: usize) -> Result<(Digest, Vec<u8>), HostError> {
        let failed = |source| HostOperation::Read.failed(&self.path)(source);
        let open = match &self.open {
            Some(open) if self.is_file() => open,
            _ => return Err(failed(PathProblem::NotRegular(self.kind()))),
        };
        let again = |error: io::Error| failed(PathProblem::from(error));
        let file = File::from(open.try_clone().map_err(again)?);
        read(file, limit).map_err(failed)
    }
}

fn read(mut file: File, limit: usize) -> Result<(Digest, Vec<u8>), PathProblem> {
    file.seek(SeekFrom::Start(0))?;
    let (mut hasher, mut first) = (Hasher::new(), Vec::new());
    (&file).take(limit as u64).read_to_end(&mut first)?;
    hasher.update(&first);
    let most = MAX_FILE.saturating_sub(first.len() as u64);
    if io::copy(&mut file.take(most.saturating_add(1)), &mut hasher)? > most {
        return Err(PathProblem::TooLarge { limit: MAX_FILE });
    }
    Ok((hasher.finish(), first))
}
