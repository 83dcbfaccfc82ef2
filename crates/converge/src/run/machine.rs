//! [`Run`] itself: which module may go on, which jobs are out, when all is done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use catalog::types::is_switched_whole;
use model::collect::CollectInserting;
use model::report::MAX_UNSWITCHED;
use model::{Digest, RunReport, Timestamp};

use super::condition::is_of_host;
use super::module::{ModulePhase, ModuleProgress};
use super::removal::Removal;
use super::replace::replaces_own;
use super::report::ItemCollector;
use super::together::Transaction;
use super::{
    FinishedRun, Job, JobId, JobOutcome, JobWork, Pending, Record, RunMode, RunOptions, RunScope, TakeBack,
};
use crate::{BoundResource, Desired, Ledger, LedgerEntry, ResourceId};

/// One run over a desired state. Feed it: [`Run::ready`] for jobs, [`Run::done`] for each
/// outcome, until [`Run::finish`] yields. Dropping it loses nothing that is owed.
#[derive(Debug)]
pub struct Run {
    pub(super) desired: Desired,
    pub(super) mode: RunMode,
    pub(super) ledger: Ledger,
    pub(super) pending: Pending,
    pub(super) modules: Vec<ModuleProgress>,
    pub(super) report: ItemCollector,
    pub(super) prediction: Prediction,
    pub(super) now: Timestamp,
    /// `pending` differs from what the last record says.
    pub(super) dirty: bool,
    /// Ledger entries for the next record.
    pub(super) put: BTreeMap<ResourceId, LedgerEntry>,
    pub(super) forget: BTreeSet<ResourceId>,
    options: RunOptions,
    generation: u64,
    /// Modules that nothing holds back and that have not begun.
    startable: BTreeSet<usize>,
    /// Modules that have begun and can take a step.
    pub(super) moving: VecDeque<usize>,
    /// Modules that have gathered what is applied together.
    pub(super) parked: BTreeSet<usize>,
    /// Modules whose wait is over, and that may go on.
    resuming: VecDeque<usize>,
    /// Modules that have begun and do not wait for time to pass.
    running: usize,
    jobs: BTreeMap<JobId, JobTarget>,
    next_job: u64,
    pub(super) removal: Removal,
    finished: bool,
}

/// Whom a job's outcome goes to.
#[derive(Debug)]
enum JobTarget {
    Module(usize),
    /// A module that lets time pass; meanwhile another one may run.
    WaitingModule(usize),
    /// Every module that has a resource in it.
    Transaction(Transaction),
    Removal,
}

/// What the host would be like if what only observes had been applied (CNV-6).
#[derive(Debug, Default)]
pub(super) struct Prediction {
    pub(super) notified: BTreeMap<ResourceId, BTreeSet<ResourceId>>,
    /// What would be at a path.
    pub(super) paths: BTreeMap<String, PredictedPath>,
}

/// What would be at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PredictedPath {
    Nothing,
    Directory,
    Other,
}

impl Run {
    /// A run over `desired`, with what the ledger knows and what earlier runs still owe.
    pub fn new(
        desired: Desired,
        mut ledger: Ledger,
        pending: Pending,
        mode: RunMode,
        options: RunOptions,
    ) -> Run {
        options.taken_back.claim(&mut ledger);
        let modules = ModuleProgress::all(&desired);
        let startable = (0..modules.len()).filter(|m| modules[*m].blockers == 0).collect_inserting();
        let removal = Removal::new(&desired, &ledger, &options.scope, options.taken_back);
        let mut run = Run {
            mode,
            ledger,
            pending,
            modules,
            report: ItemCollector::default(),
            prediction: Prediction::default(),
            now: options.started,
            dirty: false,
            put: BTreeMap::new(),
            forget: BTreeSet::new(),
            options,
            generation: 0,
            startable,
            moving: VecDeque::new(),
            parked: BTreeSet::new(),
            resuming: VecDeque::new(),
            running: 0,
            jobs: BTreeMap::new(),
            next_job: 0,
            removal,
            finished: false,
            desired,
        };
        run.report.counts.modules = u32::try_from(run.desired.modules.len()).unwrap_or(u32::MAX);
        run.let_own_be_replaced();
        if mode == RunMode::Apply {
            run.drop_debts_of_the_gone();
            run.follow_moved();
        }
        run
    }

