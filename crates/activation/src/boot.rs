//! [`BootMoment`]: time as an activation counts it, by the kernel's clock since the boot and never by the wall clock,
//! which somebody may set back in the middle of a confirm window.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

/// The longest boot id, in bytes. The kernel's has 36.
pub const MAX_BOOT_ID: usize = 64;

/// One boot of a host, as the kernel names it (`/proc/sys/kernel/random/boot_id`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct BootId(String);

/// The text is empty, longer than [`MAX_BOOT_ID`], or holds something else than letters, digits and `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a boot id: 1 to {MAX_BOOT_ID} letters, digits and `-`")]
pub struct ParseBootIdError;

impl BootId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for BootId {
    type Err = ParseBootIdError;

    fn from_str(text: &str) -> Result<BootId, ParseBootIdError> {
        let is_name = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        match is_name && (1..=MAX_BOOT_ID).contains(&text.len()) {
            true => Ok(BootId(text.to_owned())),
            false => Err(ParseBootIdError),
        }
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for BootId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BootId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Milliseconds since the boot, time asleep included (`CLOCK_BOOTTIME`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootTime(u64);

impl BootTime {
    /// The boot itself.
    pub const BOOT: BootTime = BootTime(0);

    /// So long after the boot; at most some 580 million years.
    pub fn after_boot(since: Duration) -> BootTime {
        BootTime::BOOT.plus(since)
    }

    /// So much later.
    pub fn plus(self, duration: Duration) -> BootTime {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        BootTime(self.0.saturating_add(millis))
    }

    /// How long it is after an earlier time; nothing, where it is before.
    pub fn since(self, earlier: BootTime) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A time in one boot. Times of two boots do not compare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootMoment {
    /// The boot.
    pub boot: BootId,
    /// When in it.
    pub at: BootTime,
}
