//! What an operator asks for.

use model::id::is_name;
use model::share::Share;
use model::work::{MAX_ARGS, MAX_TIMEOUT_SECS, Work};
use serde::{Deserialize, Serialize};

use super::{MAX_TARGETS, MAX_TASK_ID, MAX_WAIT_SECS, MAX_WORK};

/// One thing to do on many nodes.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskSpec {
    /// Its id, never used before: a to z, 0 to 9, `-` and `_`, at most [`MAX_TASK_ID`].
    pub id: String,
    /// The operator.
    pub by: String,
    /// The selector that the targets were taken from, for people.
    pub selector: String,
    /// What to do.
    pub work: Work,
    /// At most so many at a time, at least one.
    pub batch: Share,
    /// So many may fail before the rest is called off; absent: all may.
    pub max_failures: Option<Share>,
    /// So many must succeed before the others begin; until then none may fail.
    #[serde(default)]
    pub canaries: u32,
    /// The longest time on one node, in seconds.
    pub timeout_secs: u64,
    /// How long nodes that cannot be reached are waited for, in seconds from the beginning; with
    /// 0 they are answered at once.
    #[serde(default)]
    pub wait_secs: u64,
    /// How long a node that was asked may take to begin, in seconds, besides the time until
    /// its next contact.
    pub begin_secs: u64,
    /// The workflow that it is a step of.
    pub workflow: Option<String>,
}

/// A task that cannot be begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The id.
    #[error("a task's id has a to z, 0 to 9, '-' and '_', at most {MAX_TASK_ID}")]
    Id,
    /// There is nobody to do it.
    #[error("the selector means no node")]
    NoTargets,
    /// More targets than [`MAX_TARGETS`].
    #[error("a task has at most {MAX_TARGETS} targets")]
    TooManyTargets,
    /// A timeout of nothing or of more than a day.
    #[error("the timeout must be between 1 and {MAX_TIMEOUT_SECS} seconds")]
    Timeout,
    /// A wait beyond [`MAX_WAIT_SECS`].
    #[error("nodes are waited for at most {MAX_WAIT_SECS} seconds")]
    Wait,
    /// A batch of nothing.
    #[error("the batch must be at least 1")]
    Batch,
    /// A command without a program, or with too many arguments.
    #[error("a command has a program with an absolute path and at most {MAX_ARGS} parts")]
    Command,
    /// Larger than [`MAX_WORK`].
    #[error("the work is larger than {MAX_WORK} bytes")]
    TooLarge,
    /// A query that no node knows.
    #[error(
        "{0:?} cannot be asked so: traits, processes, listeners and disks take no path, and file an absolute one"
    )]
    Query(String),
}

impl TaskSpec {
    /// Whether it may be begun on so many targets. What nodes are delegated is their own
    /// affair, and is judged there.
    ///
    /// # Errors
    /// [`SpecError`].
    pub fn check(&self, targets: usize) -> Result<(), SpecError> {
        if !is_name(&self.id) || self.id.len() > MAX_TASK_ID {
            return Err(SpecError::Id);
        }
        if targets == 0 {
            return Err(SpecError::NoTargets);
        }
        if targets > MAX_TARGETS {
            return Err(SpecError::TooManyTargets);
        }
        if self.timeout_secs == 0 || self.timeout_secs > MAX_TIMEOUT_SECS {
            return Err(SpecError::Timeout);
        }
        if self.wait_secs > MAX_WAIT_SECS || self.begin_secs > MAX_WAIT_SECS {
            return Err(SpecError::Wait);
        }
        if matches!(self.batch, Share::Count(0) | Share::Percent(0)) {
            return Err(SpecError::Batch);
        }
        check_work(&self.work)
    }
}

/// Whether a node could read it at all.
pub(super) fn check_work(work: &Work) -> Result<(), SpecError> {
    if serde_json::to_vec(work).map_or(usize::MAX, |bytes| bytes.len()) > MAX_WORK {
        return Err(SpecError::TooLarge);
    }
    match work {
        Work::Command { argv } => {
            let program = argv.first().is_some_and(|program| program.starts_with('/'));
            let plain = argv.iter().all(|arg| !arg.contains('\0'));
            if program && plain && argv.len() <= MAX_ARGS { Ok(()) } else { Err(SpecError::Command) }
        }
        Work::Action { args, .. } if args.len() > MAX_ARGS => Err(SpecError::TooLarge),
        Work::Query { what, path } => match (what.as_str(), path) {
            ("traits" | "processes" | "listeners" | "disks", None) => Ok(()),
            ("file", Some(path)) if path.starts_with('/') => Ok(()),
            _ => Err(SpecError::Query(what.chars().take(40).collect())),
        },
        // What is no object's name is no object of the node's either.
        Work::Action { .. } | Work::Operation { .. } => Ok(()),
    }
}
