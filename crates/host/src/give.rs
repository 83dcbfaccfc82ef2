//! Reading and owning what is to be somebody else's: only what they may read already.
//!
//! ```text
//! path -> one open file -> who chooses what lies there? -- only root and the agent --> given
//!                                                       -- somebody else --> may they read it? -> given
//!                                                                                               -> refused
//! ```
//!
//! Who owns a directory may rename a file of root's into it. Invariant: what is judged is what is open;
//! what has the name afterwards is nobody's word.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use model::PathOwnership;
use rustix::fs::{Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use crate::find::{bytes, mode_of, open_regular};
use crate::ownership::{others_choose, ownership_of};
use crate::path::DirEntryRef;
use crate::{Host, HostError, HostOperation, PathProblem};

/// The bits that give a file to more than its owner.
const OTHERS: u32 = 0o077;
const OTHERS_READ: u32 = 0o004;
/// Stands for everyone: a directory of root's that others can write.
const ANYONE: u32 = u32::MAX;

/// A file that may be given: what it held and what it was, read from one open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenFile {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its mode, owner and group, all present.
    pub ownership: PathOwnership,
}

impl Host {
    /// The bytes of a regular file of at most `limit` bytes that is to have `wanted`; `None` when there
    /// is nothing.
    ///
    /// # Errors
    /// When it is no regular file, is larger, or cannot be read; where somebody else chooses what lies
    /// there, also when it has other names, or they could not read it and would get it.
    pub fn read_to_give(
        &self,
        path: &str,
        limit: u64,
        wanted: &PathOwnership,
    ) -> Result<Option<GivenFile>, HostError> {
        let read = || -> Result<GivenFile, PathProblem> {
            let entry = self.entry(path)?;
            let (fd, stat) = open_regular(&entry)?;
            self.may_give(&entry, &stat, wanted)?;
            Ok(GivenFile { bytes: bytes(fd, limit)?, ownership: ownership_of(&stat) })
        };
        match read() {
            Ok(file) => Ok(Some(file)),
            Err(PathProblem::NoParent) => Ok(None),
            Err(source) => Err(HostOperation::Read.failed(path)(source)),
        }
    }

    /// As [`Host::set_ownership`] of a regular file, refused as [`Host::read_to_give`] refuses.
    ///
    /// # Errors
    /// As both.
    pub fn give_file(&self, path: &str, wanted: &PathOwnership) -> Result<(), HostError> {
        self.at(HostOperation::SetOwnership, path, |entry| {
            let (fd, stat) = open_regular(entry)?;
            self.may_give(entry, &stat, wanted)?;
            self.own(&fd, &stat, wanted)
        })
    }

    /// Sets mode and group of a directory that already belongs to `owner`.
    ///
    /// # Errors
    /// When there is no directory, it belongs to someone else, or the agent may not.
    pub fn keep_directory(&self, path: &str, owner: u32, wanted: &PathOwnership) -> Result<(), HostError> {
        self.at(HostOperation::SetOwnership, path, |entry| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = openat(&entry.dir, &entry.name, flags, Mode::empty()).map_err(|errno| match errno {
                Errno::LOOP => PathProblem::NotRegular("a symlink"),
                other => other.into(),
            })?;
            let stat = fstat(&fd)?;
            if self.enforces_ownership() && stat.st_uid != owner {
                return Err(PathProblem::NotToGive { uid: stat.st_uid, mode: mode_of(&stat) });
            }
            self.own(&fd, &stat, wanted)
        })
    }

    fn may_give(&self, entry: &DirEntryRef, stat: &Stat, wanted: &PathOwnership) -> Result<(), PathProblem> {
        if !self.enforces_ownership() {
            return Ok(());
        }
        let Some(chooser) = self.chooser(&entry.dir)? else { return Ok(()) };
        if stat.st_nlink != 1 {
            return Err(PathProblem::HardLinks);
        }
        let mode = mode_of(stat);
        // To root it is nothing new.
        let owner = wanted.uid.filter(|uid| *uid != 0 && *uid != stat.st_uid);
        let group = wanted.gid.filter(|gid| *gid != 0 && *gid != stat.st_gid);
        let more = wanted.mode.filter(|wanted| wanted & OTHERS & !mode != 0);
        if owner.is_none() && group.is_none() && more.is_none() {
            return Ok(());
        }
        let reader = wanted.uid.filter(|uid| *uid != 0).unwrap_or(chooser);
        match stat.st_uid == reader || (stat.st_uid == 0 && mode & OTHERS_READ != 0) {
            true => Ok(()),
            false => Err(PathProblem::NotToGive { uid: stat.st_uid, mode }),
        }
    }

    /// Who, other than root and the agent, chooses what lies in a directory, or on the way to it.
    fn chooser(&self, dir: &OwnedFd) -> Result<Option<u32>, PathProblem> {
        let chooser = |stat: &Stat| {
            let uid = if stat.st_uid == 0 { ANYONE } else { stat.st_uid };
            others_choose(self, stat).then_some(uid)
        };
        let mut way = PathBuf::from("/");
        let real = self.path_of(dir)?;
        for part in Path::new(&real).components().filter(|part| matches!(part, Component::Normal(_))) {
            way.push(part);
            let there = way.to_str().ok_or(PathProblem::BadPath("it really lies at no UTF-8 path"))?;
            if let Some(uid) = chooser(&fstat(self.directory(there)?)?) {
                return Ok(Some(uid));
            }
        }
        Ok(chooser(&fstat(dir)?).filter(|_| real != Path::new("/")))
    }
}
