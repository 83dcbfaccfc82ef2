//! Certificates: made for what was declared, never for what a request wishes.

use std::time::Duration;

use model::{CertificateValidity, Digest, Hostname, NodeId, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519,
    PublicKeyData, SanType, SerialNumber, SignatureAlgorithm,
};
use rustls_pki_types::PrivatePkcs8KeyDer;
use time_of::at;
use trust::{KeyAlgorithm, PublicKey, SigningKey};
use zeroize::Zeroizing;

use crate::certified_data::CertifiedData;
use crate::identity;

/// How long a node's certificate counts, unless the control plane is set otherwise (IDN-2).
pub const NODE_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long the control plane's and operators' own certificates count.
pub const OWN_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long a proxy's certificate counts (IDN-4).
pub const PROXY_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// How long a CA certificate counts.
pub const CA_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Certificates begin this much in the past, for clocks that are behind; short ones begin less so.
const BACKDATE: Duration = Duration::from_secs(3600);
/// The part of its validity that a certificate begins in the past, at the most.
const BACKDATED_PART: u32 = 24;

/// When a certificate was issued here that counts from and until then: not before it began to count.
pub fn issued_at(counts: CertificateValidity) -> Timestamp {
    // Of the whole span, as the part that it was dated back by belongs to it.
    counts.from.plus(BACKDATE.min(counts.span() / (BACKDATED_PART + 1)))
}

/// The validity of a node's certificate that is made at this time, unless the control plane is set otherwise.
pub fn node_validity(now: Timestamp) -> CertificateValidity {
    CertificateValidity::starting(now, NODE_LIFE)
}

