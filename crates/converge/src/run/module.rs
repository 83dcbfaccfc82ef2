//! One module's way through a run: whether it is wanted, its slots, verify, its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lang::Probe;
use model::collect::CollectInserting;
use model::{Action, Timestamp};

use super::condition::source;
use super::report::{bare, failed, hidden, item, removal_may_quote};
use super::retry::Tries;
use super::slot::{Applying, waits_for};
use super::together::Gathered;
use super::{JobDone, JobFailure, JobOutcome, JobWork, Run, RunMode, Undo, VERIFY_TIMEOUT};
use crate::kinds::Checked;
use crate::{Desired, LedgerEntry, ResourceId};

/// How far a module is.
#[derive(Debug, Default)]
pub(super) struct ModuleProgress {
    /// Modules that must be done first and are not.
    pub(super) blockers: usize,
    /// Modules that this one holds back.
    pub(super) dependents: Vec<usize>,
    pub(super) phase: ModulePhase,
    /// What became of each slot: resources, then handlers.
    pub(super) states: Vec<SlotState>,
    pub(super) end: ModuleEnd,
    /// When the current slot began.
    pub(super) began: Timestamp,
    /// Answers of the host for the current slot.
    pub(super) answers: BTreeMap<Probe, bool>,
    pub(super) asked: Option<Probe>,
    /// What the check of the current slot found, until it is applied.
    pub(super) checked: Option<Checked>,
    pub(super) applying: Option<Applying>,
    /// Slots that wait to be applied in one go.
    pub(super) gathered: Vec<Gathered>,
    /// Guards of the current slot that let it go on.
    pub(super) guarded: usize,
    /// Earlier tries of the current slot.
    pub(super) tries: Tries,
    /// Slots whose resource was changed.
    pub(super) changed: Vec<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ModulePhase {
    #[default]
    Start,
    /// When, dependencies, guards, check.
    Slot(usize),
    Apply(usize),
    /// What is gathered is to be applied, before this slot.
    Together(usize),
    /// It failed and is to be tried again.
    Wait(usize),
    Verify,
    Undo,
    End,
    Done,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum SlotState {
    #[default]
    Waiting,
    /// Right, changed, ignored, or not wanted here.
    Fine,
    Failed,
    /// Skipped because of this one's failure.
    Blocked(ResourceId),
    /// Skipped because the host cannot do it, as one that is confined to a directory cannot.
    Unable,
    /// The run is not about it.
    OutOfScope,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ModuleEnd {
    #[default]
    Open,
    Fine,
    Failed,
    /// Skipped because of this module's failure.
    Blocked(String),
}

impl ModuleProgress {
    /// The slots that failed, or were passed over because something else did.
    pub(super) fn resources_failed(&self) -> impl Iterator<Item = usize> + '_ {
        let module_failed = matches!(self.end, ModuleEnd::Failed | ModuleEnd::Blocked(_));
        let failed = move |state: &SlotState| match state {
            SlotState::Failed | SlotState::Blocked(_) => true,
            SlotState::Waiting => module_failed,
            SlotState::Fine | SlotState::Unable | SlotState::OutOfScope => false,
        };
        self.states.iter().enumerate().filter(move |(_, state)| failed(state)).map(|(slot, _)| slot)
    }

    pub(super) fn all(desired: &Desired) -> Vec<ModuleProgress> {
        let numbers: BTreeMap<&str, usize> = desired
            .modules
            .iter()
            .enumerate()
            .map(|(m, module)| (module.name.as_str(), m))
            .collect_inserting();
        let mut all: Vec<ModuleProgress> =
            desired.modules.iter().map(|_| ModuleProgress::default()).collect();
        for (m, module) in desired.modules.iter().enumerate() {
            all[m].states = vec![SlotState::Waiting; module.resources.len() + module.handlers.len()];
            // Only what stands before it can hold it back: a broken cycle cannot wait for itself.
            let earlier = module.depends_on.iter().chain(&module.after);
            let earlier: BTreeSet<usize> = earlier
                .filter_map(|name| numbers.get(name.as_str()).copied())
                .filter(|first| *first < m)
                .collect_inserting();
            all[m].blockers = earlier.len();
            for first in earlier {
                all[first].dependents.push(m);
            }
        }
        all
    }
}

impl Run {
    /// Goes on with a module: the next job, or `None` when it is done or waits for a transaction.
    pub(super) fn step(&mut self, m: usize) -> Option<JobWork> {
        loop {
            let work = match self.modules[m].phase {
                ModulePhase::Start => self.start(m),
                ModulePhase::Slot(slot) => self.slot(m, slot),
                ModulePhase::Apply(slot) => self.apply(m, slot),
                ModulePhase::Together(slot) if self.modules[m].gathered.is_empty() => {
                    self.modules[m].phase = self.after_slots(m, slot);
                    None
                }
                ModulePhase::Together(_) => return None,
                ModulePhase::Wait(slot) => {
                    return Some(JobWork::Wait { delay: self.resource(m, slot).retry.delay });
                }
                ModulePhase::Verify => self.verify(m),
                ModulePhase::Undo => self.undo(m),
                ModulePhase::End => self.end(m),
                ModulePhase::Done => return None,
            };
            if work.is_some() {
                return work;
            }
        }
    }

    /// Takes in the outcome of the module's job.
    pub(super) fn settle(&mut self, m: usize, outcome: JobOutcome) {
        let phase = self.modules[m].phase;
        let why = match (phase, outcome) {
            (ModulePhase::Start | ModulePhase::Slot(_), Ok(JobDone::Probed(answer))) => {
                let progress = &mut self.modules[m];
                return progress.answers.extend(progress.asked.take().map(|probe| (probe, answer)));
            }
            (ModulePhase::Start, Ok(JobDone::Skipped(reason))) => {
                self.modules[m].answers.clear();
                return self.skip_module(m, reason, ModuleEnd::Fine);
            }
            (ModulePhase::Slot(slot), Ok(JobDone::Skipped(reason))) => {
                return self.skipped_by_host(m, slot, reason, SlotState::Unable);
            }
            (ModulePhase::Slot(slot), Ok(JobDone::Checked(checked))) => {
                return self.checked(m, slot, checked);
            }
            (ModulePhase::Slot(slot), Ok(JobDone::Guarded(succeeded))) => {
                return self.guarded(m, slot, succeeded);
            }
            (ModulePhase::Wait(slot), Ok(JobDone::Waited)) => {
                return self.modules[m].phase = ModulePhase::Slot(slot);
            }
            (ModulePhase::Apply(slot), Ok(JobDone::Applied(applied))) => {
                return self.applied(m, slot, Ok(applied));
            }
            (ModulePhase::Apply(slot), Ok(JobDone::NotApplied { failure, missing })) => {
                self.forget_missing(m, slot, &missing);
                return self.applied(m, slot, Err(failure));
            }
            (ModulePhase::Verify, Ok(JobDone::Verified)) => return self.verified(m, Ok(())),
            (ModulePhase::Undo, Ok(JobDone::Undone)) => return self.undone(m, Ok(())),
            (ModulePhase::End, Ok(JobDone::Persisted)) => return self.persisted(m, Ok(())),
            (_, Err(why)) => why,
            (_, Ok(_)) => "the host answered a question that was not asked".into(),
        };
        match phase {
            ModulePhase::Start => {
                let asked = self.modules[m].asked.take();
                let asked = asked.map_or(String::new(), |probe| format!("{probe}: "));
                self.fail_module(m, format!("when: {asked}{why}"));
            }
            ModulePhase::Slot(slot) => self.check_failed(m, slot, why),
            ModulePhase::Apply(slot) => self.applied(m, slot, Err(why)),
            ModulePhase::Wait(slot) => self.give_up(m, slot),
            ModulePhase::Verify => self.verified(m, Err(why)),
            ModulePhase::Undo => self.undone(m, Err(why)),
            ModulePhase::End => self.persisted(m, Err(why)),
            ModulePhase::Together(_) | ModulePhase::Done => {}
        }
    }

    fn start(&mut self, m: usize) -> Option<JobWork> {
        let module = Arc::clone(&self.desired.modules[m]);
        if !self.module_in_scope(m) {
            let progress = &mut self.modules[m];
            (progress.end, progress.phase) = (ModuleEnd::Fine, ModulePhase::End);
            return None;
        }
        if let Some(error) = &module.error {
            self.fail_module(m, error.to_string());
            return None;
        }
        if let Some((name, root)) = self.failed_module(&module.depends_on) {
            self.skip_module(m, waits_for(&name, &root), ModuleEnd::Blocked(root));
            return None;
        }
        let wanted = match self.ask(m, None, &module.when) {
            Ok(wanted) => wanted,
            Err(probe) => return Some(JobWork::Probe(probe)),
        };
        match wanted {
            Ok(true) => self.modules[m].phase = self.after_slots(m, 0),
            Ok(false) => {
                self.drop_debts_of(m);
                self.skip_module(m, format!("when is false: {}", source(&module.when)), ModuleEnd::Fine);
            }
            Err(reason) => self.fail_module(m, reason),
        }
        self.modules[m].answers.clear();
        None
    }

    /// The first of these modules that failed or was skipped for a failure, and the failure.
    fn failed_module(&self, names: &[String]) -> Option<(String, String)> {
        let module = |name: &String| self.desired.modules.iter().position(|module| module.name == *name);
        names.iter().find_map(|name| match &self.modules[module(name)?].end {
            ModuleEnd::Failed => Some((name.clone(), name.clone())),
            ModuleEnd::Blocked(root) => Some((name.clone(), root.clone())),
            ModuleEnd::Open | ModuleEnd::Fine => None,
        })
    }

    fn fail_module(&mut self, m: usize, reason: String) {
        let name = self.desired.modules[m].name.clone();
        self.report.add((m, 0), bare(&name, Action::Failed, Some(reason)));
        (self.modules[m].end, self.modules[m].phase) = (ModuleEnd::Failed, ModulePhase::End);
    }

    /// One item for all its resources, each of which is counted.
    fn skip_module(&mut self, m: usize, reason: String, end: ModuleEnd) {
        let module = &self.desired.modules[m];
        let others = module.resources.len().saturating_sub(1);
        self.report.counts.skipped += u32::try_from(others).unwrap_or(u32::MAX);
        self.report.add((m, 0), bare(&module.name.clone(), Action::Skipped, Some(reason)));
        (self.modules[m].end, self.modules[m].phase) = (end, ModulePhase::End);
    }

    /// A module that is not wanted owes nothing.
    fn drop_debts_of(&mut self, m: usize) {
        if self.observes_module(m) {
            return;
        }
        let name = &self.desired.modules[m].name;
        let before = (self.pending.notified.len(), self.pending.unverified.len());
        self.pending.notified.retain(|target, _| target.module() != name);
        self.pending.unverified.remove(name);
        self.dirty |= before != (self.pending.notified.len(), self.pending.unverified.len());
    }

    pub(super) fn observes_module(&self, m: usize) -> bool {
        self.mode == RunMode::Plan || self.desired.observe || self.desired.modules[m].observe
    }

    /// The phase when the slots before `slot` are through: verify stands between resources
    /// and handlers.
    pub(super) fn after_slots(&self, m: usize, slot: usize) -> ModulePhase {
        let module = &self.desired.modules[m];
        if !self.modules[m].gathered.is_empty() && !self.joins(m, slot) {
            ModulePhase::Together(slot)
        } else if slot == module.resources.len() {
            ModulePhase::Verify
        } else if slot < module.resources.len() + module.handlers.len() {
            ModulePhase::Slot(slot)
        } else {
            ModulePhase::End
        }
    }

    fn end(&mut self, m: usize) -> Option<JobWork> {
        let progress = &mut self.modules[m];
        if progress.end == ModuleEnd::Open {
            let failed = progress.states.contains(&SlotState::Failed);
            progress.end = if failed { ModuleEnd::Failed } else { ModuleEnd::Fine };
        }
        if self.mode == RunMode::Plan {
            self.modules[m].phase = ModulePhase::Done;
            return None;
        }
        let record = self.record();
        if record.is_empty() {
            self.modules[m].phase = ModulePhase::Done;
            return None;
        }
        Some(JobWork::Persist { record })
    }

    fn persisted(&mut self, m: usize, result: Result<(), JobFailure>) {
        self.modules[m].phase = ModulePhase::Done;
        if let Err(error) = result {
            // The last record of the run tries again.
            self.dirty = true;
            let name = self.desired.modules[m].name.clone();
            self.report.add(
                (m, usize::MAX),
                failed(&name, error.told(|why| format!("what is owed could not be written: {why}"))),
            );
        }
    }

    fn verify(&mut self, m: usize) -> Option<JobWork> {
        let module = &self.desired.modules[m];
        let owed = self.pending.unverified.contains_key(&module.name) && self.looked_at(m);
        let due = owed && !self.observes_module(m);
        match &module.verify {
            Some(command) if due => Some(JobWork::Verify {
                module: module.name.clone(),
                command: command.clone(),
                timeout: VERIFY_TIMEOUT,
            }),
            _ => {
                self.begin_handlers(m);
                None
            }
        }
    }

    fn begin_handlers(&mut self, m: usize) {
        let module = &self.desired.modules[m];
        let first = module.resources.len();
        self.modules[m].phase =
            if module.handlers.is_empty() { ModulePhase::End } else { ModulePhase::Slot(first) };
    }

    fn verified(&mut self, m: usize, result: Result<(), JobFailure>) {
        let name = self.desired.modules[m].name.clone();
        let Err(reason) = result else {
            self.dirty |= self.pending.unverified.remove(&name).is_some();
            return self.begin_handlers(m);
        };
        let reason = reason.told(|why| format!("verify failed: {why}"));
        self.report.add((m, usize::MAX - 1), failed(&name, reason));
        let progress = &mut self.modules[m];
        (progress.end, progress.phase) = (ModuleEnd::Failed, ModulePhase::Undo);
        for slot in &progress.changed {
            progress.states[*slot] = SlotState::Failed;
        }
        // What was changed is put back, so nobody has to hear of it.
        self.pending.drop_from(&name);
        self.dirty = true;
    }

    fn undo(&mut self, m: usize) -> Option<JobWork> {
        let module = self.desired.modules[m].name.clone();
        let undo: Vec<Undo> =
            self.pending.unverified.get(&module).into_iter().flatten().rev().cloned().collect();
        if undo.is_empty() {
            self.undone(m, Ok(()));
            return None;
        }
        Some(JobWork::Undo { module, undo })
    }

    /// Something that the module changed and that is put back is sensitive, and a command may take part.
    fn undoes_sensitive(&self, module: &str) -> bool {
        let undo = self.pending.unverified.get(module).into_iter().flatten();
        let is_of = |entry: &LedgerEntry, undo: &Undo| entry.path == undo.path && entry.kind == undo.kind;
        undo.filter(|undo| removal_may_quote(&undo.kind))
            .any(|undo| self.ledger.entries.values().any(|entry| entry.sensitive && is_of(entry, undo)))
    }

    fn undone(&mut self, m: usize, result: Result<(), JobFailure>) {
        let name = self.desired.modules[m].name.clone();
        self.modules[m].phase = ModulePhase::End;
        if let Err(reason) = result {
            let reason = if self.undoes_sensitive(&name) { hidden() } else { reason };
            let reason = reason.told(|why| format!("what verify refused could not be put back: {why}"));
            self.report.add((m, usize::MAX), failed(&name, reason));
            return;
        }
        let restored = self.pending.unverified.remove(&name).unwrap_or_default();
        self.dirty = true;
        for slot in std::mem::take(&mut self.modules[m].changed) {
            let resource = Arc::clone(self.resource(m, slot));
            let named = resource.path().unwrap_or(&resource.name);
            let of_it =
                |undo: &&Undo| undo.path == named && (undo.kind.is_empty() || undo.kind == resource.kind);
            let (action, reason) = match restored.iter().find(of_it) {
                Some(undo) => match undo.cannot_restore() {
                    None => (Action::Restored, "its module's verify failed".to_owned()),
                    Some(why) => (Action::Failed, format!("it stays as it is: {why}")),
                },
                None => (Action::Failed, "a command's effect cannot be put back".to_owned()),
            };
            self.report.replace_change((m, slot), item(&resource, action, None, Some(reason), 0));
        }
    }
}
