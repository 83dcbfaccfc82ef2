//! When a file last became another: for those who keep what they read of it.

use rustix::fs::{OFlags, Stat, fstat};

use crate::find::stat_at;
use crate::path::links_matter;
use crate::{Host, HostError, HostOperation, PathProblem};

/// What changes whenever a file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: i64,
    /// Content, in seconds and nanoseconds.
    modified: (i64, i64),
    /// Content, owner, mode or name, in seconds and nanoseconds.
    changed: (i64, i64),
}

impl FileStamp {
    /// Length in bytes.
    pub fn size(&self) -> u64 {
        u64::try_from(self.size).unwrap_or(0)
    }

    /// When its content, owner, mode or name changed last: seconds since 1970, and nanoseconds.
    pub fn changed(&self) -> (i64, i64) {
        self.changed
    }
}

impl Host {
    /// The stamp of what is at a path, links followed where they can be trusted; `None` when there is
    /// nothing. Two equal stamps mean the same bytes, unless a clock was set back meanwhile.
    ///
    /// # Errors
    /// When something on the way cannot be passed.
    pub fn stamp(&self, path: &str) -> Result<Option<FileStamp>, HostError> {
        let found = match self.open_plain(path, OFlags::PATH) {
            Ok(open) => fstat(&open).map(Some).map_err(PathProblem::from),
            Err(errno) if links_matter(errno) => self.entry_followed(path).and_then(|entry| stat_at(&entry)),
            Err(errno) => Err(errno.into()),
        };
        match found {
            Ok(stat) => Ok(stat.map(|stat| stamp_of(&stat))),
            Err(PathProblem::NoParent) => Ok(None),
            Err(source) => Err(HostOperation::Look.failed(path)(source)),
        }
    }
}

pub(crate) fn stamp_of(stat: &Stat) -> FileStamp {
    let nanos = |nanos| i64::try_from(nanos).unwrap_or(0);
    FileStamp {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: stat.st_size,
        modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
        changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
    }
}
