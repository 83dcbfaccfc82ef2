//! [`Runner`]: binds the held set and carries a run's jobs out.
//!
//! Looking at files is done at once, job after job; whatever may start a command goes to
//! a thread of its own, so that one that hangs delays no independent module (CNV-12).
//! So does a job at a file system that may not answer; the run goes on without it when its time is over.
//! How many jobs there are at a time is the run's to say. A wait is a deadline of the loop and
//! no thread, and ends when the agent stops.

mod guarding;
mod held_set;
mod job_worker;
mod last_bound;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use catalog::types::{BlockSpec, EditedFile, FileSpec, IniSpec, JsonSpec, LineSpec, Spec, WantedPackage};
use converge::bind::{Inputs, TraitUses, bind};
use converge::run::UnknownTag;
use converge::{
    BoundResource, Desired, FinishedRun, JobId, JobOutcome, JobWork, Prior, Run, RunMode, RunOptions,
    RunScope, TakeBack,
};
use host::Host;
use lang::{Probe, Value};
use model::object::MAX_BLOB;
use model::{Digest, RunReport, UnmadeRunCause};
use node::{Adoption, ReadTraits, RunFailure, RunOrder};
use providers::{Kinds, PROBE_TIMEOUT};

use self::held_set::HeldDocuments;
use self::job_worker::JobWorker;
use self::last_bound::LastBound;
use crate::changes::ChangeLog;
use crate::clock::now;
use crate::deadlines::{RunDeadlines, SharedHangingJobs};
use crate::guard::{GuardedRun, RunGuard};
use crate::job_outcomes::{JobOutcomes, JobSubject};
use crate::outcomes::RunResources;
use crate::secrets;
use crate::state::{Durable, StateError};
use crate::storage::Storage;

