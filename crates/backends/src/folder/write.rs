//! Writing and removing files of the folder: whole or not at all, never through a link.
//!
//! New files have mode 0644 and new directories 0755, and belong to the owner of the folder,
//! who works with them; who else may see them, the mode of the folder says. A file that is
//! replaced keeps its mode and owner.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, DirEntry, FileType, Gid, Mode, RawMode, Stat, Uid, fchmod, fchown, fstat, fsync, mkdirat,
    openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use spool::atomic::WholeFile;
use spool::{Disk, SpoolError};

use super::disk::{DIRECTORY, descend, open_parent};
use super::names;
use crate::backend::BackendError;

/// Mode of a new file.
const FILE_MODE: RawMode = 0o644;
/// Mode of a new directory.
const DIRECTORY_MODE: RawMode = 0o755;
/// Mode of a file until it has its owner.
const MODE_UNTIL_DRESSED: u32 = 0o600;
/// The bits of an old file's mode that a new one gets: no set-id bits.
const KEPT: RawMode = 0o777;

/// Writes a file of the folder at `at`, its directories made where they are missing.
pub(crate) fn write(at: &Path, root: &OwnedFd, path: &str, bytes: &[u8]) -> Result<(), BackendError> {
    let failed = |errno: Errno| failure("write", &at.join(path), errno);
    let folder = fstat(root).map_err(failed)?;
    let (dir, name) = make_parent(root, path, &folder).map_err(failed)?;
    let old = match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(failed(errno)),
    };
    let old = match old.as_ref().map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        None | Some(FileType::Symlink) => None,
        Some(FileType::RegularFile) => old,
        Some(_) => {
            let path = at.join(path);
            let message =
                format!("cannot write {}: something that is no file is there; move it away", path.display());
            return Err(BackendError::permanent("not-a-file", message));
        }
    };
    let owner = old.as_ref().unwrap_or(&folder);
    let mode = old.as_ref().map_or(FILE_MODE, |old| old.st_mode & KEPT);
    // The directory is open: whoever owns the folder cannot put another in its place.
    let open = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string());
    let path = open.join(name);
    let dress = |file: &File| {
        own(file, owner)?;
        Ok(fchmod(file, Mode::from_raw_mode(mode))?)
    };
    let temporary = open.join(names::temporary(name));
    let file = WholeFile { temporary, dress: &dress, ..WholeFile::new(&path, MODE_UNTIL_DRESSED) };
    file.write(&Disk::new(), bytes).map_err(|error| match error {
        SpoolError::Disk { source, .. } => failed(Errno::from_io_error(&source).unwrap_or(Errno::IO)),
        _ => failed(Errno::IO),
    })
}

/// Removes a file; it may be missing.
pub(crate) fn remove(at: &Path, root: &OwnedFd, path: &str) -> Result<(), BackendError> {
    let removed = open_parent(root, path)
        .and_then(|(dir, name)| unlinkat(&dir, name, AtFlags::empty()).and_then(|()| sync(&dir)));
    match removed {
        // No file can have a name that is too long.
        Ok(()) | Err(Errno::NOENT | Errno::NAMETOOLONG) => Ok(()),
        Err(errno) => Err(failure("remove", &at.join(path), errno)),
    }
}

/// Opens the directory of a path, making what is missing.
fn make_parent<'p>(root: &OwnedFd, path: &'p str, folder: &Stat) -> Result<(OwnedFd, &'p str), Errno> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let made = descend(root, Path::new(above), &mut |dir, name| make_directory(dir, name, Some(folder)));
    Ok((made.map_err(|(_, errno)| errno)?, name))
}

/// Makes a folder that is not there, and the directories above it that are missing, each of mode
/// 0755; says whether there was anything to make. No part of its path may be a link.
pub(crate) fn make_folder(path: &Path) -> Result<bool, BackendError> {
    let failed = |(at, errno): (PathBuf, Errno)| {
        let why = match errno {
            Errno::LOOP | Errno::NOTDIR => "it is a link or no directory".to_owned(),
            other => other.to_string(),
        };
        let message = format!("cannot make the folder {}: {}: {why}", path.display(), at.display());
        BackendError::temporary("folder-gone", message)
    };
    let root =
        rustix::fs::open("/", DIRECTORY, Mode::empty()).map_err(|errno| failed(("/".into(), errno)))?;
    let mut made = false;
    let mut make = |dir: &OwnedFd, name: &OsStr| {
        made = true;
        make_directory(dir, name, None)
    };
    descend(&root, path, &mut make).map_err(failed)?;
    Ok(made)
}

/// Makes a directory in another one, durably.
fn make_directory(dir: &OwnedFd, name: &OsStr, owner: Option<&Stat>) -> Result<OwnedFd, Errno> {
    let is_made = match mkdirat(dir, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
        Ok(()) => true,
        // Somebody else was faster; if that is a link it is not followed.
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(errno),
    };
    open_made(dir, name, is_made, owner)
}

