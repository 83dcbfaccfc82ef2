//! Writing a file: a temporary file beside it, complete and durable, then one rename.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use model::digest::Hasher;
use model::{Digest, PathOwnership};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::find::{open_regular, stat_at, what};
use crate::ownership::{SET_ID, gives_away, others_choose, ownership_of};
use crate::path::DirEntryRef;
use crate::{Host, HostError, HostOperation, MAX_FILE, PathProblem};

/// What a name gets while it is being made. One run writes at a time, so a name that is
/// there already was left by a run that died, and goes. Where somebody else put it there and it does not go,
/// names that nobody can guess are tried.
const TEMPORARY: &str = ".muster-new";
/// How many such names are tried.
const GUESSLESS_NAMES: usize = 4;
/// What the name of the previous version gets.
const BACKUP: &str = ".muster-backup";
/// Names longer than this, in bytes, are shortened to a digest before a suffix is added.
const MAX_NAME: usize = 200;
/// How much is copied at a time, in bytes.
const CHUNK: usize = 64 * 1024;

/// Asked with the temporary file's path on the real host before it becomes visible; an
/// error text refuses it.
pub type Validate<'a> = &'a dyn Fn(&Path) -> Result<(), String>;

/// A file to be written.
pub struct FileWrite<'a> {
    /// Its bytes, at most [`MAX_FILE`].
    pub content: &'a mut dyn Read,
    /// What the bytes must be.
    pub digest: Digest,
    /// Mode, owner and group; what is absent stays as the old file has it.
    pub ownership: PathOwnership,
    /// Permission bits of a file that is new and has none declared.
    pub default_mode: u32,
    /// Keep the previous bytes, mode and owner beside it as `NAME.muster-backup`.
    pub backup: bool,
    /// The last word on the new bytes.
    pub validate: Option<Validate<'a>>,
}

impl Host {
    /// Writes a file so that its path shows the old bytes or the new, with their final
    /// mode and owner, at any moment and after a crash. A symbolic link at the path is
    /// replaced, never written through.
    ///
    /// # Errors
    /// When what is there is a directory, FIFO, socket or device, or has other names where
    /// others may have made them and its mode or owner would be kept; when content,
    /// validation, disk or rights fail. The old file is as it was then.
    pub fn write(&self, path: &str, write: FileWrite<'_>) -> Result<(), HostError> {
        self.at(HostOperation::Write, path, |entry| self.write_at(entry, path, write))
    }

    /// Removes what a run that died may have left beside a path, and brings back what it had set aside;
    /// errors do not matter. Gives the name beside it of a directory that was set aside and has to stay.
    pub fn sweep(&self, path: &str) -> Option<String> {
        let entry = self.entry(path).ok()?;
        discard(&entry.dir, &temporary_name(&entry.name));
        let backup = suffixed(&entry.name, BACKUP);
        discard(&entry.dir, &temporary_name(&backup));
        self.sweep_aside(&entry)
    }

    fn write_at(&self, entry: &DirEntryRef, path: &str, write: FileWrite<'_>) -> Result<(), PathProblem> {
        let old = stat_at(entry)?;
        let kept = match old.map(|old| (FileType::from_raw_mode(old.st_mode), old)) {
            None | Some((FileType::Symlink, _)) => PathOwnership::default(),
            Some((FileType::RegularFile, old)) => self.kept(entry, &old, &write)?,
            Some((FileType::Directory, _)) => return Err(PathProblem::IsDirectory),
            Some((other, _)) => return Err(PathProblem::NotRegular(what(other))),
        };
        let default = PathOwnership { mode: Some(write.default_mode), ..PathOwnership::default() };
        let ownership = write.ownership.or(kept).or(default);
        let temporary = Temporary::file(&entry.dir, &entry.name)?;
        copy(write.content, &temporary.file, &write.digest)?;
        self.own(&temporary.file, &fstat(&temporary.file)?, &ownership)?;
        temporary.file.sync_all()?;
        if let Some(validate) = write.validate {
            let real = self.real_path(&entry.dir, path).join(&temporary.name);
            validate(&real).map_err(PathProblem::Invalid)?;
        }
        self.still_wanted()?;
        if write.backup && kept != PathOwnership::default() {
            self.back_up(entry)?;
        }
        temporary.publish(&entry.name)
    }

    /// Mode and owner of the old file, for what is not declared. A second name may be one that
    /// someone else put here for what it has: a set-id bit, with root as its owner. Such a bit is not kept where
    /// others choose what is here, or the file gets another owner.
    fn kept(
        &self,
        entry: &DirEntryRef,
        old: &Stat,
        write: &FileWrite<'_>,
    ) -> Result<PathOwnership, PathProblem> {
        let PathOwnership { mode, uid, gid } = write.ownership;
        let declared = mode.is_some() && uid.is_some() && gid.is_some();
        let others_choose = others_choose(self, &fstat(&entry.dir)?);
        if old.st_nlink > 1 && !declared && others_choose {
            return Err(PathProblem::HardLinks);
        }
        let mut kept = ownership_of(old);
        if others_choose || gives_away(old, &write.ownership) {
            kept.mode = kept.mode.map(|mode| mode & !SET_ID);
        }
        Ok(kept)
    }

