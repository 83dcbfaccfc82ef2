//! One resource's way: dependencies, when, guards, check, apply, notify.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use catalog::types::Spec;
use model::collect::CollectInserting;
use model::delta::{Edit, Fields};
use model::sort::SortCompactly;
use model::{Action, FailureCode, PathState};

use super::condition::source;
use super::machine::PredictedPath;
use super::module::{ModuleEnd, ModulePhase, SlotState};
use super::pending::Ahead;
use super::remember::{is_elsewhere, remembered};
use super::report::{failed_item, item};
use super::retry::Tries;
use super::{JobFailure, JobWork, Record, Run, RunMode};
use crate::bind::parents;
use crate::guarded::undo_of;
use crate::kinds::exec::command_text;
use crate::kinds::{Applied, Checked};
use crate::ledger::MAX_KEPT;
use crate::{BoundResource, LedgerEntry, Prior, ResourceId, ResourceSubject};

/// What is to be known when an apply comes back.
#[derive(Debug, Default)]
pub(super) struct Applying {
    pub(super) edit: Option<Edit<Fields>>,
    ahead: Option<Ahead>,
    /// The ledger entry that goes with it is new.
    new_entry: bool,
}

impl Applying {
    /// Something else that its module has to verify was changed, whatever this apply did.
    pub(super) fn stays_unverified(&mut self) {
        self.ahead.iter_mut().for_each(Ahead::stays_unverified);
    }

    /// Two tries of one change: it began where the first one began.
    pub(super) fn and(self, last: Applying) -> Applying {
        let ahead = match (self.ahead, last.ahead) {
            (Some(first), Some(last)) => Some(first.and(last)),
            (first, last) => first.or(last),
        };
        Applying { edit: self.edit.or(last.edit), ahead, new_entry: self.new_entry || last.new_entry }
    }
}

impl Run {
    pub(super) fn observes(&self, resource: &BoundResource) -> bool {
        self.mode == RunMode::Plan || self.desired.observe || resource.observe
    }

    /// From the beginning of a slot to its check.
    pub(super) fn slot(&mut self, m: usize, slot: usize) -> Option<JobWork> {
        let resource = Arc::clone(self.resource(m, slot));
        let handler = slot >= self.desired.modules[m].resources.len();
        let observe = self.observes(&resource);
        if !self.in_scope(&resource) {
            self.next(m, slot, SlotState::OutOfScope);
            return None;
        }
        if handler && !self.is_notified(&resource, observe, None) {
            self.next(m, slot, SlotState::Fine);
            return None;
        }
        if let Some((dependency, root)) = self.failed_dependency(&resource) {
            let reason = waits_for(&dependency, &root);
            self.report.add((m, slot), item(&resource, Action::Skipped, None, Some(reason), 0));
            self.next(m, slot, SlotState::Blocked(root));
            return None;
        }
        let wanted = match self.ask(m, Some(&resource), &resource.when) {
            Ok(wanted) => wanted,
            Err(probe) => return Some(JobWork::Probe(probe)),
        };
        let bound = resource.spec.as_ref().map(|_| true).map_err(ToString::to_string);
        match wanted.and_then(|wanted| if wanted { bound } else { Ok(false) }) {
            Ok(true) => {
                let progress = &mut self.modules[m];
                if progress.guarded == 0 && progress.tries.is_first() {
                    progress.began = self.now;
                }
                return Some(match resource.guards.get(progress.guarded).cloned() {
                    Some(guard) => JobWork::Guard { resource, guard },
                    None => {
                        let notified = self.notifiers(&resource, observe);
                        JobWork::Check { resource, plan: observe, notified }
                    }
                });
            }
            Ok(false) => {
                let reason = format!("when is false: {}", source(&resource.when));
                self.report.add((m, slot), item(&resource, Action::Skipped, None, Some(reason), 0));
                self.heard(&resource, observe);
                self.next(m, slot, SlotState::Fine);
            }
            Err(reason) => {
                self.modules[m].began = self.now;
                let failure = self.blocked(&resource).unwrap_or_else(|| reason.into());
                self.fail(m, slot, failure);
            }
        }
        None
    }

    /// Why the resource waits for a secret, where it does and nothing else is wrong with it (SEC-1). On the node all
    /// else is observed.
    fn blocked(&self, resource: &BoundResource) -> Option<JobFailure> {
        let error = resource.spec.as_ref().err().filter(|error| error.mistakes.is_empty())?;
        let waits = error.unobserved.iter().map(|part| self.desired.blocked.get(&part.observed));
        let mut waits: Vec<&String> = waits.collect::<Option<_>>()?;
        waits.sort_compactly();
        waits.dedup();
        let names: BTreeSet<&str> =
            error.unobserved.iter().map(|part| part.observed.as_str()).collect_inserting();
        let detail = names.into_iter().collect::<Vec<_>>().join(", ");
        let why = waits.into_iter().map(String::as_str).collect::<Vec<_>>().join("; ");
        (!why.is_empty()).then(|| JobFailure::new(FailureCode::Blocked, &detail, format!("blocked: {why}")))
    }

