//! The machine's key (IDN-1) and what the agent knows of itself once it joined.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{Hostname, NodeId};
use net::{ProxyUrl, ServerUrl};
use serde::{Deserialize, Serialize};
use spool::atomic::{Existing, WholeFile};
use spool::{Disk, SpoolError};
use ssh_key::private::{EcdsaKeypair, KeypairData};
use trust::token::{KeySource, TlsTermination};
use trust::{KeyAlgorithm, SealingKey, SigningKey, TrustDocument};
use zeroize::Zeroizing;

/// The agent's own key, in its state directory.
pub const KEY_FILE: &str = "identity.key";
/// The key that secrets are sealed for, in its state directory (SEC-1).
pub const SEALING_KEY_FILE: &str = "sealing.key";
/// The host's ed25519 SSH key, under the root.
pub const SSH_ED25519_KEY: &str = "etc/ssh/ssh_host_ed25519_key";
/// The host's ECDSA SSH key, under the root.
pub const SSH_ECDSA_KEY: &str = "etc/ssh/ssh_host_ecdsa_key";

/// What joining recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Membership {
    /// The node's id.
    pub node_id: NodeId,
    /// Its hostname.
    pub hostname: Hostname,
    /// Control planes in order of preference.
    pub servers: Vec<ServerUrl>,
    /// Who ends the TLS sessions with them.
    #[serde(default, skip_serializing_if = "TlsTermination::is_control_plane")]
    pub tls_termination: TlsTermination,
    /// The proxy that leads to them, with user and password: the file is its owner's alone (WIR-7).
    #[serde(default, skip_serializing_if = "Option::is_none", with = "kept_proxy")]
    pub proxy: Option<Arc<ProxyUrl>>,
    /// The CA that servers are under.
    pub ca_pem: String,
    /// The node's certificate.
    pub cert_pem: String,
    /// Whom to believe.
    pub trust: TrustDocument,
    /// Which key is the machine's.
    pub key: KeySource,
    /// The root that it was joined with; `/` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// Commands may run under that root.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_exec: bool,
}

/// A proxy as the membership holds it, the only place where its password is written.
mod kept_proxy {
    use std::sync::Arc;

    use net::ProxyUrl;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use zeroize::Zeroizing;

