//! [`Timestamp`]: an instant, always given as an argument, never read here.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant in milliseconds since 1970-01-01T00:00:00Z. Text form: RFC 3339 UTC; an
/// instant beyond the years that RFC 3339 knows prints as a number and is not serialized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// Every deadline and validity check forgives this much clock difference (IDN-7).
pub const SLACK: Duration = Duration::from_secs(60);

impl Timestamp {
    /// From whole seconds since the epoch.
    pub const fn from_secs(secs: i64) -> Timestamp {
        Timestamp(secs * 1000)
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn secs(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// This instant plus a duration; saturates.
    pub fn plus(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(millis(duration)))
    }

    /// This instant minus a duration; saturates.
    pub fn minus(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(millis(duration)))
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Where this instant is beside another, for people: `5 h ahead of`, `40 s behind`.
    pub fn beside(self, other: Timestamp) -> String {
        let (ahead, behind) = (self.since(other), other.since(self));
        if behind > ahead {
            format!("{} behind", short(behind))
        } else {
            format!("{} ahead of", short(ahead))
        }
    }
}

/// A time with how long ago it was, or how long it is until then.
pub fn when(at: Timestamp, now: Timestamp) -> String {
    match at > now {
        true => format!("{at} (in {})", short(at.since(now))),
        false => format!("{at} ({} ago)", short(now.since(at))),
    }
}

/// A duration in the unit that suits it, for people.
pub fn short(duration: Duration) -> String {
    let secs = duration.as_secs();
    match secs {
        0..120 => format!("{secs} s"),
        120..7200 => format!("{} min", secs / 60),
        7200..172_800 => format!("{} h", secs / 3600),
        _ => format!("{} days", secs / 86_400),
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            // An error here would make `to_string` panic on a peer's wild number.
            Err(_) => write!(f, "{} ms from 1970", self.0),
        }
    }
}

/// Durations as whole milliseconds in durable and signed forms: `#[serde(with = "millis_form")]`.
pub mod millis_form {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a duration; one beyond the numbers that fit as the largest.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    /// Reads a duration.
    ///
    /// # Errors
    /// The deserializer's.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_millis(u64::deserialize(deserializer)?))
    }
}

/// The text is not an RFC 3339 instant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an RFC 3339 instant such as 2026-11-21T08:00:00Z")]
pub struct ParseTimestampError;

impl std::str::FromStr for Timestamp {
    type Err = ParseTimestampError;

    fn from_str(text: &str) -> Result<Timestamp, ParseTimestampError> {
        let parsed: jiff::Timestamp = text.parse().map_err(|_| ParseTimestampError)?;
        Ok(Timestamp(parsed.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(timestamp) => serializer.collect_str(&timestamp),
            Err(_) => Err(serde::ser::Error::custom("instant out of range")),
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
