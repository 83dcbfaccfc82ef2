//! Messages about proxies that end the TLS sessions of nodes (IDN-4).

use model::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::operation::Operation;

/// Issues the certificate of a proxy that ends the TLS sessions of nodes (IDN-4).
pub static ISSUE_PROXY: Operation<IssueProxy, ProxyCertificate> = Operation::post("/v1/proxies");
/// The most names of a proxy.
pub const MAX_PROXY_NAMES: usize = 32;

/// A proxy that wants a certificate.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssueProxy {
    /// Host names and addresses by which nodes reach it, 1 to [`MAX_PROXY_NAMES`]; the first
    /// is the proxy's own name.
    pub names: Vec<String>,
    /// Its certificate request (PKCS#10) in PEM; only the key counts.
    pub csr_pem: String,
}

/// The answer to [`IssueProxy`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyCertificate {
    /// The certificate: a server's for nodes, and a client's for the control plane.
    pub cert_pem: String,
    /// The CA's certificate, which ends the chain.
    pub ca_pem: String,
    /// Until when it counts.
    pub not_after: Timestamp,
}
