//! Looking: what is at a path, and what a file holds.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use model::digest::Hasher;
use model::sort::SortCompactly;
use model::{Digest, PathState};
use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::{Errno, retry_on_intr};

use crate::path::{DirEntryRef, check, links_matter};
use crate::{Host, HostError, HostOperation, MAX_FILE, PathProblem};

/// How much is read at a time, in bytes.
const CHUNK: usize = 64 * 1024;
/// Reading never follows a last link and never waits for a FIFO or a device.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

impl Host {
    /// What is at a path; a file is read and hashed. Costs one open, fstat, read and
    /// close for a small file.
    ///
    /// # Errors
    /// When something on the way cannot be passed, or the file cannot be read or is
    /// over [`MAX_FILE`].
    pub fn look(&self, path: &str) -> Result<PathState, HostError> {
        self.found(path).map_err(HostOperation::Look.failed(path))
    }

    /// Whether there is anything at a path; a link counts whatever it points to.
    ///
    /// # Errors
    /// When something on the way cannot be passed.
    pub fn exists(&self, path: &str) -> Result<bool, HostError> {
        let found = check(path).and_then(|path| {
            if path == "/" {
                return Ok(true);
            }
            let entry = self.entry(path)?;
            Ok(statat(&entry.dir, &entry.name, AtFlags::SYMLINK_NOFOLLOW).map(|_| true)?)
        });
        match found {
            Ok(exists) => Ok(exists),
            Err(PathProblem::NoParent | PathProblem::NotDirectory) => Ok(false),
            Err(source) => Err(HostOperation::Look.failed(path)(source)),
        }
    }

    /// Whether a directory is at a path; a link to one counts where it can be trusted.
    ///
    /// # Errors
    /// When something on the way cannot be passed.
    pub fn is_directory(&self, path: &str) -> Result<bool, HostError> {
        match self.directory(path) {
            Ok(_) => Ok(true),
            Err(PathProblem::NoParent | PathProblem::NotDirectory) => Ok(false),
            Err(source) => Err(HostOperation::Look.failed(path)(source)),
        }
    }

    /// Opens a regular file for reading; `None` when there is nothing.
    ///
    /// # Errors
    /// When it is no regular file, or cannot be opened.
    pub fn open_file(&self, path: &str) -> Result<Option<File>, HostError> {
        let failed = HostOperation::Read.failed(path);
        match self.entry(path).and_then(|entry| open_regular(&entry)) {
            Ok((fd, _)) => Ok(Some(File::from(fd))),
            Err(PathProblem::NoParent) => Ok(None),
            Err(source) => Err(failed(source)),
        }
    }

