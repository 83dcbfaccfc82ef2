//! Operators as they are kept (OPS-5).

use std::fmt;

use model::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an operator may do; each may what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OperatorRole {
    /// See.
    Viewer,
    /// Have nodes run, objects and tasks changed, releases published.
    Operator,
    /// Say who belongs to the fleet and who operates it.
    Admin,
}

impl OperatorRole {
    /// All of them, the least first.
    pub const ALL: [OperatorRole; 3] = [OperatorRole::Viewer, OperatorRole::Operator, OperatorRole::Admin];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            OperatorRole::Viewer => "viewer",
            OperatorRole::Operator => "operator",
            OperatorRole::Admin => "admin",
        }
    }

    /// By its name. One that is not known may the least.
    pub(crate) fn named(name: &str) -> OperatorRole {
        let named = |role: &OperatorRole| role.as_str() == name;
        OperatorRole::ALL.into_iter().find(named).unwrap_or(OperatorRole::Viewer)
    }
}

impl fmt::Display for OperatorRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an operator proves himself with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CredentialKind {
    /// A client certificate.
    Certificate,
    /// A token, of which only the SHA-256 is kept.
    Token,
}

impl CredentialKind {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            CredentialKind::Certificate => "certificate",
            CredentialKind::Token => "token",
        }
    }
}

/// One of an operator's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorCredential {
    /// Of a certificate what its URI says; of a token its SHA-256 in hex.
    pub id: String,
    /// What it is.
    pub kind: CredentialKind,
    /// When it was issued.
    pub created: Timestamp,
    /// Until when it counts.
    pub expires: Timestamp,
}

/// An operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorRecord {
    /// The name, unique.
    pub name: String,
    /// What he may do.
    pub role: OperatorRole,
    /// The selector of the nodes that he may see and change; absent: the whole fleet.
    pub nodes: Option<String>,
    /// Since when; 0 is the founding of the fleet.
    pub created: Timestamp,
    /// Who added him.
    pub created_by: String,
    /// When he was revoked, and by whom.
    pub revoked: Option<(Timestamp, String)>,
    /// What he proves himself with.
    pub credentials: Vec<OperatorCredential>,
}
