//! [`JobOutcomes`]: what each resource of a run took and came to, seen from its jobs.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use converge::{Desired, Job, JobDone, JobOutcome, JobWork, ResourceId, RunMode};
use model::collect::CollectInserting;
use model::sort::SortCompactly;
use model::{Action, RunReport};

use crate::outcomes::RunResources;

/// Which resource a job is about.
#[derive(Clone, Debug)]
pub(crate) enum JobSubject {
    Check(ResourceId, Observing),
    Apply(ResourceId),
    /// In one go.
    ApplyTogether(Vec<ResourceId>),
    Remove(ResourceId),
    Other,
}

/// Whether a check is followed by an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observing {
    Yes,
    No,
}

impl JobSubject {
    pub(crate) fn of(job: &Job) -> JobSubject {
        match &job.what {
            JobWork::Check { resource, plan, .. } => {
                let observing = if *plan { Observing::Yes } else { Observing::No };
                JobSubject::Check(resource.id.clone(), observing)
            }
            JobWork::Apply { resource, .. } => JobSubject::Apply(resource.id.clone()),
            JobWork::ApplyTogether { members, .. } => {
                JobSubject::ApplyTogether(members.iter().map(|member| member.resource.id.clone()).collect())
            }
            JobWork::Remove { id, .. } => JobSubject::Remove(id.clone()),
            JobWork::Guard { .. }
            | JobWork::Wait { .. }
            | JobWork::Probe(_)
            | JobWork::Verify { .. }
            | JobWork::Undo { .. }
            | JobWork::Persist { .. } => JobSubject::Other,
        }
    }
}

/// What is known of the resources of a run under way. Hashed, as every resource is looked up again and again, and ids
/// differ by their ends only.
#[derive(Debug, Default)]
pub(crate) struct JobOutcomes(HashMap<ResourceId, (Action, Duration)>);

impl JobOutcomes {
    /// A job ended after this time.
    pub(crate) fn ended(&mut self, subject: JobSubject, outcome: &JobOutcome, spent: Duration) {
        let (id, action) = match (subject, outcome) {
            (JobSubject::Other, _) => return,
            (JobSubject::ApplyTogether(ids), outcome) => return self.together(ids, outcome, spent),
            (JobSubject::Check(id, _) | JobSubject::Apply(id) | JobSubject::Remove(id), Err(_)) => {
                (id, Action::Failed)
            }
            (JobSubject::Apply(id), Ok(JobDone::NotApplied { .. })) => (id, Action::Failed),
            (JobSubject::Remove(id), Ok(_)) => (id, Action::Deleted),
            (JobSubject::Check(id, _) | JobSubject::Apply(id), Ok(JobDone::Skipped(_))) => {
                (id, Action::Skipped)
            }
            (JobSubject::Check(id, observing), Ok(JobDone::Checked(checked))) => {
                let action = match (&checked.edit, checked.unknown, observing) {
                    (None, false, _) => Action::Ok,
                    (_, true, Observing::Yes) => Action::Unknown,
                    _ => Action::WouldChange,
                };
                (id, action)
            }
            (JobSubject::Apply(id), Ok(JobDone::Applied(applied))) if applied.changed => {
                (id, Action::Changed)
            }
            (JobSubject::Check(id, _) | JobSubject::Apply(id), Ok(_)) => (id, Action::Ok),
        };
        self.note(id, action, spent);
    }

    /// Several resources were applied in one go: each has its outcome, and an equal share of the time.
    fn together(&mut self, ids: Vec<ResourceId>, outcome: &JobOutcome, spent: Duration) {
        let results = match outcome {
            Ok(JobDone::AppliedTogether(results)) => results.as_slice(),
            Ok(_) | Err(_) => &[],
        };
        let share = spent / u32::try_from(ids.len().max(1)).unwrap_or(u32::MAX);
        for (number, id) in ids.into_iter().enumerate() {
            let action = match results.get(number) {
                Some(Ok(applied)) if applied.changed => Action::Changed,
                Some(Ok(_)) => Action::Ok,
                Some(Err(_)) | None => Action::Failed,
            };
            self.note(id, action, share);
        }
    }

    fn note(&mut self, id: ResourceId, action: Action, spent: Duration) {
        let known = self.0.entry(id).or_insert((action, Duration::ZERO));
        known.0 = action;
        known.1 += spent;
    }

    /// Every resource in the run's order; what the report says of one counts.
    pub(crate) fn resources(mut self, desired: &Desired, report: &RunReport, mode: RunMode) -> RunResources {
        let items: BTreeMap<&str, Action> =
            report.items.iter().map(|item| (item.resource.as_str(), item.action)).collect_inserting();
        let mut all = Vec::new();
        for module in &desired.modules {
            for resource in module.resources.iter().chain(&module.handlers) {
                let seen = self.0.remove(&resource.id);
                let reported = items.get(resource.id.as_str()).copied();
                let spent = seen.map_or(Duration::ZERO, |seen| seen.1);
                let action = reported.or(seen.map(|seen| seen.0));
                all.push((resource.id.clone(), action, millis(spent)));
            }
        }
        // What left the set.
        let mut removed: Vec<(ResourceId, (Action, Duration))> = self.0.into_iter().collect();
        removed.sort_compactly_by(|(one, _), (other, _)| one.cmp(other));
        all.extend(removed.into_iter().filter(|_| mode == RunMode::Apply).map(|(id, (action, spent))| {
            let reported = items.get(id.as_str()).copied();
            (id, reported.or(Some(action)), millis(spent))
        }));
        RunResources(all)
    }
}

fn millis(spent: Duration) -> u64 {
    u64::try_from(spent.as_millis()).unwrap_or(u64::MAX)
}
