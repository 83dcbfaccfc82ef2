//! [`Healing`]: when to check a resource that was perhaps changed out of band, and what is contended (CNV-7).
//!
//! ```text
//! event   -> suspect, due after DEBOUNCE, REST since the last check, and its `CorrectionBackoff`
//! due     -> a partial run over all that are due: one at a time, never beside another run
//! report  -> as declared: nothing to report; corrected; failed: due again, ever later
//! lost    -> a scan: all that are watched are suspects; scans one after the other are ever later (`RepeatBackoff`)
//! IMMEDIATE_CORRECTIONS without QUIET between them -> contended: named, and corrected ever less often
//! ```
//!
//! A value: time is an argument. Invariants: a suspect stays one until a run checked it; what a full run
//! begins with is checked by it; no wait is longer than the interval of full runs, which check everything
//! anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use converge::ResourceId;
use model::collect::CollectInserting;
use model::contention::MAX_CONTENTIONS;
use model::sort::SortCompactly;
use model::{Action, Contention, CulpritFinding, RunReport, Timestamp};

use crate::correction_backoff::CorrectionBackoff;
pub use crate::correction_backoff::{
    CONTENDED_WAIT, FAILED_WAIT, IMMEDIATE_CORRECTIONS, OBSERVED_WAIT, QUIET,
};
use crate::repeat_backoff::{RepeatBackoff, doubled};

/// How long after the first event a resource is checked: edits come in several steps.
pub const DEBOUNCE: Duration = Duration::from_millis(150);
/// The least time between two checks of one resource: what changes all the time costs little.
pub const REST: Duration = Duration::from_secs(1);
/// A resource that was corrected so often is worth knowing who changes it.
const CULPRIT_AFTER_CORRECTIONS: u32 = 2;

/// Resources that were perhaps changed out of band: by anything but the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuspectedDrift {
    /// Those that an event was of.
    pub resources: BTreeSet<ResourceId>,
    /// Those that events which were lost may have been of.
    pub after_lost_events: BTreeSet<ResourceId>,
    /// What was found out of who changed a resource.
    pub culprits: BTreeMap<ResourceId, CulpritFinding>,
}

/// Whether a run over suspects is worth a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportDecision {
    /// Everything was as declared, or is as it was reported before.
    Skip,
    /// Something was corrected, failed for the first time, or is changed and only observed.
    Report,
}

/// What a check of a suspect found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckOutcome {
    /// It had been changed out of band, and was put right.
    Corrected,
    /// It is changed, and only observed.
    Observed,
    /// It could not be put right.
    Failed,
    /// It is as declared, its change was intended, or the report names no more than so many.
    AsDeclared,
}

impl CheckOutcome {
    /// What a report says of a resource that it has this action of.
    fn of(action: Option<Action>, report: &RunReport) -> CheckOutcome {
        match action {
            Some(Action::Changed | Action::Deleted) if !report.intended => CheckOutcome::Corrected,
            Some(Action::WouldChange | Action::Unknown) if report.paused.is_none() => CheckOutcome::Observed,
            Some(Action::Failed | Action::Ignored | Action::Restored) => CheckOutcome::Failed,
            _ => CheckOutcome::AsDeclared,
        }
    }
}

/// Suspects, when each is checked, and how often what was corrected of late.
#[derive(Clone, Debug, Default)]
pub struct Healing {
    /// When each is checked.
    suspects: BTreeMap<ResourceId, Timestamp>,
    /// Suspects that the run under way checks.
    checking: BTreeSet<ResourceId>,
    /// When resources were checked, as long as they rest.
    checked: BTreeMap<ResourceId, Timestamp>,
    backoffs: BTreeMap<ResourceId, CorrectionBackoff>,
    /// Resources that only observe and were reported as changed.
    drifting: BTreeSet<ResourceId>,
    /// Runs in a row that could not be made.
    failed_runs: u32,
    /// Until when no run over suspects is tried again.
    held_until: Option<Timestamp>,
    /// When a scan after lost events is due.
    scan: RepeatBackoff,
    /// Scans after events were lost.
    scans: u64,
}

impl Healing {
    /// Resources were perhaps changed, or somebody is known who did. `interval` is that of full runs.
    pub fn suspect(&mut self, drift: SuspectedDrift, now: Timestamp, interval: Duration) {
        for id in drift.resources {
            self.check_later(id, now, now, interval);
        }
        if !drift.after_lost_events.is_empty() {
            let scan = self.scan_due(now, interval);
            for id in drift.after_lost_events {
                self.check_later(id, scan, now, interval);
            }
        }
        for (id, found) in drift.culprits {
            if let Some(backoff) = self.backoffs.get_mut(&id) {
                backoff.name_culprit(found);
            }
        }
    }

