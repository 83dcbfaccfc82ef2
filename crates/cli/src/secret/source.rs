//! Asking the sources of secrets, on the machine that publishes (SEC-2).
//!
//! A value is in memory alone, and is wiped when it is sealed. No error repeats anything of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use net::download::DownloadError;
use resolve::{SecretSource, SecretSourceKind};
use trust::sealing::age::{self, AgeError};
use trust::sealing::{MAX_SECRET, SealingKey};
use zeroize::Zeroizing;

use super::vault;
use crate::child::{BoundedCommand, ChildError, ChildErrors};

/// Sources that are asked at once.
const ASKED: usize = 8;

/// What to do with a value that is too long.
pub(super) const TOO_LARGE_HINT: &str =
    "what is larger is no secret of its own: encrypt it, deliver it as a file, and make its key the secret";

/// A secret's value.
pub type SecretValue = Zeroizing<Vec<u8>>;

/// Why a secret has no value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// No source may have it.
    #[error("secret `{0}` is in no source: fleet.yaml names none for it")]
    NoSource(String),
    /// Every source was asked, and none has it.
    #[error("secret `{name}` is in none of {}", .asked.join(", "))]
    NotFound {
        /// The secret.
        name: String,
        /// The sources that were asked.
        asked: Vec<String>,
    },
    /// A source could not give it.
    #[error("source `{source_name}` does not give secret `{name}`")]
    Source {
        /// The secret.
        name: String,
        /// The source.
        source_name: String,
        /// Why.
        #[source]
        source: SourceError,
    },
    /// Its value is too long.
    #[error("secret `{0}` has more than {MAX_SECRET} bytes")]
    TooLarge(String),
    /// Its value is no text.
    #[error("secret `{0}` is not UTF-8, and stands in a text; it can be the whole `content` of a file alone")]
    NotText(String),
}

impl SecretError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            SecretError::NoSource(_) => Some(
                "add to fleet.yaml where secrets come from:  secrets: {sources: {files: {age: secrets/}}}"
                    .to_owned(),
            ),
            SecretError::NotFound { name, .. } => {
                Some(format!("`muster secret set {name} --repo DIR` makes it"))
            }
            SecretError::Source { name, source_name, source } => source.hint(name, source_name),
            SecretError::TooLarge(_) => Some(TOO_LARGE_HINT.to_owned()),
            SecretError::NotText(_) => None,
        }
    }
}

/// What went wrong with a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no identity to decrypt with.
    #[error("there is no age identity at {}", .0.display())]
    NoIdentity(PathBuf),
    /// The identity's file is not of the form.
    #[error("{} holds no age identity", .0.display())]
    Identity(PathBuf),
    /// The age file cannot be decrypted.
    #[error("{}", path.display())]
    Age {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: AgeError,
    },
    /// The command cannot be started.
    #[error("cannot start {program}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The command ended without success.
    #[error("{program} ended with {status}")]
    Ended {
        /// The program.
        program: String,
        /// How.
        status: ExitStatus,
    },
    /// It did not answer in time.
    #[error("it did not answer within {} s", .0.as_secs())]
    Hangs(Duration),
    /// There is no token for the API.
    #[error("there is no token for it: set VAULT_TOKEN, or put it into ~/.vault-token")]
    NoToken,
    /// The API did not answer.
    #[error("the API did not answer")]
    Fetch(#[source] DownloadError),
    /// The answer is not of the form.
    #[error("its answer is not of the form: it needs a field `value`, or one field alone")]
    Form,
}

impl SourceError {
    /// What to do about it, where it kept a secret from being had.
    fn hint(&self, name: &str, source_name: &str) -> Option<String> {
        match self {
            SourceError::NoIdentity(_) | SourceError::Identity(_) => Some(
                "name the identity that the repo's age files are encrypted for: --identity FILE or \
                 MUSTER_AGE_IDENTITY"
                    .to_owned(),
            ),
            SourceError::Age { source: AgeError::OtherRecipients, .. } => Some(format!(
                "name the identity that it is encrypted for (--identity FILE), or encrypt it anew: muster secret set \
                 {name} --repo DIR"
            )),
            SourceError::Age { .. } => Some(format!("`muster secret set {name} --repo DIR` writes it anew")),
            SourceError::Hangs(_) => Some(format!(
                "try it by hand; where it needs longer, fleet.yaml gives source {source_name} more: `timeout: 2m`"
            )),
            SourceError::Ended { program, .. } => Some(format!("try it by hand: {program} ... {name}")),
            SourceError::Fetch(_) => Some(format!(
                "see whether its address and token are right: source {source_name} in fleet.yaml"
            )),
            SourceError::Read { .. }
            | SourceError::Start { .. }
            | SourceError::NoToken
            | SourceError::Form => None,
        }
    }
}

/// Where secrets of a fleet repo are asked for.
#[derive(Clone)]
pub struct SecretSettings {
    /// The folder of the fleet repo.
    pub repo: PathBuf,
    /// The age identity that the files of the repo are encrypted for.
    pub identity: PathBuf,
    /// The token for an HTTP API, where it is not in the environment or in the user's own file.
    pub vault_token: Option<String>,
}

/// Without the token.
impl std::fmt::Debug for SecretSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretSettings").field("repo", &self.repo).field("identity", &self.identity).finish()
    }
}

/// What a source said.
pub(super) enum SourceAnswer {
    Value(SecretValue),
    NotThere,
    TooLarge,
}

