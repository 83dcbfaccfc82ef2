//! Runs: one at a time, of the whole held set or of what has a tag.
//!
//! ```text
//! due, or somebody asks -> Run(order) -> Ran(report), RunFailed
//!   full     sets when the next one is due, is compared with it, carries a run request out
//!   by tags  ends, and leaves all of that alone
//! ```
//!
//! Invariants: each end of a run leaves none of its kind under way, so that the next one can begin; a run
//! request is carried out only by a full run that may change the host.

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
}

impl RunUnderWay {
    pub(super) fn run_request(&self) -> Option<u64> {
        match self {
            RunUnderWay::Full { run_request, .. } => *run_request,
            RunUnderWay::ByTags => None,
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
            RunUnderWay::Full { inputs, run_request }
        } else {
            RunUnderWay::ByTags
        });
        let pause = self.pause.clone();
        effects.push(NodeEffect::Run(RunOrder {
            seq: adoption.seq,
            root: adoption.root,
            intended,
            pause,
            tags,
        }));
    }

    pub(super) fn run_after_answer(&mut self, now: Timestamp) {
        // A full run under way is the one that the answer would lead to.
        let full = matches!(self.running, Some(RunUnderWay::Full { .. }));
        let near = !full && self.next_run <= now.plus(self.policy.converge() / 2);
        let requested = self.run_request.is_some() && self.pause.is_none();
        self.run_due |= (near || requested) && self.adoption.is_some();
    }

    pub(super) fn on_ran(&mut self, report: &RunReport, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        if report.partial.is_some() {
            // It is not the run that was due: the next one is not compared with it.
            self.running.take_if(|running| matches!(running, RunUnderWay::ByTags));
            if LastRun::partial_is_fact(report) {
                self.append(FactBody::Run(report.clone()), now, effects);
            }
            return;
        }
        let (inputs, run_request) = match self.running.take() {
            Some(RunUnderWay::Full { inputs, run_request }) => (inputs, run_request),
            other => return self.running = other,
        };
        self.next_run = now.plus(self.spread.jitter(self.interval(), self.policy.jitter_percent));
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
            Some(RunUnderWay::ByTags) => {}
            Some(RunUnderWay::Full { run_request, .. }) => {
                self.run_request = self.run_request.or(run_request);
                self.next_run = now.plus(self.interval());
            }
            None => self.next_run = now.plus(self.interval()),
        }
        effects.push(NodeEffect::Warn(format!("the run could not be made: {why}")));
    }
}
