//! Release headers and beacons.

use std::time::Duration;

use model::{Channel, Digest, FleetId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::signed::Document;

/// The most fallbacks that a header may name.
pub const MAX_FALLBACKS: usize = 16;

/// The signed header of a release in one channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The fleet.
    pub fleet: FleetId,
    /// The channel.
    pub channel: Channel,
    /// The release's only number. It only rises: going back is a new release.
    pub seq: u64,
    /// A label for people: a commit, a ticket.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// When it was signed.
    pub created: Timestamp,
    /// The root of the selection.
    pub selection: Digest,
    /// Seconds for which this header, or a later beacon, counts as fresh. Inside the
    /// signature, so that a control plane cannot widen it.
    pub freshness_secs: u64,
    /// Earlier releases that a node may be pointed back to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<Fallback>,
    /// Names of the [features](crate::feature) that an agent must have to take this release, at
    /// most [`MAX_REQUIRES`](crate::feature::MAX_REQUIRES), sorted. An agent that lacks one
    /// refuses the release; what every agent has is not named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
}

/// An earlier release that a header allows to go back to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fallback {
    /// Its number.
    pub seq: u64,
    /// The digest of its header.
    pub header: Digest,
}

impl Document for Header {
    const TYPE: &'static str = "release-header";

    fn signed_at(&self) -> Timestamp {
        self.created
    }
}

impl Header {
    /// How long it counts as fresh.
    pub fn freshness(&self) -> Duration {
        Duration::from_secs(self.freshness_secs)
    }
}

/// Says, later than the header, that a release is still the one that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Beacon {
    /// The fleet.
    pub fleet: FleetId,
    /// The channel.
    pub channel: Channel,
    /// The release's number.
    pub seq: u64,
    /// The digest of its header.
    pub header: Digest,
    /// When this was signed.
    pub at: Timestamp,
}

impl Document for Beacon {
    const TYPE: &'static str = "beacon";

    fn signed_at(&self) -> Timestamp {
        self.at
    }
}