/// The validity of a certificate of the control plane's or an operator's own that is made at this time.
pub fn own_validity(now: Timestamp) -> CertificateValidity {
    CertificateValidity::starting(now, OWN_LIFE)
}

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The request is malformed, or its signature does not hold.
    #[error("the certificate request cannot be used")]
    ReadRequest(#[source] rcgen::Error),
    /// The request's key is of another sort.
    #[error("the certificate request's key is neither ed25519 nor ecdsa-p256")]
    OtherAlgorithm,
    /// A private key cannot be read.
    #[error("the private key cannot be read")]
    ReadKey(#[source] rcgen::Error),
    /// A stored CA cannot be read.
    #[error("the CA's files cannot be read")]
    LoadCa(#[source] rcgen::Error),
    /// The key of a stored CA is of another sort.
    #[error("the CA's key is neither ed25519 nor ecdsa-p256")]
    CaAlgorithm,
    /// The certificate and the private key of a stored CA do not go together.
    #[error("the CA's private key is not that of its certificate")]
    OtherCaKey,
    /// A name cannot be in a certificate.
    #[error("a name cannot be in a certificate")]
    Name(#[source] rcgen::Error),
    /// The date cannot be in a certificate.
    #[error("the date {0} cannot be in a certificate")]
    Date(i64),
    /// Making it failed.
    #[error("the certificate could not be made")]
    Sign(#[source] rcgen::Error),
}

/// A certificate with its private key, both PEM. The key is wiped when dropped.
pub struct Certified {
    /// The certificate.
    pub cert_pem: String,
    /// The private key.
    pub key_pem: Zeroizing<String>,
}

/// A certificate authority.
pub struct Ca {
    cert_pem: String,
    der: Vec<u8>,
    key: PublicKey,
    issuer: Issuer<'static, KeyPair>,
}

/// The certificate request of a node or a proxy, read: only its key counts.
pub struct CertificateRequest {
    csr: CertificateSigningRequestParams,
    key: PublicKey,
}

impl CertificateRequest {
    /// Reads a request and verifies that its key signed it.
    ///
    /// # Errors
    /// When it is malformed, not signed by its key, or the key is neither ed25519 nor P-256.
    pub fn read(pem: &str) -> Result<CertificateRequest, IssueError> {
        let csr = CertificateSigningRequestParams::from_pem(pem).map_err(IssueError::ReadRequest)?;
        let known = |of: &KeyAlgorithm| csr.public_key.algorithm() == signature_algorithm(*of);
        let algorithm = KeyAlgorithm::ALL.into_iter().find(known).ok_or(IssueError::OtherAlgorithm)?;
        let key = PublicKey::from_raw(algorithm, csr.public_key.der_bytes());
        Ok(CertificateRequest { key: key.map_err(|_| IssueError::OtherAlgorithm)?, csr })
    }

    /// The key that asks.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// The common name that it asks for, which no certificate is made for by that.
    pub fn common_name(&self) -> Option<&str> {
        match self.csr.params.distinguished_name.get(&DnType::CommonName)? {
            DnValue::Utf8String(name) => Some(name),
            DnValue::PrintableString(name) => Some(name.as_str()),
            _ => None,
        }
    }
}

/// Makes a node's certificate request.
///
/// # Errors
/// Only for a hostname that cannot be in a request.
pub fn node_request(key: &SigningKey, hostname: &Hostname) -> Result<String, IssueError> {
    request(&key_pair(key)?, hostname.as_str())
}

/// Makes the certificate request of a proxy whose private key is in PEM.
///
/// # Errors
/// When that is no private key.
pub fn proxy_request(key_pem: &str, name: &str) -> Result<String, IssueError> {
    request(&KeyPair::from_pem(key_pem).map_err(IssueError::ReadKey)?, name)
}

fn request(key: &KeyPair, name: &str) -> Result<String, IssueError> {
    let mut params = CertificateParams::new(vec![]).map_err(IssueError::Name)?;
    params.distinguished_name = common_name(name);
    params.serialize_request(key).and_then(|csr| csr.pem()).map_err(IssueError::Sign)
}

/// Makes a private key of ecdsa-p256, which every TLS library takes; in PEM.
///
/// # Errors
/// When the library refuses.
pub fn new_key() -> Result<Zeroizing<String>, IssueError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(IssueError::Sign)?;
    Ok(Zeroizing::new(key.serialize_pem()))
}

impl Ca {
    /// Makes a new CA.
    ///
    /// # Errors
    /// When the library refuses; not for sound names and dates.
    pub fn generate(name: &str, now: Timestamp) -> Result<(Ca, Certified), IssueError> {
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(IssueError::Sign)?;
        let mut params = CertificateParams::new(vec![]).map_err(IssueError::Name)?;
        params.distinguished_name = common_name(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        date(&mut params, CertificateValidity::starting(now, CA_LIFE))?;
        let cert = params.self_signed(&key).map_err(IssueError::Sign)?;
        let key_pem = Zeroizing::new(key.serialize_pem());
        let certified = Certified { cert_pem: cert.pem(), key_pem };
        Ok((Ca::load(&certified.cert_pem, &certified.key_pem)?, certified))
    }

    /// A CA from its files.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn load(cert_pem: &str, key_pem: &str) -> Result<Ca, IssueError> {
        let key = KeyPair::from_pem(key_pem).map_err(IssueError::LoadCa)?;
        let own = key.subject_public_key_info();
        let issuer = Issuer::from_ca_cert_pem(cert_pem, key).map_err(IssueError::LoadCa)?;
        let der = crate::tls::certificates(cert_pem)
            .ok()
            .and_then(|mut certs| certs.pop())
            .ok_or(IssueError::LoadCa(rcgen::Error::CouldNotParseCertificate))?;
        let key = identity::key_of(&der).ok_or(IssueError::CaAlgorithm)?;
        if key.spki() != own {
            return Err(IssueError::OtherCaKey);
        }
        Ok(Ca { cert_pem: cert_pem.to_owned(), der: der.to_vec(), key, issuer })
    }

    /// The CA's key, by which a trust document names it (IDN-8).
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// The CA certificate in PEM.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// SHA-256 of the CA certificate: what tokens pin.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.der)
    }

    /// Issues a node's certificate: its key, and otherwise only what is declared here.
    /// Names, usages and dates that the request wished for are not looked at.
    ///
    /// # Errors
    /// When the library refuses.
    pub fn issue_node(
        &self,
        request: &CertificateRequest,
        id: &NodeId,
        hostname: &Hostname,
        serial: [u8; 16],
        validity: CertificateValidity,
    ) -> Result<String, IssueError> {
        self.issue_node_saying(request, id, hostname, &CertifiedData::default(), serial, validity)
    }

    /// The same, which says besides what was declared of the node (IDN-2).
    ///
    /// # Errors
    /// When the library refuses.
    pub fn issue_node_saying(
        &self,
        request: &CertificateRequest,
        id: &NodeId,
        hostname: &Hostname,
        says: &CertifiedData,
        serial: [u8; 16],
        validity: CertificateValidity,
    ) -> Result<String, IssueError> {
        // All but the first URI, which names the node by its key, is sanity data, never authorization (IDN-2).
        let names = vec![hostname.to_string()];
        let mut params = leaf(hostname.as_str(), names, serial, validity)?;
        for name in says.names() {
            params.subject_alt_names.push(uri(&name)?);
        }
        identify(&mut params, &identity::node_uri(id))?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, request)
    }

    /// Issues the certificate of a proxy that ends the TLS sessions of nodes (IDN-4): a server's for
    /// nodes, which reach it by these names and addresses, and a client's for the control plane.
    ///
    /// # Errors
    /// When a name cannot be in a certificate.
    pub fn issue_proxy(
        &self,
        request: &CertificateRequest,
        name: &str,
        names: &[String],
        serial: [u8; 16],
        now: Timestamp,
    ) -> Result<String, IssueError> {
        let mut params = leaf(name, names.to_vec(), serial, CertificateValidity::starting(now, PROXY_LIFE))?;
        identify(&mut params, &identity::proxy_uri(name))?;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, request)
    }

    /// Issues an operator's certificate with a new key.
    ///
    /// # Errors
    /// When the library refuses.
    pub fn issue_operator(
        &self,
        name: &str,
        serial: [u8; 16],
        now: Timestamp,
    ) -> Result<Certified, IssueError> {
        let mut params = leaf(name, Vec::new(), serial, own_validity(now))?;
        identify(&mut params, &identity::operator_uri(name))?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign_new(params, &PKCS_ED25519)
    }

    /// Issues an operator's certificate for the key of a request, which stays where it was made.
    ///
    /// # Errors
    /// When the library refuses.
    pub fn issue_operator_for(
        &self,
        request: &CertificateRequest,
        name: &str,
        serial: [u8; 16],
        now: Timestamp,
    ) -> Result<String, IssueError> {
        let mut params = leaf(name, Vec::new(), serial, own_validity(now))?;
        identify(&mut params, &identity::operator_uri(name))?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, request)
    }

    /// Issues the control plane's own certificate for these names and addresses, with a new key.
    ///
    /// The key is ecdsa-p256: BoringSSL, which stock gRPC clients link, refuses a server whose
    /// own certificate is ed25519 (SYN-1). It takes the ed25519 CA above it.
    ///
    /// # Errors
    /// When a name cannot be in a certificate.
    pub fn issue_server(
        &self,
        names: &[String],
        serial: [u8; 16],
        validity: CertificateValidity,
    ) -> Result<Certified, IssueError> {
        let mut params = leaf("muster control plane", names.to_vec(), serial, validity)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign_new(params, &PKCS_ECDSA_P256_SHA256)
    }

    fn sign(&self, params: CertificateParams, request: &CertificateRequest) -> Result<String, IssueError> {
        let signed = params.signed_by(&request.csr.public_key, &self.issuer);
        signed.map(|cert| cert.pem()).map_err(IssueError::Sign)
    }

    fn sign_new(
        &self,
        params: CertificateParams,
        algorithm: &'static SignatureAlgorithm,
    ) -> Result<Certified, IssueError> {
        let key = KeyPair::generate_for(algorithm).map_err(IssueError::Sign)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(IssueError::Sign)?;
        Ok(Certified { cert_pem: cert.pem(), key_pem: Zeroizing::new(key.serialize_pem()) })
    }
}

