//! The trust document: which keys a fleet's nodes believe.

use model::canonical::{self, CanonicalError};
use model::{Digest, FleetId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::key::PublicKey;
use crate::signed::Document;

/// The keys that may sign one sort of thing (IDN-8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Slots {
    /// The key in use.
    #[schemars(with = "String")]
    pub current: PublicKey,
    /// The key before it, still believed during a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub previous: Option<PublicKey>,
    /// Documents signed before this count no more, whoever signed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject_before: Option<Timestamp>,
}

impl Slots {
    /// Slots with one key.
    pub fn of(key: PublicKey) -> Slots {
        Slots { current: key, previous: None, reject_before: None }
    }

    /// The keys believed now.
    pub fn keys(&self) -> impl Iterator<Item = &PublicKey> {
        std::iter::once(&self.current).chain(&self.previous)
    }
}

/// What a node needs to know in order to verify all else. A token names its digest, so
/// that a node checks it before it believes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrustDocument {
    /// The fleet.
    pub fleet: FleetId,
    /// Rises with every change.
    pub version: u64,
    /// Who signs releases and beacons.
    pub release: Slots,
    /// Who signs beacons, and nothing else; without it only the release key does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beacon: Option<Slots>,
    /// Who signs objects and actions of the control plane's own authority (IDN-9). Without it nodes take them
    /// unsigned, by the connection alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<Slots>,
    /// Who signs tokens, and the next version of this document.
    pub root: Slots,
    /// The digest of the version before it, so that the chain has one line; absent in the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Digest>,
    /// When it was signed; absent in the first one, which nobody signs: tokens name its digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
}

impl Document for TrustDocument {
    const TYPE: &'static str = "trust-document";

    fn signed_at(&self) -> Timestamp {
        self.created.unwrap_or_default()
    }
}

impl TrustDocument {
    /// The document that a fleet is founded with.
    pub fn first(fleet: FleetId, release: Slots, root: Slots) -> TrustDocument {
        TrustDocument {
            fleet,
            version: 1,
            release,
            beacon: None,
            control_plane: None,
            root,
            previous: None,
            created: None,
        }
    }

    /// The digest of the canonical bytes.
    ///
    /// # Errors
    /// Never for a valid document.
    pub fn digest(&self) -> Result<Digest, CanonicalError> {
        Ok(Digest::of(&canonical::to_bytes(self)?))
    }
}
