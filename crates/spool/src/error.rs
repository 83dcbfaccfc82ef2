//! Why a durable operation failed.

use std::io;
use std::path::PathBuf;

use model::Digest;

use crate::{DiskOp, FORMAT};

/// The result of a durable operation.
pub type Result<T, E = SpoolError> = std::result::Result<T, E>;

/// A durable operation failed. Nothing that was durable before is lost by it.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The file system refused.
    #[error("cannot {op} {}", path.display())]
    Disk {
        /// What was attempted.
        op: DiskOp,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Another process has the state directory.
    #[error("{} is in use by process {}", path.display(), pid.map_or("unknown".into(), |pid| pid.to_string()))]
    Locked {
        /// The lock's path.
        path: PathBuf,
        /// The process that holds it, if it said so.
        pid: Option<u32>,
    },
    /// Another process kept its turn at changing a directory for too long.
    #[error(
        "another process has been changing {} for {} s",
        path.display(),
        crate::lock::TURN_WITHIN.as_secs()
    )]
    TurnTaken {
        /// The directory.
        path: PathBuf,
    },
    /// There is more of something than may be.
    #[error("{what}: over the limit of {limit} bytes")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// What is allowed, in bytes.
        limit: u64,
    },
    /// The log holds as much as it may until some of it is acknowledged. Facts that are
    /// neither runs nor of actions have a reserve.
    #[error("the log of facts is full: {limit} bytes wait to be acknowledged")]
    LogFull {
        /// What is allowed, in bytes.
        limit: u64,
    },
    /// The other side says that it has facts that were never written here: this state is
    /// an old copy. [`crate::FactLog::begin_anew`] is the way out.
    #[error("fact {acked} was acknowledged, but the last one here is {last}")]
    AckBeyond {
        /// The number acknowledged.
        acked: u64,
        /// The last number here.
        last: u64,
    },
    /// A log that begins anew needs an incarnation that it did not have before.
    #[error("a log that begins anew needs a new incarnation")]
    SameIncarnation,
    /// The bytes are not those of the digest.
    #[error("the bytes are those of {found}, not of {expected}")]
    WrongDigest {
        /// What was expected.
        expected: Digest,
        /// What came.
        found: Digest,
    },
    /// A write of synchronization does not follow what is kept.
    #[error(transparent)]
    Unsound(sync::durable::UnsoundWrite),
    /// Synchronized objects have as much room as they may.
    #[error("the synchronized objects are over the limit of {limit} bytes")]
    ObjectsFull {
        /// What is allowed, in bytes.
        limit: u64,
    },
    /// What lies in a file is not what was written there. The next opening sets it aside.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A newer version wrote this, and this version cannot read it. Nothing was changed.
    #[error(
        "{} has format {format}; reading it needs a version that reads format {needed}, and this one \
         reads up to {FORMAT}: start the newer version again (nothing was changed)",
        path.display()
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
        /// The format that a reader has to know.
        needed: u32,
    },
    /// A version from before formats had numbers wrote this. Nothing was changed.
    #[error("{} was written by an earlier version, whose state this one does not read", path.display())]
    Unnumbered {
        /// The file.
        path: PathBuf,
    },
    /// A value cannot be written as JSON.
    #[error("cannot encode {what}")]
    Encode {
        /// What was to be written.
        what: &'static str,
        /// Why it cannot.
        #[source]
        source: serde_json::Error,
    },
}

impl SpoolError {
    /// The disk, the quota or a bound of ours is exhausted: trying again without making
    /// room is of no use.
    pub fn is_full(&self) -> bool {
        match self {
            SpoolError::Disk { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            SpoolError::LogFull { .. } | SpoolError::ObjectsFull { .. } => true,
            _ => false,
        }
    }
}
