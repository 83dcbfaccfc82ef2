//! TLS configurations: TLS 1.3 alone, one provider, HTTP/2 by default (IDN-3).

use std::io;
use std::sync::Arc;

use model::time::SLACK;
use model::{Digest, Timestamp};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, DistinguishedName, OtherError,
    RootCertStore, ServerConfig, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use trust::SigningKey;
use trust::token::TlsTermination;

use crate::authority::{BelievedAuthority, is_rejected};
use crate::identity::{self, CertifiedPeer, PeerRole};
use crate::revoked::RevokedCertificates;

/// HTTP/2, the application protocol of everything but WebSockets.
const H2: &[u8] = b"h2";
/// HTTP/1.1, for the upgrade to a WebSocket.
pub(crate) const HTTP1: &[u8] = b"http/1.1";

/// Why a TLS configuration could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate or key is not PEM of its sort.
    #[error("a certificate or key cannot be read")]
    ReadPem(#[source] rustls_pki_types::pem::Error),
    /// A CA certificate cannot be used.
    #[error("the CA certificate cannot be used")]
    Roots(#[source] rustls::Error),
    /// Certificate, key or version do not go together.
    #[error("the TLS configuration cannot be used")]
    Configure(#[source] rustls::Error),
    /// The verifier cannot be made.
    #[error("the certificate verifier cannot be made")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

/// Whom a server lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// Holders of a certificate, and others, who then reach only the open routes.
    Optional,
    /// Holders of a certificate only.
    Required,
}

/// The provider: aws-lc-rs. Key exchange is X25519 or P-256; the hybrid with ML-KEM would
/// alone cost more bytes than a whole check-in may (docs/benchmarks.md). AES-128 comes first, as TLS 1.3
/// has it (RFC 8446, 9.1): processors hash for its handshakes, and not for those of AES-256.
pub fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
    let mut provider = default_provider();
    provider.kx_groups = vec![kx_group::X25519, kx_group::SECP256R1];
    provider.cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(provider)
}

/// The certificates in a PEM text.
///
/// # Errors
/// When it is not PEM.
pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(TlsError::ReadPem)
}

/// SHA-256 of the first certificate in a PEM text, the CA that a token pins.
///
/// # Errors
/// When there is none.
pub fn digest(ca_pem: &str) -> Result<Digest, TlsError> {
    CertificateDer::from_pem_slice(ca_pem.as_bytes()).map(|ca| Digest::of(&ca)).map_err(TlsError::ReadPem)
}

fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(TlsError::ReadPem)
}

pub(crate) fn roots(ca_pem: &str) -> Result<Arc<RootCertStore>, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(ca_pem)? {
        store.add(certificate).map_err(TlsError::Roots)?;
    }
    Ok(Arc::new(store))
}

/// A server's configuration. The chain ends with the CA certificate, so that a node that
/// knows only its digest can verify it.
///
/// # Errors
/// When certificate and key do not go together.
pub fn server(
    cert_pem: &str,
    key_pem: &str,
    chain_ca_pem: &str,
    client_ca_pem: &str,
    auth: ClientAuth,
) -> Result<Arc<ServerConfig>, TlsError> {
    let (revoked, reject_before) = (RevokedCertificates::default(), None);
    let clients = BelievedClients { ca_pem: client_ca_pem, auth, revoked, reject_before };
    server_believing(cert_pem, key_pem, chain_ca_pem, clients)
}

/// Which certificates of clients a server takes.
pub struct BelievedClients<'a> {
    /// The CAs that issue them, in PEM.
    pub ca_pem: &'a str,
    /// Whom it lets in.
    pub auth: ClientAuth,
    /// Nodes whose certificates count no more, as they are at each handshake (IDN-6).
    pub revoked: RevokedCertificates,
    /// Certificates that were issued before count no more, to the second (IDN-8).
    pub reject_before: Option<Timestamp>,
}

/// As [`server`], for more than one CA and without the certificates of clients that count no more.
///
/// # Errors
/// As [`server`].
pub fn server_believing(
    cert_pem: &str,
    key_pem: &str,
    chain_ca_pem: &str,
    clients: BelievedClients<'_>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let BelievedClients { ca_pem, auth, revoked, reject_before } = clients;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(ca_pem)?, provider());
    let verifier = match auth {
        ClientAuth::Optional => verifier.allow_unauthenticated(),
        ClientAuth::Required => verifier,
    };
    // Naming the one CA in every handshake would only cost bytes.
    let usual = verifier.clear_root_hint_subjects().build().map_err(TlsError::Verifier)?;
    let mut chain = certificates(cert_pem)?;
    chain.extend(certificates(chain_ca_pem)?);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Configure)?
        .with_client_cert_verifier(Arc::new(ClientVerifier { usual, revoked, reject_before }))
        .with_single_cert(chain, private_key(key_pem)?)
        .map_err(TlsError::Configure)?;
    config.alpn_protocols = vec![H2.to_vec()];
    // A resumed session would skip the certificate's verification, and early data could be
    // replayed: what flows on a stream counts as the node's by its TLS session alone (IDN-4).
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// The same configuration, offering HTTP/1.1 after HTTP/2: for a port that takes WebSockets.
pub fn with_http1(config: &ServerConfig) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![H2.to_vec(), HTTP1.to_vec()];
    Arc::new(config)
}

