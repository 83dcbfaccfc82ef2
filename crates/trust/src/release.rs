//! Release headers and beacons.

use std::sync::Arc;
use std::time::Duration;

use model::{Channel, Digest, FleetId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::feature::ROLLOUT_FEATURE;
use crate::rollout_terms::{RolloutTerms, TermsMistake};
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
    /// How the release reaches the nodes of its channel (ROL-1, ROL-2); where it says nothing of that, it goes to all
    /// of them at once. A header with it names [`ROLLOUT_FEATURE`] in `requires`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Arc<RolloutTerms>>,
}

/// An earlier release that a header allows to go back to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fallback {
    /// Its number.
    pub seq: u64,
    /// The digest of its header.
    pub header: Digest,
}

/// Why the rollout section of a header cannot be gone by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RolloutSectionError {
    /// Agents that know no waves would take the release, and all at once.
    #[error("the header has a rollout and does not require the feature `{ROLLOUT_FEATURE}`")]
    NotRequired,
    /// The terms.
    #[error(transparent)]
    Terms(TermsMistake),
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

    /// Whether its rollout section can be gone by; a header without one can.
    ///
    /// # Errors
    /// The first thing that is wrong. The header is not to be signed then, and is refused.
    pub fn check_rollout(&self) -> Result<(), RolloutSectionError> {
        let Some(terms) = &self.rollout else { return Ok(()) };
        if !self.requires.iter().any(|feature| feature == ROLLOUT_FEATURE) {
            return Err(RolloutSectionError::NotRequired);
        }
        match terms.mistakes(&self.channel, self.created).into_iter().next() {
            Some(mistake) => Err(RolloutSectionError::Terms(mistake)),
            None => Ok(()),
        }
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
