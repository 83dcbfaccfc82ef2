//! Resources that left the set: what the ledger still answers for (CNV-10).

use std::collections::{BTreeMap, VecDeque};

use catalog::module::OnRemove;
use catalog::own_paths::normalized;
use catalog::types::is_switched_whole;
use model::collect::CollectInserting;
use model::delta::{Edit, Fields};
use model::sort::SortCompactly;
use model::{Action, ResourceReport};

use super::report::{bare, failed, failed_removal};
use super::{JobDone, JobOutcome, JobWork, Run, RunMode, RunScope, TakeBack};
use crate::{Desired, Ledger, LedgerEntry, ResourceId, ResourceSubject};

/// Where removals stand in the report: after every module.
const LAST: usize = usize::MAX;

/// What the ledger knows, each with where it stands in the set now: both are in the order of ids, so that nothing is
/// searched.
pub(super) fn placed<'a>(
    ledger: &'a Ledger,
    desired: &'a Desired,
) -> impl Iterator<Item = (&'a ResourceId, &'a LedgerEntry, Option<(usize, usize)>)> {
    let mut index = desired.index.iter().peekable();
    ledger.entries.iter().map(move |(id, entry)| {
        while index.next_if(|(known, _)| *known < id).is_some() {}
        (id, entry, index.next_if(|(known, _)| *known == id).map(|(_, place)| *place))
    })
}

/// The leftovers, one after the other.
#[derive(Debug, Default)]
pub(super) struct Removal {
    /// What is below a directory stands before it.
    left: VecDeque<ResourceId>,
    moved: Vec<(ResourceId, ResourceId)>,
    current: Option<ResourceId>,
    over: bool,
    /// Those that are switched as a whole, and could not be taken back.
    unswitched: Vec<String>,
}

impl Removal {
    /// What the ledger knows and the set does not. A module that could not be bound keeps
    /// all its entries: which of its resources left is not known. A partial run removes nothing. What is taken back
    /// goes also where it is declared and only observed.
    pub(super) fn new(desired: &Desired, ledger: &Ledger, scope: &RunScope, taken_back: TakeBack) -> Removal {
        let observed = |id: &ResourceId| {
            let resource = desired.resources().find(|resource| resource.id == *id);
            resource.is_some_and(|resource| desired.observe || resource.observe)
        };
        let goes_from = |id: &ResourceId, entry: &LedgerEntry| taken_back.has(entry) && observed(id);
        let gone: Vec<(&ResourceId, &LedgerEntry)> = placed(ledger, desired)
            .filter(|(id, entry, place)| place.is_none() || goes_from(id, entry))
            .map(|(id, entry, _)| (id, entry))
            .collect();
        if gone.is_empty() {
            return Removal::default();
        }
        let unnamed = |id: &ResourceId| desired.modules.iter().any(|m| m.unnamed && m.name == id.module());
        let managed: BTreeMap<ResourceSubject<'_>, &ResourceId> = desired
            .resources()
            .filter_map(|resource| Some((resource.subject()?, &resource.id)))
            .collect_inserting();
        let mut removal = Removal::default();
        let mut left = Vec::new();
        for (id, entry) in gone.into_iter().filter(|(id, _)| !unnamed(id)) {
            // An earlier version kept paths as they were written.
            let path = normalized(&entry.path);
            let subject = match entry.subject() {
                ResourceSubject::Path(_) => ResourceSubject::Path(&path),
                named @ ResourceSubject::Named { .. } => named,
            };
            match managed.get(&subject).filter(|new| !goes_from(new, entry)) {
                Some(new) => removal.moved.push((id.clone(), (*new).clone())),
                None if *scope == RunScope::All => left.push((&entry.path, id.clone())),
                None => {}
            }
        }
        left.sort_compactly_by(|a, b| b.cmp(a));
        removal.left = left.into_iter().map(|(_, id)| id).collect();
        removal
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// What is switched as a whole, and could not be taken back.
    pub(super) fn unswitched(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unswitched)
    }

    /// As [`Removal::moved`], to be looked at.
    pub(super) fn moving(&self) -> &[(ResourceId, ResourceId)] {
        &self.moved
    }

