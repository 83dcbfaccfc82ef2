//! Keeping newer trust documents (IDN-8), and what links verify by them (IDN-9).

use std::sync::Arc;

use net::tasks;
use node::{NodeInput, TrustRecord};
use tokio::sync::watch;
use trust::{FeedOwner, FeedVerifier, TrustDocument};

use super::Daemon;
use crate::events::DaemonEvent;
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
