//! Whether a file is still the one that was read, without reading it again.

use rustix::fs::{AtFlags, statat};

use crate::{Host, HostError, HostOperation, PathProblem};

/// What of a file or directory changes whenever its content does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: i64,
    seconds: i64,
    nanoseconds: i64,
}

impl FileStamp {
    /// When it was changed last, in whole seconds since 1970.
    pub fn modified(&self) -> i64 {
        self.seconds
    }
}

impl Host {
    /// The stamp of what is at a path; `None` when there is nothing. A link at the last name is not
    /// followed.
    ///
    /// # Errors
    /// When something on the way cannot be passed.
    pub fn stamp(&self, path: &str) -> Result<Option<FileStamp>, HostError> {
        let stat = self
            .entry(path)
            .and_then(|entry| Ok(statat(&entry.dir, &entry.name, AtFlags::SYMLINK_NOFOLLOW)?));
        match stat {
            Ok(stat) => Ok(Some(FileStamp {
                device: stat.st_dev,
                inode: stat.st_ino,
                size: stat.st_size,
                seconds: stat.st_mtime,
                nanoseconds: i64::try_from(stat.st_mtime_nsec).unwrap_or(0),
            })),
            Err(PathProblem::NoParent | PathProblem::NotDirectory) => Ok(None),
            Err(source) => Err(HostOperation::Look.failed(path)(source)),
        }
    }
}
