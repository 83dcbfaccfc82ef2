//! [`RevokedCertificates`]: which certificates of nodes count no more, for handshakes and for open connections (IDN-6).

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Hostname, Timestamp};
use tokio::sync::watch;

use crate::identity::{CertifiedPeer, PeerRole};

/// Hosts, each with the time before which their certificates were issued that count no more. Cheap to clone: all clones
/// are one.
#[derive(Clone, Debug, Default)]
pub struct RevokedCertificates(Arc<watch::Sender<BTreeMap<Hostname, Timestamp>>>);

impl RevokedCertificates {
    /// These hosts and no others from now on. Connections of theirs that are open end within
    /// [`crate::accept::REVOKED_ENDING`].
    pub fn replace(&self, hosts: BTreeMap<Hostname, Timestamp>) {
        self.0.send_if_modified(|known| {
            let differs = *known != hosts;
            *known = hosts;
            differs
        });
    }

    /// Whether the certificate of a peer counts no more. Certificates know whole seconds: one of the same second
    /// counts here, and who is behind it is judged anew by each request.
    pub(crate) fn has(&self, peer: &CertifiedPeer) -> bool {
        is_among(&self.0.borrow(), peer)
    }

    /// Nothing is revoked: no certificate need be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Waits until the certificate of a peer counts no more.
    pub(crate) async fn until_has(&self, peer: Option<&CertifiedPeer>) {
        let Some(peer) = peer.filter(|peer| matches!(peer.role, PeerRole::Node { .. })) else {
            return std::future::pending().await;
        };
        let mut changes = self.0.subscribe();
        if changes.wait_for(|hosts| is_among(hosts, peer)).await.is_err() {
            // It cannot end: `self` has the sender.
            std::future::pending::<()>().await;
        }
    }
}

fn is_among(hosts: &BTreeMap<Hostname, Timestamp>, peer: &CertifiedPeer) -> bool {
    match &peer.role {
        PeerRole::Node { hostname, .. } => {
            hosts.get(hostname).is_some_and(|not_before| peer.issued.secs() < not_before.secs())
        }
        PeerRole::Operator(_) | PeerRole::Proxy(_) => false,
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
            CertifiedPeer { role, issued: Timestamp::from_secs(secs) }
        };
        let revoked = RevokedCertificates::default();
        assert!(revoked.is_empty() && !revoked.has(&peer("web-1", 0)));
        revoked.replace(BTreeMap::from([("web-1".parse().unwrap(), Timestamp(100_500))]));
        assert!(revoked.has(&peer("web-1", 99)));
        assert!(!revoked.has(&peer("web-1", 100)) && !revoked.has(&peer("web-2", 99)));
        let proxy = CertifiedPeer { role: PeerRole::Proxy("web-1".to_owned()), issued: Timestamp(0) };
        assert!(!revoked.has(&proxy));
    }
}
