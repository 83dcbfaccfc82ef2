//! Enrollment messages (ENR-2), and those of renewal (IDN-2).

use model::exchange::Signed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trust::TrustDocument;

/// `POST /v1/enroll`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnrollRequest {
    /// The bootstrap token or group token, as minted; absent where the host asks to join without one (ENR-9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The hostname that asks.
    pub hostname: String,
    /// The certificate request in PEM, signed by the node's key. Only its key counts.
    pub csr_pem: String,
}

/// The answer to [`EnrollRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnrollAnswer {
    /// The node's id.
    pub node_id: model::NodeId,
    /// The node's certificate in PEM.
    pub cert_pem: String,
    /// The CA certificates in PEM.
    pub ca_pem: String,
    /// Whom to believe; the token names its digest.
    pub trust: TrustDocument,
}

/// `POST /v1/agent/bootstrap-report`: why a host could not join (ENR-4). At most [`MAX_REPORT`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapReport {
    /// The token with which the host tried; not used yet.
    pub token: String,
    /// The hostname of the token.
    pub hostname: String,
    /// A certificate request in PEM, signed by the host's key: proves that it is at hand.
    pub csr_pem: String,
    /// What failed.
    pub failure: BootstrapFailure,
    /// The stable code of it, where it has one; at most [`MAX_REPORT_CODE`] bytes are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What failed, for people; at most [`MAX_REPORT_MESSAGE`] bytes are kept.
    pub message: String,
    /// The agent's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// What of joining failed. Nothing else is told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BootstrapFailure {
    /// What the control plane said is not what the token promised.
    TrustError,
    /// The control plane refused the enrollment, or its answer was of no use.
    EnrollmentFailed,
}

/// The longest report of a failed join, in bytes.
pub const MAX_REPORT: usize = 16 * 1024;
/// The longest code that is kept of one, in bytes.
pub const MAX_REPORT_CODE: usize = 64;
/// The longest message that is kept of one, in bytes.
pub const MAX_REPORT_MESSAGE: usize = 1024;

/// `POST /v1/agent/renew`, and `POST /v1/agent/recover`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenewRequest {
    /// The certificate request in PEM: of the node's key and hostname.
    pub csr_pem: String,
    /// The public keys of the CAs whose certificates the node takes, where its trust document names them (IDN-8); absent
    /// where it takes that of the CA that it joined with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authorities: Vec<String>,
}

impl RenewRequest {
    /// A request of a node that believes the CA that it joined with.
    pub fn of(csr_pem: String) -> RenewRequest {
        RenewRequest { csr_pem, authorities: Vec::new() }
    }
}

/// The answer to [`RenewRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenewAnswer {
    /// The node's certificate in PEM.
    pub cert_pem: String,
    /// The certificates of the CAs that count, in PEM, that which counts from now on first. The node keeps them where its
    /// trust document names the keys of all of them, for an agent that does not know such documents; absent from an
    /// earlier control plane (IDN-8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
}

impl RenewAnswer {
    /// A certificate, and nothing of CAs.
    pub fn of(cert_pem: String) -> RenewAnswer {
        RenewAnswer { cert_pem, ca_pem: None }
    }
}

/// The longest answer with trust documents, in bytes.
pub const MAX_TRUST_LINKS: usize = 4 * 1024 * 1024;

/// `GET /v1/trust-links/{digest}`: what follows the trust document with that digest. Each link is verified by the one
/// before it, so that it does not matter who hands them on (IDN-8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrustLinksAnswer {
    /// The document with the digest, for who knows no more of it.
    pub document: TrustDocument,
    /// The versions after it, signed, in order; at most 16.
    pub links: Vec<Signed>,
}