    /// The jobs that may start now, each handed out once. None means: wait for an outcome,
    /// or, with none outstanding, [`Run::finish`].
    pub fn ready(&mut self, now: Timestamp) -> Vec<Job> {
        self.now = self.now.max(now);
        let mut jobs = Vec::new();
        loop {
            while self.running < self.options.max_parallel.max(1) {
                let next = self.resuming.pop_front().or_else(|| self.startable.pop_first());
                let Some(m) = next else { break };
                self.running += 1;
                self.moving.push_back(m);
            }
            let Some(m) = self.moving.pop_front() else { break };
            match self.step(m) {
                Some(work @ JobWork::Wait { .. }) => {
                    self.running -= 1;
                    jobs.push(self.issue(JobTarget::WaitingModule(m), work));
                }
                Some(work) => jobs.push(self.issue(JobTarget::Module(m), work)),
                None if matches!(self.modules[m].phase, ModulePhase::Together(_)) => {
                    self.parked.insert(m);
                }
                None => self.module_is_done(m),
            }
        }
        if !self.jobs.values().any(|target| matches!(target, JobTarget::Transaction(_)))
            && let Some((transaction, work)) = self.transaction()
        {
            jobs.push(self.issue(JobTarget::Transaction(transaction), work));
        }
        if self.modules_are_done()
            && self.jobs.is_empty()
            && let Some(work) = self.remove_next()
        {
            jobs.push(self.issue(JobTarget::Removal, work));
        }
        jobs
    }

    /// Takes in what came of a job. An unknown job, or one answered twice, is ignored.
    pub fn done(&mut self, id: JobId, outcome: JobOutcome, now: Timestamp) {
        self.now = self.now.max(now);
        match self.jobs.remove(&id) {
            Some(JobTarget::Module(m)) => {
                self.settle(m, outcome);
                self.moving.push_back(m);
            }
            Some(JobTarget::WaitingModule(m)) => {
                self.settle(m, outcome);
                self.resuming.push_back(m);
            }
            Some(JobTarget::Transaction(transaction)) => self.settle_transaction(transaction, outcome),
            Some(JobTarget::Removal) => self.removed(outcome),
            None => {}
        }
    }

    /// The result, once, when nothing is left to do and no job is out.
    pub fn finish(&mut self) -> Option<FinishedRun> {
        let over = self.modules_are_done() && self.jobs.is_empty() && self.removal.is_over();
        if self.finished || !over {
            return None;
        }
        self.finished = true;
        let unswitched = self.unswitched();
        let (counts, items) = std::mem::take(&mut self.report).finish();
        let duration = self.now.since(self.options.started);
        let report = RunReport {
            started: self.options.started,
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            seq: self.options.seq,
            root: self.options.root,
            intended: self.options.intended,
            paused: None,
            partial: self.options.scope.partial(),
            unknown_tags: Vec::new(),
            unswitched,
            counts,
            items,
        };
        let (ledger, pending) = (std::mem::take(&mut self.ledger), std::mem::take(&mut self.pending));
        Some(FinishedRun { report, ledger, pending })
    }

