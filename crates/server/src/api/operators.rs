//! Operators and the audit log on the operator port (OPS-5).

use model::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::CredentialKind;
pub use store::OperatorRole;
use store::audit::{AuditHead, AuditRow};
use trust::PublicKey;

use super::operation::{Empty, Limit, Operation};

/// Who asks.
pub static WHOAMI: Operation<Empty, CallerView> = Operation::get("/v1/operator").in_scope();
/// All operators, by name; those who were revoked among them.
pub static OPERATORS: Operation<Empty, Vec<OperatorView>> = Operation::get("/v1/operators");
/// Adds an operator, or another credential of one that there is.
pub static ADD_OPERATOR: Operation<AddOperator, AddedOperator> = Operation::post("/v1/operators");
/// Revokes an operator: none of his credentials opens anything from then on.
pub static REVOKE_OPERATOR: Operation<OperatorName, OperatorView> = Operation::delete("/v1/operators/{name}");
/// The CAs of operators' certificates.
pub static OPERATOR_AUTHORITIES: Operation<Empty, OperatorAuthorityView> =
    Operation::get("/v1/operator-authorities");
/// Makes another CA of operators' certificates, which certifies from then on; the one before counts beside it.
pub static ROTATE_OPERATOR_AUTHORITY: Operation<Empty, OperatorAuthorityView> =
    Operation::post("/v1/operator-authorities");
/// Has the CA before count no more: its certificates open nothing from then on.
pub static RETIRE_OPERATOR_AUTHORITY: Operation<Empty, OperatorAuthorityView> =
    Operation::delete("/v1/operator-authorities/previous");
/// Gives whoever asks with a certificate another one, of the CA that certifies now and until when his counts. It is for
/// the caller himself.
pub static RENEW_OPERATOR: Operation<RenewOperator, RenewedOperator> =
    Operation::post("/v1/operator/certificate").by_anybody();
/// Entries of the audit log.
pub static AUDIT: Operation<AuditQuery, AuditPage> = Operation::get("/v1/audit");

/// The most operators, those who were revoked among them.
pub const MAX_OPERATORS: usize = 1000;
/// The most credentials of one operator.
pub const MAX_CREDENTIALS: usize = 16;
/// The longest name of an operator, in bytes.
pub const MAX_OPERATOR_NAME: usize = 64;
/// The longest that a token counts, in seconds.
pub const MAX_OPERATOR_TOKEN_SECS: u64 = 366 * 24 * 3600;

/// Who asks.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallerView {
    /// The name.
    pub name: String,
    /// What he may do.
    pub role: OperatorRole,
    /// The selector of the nodes that he may see and change; absent: the whole fleet.
    pub nodes: Option<String>,
}

/// An operator.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorView {
    /// The name.
    pub name: String,
    /// What he may do.
    pub role: OperatorRole,
    /// The selector of the nodes that he may see and change; absent: the whole fleet.
    pub nodes: Option<String>,
    /// Since when; absent: since the founding of the fleet.
    pub created: Option<Timestamp>,
    /// Who added him.
    pub created_by: String,
    /// When he was revoked.
    pub revoked: Option<Timestamp>,
    /// Who revoked him.
    pub revoked_by: Option<String>,
    /// What he proves himself with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialView>,
}

/// One of an operator's credentials.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialView {
    /// The beginning of its id; of a token that of its SHA-256.
    pub id: String,
    /// What it is.
    pub kind: CredentialKind,
    /// When it was issued.
    pub created: Timestamp,
    /// Until when it counts.
    pub expires: Timestamp,
}

/// An operator to add.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddOperator {
    /// 1 to [`MAX_OPERATOR_NAME`] of a-z, 0-9, `.`, `-`, `_` and `@`.
    pub name: String,
    /// What he may do.
    pub role: OperatorRole,
    /// The selector of the nodes that he may see and change, without `where:`; absent: the whole fleet.
    pub nodes: Option<String>,
    /// What he is to prove himself with.
    pub credential: CredentialRequest,
}

/// The credential that is wanted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum CredentialRequest {
    /// A client certificate.
    Certificate {
        /// The certificate request (PKCS#10) in PEM; only its key counts.
        csr_pem: String,
    },
    /// A token.
    Token {
        /// How long it counts, up to [`MAX_OPERATOR_TOKEN_SECS`].
        valid_secs: u64,
    },
}

/// The CAs of operators' certificates.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorAuthorityView {
    /// The key of the one that certifies.
    #[schemars(with = "String")]
    pub current: PublicKey,
    /// The key of the one before, while its certificates count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub previous: Option<PublicKey>,
    /// Operators who can do nothing once the one before counts no more: all that they have is certificates of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_before: Vec<String>,
}

/// The request of [`RENEW_OPERATOR`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenewOperator {
    /// The certificate request (PKCS#10) in PEM; only its key counts.
    pub csr_pem: String,
}

/// The answer to [`RenewOperator`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenewedOperator {
    /// The certificate in PEM.
    pub cert_pem: String,
    /// Until when it counts.
    pub expires: Timestamp,
}

/// The answer to [`AddOperator`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddedOperator {
    /// The operator as he is now.
    pub operator: OperatorView,
    /// What was issued; a token is shown here and never again.
    pub issued: IssuedCredential,
    /// Until when it counts.
    pub expires: Timestamp,
}

/// A credential that was issued.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum IssuedCredential {
    /// A client certificate.
    Certificate {
        /// In PEM.
        cert_pem: String,
    },
    /// A token.
    Token {
        /// The secret.
        token: String,
    },
}

impl std::fmt::Debug for IssuedCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            IssuedCredential::Certificate { .. } => "Certificate",
            IssuedCredential::Token { .. } => "Token",
        })
    }
}

/// An operator by name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OperatorName {
    /// The name.
    pub name: String,
}

/// Which entries of the audit log.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuditQuery {
    /// Only from then on.
    pub since: Option<Timestamp>,
    /// Only by this operator.
    pub author: Option<String>,
    /// Only about this node, by hostname; those about more nodes than they name among them.
    pub node: Option<String>,
    /// Only with a lower number; the newest first.
    pub before: Option<u64>,
    /// Only with a higher number, and all of them, the oldest first: to verify their chain.
    pub after: Option<u64>,
    /// The most in one answer.
    pub limit: Limit,
}

/// Entries of the audit log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AuditPage {
    /// As they are stored: who reads them verifies them.
    pub entries: Vec<AuditRow>,
    /// The newest entry.
    pub head: AuditHead,
}
