//! Signed lists and failed joins as they are kept (ENR-3, ENR-4, IDN-6).

use model::exchange::Signed;
use model::{Hostname, NodeId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trust::ListName;

use crate::error::StoreError;

/// The most reports of failed joins that are kept under one token.
pub const MAX_REPORTS_OF_TOKEN: usize = 16;
/// The most reports of failed joins that are kept; the oldest give way.
pub const MAX_FAILED_JOINS: usize = 10_000;

/// A signed list that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredList {
    /// Which one.
    pub name: ListName,
    /// Its number.
    pub seq: u64,
    /// As it was signed; the caller has verified it.
    pub document: Signed,
}

/// The numbers of the lists by which something was judged; 0 where there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListVersions {
    /// Of the allowlist.
    pub allowlist: u64,
    /// Of the revocations.
    pub revocations: u64,
}

/// Why lists were not kept; none of them was.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PutListError {
    /// One of this number or a higher one is kept.
    #[error("version {held} of the {} is kept", name.as_str())]
    NotNewer {
        /// Which list.
        name: ListName,
        /// Its number.
        held: u64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What of joining failed, by the host's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum JoinFailureKind {
    /// What the control plane said is not what the token promised.
    TrustError,
    /// The control plane refused the enrollment, or its answer was of no use.
    EnrollmentFailed,
}

impl JoinFailureKind {
    /// Its name in the database.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            JoinFailureKind::TrustError => "TrustError",
            JoinFailureKind::EnrollmentFailed => "EnrollmentFailed",
        }
    }

    /// By its name in the database.
    pub(crate) fn named(name: &str) -> JoinFailureKind {
        match name {
            "TrustError" => JoinFailureKind::TrustError,
            _ => JoinFailureKind::EnrollmentFailed,
        }
    }
}

/// Why a host could not join, as it says itself (ENR-4). The caller has bounded its texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedJoin {
    /// The host.
    pub hostname: Hostname,
    /// The fingerprint of its key.
    pub fingerprint: String,
    /// What failed.
    pub failure: JoinFailureKind,
    /// The stable code of it, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What failed, for people.
    pub message: String,
    /// The agent's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// The token under which a failed join is told, and the key that it was told with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportingToken {
    /// The token's nonce.
    pub nonce: String,
    /// The id of the node that the key would be.
    pub node: NodeId,
}

/// A failed join that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedJoinRecord {
    /// Rises with every one kept; pages a listing.
    pub number: u64,
    /// When it was told.
    pub received: Timestamp,
    /// What was told.
    #[serde(flatten)]
    pub join: FailedJoin,
}

/// Why a failed join was not kept.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReportJoinError {
    /// The token was used.
    #[error("the token was used")]
    TokenUsed,
    /// As many as are kept were told under the token.
    #[error("{MAX_REPORTS_OF_TOKEN} failed joins were told under this token already")]
    TooMany,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
