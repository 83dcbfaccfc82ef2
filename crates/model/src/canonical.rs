//! Canonical bytes: RFC 8785, integers within 2^53, no null, no duplicate key.
//!
//! The producer canonicalizes once; everyone else hashes the bytes received. [`parse`]
//! is strict, so that two readers can never see two things in one signed document.

use std::fmt;

use serde::Serialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::{Number, Value};

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
    parse_again(bytes)
}

/// Reads a document that [`parse`] accepted before, as its digest shows: what it refuses is not looked for again.
///
/// # Errors
/// When the bytes are no JSON, or do not have the shape of `T`.
pub fn parse_again<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CanonicalError> {
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
    serde_json::from_slice(bytes).map_err(|error| CanonicalError::NotAllowed(error.to_string()))
}

fn check(bytes: &[u8]) -> Result<(), CanonicalError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    Strict { depth: 0, loose: false, violation: &mut None }
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end())
        .map_err(|error| CanonicalError::NotAllowed(error.to_string()))
}

/// What not every reader of JSON reads the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// A key stands in a map twice.
    #[error("duplicate key {0:?}")]
    DuplicateKey(String),
    /// A number is not exact for every reader.
    #[error("integer {0} is beyond 2^53 - 1")]
    TooLarge(String),
}

/// Checks JSON that may hold null and floats besides what documents hold; what it violates is in
/// `violation` then.
///
/// # Errors
/// When there is a violation, or what is read is not JSON.
pub fn check_loosely<'de, D: Deserializer<'de>>(
    json: D,
    violation: &mut Option<Violation>,
) -> Result<(), D::Error> {
    Strict { depth: 0, loose: true, violation }.deserialize(json)
}

/// The same for a value that was read by others, where no key stands twice.
///
/// # Errors
/// The first violation.
pub fn check_value(value: &Value) -> Result<(), Violation> {
    fn walk(value: &Value, depth: usize) -> Result<(), Violation> {
        let inner = depth + 1;
        match value {
            Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => Err(Violation::TooDeep),
            Value::Array(items) => items.iter().try_for_each(|item| walk(item, inner)),
            Value::Object(map) => map.values().try_for_each(|item| walk(item, inner)),
            Value::Number(number) if !is_exact(number) => Err(Violation::TooLarge(number.to_string())),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }
    walk(value, 0)
}

fn is_exact(number: &Number) -> bool {
    match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => integer.unsigned_abs() <= MAX_INT.unsigned_abs(),
        (None, float) => float.is_some_and(|float| float.abs() <= MAX_INT as f64),
    }
}

/// Walks a document and refuses what canonical documents may not hold.
struct Strict<'v> {
    depth: usize,
    /// Null and floats are fine.
    loose: bool,
    violation: &'v mut Option<Violation>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Strict<'_> {
    fn refuse<E: serde::de::Error>(&mut self, violation: Violation) -> E {
        E::custom(self.violation.insert(violation))
    }

    fn deeper<E: serde::de::Error>(&mut self) -> Result<Strict<'_>, E> {
        if self.depth >= MAX_DEPTH {
            return Err(self.refuse(Violation::TooDeep));
        }
        Ok(Strict { depth: self.depth + 1, loose: self.loose, violation: &mut *self.violation })
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value without null and floats")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        if self.loose { Ok(()) } else { Err(E::invalid_type(Unexpected::Unit, &self)) }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(mut self, value: i64) -> Result<(), E> {
        if value.unsigned_abs() > MAX_INT.unsigned_abs() {
            return Err(self.refuse(Violation::TooLarge(value.to_string())));
        }
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(mut self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => Err(self.refuse(Violation::TooLarge(value.to_string()))),
        }
    }

    fn visit_f64<E: serde::de::Error>(mut self, value: f64) -> Result<(), E> {
        match self.loose {
            false => Err(E::invalid_type(Unexpected::Float(value), &self)),
            true if value.abs() <= MAX_INT as f64 => Ok(()),
            true => Err(self.refuse(Violation::TooLarge(value.to_string()))),
        }
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(self.deeper()?)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.deeper()?;
        let mut keys = std::collections::BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if let Some(twice) = keys.replace(key) {
                return Err(self.refuse(Violation::DuplicateKey(twice)));
            }
            map.next_value_seed(self.deeper()?)?;
        }
        Ok(())
    }
}
