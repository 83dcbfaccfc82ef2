//! [`Run`]: what to do next, and what came of it (CNV-1, CFG-4).
//!
//! Modules run in order of their edges, independent ones beside each other; inside a
//! module one resource after the other: when -> guards -> check -> ok, or apply -> changed or
//! failed -> notify; then verify; then the notified handlers. Order never skips; a failed
//! `depends_on` does. A resource with `retries` that failed waits and goes on where it failed,
//! at a guard or at the check, and other modules go on meanwhile. A [`RunScope`] limits a run
//! to some resources. Before anything is applied, the shell makes durable what a crash
//! must not lose: the ledger entry, the notifications that the change will cause and how
//! to undo it ([`Record`]). So a process that is killed at any moment owes no handler and
//! no verify that the next run does not pay.

mod condition;
mod failure;
mod machine;
mod module;
mod pending;
mod remember;
mod removal;
mod replace;
mod report;
mod retry;
mod scope;
mod slot;
mod taken_back;
mod together;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use catalog::module::{CommandLine, OnRemove};
use lang::Probe;
use model::{Digest, RunReport, Timestamp};

use crate::bind::ResourceGuard;
use crate::kinds::{Applied, Checked};
use crate::{BoundResource, Ledger, LedgerEntry, ResourceId};

pub use failure::JobFailure;
pub use machine::Run;
pub use pending::{Pending, Undo};
pub(crate) use remember::{Remembered, remembered};
pub use scope::{RunScope, UnknownTag};
pub use taken_back::TakeBack;
pub use together::MAX_TOGETHER;

/// How many modules a run works on at once by default.
pub const DEFAULT_PARALLEL: usize = 4;
/// Time for a module's `verify:`.
pub const VERIFY_TIMEOUT: Duration = Duration::from_secs(120);

/// Whether a run changes the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMode {
    /// Make it so.
    Apply,
    /// Only say what would change; nothing is touched and nothing is persisted (CNV-6).
    Plan,
}

/// What a run is about.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Modules at once; at least 1.
    pub max_parallel: usize,
    /// The release's number, for the report.
    pub seq: u64,
    /// The set's root, for the report.
    pub root: Digest,
    /// The set was adopted since the last run, so its changes are no drift.
    pub intended: bool,
    /// When the run starts.
    pub started: Timestamp,
    /// Which resources it is about.
    pub scope: RunScope,
    /// How many seconds east of UTC the host's wall clock is, for conditions about the time.
    pub east_secs: i32,
    /// What is put back as it was, as the host leaves a generation.
    pub taken_back: TakeBack,
}

/// Names a job of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}", self.0)
    }
}

/// Something for the shell to do, once, and to answer with [`Run::done`].
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// What to do.
    pub what: JobWork,
}

