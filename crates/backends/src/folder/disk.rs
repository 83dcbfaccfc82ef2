//! Looking into the folder and reading its files, without ever leaving it.
//!
//! Every step goes from an open directory to a name in it, and no link is followed, but for
//! a link to a regular file that stays below the folder (`RESOLVE_BENEATH`).

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use model::sort::SortCompactly;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags, fstat, openat, openat2, statat,
    statx, unlinkat,
};
use rustix::io::Errno;

use super::names::{self, FileRole};
use super::tree::{FileStamp, FolderIdentity, FolderTree};
use crate::backend::ListingProblem;

/// The most manifests and statuses in one folder.
pub(crate) const MAX_FILES: usize = 50_000;
/// The most entries of all its directories.
pub(crate) const MAX_ENTRIES: usize = 200_000;
/// The most levels of directories.
pub(crate) const MAX_DEPTH: usize = 16;

/// How a directory is opened.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// How a file is opened: a FIFO or device is not waited for.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// Where links may lead.
const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);

/// Opens the folder. No part of its path may be a link: who owns a directory above it could
/// lead the agent elsewhere.
pub(crate) fn open_folder(path: &Path) -> Result<OwnedFd, String> {
    let shown = |errno: Errno| match errno {
        Errno::LOOP | Errno::NOTDIR => {
            "a part of its path is a link or no directory; name the real path".to_owned()
        }
        Errno::INVAL => "its path must be absolute, without `..`".to_owned(),
        other => format!("it cannot be opened: {other}"),
    };
    let root = rustix::fs::open("/", DIRECTORY, Mode::empty()).map_err(shown)?;
    descend(&root, path, &mut |_, _| Err(Errno::NOENT)).map_err(|(_, errno)| shown(errno))
}

/// Opens a directory below another one, never through a link; what is missing, `make` makes. An
/// error comes with how far it went.
pub(crate) fn descend(
    from: &OwnedFd,
    path: &Path,
    make: &mut dyn FnMut(&OwnedFd, &OsStr) -> Result<OwnedFd, Errno>,
) -> Result<OwnedFd, (PathBuf, Errno)> {
    let mut at = PathBuf::new();
    let open = |dir: &OwnedFd, name: &OsStr| openat(dir, name, DIRECTORY, Mode::empty());
    let mut dir = open(from, ".".as_ref()).map_err(|errno| (at.clone(), errno))?;
    for part in path.components() {
        at.push(part);
        let below = match part {
            Component::RootDir | Component::CurDir => continue,
            Component::Normal(name) => match open(&dir, name) {
                Err(Errno::NOENT) => make(&dir, name),
                other => other,
            },
            _ => Err(Errno::INVAL),
        };
        dir = below.map_err(|errno| (at.clone(), errno))?;
    }
    Ok(dir)
}

/// Device and inode.
fn id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Which folder it is. Inodes are given again at once, so its birth counts too, where the
/// file system has it.
pub(crate) fn identity(folder: &OwnedFd) -> Result<FolderIdentity, Errno> {
    let stat = fstat(folder)?;
    let born = statx(folder, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME)
        .ok()
        .filter(|it| it.stx_mask & StatxFlags::BTIME.bits() != 0)
        .map(|it| (it.stx_btime.tv_sec, it.stx_btime.tv_nsec));
    Ok(FolderIdentity { id: id(&stat), born })
}

fn stamp(stat: &Stat) -> FileStamp {
    FileStamp {
        id: id(stat),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        times: [(stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec)],
    }
}

/// Looks at the whole folder. `each` gets every directory, to watch it. With `sweep`,
/// files that a writer of ours left half done are removed.
pub(crate) fn look(root: &OwnedFd, sweep: bool, each: &mut dyn FnMut(&OwnedFd)) -> Result<FolderTree, Errno> {
    let id = identity(root)?;
    let tree = FolderTree { id, ..FolderTree::default() };
    let mut scan = TreeScan { root, device: id.id.0, sweep, each, tree, entries: 0 };
    let again = openat(root, ".", DIRECTORY, Mode::empty())?;
    scan.directory(again, "", 0)?;
    Ok(scan.tree)
}

struct TreeScan<'w> {
    root: &'w OwnedFd,
    device: u64,
    sweep: bool,
    each: &'w mut dyn FnMut(&OwnedFd),
    tree: FolderTree,
    entries: usize,
}

