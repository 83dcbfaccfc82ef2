//! [`Activation`]: the step. Which stage follows which is a table in the crate's documentation.

mod failed_effect;
mod start;
mod trial;
mod way_back;

use std::time::Duration;

use model::health_probe::ProbeTopology;

use self::failed_effect::LastStep;
use crate::boot::{BootId, BootTime};
use crate::generation::{GenerationId, GenerationLimits};
use crate::io::{ActivationEffect, ActivationFact, ActivationInput};
use crate::probe_results::{HealthProbeOutcome, HealthProbeResult, ProbeFailure, ProbeNews, ProbeResults};
use crate::record::{ActivationRecord, ActivationStage, ReturnCause, bounded};
use crate::terms::AfterConfirm;

/// How soon something is made durable again that could not be.
pub const PERSIST_RETRY: Duration = Duration::from_secs(5);
/// How soon a return is tried again that failed.
pub const RETURN_RETRY: Duration = Duration::from_secs(30);

/// Why an [`Activation`] wants to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationDeadline {
    /// The switch, the window or a return has no more time.
    Overdue,
    /// A try to confirm may be made.
    Try,
    /// A probe has gone on failing for as long as it may.
    ProbeFailed,
    /// What failed is tried again.
    Retry,
}

/// What is tried again.
#[derive(Clone, Debug)]
enum RetriedStep {
    Input(Box<ActivationInput>),
    Return,
    /// The host leaves a generation that is confirmed.
    Leave(ReturnCause),
}

/// Activations of one host, as one process goes on with them.
#[derive(Debug)]
pub struct Activation {
    record: ActivationRecord,
    boot: BootId,
    limits: GenerationLimits,
    results: Option<ProbeResults>,
    /// What says that a release works whose content is confirmed already, or waits for its boot; its switch is under way.
    renumbered: Option<(GenerationId, ProbeTopology)>,
    /// That a confirmed generation fails was told.
    failure_told: bool,
    /// Why the last return failed, which was told.
    return_failure: Option<String>,
    /// Why something could not be made durable, which was told.
    persist_failure: Option<String>,
    last: Option<LastStep>,
    retry: Option<(BootTime, RetriedStep)>,
    /// When what counts is written again: what is durable may be a record that was given up.
    rewrite: Option<BootTime>,
}

impl Activation {
    /// What is durable, once the effects so far were carried out.
    pub fn record(&self) -> &ActivationRecord {
        &self.record
    }

    /// Every enforcing probe was asked since the generation was activated, and passed the last time.
    pub fn probes_pass(&self) -> bool {
        self.results.as_ref().is_some_and(ProbeResults::all_pass)
    }

    /// What the probes that are asked came to last, by their names; nothing of one that has not answered yet.
    pub fn probe_outcomes(&self) -> impl Iterator<Item = (&str, &HealthProbeOutcome)> {
        self.results.iter().flat_map(ProbeResults::outcomes)
    }

    /// Why the confirmed generation fails and stays, where that was told and goes on.
    pub fn told_failure(&self, now: BootTime) -> Option<ProbeFailure> {
        self.results.as_ref().filter(|_| self.failure_told)?.sustained_failure(now)
    }

    /// Nothing is under way, and what is durable says so: whoever drives this may let go of it once all effects were
    /// carried out.
    pub fn is_at_rest(&self) -> bool {
        self.record.under_way == ActivationStage::Settled && self.rewrite.is_none() && self.retry.is_none()
    }

    /// Takes an input in; gives what the shell does next, of which at most one is [`ActivationEffect::Persist`]. All of
    /// it is carried out, or what failed is given as an input, before anything else is given.
    pub fn handle(&mut self, input: ActivationInput, now: BootTime) -> Vec<ActivationEffect> {
        let last = self.last.take();
        if let Some(last) = &last
            && !matches!(input, ActivationInput::NotPersisted { .. } | ActivationInput::NotArmed { .. })
        {
            self.carried_out(last);
        }
        match input {
            ActivationInput::Activate(order) => self.activate(*order, now),
            ActivationInput::Switched { target, end } => self.switched(target, end, now),
            ActivationInput::Probe(result) => self.probed(&result, now),
            ActivationInput::ConfirmAnswered { generation, boot } => {
                self.confirm_answered(generation, boot, now)
            }
            ActivationInput::TryFailed { reason } => self.try_failed(&reason),
            ActivationInput::NotStartedAnew { reason } => self.not_started_anew(&reason, now),
            ActivationInput::Halted(generation) => self.halted(generation, now),
            ActivationInput::RolloutEnded(generation) => self.rollout_ended(generation),
            ActivationInput::LiftQuarantine(release) => self.lift_quarantine(release),
            ActivationInput::Returned => self.returned(now),
            ActivationInput::ReturnFailed { reason } => self.return_failed(&reason, now),
            ActivationInput::NotPersisted { reason } => self.not_persisted(last, &reason, now),
            ActivationInput::NotArmed { reason } => self.not_armed(last, &reason, now),
            ActivationInput::Measured { generation, bytes } => self.measured(generation, bytes),
            ActivationInput::Tick => self.tick(now),
        }
    }