    /// To be checked, and not before a time.
    fn check_later(&mut self, id: ResourceId, not_before: Timestamp, now: Timestamp, interval: Duration) {
        let rested = self.checked.get(&id).map_or(now, |checked| checked.plus(REST));
        let due = now.plus(DEBOUNCE).max(rested).max(self.backed_off(&id, now, interval)).max(not_before);
        // What a scan would check later is checked now that an event names it.
        let known = self.suspects.entry(id).or_insert(due);
        *known = due.min(*known);
    }

    /// Until when a resource is backed off: now when it is not.
    fn backed_off(&self, id: &ResourceId, now: Timestamp, interval: Duration) -> Timestamp {
        self.backoffs.get(id).map_or(now, |backoff| backoff.not_before(interval))
    }

    /// Events were lost: when what they may have been of is checked.
    fn scan_due(&mut self, now: Timestamp, interval: Duration) -> Timestamp {
        if self.scan.due().is_none() {
            self.scans += 1;
        }
        self.scan.request(now, interval)
    }

    /// When the next check is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        let first = self.suspects.values().min().copied()?;
        Some(self.held_until.map_or(first, |held| first.max(held)))
    }

    /// When the next contention is over if nothing happens.
    pub fn next_end(&self, interval: Duration) -> Option<Timestamp> {
        let contended = self.backoffs.values().filter(|backoff| backoff.is_contended());
        contended.map(|backoff| backoff.forgotten_at(interval)).min()
    }

    /// A run over what is due begins, and over what is suspected since the same moment: a directory and what
    /// is in it are put right in their order.
    pub fn begin(&mut self, now: Timestamp) -> BTreeSet<ResourceId> {
        let soon = now.plus(DEBOUNCE);
        let waits = |id: &ResourceId| self.backoffs.contains_key(id) || self.checked.contains_key(id);
        let due = |id: &ResourceId, at: Timestamp| at <= now || (at <= soon && !waits(id));
        let due: BTreeSet<ResourceId> = self
            .suspects
            .iter()
            .filter(|(id, at)| due(id, **at))
            .map(|(id, _)| id.clone())
            .collect_inserting();
        self.suspects.retain(|id, _| !due.contains(id));
        if self.scan.due().is_some_and(|due| due <= now) {
            self.scan.done();
        }
        self.checking.clone_from(&due);
        due
    }

    /// A run over everything begins: it checks every suspect.
    pub fn full_run_begins(&mut self) {
        self.scan.done();
        self.checking = std::mem::take(&mut self.suspects).into_keys().collect_inserting();
    }

    /// The run that began last ended with this report.
    pub fn ended(&mut self, report: &RunReport, now: Timestamp, interval: Duration) -> ReportDecision {
        (self.failed_runs, self.held_until) = (0, None);
        let checking = std::mem::take(&mut self.checking);
        let mut decision = decision_by_report(report, &checking);
        self.checked.retain(|_, checked| checked.plus(REST) > now);
        let suspected_meanwhile: Vec<ResourceId> =
            checking.iter().filter(|id| self.suspects.contains_key(*id)).cloned().collect();
        let actions: BTreeMap<&str, Action> =
            report.items.iter().map(|item| (&*item.resource, item.action)).collect_inserting();
        let mut corrected = false;
        for id in checking {
            self.checked.insert(id.clone(), now);
            let action = actions.get(id.as_str()).copied();
            if action != Some(Action::WouldChange) {
                self.drifting.remove(&id);
            }
            let outcome = CheckOutcome::of(action, report);
            corrected |= outcome == CheckOutcome::Corrected;
            decision = decision.max(self.take_outcome(id, outcome, now, interval));
        }
        self.rest_after_run(&suspected_meanwhile, now, interval);
        if corrected {
            self.retry_failed_soon(now);
        }
        decision
    }

    /// Backs a resource off by what its check found. [`ReportDecision::Skip`] for what the report's counts
    /// say anyway, and for what is as it was reported before.
    fn take_outcome(
        &mut self,
        id: ResourceId,
        outcome: CheckOutcome,
        now: Timestamp,
        interval: Duration,
    ) -> ReportDecision {
        match outcome {
            CheckOutcome::Corrected => {
                self.backoff(id, now, interval).corrected(now);
                ReportDecision::Skip
            }
            CheckOutcome::Observed => {
                self.backoff(id.clone(), now, interval).observed(now);
                match self.drifting.insert(id) {
                    true => ReportDecision::Report,
                    false => ReportDecision::Skip,
                }
            }
            CheckOutcome::Failed => {
                let backoff =
                    self.backoffs.entry(id.clone()).or_insert_with(|| CorrectionBackoff::began(now));
                backoff.failed(now);
                let (failures, due) = (backoff.failures(), backoff.not_before(interval));
                self.suspects.insert(id, due);
                match failures {
                    1 => ReportDecision::Report,
                    _ => ReportDecision::Skip,
                }
            }
            CheckOutcome::AsDeclared => {
                if let Some(backoff) = self.backoffs.get_mut(&id) {
                    backoff.as_declared();
                }
                ReportDecision::Skip
            }
        }
    }

    /// What was suspected while the run checked it was often changed by the run itself.
    fn rest_after_run(&mut self, suspected: &[ResourceId], now: Timestamp, interval: Duration) {
        for id in suspected {
            let backed_off = self.backed_off(id, now, interval);
            if let Some(due) = self.suspects.get_mut(id) {
                *due = (*due).max(now.plus(REST)).max(backed_off);
            }
        }
    }

    /// What failed may have failed for what is right now.
    fn retry_failed_soon(&mut self, now: Timestamp) {
        for (id, _) in self.backoffs.iter().filter(|(_, backoff)| backoff.failures() > 0) {
            if let Some(due) = self.suspects.get_mut(id) {
                *due = (*due).min(now.plus(DEBOUNCE));
            }
        }
    }

    /// That of a resource that was changed again; a forgotten one begins anew.
    fn backoff(&mut self, id: ResourceId, now: Timestamp, interval: Duration) -> &mut CorrectionBackoff {
        let backoff = self.backoffs.entry(id).or_insert_with(|| CorrectionBackoff::began(now));
        if now > backoff.forgotten_at(interval) {
            *backoff = CorrectionBackoff::began(now);
        }
        backoff
    }

    /// The run that began last could not be made: its suspects stay suspects, and the next is tried ever
    /// later.
    pub fn failed(&mut self, now: Timestamp, interval: Duration) {
        let wait = doubled(FAILED_WAIT, self.failed_runs).min(interval);
        self.failed_runs = self.failed_runs.saturating_add(1);
        self.held_until = Some(now.plus(wait));
        for id in std::mem::take(&mut self.checking) {
            self.suspects.entry(id).or_insert(now);
        }
    }

    /// Forgets what was quiet for long; says what something else changes again and again, the newest first.
    pub fn contentions(&mut self, now: Timestamp, interval: Duration) -> Vec<Contention> {
        self.backoffs.retain(|_, backoff| now <= backoff.forgotten_at(interval));
        let contended = self.backoffs.iter().filter(|(_, backoff)| backoff.is_contended());
        let mut all: Vec<Contention> =
            contended.map(|(id, backoff)| backoff.contention(id.to_string(), interval)).collect();
        all.sort_compactly_by(|a, b| b.since.cmp(&a.since).then_with(|| a.resource.cmp(&b.resource)));
        all
    }

    /// The resources whose culprits are to be found out.
    pub fn culprits_to_find(&self) -> BTreeSet<ResourceId> {
        let repeated =
            self.backoffs.iter().filter(|(_, backoff)| backoff.corrections() >= CULPRIT_AFTER_CORRECTIONS);
        repeated.map(|(id, _)| id.clone()).take(MAX_CONTENTIONS).collect_inserting()
    }

    /// How often everything that is watched was checked because events were lost.
    pub fn scans(&self) -> u64 {
        self.scans
    }

    /// The clock was set back by so much.
    pub fn set_back(&mut self, back: Duration) {
        let times = self.suspects.values_mut().chain(self.checked.values_mut());
        times.for_each(|at| *at = at.minus(back));
        self.backoffs.values_mut().for_each(|backoff| backoff.set_back(back));
        self.held_until = self.held_until.map(|at| at.minus(back));
        self.scan.set_back(back);
    }
}

/// What a report says by itself: that something was changed, or more than what was checked, which is notified
/// by what was corrected.
fn decision_by_report(report: &RunReport, checking: &BTreeSet<ResourceId>) -> ReportDecision {
    let mut acted = report.items.iter().filter(|item| !matches!(item.action, Action::Ok | Action::Skipped));
    let notified = acted.any(|item| !checking.contains(&ResourceId::from(item.resource.as_str())));
    match notified || report.counts.changed > 0 {
        true => ReportDecision::Report,
        false => ReportDecision::Skip,
    }
}
