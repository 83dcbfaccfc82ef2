//! The audit log of a backup, verified without restoring it.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use server::posture::DATABASE;
use store::StoreError;
use store::audit::{AuditBreak, AuditHead};

use super::archive::{self, ReadBackupError};
use crate::failure::UserError;

/// Why the audit log of a backup cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BackupAuditError {
    /// The file cannot be opened, or there is no room for what is in it.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no whole backup.
    #[error("{} is not to be used", path.display())]
    Backup {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Its database cannot be read.
    #[error("the backup's database cannot be used")]
    Database(#[source] StoreError),
}

impl UserError for BackupAuditError {}

/// Verifies the audit log in a backup, and that it ends where the backup says. Needs room for it below TMPDIR.
///
/// # Errors
/// When the backup cannot be read; what does not hold is the inner error.
pub fn verify(
    path: &Path,
    mut noted: Vec<AuditHead>,
) -> Result<Result<AuditHead, AuditBreak>, BackupAuditError> {
    let failed = |source| BackupAuditError::Open { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let dir = tempfile::tempdir().map_err(failed)?;
    let unpacked = archive::unpack(BufReader::new(file), dir.path());
    let manifest = unpacked.map_err(|source: ReadBackupError| BackupAuditError::Backup {
        path: path.to_owned(),
        source: Box::new(source),
    })?;
    noted.extend(manifest.audit);
    store::backup::verify_audit(&dir.path().join(DATABASE), noted).map_err(BackupAuditError::Database)
}
