//! Keeping newer trust documents (IDN-8), and what links verify by them (IDN-9).

use std::sync::Arc;

use model::Digest;
use net::{tasks, trust_links};
use node::{NodeInput, TrustRecord};
use tokio::sync::watch;
use trust::{FeedOwner, FeedVerifier, TrustDocument};

use super::Daemon;
use crate::events::DaemonEvent;
use crate::membership::BelievedAnew;
use crate::render::chain;

/// By which key links believe the control plane's objects and actions.
pub(super) struct ControlPlaneTrust {
    owner: FeedOwner,
    verifier: watch::Sender<Option<Arc<FeedVerifier>>>,
}

impl ControlPlaneTrust {
    /// As a trust document has it, for the feed of this node.
    pub(super) fn of(owner: FeedOwner, trust: &TrustDocument) -> ControlPlaneTrust {
        let trusted = ControlPlaneTrust { owner, verifier: watch::Sender::new(None) };
        trusted.follow(trust);
        trusted
    }

    /// What links go by.
    pub(super) fn verifier(&self) -> watch::Receiver<Option<Arc<FeedVerifier>>> {
        self.verifier.subscribe()
    }

    /// Goes by this trust document from now on.
    pub(super) fn follow(&self, trust: &TrustDocument) {
        let verifier = trust.control_plane.clone().map(|keys| FeedVerifier::new(self.owner.clone(), keys));
        self.verifier.send_if_modified(|now| {
            let changed = now.as_deref() != verifier.as_ref();
            if changed {
                *now = verifier.map(Arc::new);
            }
            changed
        });
    }
}

impl Daemon {
    /// Sessions are opened by what the trust document says of CAs from now on, where that changed. What is open goes on,
    /// unless it may be with somebody who is believed no more: the thief of a CA would keep it open for ever. A
    /// certificate of a CA that counts no more is recovered by the node's key at once.
    pub(super) fn follow_authorities(&mut self) {
        match self.member.believe(self.node.trust().certificate_authority.as_ref()) {
            Ok(None) => return,
            Ok(Some(believed)) => {
                tracing::info!("the control plane is believed by the CAs of the newer trust document");
                match believed {
                    BelievedAnew::More(taken_up) => self.session.renew(taken_up.credentials),
                    BelievedAnew::Less(taken_up) => {
                        self.session.renew(taken_up.credentials);
                        self.session.give_up();
                        self.sync.links.moved();
                    }
                }
            }
            Err(error) => tracing::error!(error = %chain(&error), "the CAs that are believed cannot be used"),
        }
        self.tell_rejected_certificate();
    }

    /// Says so where a CA issued the node's certificate that counts no more.
    pub(super) fn tell_rejected_certificate(&mut self) {
        if !self.member.is_certified() {
            self.take(NodeInput::CertificateRejected);
        }
    }

    /// Asks whoever answers for newer trust documents.
    pub(super) fn fetch_trust_links(&self, after: Digest) {
        let (to, handle) = (self.session.destination(), self.handle.clone());
        tasks::spawn(async move {
            match trust_links::fetch(to, &after).await {
                Ok(answer) if answer.links.is_empty() => {}
                Ok(answer) => handle.send(DaemonEvent::Input(NodeInput::TrustLinks(answer.links))).await,
                Err(error) => tracing::info!(error = %chain(&error), "no newer trust documents are found"),
            }
        });
    }

    pub(super) fn save_trust(&self, record: TrustRecord) {
        let (storage, handle) = (self.storage.clone(), self.handle.clone());
        tasks::spawn(async move {
            let input = match storage.run(move |durable| durable.save_trust(&record)).await {
                Ok(()) => {
                    tracing::info!("a newer trust document is taken up");
                    NodeInput::TrustSaved
                }
                Err(error) => NodeInput::TrustNotSaved(chain(&error)),
            };
            handle.send(DaemonEvent::Input(input)).await;
        });
    }
}
