//! [`StorePath`]: a path of the Nix store.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::base32::ALPHABET;

/// The one directory that is a Nix store here.
pub const STORE_DIR: &str = "/nix/store";
/// The longest name behind the hash, in bytes; as Nix has it.
pub const MAX_STORE_NAME: usize = 211;
/// The length of the hash, in characters.
const HASH_CHARS: usize = 32;

/// A path directly below [`STORE_DIR`]: `HASH-NAME`. It holds no slash and is no `.` or `..`, so that it can be used as the
/// name of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorePath(String);

/// Why a text is no path of the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no path of the Nix store, such as /nix/store/HASH-NAME")]
pub struct StorePathError(String);

/// Whether a text is the hash of a store path: 32 characters of Nix's base 32.
pub fn is_store_hash(text: &str) -> bool {
    text.len() == HASH_CHARS && text.bytes().all(|c| ALPHABET.contains(&c))
}

impl StorePath {
    /// Reads the name of a path, `HASH-NAME`.
    ///
    /// # Errors
    /// [`StorePathError`]: it has another form.
    pub fn of_name(name: &str) -> Result<StorePath, StorePathError> {
        let is_path = name
            .split_at_checked(HASH_CHARS)
            .and_then(|(hash, rest)| Some((hash, rest.strip_prefix('-')?)))
            .is_some_and(|(hash, name)| is_store_hash(hash) && is_name(name));
        match is_path {
            true => Ok(StorePath(name.to_owned())),
            false => Err(StorePathError(name.chars().take(MAX_STORE_NAME).collect())),
        }
    }

    /// `HASH-NAME`.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The hash before the name, by which a cache is asked.
    pub fn hash(&self) -> &str {
        // As it was read.
        self.0.get(..HASH_CHARS).unwrap_or_default()
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_STORE_NAME
        && !name.starts_with('.')
        && name.bytes().all(is_name_char)
}

fn is_name_char(c: u8) -> bool {
    c.is_ascii_alphanumeric() || b"+-._?=".contains(&c)
}

/// The most paths of the store that a node's set may name, in its modules and params: what they need comes with them.
pub const MAX_SET_PATHS: usize = 64;

/// The paths of the store that some bytes name, found as Nix finds references: by their text. A path goes on as long as
/// its characters may be of a name.
pub fn store_paths_in(bytes: &[u8]) -> BTreeSet<StorePath> {
    let mut found = BTreeSet::new();
    let prefix = STORE_DIR.as_bytes();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() > prefix.len()) {
        let Some(begin) = rest.windows(prefix.len()).position(|window| window == prefix) else { break };
        at += begin + prefix.len();
        let Some(name) = bytes[at..].strip_prefix(b"/") else { continue };
        let end = name.iter().position(|c| !is_name_char(*c)).unwrap_or(name.len());
        let name = std::str::from_utf8(&name[..end]).unwrap_or_default();
        found.extend(StorePath::of_name(name));
    }
    found
}

impl FromStr for StorePath {
    type Err = StorePathError;

    fn from_str(text: &str) -> Result<StorePath, StorePathError> {
        let name = text.strip_prefix(STORE_DIR).and_then(|rest| rest.strip_prefix('/'));
        name.map_or_else(
            || Err(StorePathError(text.chars().take(MAX_STORE_NAME).collect())),
            StorePath::of_name,
        )
    }
}

impl fmt::Display for StorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STORE_DIR}/{}", self.0)
    }
}

impl Serialize for StorePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StorePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StorePath, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const HASH: &str = "0c6kzph7l0dcbfmjap64f0czdafn3b7x";

    #[test]
    fn a_path_cannot_lead_out_of_the_store() {
        let path: StorePath = format!("/nix/store/{HASH}-nixos-system-web-1-25.11").parse().unwrap();
        assert_eq!((path.hash(), path.name()), (HASH, &*format!("{HASH}-nixos-system-web-1-25.11")));
        for other in [
            "".to_owned(),
            "/nix/store".to_owned(),
            "/nix/store/".to_owned(),
            format!("/nix/store/{HASH}"),
            format!("/nix/store/{HASH}-"),
            format!("/nix/store/{HASH}-.."),
            format!("/nix/store/{HASH}-a/../../etc"),
            format!("/nix/store/../{HASH}-a"),
            format!("/nix/store/{HASH}-a b"),
            format!("/nix/store/{HASH}-a\n"),
            format!("/nix/store/{HASH}-é"),
            format!("/nix/store/{}-a", HASH.replace('0', "e")),
            format!("/nix/store/{HASH}-{}", "a".repeat(MAX_STORE_NAME + 1)),
            format!("/gnu/store/{HASH}-a"),
        ] {
            assert!(other.parse::<StorePath>().is_err(), "{other}");
        }
    }

    #[test]
    fn paths_are_found_in_bytes_by_their_text() {
        let text = format!(
            "\"closure\":\"/nix/store/{HASH}-a\",x/nix/store//nix/store/{HASH}-b/bin /nix/store/{HASH}"
        );
        let found = store_paths_in(text.as_bytes());
        let named: Vec<&str> = found.iter().map(|path| &path.name()[HASH.len()..]).collect();
        assert_eq!(named, ["-a", "-b"]);
        assert!(store_paths_in(b"/nix/store").is_empty() && store_paths_in(b"").is_empty());
    }
}
