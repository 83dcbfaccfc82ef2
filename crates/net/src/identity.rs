//! Whose certificate it is.

use model::{Hostname, NodeId, Timestamp};
use x509_parser::prelude::*;

/// What a certificate's URI names its holder as: `muster:node:ID` or `muster:operator:NAME`.
const NODE_URI: &str = "muster:node:";
const OPERATOR_URI: &str = "muster:operator:";

/// The holder of a verified client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedPeer {
    /// Node or operator.
    pub role: Role,
    /// When the certificate begins to count.
    pub not_before: Timestamp,
}

/// What a certificate entitles to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A node.
    Node {
        /// Its id.
        id: NodeId,
        /// Its hostname.
        hostname: Hostname,
        /// Its public key, which the certificate carries.
        key: [u8; 32],
    },
    /// An operator, by name.
    Operator(String),
}

/// The certificate is of neither sort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the certificate names neither a node nor an operator")]
pub struct ReadIdentityError;

/// The URI of a node's certificate.
pub fn node_uri(id: &NodeId) -> String {
    format!("{NODE_URI}{id}")
}

/// The URI of an operator's certificate.
pub fn operator_uri(name: &str) -> String {
    format!("{OPERATOR_URI}{name}")
}

/// Reads the holder out of a certificate that TLS verified.
///
/// # Errors
/// When it was issued for something else.
pub fn read(der: &[u8]) -> Result<CertifiedPeer, ReadIdentityError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| ReadIdentityError)?;
    let not_before = Timestamp::from_secs(certificate.validity().not_before.timestamp());
    let role = role(&certificate).ok_or(ReadIdentityError)?;
    Ok(CertifiedPeer { role, not_before })
}

fn role(certificate: &X509Certificate<'_>) -> Option<Role> {
    let names = certificate.subject_alternative_name().ok()??;
    let uri = names.value.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    })?;
    if let Some(name) = uri.strip_prefix(OPERATOR_URI) {
        return Some(Role::Operator(name.to_owned()));
    }
    let id: NodeId = uri.strip_prefix(NODE_URI)?.parse().ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    let key: [u8; 32] = certificate.public_key().subject_public_key.data.as_ref().try_into().ok()?;
    // The id is derived from the key, so a certificate cannot join one to another.
    (NodeId::of_key(&key) == id).then_some(())?;
    Some(Role::Node { id, hostname: name.parse().ok()?, key })
}