/// A client's configuration that asks for HTTP/1.1 alone.
pub(crate) fn http1_alone(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![HTTP1.to_vec()];
    Arc::new(config)
}

/// What a client proves itself with.
pub enum ClientKey<'a> {
    /// A node's key.
    Node(&'a SigningKey),
    /// A private key in PEM.
    Pem(&'a str),
}

/// A client's configuration with a certificate: believes servers under this CA, and no proxy (IDN-4).
///
/// # Errors
/// When certificate and key do not go together.
pub fn client(ca_pem: &str, cert_pem: &str, key: ClientKey<'_>) -> Result<Arc<ClientConfig>, TlsError> {
    client_believing(BelievedAuthority::Certificates(ca_pem.to_owned()), cert_pem, key)
}

/// The same, believing servers under these CAs.
///
/// # Errors
/// When certificate and key do not go together, or a CA's certificate cannot be read.
pub fn client_believing(
    authority: BelievedAuthority,
    cert_pem: &str,
    key: ClientKey<'_>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let key = match key {
        ClientKey::Node(key) => {
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(crate::issue::pkcs8(key).to_vec()))
        }
        ClientKey::Pem(pem) => private_key(pem)?,
    };
    let verifier = Verifier::new(authority, TlsTermination::ControlPlane)?;
    let config = verified_by(Arc::new(verifier))?.with_client_auth_cert(certificates(cert_pem)?, key);
    Ok(finish(config.map_err(TlsError::Configure)?))
}

/// A client's configuration without a certificate, before a node has one (ENR-1): believes only servers under the CA
/// with this digest, which a token names, and of them only the control plane or only a proxy.
///
/// # Errors
/// When the library refuses.
pub fn client_pinned(ca: Digest, ends_at: TlsTermination) -> Result<Arc<ClientConfig>, TlsError> {
    client_without_certificate(BelievedAuthority::Digest(ca), ends_at)
}

/// The same, where these CAs are believed: for a node that has no certificate that counts, or whose sessions a proxy
/// ends (IDN-4).
///
/// # Errors
/// When the library refuses.
pub fn client_without_certificate(
    authority: BelievedAuthority,
    ends_at: TlsTermination,
) -> Result<Arc<ClientConfig>, TlsError> {
    Ok(finish(verified_by(Arc::new(Verifier::new(authority, ends_at)?))?.with_no_client_auth()))
}

/// A client's configuration that believes nobody, and talks to whoever answers: only for what is verified by itself,
/// as the links of the chain of trust documents are, and only to say what they lead on from (IDN-8).
///
/// # Errors
/// When the library refuses.
pub fn client_of_anybody() -> Result<Arc<ClientConfig>, TlsError> {
    Ok(finish(verified_by(Arc::new(Anybody))?.with_no_client_auth()))
}

fn verified_by(
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Configure)?;
    Ok(config.dangerous().with_custom_certificate_verifier(verifier))
}

fn finish(mut config: ClientConfig) -> Arc<ClientConfig> {
    config.alpn_protocols = vec![H2.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

/// Verifies with [`SLACK`] at both ends of the validity (IDN-7).
fn with_slack<T>(
    now: UnixTime,
    verify: impl Fn(UnixTime) -> Result<T, rustls::Error>,
) -> Result<T, rustls::Error> {
    use CertificateError::{ExpiredContext, NotValidYetContext};
    let verified = verify(now);
    let end = match &verified {
        Err(rustls::Error::InvalidCertificate(ExpiredContext { not_after, .. })) => *not_after,
        Err(rustls::Error::InvalidCertificate(NotValidYetContext { not_before, .. })) => *not_before,
        _ => return verified,
    };
    let is_near = end.as_secs().abs_diff(now.as_secs()) <= SLACK.as_secs();
    if is_near { verify(end) } else { verified }
}

/// Verifies clients' certificates as usual, with [`SLACK`], and refuses those that are revoked.
#[derive(Debug)]
struct ClientVerifier {
    usual: Arc<dyn ClientCertVerifier>,
    revoked: RevokedCertificates,
    reject_before: Option<Timestamp>,
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.usual.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.usual.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.usual.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = with_slack(now, |now| self.usual.verify_client_cert(end_entity, intermediates, now))?;
        if is_rejected(end_entity, self.reject_before) {
            return Err(CertificateError::UnknownIssuer.into());
        }
        let is_revoked =
            !self.revoked.is_empty() && identity::read(end_entity).is_ok_and(|peer| self.revoked.has(&peer));
        if is_revoked { Err(CertificateError::Revoked.into()) } else { Ok(verified) }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// The server's certificate has ended by this host's clock, which may be what is wrong (IDN-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server's certificate expired at {end}, and this host's clock says {clock}, {} that: is the clock right?",
    clock.beside(*end)
)]
pub struct EndedServerCertificate {
    /// When it ended.
    pub end: Timestamp,
    /// What the clock says.
    pub clock: Timestamp,
}

impl EndedServerCertificate {
    /// Whether a handshake failed for this.
    pub(crate) fn of(error: &io::Error) -> Option<EndedServerCertificate> {
        own_reason(error)
    }
}

/// The reason of ours for which a handshake failed, if it is this one.
fn own_reason<T: std::error::Error + Clone + 'static>(error: &io::Error) -> Option<T> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::Other(OtherError(why)) => why.downcast_ref().cloned(),
        _ => None,
    }
}

