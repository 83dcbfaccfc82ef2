//! Where a run meets its guard (CNV-11): before each change that can cut the host off.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use catalog::reach::WayIn;
use converge::kinds::Checked;
use converge::{BoundResource, LedgerEntry, Prior, ResourceId, RunMode, TakeBack, Undo, guarded};

use super::job_worker::{JobWorker, spec};
use super::{BoundRelease, Runner};
use crate::guard::{GuardedChange, GuardedRun, RunGuard};

/// How long a contact may take to follow a run that can cut the host off (CNV-11).
pub const DEFAULT_CONTACT_WINDOW: Duration = Duration::from_secs(300);

impl Runner {
    /// Guards its runs.
    #[must_use]
    pub fn guarded(mut self, guard: Arc<RunGuard>) -> Runner {
        self.guard = Some(guard);
        self
    }

    /// What guards its runs.
    pub fn guard(&self) -> Option<&Arc<RunGuard>> {
        self.guard.as_ref()
    }

    /// The guard of a run that changes the host; a return is guarded by what it returns from.
    pub(super) fn guard_of(
        &self,
        bound: &BoundRelease,
        mode: RunMode,
        taken_back: TakeBack,
    ) -> Option<GuardedRun> {
        let guard =
            self.guard.clone().filter(|_| mode == RunMode::Apply && taken_back == TakeBack::Nothing)?;
        let BoundRelease { adoption, desired } = bound;
        let (desired, root, seq) = (desired.clone(), adoption.root, adoption.seq);
        Some(GuardedRun { guard, desired, root, seq, window: DEFAULT_CONTACT_WINDOW })
    }
}

impl JobWorker {
    /// Before a change that can cut the host off, or that is caused by one (CNV-11).
    pub(super) fn guard(
        &self,
        resource: &BoundResource,
        checked: &Checked,
        notified: &BTreeSet<ResourceId>,
    ) -> Result<(), String> {
        let Some(run) = &self.guarded else { return Ok(()) };
        let reach = guarded::reach(resource);
        let is_caused = || {
            let by = run.desired.resources().filter(|by| notified.contains(&by.id));
            by.into_iter().any(|by| guarded::reach(by).is_some())
        };
        if reach.is_none() && !is_caused() {
            return Ok(());
        }
        match resource.holds_secret {
            true => self.kinds.keep_prior_sealed(spec(resource)?, checked)?,
            false => self.kinds.keep_prior(spec(resource)?, checked)?,
        };
        let change = GuardedChange {
            resource: resource.id.clone(),
            undo: guarded::undo_of(resource, checked),
            then: guarded::command_after(resource, checked),
            agent: reach == Some(WayIn::Agent),
        };
        run.guard.before(run, change)
    }

    /// As [`JobWorker::guard`], of what left the set.
    pub(super) fn guard_removal(&self, id: &ResourceId, entry: &LedgerEntry) -> Result<(), String> {
        let Some(run) = &self.guarded else { return Ok(()) };
        let Some(reach) = guarded::reach_of_entry(entry) else { return Ok(()) };
        let (prior, kept) = match entry.sensitive {
            true => self.kinds.keep_path_sealed(&entry.path)?,
            false => self.kinds.keep_path(&entry.path)?,
        };
        let undo = Undo {
            path: entry.path.clone(),
            prior: Prior::Path(prior),
            kept,
            kind: entry.kind.clone(),
            attributes: Default::default(),
            made: Vec::new(),
        };
        let agent = reach == WayIn::Agent;
        run.guard.before(run, GuardedChange { resource: id.clone(), undo: Some(undo), then: None, agent })
    }
}
