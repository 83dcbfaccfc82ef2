//! How full a file system is.

use rustix::fs::{StatVfsMountFlags, fstatvfs};

use crate::{Host, HostError, HostOperation, PathProblem};

/// How full the file system at a path is, in bytes and in inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Its size.
    pub total: u64,
    /// What nobody uses.
    pub free: u64,
    /// What is left to users other than root.
    pub available: u64,
    /// Inodes there can be; 0 where they are not counted.
    pub inodes: u64,
    /// Inodes that nobody uses.
    pub inodes_free: u64,
    /// Nothing can be written on it as it is mounted here.
    pub read_only: bool,
}

impl Host {
    /// How full the file system of a directory is.
    ///
    /// # Errors
    /// When it is no directory, or cannot be opened.
    pub fn usage(&self, directory: &str) -> Result<Usage, HostError> {
        let failed = HostOperation::Look.failed(directory);
        let open = self.directory(directory).map_err(&failed)?;
        let stat = fstatvfs(&open).map_err(|errno| failed(PathProblem::from(errno)))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Usage {
            total: bytes(stat.f_blocks),
            free: bytes(stat.f_bfree),
            available: bytes(stat.f_bavail),
            inodes: stat.f_files,
            inodes_free: stat.f_ffree,
            read_only: stat.f_flag.contains(StatVfsMountFlags::RDONLY),
        })
    }
}
