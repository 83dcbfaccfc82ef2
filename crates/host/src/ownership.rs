//! Mode, owner and group, set through an open file and never through a name.

use std::os::fd::AsFd;

use model::PathOwnership;
use rustix::fs::{FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, fsync, openat};
use rustix::io::Errno;

use crate::find::mode_of;
use crate::path::others_write;
use crate::{Host, HostError, HostOperation, PathProblem};

/// The bits by which a program has the rights of its file's owner or group.
pub(crate) const SET_ID: u32 = 0o6000;

pub(crate) fn ownership_of(stat: &Stat) -> PathOwnership {
    PathOwnership { mode: Some(mode_of(stat)), uid: Some(stat.st_uid), gid: Some(stat.st_gid) }
}

impl Host {
    /// Sets mode, owner and group of a file or directory, without touching its content.
    /// Owner and group are left out where they are not enforced.
    ///
    /// # Errors
    /// When there is no file or directory, it has other names where others may have
    /// made them, it is a file of somebody else's there that is to get another owner, or the agent may not.
    pub fn set_ownership(&self, path: &str, ownership: &PathOwnership) -> Result<(), HostError> {
        self.at(HostOperation::SetOwnership, path, |entry| {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let fd = openat(&entry.dir, &entry.name, flags, Mode::empty()).map_err(|errno| match errno {
                Errno::LOOP => PathProblem::NotRegular("a symlink"),
                other => other.into(),
            })?;
            let stat = fstat(&fd)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {}
                FileType::RegularFile => {
                    // A second name may be one that someone else keeps for a file they want given away.
                    let others_choose = others_choose(self, &fstat(&entry.dir)?);
                    if stat.st_nlink > 1 && others_choose {
                        return Err(PathProblem::HardLinks);
                    }
                    // Whose it was may have it open still, and write it when it is somebody else's.
                    let is_foreign = stat.st_uid != 0 && stat.st_uid != self.euid();
                    let gets_owner = ownership.uid.is_some_and(|uid| uid != stat.st_uid);
                    if is_foreign && gets_owner && others_choose {
                        return Err(PathProblem::NotToGive { uid: stat.st_uid, mode: mode_of(&stat) });
                    }
                }
                other => return Err(PathProblem::NotRegular(crate::find::what(other))),
            }
            self.own(&fd, &stat, ownership)?;
            fsync(&fd)?;
            Ok(())
        })
    }

    /// Makes an open file owned and permitted as given. Rights are narrowed before the
    /// owner changes and widened after, so that nobody has more than the old or the new
    /// owner and mode allow.
    pub(crate) fn own(&self, fd: impl AsFd, now: &Stat, wanted: &PathOwnership) -> Result<(), PathProblem> {
        let uid = wanted.uid.filter(|uid| *uid != now.st_uid);
        let gid = wanted.gid.filter(|gid| *gid != now.st_gid);
        let kept = if gives_away(now, wanted) { mode_of(now) & !SET_ID } else { mode_of(now) };
        let mode = wanted.mode.unwrap_or(kept) & 0o7777;
        if uid.is_none() && gid.is_none() {
            if mode != mode_of(now) {
                fchmod(&fd, Mode::from_raw_mode(mode))?;
            }
            return Ok(());
        }
        fchmod(&fd, Mode::from_raw_mode(mode & mode_of(now) & 0o777))?;
        let owned = fchown(&fd, uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        // Changing the owner clears the set-id bits, so the mode comes after it.
        fchmod(&fd, Mode::from_raw_mode(mode))?;
        match owned {
            Err(Errno::PERM | Errno::INVAL) if !self.enforces_ownership() => Ok(()),
            other => Ok(other?),
        }
    }
}

/// Whether a file gets another owner or group. What it may do with the rights of its owner was said of the one
/// before: a user's set-id copy of a shell would become root's.
pub(crate) fn gives_away(now: &Stat, wanted: &PathOwnership) -> bool {
    let is_file = FileType::from_raw_mode(now.st_mode) == FileType::RegularFile;
    let differs = |wanted: Option<u32>, now: u32| wanted.is_some_and(|wanted| wanted != now);
    is_file && (differs(wanted.uid, now.st_uid) || differs(wanted.gid, now.st_gid))
}

/// Someone other than root and the agent decides which names are in the directory.
pub(crate) fn others_choose(host: &Host, dir: &Stat) -> bool {
    (dir.st_uid != 0 && dir.st_uid != host.euid()) || others_write(host, dir)
}
