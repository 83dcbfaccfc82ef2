//! Where an operator's credentials and the keys that sign lie.

use std::path::{Path, PathBuf};

use server::posture::{self, BEACON_KEY, ENROLL, FoundError, OPERATOR, RELEASE_KEY, ROOT_KEY};
use server::{Credentials, EnrollInfo};

use crate::failure::UserError;
use crate::signer::{FleetSigner, SignerError};

/// Where `muster server` keeps everything by default.
pub const DATA_DIR: &str = "muster-data";
/// Where the control plane of the package's service keeps everything.
pub const SERVICE_DATA_DIR: &str = catalog::state_directories::SERVER_STATE;
/// Names the operator's credentials.
pub const OPERATOR_ENV: &str = "MUSTER_OPERATOR";
/// Names the release key.
pub const RELEASE_KEY_ENV: &str = "MUSTER_RELEASE_KEY";

/// Why credentials or a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file is not there.
    #[error("there {what} at {}", path.display())]
    Missing {
        /// What should be in it.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// How another is named.
        hint: &'static str,
    },
    /// A file is there, and is not what it should be.
    #[error("a file of the control plane's directory cannot be used")]
    Read(#[source] FoundError),
    /// The operator's credentials are there, and are not what they should be.
    #[error("the operator's credentials in {} cannot be used", path.display())]
    Operator {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: FoundError,
    },
    /// A key cannot be used.
    #[error(transparent)]
    FleetSigner(#[from] SignerError),
}

impl UserError for CredentialsError {
    fn hint(&self) -> Option<String> {
        match self {
            CredentialsError::Missing { hint, .. } => Some((*hint).to_owned()),
            CredentialsError::FleetSigner(error) => error.hint(),
            CredentialsError::Operator { .. } => Some(
                "name the file that `muster server` or `muster operator add` wrote: --operator FILE or MUSTER_OPERATOR"
                    .to_owned(),
            ),
            CredentialsError::Read(_) => None,
        }
    }
}

/// What to do where the files for tokens are not found.
const MINT_HINT: &str =
    "name the control plane's directory (--data DIR), or both files (--root-key FILE --enroll FILE)";

/// The control plane's directory where none is named: [`DATA_DIR`], or where that is not there,
/// [`SERVICE_DATA_DIR`].
pub fn data_dir() -> PathBuf {
    let (here, of_service) = (Path::new(DATA_DIR), Path::new(SERVICE_DATA_DIR));
    if !here.exists() && of_service.exists() { of_service.to_owned() } else { here.to_owned() }
}

/// Finds and reads the operator's credentials; gives their path too.
///
/// # Errors
/// When there are none, or they cannot be read.
pub fn operator(named: Option<&Path>) -> Result<(PathBuf, Credentials), CredentialsError> {
    let path = named.map_or_else(|| data_dir().join(OPERATOR), Path::to_owned);
    if !path.exists() {
        let hint = "run this beside muster-data/, or as root on the control plane's host, or name the file that `muster server` wrote: --operator FILE or MUSTER_OPERATOR";
        return Err(CredentialsError::Missing { what: "are no operator's credentials", path, hint });
    }
    warn_if_open(&path);
    let unusable = |source| CredentialsError::Operator { path: path.clone(), source };
    let read: Credentials = posture::read_json(&path).map_err(unusable)?;
    let credentials = Credentials { file: Some(path.clone()), ..read };
    if credentials.token.is_none() && credentials.key_pem.is_empty() {
        let hint =
            "it waits for the key that was made with the request: muster operator login FILE --key NAME.key";
        return Err(CredentialsError::Missing { what: "is no private key in the credentials", path, hint });
    }
    Ok((path, credentials))
}

/// A key that signs releases, and the file that names it.
#[derive(Debug)]
pub struct ReleaseKey {
    /// The key.
    pub key: FleetSigner,
    /// The file. Beside it the publisher keeps the last header that it signed.
    pub path: PathBuf,
}

/// Finds and reads the release key: the one named, else the one beside the credentials.
///
/// # Errors
/// When there is none, or it cannot be used.
pub fn release_key(named: Option<&Path>, operator: &Path) -> Result<ReleaseKey, CredentialsError> {
    let path = named.map_or_else(|| operator.with_file_name(RELEASE_KEY), Path::to_owned);
    let hint = "name the file that holds the key: --key FILE or MUSTER_RELEASE_KEY";
    match FleetSigner::open(&path)? {
        Some(key) => Ok(ReleaseKey { key, path }),
        None => Err(CredentialsError::Missing { what: "is no release key", path, hint }),
    }
}

/// Finds and reads the keys that sign a release together: those named, else the release key beside the credentials.
///
/// # Errors
/// As [`release_key`].
pub fn release_keys(named: &[PathBuf], operator: &Path) -> Result<Vec<ReleaseKey>, CredentialsError> {
    match named {
        [] => Ok(vec![release_key(None, operator)?]),
        named => named.iter().map(|path| release_key(Some(path), operator)).collect(),
    }
}

/// Finds and reads the key that signs beacons: the one named, else the fleet's beacon key or release key beside the
/// credentials.
///
/// # Errors
/// When there is none, or it cannot be used.
pub fn beacon_key(named: Option<&Path>, operator: &Path) -> Result<FleetSigner, CredentialsError> {
    let own = operator.with_file_name(BEACON_KEY);
    let path = named.or(Some(own.as_path()).filter(|own| own.exists()));
    release_key(path, operator).map(|found| found.key)
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
    pub fn read(&self) -> Result<(FleetSigner, EnrollInfo), CredentialsError> {
        let key = FleetSigner::open(&self.root_key)?;
        let missing =
            |what, path: &Path| CredentialsError::Missing { what, path: path.to_owned(), hint: MINT_HINT };
        let key = key.ok_or_else(|| missing("is no root key", &self.root_key))?;
        Ok((key, enroll_info(&self.enroll)?))
    }
}

/// Reads what tokens say of the fleet.
///
/// # Errors
/// When it is not there, or cannot be read.
pub fn enroll_info(path: &Path) -> Result<EnrollInfo, CredentialsError> {
    if !path.exists() {
        let what = "is no enrollment information";
        return Err(CredentialsError::Missing { what, path: path.to_owned(), hint: MINT_HINT });
    }
    posture::read_json(path).map_err(CredentialsError::Read)
}

/// Says when a file with a private key is open to others.
pub(crate) fn warn_if_open(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map_or(0, |found| found.permissions().mode());
    if mode & 0o077 != 0 {
        tracing::warn!(file = %path.display(), "others can read this private key; chmod 600 it");
    }
}
