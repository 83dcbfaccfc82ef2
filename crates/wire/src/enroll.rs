//! Enrollment messages (ENR-2), and those of renewal (IDN-2).

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

/// `POST /v1/agent/renew`, and `POST /v1/agent/recover`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenewRequest {
    /// The certificate request in PEM: of the node's key and hostname.
    pub csr_pem: String,
}

/// The answer to [`RenewRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenewAnswer {
    /// The node's certificate in PEM.
    pub cert_pem: String,
}
