//! The files of operators' credentials.

use std::io;
use std::path::{Path, PathBuf};

use net::issue::IssueError;
use serde::Serialize;
use server::posture::FoundError;
use spool::{Disk, SpoolError};
use zeroize::Zeroizing;

use crate::failure::UserError;

/// The mode of a file with a secret.
pub(super) const SECRET: u32 = 0o600;

/// Why a file of credentials cannot be used or made.
#[derive(Debug, thiserror::Error)]
pub enum OperatorFileError {
    /// The name cannot be one of a file.
    #[error("{0:?} names no operator")]
    Name(String),
    /// It is there.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not what an admin sent.
    #[error("{} holds no credentials", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: FoundError,
    },
    /// It cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: SpoolError,
    },
    /// The key cannot be made or read.
    #[error("the operator's key cannot be used")]
    Key(#[source] IssueError),
    /// What an admin sent needs the key that was made with the request.
    #[error("{} needs the key that was made with its request", .0.display())]
    KeyMissing(PathBuf),
    /// What is written has no JSON form.
    #[error("the credentials have no JSON form")]
    Encode(#[source] serde_json::Error),
}

impl UserError for OperatorFileError {
    fn hint(&self) -> Option<String> {
        match self {
            OperatorFileError::Exists(_) => {
                Some("credentials are never written over: name another file with --out".to_owned())
            }
            OperatorFileError::KeyMissing(_) => {
                Some("name it: --key NAME.key, which `muster operator request NAME` made".to_owned())
            }
            OperatorFileError::Name(_) => Some("a name has a-z, 0-9, `.`, `-`, `_` and `@`".to_owned()),
            _ => None,
        }
    }
}

/// The name of an operator, which names files too.
pub(super) fn name(name: &str) -> Result<&str, OperatorFileError> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_@".contains(c);
    match !name.is_empty() && !name.starts_with('.') && name.chars().all(good) {
        true => Ok(name),
        false => Err(OperatorFileError::Name(name.to_owned())),
    }
}

/// A file that is to be made is not there.
pub(super) fn absent(path: &Path) -> Result<(), OperatorFileError> {
    if path.exists() { Err(OperatorFileError::Exists(path.to_owned())) } else { Ok(()) }
}

pub(super) fn read(path: &Path) -> Result<Zeroizing<String>, OperatorFileError> {
    let text = std::fs::read_to_string(path);
    text.map(Zeroizing::new).map_err(|source| OperatorFileError::Read { path: path.to_owned(), source })
}

pub(super) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), OperatorFileError> {
    let written = spool::atomic::write_file(&Disk::new(), path, bytes, mode);
    written.map_err(|source| OperatorFileError::Write { path: path.to_owned(), source })
}

pub(super) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), OperatorFileError> {
    let bytes = Zeroizing::new(serde_json::to_vec_pretty(value).map_err(OperatorFileError::Encode)?);
    write(path, &bytes, SECRET)
}
