//! [`Disk`]: the handle through which every durable operation goes.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Result, SpoolError};

/// Mode of the directories made here.
const DIR_MODE: u32 = 0o700;

/// What is done at a persistence point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskOp {
    /// Open or create a file.
    Open,
    /// Read a file or a directory.
    Read,
    /// Write a new file.
    Write,
    /// Append to a file.
    Append,
    /// Bring a file to the disk.
    Sync,
    /// Bring a directory to the disk.
    SyncDir,
    /// Rename a file.
    Rename,
    /// Cut a file.
    Truncate,
    /// Remove a file or directory.
    Unlink,
    /// Make a directory.
    MakeDir,
    /// Lock a file.
    Lock,
}

impl fmt::Display for DiskOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DiskOp::Open => "open",
            DiskOp::Read => "read",
            DiskOp::Write => "write",
            DiskOp::Append => "append to",
            DiskOp::Sync => "sync",
            DiskOp::SyncDir => "sync the directory",
            DiskOp::Rename => "rename to",
            DiskOp::Truncate => "truncate",
            DiskOp::Unlink => "remove",
            DiskOp::MakeDir => "make the directory",
            DiskOp::Lock => "lock",
        })
    }
}

/// A moment just before something becomes, or may become, durable.
#[derive(Clone, Copy, Debug)]
pub struct Point<'a> {
    /// 0, 1, 2 and so on for one [`Disk`] and its clones.
    pub number: u64,
    /// What is about to be done.
    pub op: DiskOp,
    /// On what.
    pub path: &'a Path,
}

/// What happens at a [`Point`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// The operation goes on.
    Go,
    /// The process ends at once, as if killed.
    Abort,
    /// The operation is not done and fails with this.
    Fail(io::ErrorKind),
    /// A write is done by half and fails with this; any other operation is not done.
    Tear(io::ErrorKind),
}

/// Decides at which points the disk fails. For tests.
pub trait Faults: Send + Sync {
    /// Called before each operation.
    fn before(&self, point: Point<'_>) -> FaultAction;
}

/// The disk. Clones share their faults and the numbering of points.
#[derive(Clone, Default)]
pub struct Disk {
    faults: Option<Arc<dyn Faults>>,
    points: Arc<AtomicU64>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("faults", &self.faults.is_some()).finish_non_exhaustive()
    }
}

impl Disk {
    /// The disk as it is.
    pub fn new() -> Disk {
        Disk::default()
    }

    /// The disk with faults.
    pub fn with_faults(faults: Arc<dyn Faults>) -> Disk {
        Disk { faults: Some(faults), points: Arc::default() }
    }

    /// How many points were passed.
    pub fn points(&self) -> u64 {
        self.points.load(Ordering::Relaxed)
    }

    /// Makes a directory and those above it, 0700, durably; fine if it is there.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn make_dir(&self, path: &Path) -> Result<()> {
        if !path.is_dir() {
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                self.make_dir(parent)?;
            }
            self.at(DiskOp::MakeDir, path, || fs::DirBuilder::new().mode(DIR_MODE).create(path))?;
        }
        // Also when it is there: an earlier try may have failed just here.
        self.sync_parent(path)
    }

    /// Makes a file for writing, with exactly this mode; never one that is there, nor through a
    /// link.
    pub(crate) fn create(&self, path: &Path, mode: u32) -> Result<File> {
        self.at(DiskOp::Open, path, || {
            let file = OpenOptions::new().create_new(true).write(true).mode(mode).open(path)?;
            file.set_permissions(Permissions::from_mode(mode))?;
            Ok(file)
        })
    }

    /// Opens a file to read it and to write at its end, made with this mode if need be.
    pub(crate) fn open_append(&self, path: &Path, mode: u32) -> Result<File> {
        self.at(DiskOp::Open, path, || {
            OpenOptions::new().create(true).read(true).append(true).mode(mode).open(path)
        })
    }

    /// Writes all of it. `op` is [`DiskOp::Write`] or [`DiskOp::Append`].
    pub(crate) fn write(&self, op: DiskOp, file: &mut File, path: &Path, bytes: &[u8]) -> Result<()> {
        if let Some(kind) = self.torn(op, path)? {
            let half = file.write_all(&bytes[..bytes.len() / 2]);
            return Err(failed(op, path, half.err().unwrap_or(kind.into())));
        }
        file.write_all(bytes).map_err(|source| failed(op, path, source))
    }

    /// Brings a file's content to the disk.
    pub(crate) fn sync(&self, file: &File, path: &Path) -> Result<()> {
        self.at(DiskOp::Sync, path, || file.sync_data())
    }

    /// Brings a directory's entries to the disk.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sync_dir(&self, path: &Path) -> Result<()> {
        self.at(DiskOp::SyncDir, path, || match File::open(path)?.sync_all() {
            // File systems that cannot do this need not.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
            other => other,
        })
    }

    /// Brings the entry of a file in its directory to the disk.
    pub(crate) fn sync_parent(&self, path: &Path) -> Result<()> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.sync_dir(parent.unwrap_or(Path::new(".")))
    }

    /// Renames, in place of what may be there.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.at(DiskOp::Rename, to, || fs::rename(from, to))
    }

    /// Gives a file a second name; fails when that is taken.
    pub(crate) fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.at(DiskOp::Rename, to, || fs::hard_link(from, to))
    }

    /// Cuts a file.
    pub(crate) fn truncate(&self, file: &File, path: &Path, length: u64) -> Result<()> {
        self.at(DiskOp::Truncate, path, || file.set_len(length))
    }

    /// Removes a file; fine if there is none. It is gone for good once its directory is synced.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn unlink(&self, path: &Path) -> Result<()> {
        self.at(DiskOp::Unlink, path, || fs::remove_file(path).or_else(absent_is_fine))
    }

    fn at<T>(&self, op: DiskOp, path: &Path, run: impl FnOnce() -> io::Result<T>) -> Result<T> {
        if let Some(kind) = self.torn(op, path)? {
            return Err(failed(op, path, kind.into()));
        }
        run().map_err(|source| failed(op, path, source))
    }

    /// Passes a point; `Some` when the operation shall be torn there.
    fn torn(&self, op: DiskOp, path: &Path) -> Result<Option<io::ErrorKind>> {
        let number = self.points.fetch_add(1, Ordering::Relaxed);
        let Some(faults) = &self.faults else { return Ok(None) };
        match faults.before(Point { number, op, path }) {
            FaultAction::Go => Ok(None),
            FaultAction::Abort => std::process::abort(),
            FaultAction::Fail(kind) => Err(failed(op, path, kind.into())),
            FaultAction::Tear(kind) => Ok(Some(kind)),
        }
    }
}

/// The error of an operation on a path.
pub(crate) fn failed(op: DiskOp, path: &Path, source: io::Error) -> SpoolError {
    SpoolError::Disk { op, path: path.to_owned(), source }
}

fn absent_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