    /// Resources whose path another resource manages now: old id, new id.
    pub(super) fn moved(&mut self) -> Vec<(ResourceId, ResourceId)> {
        std::mem::take(&mut self.moved)
    }
}

impl Run {
    /// The next removal, then what is left to be written, then nothing.
    pub(super) fn remove_next(&mut self) -> Option<JobWork> {
        while let Some(id) = self.removal().left.pop_front() {
            let Some(entry) = self.ledger.entries.get(&id).cloned() else { continue };
            let observes = self.desired.observe && !self.taken_back().has(&entry);
            if self.mode == RunMode::Plan || observes {
                self.predict_removal(&id, &entry);
                continue;
            }
            if entry.on_remove == OnRemove::Keep {
                self.ledger.entries.remove(&id);
                self.forget.insert(id);
                continue;
            }
            self.removal().current = Some(id.clone());
            let how = entry.on_remove;
            return Some(JobWork::Remove { id, entry, how });
        }
        let record = self.record();
        let write = self.mode == RunMode::Apply && !record.is_empty();
        self.removal().over = !write;
        write.then_some(JobWork::Persist { record })
    }

    /// Takes in the outcome of a removal, or of the last record.
    pub(super) fn removed(&mut self, outcome: JobOutcome) {
        let Some(id) = self.removal().current.take() else {
            self.removal().over = true;
            if let Err(error) = outcome {
                self.report.add((LAST, 0), failed("ledger", error));
            }
            return;
        };
        if !matches!(outcome, Ok(JobDone::Removed(_))) {
            self.not_removed(&id);
        }
        match outcome {
            Ok(JobDone::Removed(changed)) => {
                let entry = self.ledger.entries.remove(&id);
                if let Some(entry) = entry.filter(|_| changed) {
                    let deleted = entry.on_remove == OnRemove::Delete;
                    let action = if deleted { Action::Deleted } else { Action::Restored };
                    let item = ResourceReport { edit: Some(edit(&entry)), ..bare(id.as_str(), action, None) };
                    self.report.add((LAST, 0), item);
                    // What a module's `verify` puts back is restored too, and was counted as failed.
                    self.report.counts.changed += u32::from(!deleted);
                }
                self.forget.insert(id);
            }
            Err(error) => {
                let item = match self.ledger.entries.get(&id) {
                    Some(entry) => failed_removal(&id, entry, error),
                    None => failed(id.as_str(), error),
                };
                self.report.add((LAST, 0), item);
            }
            Ok(_) => {
                let reason = "the removal was answered with something else".to_owned();
                self.report.add((LAST, 0), bare(id.as_str(), Action::Failed, Some(reason)));
            }
        }
    }

    /// A removal failed: the next run tries it again.
    fn not_removed(&mut self, id: &ResourceId) {
        let Some(entry) = self.ledger.entries.get(id).cloned() else { return };
        if is_switched_whole(&entry.kind) {
            self.removal().unswitched.push(id.as_str().to_owned());
        }
        if self.taken_back().has(&entry) {
            // By then nobody goes back any more: that it is restored must be in the ledger itself.
            self.put.insert(id.clone(), entry);
        }
    }

    fn predict_removal(&mut self, id: &ResourceId, entry: &LedgerEntry) {
        let what = match entry.on_remove {
            OnRemove::Keep => return,
            OnRemove::Delete => "no longer declared: it would be deleted (on_remove)".to_owned(),
            OnRemove::Restore => {
                let but = entry.cannot_restore().map(|why| format!(", but {why}")).unwrap_or_default();
                format!("no longer declared: what was there before would be put back (on_remove){but}")
            }
        };
        let item =
            ResourceReport { edit: Some(edit(entry)), ..bare(id.as_str(), Action::WouldChange, Some(what)) };
        self.report.add((LAST, 0), item);
    }
}

fn edit(entry: &LedgerEntry) -> Edit<Fields> {
    let fields = |kind: &str| Fields::from([("type".to_owned(), kind.to_owned())]);
    match entry.on_remove {
        OnRemove::Restore if !entry.prior.is_missing() => {
            Edit::Change { from: fields(&entry.kind), to: fields(entry.prior.what()) }
        }
        _ => Edit::Remove { from: fields(&entry.kind) },
    }
}
