//! Messages about the CAs that certify nodes, proxies and the control plane (IDN-8).

use model::Hostname;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trust::PublicKey;

use super::operation::{Empty, Operation};

/// Makes the CA that is to count next, or finds the one that was made before; its key stays with the control plane. It
/// counts once a version of the trust document names it.
pub static STAGE_AUTHORITY: Operation<Empty, StagedAuthority> = Operation::post("/v1/certificate-authorities");
/// The most nodes that [`AuthorityUse`] names.
pub const MAX_OF_BEFORE: usize = 100;

/// The answer to [`STAGE_AUTHORITY`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StagedAuthority {
    /// The key of the CA that counts now.
    #[schemars(with = "String")]
    pub current: PublicKey,
    /// The key of the one that is to count next.
    #[schemars(with = "String")]
    pub next: PublicKey,
}

/// Of which CA nodes have their certificates.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthorityUse {
    /// The key of the CA that counts.
    #[schemars(with = "String")]
    pub current: PublicKey,
    /// How many nodes have a certificate of a CA of before.
    #[serde(default)]
    pub of_before: usize,
    /// The first of them by name, at most [`MAX_OF_BEFORE`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Hostname>,
    /// Why the CA that nodes and operators believe does not certify here, while it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
}
