//! From JSON text to a value: one document, no key twice, no number that is not exact.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::document::{Document, Lines};
use super::error::{Problem, ReadManifestError};
use super::{MAX_DEPTH, number};

/// Reads the one document; an empty text holds none.
pub(super) fn read(text: &str) -> Result<Vec<Document>, ReadManifestError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let value = value(text)?;
    let line = 1 + text.bytes().take_while(u8::is_ascii_whitespace).filter(|byte| *byte == b'\n').count();
    Ok(vec![Document { value, line, lines: Lines::default(), place: 0 }])
}

/// Reads one value.
pub(super) fn value(text: &str) -> Result<Value, ReadManifestError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    strict(|strict| {
        let value = strict.deserialize(&mut reader)?;
        reader.end().map(|()| value)
    })
}

/// The same of a value that was read by others, where no key stands twice.
pub(super) fn checked(value: &Value) -> Result<Value, ReadManifestError> {
    strict(|strict| strict.deserialize(value))
}

fn strict(
    read: impl FnOnce(Strict<'_>) -> Result<Value, serde_json::Error>,
) -> Result<Value, ReadManifestError> {
    let mut problem = None;
    read(Strict { depth: 0, problem: &mut problem }).map_err(|error| match problem {
        Some(problem) => problem.at(error.line()),
        None => Problem::NotJson(plain(&error)).at(error.line().max(1)),
    })
}

/// The library's words without its position, which is told apart.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(words, _)| words.to_owned())
}

/// Reads a value, noting what the library would let pass.
struct Strict<'p> {
    depth: usize,
    problem: &'p mut Option<Problem>,
}

impl Strict<'_> {
    fn refuse<E: serde::de::Error>(&mut self, problem: Problem) -> E {
        let error = E::custom(&problem);
        *self.problem = Some(problem);
        error
    }

    fn below<E: serde::de::Error>(&mut self) -> Result<Strict<'_>, E> {
        if self.depth >= MAX_DEPTH {
            return Err(self.refuse(Problem::TooDeep));
        }
        Ok(Strict { depth: self.depth + 1, problem: &mut *self.problem })
    }

    fn number<E: serde::de::Error>(mut self, number: Number) -> Result<Value, E> {
        match number::check(&number) {
            Ok(()) => Ok(Value::Number(number)),
            Err(problem) => Err(self.refuse(problem)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.number(value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.number(value.into())
    }

    fn visit_f64<E: serde::de::Error>(mut self, value: f64) -> Result<Value, E> {
        match Number::from_f64(value) {
            Some(number) => self.number(number),
            None => Err(self.refuse(Problem::NotPlain(number::TOO_LARGE.into()))),
        }
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.below()?)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(self.refuse(Problem::Duplicate(key)));
            }
            let value = access.next_value_seed(self.below::<A::Error>()?)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