    /// The bytes of a regular file of at most `limit` bytes; `None` when there is nothing.
    ///
    /// # Errors
    /// When it is no regular file, is larger, or cannot be read.
    pub fn read(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, HostError> {
        read_at(path, self.entry(path), limit)
    }

    /// As [`Host::read`], and a link at the last name is followed where it can be
    /// trusted. For reading what the system says of itself, such as `/etc/os-release`.
    ///
    /// # Errors
    /// As [`Host::read`].
    pub fn read_followed(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, HostError> {
        read_at(path, self.entry_followed(path), limit)
    }

    /// The names in a directory, sorted, at most `limit`; `None` when there is nothing.
    /// Names that are not UTF-8 are left out.
    ///
    /// # Errors
    /// When it is no directory, has more entries, or cannot be read.
    pub fn names(&self, path: &str, limit: usize) -> Result<Option<Vec<String>>, HostError> {
        let names = self.directory(path).and_then(|dir| entries(&dir, limit));
        let mut names: Vec<String> = match names {
            Ok(Some(names)) => names.into_iter().filter_map(|(name, _)| name.into_string().ok()).collect(),
            Ok(None) => {
                let source = PathProblem::TooMany { entries: limit, depth: 1 };
                return Err(HostOperation::Read.failed(path)(source));
            }
            Err(PathProblem::NoParent) => return Ok(None),
            Err(source) => return Err(HostOperation::Read.failed(path)(source)),
        };
        names.sort_compactly();
        Ok(Some(names))
    }

    fn found(&self, path: &str) -> Result<PathState, PathProblem> {
        let path = check(path)?;
        match self.open_plain(path, READ) {
            Ok(fd) => found_open(&fd),
            Err(Errno::NOENT) => Ok(PathState::Missing),
            // A link at the end, a socket, or a file that may not be read: look closer.
            Err(errno) if links_matter(errno) || matches!(errno, Errno::NXIO | Errno::ACCESS) => {
                match self.entry(path) {
                    Ok(entry) => found_at(&entry),
                    Err(PathProblem::NoParent) => Ok(PathState::Missing),
                    Err(problem) => Err(problem),
                }
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

/// What a name in a directory is, without following it.
pub(crate) fn stat_at(entry: &DirEntryRef) -> Result<Option<Stat>, PathProblem> {
    match statat(&entry.dir, &entry.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens a regular file, and nothing else, for reading.
pub(crate) fn open_regular(entry: &DirEntryRef) -> Result<(OwnedFd, Stat), PathProblem> {
    let fd = openat(&entry.dir, &entry.name, READ, Mode::empty()).map_err(|errno| match errno {
        Errno::LOOP => PathProblem::NotRegular("a symlink"),
        Errno::NXIO => PathProblem::NotRegular("a socket"),
        other => other.into(),
    })?;
    let stat = fstat(&fd)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((fd, stat)),
        FileType::Directory => Err(PathProblem::IsDirectory),
        other => Err(PathProblem::NotRegular(what(other))),
    }
}

/// The permission bits of a stat.
pub(crate) fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

/// A file type in words.
pub(crate) fn what(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symlink",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "of an unknown type",
    }
}

fn found_at(entry: &DirEntryRef) -> Result<PathState, PathProblem> {
    let Some(stat) = stat_at(entry)? else {
        return Ok(PathState::Missing);
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::Directory => {
            found_open(&openat(&entry.dir, &entry.name, READ, Mode::empty())?)
        }
        FileType::Symlink => {
            let target = readlinkat(&entry.dir, &entry.name, Vec::new())?;
            // A target that text cannot hold could not be put back: nobody's to manage.
            Ok(match target.into_string() {
                Ok(target) => PathState::Symlink { target },
                Err(_) => PathState::Other { what: "a symlink to a path that is not UTF-8".to_owned() },
            })
        }
        other => Ok(PathState::Other { what: what(other).to_owned() }),
    }
}

fn found_open(fd: &OwnedFd) -> Result<PathState, PathProblem> {
    let stat = fstat(fd)?;
    let (mode, uid, gid) = (mode_of(&stat), stat.st_uid, stat.st_gid);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let (digest, size) = digest(fd, size_of(&stat))?;
            Ok(PathState::File { digest, size, mode, uid, gid })
        }
        FileType::Directory => Ok(PathState::Directory { mode, uid, gid, empty: is_empty(fd)? }),
        other => Ok(PathState::Other { what: what(other).to_owned() }),
    }
}

fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Hashes a file in one read where `size` (from its stat) fits a chunk.
fn digest(fd: &OwnedFd, size: u64) -> Result<(Digest, u64), PathProblem> {
    if size > MAX_FILE {
        return Err(PathProblem::TooLarge { limit: MAX_FILE });
    }
    let wanted = usize::try_from(size).unwrap_or(CHUNK).saturating_add(1).clamp(512, CHUNK);
    let mut buffer: Vec<u8> = Vec::with_capacity(wanted);
    let mut hasher = Hasher::new();
    let mut total = 0u64;
    loop {
        buffer.clear();
        let got = retry_on_intr(|| rustix::io::read(fd, spare_capacity(&mut buffer)))?;
        hasher.update(&buffer);
        total += got as u64;
        if total > MAX_FILE {
            return Err(PathProblem::TooLarge { limit: MAX_FILE });
        }
        // A read that ends where the size says is the last one; /proc has size 0 and more bytes.
        if got == 0 || (total == size && got < buffer.capacity()) {
            return Ok((hasher.finish(), total));
        }
    }
}

pub(crate) fn bytes(fd: OwnedFd, limit: u64) -> Result<Vec<u8>, PathProblem> {
    let mut bytes = Vec::new();
    File::from(fd).take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(PathProblem::TooLarge { limit });
    }
    Ok(bytes)
}

/// The bytes of the file at an entry; `None` when there is none.
fn read_at(
    path: &str,
    entry: Result<DirEntryRef, PathProblem>,
    limit: u64,
) -> Result<Option<Vec<u8>>, HostError> {
    match entry.and_then(|entry| open_regular(&entry)).and_then(|(fd, _)| bytes(fd, limit)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(PathProblem::NoParent) => Ok(None),
        Err(source) => Err(HostOperation::Read.failed(path)(source)),
    }
}

fn is_empty(dir: &OwnedFd) -> Result<bool, PathProblem> {
    Ok(entries(dir, 0)?.is_some())
}

/// The names in a directory and whether each is a directory; `None` beyond `limit`.
pub(crate) fn entries(dir: &OwnedFd, limit: usize) -> Result<Option<Vec<(CString, bool)>>, PathProblem> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if found.len() >= limit {
            return Ok(None);
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                FileType::from_raw_mode(statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
            }
            known => known,
        };
        found.push((name.to_owned(), kind == FileType::Directory));
    }
    Ok(Some(found))
}
