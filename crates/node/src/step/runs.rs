//! Runs: one at a time, of the whole held set, of what has a tag, or of what was changed out of band.
//!
//! ```text
//! due, or somebody asks -> Run(order) -> Ran(report), RunFailed
//!   RunFailed: said in check-ins until a full run is made; what is gone of the release is fetched or written again
//!   full     sets when the next one is due, is compared with it, carries requests of operators out
//!   by tags  ends, and leaves all of that alone, but for the request that it carries out
//!   healing  leaves all of it alone (`heal`)
//! ```
//!
//! Invariants: each end of a run leaves none of its kind under way, so that the next one can begin; what
//! somebody at the host asks for by tag, and what an operator requests, are runs of their own.

use std::collections::BTreeSet;

use converge::RunScope;
use model::log::FactBody;
use model::{Digest, RunReport, Timestamp, UnmadeRun, UnmadeRunCause};

use super::requests::RequestNumbers;
use super::{Node, inputs_digest};
use crate::io::{NodeEffect, RunFailure, RunOrder};
use crate::reported_contentions::ReportedContentions;
use crate::state::LastRun;

/// A run under way.
#[derive(Debug)]
pub(super) enum RunUnderWay {
    /// Of all that is held.
    Full {
        /// When it began.
        began: Timestamp,
        inputs: Digest,
        /// The requests that it carries out: one that came after it began needs a run of its own.
        requests: RequestNumbers,
    },
    /// Of what has one of the tags asked for; the request that it carries out.
    ByTags(RequestNumbers),
    /// Of what were perhaps changed out of band.
    Healing,
}

impl RunUnderWay {
    pub(super) fn requests(&self) -> RequestNumbers {
        match self {
            RunUnderWay::Full { requests, .. } | RunUnderWay::ByTags(requests) => *requests,
            RunUnderWay::Healing => RequestNumbers::default(),
        }
    }
}

impl Node {
    pub(super) fn start_run(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        let Some((inputs, intended)) = self.inputs_of_run() else { return };
        self.run_due = false;
        // A run that only observes carries no request out: that waits for the end of the pause.
        let (requests, tagged) = match self.pause_of_run() {
            None => self.requests.begin_full(),
            Some(_) => Default::default(),
        };
        self.healing.full_run_begins();
        self.running = Some(RunUnderWay::Full { began: now, inputs, requests });
        let tags = tagged.map(|run| run.tags).unwrap_or_default();
        self.order_run(RunScope::All, tags, intended, effects);
    }

    /// What somebody at the host asks for comes first: an unknown tag fails that run, and no other.
    pub(super) fn start_run_by_tag(&mut self, effects: &mut Vec<NodeEffect>) {
        let Some((_, intended)) = self.inputs_of_run() else { return };
        let asked = std::mem::take(&mut self.tags_due);
        let (requests, scope, requested) = match asked.is_empty() {
            false => (RequestNumbers::default(), asked, BTreeSet::new()),
            true => match self.requests.begin_tagged() {
                Some((requests, run)) => (requests, run.tags.clone(), run.tags),
                None => return,
            },
        };
        self.running = Some(RunUnderWay::ByTags(requests));
        self.order_run(RunScope::Tags(scope), requested, intended, effects);
    }

    /// What a run binds now, and whether that is other than what the last one bound.
    fn inputs_of_run(&self) -> Option<(Digest, bool)> {
        let adoption = self.adoption.as_ref()?;
        let inputs = inputs_digest(&adoption.root, &self.traits_that_count());
        Some((inputs, self.last_run.as_ref().is_none_or(|last| last.inputs != inputs)))
    }

    pub(super) fn order_run(
        &self,
        scope: RunScope,
        requested_tags: BTreeSet<String>,
        intended: bool,
        effects: &mut Vec<NodeEffect>,
    ) {
        let Some(adoption) = &self.adoption else { return };
        let (seq, root, pause) = (adoption.seq, adoption.root, self.pause_of_run());
        let unfinished = self.last_run.as_ref().map(|last| last.unfinished.clone()).unwrap_or_default();
        let order = RunOrder { seq, root, intended, unfinished, pause, scope, requested_tags };
        effects.push(NodeEffect::Run(order));
    }

    pub(super) fn run_after_answer(&mut self, now: Timestamp) {
        // A full run under way is the one that the answer would lead to.
        let full = matches!(self.running, Some(RunUnderWay::Full { .. }));
        let near = !full && self.next_run <= now.plus(self.settings.policy.converge() / 2);
        let requested = self.requests.wants_full() && self.pause.is_none();
        self.run_due |= (near || requested) && self.adoption.is_some();
    }

