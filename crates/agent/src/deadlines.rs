//! [`RunDeadlines`]: what a run waits for with a limit of time, and [`SharedHangingJobs`]: which threads
//! wait for file systems that do not answer (CNV-12).

use std::collections::BTreeSet;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use converge::hanging::{HangRefusal, HangingJobId, HangingJobs, no_answer};
use converge::kinds::mount::KernelMount;
use converge::{Job, JobDone, JobFailure, JobId};
use host::{Cancel, Host};

use crate::clock::now;
use crate::job_outcomes::JobSubject;
use crate::runner::EndedJob;

/// How often a loop that only waits looks whether the agent is stopping.
const LOOK_AT_CANCEL: Duration = Duration::from_millis(500);

/// The jobs at file systems that may not answer. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedHangingJobs(Arc<Mutex<HangingJobs>>);

/// A job at a file system that may not answer. Whatever works on it holds it, so that it ended when it is
/// dropped; the run's loop, which may go on without it, holds it weakly.
#[derive(Debug)]
pub(crate) struct HangingJob {
    id: HangingJobId,
    jobs: SharedHangingJobs,
    /// Used once the run goes on without it.
    switch: Cancel,
}

impl SharedHangingJobs {
    /// A job begins.
    ///
    /// # Errors
    /// When it must not.
    pub(crate) fn begin(&self, mount: &KernelMount) -> Result<Arc<HangingJob>, HangRefusal> {
        let id = self.locked().begin(mount)?;
        Ok(Arc::new(HangingJob { id, jobs: self.clone(), switch: Cancel::default() }))
    }

    fn locked(&self) -> MutexGuard<'_, HangingJobs> {
        // Each change is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HangingJob {
    /// The run went on without it.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.jobs.locked().is_abandoned(self.id)
    }

    /// The run goes on without it.
    fn abandon(&self) {
        self.jobs.locked().abandon(self.id, now());
        self.switch.cancel();
    }

    /// The switch that is used once the run goes on without it.
    pub(crate) fn switch(&self) -> Cancel {
        self.switch.clone()
    }
}

impl Drop for HangingJob {
    fn drop(&mut self) {
        self.jobs.locked().end(self.id);
    }
}

/// What ends when its time is over.
enum DeadlineWork {
    /// A wait, which is over then.
    Wait,
    /// A job at a file system that did not answer.
    Hang { job: Weak<HangingJob>, mount: KernelMount, patience: Duration, subject: JobSubject },
}

/// What a run waits for with a limit of time.
#[derive(Default)]
pub(crate) struct RunDeadlines {
    waiting: Vec<(Instant, JobId, DeadlineWork)>,
    /// Jobs that ended without their threads: what those come to counts no more.
    abandoned: BTreeSet<JobId>,
}

impl RunDeadlines {
    /// A job that is a wait.
    pub(crate) fn wait(&mut self, id: JobId, delay: Duration) {
        self.waiting.push((Instant::now() + delay, id, DeadlineWork::Wait));
    }

    /// A job at a file system that may not answer, for as long as it may take.
    pub(crate) fn hang(
        &mut self,
        job: &Job,
        mount: KernelMount,
        hanging: &Arc<HangingJob>,
        patience: Duration,
    ) {
        let (hanging, subject) = (Arc::downgrade(hanging), JobSubject::of(job));
        let work = DeadlineWork::Hang { job: hanging, mount, patience, subject };
        self.waiting.push((Instant::now() + patience, job.id, work));
    }

    /// The next job that ended, or whose time is over; `None` to look again.
    pub(crate) fn next_ended(&mut self, done: &Receiver<EndedJob>, host: &Host) -> Option<EndedJob> {
        let next = self.waiting.iter().enumerate().min_by_key(|(_, (until, ..))| *until);
        let Some((at, (until, ..))) = next else {
            return done.recv().ok().filter(|ended| !self.abandoned.contains(&ended.id));
        };
        let left = until.saturating_duration_since(Instant::now());
        if !left.is_zero() && !host.is_cancelled() {
            let ended = done.recv_timeout(left.min(LOOK_AT_CANCEL)).ok()?;
            self.waiting.retain(|(_, id, _)| *id != ended.id);
            return (!self.abandoned.contains(&ended.id)).then_some(ended);
        }
        let (_, id, work) = self.waiting.swap_remove(at);
        let stopping = JobFailure::from("the agent is stopping");
        match work {
            DeadlineWork::Wait => {
                let outcome = if host.is_cancelled() { Err(stopping) } else { Ok(JobDone::Waited) };
                Some(EndedJob { id, subject: JobSubject::Other, outcome, spent: Duration::ZERO })
            }
            DeadlineWork::Hang { job, mount, patience, subject } => {
                // One that has just ended is in the channel.
                job.upgrade()?.abandon();
                self.abandoned.insert(id);
                let why = if host.is_cancelled() { stopping } else { no_answer(&mount, patience).into() };
                Some(EndedJob { id, subject, outcome: Err(why), spent: patience })
            }
        }
    }
}