impl SecretSettings {
    /// The values of these secrets, by name.
    ///
    /// # Errors
    /// Every secret that has none.
    pub fn values(
        &self,
        sources: &[SecretSource],
        names: &BTreeSet<&str>,
    ) -> Result<BTreeMap<String, SecretValue>, Vec<SecretError>> {
        let (asking, queue) = (Asking::by(self), Mutex::new(names.iter().copied()));
        let done = Mutex::new((BTreeMap::new(), Vec::new()));
        thread::scope(|scope| {
            for _ in 0..ASKED.min(names.len()) {
                scope.spawn(|| {
                    while let Some(name) = locked(&queue).next() {
                        let asked = asking.value(sources, name);
                        let (values, errors) = &mut *locked(&done);
                        match asked {
                            Ok(value) => drop(values.insert(name.to_owned(), value)),
                            Err(error) => errors.push(error),
                        }
                    }
                });
            }
        });
        let (values, mut errors) = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        errors.sort_by_key(ToString::to_string);
        if errors.is_empty() { Ok(values) } else { Err(errors) }
    }

    /// The value of one secret: that of the first source that has it.
    ///
    /// # Errors
    /// [`SecretError`] names the secret, and the source that could not give it.
    pub fn value(&self, sources: &[SecretSource], name: &str) -> Result<SecretValue, SecretError> {
        Asking::by(self).value(sources, name)
    }

    /// The age identities; `None` when there is no file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn identities(&self) -> Result<Option<Vec<SealingKey>>, SourceError> {
        let path = &self.identity;
        let text = match fs::read_to_string(path) {
            Ok(text) => Zeroizing::new(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(SourceError::Read { path: path.clone(), source }),
        };
        SealingKey::all_from_file(&text).map(Some).map_err(|_| SourceError::Identity(path.clone()))
    }
}

/// Sources that are asked for some secrets.
struct Asking<'s> {
    settings: &'s SecretSettings,
    /// Read once, as it may be a pipe.
    identities: Mutex<Option<Arc<Vec<SealingKey>>>>,
}

impl<'s> Asking<'s> {
    fn by(settings: &'s SecretSettings) -> Asking<'s> {
        Asking { settings, identities: Mutex::default() }
    }

    fn value(&self, sources: &[SecretSource], name: &str) -> Result<SecretValue, SecretError> {
        let own: Vec<&SecretSource> =
            sources.iter().filter(|source| name.starts_with(&source.prefix)).collect();
        if own.is_empty() {
            return Err(SecretError::NoSource(name.to_owned()));
        }
        for source in &own {
            let failed = |error| SecretError::Source {
                name: name.to_owned(),
                source_name: source.name.clone(),
                source: error,
            };
            match self.ask(source, name).map_err(failed)? {
                SourceAnswer::Value(value) if value.len() > MAX_SECRET => {
                    return Err(SecretError::TooLarge(name.to_owned()));
                }
                SourceAnswer::Value(value) => return Ok(value),
                SourceAnswer::TooLarge => return Err(SecretError::TooLarge(name.to_owned())),
                SourceAnswer::NotThere => {}
            }
        }
        let asked = own.iter().map(|source| source.name.clone()).collect();
        Err(SecretError::NotFound { name: name.to_owned(), asked })
    }

    fn ask(&self, source: &SecretSource, name: &str) -> Result<SourceAnswer, SourceError> {
        let timeout = Duration::from_secs(source.timeout_secs.into());
        match &source.kind {
            SecretSourceKind::Age { folder, .. } => {
                self.age_file(&age_path(&self.settings.repo, folder, name))
            }
            SecretSourceKind::Command(argv) => command(argv, name, timeout),
            SecretSourceKind::Vault { url, path } => vault::ask(self.settings, url, path, name, timeout),
        }
    }

    fn age_file(&self, path: &Path) -> Result<SourceAnswer, SourceError> {
        let file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SourceAnswer::NotThere),
            Err(source) => return Err(SourceError::Read { path: path.to_owned(), source }),
        };
        let mut bytes = Vec::new();
        let read = file.take(age::MAX_FILE as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|source| SourceError::Read { path: path.to_owned(), source })?;
        let identities = self.identities()?;
        match age::decrypt(&bytes, &identities, MAX_SECRET) {
            Ok(value) => Ok(SourceAnswer::Value(value)),
            Err(AgeError::TooLarge(_)) => Ok(SourceAnswer::TooLarge),
            Err(source) => Err(SourceError::Age { path: path.to_owned(), source }),
        }
    }

    fn identities(&self) -> Result<Arc<Vec<SealingKey>>, SourceError> {
        let mut known = locked(&self.identities);
        if let Some(known) = &*known {
            return Ok(known.clone());
        }
        let read = self.settings.identities()?;
        let read = Arc::new(read.ok_or_else(|| SourceError::NoIdentity(self.settings.identity.clone()))?);
        Ok(known.insert(read).clone())
    }
}

/// The age file of a secret in a fleet repo.
pub fn age_path(repo: &Path, folder: &str, name: &str) -> PathBuf {
    repo.join(folder).join(format!("{name}.age"))
}

/// Runs a command with the secret's name as its last argument; what it prints is the value.
fn command(argv: &[String], name: &str, timeout: Duration) -> Result<SourceAnswer, SourceError> {
    let command = BoundedCommand {
        argv,
        last: Some(name),
        env: None,
        stdin: None,
        errors: ChildErrors::Inherit,
        most: MAX_SECRET,
        timeout,
    };
    let output = command.run().map_err(|error| match error {
        ChildError::Empty => SourceError::Form,
        ChildError::Start { program, source } => SourceError::Start { program, source },
        ChildError::Hangs { .. } => SourceError::Hangs(timeout),
    })?;
    match output.status.success() {
        _ if output.stdout.len() > MAX_SECRET => Ok(SourceAnswer::TooLarge),
        true => Ok(SourceAnswer::Value(output.stdout)),
        false => {
            let program = argv.first().cloned().unwrap_or_default();
            Err(SourceError::Ended { program, status: output.status })
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
