//! [`CacheKey`]: whose signature over a path of a cache counts.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64;

use crate::key::{KeyAlgorithm, PublicKey};

/// The longest name of a key, in bytes.
pub(super) const MAX_KEY_NAME: usize = 128;

/// The public key of a cache, as Nix writes it: `NAME:BASE64`, ed25519.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey {
    name: String,
    key: PublicKey,
}

/// A text is no key of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a cache's public key: expected NAME:BASE64 of 32 bytes, as `nix key convert-secret-to-public` prints it"
)]
pub struct CacheKeyError;

impl CacheKey {
    /// The name, by which a signature says whose it is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this key made a signature over exactly these bytes.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.key.verifies(message, signature)
    }
}

impl FromStr for CacheKey {
    type Err = CacheKeyError;

    fn from_str(text: &str) -> Result<CacheKey, CacheKeyError> {
        let (name, key) = text.split_once(':').ok_or(CacheKeyError)?;
        let is_name = (1..=MAX_KEY_NAME).contains(&name.len()) && name.bytes().all(|c| c.is_ascii_graphic());
        let raw = BASE64.decode(key.as_bytes()).map_err(|_| CacheKeyError)?;
        let key = PublicKey::from_raw(KeyAlgorithm::Ed25519, &raw).map_err(|_| CacheKeyError)?;
        if is_name { Ok(CacheKey { name: name.to_owned(), key }) } else { Err(CacheKeyError) }
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, BASE64.encode(&self.key.raw()))
    }
}