    /// Whether somebody (or `by`) notified the resource; what would have counts where it only observes.
    pub(super) fn is_notified(
        &self,
        resource: &BoundResource,
        observe: bool,
        by: Option<&ResourceId>,
    ) -> bool {
        let in_map = |map: &BTreeMap<ResourceId, BTreeSet<ResourceId>>| {
            map.get(&resource.id).is_some_and(|notifiers| by.is_none_or(|by| notifiers.contains(by)))
        };
        in_map(&self.pending.notified) || (observe && in_map(&self.prediction.notified))
    }

    /// Who notified the resource; those that would have too where it only observes.
    pub(super) fn notifiers(&self, resource: &BoundResource, observe: bool) -> BTreeSet<ResourceId> {
        let predicted = Some(&self.prediction.notified).filter(|_| observe);
        let maps = [&self.pending.notified].into_iter().chain(predicted);
        maps.filter_map(|map| map.get(&resource.id)).flatten().cloned().collect_inserting()
    }

    /// The first dependency that failed, or was skipped for a failure, and that failure.
    fn failed_dependency(&self, resource: &BoundResource) -> Option<(ResourceId, ResourceId)> {
        resource.depends_on.iter().find_map(|id| {
            let (m, slot) = *self.desired.index.get(id)?;
            match (&self.modules[m].states[slot], &self.modules[m].end) {
                (SlotState::Failed, _) | (SlotState::Waiting, ModuleEnd::Failed) => {
                    Some((id.clone(), id.clone()))
                }
                (SlotState::Blocked(root), _) => Some((id.clone(), root.clone())),
                (SlotState::Waiting, ModuleEnd::Blocked(root)) => {
                    Some((id.clone(), ResourceId::from(root.as_str())))
                }
                (SlotState::Fine | SlotState::Unable | SlotState::OutOfScope, _)
                | (SlotState::Waiting, ModuleEnd::Open | ModuleEnd::Fine) => None,
            }
        })
    }

    /// What the resource needs and the host cannot do: then it is no failure of its own that it cannot
    /// be made.
    fn unable_need(&self, resource: &BoundResource) -> Option<ResourceId> {
        let unable = |(m, slot): &(usize, usize)| self.modules[*m].states[*slot] == SlotState::Unable;
        let named = resource.depends_on.iter().chain(&resource.after);
        let named = named.into_iter().find(|id| self.desired.index.get(*id).is_some_and(unable)).cloned();
        let things = resource.after_things();
        let paths: BTreeSet<&str> =
            resource.path().into_iter().flat_map(parents).chain(resource.needs()).collect_inserting();
        let is_needed = |(m, slot): &(usize, usize)| match self.resource(*m, *slot).subject() {
            Some(ResourceSubject::Path(path)) => paths.contains(path),
            Some(subject) => things.contains(&subject),
            None => false,
        };
        let implied = || {
            let mut slots = self.desired.index.iter().filter(|(_, at)| unable(at) && is_needed(at));
            slots.next().map(|(id, _)| id.clone())
        };
        named.or_else(implied)
    }

    /// A guard was answered.
    pub(super) fn guarded(&mut self, m: usize, slot: usize, succeeded: bool) {
        let resource = Arc::clone(self.resource(m, slot));
        let Some(guard) = resource.guards.get(self.modules[m].guarded) else { return };
        if guard.kind.lets_on(succeeded) {
            self.modules[m].guarded += 1;
            return;
        }
        let word = if succeeded { "succeeded" } else { "did not succeed" };
        let reason = match resource.sensitive {
            true => format!("{} {word}", guard.kind.key()),
            false => format!("{} {word}: {}", guard.kind.key(), command_text(&guard.command)),
        };
        self.skipped_by_host(m, slot, reason, SlotState::Fine);
    }

    /// A question, a guard or the check could not be answered.
    pub(super) fn check_failed(&mut self, m: usize, slot: usize, why: JobFailure) {
        let resource = Arc::clone(self.resource(m, slot));
        let progress = &mut self.modules[m];
        let why = match (progress.asked.take(), resource.guards.get(progress.guarded)) {
            (Some(probe), _) => why.told(|why| format!("when: {probe}: {why}")),
            (None, Some(guard)) => why.told(|why| format!("{}: {why}", guard.kind.key())),
            (None, None) => why,
        };
        if self.observes(&resource) {
            self.unsure_or_failed(m, slot, &resource, why);
        } else {
            self.try_failed(m, slot, why, None);
        }
    }

