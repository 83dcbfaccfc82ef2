//! [`Value`]: what vars, params, traits and expressions are made of.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// The longest text that values are put together to, in bytes.
pub const MAX_RESULT: usize = 4 * 1024 * 1024;
/// The largest magnitude of an integer that every JSON reader keeps exactly (2^53 - 1).
pub const MAX_INT: i64 = (1 << 53) - 1;

/// A JSON-like value with one canonical form: no null and no floats.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// `true` or `false`.
    Bool(bool),
    /// An integer within +/-[`MAX_INT`].
    Int(i64),
    /// Text.
    Str(String),
    /// An ordered list.
    List(Vec<Value>),
    /// A map; keys are sorted.
    Map(BTreeMap<String, Value>),
}

impl Value {
    /// The name of the value's type, as error messages use it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Str(_) => "string",
            Value::List(_) => "list",
            Value::Map(_) => "map",
        }
    }

    /// Looks a dotted path up in nested maps.
    pub fn path(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(self, |value, key| match value {
            Value::Map(map) => map.get(key),
            Value::Bool(_) | Value::Int(_) | Value::Str(_) | Value::List(_) => None,
        })
    }

    /// The text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(text),
            Value::Bool(_) | Value::Int(_) | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// The boolean, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            Value::Int(_) | Value::Str(_) | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// The integer, if this is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(*value),
            Value::Bool(_) | Value::Str(_) | Value::List(_) | Value::Map(_) => None,
        }
    }
}

/// By hand: what serde derives keeps each value aside and tries one variant after the other, with an error made for
/// each that it is not.
impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bool, an integer, a text, a list or a map")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        i64::try_from(value)
            .map(Value::Int)
            .map_err(|_| E::invalid_value(serde::de::Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Str(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Str(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, value)) = entries.next_entry()? {
            map.insert(key, value);
        }
        Ok(Value::Map(map))
    }
}

/// How a value reads inside text: strings bare, the rest as JSON.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Str(text) => f.write_str(text),
            other => f.write_str(&serde_json::to_string(other).map_err(|_| fmt::Error)?),
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Str(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::Str(value)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Value::List(values.into_iter().map(Into::into).collect())
    }
}

/// Puts a value into text as `${{ }}` among other text and `{{ }}` in templates do.
pub(crate) fn append(out: &mut String, value: &Value) -> Result<(), String> {
    match value {
        Value::Str(text) => out.push_str(text),
        Value::Bool(_) | Value::Int(_) => out.push_str(&value.to_string()),
        Value::List(_) => return Err("a list cannot stand in text; write `|join(\", \")`".into()),
        Value::Map(_) => {
            return Err("a map cannot stand in text; write `|tojson`, or name one of its keys".into());
        }
    }
    if out.len() > MAX_RESULT {
        return Err(format!("the text grows beyond {MAX_RESULT} bytes"));
    }
    Ok(())
}