/// The server's certificate is not of the CA that this client believes: of another fleet, of a proxy that inspects TLS,
/// of a captive portal. TLS is weakened for none of them (IDN-3).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its certificate was issued by {issuer:?}, and not by the CA of this fleet")]
pub struct ForeignCertificate {
    /// By whom, as the certificate says.
    pub issuer: String,
}

impl ForeignCertificate {
    pub(crate) fn error(end_entity: &CertificateDer<'_>) -> rustls::Error {
        let issuer = identity::issuer(end_entity).unwrap_or_else(|| "nobody who is named".to_owned());
        rustls::Error::Other(OtherError(Arc::new(ForeignCertificate { issuer })))
    }

    /// Whether a handshake failed for this.
    pub(crate) fn of(error: &io::Error) -> Option<ForeignCertificate> {
        own_reason(error)
    }
}

/// Verifies at the time of this host's clock, with [`SLACK`], or at the one from which the certificate is valid when
/// that is later: it is signed by the CA, so the clock is slow, and a slow clock locks no node out
/// (IDN-11). A clock that runs ahead is named, as every certificate has expired by it. Nothing corrects such a clock
/// here: whoever holds a key of the control plane, also one of an ended certificate, says what time it is.
fn verify_at(
    now: UnixTime,
    verify: impl Fn(UnixTime) -> Result<ServerCertVerified, rustls::Error>,
) -> Result<ServerCertVerified, rustls::Error> {
    match with_slack(now, &verify) {
        Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before, ..
        })) => verify(not_before),
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            // The library looks at the time before the signature: anybody can show a certificate that has ended.
            verify(not_after)?;
            let at = |time: UnixTime| {
                i64::try_from(time.as_secs()).map_or(Timestamp(i64::MAX), Timestamp::from_secs)
            };
            let ended = EndedServerCertificate { end: at(not_after), clock: at(now) };
            Err(rustls::Error::Other(OtherError(Arc::new(ended))))
        }
        verified => verified,
    }
}

fn refused(why: &str) -> rustls::Error {
    rustls::Error::General(why.to_owned())
}

/// Verifies as usual, under the CAs that are believed, and that the certificate is of whom the client means to reach:
/// proxies' certificates are under the same CA, and must not stand in for the control plane's (IDN-4).
#[derive(Debug)]
struct Verifier {
    authority: BelievedAuthority,
    /// Made once, where all handshakes have the same roots.
    by_roots: Option<Arc<WebPkiServerVerifier>>,
    ends_at: TlsTermination,
}

impl Verifier {
    fn new(authority: BelievedAuthority, ends_at: TlsTermination) -> Result<Verifier, TlsError> {
        let by_roots = match &authority {
            BelievedAuthority::Certificates(pem) => {
                let verifier = WebPkiServerVerifier::builder_with_provider(roots(pem)?, provider());
                Some(verifier.build().map_err(TlsError::Verifier)?)
            }
            BelievedAuthority::Digest(_) | BelievedAuthority::Keys(_) => None,
        };
        Ok(Verifier { authority, by_roots, ends_at })
    }

    fn verifier(
        &self,
        end_entity: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
    ) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
        match &self.by_roots {
            Some(verifier) => Ok(verifier.clone()),
            None => self.authority.server_verifier(end_entity, chain),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{BadSignature, UnknownIssuer};
        let verifier = self.verifier(end_entity, intermediates)?;
        let verified = verify_at(now, |now| {
            verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
        });
        let verified = match verified {
            Err(rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature)) => {
                return Err(ForeignCertificate::error(end_entity));
            }
            verified => verified?,
        };
        let is_proxy =
            matches!(identity::read(end_entity), Ok(CertifiedPeer { role: PeerRole::Proxy(_), .. }));
        match (self.ends_at, is_proxy) {
            (TlsTermination::ControlPlane, true) => Err(refused(
                "the server shows a proxy's certificate, not the control plane's: reach the control plane \
                 itself, or join with a token of `muster token mint --proxy`",
            )),
            (TlsTermination::Proxy, false) => Err(refused(
                "the server shows no proxy's certificate, but the token says that a proxy ends TLS: have the \
                 proxy show that of `muster proxy issue`, or join with a token without --proxy",
            )),
            _ => Ok(verified),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(refused("TLS 1.2 is not spoken here"))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Takes whatever certificate is shown. Who shows it has its key.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(refused("TLS 1.2 is not spoken here"))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