    /// What is switched as a whole, and is not as declared, or is still there.
    fn unswitched(&mut self) -> Vec<String> {
        if self.mode == RunMode::Plan {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (m, module) in self.desired.modules.iter().enumerate() {
            let failed = self.modules[m].resources_failed();
            let parts = failed.filter_map(|slot| module.resources.get(slot));
            let parts = parts.filter(|resource| is_switched_whole(&resource.kind));
            found.extend(parts.map(|resource| resource.id.as_str().to_owned()));
        }
        found.extend(self.removal.unswitched());
        found.truncate(MAX_UNSWITCHED);
        found
    }

    pub(super) fn resource(&self, m: usize, slot: usize) -> &Arc<BoundResource> {
        let module = &self.desired.modules[m];
        match slot.checked_sub(module.resources.len()) {
            None => &module.resources[slot],
            Some(handler) => &module.handlers[handler],
        }
    }

    /// A record of everything that is not written yet; empty when all is.
    pub(super) fn record(&mut self) -> Record {
        let mut record = Record {
            put: std::mem::take(&mut self.put).into_iter().collect(),
            remove: std::mem::take(&mut self.forget).into_iter().collect(),
            ..Record::default()
        };
        if std::mem::take(&mut self.dirty) {
            record.pending = Some(self.pending.clone());
        }
        if !record.is_empty() {
            self.generation += 1;
            record.generation = self.generation;
        }
        record
    }

    pub(super) fn root(&self) -> Digest {
        self.options.root
    }

    pub(super) fn taken_back(&self) -> TakeBack {
        self.options.taken_back
    }

    pub(super) fn east_secs(&self) -> i32 {
        self.options.east_secs
    }

    pub(super) fn scope(&self) -> &RunScope {
        &self.options.scope
    }

    pub(super) fn removal(&mut self) -> &mut Removal {
        &mut self.removal
    }

    fn issue(&mut self, task: JobTarget, what: JobWork) -> Job {
        debug_assert!(!matches!(&what, JobWork::Probe(probe) if !is_of_host(probe)));
        self.next_job += 1;
        let id = JobId(self.next_job);
        self.jobs.insert(id, task);
        Job { id, what }
    }

    fn modules_are_done(&self) -> bool {
        self.running == 0 && self.startable.is_empty() && self.moving.is_empty() && self.resuming.is_empty()
    }

    fn module_is_done(&mut self, m: usize) {
        self.running -= 1;
        for later in std::mem::take(&mut self.modules[m].dependents) {
            let blockers = &mut self.modules[later].blockers;
            *blockers -= 1;
            if *blockers == 0 {
                self.startable.insert(later);
            }
        }
    }

    /// Debts to resources and modules that left the set, or no longer verify.
    fn drop_debts_of_the_gone(&mut self) {
        let known = |id: &ResourceId| {
            let unnamed =
                |module: &str| self.desired.modules.iter().any(|bound| bound.unnamed && bound.name == module);
            self.desired.index.contains_key(id) || unnamed(id.module())
        };
        let before = (self.pending.notified.len(), self.pending.unverified.len());
        let mut pending = std::mem::take(&mut self.pending);
        pending.notified.retain(|target, _| known(target));
        pending.unverified.retain(|name, _| {
            let module = self.desired.modules.iter().find(|module| module.name == *name);
            module.is_some_and(|module| module.verify.is_some() || module.error.is_some())
        });
        self.dirty |= before != (pending.notified.len(), pending.unverified.len());
        self.pending = pending;
    }

    /// A resource that is now declared elsewhere keeps what the ledger knows of its path.
    fn follow_moved(&mut self) {
        for (old, new) in self.removal.moved() {
            let Some(mut entry) = self.ledger.entries.remove(&old) else { continue };
            self.forget.insert(old);
            if let Some((m, slot)) = self.desired.index.get(&new).copied()
                && !self.ledger.entries.contains_key(&new)
            {
                let resource = self.resource(m, slot);
                (entry.on_remove, entry.sensitive) = (resource.on_remove, resource.sensitive);
                // What stands there is of the old type until the new one has taken its place.
                if !replaces_own(&entry, resource) {
                    entry.kind = resource.kind.clone();
                }
                self.ledger.entries.insert(new.clone(), entry.clone());
                self.put.insert(new, entry);
            }
        }
    }
}