/// How much longer a job may take whose commands have its time for themselves.
const COMMAND_GRACE: Duration = Duration::from_secs(30);

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// Nothing was adopted yet.
    #[error("this node holds no release yet")]
    NothingHeld,
    /// A content of the held set cannot be read.
    #[error("the held set cannot be read: {0}")]
    ReadSet(String),
    /// The state directory cannot be used.
    #[error("the state directory cannot be used")]
    State(#[from] StateError),
    /// A run by a tag that means nothing here.
    #[error(transparent)]
    Scope(#[from] UnknownTag),
}

impl RunnerError {
    /// The failure as the node's step takes it.
    pub fn failure(&self) -> RunFailure {
        let cause = match self {
            RunnerError::NothingHeld => UnmadeRunCause::ReleaseLost,
            RunnerError::State(StateError::Lost { .. }) => UnmadeRunCause::MissingContent,
            RunnerError::State(StateError::Malformed { .. }) => UnmadeRunCause::Other,
            RunnerError::State(_) => UnmadeRunCause::State,
            RunnerError::ReadSet(_) | RunnerError::Scope(_) => UnmadeRunCause::Other,
        };
        RunFailure { cause, reason: crate::render::chain(self) }
    }
}

/// How many bytes the contents may grow by before they are collected again: what runs keep of files
/// that change again and again, and archives that were fetched.
pub const GARBAGE_GROWTH: u64 = MAX_BLOB;

/// What was there when contents were collected last.
struct CollectedGarbage {
    /// The root of the set that was run.
    root: Digest,
    /// The bytes that stayed.
    bytes: u64,
}

/// Runs over one host.
pub struct Runner {
    worker: JobWorker,
    /// What follows a run that could cut the host off (CNV-11).
    guard: Option<Arc<RunGuard>>,
    hostname: String,
    /// The set that was bound last. Held for a moment only, never over the disk.
    last: Mutex<Option<LastBound>>,
    /// What was collected last.
    collected: Mutex<Option<CollectedGarbage>>,
    /// Jobs at file systems that may not answer, of earlier runs too.
    hanging: SharedHangingJobs,
}

/// A run that ended.
#[derive(Clone, Debug)]
pub struct CompletedRun {
    /// What it came to, as it travels.
    pub report: RunReport,
    /// Every resource of it, as it stays here.
    pub resources: RunResources,
}

/// A job that ended.
pub(crate) struct EndedJob {
    pub(crate) id: JobId,
    pub(crate) subject: JobSubject,
    pub(crate) outcome: JobOutcome,
    pub(crate) spent: Duration,
}

/// The held set, bound to what the host shows of itself: what one run needs. It is dropped with the run, unless it is
/// small, as it may take more memory than all else that an idle agent has.
pub struct BoundRelease {
    adoption: Adoption,
    desired: Desired,
}

impl BoundRelease {
    /// The release.
    pub fn adoption(&self) -> &Adoption {
        &self.adoption
    }

    /// What the host should be.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }
}

impl Runner {
    /// A runner over a host and its state.
    pub fn new(kinds: Arc<Kinds>, storage: Storage, hostname: String) -> Runner {
        let worker =
            JobWorker { kinds, storage, changes: Arc::new(ChangeLog::begin()), hanging: None, guarded: None };
        let (last, collected) = (Mutex::default(), Mutex::default());
        Runner { worker, guard: None, hostname, last, collected, hanging: SharedHangingJobs::default() }
    }

    /// Binds the held set and converges what is in the order's scope, or only says what would change; says
    /// of every resource what it came to. A host that is paused is only observed.
    ///
    /// # Errors
    /// When there is nothing to bind, no resource has a tag of the scope that no operator requested, or the
    /// state cannot be read.
    pub fn run(&self, order: &RunOrder, traits: &Value, mode: RunMode) -> Result<CompletedRun, RunnerError> {
        self.run_bound(order, &self.bind(traits)?, mode)
    }

    /// As [`Runner::run`], of what was bound for it.
    ///
    /// # Errors
    /// When no resource has a tag of the scope that no operator requested, or the state cannot be read.
    pub fn run_bound(
        &self,
        order: &RunOrder,
        bound: &BoundRelease,
        mode: RunMode,
    ) -> Result<CompletedRun, RunnerError> {
        self.run_taking_back(order, bound, mode, TakeBack::Nothing)
    }

    /// As [`Runner::run_bound`], of a host that leaves a generation.
    ///
    /// # Errors
    /// As there.
    pub fn run_taking_back(
        &self,
        order: &RunOrder,
        bound: &BoundRelease,
        mode: RunMode,
        taken_back: TakeBack,
    ) -> Result<CompletedRun, RunnerError> {
        let mode = if order.pause.is_some() { RunMode::Plan } else { mode };
        let BoundRelease { adoption, desired } = bound;
        let durable = self.worker.storage.durable();
        order.check(desired)?;
        let recording = (mode == RunMode::Apply).then(|| durable.begin_run());
        if mode == RunMode::Apply {
            // A plan may be made beside a run, and writes no records. It takes nothing away either: the
            // run may be on an earlier set, and about to record what it keeps.
            self.collect_garbage_when_due(adoption);
            if order.scope == RunScope::All
                && let Err(error) = self.forget_sensitive(bound)
            {
                // The verbs that show versions try it again first.
                tracing::warn!(error = %crate::render::chain(&error), "versions of files that are sensitive by now stay");
            }
            self.worker.kinds.begin_run(order.scope.purpose());
        }
        let (ledger, pending) = (durable.ledger()?, durable.pending()?);
        let options = RunOptions {
            max_parallel: converge::run::DEFAULT_PARALLEL,
            seq: order.seq,
            root: order.root,
            intended: order.intended,
            started: now(),
            scope: order.scope.clone(),
            east_secs: providers::clock::east_secs(self.worker.kinds.host(), now()),
            taken_back,
        };
        let run = Run::new(desired.clone(), ledger, pending, mode, options);
        let guarded = self.guard_of(bound, mode, taken_back).map(Arc::new);
        let turn = guarded.as_ref().map(|guarded| guarded.guard.turn(&order.scope));
        let (finished, outcomes) = self.carry_out(run, guarded.clone());
        if let Some(guarded) = &guarded {
            guarded.guard.run_ended(guarded, &finished.report);
        }
        drop(turn);
        drop(recording);
        let (paused, unknown_tags) = (order.pause.clone(), order.unknown_tags(desired));
        let intended = order.intends(&finished.report);
        let report = RunReport { intended, paused, unknown_tags, ..finished.report };
        let resources = outcomes.resources(desired, &report, mode);
        Ok(CompletedRun { report, resources })
    }

    /// The resource types over the host.
    pub(crate) fn kinds(&self) -> &Arc<Kinds> {
        &self.worker.kinds
    }

    /// The state directory.
    pub(crate) fn durable(&self) -> &Durable {
        self.worker.storage.durable()
    }

    /// The set that is held, bound.
    ///
    /// # Errors
    /// When nothing is held, or a content of the set cannot be read.
    pub fn bind(&self, traits: &Value) -> Result<BoundRelease, RunnerError> {
        self.bind_release(self.durable().adoption()?.ok_or(RunnerError::NothingHeld)?, traits)
    }

    /// As [`Runner::bind`], of a release whose contents are here.
    ///
    /// # Errors
    /// When a content of the set cannot be read.
    pub fn bind_release(&self, adoption: Adoption, traits: &Value) -> Result<BoundRelease, RunnerError> {
        let desired = self.desired(&adoption, traits)?;
        Ok(BoundRelease { adoption, desired })
    }

    /// Lets go of the versions of files that are sensitive by now (CNV-8).
    ///
    /// # Errors
    /// When the store cannot be read, or a history cannot be changed.
    pub fn forget_sensitive(&self, bound: &BoundRelease) -> Result<(), StateError> {
        self.durable().versions().forget_sensitive(&bound.desired, &self.worker.kinds)
    }

    /// The set of a release, bound.
    ///
    /// # Errors
    /// When a content of the set cannot be read.
    pub fn desired(&self, adoption: &Adoption, traits: &Value) -> Result<Desired, RunnerError> {
        let (root, durable) = (adoption.root, self.worker.storage.durable());
        let documents = HeldDocuments::read(adoption, durable)?;
        if let Some(desired) = self.last_bound().as_ref().and_then(|last| last.again(root, traits)) {
            return Ok(desired);
        }
        let last_uses = {
            let last = self.last_bound();
            last.as_ref().filter(|last| last.is_of(root)).map(|last| last.uses().clone())
        };
        let held = documents.parse(last_uses.is_some())?;
        let secrets = secrets::open(adoption, durable, &self.hostname)?;
        // Wherever it is: no resource may take it away.
        let state = own_state(self.worker.kinds.host(), self.durable().path());
        let from = Inputs {
            modules: &held.modules,
            params: &held.params,
            hostname: Some(&self.hostname),
            traits: Some(traits),
            own_paths: state.as_slice(),
            secrets: &secrets,
        };
        let last = LastBound::new(root, last_uses.unwrap_or_else(|| TraitUses::of(&from)));
        let desired = bind(&from);
        *self.last_bound() = Some(match secrets::are_held(adoption) {
            true => last,
            false => last.keeping(&desired, traits),
        });
        Ok(desired)
    }

    /// Those of the traits that the held set reads, as it was bound last: a check-in needs them, and
    /// waits for no disk. The first time the set is bound for it. `None` when nothing is held, or the set
    /// cannot be read: the run says so.
    pub fn read_traits(&self, traits: &Value) -> Option<ReadTraits> {
        if let Some(read) = self.read_of_last(traits) {
            return Some(read);
        }
        self.bind(traits).ok()?;
        self.read_of_last(traits)
    }

    fn read_of_last(&self, traits: &Value) -> Option<ReadTraits> {
        self.last_bound().as_ref().map(|last| last.read_traits(traits))
    }

    fn last_bound(&self) -> MutexGuard<'_, Option<LastBound>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what a set that is run for the first time leaves over, and what runs of it left since,
    /// once that is [`GARBAGE_GROWTH`]: on the storage thread, so that nothing is fetched or adopted
    /// meanwhile, and before this run keeps anything itself. Only for runs that change the host, of which
    /// there is one at a time.
    pub fn collect_garbage_when_due(&self, held: &Adoption) {
        let total = || self.worker.storage.durable().contents().total();
        let mut last = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        let grown = |since: &CollectedGarbage| total().saturating_sub(since.bytes) >= GARBAGE_GROWTH;
        if last.as_ref().is_some_and(|last| last.root == held.root && !grown(last)) {
            return;
        }
        let bound = held.clone();
        let collected = self.worker.storage.run_blocking(move |durable| durable.collect_garbage(&bound));
        if let Err(error) = collected {
            // Only space: it is tried again when the next set is run, or more was kept.
            tracing::warn!(error = %crate::render::chain(&error), "garbage stays");
        }
        *last = Some(CollectedGarbage { root: held.root, bytes: total() });
    }

    fn carry_out(&self, mut run: Run, guarded: Option<Arc<GuardedRun>>) -> (FinishedRun, JobOutcomes) {
        let changes = Arc::new(ChangeLog::begin());
        let worker = JobWorker { changes, guarded, ..self.worker.clone() };
        let (results, done) = channel::<EndedJob>();
        let mut outcomes = JobOutcomes::default();
        let mut deadlines = RunDeadlines::default();
        let mounts = worker.kinds.mounts_that_may_hang();
        loop {
            let mut progressed = false;
            for job in run.ready(now()) {
                progressed = true;
                if let JobWork::Wait { delay } = job.what {
                    deadlines.wait(job.id, delay);
                } else if let Some(mount) = worker.kinds.mount_of_job(&mounts, &job.what) {
                    let (id, subject) = (job.id, JobSubject::of(&job));
                    match self.hanging.begin(mount) {
                        Ok(hanging) => {
                            let patience = patience(&job.what, worker.kinds.host());
                            deadlines.hang(&job, mount.clone(), &hanging, patience);
                            worker.at_hanging(hanging).spawn(job, results.clone());
                        }
                        Err(refusal) => {
                            let outcome = Err(refusal.to_string().into());
                            outcomes.ended(subject, &outcome, Duration::ZERO);
                            run.done(id, outcome, now());
                        }
                    }
                } else if may_start_command(&job.what, worker.kinds.host()) {
                    worker.spawn(job, results.clone());
                } else {
                    let (id, subject, began) = (job.id, JobSubject::of(&job), Instant::now());
                    let outcome = worker.perform(job);
                    outcomes.ended(subject, &outcome, began.elapsed());
                    run.done(id, outcome, now());
                }
            }
            if let Some(finished) = run.finish() {
                return (finished, outcomes);
            }
            if !progressed && let Some(ended) = deadlines.next_ended(&done, worker.kinds.host()) {
                let EndedJob { id, subject, outcome, spent } = ended;
                outcomes.ended(subject, &outcome, spent);
                run.done(id, outcome, now());
            }
        }
    }
}

/// The state directory as a path of the host that is managed; `None` where it is not on it.
fn own_state(host: &Host, state: &Path) -> Option<String> {
    let below = state.strip_prefix(host.root()).ok().filter(|below| *below != Path::new(""))?;
    Some(format!("/{}", below.display()))
}

/// What the host shows of itself now, collected anew: for what is asked beside the daemon's runs.
pub(crate) fn observed(host: &Arc<Host>) -> Value {
    providers::traits::collect(host, env!("CARGO_PKG_VERSION"), now()).traits
}

/// Lets the machine's own work go before the run that this thread makes, and before its commands
/// (CNV-12).
pub fn lower_priority() {
    if let Err(error) = host::lower_own_priority() {
        tracing::debug!(%error, "runs keep the agent's priority");
    }
}

/// The scope of these tags; all of the set when there are none.
pub fn scope_of(tags: &BTreeSet<String>) -> RunScope {
    match tags.is_empty() {
        true => RunScope::All,
        false => RunScope::Tags(tags.clone()),
    }
}

/// How long a job may take at a file system that may not answer. Commands end by themselves after the
/// time of their resource.
fn patience(work: &JobWork, host: &Host) -> Duration {
    let timeout = match work {
        JobWork::Check { resource, .. } | JobWork::Apply { resource, .. } => resource.timeout,
        _ => PROBE_TIMEOUT,
    };
    if may_start_command(work, host) { timeout + COMMAND_GRACE } else { timeout }
}

/// Whether a job may start a command, which may hang, or asks a bus that did not answer last.
fn may_start_command(work: &JobWork, host: &Host) -> bool {
    let runs = |resource: &BoundResource| match &resource.spec {
        Ok(
            Spec::File(FileSpec { validate, .. })
            | Spec::Line(LineSpec { validate, .. })
            | Spec::Block(BlockSpec { file: EditedFile { validate, .. }, .. })
            | Spec::Ini(IniSpec { file: EditedFile { validate, .. }, .. })
            | Spec::Json(JsonSpec { file: EditedFile { validate, .. }, .. }),
        ) => validate.is_some(),
        Ok(Spec::Directory(_) | Spec::Symlink(_) | Spec::Host(_)) | Err(_) => false,
        Ok(_) => true,
    };
    match work {
        JobWork::Check { resource, .. } => match &resource.spec {
            // Only what the repositories offer is asked of a program.
            Ok(Spec::Package(spec)) => spec.wanted == WantedPackage::Latest,
            Ok(
                Spec::Repository(_)
                | Spec::User(_)
                | Spec::Group(_)
                | Spec::SshKey(_)
                | Spec::Sysctl(_)
                | Spec::Mount(_)
                | Spec::Hostname(_),
            ) => false,
            Ok(Spec::Unit(_)) => !host.systemd().answers(),
            _ => runs(resource),
        },
        JobWork::Apply { resource, .. } => runs(resource),
        JobWork::ApplyTogether { .. }
        | JobWork::Verify { .. }
        | JobWork::Guard { .. }
        | JobWork::Probe(Probe::CommandSucceeds(_)) => true,
        JobWork::Undo { undo, .. } => undo.iter().any(|undo| matches!(undo.prior, Prior::State(_))),
        JobWork::Remove { entry, .. } => matches!(entry.prior, Prior::State(_)),
        JobWork::Wait { .. } | JobWork::Probe(_) | JobWork::Persist { .. } => false,
    }
}
