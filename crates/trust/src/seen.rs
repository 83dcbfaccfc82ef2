//! [`Seen`]: what a node has seen of releases, and how far its own log is, under its own key.
//!
//! The fleet is the witness of its control plane: whoever holds the documents of two nodes can
//! show, with their keys alone, that one release number was given two headers, or that a node's
//! facts were cut off behind what it says it has written.

use model::canonical::CanonicalError;
use model::exchange::Signed;
use model::log::Cursor;
use model::{Digest, NodeId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::Slots;
use crate::key::{PublicKey, SigningKey};
use crate::signed::{self, Document, VerifyError};

/// The newest release that a node has verified and the head of its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// The node.
    pub node: NodeId,
    /// The digest of the header with the highest number that the node accepted.
    pub header: Digest,
    /// That number.
    pub seq: u64,
    /// The last fact that the node wrote, sent or not.
    pub log_head: Cursor,
    /// When it was signed, by the node's clock.
    pub at: Timestamp,
    /// How far the control plane acknowledged that log. Only in what a node exports
    /// ([`SeenRecord`](crate::equivocation::SeenRecord)): check-ins say it themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked: Option<u64>,
}

impl Document for Seen {
    const TYPE: &'static str = "seen";

    fn signed_at(&self) -> Timestamp {
        self.at
    }
}

/// Why a `seen` document is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeenError {
    /// Its signature does not hold, or it is malformed.
    #[error("what the node has seen is not believed: {0}")]
    Document(#[from] VerifyError),
    /// It is of another node.
    #[error("what was seen is of node {0}, not of the one that sends it")]
    OtherNode(NodeId),
}

impl Seen {
    /// Says the same, whenever it was signed.
    pub fn says_the_same(&self, other: &Seen) -> bool {
        Seen { at: other.at, ..self.clone() } == *other
    }

    /// Signs it.
    ///
    /// # Errors
    /// Never for a number within 2^53.
    pub fn sign(&self, key: &SigningKey) -> Result<Signed, CanonicalError> {
        signed::sign(self, &[key])
    }

    /// Verifies the document of the node that holds this key.
    ///
    /// # Errors
    /// [`SeenError`] says why it is not believed.
    pub fn verify(document: &Signed, key: &PublicKey) -> Result<Seen, SeenError> {
        let seen: Seen = signed::verify(document, &Slots::of(*key))?;
        if seen.node == key.node_id() { Ok(seen) } else { Err(SeenError::OtherNode(seen.node)) }
    }
}
