//! Making directories and symbolic links, complete before they are visible.

use std::ffi::OsStr;

use model::PathOwnership;
use rustix::fs::{
    Dir, DirEntry, FileType, Mode, OFlags, RenameFlags, fstat, mkdirat, openat, renameat, renameat_with,
    symlinkat,
};
use rustix::io::Errno;

use crate::find::{stat_at, what};
use crate::path::{DIRECTORY, DirEntryRef};
use crate::write::{discard, make_temporary, sync_directory};
use crate::{Host, HostError, HostOperation, PathProblem};

impl Host {
    /// Makes a directory with its final mode and owner; its parent must be there.
    ///
    /// # Errors
    /// When something is there already, the parent is missing, or disk or rights fail.
    pub fn make_directory(
        &self,
        path: &str,
        ownership: &PathOwnership,
        default_mode: u32,
    ) -> Result<(), HostError> {
        self.at(HostOperation::MakeDirectory, path, |entry| {
            if let Some(stat) = stat_at(entry)? {
                return Err(PathProblem::NotRegular(what(FileType::from_raw_mode(stat.st_mode))));
            }
            let make = |name: &OsStr| mkdirat(&entry.dir, name, Mode::RWXU);
            let (temporary, ()) = make_temporary(&entry.dir, &entry.name, make)?;
            let made = self.finish_directory(entry, &temporary, ownership, default_mode);
            if made.is_err() {
                discard(&entry.dir, &temporary);
            }
            made
        })
    }

    /// Makes a symbolic link, replacing a link or a regular file in one step.
    ///
    /// # Errors
    /// When a directory, FIFO, socket or device is there, or disk or rights fail.
    pub fn make_symlink(&self, path: &str, target: &str) -> Result<(), HostError> {
        self.at(HostOperation::MakeSymlink, path, |entry| {
            match stat_at(entry)?.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
                None | Some(FileType::Symlink | FileType::RegularFile) => {}
                Some(FileType::Directory) => return Err(PathProblem::IsDirectory),
                Some(other) => return Err(PathProblem::NotRegular(what(other))),
            }
            if target.is_empty() || target.contains('\0') {
                return Err(PathProblem::BadPath("the target is empty or holds a NUL byte"));
            }
            let make = |name: &OsStr| symlinkat(target, &entry.dir, name);
            let (temporary, ()) = make_temporary(&entry.dir, &entry.name, make)?;
            if let Err(errno) = renameat(&entry.dir, &temporary, &entry.dir, &entry.name) {
                discard(&entry.dir, &temporary);
                return Err(errno.into());
            }
            sync_directory(&entry.dir)
        })
    }

    /// Gives what is at a path another name in the same directory, whatever it is; what had that name is
    /// replaced.
    ///
    /// # Errors
    /// When there is nothing, the other name is that of a directory, or disk or rights fail.
    pub fn rename(&self, path: &str, name: &str) -> Result<(), HostError> {
        self.at(HostOperation::Write, path, |entry| {
            if name.is_empty() || name.contains(['/', '\0']) || matches!(name, "." | "..") {
                return Err(PathProblem::BadPath("its new name is no name of an entry"));
            }
            renameat(&entry.dir, &entry.name, &entry.dir, name)?;
            sync_directory(&entry.dir)
        })
    }

    fn finish_directory(
        &self,
        entry: &DirEntryRef,
        temporary: &OsStr,
        ownership: &PathOwnership,
        default_mode: u32,
    ) -> Result<(), PathProblem> {
        let fd = openat(&entry.dir, temporary, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        let wanted = ownership.or(PathOwnership { mode: Some(default_mode), ..PathOwnership::default() });
        let stat = fstat(&fd)?;
        // Who may rename here may have put another directory in the place of the one just made.
        if stat.st_uid != self.euid() || Dir::read_from(&fd)?.any(|entry| !is_itself(entry)) {
            return Err(PathProblem::NotEmpty);
        }
        self.own(&fd, &stat, &wanted)?;
        // Without the flag an empty directory made meanwhile would be replaced.
        match renameat_with(&entry.dir, temporary, &entry.dir, &entry.name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => renameat(&entry.dir, temporary, &entry.dir, &entry.name)?,
            other => other?,
        }
        sync_directory(&entry.dir)
    }
}

/// An entry of a directory that stands for the directory itself, or the one above it.
fn is_itself(entry: Result<DirEntry, Errno>) -> bool {
    entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::HostOptions;

    /// Whoever may rename in a directory swaps one that is being made there before it is opened.
    #[test]
    fn a_directory_that_was_swapped_is_not_taken_for_the_one_that_was_made() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::open(root.path(), HostOptions::default()).unwrap();
        let finish = |swap: &dyn Fn(&std::path::Path)| {
            host.at(HostOperation::MakeDirectory, "/made", |entry| {
                let make = |name: &OsStr| mkdirat(&entry.dir, name, Mode::RWXU);
                let (temporary, ()) = make_temporary(&entry.dir, &entry.name, make)?;
                swap(&root.path().join(&temporary));
                host.finish_directory(entry, &temporary, &PathOwnership::default(), 0o755)
            })
        };
        let theirs = root.path().join("theirs");
        std::fs::create_dir(&theirs).unwrap();
        std::fs::write(theirs.join("secret"), "secret").unwrap();
        std::fs::set_permissions(&theirs, std::fs::Permissions::from_mode(0o700)).unwrap();
        let swapped = std::cell::RefCell::new(theirs.clone());
        finish(&|temporary| {
            std::fs::remove_dir(temporary).unwrap();
            std::fs::rename(&theirs, temporary).unwrap();
            *swapped.borrow_mut() = temporary.to_owned();
        })
        .unwrap_err();
        assert!(!root.path().join("made").exists());
        assert_eq!(std::fs::metadata(&*swapped.borrow()).unwrap().mode() & 0o7777, 0o700);
        finish(&|temporary| {
            std::fs::remove_dir(temporary).unwrap();
            std::os::unix::fs::symlink(&*swapped.borrow(), temporary).unwrap();
        })
        .unwrap_err();
        assert_eq!(std::fs::metadata(&*swapped.borrow()).unwrap().mode() & 0o7777, 0o700);
        finish(&|_| {}).unwrap();
        assert_eq!(std::fs::metadata(root.path().join("made")).unwrap().mode() & 0o7777, 0o755);
    }
}