/// What all certificates share that are no CA's; `names` are host names and addresses.
fn leaf(
    name: &str,
    names: Vec<String>,
    serial: [u8; 16],
    validity: CertificateValidity,
) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::new(names).map_err(IssueError::Name)?;
    params.distinguished_name = common_name(name);
    params.serial_number = Some(SerialNumber::from_slice(&positive(serial)));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    date(&mut params, validity)?;
    Ok(params)
}

/// Names the holder, before the names that it has as a host.
fn identify(params: &mut CertificateParams, name: &str) -> Result<(), IssueError> {
    params.subject_alt_names.insert(0, uri(name)?);
    Ok(())
}

fn uri(name: &str) -> Result<SanType, IssueError> {
    Ok(SanType::URI(name.try_into().map_err(IssueError::Name)?))
}

/// A serial number is a positive integer.
fn positive(mut serial: [u8; 16]) -> [u8; 16] {
    serial[0] = serial[0] & 0x7f | 0x40;
    serial
}

fn date(params: &mut CertificateParams, validity: CertificateValidity) -> Result<(), IssueError> {
    let backdate = BACKDATE.min(validity.span() / BACKDATED_PART);
    params.not_before = at(validity.from.minus(backdate))?;
    params.not_after = at(validity.until)?;
    Ok(())
}