    pub(super) fn on_ran(&mut self, report: &RunReport, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        self.recorded_again = false;
        if report.partial.is_some() {
            // It is not the run that was due: the next one is not compared with it.
            let partial = |running: &mut RunUnderWay| !matches!(running, RunUnderWay::Full { .. });
            let requests = match self.running.take_if(partial) {
                Some(RunUnderWay::Healing) => return self.on_healed(report, now, effects),
                ended => ended.map(|ended| ended.requests()).unwrap_or_default(),
            };
            if LastRun::partial_is_fact(report) {
                self.append_partial(report, now, effects);
            } else if requests != RequestNumbers::default() {
                // Who requested it reads what it came to; it says nothing that a full run would have to take back.
                self.append(FactBody::Run(report.clone()), now, effects);
            }
            self.confirm(requests, now);
            return;
        }
        let (inputs, requests) = match self.running.take() {
            Some(RunUnderWay::Full { inputs, requests, .. }) => (inputs, requests),
            other => return self.running = other,
        };
        self.next_run = now.plus(self.spread.jitter(self.interval(), self.settings.policy.jitter_percent));
        let interval = self.interval();
        // Its report says all that there is to say.
        let _ = self.healing.ended(report, now, interval);
        self.confirm(requests, now);
        self.switch_ran(report, effects);
        if self.unmade.take().is_some() {
            self.say_soon(now);
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

    /// Reports a partial run.
    pub(super) fn append_partial(
        &mut self,
        report: &RunReport,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) {
        self.report_next_run(effects);
        self.append(FactBody::Run(report.clone()), now, effects);
    }

    fn confirm(&mut self, requests: RequestNumbers, now: Timestamp) {
        if self.requests.carried_out(requests) {
            self.hurry(now);
        }
    }

    /// Since when a full run has been under way.
    pub fn running_since(&self) -> Option<Timestamp> {
        match self.running {
            Some(RunUnderWay::Full { began, .. }) => Some(began),
            _ => None,
        }
    }

    /// Why no run can be made; `None` while runs are made.
    pub fn unmade_run(&self) -> Option<&UnmadeRun> {
        self.unmade.as_ref()
    }

    pub(super) fn on_run_failed(
        &mut self,
        failure: &RunFailure,
        now: Timestamp,
        effects: &mut Vec<NodeEffect>,
    ) {
        let ended = self.running.take();
        if let Some(ended) = &ended {
            self.requests.failed(ended.requests());
        }
        // After a partial one the full run is due when it was.
        if matches!(ended, None | Some(RunUnderWay::Full { .. })) {
            self.switch_run_failed(failure, effects);
            self.next_run = now.plus(self.interval());
        }
        // One by tag checks no suspect and has no tag in common with what is due: its failure says nothing of both.
        if !matches!(ended, Some(RunUnderWay::ByTags(_))) {
            let interval = self.interval();
            self.healing.failed(now, interval);
            self.note_unmade(failure, now);
        }
        effects.push(NodeEffect::Warn(format!("the run could not be made: {}", failure.reason)));
        match failure.cause {
            UnmadeRunCause::MissingContent => self.on_content_missing(now),
            UnmadeRunCause::ReleaseLost => self.record_release_again(effects),
            UnmadeRunCause::State | UnmadeRunCause::Other => {}
        }
    }

    /// The next check-in, soon, says why no run can be made, and each one after it while that is so.
    fn note_unmade(&mut self, failure: &RunFailure, now: Timestamp) {
        let since = self.unmade.as_ref().map_or(now, |unmade| unmade.since);
        let unmade = UnmadeRun::new(since, failure.cause, &failure.reason);
        if self.unmade.as_ref() != Some(&unmade) {
            self.unmade = Some(unmade);
            self.say_soon(now);
        }
    }

    pub(super) fn say_soon(&mut self, now: Timestamp) {
        self.contact_pending = true;
        if self.failures == 0 {
            self.deliver_soon(now);
        }
    }

    /// The next full run is reported whatever it comes to: the report of the last one is not in the log, or
    /// that of a partial run said something else since, which only a full one takes back (CNV-3).
    pub(super) fn report_next_run(&mut self, effects: &mut Vec<NodeEffect>) {
        if let Some(last) = self.last_run.take() {
            effects.push(NodeEffect::SaveRun(self.last_run.insert(last.unreported()).clone()));
        }
    }

    /// The control plane knows nothing of what was reported before.
    pub(super) fn report_anew(&mut self, effects: &mut Vec<NodeEffect>) {
        if self.last_run.as_ref().is_some_and(|last| last.incarnation.is_some()) {
            self.report_next_run(effects);
            self.reported_contentions = ReportedContentions::default();
            self.refused = None;
        }
    }
}
