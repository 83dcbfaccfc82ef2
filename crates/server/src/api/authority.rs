//! Messages about whom nodes and operators believe: the chain of trust documents, and the CAs that they name (IDN-8).

use model::exchange::Signed;
use model::{Digest, Hostname};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trust::{PublicKey, TrustDocument};

use super::operation::{Empty, Operation};
use crate::trust_chain::VersionOrigin;

/// Makes the CA that is to count next, or finds the one that was made before; its key stays with the control plane. It
/// counts once a version of the trust document names it.
pub static STAGE_AUTHORITY: Operation<Empty, StagedAuthority> =
    Operation::post("/v1/certificate-authorities");
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

/// The chain of trust documents (IDN-8).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TrustView {
    /// From the first to the newest.
    pub versions: Vec<TrustVersionView>,
    /// How many nodes hold each version, as each said last, also before the control plane's start.
    pub holding: Vec<TrustHolders>,
    /// How many nodes never said, or said what cannot be.
    pub unheard: usize,
    /// Of which CA nodes have their certificates; an earlier control plane does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<AuthorityUse>,
}

/// A version of the trust document.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TrustVersionView {
    /// The document.
    pub document: TrustDocument,
    /// Its digest.
    pub digest: Digest,
    /// How the chain came to it.
    pub origin: VersionOrigin,
    /// The document as it was signed; absent for the first version, and from an earlier control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Signed>,
}

/// Nodes that hold a version of the trust document.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TrustHolders {
    /// The version.
    pub version: u64,
    /// How many.
    pub nodes: usize,
}

/// The next version of the trust document, signed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AddTrust {
    /// Signed by a root key of the version before.
    pub link: Signed,
}
