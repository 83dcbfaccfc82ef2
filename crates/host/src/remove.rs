//! Removing files, links and directories; a tree is surveyed before anything goes.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, unlinkat};
use rustix::io::Errno;

use crate::find::{entries, stat_at, what};
use crate::path::{DIRECTORY, DirEntryRef};
use crate::write::sync_directory;
use crate::{Host, HostError, HostOperation, PathProblem};

/// The most entries of a tree that is removed in one go.
const MAX_ENTRIES: usize = 100_000;
/// The most levels of a tree that is removed in one go.
const MAX_DEPTH: usize = 64;

impl Host {
    /// Removes a regular file or a symbolic link; false when there was nothing.
    ///
    /// # Errors
    /// When something else is there, or the agent may not.
    pub fn remove_file(&self, path: &str) -> Result<bool, HostError> {
        self.remove(path, |entry, kind| match kind {
            FileType::RegularFile | FileType::Symlink => {
                Ok(unlinkat(&entry.dir, &entry.name, AtFlags::empty())?)
            }
            FileType::Directory => Err(PathProblem::IsDirectory),
            other => Err(PathProblem::NotRegular(what(other))),
        })
    }

    /// Removes a directory, with everything inside when `recurse`; false when there was
    /// nothing. Links inside are removed, never followed.
    ///
    /// # Errors
    /// When it is no directory, is not empty, holds a mount point, or holds more than
    /// 100,000 entries or 64 levels; nothing has been removed then.
    pub fn remove_directory(&self, path: &str, recurse: bool) -> Result<bool, HostError> {
        self.remove(path, |entry, kind| {
            if kind != FileType::Directory {
                return Err(PathProblem::NotRegular(what(kind)));
            }
            if recurse {
                return remove_tree(entry, path);
            }
            Ok(unlinkat(&entry.dir, &entry.name, AtFlags::REMOVEDIR)?)
        })
    }

    /// Removes what is at a path as `by` does it; false when there was nothing.
    fn remove(
        &self,
        path: &str,
        by: impl FnOnce(&DirEntryRef, FileType) -> Result<(), PathProblem>,
    ) -> Result<bool, HostError> {
        let removed = || {
            let entry = self.entry(path)?;
            let Some(stat) = stat_at(&entry)? else { return Ok(false) };
            self.still_wanted()?;
            by(&entry, FileType::from_raw_mode(stat.st_mode))?;
            sync_directory(&entry.dir).map(|()| true)
        };
        match removed() {
            Err(PathProblem::NoParent) => Ok(false),
            removed => removed.map_err(HostOperation::Remove.failed(path)),
        }
    }
}

/// Fails where a directory cannot be removed whole.
pub(crate) fn survey(entry: &DirEntryRef, path: &str) -> Result<OwnedFd, PathProblem> {
    let name = CString::new(entry.name.as_encoded_bytes()).map_err(|_| PathProblem::BadPath("NUL"))?;
    let dir = enter(&entry.dir, &name, path)?;
    go_through(&dir, path, 0, &mut 0, false)?;
    Ok(dir)
}

/// Removes a directory with everything inside; nothing of what cannot be removed whole.
pub(crate) fn remove_tree(entry: &DirEntryRef, path: &str) -> Result<(), PathProblem> {
    remove_surveyed(entry, &survey(entry, path)?, path)
}

/// Removes a directory that [`survey`] opened, with everything inside.
pub(crate) fn remove_surveyed(entry: &DirEntryRef, dir: &OwnedFd, path: &str) -> Result<(), PathProblem> {
    go_through(dir, path, 0, &mut 0, true)?;
    Ok(unlinkat(&entry.dir, &entry.name, AtFlags::REMOVEDIR)?)
}

/// Opens a directory inside another, refusing links and other file systems.
fn enter(dir: impl AsFd, name: &CStr, path: &str) -> Result<OwnedFd, PathProblem> {
    let flags = DIRECTORY | OFlags::NOFOLLOW;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    match openat2(&dir, name, flags, Mode::empty(), inside) {
        Err(Errno::XDEV) => Err(PathProblem::MountPoint(path.to_owned())),
        Err(Errno::NOSYS) => {
            let fd = openat(&dir, name, flags, Mode::empty())?;
            if fstat(&fd)?.st_dev == fstat(&dir)?.st_dev {
                Ok(fd)
            } else {
                Err(PathProblem::MountPoint(path.to_owned()))
            }
        }
        other => Ok(other?),
    }
}

/// Goes through a directory, what is inside of each entry before that entry, and counts; removes
/// them all if `remove`.
fn go_through(
    dir: &OwnedFd,
    path: &str,
    depth: usize,
    count: &mut usize,
    remove: bool,
) -> Result<(), PathProblem> {
    let too_many = || PathProblem::TooMany { entries: MAX_ENTRIES, depth: MAX_DEPTH };
    if depth >= MAX_DEPTH {
        return Err(too_many());
    }
    let entries = entries(dir, MAX_ENTRIES - *count)?.ok_or_else(too_many)?;
    *count += entries.len();
    for (name, is_directory) in &entries {
        let mut flags = AtFlags::empty();
        if *is_directory {
            let path = format!("{path}/{}", name.to_string_lossy());
            go_through(&enter(dir, name, &path)?, &path, depth + 1, count, remove)?;
            flags = AtFlags::REMOVEDIR;
        }
        match if remove { unlinkat(dir, name, flags) } else { Ok(()) } {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
