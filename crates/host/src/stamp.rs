//! When a file last became another: for those who keep what they read of it.

use rustix::fs::{OFlags, Stat, fstat};

use crate::find::stat_at;
use crate::path::links_matter;
use crate::{Host, HostError, HostOperation, PathProblem};

/// What changes whenever a file is written or replaced. A file of an equal version has an equal
/// content, unless it was written within the granularity of its file system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    /// Content, in seconds and nanoseconds.
    modified: (i64, i64),
    /// Content, owner, mode or name, in seconds and nanoseconds.
    changed: (i64, i64),
}

impl FileVersion {
    pub(crate) fn of(stat: &Stat) -> FileVersion {
        // The types of these fields differ between architectures.
        #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
        FileVersion {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// When it was changed last: seconds since 1970, and nanoseconds.
    pub fn changed(&self) -> (i64, i64) {
        self.changed
    }

    /// When its content was changed last, in whole seconds since 1970.
    pub fn modified(&self) -> i64 {
        self.modified.0
    }
}

impl Host {
    /// The stamp of what is at a path, links followed where they can be trusted; `None` when there is
    /// nothing. Two equal stamps mean the same bytes, unless a clock was set back meanwhile.
    ///
    /// # Errors
    /// When something on the way cannot be passed.
    pub fn stamp(&self, path: &str) -> Result<Option<FileVersion>, HostError> {
        let found = match self.open_plain(path, OFlags::PATH) {
            Ok(open) => fstat(&open).map(Some).map_err(PathProblem::from),
            Err(errno) if links_matter(errno) => self.entry_followed(path).and_then(|entry| stat_at(&entry)),
            Err(errno) => Err(errno.into()),
        };
        match found {
            Ok(stat) => Ok(stat.map(|stat| FileVersion::of(&stat))),
            Err(PathProblem::NoParent) => Ok(None),
            Err(source) => Err(HostOperation::Look.failed(path)(source)),
        }
    }
}
