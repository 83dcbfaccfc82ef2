//! Runs: one at a time, of the whole held set, of what has a tag, or of what was changed by other hands.
//!
//! ```text
//! due, or somebody asks -> Run(order) -> Ran(report), RunFailed
//!   full     sets when the next one is due, is compared with it, carries a run request out
//!   by tags  ends, and leaves all of that alone
//!   healing  the same (`heal`)
//! ```
//!
//! Invariants: each end of a run leaves none of its kind under way, so that the next one can begin; a run
//! request is carried out only by a full run that may change the host.

use converge::RunScope;
use model::log::FactBody;
use model::{Digest, RunReport, Timestamp};

use super::{Node, inputs_digest};
use crate::io::{NodeEffect, RunOrder};
use crate::state::LastRun;

/// A run under way.
#[derive(Debug)]
pub(super) enum RunUnderWay {
    /// Of all that is held.
    Full {
        inputs: Digest,
        /// The request that it carries out: one that came after it began needs a run of its own.
        run_request: Option<u64>,
    },
    /// Of what has one of the tags asked for.
    ByTags,
    /// Of what may have been changed by other hands.
    Healing,
}

impl RunUnderWay {
    pub(super) fn run_request(&self) -> Option<u64> {
        match self {
            RunUnderWay::Full { run_request, .. } => *run_request,
            RunUnderWay::ByTags | RunUnderWay::Healing => None,
        }
    }
}

impl Node {
    pub(super) fn start_run(&mut self, effects: &mut Vec<NodeEffect>) {
        let Some(adoption) = &self.adoption else { return };
        let inputs = inputs_digest(&adoption.root, &self.traits_that_count());
        let intended = self.last_run.as_ref().is_none_or(|last| last.inputs != inputs);
        let tags = std::mem::take(&mut self.tags_due);
        self.running = Some(if tags.is_empty() {
            self.run_due = false;
            // A run that only observes carries no request out: that waits for the end of the pause.
            let run_request = if self.pause.is_none() { self.run_request.take() } else { None };
            self.healing.full_run_begins();
            RunUnderWay::Full { inputs, run_request }
        } else {
            RunUnderWay::ByTags
        });
        let scope = if tags.is_empty() { RunScope::All } else { RunScope::Tags(tags) };
        self.order_run(scope, intended, effects);
    }

    pub(super) fn order_run(&self, scope: RunScope, intended: bool, effects: &mut Vec<NodeEffect>) {
        let Some(adoption) = &self.adoption else { return };
        let (seq, root, pause) = (adoption.seq, adoption.root, self.pause.clone());
        effects.push(NodeEffect::Run(RunOrder { seq, root, intended, pause, scope }));
    }

    pub(super) fn run_after_answer(&mut self, now: Timestamp) {
        // A full run under way is the one that the answer would lead to.
        let full = matches!(self.running, Some(RunUnderWay::Full { .. }));
        let near = !full && self.next_run <= now.plus(self.settings.policy.converge() / 2);
        let requested = self.run_request.is_some() && self.pause.is_none();
        self.run_due |= (near || requested) && self.adoption.is_some();
    }

    pub(super) fn on_ran(&mut self, report: &RunReport, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        if report.partial.is_some() {
            // It is not the run that was due: the next one is not compared with it.
            let partial = |running: &mut RunUnderWay| !matches!(running, RunUnderWay::Full { .. });
            if matches!(self.running.take_if(partial), Some(RunUnderWay::Healing)) {
                return self.on_healed(report, now, effects);
            }
            if LastRun::partial_is_fact(report) {
                self.append(FactBody::Run(report.clone()), now, effects);
            }
            return;
        }
        let (inputs, run_request) = match self.running.take() {
            Some(RunUnderWay::Full { inputs, run_request }) => (inputs, run_request),
            other => return self.running = other,
        };
        self.next_run = now.plus(self.spread.jitter(self.interval(), self.settings.policy.jitter_percent));
        let interval = self.interval();
        // Its report says all that there is to say.
        let _ = self.healing.ended(report, now, interval);
        if let Some(number) = run_request {
            self.run_confirmed = Some(number);
            self.hurry(now);
        }
        let incarnation = &self.identity.incarnation;
        let written = LastRun::after(self.last_run.as_ref(), inputs, report, incarnation, now);
        self.last_run = Some(written.last.clone());
        if written.fact {
            self.append(FactBody::Run(report.clone()), now, effects);
        }
        if written.save {
            effects.push(NodeEffect::SaveRun(written.last));
        }
    }

    pub(super) fn on_run_failed(&mut self, why: &str, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        match self.running.take() {
            // The full run is due when it was.
            Some(RunUnderWay::ByTags | RunUnderWay::Healing) => {}
            Some(RunUnderWay::Full { run_request, .. }) => {
                self.run_request = self.run_request.or(run_request);
                self.next_run = now.plus(self.interval());
            }
            None => self.next_run = now.plus(self.interval()),
        }
        let interval = self.interval();
        self.healing.failed(now, interval);
        effects.push(NodeEffect::Warn(format!("the run could not be made: {why}")));
    }
}
