//! Signed documents: the exact bytes travel with signatures over them.
//!
//! A signature covers the document's type and length too, so that a document of one type
//! can never pass for another.

use data_encoding::BASE64;
use model::canonical::{self, CanonicalError};
use model::exchange::{Signature, Signed};
use model::{Channel, Digest, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::document::Slots;
use crate::key::{PublicKey, SIGNATURE_LEN, SigningKey};

/// The most signatures looked at on one document.
pub const MAX_SIGNATURES: usize = 8;
/// The longest signed document of most sorts, in bytes.
pub const MAX_DOCUMENT: usize = 64 * 1024;

/// A sort of signed document.
pub trait Document: Serialize + DeserializeOwned {
    /// Names the sort inside the signature.
    const TYPE: &'static str;
    /// The longest one that is read, in bytes.
    const MAX_BYTES: usize = MAX_DOCUMENT;

    /// When it was signed, by its own word.
    fn signed_at(&self) -> Timestamp;
}

/// Why a signed document is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// It carries no signature.
    #[error("it is not signed")]
    Unsigned,
    /// It is too long, or carries too many signatures.
    #[error("it is too large")]
    TooLarge,
    /// No trusted key made any of its signatures.
    #[error("no trusted key signed it")]
    Untrusted,
    /// Trusted keys signed it, and not as many as its channel asks for.
    #[error("it has {have} of the {need} signatures that channel {channel} asks for")]
    TooFew {
        /// The channel.
        channel: Channel,
        /// How many signatures of the channel's signers it has.
        have: usize,
        /// How many it needs.
        need: usize,
    },
    /// It was signed before the time from which signatures count.
    #[error("it was signed before {0}, from when on signatures count")]
    RejectedBefore(Timestamp),
    /// Signed, but not a document of this sort.
    #[error("it is signed, but malformed: {0}")]
    Malformed(CanonicalError),
}

/// A document's exact bytes, for keys that sign elsewhere than in this program.
#[derive(Clone, Debug)]
pub struct UnsignedDocument {
    payload: String,
    message: Vec<u8>,
}

impl UnsignedDocument {
    /// The bytes of a document.
    ///
    /// # Errors
    /// When the document has no canonical form.
    pub fn of<D: Document>(document: &D) -> Result<UnsignedDocument, CanonicalError> {
        let bytes = canonical::to_bytes(document)?;
        let message = message(D::TYPE, &bytes);
        let payload = String::from_utf8(bytes)
            .map_err(|_| CanonicalError::NotAllowed("canonical JSON is UTF-8".to_owned()))?;
        Ok(UnsignedDocument { payload, message })
    }

    /// What a key signs.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The document with these signatures.
    pub fn signed(self, signatures: Vec<Signature>) -> Signed {
        Signed { payload: self.payload, signatures }
    }
}

/// A signature that a key made of a message, as documents carry it; `None` when the key did not make it.
pub fn signature(key: &PublicKey, message: &[u8], sig: &[u8; SIGNATURE_LEN]) -> Option<Signature> {
    key.verifies(message, sig).then(|| Signature { key: key.id(), sig: BASE64.encode(sig) })
}

/// Signs a document.
///
/// # Errors
/// When the document has no canonical form.
pub fn sign<D: Document>(document: &D, keys: &[&SigningKey]) -> Result<Signed, CanonicalError> {
    let unsigned = UnsignedDocument::of(document)?;
    let made = |key: &&SigningKey| Signature {
        key: key.public().id(),
        sig: BASE64.encode(&key.sign(&unsigned.message)),
    };
    let signatures = keys.iter().map(made).collect();
    Ok(unsigned.signed(signatures))
}

/// Verifies a document against key slots, then reads it. Nothing is parsed before a
/// signature was found good.
///
/// # Errors
/// [`VerifyError`] says why it is not believed.
pub fn verify<D: Document>(signed: &Signed, slots: &Slots) -> Result<D, VerifyError> {
    check_form::<D>(signed)?;
    let message = message(D::TYPE, signed.payload.as_bytes());
    if !slots.keys().any(|key| signed.signatures.iter().any(|sig| made_by(key, sig, &message))) {
        return Err(VerifyError::Untrusted);
    }
    let document: D =
        canonical::parse_canonical(signed.payload.as_bytes()).map_err(VerifyError::Malformed)?;
    match slots.reject_before {
        Some(limit) if document.signed_at() < limit => Err(VerifyError::RejectedBefore(limit)),
        _ => Ok(document),
    }
}

/// It carries signatures, and nothing is longer than it may be.
pub(crate) fn check_form<D: Document>(signed: &Signed) -> Result<(), VerifyError> {
    if signed.signatures.is_empty() {
        return Err(VerifyError::Unsigned);
    }
    match signed.payload.len() > D::MAX_BYTES || signed.signatures.len() > MAX_SIGNATURES {
        true => Err(VerifyError::TooLarge),
        false => Ok(()),
    }
}

/// Which keys of the slots made good signatures of a document.
pub fn signers<'a, D: Document>(signed: &Signed, slots: &'a Slots) -> Vec<&'a PublicKey> {
    signers_among::<D>(signed, slots.keys())
}

/// Which of these keys made good signatures of a document.
pub fn signers_among<'a, D: Document>(
    signed: &Signed,
    keys: impl Iterator<Item = &'a PublicKey>,
) -> Vec<&'a PublicKey> {
    let message = message(D::TYPE, signed.payload.as_bytes());
    let looked_at = || signed.signatures.iter().take(MAX_SIGNATURES);
    keys.filter(|key| looked_at().any(|sig| made_by(key, sig, &message))).collect()
}

/// The digest by which a signed document is named: that of its bytes, signatures apart.
pub fn digest(signed: &Signed) -> Digest {
    Digest::of(signed.payload.as_bytes())
}

fn made_by(key: &PublicKey, signature: &Signature, message: &[u8]) -> bool {
    // The id only spares work; the signature decides.
    signature.key == key.id()
        && BASE64.decode(signature.sig.as_bytes()).is_ok_and(|sig| key.verifies(message, &sig))
}

/// The bytes under a signature: a label, the type and the payload, each with its length.
pub fn message(kind: &str, payload: &[u8]) -> Vec<u8> {
    let mut out = b"muster-signed-1\0".to_vec();
    for part in [kind.as_bytes(), payload] {
        out.extend_from_slice(&(part.len() as u64).to_be_bytes());
        out.extend_from_slice(part);
    }
    out
}