    pub(super) fn checked(&mut self, m: usize, slot: usize, checked: Checked) {
        let resource = Arc::clone(self.resource(m, slot));
        let observe = self.observes(&resource);
        if checked.edit.is_none() && !checked.unknown {
            if self.changed_by_earlier_try(m, slot) {
                return;
            }
            self.report.counts.ok += 1;
            if !observe {
                self.follow(&resource, &checked.prior);
            }
            self.heard(&resource, observe);
            return self.next(m, slot, SlotState::Fine);
        }
        if observe {
            let action = if checked.unknown { Action::Unknown } else { Action::WouldChange };
            self.predict(&resource, &checked);
            let ms = self.elapsed(m);
            self.report.add((m, slot), item(&resource, action, checked.edit.as_ref(), checked.note, ms));
            return self.next(m, slot, SlotState::Fine);
        }
        if self.gathers(m, slot) {
            return self.gather(m, slot, checked);
        }
        let progress = &mut self.modules[m];
        (progress.checked, progress.phase) = (Some(checked), ModulePhase::Apply(slot));
    }

    /// Hands out the apply, with everything that must be durable before it.
    pub(super) fn apply(&mut self, m: usize, slot: usize) -> Option<JobWork> {
        let (resource, checked, keep) = self.prepare(m, slot);
        let record = Record { keep, ..self.record() };
        let notified = self.notifiers(&resource, false);
        Some(JobWork::Apply { resource, checked, record, notified })
    }

    /// Puts into the next record what must be durable before an apply, and gives the path of which the
    /// bytes are to be kept.
    pub(super) fn prepare(&mut self, m: usize, slot: usize) -> (Arc<BoundResource>, Checked, Option<String>) {
        let resource = Arc::clone(self.resource(m, slot));
        let checked = self.modules[m].checked.take().unwrap_or_else(Checked::unknown);
        let module = Arc::clone(&self.desired.modules[m]);
        let handler = slot >= module.resources.len();
        let kept = matches!(checked.prior, Prior::Path(PathState::File { size, .. }) if size <= MAX_KEPT);
        let remembered = remembered(&resource);
        // Handlers come after the verify, and it does not answer for them.
        let verifies = (module.verify.is_some() && !handler).then_some(module.name.as_str());
        let undo = if verifies.is_some() { undo_of(&resource, &checked) } else { None };
        let ahead = self.pending.ahead(&resource.id, &resource.notify, verifies, undo);
        let path = remembered.map(|remembered| remembered.path.to_owned());
        let known = self.ledger.entries.get(&resource.id).filter(|entry| !is_elsewhere(entry, &resource));
        let entry = path.clone().filter(|_| known.is_none());
        let new_entry = entry.is_some();
        if let Some(path) = entry {
            let prior = checked.prior.of_edit(checked.edit.as_ref());
            let made = self.made(&checked.surroundings);
            let entry = LedgerEntry { made, ..self.entry(&resource, path, prior, kept) };
            self.remember(&resource.id, entry);
        } else {
            self.follow_declaration(&resource, &checked.prior);
            self.remember_more(&resource.id, &checked);
        }
        self.dirty |= ahead.is_some();
        let keep = path.filter(|_| kept && (ahead.is_some() || new_entry));
        let edit = checked.edit.clone();
        self.modules[m].applying = Some(Applying { edit, ahead, new_entry });
        (resource, checked, keep)
    }

    pub(super) fn applied(&mut self, m: usize, slot: usize, result: Result<Applied, JobFailure>) {
        let resource = Arc::clone(self.resource(m, slot));
        let applied = match result {
            Ok(applied) => applied,
            Err(reason) => {
                let applying = self.modules[m].applying.take();
                return self.try_failed(m, slot, reason, applying);
            }
        };
        let (Applying { edit, ahead, new_entry }, tried) = self.take_applying(m);
        match applied.changed || tried {
            true => {
                let ms = self.elapsed(m);
                let edit = applied.edit.or(edit);
                self.report.add((m, slot), item(&resource, Action::Changed, edit.as_ref(), None, ms));
                self.modules[m].changed.push(slot);
                self.follow_kind(&resource);
                self.heard(&resource, false);
                self.next(m, slot, SlotState::Fine);
            }
            false => {
                self.take_back(&resource, ahead, true);
                if new_entry {
                    self.ledger.entries.remove(&resource.id);
                    self.put.remove(&resource.id);
                    self.forget.insert(resource.id.clone());
                }
                self.report.counts.ok += 1;
                self.heard(&resource, false);
                self.next(m, slot, SlotState::Fine);
            }
        }
    }

