//! Writing and removing files of the folder: whole or not at all, never through a link.
//!
//! New files have mode 0644 and new directories 0755, and belong to the owner of the folder,
//! who works with them; who else may see them, the mode of the folder says. A file that is
//! replaced keeps its mode and owner.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RawMode, Stat, Uid, fchmod, fchown, fstat, fsync, mkdirat, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::disk::{DIRECTORY, open_parent};
use super::names;
use crate::backend::BackendError;

/// Mode of a new file.
const FILE_MODE: RawMode = 0o644;
/// Mode of a new directory.
const DIRECTORY_MODE: RawMode = 0o755;
/// The bits of an old file's mode that a new one gets: no set-id bits.
const KEPT: RawMode = 0o777;

/// Writes a file, its directories made where they are missing.
pub(crate) fn write(root: &OwnedFd, path: &str, bytes: &[u8]) -> Result<(), BackendError> {
    let failed = |errno: Errno| failure("write", path, errno);
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
            let message = format!("cannot write {path}: something that is no file is there; move it away");
            return Err(BackendError::permanent("not-a-file", message));
        }
    };
    let temporary = names::temporary(name);
    let made = fill(&dir, &temporary, bytes, old.as_ref(), &folder)
        .and_then(|()| renameat(&dir, &temporary, &dir, name))
        .and_then(|()| sync(&dir));
    made.map_err(|errno| {
        let _ = unlinkat(&dir, &temporary, AtFlags::empty());
        failed(errno)
    })
}

/// Removes a file; it may be missing.
pub(crate) fn remove(root: &OwnedFd, path: &str) -> Result<(), BackendError> {
    let removed = open_parent(root, path)
        .and_then(|(dir, name)| unlinkat(&dir, name, AtFlags::empty()).and_then(|()| sync(&dir)));
    match removed {
        // No file can have a name that is too long.
        Ok(()) | Err(Errno::NOENT | Errno::NAMETOOLONG) => Ok(()),
        Err(errno) => Err(failure("remove", path, errno)),
    }
}

fn fill(dir: &OwnedFd, name: &str, bytes: &[u8], old: Option<&Stat>, folder: &Stat) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create = || openat(dir, name, flags, Mode::RUSR | Mode::WUSR);
    let fd = match create() {
        Err(Errno::EXIST) => {
            unlinkat(dir, name, AtFlags::empty())?;
            create()?
        }
        other => other?,
    };
    let mut file = File::from(fd);
    let io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    file.write_all(bytes).map_err(io)?;
    own(&file, old.unwrap_or(folder))?;
    fchmod(&file, Mode::from_raw_mode(old.map_or(FILE_MODE, |old| old.st_mode & KEPT)))?;
    file.sync_all().map_err(io)
}

/// Opens the directory of a path, making what is missing.
fn make_parent<'p>(root: &OwnedFd, path: &'p str, folder: &Stat) -> Result<(OwnedFd, &'p str), Errno> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut dir = openat(root, ".", DIRECTORY, Mode::empty())?;
    for part in above.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            return Err(Errno::INVAL);
        }
        dir = match openat(&dir, part, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => {
                mkdirat(&dir, part, Mode::from_raw_mode(DIRECTORY_MODE))?;
                let made = openat(&dir, part, DIRECTORY, Mode::empty())?;
                own(&made, folder)?;
                fchmod(&made, Mode::from_raw_mode(DIRECTORY_MODE))?;
                sync(&dir)?;
                made
            }
            other => other?,
        };
    }
    Ok((dir, name))
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

fn failure(what: &str, path: &str, errno: Errno) -> BackendError {
    let message = format!("cannot {what} {path}: {errno}");
    match errno {
        Errno::NAMETOOLONG | Errno::LOOP | Errno::NOTDIR | Errno::ISDIR | Errno::INVAL => {
            BackendError::permanent("not-writable", message)
        }
        Errno::NOSPC | Errno::DQUOT => BackendError::temporary("no-space", message),
        _ => BackendError::temporary("not-writable", message),
    }
}