    /// When to be called next at the latest, and why; a time that is over means at once.
    pub fn next_deadline(&self) -> Option<(BootTime, ActivationDeadline)> {
        let failure = self.results.as_ref().and_then(ProbeResults::next_failure);
        let failure = failure.filter(|_| !self.failure_told).map(|at| (at, ActivationDeadline::ProbeFailed));
        let retry = self.retry.as_ref().map(|(at, _)| (*at, ActivationDeadline::Retry));
        let rewrite = self.rewrite.map(|at| (at, ActivationDeadline::Retry));
        let overdue = match &self.record.under_way {
            ActivationStage::Armed(trial) | ActivationStage::Confirming(trial) => Some(trial.deadline),
            // What is tried again anyway comes before.
            ActivationStage::Returning(back) => Some(back.deadline).filter(|_| self.retry.is_none()),
            ActivationStage::Settled | ActivationStage::Deferred(_) | ActivationStage::Probation(_) => None,
        };
        let overdue = overdue.map(|at| (at, ActivationDeadline::Overdue));
        let next_try = self.next_try().map(|at| (at, ActivationDeadline::Try));
        [failure, retry, rewrite, overdue, next_try].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    fn tick(&mut self, now: BootTime) -> Vec<ActivationEffect> {
        if let Some((_, step)) = self.retry.take_if(|(at, _)| *at <= now) {
            return match step {
                RetriedStep::Input(input) => self.handle(*input, now),
                RetriedStep::Return => self.return_again(now),
                RetriedStep::Leave(cause) => self.go_back(cause, now),
            };
        }
        if self.rewrite.take_if(|at| *at <= now).is_some() {
            return self.write_again();
        }
        match &self.record.under_way {
            ActivationStage::Armed(trial) if trial.deadline <= now => self.overdue(now),
            ActivationStage::Returning(back) if back.deadline <= now && self.retry.is_none() => {
                self.return_again(now)
            }
            ActivationStage::Confirming(_) => self.confirming(now),
            ActivationStage::Probation(_) => self.on_probation(now),
            ActivationStage::Settled => self.on_settled(now),
            _ => Vec::new(),
        }
    }

    /// A release with the content that is confirmed: there is nothing to go back to where its probes go on failing.
    fn on_settled(&mut self, now: BootTime) -> Vec<ActivationEffect> {
        let failed = self.results.as_ref().and_then(|results| results.sustained_failure(now));
        let Some(failure) = failed.filter(|_| !self.failure_told) else { return Vec::new() };
        self.failure_told = true;
        let generation = self.record.confirmed.id;
        vec![ActivationEffect::Report(ActivationFact::FailedAfterConfirm { generation, failure })]
    }

    /// What follows a result; what the time brings is the next tick's.
    fn probed(&mut self, result: &HealthProbeResult, now: BootTime) -> Vec<ActivationEffect> {
        let Some(results) = &mut self.results else { return Vec::new() };
        // What counts for nothing is of a process or a time before, and nothing went wrong.
        let news = results.take(result, now).unwrap_or_default();
        let facts = news.into_iter().map(|news| match news {
            ProbeNews::Outcome => ActivationFact::ProbeResult {
                generation: result.generation,
                boot: result.boot.clone(),
                probe: result.probe.clone(),
                outcome: result.outcome.clone().bounded(),
            },
            ProbeNews::FailsSince(since_millis) => ActivationFact::ProbeFailureFirst {
                generation: result.generation,
                probe: result.probe.clone(),
                since_millis,
            },
        });
        facts.map(ActivationEffect::Report).collect()
    }

    /// Asks the probes of a generation, whose results count from now on.
    fn ask_probes(
        &mut self,
        generation: GenerationId,
        probes: &ProbeTopology,
        switched: BootTime,
        now: BootTime,
    ) -> ActivationEffect {
        self.results = Some(ProbeResults::begin(probes, generation, &self.boot, switched, now));
        self.failure_told = false;
        let (boot, probes) = (self.boot.clone(), probes.clone());
        ActivationEffect::StartProbes { generation, boot, probes }
    }

    fn on_probation(&mut self, now: BootTime) -> Vec<ActivationEffect> {
        let ActivationStage::Probation(probation) = &self.record.under_way else { return Vec::new() };
        let failed = self.results.as_ref().and_then(|results| results.sustained_failure(now));
        let Some(failure) = failed else { return Vec::new() };
        match probation.terms.after_confirm {
            AfterConfirm::Return => self.go_back(ReturnCause::ProbeFailed(failure), now),
            AfterConfirm::Stay if self.failure_told => Vec::new(),
            AfterConfirm::Stay => {
                self.failure_told = true;
                let generation = self.record.confirmed.id;
                vec![ActivationEffect::Report(ActivationFact::FailedAfterConfirm { generation, failure })]
            }
        }
    }

    /// What is too much with that goes, where nothing needs it.
    fn measured(&mut self, id: GenerationId, bytes: u64) -> Vec<ActivationEffect> {
        let before = self.record.clone();
        // What goes for want of room goes by what is kept; what is let in goes by its contents alone, or a release that fits
        // would be refused for the trees of the one before.
        for generation in &mut self.record.kept {
            if generation.id == id {
                generation.bytes = bytes;
            }
        }
        if self.record == before {
            return Vec::new();
        }
        let then = forgetting(self.forget_what_is_too_much()).into_iter().collect();
        self.durable_or_restored(before, then)
    }

    /// Whatever is under way goes on as it does.
    fn lift_quarantine(&mut self, release: u64) -> Vec<ActivationEffect> {
        let before = self.record.clone();
        match self.record.quarantine.lift_release(release).is_empty() {
            true => Vec::new(),
            false => self.durable_or_restored(before, Vec::new()),
        }
    }

    /// What nothing needs goes where there is too much of it.
    fn forget_what_is_too_much(&mut self) -> Vec<GenerationId> {
        let needed = self.record.needed();
        self.limits.forget(&mut self.record.kept, &needed)
    }
}

fn forgetting(ids: Vec<GenerationId>) -> Option<ActivationEffect> {
    (!ids.is_empty()).then_some(ActivationEffect::Forget(ids))
}
