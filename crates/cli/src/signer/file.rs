//! What a file that names a signer holds: a key, an encrypted key, or where the key is.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backends::manifest;
use serde::Deserialize;
use trust::sealing::SealingKey;
use trust::sealing::age;
use trust::{KeyAlgorithm, PublicKey, SigningKey};
use zeroize::Zeroizing;

use super::command::SigningCommand;
use super::{FleetSigner, SignerError, passphrase, public};
use crate::credentials::warn_if_open;
use crate::object::notation;

/// Names the age identity that opens an encrypted key file.
pub const IDENTITY_ENV: &str = "MUSTER_KEY_IDENTITY";
/// Names the file whose first line is the passphrase of an encrypted key file.
pub const PASSPHRASE_ENV: &str = "MUSTER_KEY_PASSPHRASE_FILE";
/// The longest key in text form, in bytes.
const MAX_KEY: usize = 4 * 1024;
/// How long a signing command may take, where its signer file does not say.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that a signer file may give it.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);
/// What a key file has after its algorithm.
const PRIVATE: &str = "-private:";

/// A signer file. Its paths are relative to its folder.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SignerFile {
    /// The command that signs, with its arguments.
    command: Option<Vec<String>>,
    /// The public half of the command's key; without it the command is asked.
    public: Option<String>,
    /// How long the command may take.
    timeout: Option<String>,
    /// Instead of a command: an age file with a key.
    age: Option<PathBuf>,
    /// The age identity that opens it.
    identity: Option<PathBuf>,
    /// Or a file whose first line is its passphrase.
    passphrase_file: Option<PathBuf>,
}

/// What opens an encrypted key file.
#[derive(Default)]
struct Openers {
    identity: Option<PathBuf>,
    passphrase_file: Option<PathBuf>,
}

impl Openers {
    fn of_environment() -> Openers {
        let path = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        Openers { identity: path(IDENTITY_ENV), passphrase_file: path(PASSPHRASE_ENV) }
    }
}

pub(super) fn open(path: &Path) -> Result<Option<FleetSigner>, SignerError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    if is_key(&bytes) {
        warn_if_open(path);
        return key(&bytes, path).map(Some);
    }
    if age::is_age(&bytes) {
        return encrypted(&bytes, path, &Openers::of_environment()).map(Some);
    }
    if public::parse(&bytes).is_some() {
        return Err(SignerError::OnlyPublic(path.to_owned()));
    }
    warn_if_writable(path);
    signer_file(&bytes, path).map(Some)
}

/// Says when others may say which command runs as this user.
fn warn_if_writable(path: &Path) {
    let mode = fs::metadata(path).map_or(0, |found| found.permissions().mode());
    if mode & 0o022 != 0 {
        tracing::warn!(file = %path.display(), "others can change this signer file; chmod go-w it");
    }
}

/// Whether a text begins as a key file does.
fn is_key(bytes: &[u8]) -> bool {
    let bytes = bytes.trim_ascii_start();
    let begins = |algorithm: &KeyAlgorithm| bytes.strip_prefix(algorithm.as_str().as_bytes());
    KeyAlgorithm::ALL.iter().filter_map(begins).any(|rest| rest.starts_with(PRIVATE.as_bytes()))
}

/// A file's bytes; `None` where there is none.
pub(super) fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, SignerError> {
    let failed = |source| SignerError::Read { path: path.to_owned(), source };
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    // In one piece, so that no copy of a key is left behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(age::MAX_FILE + 2));
    file.take(age::MAX_FILE as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > age::MAX_FILE { Err(SignerError::NotASigner(path.to_owned())) } else { Ok(Some(bytes)) }
}

fn key(bytes: &[u8], path: &Path) -> Result<FleetSigner, SignerError> {
    let text = std::str::from_utf8(bytes).map_err(|_| SignerError::NotASigner(path.to_owned()))?;
    let key = SigningKey::from_file(text);
    Ok(key.map_err(|source| SignerError::Key { path: path.to_owned(), source })?.into())
}

fn encrypted(bytes: &[u8], path: &Path, openers: &Openers) -> Result<FleetSigner, SignerError> {
    let failed = |source| SignerError::Age { path: path.to_owned(), source };
    let plain = match age::passphrase_work(bytes).map_err(failed)? {
        Some(work) => {
            let passphrase = match &openers.passphrase_file {
                Some(file) => passphrase::read_passphrase(file)?,
                None => passphrase::ask(path)?,
            };
            let stretched = passphrase::stretch(&passphrase, &work)?;
            age::decrypt_stretched(bytes, &stretched, MAX_KEY)
        }
        None => {
            let file = openers.identity.as_ref().ok_or_else(|| SignerError::NoIdentity(path.to_owned()))?;
            age::decrypt(bytes, &identities(file)?, MAX_KEY)
        }
    };
    key(&plain.map_err(failed)?, path)
}

fn identities(path: &Path) -> Result<Vec<SealingKey>, SignerError> {
    let text = fs::read_to_string(path).map(Zeroizing::new);
    let text = text.map_err(|source| SignerError::Read { path: path.to_owned(), source })?;
    SealingKey::all_from_file(&text).map_err(|_| SignerError::Identity(path.to_owned()))
}

fn signer_file(bytes: &[u8], path: &Path) -> Result<FleetSigner, SignerError> {
    let wrong = |why: String| SignerError::Form { path: path.to_owned(), why };
    let not_one = || SignerError::NotASigner(path.to_owned());
    let mut values = manifest::values(bytes, notation(bytes)).map_err(|_| not_one())?;
    let only = values.pop().filter(|value| values.is_empty() && value.is_object()).ok_or_else(not_one)?;
    let spec: SignerFile = serde_json::from_value(only).map_err(|error| wrong(error.to_string()))?;
    let beside = |file: PathBuf| path.parent().unwrap_or(Path::new(".")).join(file);
    match spec {
        SignerFile { command: Some(argv), public, timeout, age: None, identity: None, passphrase_file: None } => {
            if argv.is_empty() {
                return Err(wrong("`command` is empty".to_owned()));
            }
            let command = SigningCommand::new(argv, limit(timeout.as_deref()).map_err(wrong)?);
            let public = match public {
                Some(text) => declared(&text).ok_or_else(|| wrong("`public` is no public key".to_owned()))?,
                None => command.public_key()?,
            };
            Ok(FleetSigner::of_command(public, command))
        }
        SignerFile { age: Some(age), identity, passphrase_file, command: None, public: None, timeout: None } => {
            let openers = Openers {
                identity: identity.map(beside),
                passphrase_file: passphrase_file.map(beside),
            };
            let age = beside(age);
            let missing = || SignerError::Read { path: age.clone(), source: ErrorKind::NotFound.into() };
            let bytes = read(&age)?.ok_or_else(missing)?;
            encrypted(&bytes, &age, &openers)
        }
        _ => Err(wrong(
            "it has either `command`, with `public` and `timeout`, or `age`, with `identity` or `passphraseFile`"
                .to_owned(),
        )),
    }
}

fn declared(text: &str) -> Option<PublicKey> {
    public::parse(text.as_bytes())
}

fn limit(timeout: Option<&str>) -> Result<Duration, String> {
    let Some(text) = timeout else { return Ok(TIMEOUT) };
    let secs = catalog::duration::parse(text).map_err(|error| format!("`timeout`: {error}"))?;
    let limit = Duration::from_secs(secs.into());
    match limit.is_zero() || limit > MAX_TIMEOUT {
        true => Err(format!("`timeout` is from 1s to {}s", MAX_TIMEOUT.as_secs())),
        false => Ok(limit),
    }
}
