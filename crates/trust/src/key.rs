//! Keys: ed25519, verified strictly; the private half cannot be printed.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE64, HEXLOWER};
use ed25519_dalek::Signer;
use model::Digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

const ED25519: &str = "ed25519:";

/// The private half of an ed25519 key. Never printed, wiped when dropped.
pub struct SigningKey(ed25519_dalek::SigningKey);

impl SigningKey {
    /// The key with this seed.
    pub fn from_seed(seed: &[u8; 32]) -> SigningKey {
        SigningKey(ed25519_dalek::SigningKey::from_bytes(seed))
    }

    /// The seed, for writing the key to its own 0600 file and for TLS.
    pub fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs bytes.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }

    /// The text form for key files: `ed25519-private:` and base64 of the seed.
    pub fn to_file(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("ed25519-private:{}\n", BASE64.encode(self.seed().as_slice())))
    }

    /// Reads the text form of a key file.
    ///
    /// # Errors
    /// When the text has another form; the error does not repeat it.
    pub fn from_file(text: &str) -> Result<SigningKey, ParseKeyError> {
        let encoded = text.trim().strip_prefix("ed25519-private:").ok_or(ParseKeyError)?;
        let seed = Zeroizing::new(BASE64.decode(encoded.as_bytes()).map_err(|_| ParseKeyError)?);
        let seed: &[u8; 32] = seed.as_slice().try_into().map_err(|_| ParseKeyError)?;
        Ok(SigningKey::from_seed(seed))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({}, private half hidden)", self.public().id())
    }
}

/// A public key. Text form: the algorithm, a colon, base64.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(ed25519_dalek::VerifyingKey);

/// The text or bytes are not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a key: expected ed25519 and 32 bytes in base64")]
pub struct ParseKeyError;

impl PublicKey {
    /// The key with these bytes.
    ///
    /// # Errors
    /// When they are not a point on the curve, or a weak one.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<PublicKey, ParseKeyError> {
        let key = ed25519_dalek::VerifyingKey::from_bytes(bytes).map_err(|_| ParseKeyError)?;
        if key.is_weak() { Err(ParseKeyError) } else { Ok(PublicKey(key)) }
    }

    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// A short id: the first 16 hex digits of the key's digest.
    pub fn id(&self) -> String {
        HEXLOWER.encode(&Digest::of(self.as_bytes()).0[..8])
    }

    /// What people compare and tokens name: SHA-256 of the raw key, `SHA256:` and base64.
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", BASE64.encode(Digest::of(self.as_bytes()).as_bytes()))
    }

    /// Whether this key made the signature over exactly these bytes. Strict: no
    /// malleable signature and no weak key passes.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        ed25519_dalek::Signature::from_slice(signature)
            .is_ok_and(|signature| self.0.verify_strict(message, &signature).is_ok())
    }
}

impl FromStr for PublicKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<PublicKey, ParseKeyError> {
        let encoded = text.strip_prefix(ED25519).ok_or(ParseKeyError)?;
        let bytes = BASE64.decode(encoded.as_bytes()).map_err(|_| ParseKeyError)?;
        PublicKey::from_bytes(bytes.as_slice().try_into().map_err(|_| ParseKeyError)?)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ED25519}{}", BASE64.encode(self.as_bytes()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PublicKey, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
