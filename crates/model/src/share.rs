//! [`Share`]: a number of nodes, or a percentage of all that are meant.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of nodes, or a percentage of those that are meant. Text form: `10` or `10%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Share {
    /// So many.
    Count(u32),
    /// So many of a hundred, at most 100.
    Percent(u8),
}

/// The text is neither a number nor a percentage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a number such as 10 nor a share such as 10%")]
pub struct ParseShareError(String);

impl Share {
    /// All of them.
    pub const ALL: Share = Share::Percent(100);

    /// Of so many targets, a part of one counted as one, and at least one.
    pub fn at_least_one(self, total: usize) -> usize {
        let wanted = match self {
            Share::Count(count) => count as usize,
            Share::Percent(percent) => (total * usize::from(percent)).div_ceil(100),
        };
        wanted.clamp(1, total.max(1))
    }

    /// Of so many targets, a part of one left out.
    pub fn at_most(self, total: usize) -> usize {
        match self {
            Share::Count(count) => count as usize,
            Share::Percent(percent) => total * usize::from(percent) / 100,
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Share::Count(count) => write!(f, "{count}"),
            Share::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for Share {
    type Err = ParseShareError;

    fn from_str(text: &str) -> Result<Share, ParseShareError> {
        let wrong = || ParseShareError(text.chars().take(20).collect());
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse().ok().filter(|percent| *percent <= 100);
                percent.map(Share::Percent).ok_or_else(wrong)
            }
            None => text.parse().map(Share::Count).map_err(|_| wrong()),
        }
    }
}

impl JsonSchema for Share {
    fn schema_name() -> Cow<'static, str> {
        "Share".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "So many, or a percentage of all such as \"10%\".",
            "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": "^[0-9]+%?$" }],
        })
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Share::Count(count) => serializer.serialize_u32(*count),
            Share::Percent(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Share, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Count(u32),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Count(count) => Ok(Share::Count(count)),
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}
