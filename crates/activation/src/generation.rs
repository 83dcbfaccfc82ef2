//! [`Generation`]: a release as activated on one node, known by what it is and not by its position in a list (ROL-7).

use std::fmt;

use model::Digest;
use serde::{Deserialize, Serialize};

/// What a generation is: the root of the node's set, the digest of an image, the hash of a closure. Two releases that
/// give a node the same content are one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GenerationId(pub Digest);

impl GenerationId {
    /// The host as Muster found it: nothing was activated yet. What a host returns to whose first generation fails.
    pub const AS_FOUND: GenerationId = GenerationId(Digest::ZERO);
}

impl fmt::Display for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self == GenerationId::AS_FOUND {
            true => f.write_str("as-found"),
            false => f.write_str(&self.0.short()),
        }
    }
}

/// A release as activated on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Generation {
    /// What it is.
    pub id: GenerationId,
    /// The number of the newest release that gave it, for people and for anti-rollback; 0 for the host as found.
    pub seq: u64,
    /// What keeping it takes on the disk, in bytes: its contents, and once it was switched to what they were unpacked to.
    pub bytes: u64,
}

impl Generation {
    /// The host as Muster found it.
    pub const AS_FOUND: Generation = Generation { id: GenerationId::AS_FOUND, seq: 0, bytes: 0 };
}

/// How many generations a host keeps, and how much of its disk they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationLimits {
    /// The most generations; the two that a trial needs are kept whatever it says.
    pub count: usize,
    /// The most bytes of them all.
    pub bytes: u64,
}

impl Default for GenerationLimits {
    fn default() -> GenerationLimits {
        GenerationLimits { count: 4, bytes: 8 * 1024 * 1024 * 1024 }
    }
}

impl GenerationLimits {
    /// Whether these can be kept beside each other.
    pub(crate) fn admit(&self, needed: &[Generation]) -> bool {
        bytes_of(needed) <= self.bytes
    }

    /// Of generations from the oldest to the newest, which go: the oldest that nothing needs, until the rest is within
    /// the limits. Those that go are taken out of `kept`.
    pub(crate) fn forget(&self, kept: &mut Vec<Generation>, needed: &[GenerationId]) -> Vec<GenerationId> {
        let mut forgotten = Vec::new();
        while kept.len() > self.count || bytes_of(kept) > self.bytes {
            let Some(oldest) = kept.iter().position(|generation| !needed.contains(&generation.id)) else {
                break;
            };
            forgotten.push(kept.remove(oldest).id);
        }
        forgotten
    }
}

fn bytes_of(generations: &[Generation]) -> u64 {
    generations.iter().fold(0, |bytes, generation| bytes.saturating_add(generation.bytes))
}
