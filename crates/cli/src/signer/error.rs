//! [`SignerError`]: why a signer cannot sign, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use model::canonical::CanonicalError;
use trust::key::ParseKeyError;
use trust::sealing::age::AgeError;
use trust::signed::MAX_SIGNATURES;

use super::file::{IDENTITY_ENV, PASSPHRASE_ENV};
use crate::failure::UserError;

/// Why a signer cannot be used, or did not sign.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file holds nothing that signs.
    #[error("{} is no key file, no age file and no signer file", .0.display())]
    NotASigner(PathBuf),
    /// The file is like a key file, and its key cannot be read.
    #[error("the key in {} cannot be read", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why; the key is not repeated.
        #[source]
        source: ParseKeyError,
    },
    /// The file holds only the public half.
    #[error("{} holds only the public half of a key", .0.display())]
    OnlyPublic(PathBuf),
    /// The signer file is not of the form.
    #[error("the signer file {} cannot be used: {why}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The age file cannot be decrypted.
    #[error("the key file {} cannot be decrypted", path.display())]
    Age {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: AgeError,
    },
    /// Nothing says how to decrypt it.
    #[error("the key file {} is encrypted, and no identity is named that opens it", .0.display())]
    NoIdentity(PathBuf),
    /// The identity's file is not of the form.
    #[error("{} holds no age identity", .0.display())]
    Identity(PathBuf),
    /// Nobody can be asked for the passphrase.
    #[error("the key file {} asks for a passphrase, and there is no terminal to ask on", .0.display())]
    NobodyToAsk(PathBuf),
    /// The passphrase is empty, or too long.
    #[error("a passphrase has from 1 to {0} bytes")]
    Passphrase(usize),
    /// The terminal cannot be asked.
    #[error("cannot ask for the passphrase")]
    Ask(#[source] io::Error),
    /// There is not the memory that the passphrase takes.
    #[error("the passphrase cannot be stretched")]
    Stretch,
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
    #[error("{program} did not sign: it ended with {status}{}", quoted(.said))]
    Ended {
        /// The program.
        program: String,
        /// How.
        status: ExitStatus,
        /// The last that it said.
        said: String,
    },
    /// It did not end in time.
    #[error("{program} did not sign within {} s, and was stopped{}", after.as_secs(), quoted(.said))]
    Hangs {
        /// The program.
        program: String,
        /// How long it had.
        after: Duration,
        /// The last that it said.
        said: String,
    },
    /// It printed something else.
    #[error("{program} printed no signature: {why}{}", quoted(.said))]
    Rubbish {
        /// The program.
        program: String,
        /// What is wrong.
        why: String,
        /// The last that it said.
        said: String,
    },
    /// It printed no public key when it was asked for one.
    #[error("{program} printed no public key{}", quoted(.said))]
    NoPublicKey {
        /// The program.
        program: String,
        /// The last that it said.
        said: String,
    },
    /// The signature is of another key, or of other bytes.
    #[error("what {by} signed does not verify with the public key {key}")]
    Wrong {
        /// The public key's id.
        key: String,
        /// Who signed.
        by: String,
    },
}

fn quoted(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {}", model::text::one_line(said)) }
}

impl UserError for SignerError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            SignerError::NotASigner(_) => {
                "make a key: `muster key new FILE`; docs/keys.md shows what a signer file holds".to_owned()
            }
            SignerError::OnlyPublic(_) => "name the file that holds the private half".to_owned(),
            SignerError::NoIdentity(_) | SignerError::Age { source: AgeError::OtherRecipients, .. } => {
                format!(
                    "name the age identity that it is encrypted for: {IDENTITY_ENV}=FILE, or in a signer file"
                )
            }
            SignerError::NobodyToAsk(_) | SignerError::Age { source: AgeError::OtherPassphrase, .. } => {
                format!("name a file that holds the passphrase: {PASSPHRASE_ENV}=FILE, or in a signer file")
            }
            SignerError::Hangs { .. } => {
                "nothing was sent; a signer file's `timeout` gives it longer, up to 10m".to_owned()
            }
            SignerError::Ended { .. } | SignerError::Rubbish { .. } | SignerError::NoPublicKey { .. } => {
                "nothing was sent; docs/keys.md says what a signing command reads and prints".to_owned()
            }
            SignerError::Wrong { .. } => {
                "nothing was sent; does the signer file's `public` belong to the key that the command uses?"
                    .to_owned()
            }
            _ => return None,
        })
    }
}

/// Why a document is not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The signer failed.
    #[error(transparent)]
    FleetSigner(#[from] SignerError),
    /// It has no canonical form.
    #[error("it has no canonical form")]
    Canonical(#[from] CanonicalError),
    /// The key signed it before.
    #[error("key {0} has signed it already: another signer is asked for")]
    Twice(String),
    /// It carries as many signatures as there may be.
    #[error("it carries {MAX_SIGNATURES} signatures, and may have no more")]
    TooMany,
}

impl UserError for SignError {
    fn hint(&self) -> Option<String> {
        match self {
            SignError::FleetSigner(error) => error.hint(),
            _ => None,
        }
    }
}
