//! [`RolloutKey`] and [`RolloutId`]: what a rollout is called inside, and on the wire.

use std::fmt;
use std::str::FromStr;

use model::{Channel, Digest};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest id, in bytes: a channel's name, `@` and a digest.
pub const MAX_ROLLOUT_ID: usize = model::id::MAX_NAME + 1 + 64;
/// The hex digits of a commit's hash: SHA-1's, and SHA-256's.
const COMMIT_DIGITS: [usize; 2] = [40, 64];

/// A rollout's identity: one release of one channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RolloutKey {
    /// The channel.
    pub channel: Channel,
    /// The release's number.
    pub seq: u64,
}

impl fmt::Display for RolloutKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "release {} in channel {}", self.seq, self.channel)
    }
}

/// What the wire calls a rollout: `{channel}@{ref}`, where the ref is a commit or the header's digest, in hex.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RolloutId(String);

/// The text is no rollout's id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a rollout's id such as stable@4f1c2a9: a channel's name, one `@`, and hex digits in lower case")]
pub struct ParseRolloutIdError;

impl RolloutId {
    /// The id of a release: by its label where that is the whole hash of a commit and no earlier rollout of
    /// the channel has it, else by the digest of its header.
    pub fn of_release(
        channel: &Channel,
        label: Option<&str>,
        header: &Digest,
        is_taken: impl Fn(&RolloutId) -> bool,
    ) -> RolloutId {
        let commit = label.filter(|label| COMMIT_DIGITS.contains(&label.len()) && is_hex(label));
        let by_commit = commit.map(|commit| RolloutId(format!("{channel}@{commit}")));
        by_commit.filter(|id| !is_taken(id)).unwrap_or_else(|| RolloutId(format!("{channel}@{header}")))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

impl FromStr for RolloutId {
    type Err = ParseRolloutIdError;

    fn from_str(text: &str) -> Result<RolloutId, ParseRolloutIdError> {
        let fits = text.len() <= MAX_ROLLOUT_ID;
        let (channel, reference) = text.split_once('@').filter(|_| fits).ok_or(ParseRolloutIdError)?;
        let is_channel =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
        let good = !channel.is_empty() && channel.bytes().all(is_channel) && is_hex(reference);
        if good { Ok(RolloutId(text.to_owned())) } else { Err(ParseRolloutIdError) }
    }
}

impl fmt::Display for RolloutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RolloutId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RolloutId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RolloutId, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