    pub(super) fn serialize<S: Serializer>(
        proxy: &Option<Arc<ProxyUrl>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let exposed = proxy.as_ref().map(|proxy| proxy.expose());
        exposed.as_ref().map(|url| url.as_str()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<ProxyUrl>>, D::Error> {
        let url = Option::<String>::deserialize(deserializer)?.map(Zeroizing::new);
        url.map(|url| url.parse().map(Arc::new).map_err(D::Error::custom)).transpose()
    }
}

/// Why the key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It cannot be read.
    #[error("cannot read the key {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It cannot be written.
    #[error("cannot write the key")]
    Write(#[from] SpoolError),
    /// It is not an ed25519 or P-256 private key without a passphrase.
    #[error("{} is not an ed25519 or ecdsa-p256 private key without a passphrase", path.display())]
    Form {
        /// The file.
        path: PathBuf,
    },
    /// It is no sealing key.
    #[error("{} is not a sealing key: it must hold one age identity", path.display())]
    SealingForm {
        /// The file.
        path: PathBuf,
    },
    /// Others can read it.
    #[error("{} can be read by others (mode {mode:04o}); it must be 0600", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is not the key that the agent works with.
    #[error("{} holds another key than the one that this agent works with", path.display())]
    Other {
        /// The file.
        path: PathBuf,
    },
    /// The operating system gives no randomness.
    #[error("no randomness for a new key")]
    Random(#[source] getrandom::Error),
}

/// The machine's key: read, or made when it is the agent's own and there is none.
///
/// # Errors
/// [`KeyError`] names the file.
pub fn key(source: KeySource, state: &Path, root: &Path) -> Result<Arc<SigningKey>, KeyError> {
    let key = match source {
        KeySource::Own => own_key(&state.join(KEY_FILE))?,
        KeySource::SshHost => ssh_key(&root.join(SSH_ED25519_KEY))?,
        KeySource::SshHostEcdsa => ssh_key(&root.join(SSH_ECDSA_KEY))?,
    };
    Ok(Arc::new(key))
}

fn own_key(path: &Path) -> Result<SigningKey, KeyError> {
    if let Some(text) = read(path)? {
        return SigningKey::from_file(&text).map_err(|_| KeyError::Form { path: path.to_owned() });
    }
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(seed.as_mut_slice()).map_err(KeyError::Random)?;
    let key = SigningKey::from_seed(&seed);
    // A key is never written over: this fails if another process was faster.
    let file = WholeFile { existing: Existing::Keep, ..WholeFile::new(path, 0o600) };
    file.write(&Disk::new(), key.to_file().as_bytes())?;
    Ok(key)
}

/// The key that secrets are sealed for: read, or made where there is none.
///
/// # Errors
/// [`KeyError`] names the file.
pub fn sealing_key(state: &Path) -> Result<SealingKey, KeyError> {
    let path = state.join(SEALING_KEY_FILE);
    let form = || KeyError::SealingForm { path: path.clone() };
    if let Some(text) = read(&path)? {
        return SealingKey::from_file(&text).map_err(|_| form());
    }
    let mut secret = Zeroizing::new([0; 32]);
    getrandom::fill(secret.as_mut_slice()).map_err(KeyError::Random)?;
    let key = SealingKey::from_secret(&secret).ok_or_else(form)?;
    let file = WholeFile { existing: Existing::Keep, ..WholeFile::new(&path, 0o600) };
    match file.write(&Disk::new(), key.to_file().as_bytes()) {
        Ok(_) => Ok(key),
        // Another process was faster: its key counts.
        Err(error) => match read(&path)? {
            Some(text) => SealingKey::from_file(&text).map_err(|_| form()),
            None => Err(error.into()),
        },
    }
}

/// Writes the agent's own key back where it is gone or damaged. Another key is never written over.
///
/// # Errors
/// [`KeyError::Other`], and when the file cannot be read or written.
pub fn put_back(key: &SigningKey, state: &Path) -> Result<(), KeyError> {
    let found = |text: &str| SigningKey::from_file(text).ok().map(|found| found.public() == key.public());
    put_back_file(&state.join(KEY_FILE), &key.to_file(), found)
}

/// The same for the key that secrets are sealed for.
///
/// # Errors
/// As [`put_back`].
pub fn put_back_sealing(key: &SealingKey, state: &Path) -> Result<(), KeyError> {
    let found = |text: &str| SealingKey::from_file(text).ok().map(|found| found.public() == key.public());
    put_back_file(&state.join(SEALING_KEY_FILE), &key.to_file(), found)
}

/// `is_same`: whether a file's text is of this key; `None` where it is of none.
fn put_back_file(path: &Path, text: &str, is_same: impl Fn(&str) -> Option<bool>) -> Result<(), KeyError> {
    let existing = match read(path)?.map(|found| is_same(&found)) {
        Some(Some(true)) => return Ok(()),
        Some(Some(false)) => return Err(KeyError::Other { path: path.to_owned() }),
        Some(None) => Existing::Replace,
        None => Existing::Keep,
    };
    let file = WholeFile { existing, ..WholeFile::new(path, 0o600) };
    Ok(file.write(&Disk::new(), text.as_bytes())?)
}

fn ssh_key(path: &Path) -> Result<SigningKey, KeyError> {
    let form = || KeyError::Form { path: path.to_owned() };
    let missing = || io::Error::new(io::ErrorKind::NotFound, "there is none");
    let text = read(path)?.ok_or_else(|| KeyError::Read { path: path.to_owned(), source: missing() })?;
    read_ssh_key(text.as_bytes()).ok_or_else(form)
}

/// Reads an SSH host key: ed25519 or ECDSA on P-256, in OpenSSH's form and without a passphrase.
pub fn read_ssh_key(text: &[u8]) -> Option<SigningKey> {
    match ssh_key::PrivateKey::from_openssh(text).ok()?.key_data() {
        KeypairData::Ed25519(pair) => Some(SigningKey::from_seed(&pair.private.to_bytes())),
        KeypairData::Ecdsa(EcdsaKeypair::NistP256 { private, .. }) => {
            let secret = private.as_slice().try_into().ok()?;
            SigningKey::from_secret(KeyAlgorithm::EcdsaP256, secret).ok()
        }
        _ => None,
    }
}

fn read(path: &Path) -> Result<Option<Zeroizing<String>>, KeyError> {
    use std::os::unix::fs::PermissionsExt;
    let failed = |source| KeyError::Read { path: path.to_owned(), source };
    let text = match fs::read_to_string(path) {
        Ok(text) => Zeroizing::new(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Open { path: path.to_owned(), mode });
    }
    Ok(Some(text))
}
