//! Where a run meets its guard (CNV-11): before each change that can cut the host off.

use std::collections::BTreeSet;
use std::sync::Arc;

use catalog::reach::WayIn;
use converge::guarded::GuardedCause;
use converge::kinds::Checked;
use converge::{BoundResource, LedgerEntry, Prior, ResourceId, RunMode, TakeBack, Undo, guarded};

use super::job_worker::{JobWorker, spec};
use super::{BoundRelease, Runner};
use crate::guard::{GuardedChange, GuardedRun, RunGuard};

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

    /// The guard of a run that changes the host.
    pub(super) fn guard_of(
        &self,
        bound: &BoundRelease,
        mode: RunMode,
        taken_back: TakeBack,
    ) -> Option<GuardedRun> {
        let guard = self.guard.clone().filter(|_| mode == RunMode::Apply)?;
        let BoundRelease { adoption, desired } = bound;
        let (desired, root, seq) = (desired.clone(), adoption.root, adoption.seq);
        // Settings that cannot be read are fetched again; until then the defaults count.
        let policy = self.durable().policy(adoption).map(|policy| policy.guard).unwrap_or_default();
        Some(GuardedRun { taken_back, guard, desired, root, seq, policy })
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
        let mut by = run.desired.resources().filter(|by| notified.contains(&by.id));
        let cause = match !notified.is_empty() && by.any(|by| guarded::reach(by).is_some()) {
            true => GuardedCause::Notified,
            false => GuardedCause::Own,
        };
        if reach.is_none() && cause == GuardedCause::Own {
            return Ok(());
        }
        // Nothing undoes a return: nothing is kept for that, for which there may be no room.
        if run.is_return() {
            return run.guard.before_return(run);
        }
        match resource.holds_secret {
            true => self.kinds.keep_prior_sealed(spec(resource)?, checked)?,
            false => self.kinds.keep_prior(spec(resource)?, checked)?,
        };
        let change = GuardedChange {
            resource: resource.id.clone(),
            undo: guarded::undo_of(resource, checked),
            then: guarded::command_after(resource, checked, cause),
            agent: reach == Some(WayIn::Agent),
        };
        run.guard.before(run, change)
    }

    /// As [`JobWorker::guard`], of what left the set.
    pub(super) fn guard_removal(&self, id: &ResourceId, entry: &LedgerEntry) -> Result<(), String> {
        let Some(run) = &self.guarded else { return Ok(()) };
        let Some(reach) = guarded::reach_of_entry(entry) else { return Ok(()) };
        if run.is_return() {
            return Ok(());
        }
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
