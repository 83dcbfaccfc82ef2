//! The trust document: which keys a fleet's nodes believe.

use std::collections::BTreeMap;

use model::canonical::{self, CanonicalError};
use model::{Channel, Digest, FleetId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::key::PublicKey;
use crate::signed::Document;
use crate::threshold::{self, ChannelThreshold, ThresholdFault};

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
#[serde(try_from = "TrustDocumentForm", into = "TrustDocumentForm")]
pub struct TrustDocument {
    /// The fleet.
    pub fleet: FleetId,
    /// Rises with every change.
    pub version: u64,
    /// Who signs releases of channels without a threshold, signed lists, and beacons.
    pub release: Slots,
    /// The channels whose releases need several signatures; in order wherever a document was read.
    pub thresholds: BTreeMap<Channel, ChannelThreshold>,
    /// Who signs beacons, and nothing else; without it only the release key does.
    pub beacon: Option<Slots>,
    /// Who signs objects and actions of the control plane's own authority (IDN-9). Without it nodes take them
    /// unsigned, by the connection alone.
    pub control_plane: Option<Slots>,
    /// The CAs of control planes', nodes' and proxies' certificates, by their keys. Without it the CA counts that a
    /// token named; once a version names it, every later one does.
    pub certificate_authority: Option<Slots>,
    /// Who signs tokens, and the next version of this document.
    pub root: Slots,
    /// The digest of the version before it, so that the chain has one line; absent in the first one.
    pub previous: Option<Digest>,
    /// When it was signed; absent in the first one, which nobody signs: tokens name its digest.
    pub created: Option<Timestamp>,
}

/// A trust document as it is written.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TrustDocument")]
struct TrustDocumentForm {
    /// The fleet.
    fleet: FleetId,
    /// Rises with every change.
    version: u64,
    /// Who signs releases, signed lists and beacons; absent where a channel has a threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    release: Option<Slots>,
    /// In the place of `release` where a channel has a threshold: a program that does not know thresholds misses
    /// `release`, and does not follow the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    release_by_threshold: Option<ReleaseByThreshold>,
    /// Who signs beacons, and nothing else; without it only the release key does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beacon: Option<Slots>,
    /// Who signs objects and actions of the control plane's own authority; absent in a fleet of before such a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    control_plane: Option<Slots>,
    /// The CAs of certificates, by their keys; absent where the fleet has the CA that it was founded with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate_authority: Option<Slots>,
    /// Who signs tokens, and the next version of this document.
    root: Slots,
    /// The digest of the version before it, so that the chain has one line; absent in the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<Digest>,
    /// When it was signed; absent in the first one, which nobody signs: tokens name its digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<Timestamp>,
}

/// Release keys beside channels with thresholds.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReleaseByThreshold {
    /// Who signs releases of the other channels, signed lists, and beacons.
    keys: Slots,
    /// By channel how many of whom must sign; never empty.
    thresholds: BTreeMap<Channel, ChannelThreshold>,
}

/// Why what is written is no trust document.
#[derive(Debug, thiserror::Error)]
enum TrustFormError {
    /// It names release keys twice, or not at all.
    #[error("it has neither or both of `release` and `releaseByThreshold`")]
    Release,
    /// It has the form for thresholds, and none.
    #[error("`releaseByThreshold` names no channel")]
    NoThreshold,
    /// A threshold is not in order.
    #[error(transparent)]
    Threshold(#[from] ThresholdFault),
}

impl TryFrom<TrustDocumentForm> for TrustDocument {
    type Error = TrustFormError;

    fn try_from(form: TrustDocumentForm) -> Result<TrustDocument, TrustFormError> {
        let TrustDocumentForm { fleet, version, release, release_by_threshold, .. } = form;
        let (release, thresholds) = match (release, release_by_threshold) {
            (Some(release), None) => (release, BTreeMap::new()),
            (None, Some(by)) if by.thresholds.is_empty() => return Err(TrustFormError::NoThreshold),
            (None, Some(by)) => (by.keys, by.thresholds),
            _ => return Err(TrustFormError::Release),
        };
        let TrustDocumentForm { beacon, control_plane, certificate_authority, .. } = form;
        let TrustDocumentForm { root, previous, created, .. } = form;
        let document = TrustDocument {
            fleet,
            version,
            release,
            thresholds,
            beacon,
            control_plane,
            certificate_authority,
            root,
            previous,
            created,
        };
        match document.threshold_fault() {
            Some(fault) => Err(fault.into()),
            None => Ok(document),
        }
    }
}

impl From<TrustDocument> for TrustDocumentForm {
    fn from(document: TrustDocument) -> TrustDocumentForm {
        let TrustDocument { fleet, version, release, thresholds, .. } = document;
        let TrustDocument { beacon, control_plane, certificate_authority, .. } = document;
        let TrustDocument { root, previous, created, .. } = document;
        let (release, release_by_threshold) = match thresholds.is_empty() {
            true => (Some(release), None),
            false => (None, Some(ReleaseByThreshold { keys: release, thresholds })),
        };
        TrustDocumentForm {
            fleet,
            version,
            release,
            release_by_threshold,
            beacon,
            control_plane,
            certificate_authority,
            root,
            previous,
            created,
        }
    }
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
        let thresholds = BTreeMap::new();
        let (beacon, control_plane, certificate_authority) = (None, None, None);
        let (previous, created) = (None, None);
        TrustDocument {
            fleet,
            version: 1,
            release,
            thresholds,
            beacon,
            control_plane,
            certificate_authority,
            root,
            previous,
            created,
        }
    }

    /// What is wrong with its thresholds, if anything is.
    pub fn threshold_fault(&self) -> Option<ThresholdFault> {
        threshold::fault(&self.thresholds, &self.root, self.beacon.as_ref())
    }

    /// The digest of the canonical bytes.
    ///
    /// # Errors
    /// Never for a valid document.
    pub fn digest(&self) -> Result<Digest, CanonicalError> {
        Ok(Digest::of(&canonical::to_bytes(self)?))
    }
}