/// What a job asks for; beside each the outcome that answers it.
#[derive(Clone, Debug)]
pub enum JobWork {
    /// Answer a question about the host: [`JobDone::Probed`] or [`JobDone::Skipped`]. Never one
    /// about the time or about notifications: the run answers those itself.
    Probe(Probe),
    /// Run a resource's guard: [`JobDone::Guarded`] or [`JobDone::Skipped`].
    Guard {
        /// Whose guard it is.
        resource: Arc<BoundResource>,
        /// The guard.
        guard: ResourceGuard,
    },
    /// Let this much time pass by a clock that nobody sets: [`JobDone::Waited`]. It is no work,
    /// and must hold no other job up; an error ends the waiting, and what failed has failed.
    Wait {
        /// How long.
        delay: Duration,
    },
    /// Look, and touch nothing: [`JobDone::Checked`] or [`JobDone::Skipped`].
    Check {
        /// What to look at; its spec is `Ok`.
        resource: Arc<BoundResource>,
        /// No apply will follow, so the check may cost more to say more (a dry run).
        plan: bool,
        /// Who notified it: those that changed, and those that would have where it only observes.
        notified: BTreeSet<ResourceId>,
    },
    /// Keep the prior bytes where the record says so, make the record durable, then apply:
    /// [`JobDone::Applied`], [`JobDone::NotApplied`] or [`JobDone::Skipped`].
    Apply {
        /// What to apply; its spec is `Ok`.
        resource: Arc<BoundResource>,
        /// What the check found.
        checked: Checked,
        /// What must be durable before the host is touched.
        record: Record,
        /// Who notified it.
        notified: BTreeSet<ResourceId>,
    },
    /// As [`JobWork::Apply`], of several resources in one go: [`JobDone::AppliedTogether`].
    ApplyTogether {
        /// What to apply, in order; at least two, of types that are applied together.
        members: Vec<TogetherMember>,
        /// What must be durable before the host is touched; it keeps no bytes.
        record: Record,
    },
    /// Run a module's verify: [`JobDone::Verified`].
    Verify {
        /// The module.
        module: String,
        /// The command.
        command: CommandLine,
        /// Kill it after this long.
        timeout: Duration,
    },
    /// Put back, in this order, what a module changed: [`JobDone::Undone`]. Undoing twice
    /// must do no harm.
    Undo {
        /// The module.
        module: String,
        /// The last change first.
        undo: Vec<Undo>,
    },
    /// A resource left the set: [`JobDone::Removed`]. Removing twice must do no harm.
    Remove {
        /// The resource.
        id: ResourceId,
        /// What the ledger knows of it.
        entry: LedgerEntry,
        /// `Delete` or `Restore`.
        how: OnRemove,
    },
    /// Make the record durable: [`JobDone::Persisted`].
    Persist {
        /// What to write.
        record: Record,
    },
}

/// A resource that is applied with others.
#[derive(Clone, Debug)]
pub struct TogetherMember {
    /// What to apply; its spec is `Ok`.
    pub resource: Arc<BoundResource>,
    /// What the check found.
    pub checked: Checked,
}

/// A change of what is kept on disk beside the host's own state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Rises with every record of a run. Jobs run beside each other: a `pending` older than
    /// the one written last must not be written over it.
    pub generation: u64,
    /// What [`Pending`] is to be; `None` when it is already so on disk.
    pub pending: Option<Pending>,
    /// Before anything else, the bytes of the regular file at this path go to the blob store:
    /// an entry of `put` or an undo of `pending` says that they are kept.
    pub keep: Option<String>,
    /// Ledger entries to write.
    pub put: Vec<(ResourceId, LedgerEntry)>,
    /// Ledger entries to forget.
    pub remove: Vec<ResourceId>,
}

impl Record {
    /// There is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.keep.is_none() && self.pending.is_none() && self.put.is_empty() && self.remove.is_empty()
    }
}

/// What came of a job.
pub type JobOutcome = Result<JobDone, JobFailure>;

/// What a job found or did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobDone {
    /// Of [`JobWork::Probe`].
    Probed(bool),
    /// Of [`JobWork::Guard`]: whether the command succeeded.
    Guarded(bool),
    /// Of [`JobWork::Wait`].
    Waited,
    /// Of [`JobWork::Check`].
    Checked(Checked),
    /// The host does not do this kind of work here; the reason (`rooted`).
    Skipped(String),
    /// Of [`JobWork::Apply`].
    Applied(Applied),
    /// Of [`JobWork::Apply`] that failed, where not all is there that it was to make around the thing.
    NotApplied {
        /// Why.
        failure: JobFailure,
        /// What of the surroundings is missing: it was not made, or was taken back.
        missing: Vec<String>,
    },
    /// Of [`JobWork::ApplyTogether`]: one for each member.
    AppliedTogether(Vec<Result<Applied, JobFailure>>),
    /// Of [`JobWork::Verify`].
    Verified,
    /// Of [`JobWork::Undo`].
    Undone,
    /// Of [`JobWork::Remove`]: whether anything was changed.
    Removed(bool),
    /// Of [`JobWork::Persist`].
    Persisted,
}

/// What a run leaves.
#[derive(Clone, Debug)]
pub struct FinishedRun {
    /// What was done.
    pub report: RunReport,
    /// The ledger after it, as it is on disk.
    pub ledger: Ledger,
    /// What is still owed, as it is on disk.
    pub pending: Pending,
}