    /// The last try of an apply failed.
    pub(super) fn half_applied(&mut self, m: usize, slot: usize, applying: Applying) {
        let resource = Arc::clone(self.resource(m, slot));
        // Half a change may have happened: how to undo it stays written down.
        self.take_back(&resource, applying.ahead, false);
        // The record may not have been written either; the next one repeats it.
        self.dirty = true;
        let entry = self.ledger.entries.get(&resource.id).filter(|_| applying.new_entry).cloned();
        self.put.extend(entry.map(|entry| (resource.id.clone(), entry)));
    }

    pub(super) fn skipped_by_host(&mut self, m: usize, slot: usize, reason: String, state: SlotState) {
        let resource = Arc::clone(self.resource(m, slot));
        let observe = self.observes(&resource);
        self.report.add((m, slot), item(&resource, Action::Skipped, None, Some(reason), 0));
        self.heard(&resource, observe);
        self.next(m, slot, state);
    }

    /// The slot failed before anything was to be changed.
    pub(super) fn fail(&mut self, m: usize, slot: usize, reason: impl Into<JobFailure>) {
        self.fail_at(m, slot, None, reason.into());
    }

    /// The slot failed at this change; what notified it is still owed.
    pub(super) fn fail_at(
        &mut self,
        m: usize,
        slot: usize,
        edit: Option<&Edit<Fields>>,
        failure: JobFailure,
    ) {
        let resource = Arc::clone(self.resource(m, slot));
        let (action, state, failure) = match (self.unable_need(&resource), resource.ignore_failure) {
            (Some(need), _) => {
                let why = |why: &str| format!("it needs {need}, which is skipped on this host: {why}");
                (Action::Skipped, SlotState::Unable, JobFailure { cause: None, ..failure.told(why) })
            }
            (None, true) => (Action::Ignored, SlotState::Fine, failure),
            (None, false) => (Action::Failed, SlotState::Failed, failure),
        };
        let ms = self.elapsed(m);
        self.report.add((m, slot), failed_item(&resource, action, edit, failure, ms));
        self.next(m, slot, state);
    }

    /// A check of what only observes failed. Where something that it needs would have been
    /// changed before it, nothing can be said; else it is a failure.
    fn unsure_or_failed(&mut self, m: usize, slot: usize, resource: &BoundResource, reason: JobFailure) {
        let path = resource.path().into_iter();
        let needed = path.clone().chain(path.flat_map(parents)).chain(resource.needs());
        let would =
            needed.into_iter().find(|path| self.prediction.paths.contains_key(*path)).map(str::to_owned);
        let Some(path) = would else {
            return self.fail(m, slot, reason);
        };
        let ms = self.elapsed(m);
        let reason = format!("{path} would have been changed before it, so its outcome is not known");
        self.report.add((m, slot), item(resource, Action::Unknown, None, Some(reason), ms));
        self.next(m, slot, SlotState::Fine);
    }

    fn predict(&mut self, resource: &BoundResource, checked: &Checked) {
        let Some(edit) = &checked.edit else { return };
        if let Some(path) = resource.path() {
            let predicted = match (edit, &resource.spec) {
                (Edit::Remove { .. }, _) => PredictedPath::Nothing,
                (_, Ok(Spec::Directory(_))) => PredictedPath::Directory,
                _ => PredictedPath::Other,
            };
            self.prediction.paths.insert(path.to_owned(), predicted);
        }
        for target in &resource.notify {
            self.prediction.notified.entry(target.clone()).or_default().insert(resource.id.clone());
        }
    }

    /// The resource has acted on its notifications, or had no reason to.
    fn heard(&mut self, resource: &BoundResource, observe: bool) {
        if !observe && !self.pending.notified.is_empty() {
            self.dirty |= self.pending.notified.remove(&resource.id).is_some();
        }
    }

    fn take_back(&mut self, resource: &BoundResource, ahead: Option<Ahead>, undo_too: bool) {
        if let Some(ahead) = ahead {
            self.pending.take_back(&resource.id, resource.id.module(), &ahead, undo_too);
            self.dirty = true;
        }
    }

    fn next(&mut self, m: usize, slot: usize, state: SlotState) {
        let phase = self.after_slots(m, slot + 1);
        let progress = &mut self.modules[m];
        progress.states[slot] = state;
        progress.answers.clear();
        (progress.guarded, progress.tries) = (0, Tries::default());
        progress.phase = phase;
    }

    fn elapsed(&self, m: usize) -> u64 {
        u64::try_from(self.now.since(self.modules[m].began).as_millis()).unwrap_or(u64::MAX)
    }
}

/// Why what depends on something is skipped.
pub(super) fn waits_for(dependency: &(impl Display + ?Sized), root: &(impl Display + ?Sized)) -> String {
    let (dependency, root) = (dependency.to_string(), root.to_string());
    if dependency == root {
        format!("it depends on {dependency}, which failed")
    } else {
        format!("it depends on {dependency}, which was skipped because {root} failed")
    }
}
