//! What is said of how an activation stands: to the node, to people at the host, and to the rollout.

use std::sync::atomic::Ordering;

use model::rollout::RolloutEventBody;
use node::{NodeInput, TrialReport, TrialStage};

use super::ActivationSetup;
use super::task::ActivationTask;
use super::view::ActivationView;
use crate::events::DaemonEvent;
use crate::render::chain;

impl ActivationTask {
    /// Says how it stands, and forgets a part that is over.
    pub(super) fn settle(&mut self) {
        let Some(activation) = &self.activation else {
            // A return that ended is told until something else is adopted.
            return self.show_stage(TrialStage::Settled);
        };
        let record = activation.record().clone();
        if self.kept.as_ref().is_some_and(|kept| kept.is_over(&record)) {
            self.kept = None;
            self.keep_rollout();
        }
        let is_at_rest = activation.is_at_rest();
        let stage = TrialStage::in_rollout(&record, self.kept.as_ref());
        if stage != TrialStage::Returning {
            (self.host_is_free, self.back) = (false, None);
        }
        let view = ActivationView::of(&record, &self.boot);
        if stage == TrialStage::Settled && is_at_rest {
            if let Err(error) = self.setup.files.forget_unnamed(&record) {
                tracing::warn!(error = %chain(&error), "generations that nothing needs stay");
            }
            // What is adopted from now on is what the next one begins from.
            self.activation = None;
            self.probes.stop();
        }
        self.show(stage, view);
    }

    pub(super) fn show(&mut self, stage: TrialStage, view: Option<ActivationView>) {
        self.setup.local.set(|state| state.activation = view);
        self.show_stage(stage);
    }

    fn show_stage(&mut self, stage: TrialStage) {
        self.setup.returning.store(stage == TrialStage::Returning, Ordering::Relaxed);
        if self.shown.replace(stage) != Some(stage) {
            let report = TrialReport { stage, heard: self.heard };
            self.setup.daemon.send_blocking(DaemonEvent::Input(NodeInput::Trial(report)));
        }
    }

    /// Events of the rollout that the activation is of.
    pub(super) fn report(&mut self, events: Vec<RolloutEventBody>) {
        if let Some(kept) = &self.kept {
            self.report_of(kept.part.rollout.clone(), events);
        }
    }

    pub(super) fn report_of(&self, rollout: model::rollout::RolloutId, events: Vec<RolloutEventBody>) {
        let ActivationSetup { log, storage, daemon, .. } = &*self.setup;
        let says_more = !events.is_empty();
        for event in events {
            if let Err(error) = log.append_blocking(storage, rollout.clone(), event) {
                // The host is kept without a log (LIF-10).
                tracing::error!(error = %chain(&error), "an event of a rollout could not be recorded");
            }
        }
        if says_more {
            daemon.facts_wait();
        }
    }

    /// Makes durable what is known of the rollout; after its events, so that a crash in between repeats one.
    pub(super) fn keep_rollout(&self) {
        if let Err(error) = self.setup.rollout.store(&self.kept) {
            tracing::warn!(error = %chain(&error), "how far the rollout is cannot be recorded");
        }
    }
}
