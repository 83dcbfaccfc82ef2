//! Listing: what the names in a directory are, without opening them.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::find::{entries, mode_of};
use crate::path::DIRECTORY;
use crate::{FileVersion, Host, HostError, HostOperation, PathProblem};

/// Which names of a directory are looked at.
#[derive(Clone, Copy, Debug)]
pub enum ListedNames<'a> {
    /// These.
    Given(&'a [&'a str]),
    /// All, at most this many; names that are not UTF-8 are left out.
    All(usize),
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// The name.
    pub name: String,
    /// What it is.
    pub kind: ListedKind,
    /// Permission bits, at most 0o7777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// What changes when its content does.
    pub stamp: FileVersion,
}

/// What a name in a directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// A regular file.
    File,
    /// A directory of the same file system.
    Directory,
    /// A symbolic link, with what it points to.
    Symlink(String),
    /// Something else, or the mount point of another file system.
    Other,
}

impl Host {
    /// Looks at names in a directory, whose own name is no link; `None` when there is no directory.
    /// Names that are not there are left out.
    ///
    /// # Errors
    /// When it is no directory, has more names than are allowed, or cannot be read.
    pub fn list(&self, path: &str, names: ListedNames<'_>) -> Result<Option<Vec<ListedEntry>>, HostError> {
        match self.listed(path, names) {
            Ok(found) => Ok(Some(found)),
            Err(PathProblem::NoParent) => Ok(None),
            Err(source) => Err(HostOperation::Look.failed(path)(source)),
        }
    }

    fn listed(&self, path: &str, names: ListedNames<'_>) -> Result<Vec<ListedEntry>, PathProblem> {
        let entry = self.entry(path)?;
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let dir = openat(&entry.dir, &entry.name, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::LOOP => PathProblem::NotDirectory,
            other => other.into(),
        })?;
        let device = rustix::fs::fstat(&dir)?.st_dev;
        let look = |name: String| -> Result<Option<ListedEntry>, PathProblem> {
            let stat = match statat(&dir, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            };
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => ListedKind::File,
                FileType::Directory if stat.st_dev == device => ListedKind::Directory,
                FileType::Symlink => match readlinkat(&dir, &*name, Vec::new())?.into_string() {
                    Ok(target) => ListedKind::Symlink(target),
                    Err(_) => ListedKind::Other,
                },
                _ => ListedKind::Other,
            };
            let (mode, uid, gid) = (mode_of(&stat), stat.st_uid, stat.st_gid);
            Ok(Some(ListedEntry { name, kind, mode, uid, gid, stamp: FileVersion::of(&stat) }))
        };
        let names: Vec<String> = match names {
            ListedNames::Given(names) => names.iter().map(|name| (*name).to_owned()).collect(),
            ListedNames::All(limit) => {
                let all = entries(&dir, limit)?.ok_or(PathProblem::TooMany { entries: limit, depth: 1 })?;
                all.into_iter().filter_map(|(name, _)| name.into_string().ok()).collect()
            }
        };
        names.into_iter().filter_map(|name| look(name).transpose()).collect()
    }
}
