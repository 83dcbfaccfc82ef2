//! Keeping newer trust documents (IDN-8).

use net::tasks;
use node::{NodeInput, TrustRecord};

use super::Daemon;
use crate::events::DaemonEvent;
use crate::render::chain;

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
