//! [`BelievedAuthority`]: by what a node or an operator knows the CAs that it believes (IDN-8).
//!
//! ```text
//! before it joined      a token's digest of the CA's certificate --+
//! joined                the CA's certificate ----------------------+--> roots of one handshake
//! a CA was replaced     the keys that the trust document names ----+
//! ```
//!
//! A CA is its key: a certificate counts when such a key signed it, whatever the CA's own certificate says of itself.
//! So nothing but the signed trust document travels when a CA is replaced.

use std::sync::Arc;

use model::{Digest, Timestamp};
use rustls::client::WebPkiServerVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, RootCertStore};
use rustls_pki_types::{CertificateDer, Der, TrustAnchor, UnixTime};
use trust::{PublicKey, Slots};

use crate::identity;
use crate::tls::{ForeignCertificate, TlsError, certificates, provider, roots};

/// The CAs that a client believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BelievedAuthority {
    /// Those with the certificates in this PEM text.
    Certificates(String),
    /// The one whose certificate has this digest, and is shown.
    Digest(Digest),
    /// Those with the keys of a trust document. What they signed before its `rejectBefore` counts no more; certificates
    /// know whole seconds, and one of the same second counts.
    Keys(Box<Slots>),
}

impl BelievedAuthority {
    /// What a trust document says of CAs, and where it says nothing the certificate that was joined with.
    pub fn of(slots: Option<&Slots>, ca_pem: &str) -> BelievedAuthority {
        match slots {
            Some(slots) => BelievedAuthority::named(slots.clone()),
            None => BelievedAuthority::Certificates(ca_pem.to_owned()),
        }
    }

    /// Those with the keys of these slots.
    pub fn named(slots: Slots) -> BelievedAuthority {
        BelievedAuthority::Keys(Box::new(slots))
    }

    /// The keys that a trust document names; none where a certificate counts.
    pub fn keys(&self) -> impl Iterator<Item = &PublicKey> {
        let slots = match self {
            BelievedAuthority::Keys(slots) => Some(&**slots),
            BelievedAuthority::Certificates(_) | BelievedAuthority::Digest(_) => None,
        };
        slots.into_iter().flat_map(Slots::keys)
    }

    /// The first certificate in a PEM text is of one of them.
    pub fn has_certificate(&self, ca_pem: &str) -> bool {
        let Some(ca) = certificates(ca_pem).ok().and_then(|all| all.into_iter().next()) else { return false };
        match self {
            BelievedAuthority::Certificates(pem) => certificates(pem).is_ok_and(|known| known.contains(&ca)),
            BelievedAuthority::Digest(digest) => Digest::of(&ca) == *digest,
            BelievedAuthority::Keys(slots) => {
                identity::key_of(&ca).is_some_and(|key| slots.keys().any(|known| *known == key))
            }
        }
    }

    /// The keys that a trust document names are those of all certificates in a PEM text, which has one or more.
    pub fn names_all_of(&self, ca_pem: &str) -> bool {
        let is_named = |ca: &CertificateDer<'_>| {
            identity::key_of(ca).is_some_and(|key| self.keys().any(|known| *known == key))
        };
        certificates(ca_pem).is_ok_and(|all| !all.is_empty() && all.iter().all(is_named))
    }

    /// Whether one of them issued a client's certificate, judged in the middle of its validity: no clock has a part in
    /// it.
    ///
    /// # Errors
    /// When one of the certificates cannot be read.
    pub fn certifies(&self, cert_pem: &str) -> Result<bool, TlsError> {
        let chain = certificates(cert_pem)?;
        let validity = identity::validity(cert_pem.as_bytes());
        let (Some((holder, between)), Some(validity)) = (chain.split_first(), validity) else {
            return Ok(false);
        };
        let roots = match self {
            BelievedAuthority::Certificates(pem) => roots(pem)?,
            BelievedAuthority::Digest(_) | BelievedAuthority::Keys(_) => match self.roots(holder, between) {
                Ok(roots) => roots,
                Err(_) => return Ok(false),
            },
        };
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
        let verifier = verifier.build().map_err(TlsError::Verifier)?;
        let at = UnixTime::since_unix_epoch(validity.half().since(Timestamp(0)));
        Ok(verifier.verify_client_cert(holder, between, at).is_ok())
    }

    /// What verifies the certificate that a server shows with this chain.
    pub(crate) fn server_verifier(
        &self,
        end_entity: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
    ) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
        let roots = self.roots(end_entity, chain)?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
        verifier.map_err(|error| rustls::Error::General(error.to_string()))
    }

    fn roots(
        &self,
        end_entity: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
    ) -> Result<Arc<RootCertStore>, rustls::Error> {
        match self {
            BelievedAuthority::Certificates(pem) => {
                roots(pem).map_err(|error| rustls::Error::General(error.to_string()))
            }
            BelievedAuthority::Digest(digest) => {
                let ca = chain.iter().find(|cert| Digest::of(cert) == *digest);
                let ca = ca.ok_or_else(|| ForeignCertificate::error(end_entity))?;
                let mut store = RootCertStore::empty();
                store.add(ca.clone().into_owned())?;
                Ok(Arc::new(store))
            }
            BelievedAuthority::Keys(slots) => {
                if is_rejected(end_entity, slots.reject_before) {
                    return Err(ForeignCertificate::error(end_entity));
                }
                let issuer = identity::issuer_name(end_entity);
                let issuer = issuer.ok_or(CertificateError::BadEncoding)?;
                Ok(Arc::new(RootCertStore { roots: slots.keys().map(|key| anchor(&issuer, key)).collect() }))
            }
        }
    }
}

/// A certificate was issued before the time from which they count.
pub(crate) fn is_rejected(certificate: &[u8], reject_before: Option<Timestamp>) -> bool {
    let Some(limit) = reject_before else { return false };
    identity::issued(certificate).is_none_or(|issued| issued.secs() < limit.secs())
}

/// A root of this key, under whatever name what it issued says.
fn anchor(issuer: &[u8], key: &PublicKey) -> TrustAnchor<'static> {
    // The contents of the SubjectPublicKeyInfo: its tag and its length, below 128, go before.
    let spki = key.spki().split_off(2);
    TrustAnchor {
        subject: Der::from(issuer.to_vec()),
        subject_public_key_info: Der::from(spki),
        name_constraints: None,
    }
}
