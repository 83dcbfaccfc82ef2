//! Where an operator's credentials and the keys that sign lie.

use std::path::{Path, PathBuf};

use server::posture::{self, FoundError};
use server::{Credentials, EnrollInfo};
use trust::SigningKey;

use crate::failure::UserError;

/// Where `muster server` keeps everything, unless it is told otherwise.
pub const DATA_DIR: &str = "muster-data";
const OPERATOR: &str = "operator.json";
const RELEASE_KEY: &str = "release.key";
const ROOT_KEY: &str = "root.key";
const ENROLL: &str = "enroll.json";
/// Names the operator's credentials.
pub const OPERATOR_ENV: &str = "MUSTER_OPERATOR";
/// Names the release key.
pub const RELEASE_KEY_ENV: &str = "MUSTER_RELEASE_KEY";

/// Why credentials or a key cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// There are no operator's credentials.
    #[error("there are no operator's credentials at {}", .0.display())]
    NoOperator(PathBuf),
    /// There is no release key.
    #[error("there is no release key at {}", .0.display())]
    NoReleaseKey(PathBuf),
    /// There is no root key.
    #[error("there is no root key at {}", .0.display())]
    NoRootKey(PathBuf),
    /// There is no file that says what tokens need.
    #[error("there is no enrollment information at {}", .0.display())]
    NoEnroll(PathBuf),
    /// A file cannot be read.
    #[error("a file of the control plane's directory cannot be used")]
    Read(#[source] FoundError),
}

impl UserError for CredentialsError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            CredentialsError::NoOperator(_) => format!(
                "run this beside {DATA_DIR}/, or name the file that `muster server` wrote: --operator FILE or {OPERATOR_ENV}"
            ),
            CredentialsError::NoReleaseKey(_) => {
                format!("name the file that holds the key: --key FILE or {RELEASE_KEY_ENV}")
            }
            CredentialsError::NoRootKey(_) | CredentialsError::NoEnroll(_) => {
                "name the control plane's directory (--data DIR), or both files (--root-key FILE --enroll FILE)".to_owned()
            }
            CredentialsError::Read(_) => return None,
        })
    }
}

/// Finds and reads the operator's credentials; also tells where they lie.
///
/// # Errors
/// When there are none, or they cannot be read.
pub fn operator(named: Option<&Path>) -> Result<(PathBuf, Credentials), CredentialsError> {
    let path = named.map_or_else(|| Path::new(DATA_DIR).join(OPERATOR), Path::to_owned);
    if !path.exists() {
        return Err(CredentialsError::NoOperator(path));
    }
    warn_if_open(&path);
    let credentials = posture::read_json(&path).map_err(CredentialsError::Read)?;
    Ok((path, credentials))
}

/// Finds and reads the release key: the one named, else the one beside the credentials.
///
/// # Errors
/// When there is none, or it cannot be read.
pub fn release_key(named: Option<&Path>, operator: &Path) -> Result<SigningKey, CredentialsError> {
    let path = named.map_or_else(|| operator.with_file_name(RELEASE_KEY), Path::to_owned);
    warn_if_open(&path);
    let key = posture::read_key(&path).map_err(CredentialsError::Read)?;
    key.ok_or(CredentialsError::NoReleaseKey(path))
}

/// Where the two files lie that minting a token needs.
#[derive(Clone, Debug)]
pub struct MintFiles {
    /// The root key.
    pub root_key: PathBuf,
    /// What tokens say of the fleet.
    pub enroll: PathBuf,
}

impl MintFiles {
    /// The files of a control plane's directory.
    pub fn of_dir(dir: &Path) -> MintFiles {
        MintFiles { root_key: dir.join(ROOT_KEY), enroll: dir.join(ENROLL) }
    }

    /// Reads both.
    ///
    /// # Errors
    /// When one is not there, or cannot be read.
    pub fn read(&self) -> Result<(SigningKey, EnrollInfo), CredentialsError> {
        warn_if_open(&self.root_key);
        let key = posture::read_key(&self.root_key).map_err(CredentialsError::Read)?;
        let key = key.ok_or_else(|| CredentialsError::NoRootKey(self.root_key.clone()))?;
        if !self.enroll.exists() {
            return Err(CredentialsError::NoEnroll(self.enroll.clone()));
        }
        let info = posture::read_json(&self.enroll).map_err(CredentialsError::Read)?;
        Ok((key, info))
    }
}

/// Says when a file with a private key is open to others.
fn warn_if_open(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map_or(0, |found| found.permissions().mode());
    if mode & 0o077 != 0 {
        tracing::warn!(file = %path.display(), "others can read this private key; chmod 600 it");
    }
}
