//! [`SealingKey`] and [`RecipientKey`]: X25519 keys in age's text forms.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64;
use model::Digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

use super::bech32;
use super::primitives::{self, KEY_LEN, Key};

/// What a public key begins with.
const PUBLIC: &str = "age";
/// What a private key begins with.
const PRIVATE: &str = "age-secret-key-";
/// The most lines of a key file that are read.
const MAX_LINES: usize = 1000;

/// The text is no key of this sort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a sealing key: expected `age1` and 58 characters, as `muster-agent identity` prints it")]
pub struct ParseRecipientError;

/// The private half of a sealing key: what is sealed for a node is opened with it. Never printed, wiped when dropped.
pub struct SealingKey {
    secret: Key,
    public: RecipientKey,
}

impl SealingKey {
    /// The key with this private half; `None` when the library refuses it, as it does no 32 bytes.
    pub fn from_secret(secret: &[u8; KEY_LEN]) -> Option<SealingKey> {
        let public = RecipientKey(primitives::public(secret)?);
        Some(SealingKey { secret: Zeroizing::new(*secret), public })
    }

    /// The public half.
    pub fn public(&self) -> RecipientKey {
        self.public
    }

    pub(super) fn secret(&self) -> &[u8; KEY_LEN] {
        &self.secret
    }

    /// The text form for key files, as age writes identities.
    pub fn to_file(&self) -> Zeroizing<String> {
        let text = Zeroizing::new(bech32::encode(PRIVATE, self.secret.as_slice()));
        Zeroizing::new(format!("# public key: {}\n{}\n", self.public, text.to_ascii_uppercase()))
    }

    /// Reads the identities of a key file; lines that begin with `#` are comments.
    ///
    /// # Errors
    /// When a line is no identity, or there is none; the error repeats nothing of it.
    pub fn all_from_file(text: &str) -> Result<Vec<SealingKey>, ParseRecipientError> {
        let mut keys = Vec::new();
        for line in text.lines().take(MAX_LINES).map(str::trim).filter(|line| !line.is_empty()) {
            if line.starts_with('#') {
                continue;
            }
            let bytes = Zeroizing::new(bech32::decode(PRIVATE, line).ok_or(ParseRecipientError)?);
            let secret: &[u8; KEY_LEN] = bytes.as_slice().try_into().map_err(|_| ParseRecipientError)?;
            keys.push(SealingKey::from_secret(secret).ok_or(ParseRecipientError)?);
        }
        if keys.is_empty() { Err(ParseRecipientError) } else { Ok(keys) }
    }

    /// Reads a key file of one identity.
    ///
    /// # Errors
    /// When it has another form.
    pub fn from_file(text: &str) -> Result<SealingKey, ParseRecipientError> {
        let mut keys = SealingKey::all_from_file(text)?;
        keys.pop().filter(|_| keys.is_empty()).ok_or(ParseRecipientError)
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKey({}, private half hidden)", self.public)
    }
}

/// The public half of a sealing key: what is sealed for it, its holder alone opens. Text form: age's recipient.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecipientKey(pub(super) [u8; KEY_LEN]);

impl RecipientKey {
    /// The raw form.
    pub fn raw(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// What people compare: SHA-256 of the raw form, `SHA256:` and base64.
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", BASE64.encode(Digest::of(&self.0).as_bytes()))
    }

    /// Whether something can be sealed for it: a point of small order shares nothing with whatever key.
    pub fn is_usable(&self) -> bool {
        primitives::shared(&[1; KEY_LEN], &self.0).is_some()
    }
}

impl FromStr for RecipientKey {
    type Err = ParseRecipientError;

    fn from_str(text: &str) -> Result<RecipientKey, ParseRecipientError> {
        // One form alone, so that one key is one text.
        let bytes = bech32::decode(PUBLIC, text).filter(|_| text.starts_with("age1"));
        let bytes = bytes.ok_or(ParseRecipientError)?;
        Ok(RecipientKey(bytes.as_slice().try_into().map_err(|_| ParseRecipientError)?))
    }
}

impl fmt::Display for RecipientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&bech32::encode(PUBLIC, &self.0))
    }
}

impl fmt::Debug for RecipientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for RecipientKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RecipientKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RecipientKey, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
