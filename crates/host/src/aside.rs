//! Setting a directory aside, so that something else can take its place and the directory can come back.
//!
//! ```text
//! set_aside: surveyed -> NAME renamed to .NAME.muster-aside
//! something else is made at NAME: discard_aside, else bring_back
//! killed meanwhile: `sweep` brings it back where NAME is missing, and leaves it where it is not
//! ```
//!
//! Invariant: what is in a directory goes only while the change that set it aside goes on, and only when it
//! is that directory still. Whoever can write in the directory around it can move another one to its name.

use std::ffi::{OsStr, OsString};

use rustix::fs::{AtFlags, FileType, RenameFlags, Stat, fstat, renameat_with, unlinkat};

use crate::find::{stat_at, what};
use crate::path::DirEntryRef;
use crate::remove::{remove_surveyed, survey};
use crate::write::{suffixed, sync_directory};
use crate::{Host, HostError, HostOperation, PathProblem};

/// What the name of a directory that was set aside gets.
const ASIDE: &str = ".muster-aside";

/// A directory that was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAside {
    device: u64,
    inode: u64,
}

impl SetAside {
    fn of(stat: &Stat) -> SetAside {
        SetAside { device: stat.st_dev, inode: stat.st_ino }
    }
}

impl Host {
    /// Gives a directory another name beside its own, until it is brought back or discarded.
    ///
    /// # Errors
    /// When it is no directory, could not be removed whole (a mount point in it, too many entries), cannot
    /// be renamed, or another one was left at the name that it would get; it is where it was then.
    pub fn set_aside(&self, path: &str) -> Result<SetAside, HostError> {
        self.at(HostOperation::Remove, path, |entry| {
            match stat_at(entry)?.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
                Some(FileType::Directory) => {}
                Some(other) => return Err(PathProblem::NotRegular(what(other))),
                None => return Err(PathProblem::NoParent),
            }
            let beside = beside(entry)?;
            if stat_at(&beside)?.is_some() {
                return Err(PathProblem::AsideInTheWay(beside.name.to_string_lossy().into_owned()));
            }
            let directory = SetAside::of(&fstat(survey(entry, path)?)?);
            rename_no_replace(entry, &entry.name, &beside.name)?;
            Ok(directory)
        })
    }

    /// Brings back what was set aside; nothing may be in its place.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn bring_back(&self, path: &str) -> Result<(), HostError> {
        // Also for a job for which nobody waits any more: what was there stays there.
        let back = |entry: DirEntryRef| rename_no_replace(&entry, &aside(&entry.name), &entry.name);
        self.entry(path).and_then(back).map_err(HostOperation::Write.failed(path))
    }

    /// Removes the directory that was set aside, with all that is in it; nothing when it went away.
    ///
    /// # Errors
    /// When it cannot be removed, or another one has its name now.
    pub fn discard_aside(&self, path: &str, directory: SetAside) -> Result<(), HostError> {
        self.at(HostOperation::Remove, path, |entry| {
            let beside = beside(entry)?;
            if stat_at(&beside)?.is_none() {
                return Ok(());
            }
            let open = survey(&beside, path)?;
            if SetAside::of(&fstat(&open)?) != directory {
                return Err(PathProblem::AsideInTheWay(beside.name.to_string_lossy().into_owned()));
            }
            remove_surveyed(&beside, &open, path)?;
            sync_directory(&entry.dir)
        })
    }

    /// Ends what a run that died began with a directory. Nobody knows any more which directory was set
    /// aside: what is in one stays where something has its place, and its name is given.
    pub(crate) fn sweep_aside(&self, entry: &DirEntryRef) -> Option<String> {
        let beside = beside(entry).ok()?;
        let kind = FileType::from_raw_mode(stat_at(&beside).ok()??.st_mode);
        if kind != FileType::Directory {
            return None;
        }
        let is_done = match stat_at(entry) {
            Ok(None) => rename_no_replace(entry, &beside.name, &entry.name).is_ok(),
            // Only an empty one goes.
            _ => unlinkat(&beside.dir, &beside.name, AtFlags::REMOVEDIR).is_ok(),
        };
        (!is_done).then(|| beside.name.to_string_lossy().into_owned())
    }
}

fn beside(entry: &DirEntryRef) -> Result<DirEntryRef, PathProblem> {
    Ok(DirEntryRef { dir: entry.dir.try_clone()?, name: aside(&entry.name) })
}

fn rename_no_replace(entry: &DirEntryRef, from: &OsStr, to: &OsStr) -> Result<(), PathProblem> {
    renameat_with(&entry.dir, from, &entry.dir, to, RenameFlags::NOREPLACE)?;
    sync_directory(&entry.dir)
}

fn aside(name: &OsStr) -> OsString {
    let mut hidden = OsString::from(".");
    hidden.push(suffixed(name, ASIDE));
    hidden
}
