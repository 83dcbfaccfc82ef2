//! Identifiers: one type each, checked when made.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Digest;

/// The longest hostname, in bytes (RFC 1035).
pub const MAX_HOSTNAME: usize = 253;
/// The longest name of a channel, module, role or the like, in bytes.
pub const MAX_NAME: usize = 100;

/// The text cannot be an identifier of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}: {rule}")]
pub struct ParseIdError {
    what: &'static str,
    text: String,
    rule: &'static str,
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:path, $rule:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                if $check(text) {
                    return Ok($name(text.into()));
                }
                let text = text.chars().take(MAX_HOSTNAME).collect();
                Err(ParseIdError { what: $what, text, rule: $rule })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

text_id! {
    /// A host's name: unique among active nodes (IDN-1).
    Hostname, "hostname", is_hostname,
    "letters a to z, digits, '-' and '.', at most 253, no label empty or longer than 63 or with '-' at an end"
}

text_id! {
    /// A fleet's id: `acme-3f9a...`, a name and random digits.
    FleetId, "fleet id", is_name, "a to z, 0 to 9, '-' and '_', at most 100, a letter or digit first"
}

text_id! {
    /// A channel's name.
    Channel, "channel name", is_name, "a to z, 0 to 9, '-' and '_', at most 100, a letter or digit first"
}

text_id! {
    /// One unbroken numbering of a node's log: new when its state directory is new.
    Incarnation, "incarnation", is_name, "a to z, 0 to 9, '-' and '_', at most 100, a letter or digit first"
}

text_id! {
    /// A node's id, derived from its public key (IDN-1): `n-` and 32 hex digits.
    NodeId, "node id", is_node_id, "'n-' and 32 hex digits"
}

impl NodeId {
    /// The id of the node that holds the public key with this raw form: 32 bytes of ed25519, or
    /// the 65 bytes of an uncompressed P-256 point.
    pub fn of_key(public_key: &[u8]) -> NodeId {
        let hex = Digest::of_parts([b"muster node id\0".as_slice(), public_key]).to_string();
        NodeId(format!("n-{}", &hex[..32]).into())
    }
}

/// Whether a text is a name: of a channel, module, role, environment or label.
pub fn is_name(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let rest = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    first && text.len() <= MAX_NAME && text.bytes().all(rest)
}

/// Whether a text is a hostname in lower case.
pub fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= MAX_HOSTNAME && text.split('.').all(label)
}

fn is_node_id(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.strip_prefix("n-").is_some_and(|rest| rest.len() == 32 && rest.bytes().all(hex))
}

// It is ordered, compared and hashed as its text is.
impl std::borrow::Borrow<str> for Hostname {
    fn borrow(&self) -> &str {
        &self.0
    }
}