fn common_name(name: &str) -> DistinguishedName {
    let mut dn = DistinguishedName::new();
    dn.push(DnType::CommonName, name);
    dn
}

/// The PKCS#8 form of a key.
pub fn pkcs8(key: &SigningKey) -> Zeroizing<Vec<u8>> {
    // RFC 8410: a fixed header, then the seed as an octet string in an octet string.
    const ED25519: [u8; 16] =
        [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    // RFC 5915 in RFC 5208: ecPublicKey on prime256v1, the scalar, then the public point.
    const P256: [u8; 36] = [
        0x30, 0x81, 0x87, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
        0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x6d, 0x30, 0x6b, 0x02, 0x01, 0x01,
        0x04, 0x20,
    ];
    const P256_POINT: [u8; 5] = [0xa1, 0x44, 0x03, 0x42, 0x00];
    let secret = key.secret();
    Zeroizing::new(match key.algorithm() {
        KeyAlgorithm::Ed25519 => [&ED25519[..], secret.as_slice()].concat(),
        KeyAlgorithm::EcdsaP256 => [&P256[..], secret.as_slice(), &P256_POINT, &key.public().raw()].concat(),
    })
}

fn signature_algorithm(of: KeyAlgorithm) -> &'static SignatureAlgorithm {
    match of {
        KeyAlgorithm::Ed25519 => &PKCS_ED25519,
        KeyAlgorithm::EcdsaP256 => &PKCS_ECDSA_P256_SHA256,
    }
}

fn key_pair(key: &SigningKey) -> Result<KeyPair, IssueError> {
    let der = pkcs8(key);
    let der = PrivatePkcs8KeyDer::from(der.as_slice());
    KeyPair::from_pkcs8_der_and_sign_algo(&der, signature_algorithm(key.algorithm()))
        .map_err(IssueError::Sign)
}

mod time_of {
    use model::Timestamp;

    use super::IssueError;

    /// The form of an instant that certificates are made with.
    pub(super) fn at(instant: Timestamp) -> Result<time::OffsetDateTime, IssueError> {
        time::OffsetDateTime::from_unix_timestamp(instant.secs())
            .map_err(|_| IssueError::Date(instant.secs()))
    }
}
