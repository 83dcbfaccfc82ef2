//! [`RolloutKey`]: what a rollout is called inside; [`RolloutId`] is its name on the wire.

use std::fmt;

use model::Channel;
use serde::{Deserialize, Serialize};

pub use model::rollout::{MAX_ROLLOUT_ID, ParseRolloutIdError, RolloutId};

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
