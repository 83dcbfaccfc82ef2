//! [`FleetSigner`]: who signs for a fleet, wherever the private half of the key is.
//!
//! ```text
//! --key FILE, --root-key FILE
//!   a key file                    the private half is read into memory
//!   an age file                   decrypted in memory, with an identity or a passphrase
//!   a signer file (YAML)          names an age file and what opens it, or a command that signs
//! ```
//!
//! Invariant: no signature leaves this module that its public key does not verify.

mod command;
mod error;
mod file;
mod passphrase;
mod public;

use std::fmt;
use std::path::Path;

use model::exchange::{Signature, Signed};
use trust::key::SIGNATURE_LEN;
use trust::sealing::SecretSealer;
use trust::signed::{self, Document, MAX_SIGNATURES, UnsignedDocument};
use trust::{KeyAlgorithm, PublicKey, SigningKey};

use command::SigningCommand;
pub use error::{SignError, SignerError};
pub use file::{IDENTITY_ENV, PASSPHRASE_ENV};
pub(crate) use passphrase::{read_passphrase, stretch};
pub(crate) use public::read as public;

/// What is signed by a command for a seed that no document holds.
const SEALING_TYPE: &str = "sealing-seed";

/// A key that can be asked for signatures.
pub struct FleetSigner {
    public: PublicKey,
    source: SignerSource,
}

enum SignerSource {
    /// The private half is in memory.
    Key(SigningKey),
    /// A command signs.
    Command(SigningCommand),
}

impl From<SigningKey> for FleetSigner {
    fn from(key: SigningKey) -> FleetSigner {
        FleetSigner { public: key.public(), source: SignerSource::Key(key) }
    }
}

impl fmt::Debug for FleetSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FleetSigner({}, private half hidden)", self.public.id())
    }
}

impl FleetSigner {
    /// The signer that a file stands for; `None` where there is no file.
    ///
    /// # Errors
    /// [`SignerError`] says why it cannot sign.
    pub fn open(path: &Path) -> Result<Option<FleetSigner>, SignerError> {
        file::open(path)
    }

    pub(crate) fn of_command(public: PublicKey, command: SigningCommand) -> FleetSigner {
        FleetSigner { public, source: SignerSource::Command(command) }
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Signs bytes; the signature is good.
    ///
    /// # Errors
    /// When a command fails, or what it prints is no signature of this key.
    pub fn sign(&self, message: &[u8]) -> Result<[u8; SIGNATURE_LEN], SignerError> {
        let signature = match &self.source {
            SignerSource::Key(key) => key.sign(message),
            SignerSource::Command(command) => command.sign(&self.public, message)?,
        };
        match self.public.verifies(message, &signature) {
            true => Ok(signature),
            false => Err(SignerError::Wrong { key: self.public.id(), by: self.by() }),
        }
    }

    fn by(&self) -> String {
        match &self.source {
            SignerSource::Key(_) => "the key".to_owned(),
            SignerSource::Command(command) => command.program().to_owned(),
        }
    }

    /// What seals secrets: the same at each publish, so that what did not change is not sent again.
    ///
    /// Of a command it follows from a signature that nobody else gets to see. Ed25519 makes the same one each time; a
    /// service may make another P-256 signature each time, and then all secrets are sealed anew by each publish.
    ///
    /// # Errors
    /// As [`FleetSigner::sign`].
    pub fn sealer(&self) -> Result<SecretSealer, SignerError> {
        match &self.source {
            SignerSource::Key(key) => Ok(SecretSealer::of(key)),
            SignerSource::Command(_) => {
                let message = signed::message(SEALING_TYPE, self.public.fingerprint().as_bytes());
                Ok(SecretSealer::of_source(zeroize::Zeroizing::new(self.sign(&message)?).as_slice()))
            }
        }
    }

    /// Whether two signatures of the same bytes may differ.
    pub fn may_seal_anew(&self) -> bool {
        matches!(self.source, SignerSource::Command(_)) && self.public.algorithm() == KeyAlgorithm::EcdsaP256
    }

    fn signature(&self, message: &[u8]) -> Result<Signature, SignerError> {
        let raw = self.sign(message)?;
        // It was verified just now.
        let wrong = || SignerError::Wrong { key: self.public.id(), by: self.by() };
        signed::signature(&self.public, message, &raw).ok_or_else(wrong)
    }
}

/// Signs a document with each of these keys.
///
/// # Errors
/// When a signer fails, or the document has no canonical form.
pub fn sign<D: Document>(document: &D, signers: &[&FleetSigner]) -> Result<Signed, SignError> {
    let unsigned = UnsignedDocument::of(document)?;
    let signatures: Result<Vec<_>, _> =
        signers.iter().map(|signer| signer.signature(unsigned.message())).collect();
    Ok(unsigned.signed(signatures?))
}

/// Adds a signature to a document that others signed or are to sign.
///
/// # Errors
/// When the key signed it already, it carries as many signatures as it may, or the signer fails.
pub fn add_signature<D: Document>(document: &mut Signed, signer: &FleetSigner) -> Result<(), SignError> {
    let key = signer.public();
    let has_signed = !signed::signers_among::<D>(document, std::iter::once(&key)).is_empty();
    if has_signed {
        return Err(SignError::Twice(key.id()));
    }
    // One under its id that is not good would be in the way.
    document.signatures.retain(|signature| signature.key != key.id());
    if document.signatures.len() >= MAX_SIGNATURES {
        return Err(SignError::TooMany);
    }
    let message = signed::message(D::TYPE, document.payload.as_bytes());
    document.signatures.push(signer.signature(&message)?);
    Ok(())
}
