//! Setting a directory aside, so that something else can take its place and the directory can come back.
//!
//! ```text
//! set_aside: surveyed -> NAME renamed to .NAME.muster-aside
//! something else is made at NAME: discard_aside, else bring_back
//! killed meanwhile: `sweep` brings it back where NAME is missing, and discards it where it is not
//! ```

use std::ffi::{OsStr, OsString};

use rustix::fs::{FileType, RenameFlags, renameat_with};

use crate::find::{stat_at, what};
use crate::path::DirEntryRef;
use crate::remove::{remove_tree, survey};
use crate::write::{suffixed, sync_directory};
use crate::{Host, HostError, HostOperation, PathProblem};

/// What the name of a directory that was set aside gets.
const ASIDE: &str = ".muster-aside";

impl Host {
    /// Gives a directory another name beside its own, until it is brought back or discarded.
    ///
    /// # Errors
    /// When it is no directory, could not be removed whole (a mount point in it, too many entries), or
    /// cannot be renamed; it is where it was then.
    pub fn set_aside(&self, path: &str) -> Result<(), HostError> {
        self.at(HostOperation::Remove, path, |entry| {
            match stat_at(entry)?.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
                Some(FileType::Directory) => {}
                Some(other) => return Err(PathProblem::NotRegular(what(other))),
                None => return Err(PathProblem::NoParent),
            }
            survey(entry, path)?;
            move_over(entry, &entry.name, &aside(&entry.name))
        })
    }

    /// Brings back what was set aside; nothing may be in its place.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn bring_back(&self, path: &str) -> Result<(), HostError> {
        self.at(HostOperation::Write, path, |entry| move_over(entry, &aside(&entry.name), &entry.name))
    }

    /// Removes what was set aside, with all that is in it; nothing when nothing was.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn discard_aside(&self, path: &str) -> Result<(), HostError> {
        self.at(HostOperation::Remove, path, |entry| discard_aside(entry, path))
    }

    /// Ends what a run that died began with a directory.
    pub(crate) fn sweep_aside(&self, entry: &DirEntryRef, path: &str) {
        let there = |entry: &DirEntryRef| stat_at(entry).is_ok_and(|stat| stat.is_some());
        let Ok(kept) = beside(entry) else { return };
        // What cannot be done now can be done at the next start.
        let _ = match (there(&kept), there(entry)) {
            (false, _) => Ok(()),
            (true, false) => move_over(entry, &kept.name, &entry.name),
            (true, true) => discard_aside(entry, path),
        };
    }
}

fn discard_aside(entry: &DirEntryRef, path: &str) -> Result<(), PathProblem> {
    let kept = beside(entry)?;
    if stat_at(&kept)?.is_some() {
        remove_tree(&kept, path)?;
        sync_directory(&entry.dir)?;
    }
    Ok(())
}

fn beside(entry: &DirEntryRef) -> Result<DirEntryRef, PathProblem> {
    Ok(DirEntryRef { dir: entry.dir.try_clone()?, name: aside(&entry.name) })
}

fn move_over(entry: &DirEntryRef, from: &OsStr, to: &OsStr) -> Result<(), PathProblem> {
    renameat_with(&entry.dir, from, &entry.dir, to, RenameFlags::NOREPLACE)?;
    sync_directory(&entry.dir)
}

fn aside(name: &OsStr) -> OsString {
    let mut hidden = OsString::from(".");
    hidden.push(suffixed(name, ASIDE));
    hidden
}
