//! [`JobWorker`]: carries out one job of a run, on the run's thread or on one of its own.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use catalog::types::Spec;
use converge::kinds::{Applied, Checked};
use converge::{
    BoundResource, Job, JobDone, JobFailure, JobOutcome, JobWork, Record, ResourceId, TogetherMember, Undo,
};
use host::SpawnCompactly;
use providers::{Kinds, Notification, TouchedFiles};

use super::EndedJob;
use crate::changes::ChangeLog;
use crate::clock::now;
use crate::deadlines::HangingJob;
use crate::guard::GuardedRun;
use crate::job_outcomes::JobSubject;
use crate::storage::Storage;
use crate::versions::VersionCause;

/// What carries the jobs of one run out.
#[derive(Clone)]
pub(super) struct JobWorker {
    pub(super) kinds: Arc<Kinds>,
    pub(super) storage: Storage,
    /// What the run changed.
    pub(super) changes: Arc<ChangeLog>,
    /// Its job is at a file system that may not answer.
    pub(super) hanging: Option<Arc<HangingJob>>,
    /// What can cut the host off is changed in its sight.
    pub(super) guarded: Option<Arc<GuardedRun>>,
}

impl JobWorker {
    /// For a job at a file system that may not answer.
    pub(super) fn at_hanging(&self, job: Arc<HangingJob>) -> JobWorker {
        let kinds = Arc::new(self.kinds.for_job(job.switch()));
        JobWorker { kinds, hanging: Some(job), ..self.clone() }
    }

    /// Refuses to go on when the run went on without this job.
    fn still_wanted(&self) -> Result<(), String> {
        match self.hanging.as_ref().is_some_and(|job| job.is_abandoned()) {
            true => Err("the run went on without it".to_owned()),
            false => Ok(()),
        }
    }

    pub(super) fn spawn(&self, job: Job, results: Sender<EndedJob>) {
        let worker = self.clone();
        let (id, subject, began) = (job.id, JobSubject::of(&job), Instant::now());
        let (failed, same) = (results.clone(), subject.clone());
        let spawned = std::thread::Builder::new().name(format!("muster {id}")).spawn_compactly(move || {
            // A panic must end this job alone; the run waits for an outcome.
            let outcome = catch_unwind(AssertUnwindSafe(|| worker.perform(job)))
                .unwrap_or_else(|_| Err("the agent panicked at it; see its log".into()));
            drop(worker);
            drop(results.send(EndedJob { id, subject, outcome, spent: began.elapsed() }));
        });
        if let Err(error) = spawned {
            let outcome = Err(format!("no thread could be started: {error}").into());
            let _ = failed.send(EndedJob { id, subject: same, outcome, spent: Duration::ZERO });
        }
    }

