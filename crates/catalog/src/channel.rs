//! [`ChannelSettings`]: how often nodes of a channel call, converge and what they promise.

use serde::{Deserialize, Serialize};

/// A channel's settings; content of the object of kind `Policy` (CNV-4, ROL-1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelSettings {
    /// Seconds between check-ins.
    pub contact_secs: u32,
    /// How far a check-in may be off its time, in percent of `contact_secs`; at most [`MAX_JITTER`].
    pub jitter_percent: u32,
    /// Seconds for which a signed header or beacon is fresh enough to be adopted.
    pub freshness_secs: u32,
    /// Seconds between runs.
    pub converge_secs: u32,
    /// Only report what would change.
    #[serde(default)]
    pub observe: bool,
    /// Seconds after which the agent asks for a full answer and calls itself stale.
    pub bundle_max_age_secs: u32,
    /// Seconds without contact after which the agent warns in the journal (CNV-5).
    pub offline_grace_secs: u32,
    /// The link costs money: move as little as possible.
    #[serde(default)]
    pub metered: bool,
}

/// The most jitter, in percent.
pub const MAX_JITTER: u32 = 50;
/// The shortest time between check-ins, in seconds.
pub const MIN_CONTACT_SECS: u32 = 1;

impl ChannelSettings {
    /// The defaults of a channel that declares only how long a release stays fresh.
    pub fn with_freshness(freshness_secs: u32) -> ChannelSettings {
        ChannelSettings {
            contact_secs: 300,
            jitter_percent: 20,
            freshness_secs,
            converge_secs: 300,
            observe: false,
            bundle_max_age_secs: 24 * 3600,
            offline_grace_secs: 7 * 24 * 3600,
            metered: false,
        }
    }
}