impl TreeScan<'_> {
    fn directory(&mut self, dir: OwnedFd, path: &str, depth: usize) -> Result<(), Errno> {
        (self.each)(&dir);
        let mut names = Vec::new();
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                self.blind("", "too-many", format!("the folder has more than {MAX_ENTRIES} entries"));
                return Ok(());
            }
            match entry.file_name().to_str() {
                Ok(name) => names.push((name.to_owned(), entry.file_type())),
                Err(_) => {
                    let shown = format!("{path}/{}", entry.file_name().to_string_lossy());
                    self.tell(&shown, "not-text", "its name is not UTF-8; it is ignored".into());
                }
            }
        }
        names.sort_compactly_by(|(a, _), (b, _)| a.cmp(b));
        for (name, kind) in names {
            self.entry(&dir, path, &name, kind, depth);
        }
        Ok(())
    }

    fn entry(&mut self, dir: &OwnedFd, above: &str, name: &str, kind: FileType, depth: usize) {
        if name.starts_with('.') {
            if self.sweep && names::is_temporary(name) {
                // Whoever wrote it is not there any more: one writer has the folder.
                let _ = unlinkat(dir, name, AtFlags::empty());
            }
            return;
        }
        let path = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
        let role = names::role(name);
        if role.is_none() && !matches!(kind, FileType::Directory | FileType::Unknown) {
            return;
        }
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return,
            Err(errno) => {
                return self.blind(&path, "not-readable", format!("it cannot be looked at: {errno}"));
            }
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.enter(dir, &path, name, &stat, depth),
            FileType::RegularFile => self.file(path, role, &stat),
            FileType::Symlink => self.link(path, role),
            // A FIFO, a socket, a device: nobody's manifest.
            _ => {}
        }
    }

    fn enter(&mut self, dir: &OwnedFd, path: &str, name: &str, stat: &Stat, depth: usize) {
        if stat.st_dev != self.device {
            let why = "another file system is mounted here; it is not looked into".to_owned();
            return self.blind(path, "other-file-system", why);
        }
        if depth + 1 >= MAX_DEPTH {
            return self.blind(path, "too-deep", format!("the folder has over {MAX_DEPTH} levels"));
        }
        let entered = openat(dir, name, DIRECTORY, Mode::empty());
        match entered.and_then(|inside| self.directory(inside, path, depth + 1)) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => self.blind(path, "not-readable", format!("it cannot be looked into: {errno}")),
        }
    }

    fn file(&mut self, path: String, role: Option<FileRole>, stat: &Stat) {
        if role.is_none() {
            return;
        }
        if self.tree.files.len() >= MAX_FILES {
            let reported = self.tree.problems.iter().any(|problem| problem.code == "too-many");
            if !reported {
                self.blind("", "too-many", format!("the folder has more than {MAX_FILES} manifests"));
            }
            return;
        }
        self.tree.files.insert(path, stamp(stat));
    }

    /// A link counts as the file that it leads to, where that lies in the folder.
    fn link(&mut self, path: String, role: Option<FileRole>) {
        if role.is_none() {
            return;
        }
        match open_file(self.root, &path).and_then(|file| fstat(&file)) {
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => self.file(path, role, &stat),
                FileType::Directory => {
                    self.tell(&path, "link", "it is a link to a directory; it is ignored".into());
                }
                _ => {}
            },
            Err(Errno::NOENT) => {}
            Err(Errno::XDEV | Errno::LOOP) => {
                self.blind(&path, "link", "it is a link out of the folder; it is not followed".into());
            }
            Err(errno) => self.blind(&path, "link", format!("this link cannot be followed: {errno}")),
        }
    }

    fn tell(&mut self, path: &str, code: &'static str, message: String) {
        self.tree.problems.push(ListingProblem::of(path, None, code, message));
    }

    fn blind(&mut self, path: &str, code: &'static str, message: String) {
        self.tell(path, code, message);
        self.tree.blind.push(path.to_owned());
    }
}

/// Opens a file of the folder for reading.
fn open_file(root: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    match openat2(root, path, READ, Mode::empty(), BENEATH) {
        // An old kernel, or a sandbox: without links then.
        Err(Errno::NOSYS | Errno::PERM) => {
            let (dir, name) = open_parent(root, path)?;
            openat(&dir, name, READ | OFlags::NOFOLLOW, Mode::empty())
        }
        other => other,
    }
}

/// The directory of a path below the folder, no link followed, and the name in it.
pub(crate) fn open_parent<'p>(root: &OwnedFd, path: &'p str) -> Result<(OwnedFd, &'p str), Errno> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let opened = descend(root, Path::new(above), &mut |_, _| Err(Errno::NOENT));
    Ok((opened.map_err(|(_, errno)| errno)?, name))
}

/// What a name in a directory is now; `None` when there is nothing or no regular file.
pub(crate) fn stamp_of(root: &OwnedFd, path: &str) -> Result<Option<FileStamp>, Errno> {
    let stat = match open_file(root, path).and_then(|file| fstat(&file)) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    Ok((FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| stamp(&stat)))
}

/// The bytes of a file and its stamp, if that was the same before and after; at most
/// `limit` bytes and one more.
pub(crate) fn read(root: &OwnedFd, path: &str, limit: usize) -> Result<Option<(Vec<u8>, FileStamp)>, Errno> {
    let file = File::from(open_file(root, path)?);
    let before = fstat(&file)?;
    if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
        return Err(Errno::NOENT);
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    (&file).take(most).read_to_end(&mut bytes).map_err(io)?;
    let after = stamp(&fstat(file.as_fd())?);
    Ok((stamp(&before) == after).then_some((bytes, after)))
}