    /// Carries a job out, here and now.
    pub(super) fn perform(&self, job: Job) -> JobOutcome {
        Ok(match job.what {
            JobWork::Probe(probe) => return self.kinds.answer(&probe),
            JobWork::Guard { resource, guard } => {
                return self.kinds.guard(&guard.command, resource.timeout);
            }
            // The loop answers it.
            JobWork::Wait { .. } => JobDone::Waited,
            JobWork::Check { resource, plan, notified } => {
                let (spec, notification) = (spec(&resource)?, self.changes.notification(&notified));
                let BoundResource { name, timeout, .. } = &*resource;
                let checked = self.kinds.check_notified(name, spec, *timeout, plan, notification.as_ref())?;
                return match checked {
                    JobDone::Checked(checked) if resource.holds_secret => {
                        Ok(JobDone::Checked(self.kinds.seal_prior(spec, checked)?))
                    }
                    other => Ok(other),
                };
            }
            JobWork::Apply { resource, checked, record, notified } => {
                let notification = self.changes.notification(&notified);
                self.guard(&resource, &checked, &notified)?;
                let applied = match self.apply(&resource, &checked, &record, notification.as_ref()) {
                    Ok(applied) => applied,
                    Err(failure) if checked.surroundings.missing.is_empty() => return Err(failure),
                    Err(failure) => {
                        let missing = self.kinds.missing_around(spec(&resource)?);
                        return Ok(JobDone::NotApplied { failure, missing });
                    }
                };
                if applied.changed {
                    self.changes.add(&resource.id);
                }
                JobDone::Applied(applied)
            }
            JobWork::ApplyTogether { members, record } => {
                JobDone::AppliedTogether(self.apply_together(&members, &record)?)
            }
            JobWork::Verify { command, timeout, .. } => {
                self.kinds.verify(&command, timeout)?;
                JobDone::Verified
            }
            JobWork::Undo { undo, .. } => {
                self.undo(&undo)?;
                JobDone::Undone
            }
            JobWork::Remove { id, entry, how, .. } => {
                self.guard_removal(&id, &entry)?;
                self.keep_versions(&self.kinds.touched_by_removal(&entry, how), &id, entry.sensitive);
                self.still_wanted()?;
                JobDone::Removed(self.kinds.remove(&entry, how)?)
            }
            JobWork::Persist { record } => {
                self.persist(&record)?;
                JobDone::Persisted
            }
        })
    }

    /// Puts back as much as can be put back; reports all that cannot.
    fn undo(&self, undo: &[Undo]) -> Result<(), String> {
        let put_back = |undo| self.still_wanted().and_then(|()| self.kinds.undo(undo));
        let failed: Vec<String> = undo.iter().filter_map(|undo| put_back(undo).err()).collect();
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }

    /// First what must survive a crash, then the host.
    fn apply(
        &self,
        resource: &BoundResource,
        checked: &Checked,
        record: &Record,
        notification: Option<&Notification>,
    ) -> Result<Applied, JobFailure> {
        let spec = spec(resource)?;
        if record.keep.is_some() {
            match resource.holds_secret {
                true => self.kinds.keep_prior_sealed(spec, checked)?,
                false => self.kinds.keep_prior(spec, checked)?,
            };
        }
        let touched = self.kinds.touched_by_apply(spec, checked, resource.timeout)?;
        self.keep_versions(&touched, &resource.id, resource.sensitive);
        self.still_wanted()?;
        self.persist(record)?;
        self.kinds.apply_notified(&resource.name, spec, checked, resource.timeout, notification)
    }

    /// As [`JobWorker::apply`]: the record names all of them.
    fn apply_together(
        &self,
        members: &[TogetherMember],
        record: &Record,
    ) -> Result<Vec<Result<Applied, JobFailure>>, JobFailure> {
        for TogetherMember { resource, checked } in members {
            self.guard(resource, checked, &BTreeSet::new())?;
        }
        self.persist(record)?;
        let resources = members.iter().map(|TogetherMember { resource, checked }| {
            Ok((resource.name.as_str(), spec(resource)?, checked, resource.timeout))
        });
        let applied = self.kinds.apply_together(&resources.collect::<Result<Vec<_>, String>>()?);
        for (member, applied) in members.iter().zip(&applied) {
            if applied.as_ref().is_ok_and(|applied| applied.changed) {
                self.changes.add(&member.resource.id);
            }
        }
        Ok(applied)
    }

    /// What files are before they change (CNV-8).
    fn keep_versions(&self, touched: &TouchedFiles, resource: &ResourceId, sensitive: bool) {
        let cause = VersionCause { by: resource.as_str(), sensitive };
        self.storage.durable().versions().keep(self.kinds.host(), touched, cause, now());
    }

    fn persist(&self, record: &Record) -> Result<(), String> {
        self.storage.persist_blocking(record.clone()).map_err(|error| crate::render::chain(&error))
    }
}

pub(super) fn spec(resource: &BoundResource) -> Result<&Spec, String> {
    resource.spec.as_ref().map_err(ToString::to_string)
}
