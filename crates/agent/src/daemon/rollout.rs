//! The daemon's end of rollouts: what decides of a release when it is begun, and what the node says to a dispatch (ROL-5).

use activation::GenerationId;
use model::rollout::{RolloutEventBody, RolloutId};
use net::tasks;
use node::{Adoption, NodeInput};

use super::Daemon;
use crate::events::DaemonEvent;
use crate::render::chain;

impl Daemon {
    /// Reads what of a release decides when and how it is activated.
    pub(super) fn prepare(&self, adoption: Adoption) {
        let (storage, handle, setup) =
            (self.storage.clone(), self.handle.clone(), self.activations.setup().clone());
        tasks::spawn(async move {
            let prepared = storage.run(move |durable| {
                let quarantined = setup.files.quarantined(GenerationId(adoption.root))?;
                durable.prepared(&adoption, quarantined)
            });
            let prepared = prepared.await;
            let prepared = prepared.map(Box::new).map_err(|error| chain(&error));
            handle.send(DaemonEvent::Input(NodeInput::Prepared(prepared))).await;
        });
    }

    /// Answers a dispatch, by a fact of the log.
    pub(super) fn report_dispatch(&self, rollout: RolloutId, event: RolloutEventBody) {
        let (storage, handle, log) =
            (self.storage.clone(), self.handle.clone(), self.activations.log().clone());
        tasks::spawn(async move {
            let input = match log.append(&storage, rollout.clone(), event).await {
                Ok(at) => NodeInput::DispatchReported(rollout, at),
                Err(error) => {
                    tracing::error!(error = %chain(&error), "an answer to a dispatch could not be recorded");
                    NodeInput::DispatchNotReported(rollout)
                }
            };
            handle.send(DaemonEvent::Input(input)).await;
        });
    }
}
