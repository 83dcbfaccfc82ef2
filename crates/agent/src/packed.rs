//! [`Packed`]: a value that is kept small while nobody looks at it.

use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::body::{self, BodyError, GZIP};

/// The most bytes of a value's JSON.
const MAX_JSON: usize = 64 * 1024 * 1024;

/// A value as compressed JSON. What an idle daemon keeps of a run over thousands of resources is a hundredth of
/// the value so, and one allocation instead of thousands that lie between those of the run. Cheap to clone.
pub struct Packed<T> {
    json: Arc<[u8]>,
    coding: Option<&'static str>,
    value: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Packed<T> {
    /// Packs a value.
    ///
    /// # Errors
    /// When it cannot be written as JSON, or that has more than [`MAX_JSON`] bytes.
    pub fn new(value: &T) -> Result<Packed<T>, BodyError> {
        let json = body::encode(value)?;
        if json.len() > MAX_JSON {
            return Err(BodyError::TooLarge { limit: MAX_JSON });
        }
        let (json, coding) = match body::compress(&json) {
            Some(compressed) => (compressed, Some(GZIP)),
            None => (json, None),
        };
        Ok(Packed { json: json.into(), coding, value: PhantomData })
    }

    /// The value.
    ///
    /// # Errors
    /// Never for a type that reads what it wrote.
    pub fn value(&self) -> Result<T, BodyError> {
        body::decode(&body::unpack(self.json.to_vec(), self.coding, MAX_JSON)?)
    }
}

impl<T> Clone for Packed<T> {
    fn clone(&self) -> Packed<T> {
        Packed { json: self.json.clone(), ..*self }
    }
}

impl<T> std::fmt::Debug for Packed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, packed", self.json.len())
    }
}

#[cfg(test)]
mod tests {
    use super::Packed;

    #[test]
    fn a_value_comes_back_as_it_was() {
        for text in ["short".to_owned(), "long ".repeat(10_000)] {
            let packed = Packed::new(&text).unwrap();
            assert!(packed.json.len() < 2_000, "{packed:?}");
            assert_eq!(packed.clone().value().unwrap(), text);
        }
    }
}
