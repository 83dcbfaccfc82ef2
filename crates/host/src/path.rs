//! From a path of the host to an open directory and a name in it, links considered.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat};
use rustix::io::Errno;

use crate::{Host, HostError, HostOperation, PathProblem};

/// The longest path, in bytes, that is accepted: the kernel's own bound.
const MAX_PATH: usize = 4095;
/// The most symbolic links followed on one path: the kernel's own bound.
const MAX_LINKS: usize = 40;

/// Looking up without any link: what a path almost always is.
const PLAIN: ResolveFlags =
    ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_SYMLINKS);
/// How a directory is opened to work in it (and to be fsynced).
pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Checks a path of the host: absolute, no `..`, no NUL. A trailing slash is dropped.
pub(crate) fn check(path: &str) -> Result<&str, PathProblem> {
    if !path.starts_with('/') {
        return Err(PathProblem::BadPath("it must be absolute"));
    }
    if path.len() > MAX_PATH {
        return Err(PathProblem::BadPath("it is too long"));
    }
    if path.contains('\0') {
        return Err(PathProblem::BadPath("it holds a NUL byte"));
    }
    if path.contains("..") && path.split('/').any(|part| part == "..") {
        return Err(PathProblem::BadPath("it must not hold `..`"));
    }
    let trimmed = path.trim_end_matches('/');
    Ok(if trimmed.is_empty() { "/" } else { trimmed })
}

/// Splits a checked path into the directory and the name in it.
pub(crate) fn split(path: &str) -> Result<(&str, &str), PathProblem> {
    let (parent, name) = path.rsplit_once('/').ok_or(PathProblem::BadPath("it must be absolute"))?;
    if name.is_empty() || name == "." {
        return Err(PathProblem::BadPath("it names no entry of a directory"));
    }
    Ok((if parent.is_empty() { "/" } else { parent }, name))
}

/// A directory on the host and a name in it that may or may not exist.
pub(crate) struct DirEntryRef {
    /// The directory, open for reading.
    pub(crate) dir: OwnedFd,
    /// The entry's name.
    pub(crate) name: OsString,
}

impl Host {
    /// Opens `path` where no link is on the way; else the kernel says `LOOP`.
    pub(crate) fn open_plain(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), PLAIN)
    }

    /// The entry that a path names: its directory, links on the way followed where they can be
    /// trusted, and its last name, which is not followed.
    pub(crate) fn entry(&self, path: &str) -> Result<DirEntryRef, PathProblem> {
        let path = check(path)?;
        let (parent, name) = split(path)?;
        match self.open_plain(parent, DIRECTORY) {
            Ok(dir) => Ok(DirEntryRef { dir, name: OsString::from(name) }),
            Err(errno) if links_matter(errno) => self.resolve(path, false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Does something at a path, which may have been found only after a long wait.
    pub(crate) fn at<T>(
        &self,
        operation: HostOperation,
        path: &str,
        act: impl FnOnce(&DirEntryRef) -> Result<T, PathProblem>,
    ) -> Result<T, HostError> {
        let acted = self.entry(path).and_then(|entry| self.still_wanted().and_then(|()| act(&entry)));
        acted.map_err(operation.failed(path))
    }

    /// As [`Host::entry`], and the last name is followed too, so that it is no link.
    pub(crate) fn entry_followed(&self, path: &str) -> Result<DirEntryRef, PathProblem> {
        self.resolve(check(path)?, true)
    }

    /// Opens a directory, its own name followed too.
    pub(crate) fn directory(&self, path: &str) -> Result<OwnedFd, PathProblem> {
        let path = check(path)?;
        match self.open_plain(path, DIRECTORY) {
            Ok(dir) => Ok(dir),
            Err(errno) if links_matter(errno) => {
                let entry = self.resolve(path, true)?;
                Ok(openat(&entry.dir, &entry.name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Walks a path one name at a time, so that each link is judged before it is followed.
    fn resolve(&self, path: &str, follow_last: bool) -> Result<DirEntryRef, PathProblem> {
        let mut resolution = PathResolution { host: self, way: Vec::new(), todo: Vec::new(), links: 0 };
        resolution.push_parts(path.as_bytes());
        let mut last = None;
        while let Some(part) = resolution.todo.pop() {
            if part.as_bytes() == b".." {
                resolution.way.pop();
                continue;
            }
            if resolution.todo.is_empty() && !follow_last {
                last = Some(part);
                break;
            }
            let (fd, stat) = match resolution.open(&part) {
                Ok(opened) => opened,
                Err(Errno::NOENT) if resolution.todo.is_empty() => {
                    last = Some(part);
                    break;
                }
                Err(errno) => return Err(errno.into()),
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => resolution.follow(&part, &fd, &stat)?,
                _ if resolution.todo.is_empty() => last = Some(part),
                FileType::Directory => resolution.way.push((part, fd)),
                _ => return Err(PathProblem::NotDirectory),
            }
        }
        let dir = openat(resolution.here(), ".", DIRECTORY, Mode::empty())?;
        Ok(DirEntryRef { dir, name: last.unwrap_or_else(|| OsString::from(".")) })
    }
}

/// The fast lookup cannot say; a walk can.
pub(crate) fn links_matter(errno: Errno) -> bool {
    matches!(errno, Errno::LOOP | Errno::NOSYS | Errno::AGAIN)
}

/// A walk under way: the directories entered, and the names still to come (last first).
struct PathResolution<'a> {
    host: &'a Host,
    way: Vec<(OsString, OwnedFd)>,
    todo: Vec<OsString>,
    links: usize,
}

impl PathResolution<'_> {
    fn push_parts(&mut self, path: &[u8]) {
        let parts = path.split(|byte| *byte == b'/').rev().filter(|part| !part.is_empty() && *part != b".");
        self.todo.extend(parts.map(|part| OsStr::from_bytes(part).to_owned()));
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.way.last().map_or(self.host.root.as_fd(), |(_, fd)| fd.as_fd())
    }

    fn open(&self, part: &OsStr) -> Result<(OwnedFd, Stat), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(self.here(), part, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        Ok((fd, stat))
    }

    fn follow(&mut self, part: &OsStr, link: &OwnedFd, stat: &Stat) -> Result<(), PathProblem> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(PathProblem::SymlinkLoop);
        }
        self.trust(part, stat)?;
        let target = readlinkat(link, "", Vec::new())?.into_bytes();
        if target.first() == Some(&b'/') {
            self.way.clear();
        }
        self.push_parts(&target);
        Ok(())
    }

    /// A link is followed only when nobody but root and the agent can have put it there.
    fn trust(&self, part: &OsStr, link: &Stat) -> Result<(), PathProblem> {
        let dir = fstat(self.here())?;
        let ours = |uid: u32| uid == 0 || uid == self.host.euid;
        let why = if !ours(link.st_uid) {
            "it belongs to another user"
        } else if !ours(dir.st_uid) || others_write(self.host, &dir) {
            "it lies in a directory that others can write"
        } else {
            return Ok(());
        };
        let mut path = PathBuf::from("/");
        path.extend(self.way.iter().map(|(name, _)| name));
        path.push(part);
        let link = String::from_utf8_lossy(&path.into_os_string().into_vec()).into_owned();
        Err(PathProblem::UntrustedLink { link, why })
    }
}

/// Someone other than the owner, root and the agent's own group may write the directory.
pub(crate) fn others_write(host: &Host, dir: &Stat) -> bool {
    let group = dir.st_gid != 0 && dir.st_gid != host.egid;
    dir.st_mode & 0o002 != 0 || (group && dir.st_mode & 0o020 != 0)
}
