//! Whose certificate it is.

use model::text::bounded_line;
use model::{CertificateValidity, Digest, Hostname, NodeId, Timestamp};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use trust::{KeyAlgorithm, PublicKey};
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_SIG_ED25519, OidRegistry};
use x509_parser::prelude::{SubjectPublicKeyInfo, Validity};

use crate::certificate::Certificate;
use crate::issue;

/// What a certificate's URI names its holder as: `muster:node:ID`, `muster:operator:NAME` or
/// `muster:proxy:NAME`.
const NODE_URI: &str = "muster:node:";
const OPERATOR_URI: &str = "muster:operator:";
const PROXY_URI: &str = "muster:proxy:";
/// How much is shown of what a certificate says of its issuer, in bytes.
const MAX_ISSUER: usize = 200;

/// The holder of a verified client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedPeer {
    /// Node, operator or proxy.
    pub role: PeerRole,
    /// When the certificate was issued, to the second: it begins to count somewhat earlier.
    pub issued: Timestamp,
    /// Digest of the name that it gives its issuer, in DER; one that TLS verified is of the CA of that name.
    pub issuer: Digest,
}

/// What a certificate entitles to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerRole {
    /// A node.
    Node {
        /// Its id.
        id: NodeId,
        /// Its hostname.
        hostname: Hostname,
        /// Its public key, which the certificate carries.
        key: Box<PublicKey>,
    },
    /// An operator, by name.
    Operator(String),
    /// A proxy that ends the TLS sessions of nodes, by name (IDN-4).
    Proxy(String),
}

/// The certificate is of none of these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the certificate names no node, operator or proxy")]
pub struct ReadIdentityError;

/// The URI of a node's certificate.
pub fn node_uri(id: &NodeId) -> String {
    format!("{NODE_URI}{id}")
}

/// The URI of an operator's certificate.
pub fn operator_uri(name: &str) -> String {
    format!("{OPERATOR_URI}{name}")
}

/// The URI of a proxy's certificate.
pub fn proxy_uri(name: &str) -> String {
    format!("{PROXY_URI}{name}")
}

/// Reads the holder out of a certificate that TLS verified.
///
/// # Errors
/// When it was issued for something else.
pub fn read(der: &[u8]) -> Result<CertifiedPeer, ReadIdentityError> {
    let certificate = Certificate::read(der).ok_or(ReadIdentityError)?;
    let role = role(&certificate).ok_or(ReadIdentityError)?;
    let issuer = Digest::of(certificate.issuer.as_raw());
    Ok(CertifiedPeer { role, issued: issue::issued_at(span_of(&certificate)), issuer })
}

/// Digest of a CA's own name, in DER: what its certificates give their issuer. `None` where it cannot be read.
pub(crate) fn authority_name(der: &[u8]) -> Option<Digest> {
    let certificate = Certificate::read(der)?;
    Some(Digest::of(certificate.subject.as_raw()))
}

/// From when until when the first certificate of a PEM text counts; `None` when there is none. Its extensions are not
/// read.
pub fn validity(pem: &[u8]) -> Option<CertificateValidity> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let certificate = Certificate::read(&der)?;
    Some(span_of(&certificate))
}

fn span_of(certificate: &Certificate<'_>) -> CertificateValidity {
    let Validity { not_before, not_after } = &certificate.validity;
    let [from, until] = [not_before, not_after].map(|at| Timestamp::from_secs(at.timestamp()));
    CertificateValidity { from, until }
}

/// Who issued a certificate, as it says itself, at most [`MAX_ISSUER`] bytes on one line; `None` when it does not say.
pub(crate) fn issuer(der: &[u8]) -> Option<String> {
    let certificate = Certificate::read(der)?;
    // Common names have their abbreviations; the table of all others would take ten kilobytes to say a rare one.
    let name = certificate.issuer.to_string_with_registry(&OidRegistry::default()).ok()?;
    let shown = bounded_line(&name, MAX_ISSUER).into_owned();
    (!shown.is_empty()).then_some(shown)
}

/// When a certificate was issued, to the second; `None` when it cannot be read.
pub(crate) fn issued(der: &[u8]) -> Option<Timestamp> {
    let certificate = Certificate::read(der)?;
    Some(issue::issued_at(span_of(&certificate)))
}

/// The contents of the name in DER that a certificate gives its issuer.
pub(crate) fn issuer_name(der: &[u8]) -> Option<Vec<u8>> {
    let certificate = Certificate::read(der)?;
    contents(certificate.issuer.as_raw()).map(<[u8]>::to_vec)
}

/// The key in the certificate of a CA; `None` where it is of no algorithm that is known here.
pub(crate) fn key_of(der: &[u8]) -> Option<PublicKey> {
    let certificate = Certificate::read(der)?;
    public_key(&certificate.key)
}

/// What follows the tag and the length of a DER value, which it ends with.
fn contents(der: &[u8]) -> Option<&[u8]> {
    const LONG_FORM: u8 = 0x80;
    let (length, rest) = der.get(1..)?.split_first()?;
    match length.checked_sub(LONG_FORM) {
        None => Some(rest),
        Some(bytes) => rest.get(usize::from(bytes)..),
    }
}

fn role(certificate: &Certificate<'_>) -> Option<PeerRole> {
    let uri = certificate.uris()?.into_iter().next()?;
    if let Some(name) = uri.strip_prefix(OPERATOR_URI) {
        return Some(PeerRole::Operator(name.to_owned()));
    }
    if let Some(name) = uri.strip_prefix(PROXY_URI) {
        return Some(PeerRole::Proxy(name.to_owned()));
    }
    let id: NodeId = uri.strip_prefix(NODE_URI)?.parse().ok()?;
    let name = certificate.subject.iter_common_name().next()?.as_str().ok()?;
    let key = public_key(&certificate.key)?;
    // The id is derived from the key, so a certificate cannot join one to another.
    (key.node_id() == id).then_some(())?;
    Some(PeerRole::Node { id, hostname: name.parse().ok()?, key: Box::new(key) })
}

/// The key in a SubjectPublicKeyInfo; the algorithm is the one that it names, never guessed.
fn public_key(info: &SubjectPublicKeyInfo<'_>) -> Option<PublicKey> {
    let named = &info.algorithm;
    let algorithm = if named.algorithm == OID_SIG_ED25519 && named.parameters.is_none() {
        KeyAlgorithm::Ed25519
    } else if named.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY
        && named.parameters.as_ref().and_then(|curve| curve.as_oid().ok()) == Some(OID_EC_P256)
    {
        KeyAlgorithm::EcdsaP256
    } else {
        return None;
    };
    PublicKey::from_raw(algorithm, &info.subject_public_key.data).ok()
}
