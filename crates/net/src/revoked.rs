//! [`RevokedCertificates`]: which certificates count no more, for handshakes and for open connections (IDN-6, IDN-8).
//!
//! ```text
//! a host is revoked        its certificates of before: no handshake, and open connections end at once
//! a CA counts no more      its certificates: no handshake by the port's configuration, and open connections end,
//!                          those of nodes spread over a time
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::{Digest, Hostname, Timestamp};
use tokio::sync::watch;

use crate::identity::{self, CertifiedPeer, PeerRole};
use crate::tls::{self, TlsError};

/// Certificates that count no more. Cheap to clone: all clones are one.
#[derive(Clone, Debug, Default)]
pub struct RevokedCertificates(Arc<watch::Sender<Revocations>>);

/// What counts no more.
#[derive(Debug, Default)]
struct Revocations {
    /// Hosts, each with the time before which their certificates were issued that count no more.
    hosts: BTreeMap<Hostname, Timestamp>,
    /// The CAs whose certificates count; absent: whatever a handshake took.
    issuers: Option<BelievedIssuers>,
}

/// The CAs whose certificates count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BelievedIssuers {
    /// Digests of their names. Each CA has a name of its own, and TLS verified each certificate under the CA that it names.
    names: BTreeSet<Digest>,
    reject_before: Option<Timestamp>,
    within: Duration,
}

impl BelievedIssuers {
    /// Those of a PEM text. What was issued before `reject_before` counts no more, to the second. Connections of nodes with
    /// other certificates end one after the other `within` this time, as each asks for a certificate then; all others at once.
    ///
    /// # Errors
    /// When it is not PEM.
    pub fn of(
        ca_pem: &str,
        reject_before: Option<Timestamp>,
        within: Duration,
    ) -> Result<BelievedIssuers, TlsError> {
        let certificates = tls::certificates(ca_pem)?;
        let names = certificates.iter().filter_map(|ca| identity::authority_name(ca)).collect();
        Ok(BelievedIssuers { names, reject_before, within })
    }

    fn believes(&self, peer: &CertifiedPeer) -> bool {
        let is_early = self.reject_before.is_some_and(|limit| peer.issued.secs() < limit.secs());
        self.names.contains(&peer.issuer) && !is_early
    }

    /// How long a peer's connection may go on.
    fn grace(&self, peer: &CertifiedPeer) -> Duration {
        match &peer.role {
            PeerRole::Node { hostname, .. } => share(hostname, self.within),
            PeerRole::Operator(_) | PeerRole::Proxy(_) => Duration::ZERO,
        }
    }
}

/// A host's part of a time: those of many hosts are spread over it.
pub fn share(hostname: &Hostname, of: Duration) -> Duration {
    let Digest(digest) = Digest::of(hostname.as_str().as_bytes());
    of.mul_f64(f64::from(u16::from_be_bytes([digest[0], digest[1]])) / f64::from(u16::MAX))
}

impl Revocations {
    fn has(&self, peer: &CertifiedPeer) -> bool {
        match &peer.role {
            PeerRole::Node { hostname, .. } => {
                self.hosts.get(hostname).is_some_and(|not_before| peer.issued.secs() < not_before.secs())
            }
            PeerRole::Operator(_) | PeerRole::Proxy(_) => false,
        }
    }

    /// How long a peer's connection may go on; `None` while its certificate counts.
    fn grace(&self, peer: &CertifiedPeer) -> Option<Duration> {
        if self.has(peer) {
            return Some(Duration::ZERO);
        }
        let issuers = self.issuers.as_ref().filter(|issuers| !issuers.believes(peer))?;
        Some(issuers.grace(peer))
    }
}

impl RevokedCertificates {
    /// These hosts and no others from now on. Connections of theirs that are open end within
    /// [`crate::accept::REVOKED_ENDING`].
    pub fn replace(&self, hosts: BTreeMap<Hostname, Timestamp>) {
        self.0.send_if_modified(|known| {
            let differs = known.hosts != hosts;
            known.hosts = hosts;
            differs
        });
    }

    /// The certificates of these CAs and no others count from now on, on connections that are open.
    pub fn believe(&self, issuers: BelievedIssuers) {
        self.0.send_if_modified(|known| {
            let differs = known.issuers.as_ref() != Some(&issuers);
            known.issuers = Some(issuers);
            differs
        });
    }

    /// Waits until the certificates of these CAs and no others count.
    pub async fn until_believed(&self, issuers: &BelievedIssuers) {
        let mut changes = self.0.subscribe();
        // It cannot end: `self` has the sender.
        let _ = changes.wait_for(|revocations| revocations.issuers.as_ref() == Some(issuers)).await;
    }

    /// Whether a peer's host is revoked. Certificates know whole seconds: one of the same second
    /// counts here, and who is behind it is judged anew by each request.
    pub(crate) fn has(&self, peer: &CertifiedPeer) -> bool {
        self.0.borrow().has(peer)
    }

    /// No host is revoked: no certificate need be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().hosts.is_empty()
    }

    /// Waits until the certificate of a peer counts no more, and its connection is to end.
    pub(crate) async fn until_has(&self, peer: Option<&CertifiedPeer>) {
        let Some(peer) = peer else { return std::future::pending().await };
        let mut changes = self.0.subscribe();
        let found = changes.wait_for(|revocations| revocations.grace(peer).is_some()).await;
        let Some(grace) = found.ok().and_then(|revocations| revocations.grace(peer)) else {
            // It cannot end: `self` has the sender.
            return std::future::pending().await;
        };
        if grace > Duration::ZERO {
            // Boxed: an idle connection holds little, and few wait here.
            let revoked = async { drop(changes.wait_for(|revocations| revocations.has(peer)).await) };
            drop(Box::pin(tokio::time::timeout(grace, revoked)).await);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use trust::SigningKey;

    use super::*;

    #[test]
    fn certificates_of_before_count_no_more() {
        let key = SigningKey::from_seed(&[1; 32]).public();
        let peer = |host: &str, secs| {
            let (id, hostname) = (key.node_id(), host.parse().unwrap());
            let role = PeerRole::Node { id, hostname, key: Box::new(key) };
            CertifiedPeer { role, issued: Timestamp::from_secs(secs), issuer: Digest::ZERO }
        };
        let revoked = RevokedCertificates::default();
        assert!(revoked.is_empty() && !revoked.has(&peer("web-1", 0)));
        revoked.replace(BTreeMap::from([("web-1".parse().unwrap(), Timestamp(100_500))]));
        assert!(revoked.has(&peer("web-1", 99)));
        assert!(!revoked.has(&peer("web-1", 100)) && !revoked.has(&peer("web-2", 99)));
        let role = PeerRole::Proxy("web-1".to_owned());
        let proxy = CertifiedPeer { role, issued: Timestamp(0), issuer: Digest::ZERO };
        assert!(!revoked.has(&proxy));
    }
}
