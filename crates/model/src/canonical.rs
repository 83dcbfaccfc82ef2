//! Canonical bytes: RFC 8785, integers within 2^53, no null, no duplicate key.
//!
//! The producer canonicalizes once; everyone else hashes the bytes received. [`parse`]
//! is strict, so that two readers can never see two things in one signed document.

use std::fmt;

use serde::Serialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// The deepest nesting that [`parse`] and [`to_bytes`] accept.
pub const MAX_DEPTH: usize = 64;
/// Integers beyond this are not exact in every JSON reader.
const MAX_INT: i64 = (1 << 53) - 1;

/// Why bytes are not canonical, or a value cannot be made so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// Not JSON, or JSON of a kind that documents here may not hold.
    #[error("{0}")]
    NotAllowed(String),
    /// JSON, but not its canonical form.
    #[error("the document is not in canonical form (RFC 8785)")]
    NotCanonical,
}

/// The canonical bytes of a value.
///
/// # Errors
/// When the value holds a float, a null, or an integer beyond 2^53 - 1.
pub fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    let bytes = serde_json_canonicalizer::to_vec(value)
        .map_err(|error| CanonicalError::NotAllowed(error.to_string()))?;
    check(&bytes)?;
    Ok(bytes)
}

/// Reads a document, refusing duplicate keys, nulls, floats and large integers.
///
/// # Errors
/// When the bytes are not such a document, or do not have the shape of `T`.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CanonicalError> {
    check(bytes)?;
    serde_json::from_slice(bytes).map_err(|error| CanonicalError::NotAllowed(error.to_string()))
}

/// Like [`parse`], and the bytes must be the canonical form of what they say.
///
/// # Errors
/// As [`parse`], and [`CanonicalError::NotCanonical`].
pub fn parse_canonical<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CanonicalError> {
    check(bytes)?;
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| CanonicalError::NotAllowed(error.to_string()))?;
    let canonical = serde_json_canonicalizer::to_vec(&value)
        .map_err(|error| CanonicalError::NotAllowed(error.to_string()))?;
    if canonical != bytes {
        return Err(CanonicalError::NotCanonical);
    }
    serde_json::from_value(value).map_err(|error| CanonicalError::NotAllowed(error.to_string()))
}

fn check(bytes: &[u8]) -> Result<(), CanonicalError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    Strict { depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end())
        .map_err(|error| CanonicalError::NotAllowed(error.to_string()))
}

/// Walks a document and refuses what canonical documents may not hold.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Strict {
    fn deeper<E: serde::de::Error>(self) -> Result<Strict, E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(format!("nested deeper than {MAX_DEPTH}")));
        }
        Ok(Strict { depth: self.depth + 1 })
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value without null and floats")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        if value.unsigned_abs() > MAX_INT.unsigned_abs() {
            return Err(E::custom(format!("integer {value} is beyond 2^53 - 1")));
        }
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => Err(E::custom(format!("integer {value} is beyond 2^53 - 1"))),
        }
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        while seq.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        let mut keys = std::collections::BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if let Some(twice) = keys.replace(key) {
                return Err(serde::de::Error::custom(format!("duplicate key {twice:?}")));
            }
            map.next_value_seed(inner)?;
        }
        Ok(())
    }
}