    /// Copies the file at `entry` to its backup name, whole or not at all.
    fn back_up(&self, entry: &DirEntryRef) -> Result<(), PathProblem> {
        let (fd, stat) = open_regular(entry)?;
        let backup = DirEntryRef { dir: entry.dir.try_clone()?, name: suffixed(&entry.name, BACKUP) };
        match stat_at(&backup)?.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            None | Some(FileType::RegularFile) => {}
            Some(other) => return Err(PathProblem::NotRegular(what(other))),
        }
        let temporary = Temporary::file(&backup.dir, &backup.name)?;
        pump(&mut File::from(fd), &temporary.file)?;
        self.own(&temporary.file, &fstat(&temporary.file)?, &ownership_of(&stat))?;
        temporary.file.sync_all()?;
        temporary.publish(&backup.name)
    }

    /// Where an open directory of `path` lies on the real host, for commands.
    fn real_path(&self, dir: &OwnedFd, path: &str) -> PathBuf {
        use std::os::fd::AsRawFd;
        std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())).unwrap_or_else(|_| {
            let below = Path::new(path.trim_start_matches('/'));
            self.root().join(below.parent().unwrap_or(Path::new("")))
        })
    }
}

/// A file that is not yet what it will be called; removed unless published.
struct Temporary<'a> {
    dir: &'a OwnedFd,
    name: OsString,
    file: File,
    published: bool,
}

impl<'a> Temporary<'a> {
    fn file(dir: &'a OwnedFd, name: &OsStr) -> Result<Temporary<'a>, PathProblem> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = |name: &OsStr| openat(dir, name, flags, Mode::RUSR | Mode::WUSR);
        let (name, fd) = make_temporary(dir, name, create)?;
        Ok(Temporary { dir, name, file: File::from(fd), published: false })
    }

    fn publish(mut self, name: &OsStr) -> Result<(), PathProblem> {
        renameat(self.dir, &self.name, self.dir, name)?;
        self.published = true;
        sync_directory(self.dir)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.published {
            discard(self.dir, &self.name);
        }
    }
}

/// Makes something under a temporary name of `name`; gives that name too.
pub(crate) fn make_temporary<T>(
    dir: &OwnedFd,
    name: &OsStr,
    make: impl Fn(&OsStr) -> Result<T, Errno>,
) -> Result<(OsString, T), PathProblem> {
    let usual = temporary_name(name);
    discard(dir, &usual);
    let mut tried = usual.clone();
    for _ in 0..GUESSLESS_NAMES {
        match make(&tried) {
            Err(Errno::EXIST) => {}
            made => return Ok((tried, made?)),
        }
        // Keyed anew, and unpredictably, each time.
        let random = RandomState::new().hash_one(&usual);
        tried = usual.clone();
        tried.push(format!("-{random:016x}"));
    }
    Ok((tried.clone(), make(&tried)?))
}

/// The name under which `name` is made ready.
pub(crate) fn temporary_name(name: &OsStr) -> OsString {
    let mut temporary = OsString::from(".");
    temporary.push(suffixed(name, TEMPORARY));
    temporary
}

/// Removes a file, link or empty directory that nobody else uses; it may be missing.
pub(crate) fn discard(dir: &OwnedFd, name: &OsStr) {
    if unlinkat(dir, name, AtFlags::empty()) == Err(Errno::ISDIR) {
        // Only a directory that is empty goes; a full one is not ours.
        let _ = unlinkat(dir, name, AtFlags::REMOVEDIR);
    }
}

/// Makes renames and removals in a directory durable, where its file system can.
pub(crate) fn sync_directory(dir: impl AsFd) -> Result<(), PathProblem> {
    match fsync(dir) {
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
        other => Ok(other?),
    }
}

pub(crate) fn suffixed(name: &OsStr, suffix: &str) -> OsString {
    let mut name = if name.len() > MAX_NAME {
        OsString::from(Digest::of(name.as_bytes()).short())
    } else {
        name.to_owned()
    };
    name.push(suffix);
    name
}

fn copy(content: &mut dyn Read, file: &File, digest: &Digest) -> Result<(), PathProblem> {
    if pump(content, file)? == *digest { Ok(()) } else { Err(PathProblem::WrongDigest) }
}

/// Copies at most [`MAX_FILE`] bytes and gives their digest.
fn pump(content: &mut dyn Read, mut file: &File) -> Result<Digest, PathProblem> {
    let mut buffer = vec![0; CHUNK];
    let mut hasher = Hasher::new();
    let mut total = 0u64;
    loop {
        let got = match content.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(PathProblem::Content(error)),
        };
        total += got as u64;
        if total > MAX_FILE {
            return Err(PathProblem::TooLarge { limit: MAX_FILE });
        }
        hasher.update(&buffer[..got]);
        file.write_all(&buffer[..got])?;
    }
}