/// Opens a directory and, where it is the one that was just made, gives it its owner and mode.
fn open_made(dir: &OwnedFd, name: &OsStr, is_made: bool, owner: Option<&Stat>) -> Result<OwnedFd, Errno> {
    let made = openat(dir, name, DIRECTORY, Mode::empty())?;
    // Whoever owns the folder may have moved another directory to its name meanwhile: that stays as it is.
    if is_made && is_new(&made)? {
        owner.map_or(Ok(()), |owner| own(&made, owner))?;
        fchmod(&made, Mode::from_raw_mode(DIRECTORY_MODE))?;
    }
    sync(dir)?;
    Ok(made)
}

/// Whether a directory can be the one that was just made: the agent's, with nothing in it.
fn is_new(dir: &OwnedFd) -> Result<bool, Errno> {
    let is_entry = |entry: Result<DirEntry, Errno>| {
        entry.map_or(true, |entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))
    };
    Ok(fstat(dir)?.st_uid == geteuid().as_raw() && !Dir::read_from(dir)?.any(is_entry))
}

/// Gives a file to an owner, where the agent may.
fn own(file: impl AsFd, like: &Stat) -> Result<(), Errno> {
    let now = fstat(&file)?;
    if (now.st_uid, now.st_gid) == (like.st_uid, like.st_gid) {
        return Ok(());
    }
    match fchown(&file, Some(Uid::from_raw(like.st_uid)), Some(Gid::from_raw(like.st_gid))) {
        Err(Errno::PERM) => Ok(()),
        other => other,
    }
}

/// Makes a rename or removal durable, where the file system can.
fn sync(dir: &OwnedFd) -> Result<(), Errno> {
    match fsync(dir) {
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
        other => other,
    }
}

fn failure(what: &str, path: &Path, errno: Errno) -> BackendError {
    let message = format!("cannot {what} {}: {errno}", path.display());
    match errno {
        Errno::NAMETOOLONG | Errno::LOOP | Errno::NOTDIR | Errno::ISDIR | Errno::INVAL => {
            BackendError::permanent("not-writable", message)
        }
        Errno::NOSPC | Errno::DQUOT => BackendError::temporary("no-space", message),
        _ => BackendError::temporary("not-writable", message),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Whoever owns the folder swaps a directory between its making and its opening.
    #[test]
    fn a_directory_that_was_swapped_stays_as_it_is() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};

        let dir = tempfile::tempdir().unwrap();
        let open = rustix::fs::open(dir.path(), DIRECTORY, Mode::empty()).unwrap();
        let at = |name: &str| dir.path().join(name);
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().mode() & 0o7777;
        let mut folder = fstat(&open).unwrap();
        (folder.st_uid, folder.st_gid) = (1234, 1234);
        let make = |name: &str| mkdirat(&open, name, Mode::from_raw_mode(DIRECTORY_MODE)).unwrap();
        // What it would do to the one that was made.
        make("made");
        std::fs::set_permissions(at("made"), std::fs::Permissions::from_mode(0o700)).unwrap();
        open_made(&open, OsStr::new("made"), true, Some(&folder)).unwrap();
        assert_eq!(mode("made"), DIRECTORY_MODE);
        // Another one, with something in it, lies at its name by then.
        std::fs::create_dir(at("theirs")).unwrap();
        std::fs::write(at("theirs/secret"), "secret").unwrap();
        std::fs::set_permissions(at("theirs"), std::fs::Permissions::from_mode(0o700)).unwrap();
        let owner = std::fs::metadata(at("theirs")).unwrap().uid();
        make("new");
        std::fs::remove_dir(at("new")).unwrap();
        std::fs::rename(at("theirs"), at("new")).unwrap();
        open_made(&open, OsStr::new("new"), true, Some(&folder)).unwrap();
        assert_eq!((mode("new"), std::fs::metadata(at("new")).unwrap().uid()), (0o700, owner));
        // A link is not followed.
        make("linked");
        std::fs::remove_dir(at("linked")).unwrap();
        std::os::unix::fs::symlink(at("new"), at("linked")).unwrap();
        let errno = open_made(&open, OsStr::new("linked"), true, Some(&folder)).unwrap_err();
        assert!(matches!(errno, Errno::LOOP | Errno::NOTDIR), "{errno}");
        assert_eq!(mode("new"), 0o700);
    }

    #[test]
    fn a_directory_that_holds_something_was_not_just_made() {
        let dir = tempfile::tempdir().unwrap();
        let open = rustix::fs::open(dir.path(), DIRECTORY, Mode::empty()).unwrap();
        assert!(is_new(&open).unwrap());
        std::fs::write(dir.path().join("a"), "a").unwrap();
        assert!(!is_new(&open).unwrap());
        if geteuid().is_root() {
            std::fs::remove_file(dir.path().join("a")).unwrap();
            std::os::unix::fs::chown(dir.path(), Some(1234), None).unwrap();
            assert!(!is_new(&open).unwrap(), "it is somebody else's");
        }
    }
}
