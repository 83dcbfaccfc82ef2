//! Tasks and workflows as they are kept: documents that another crate owns, and a row for
//! each target, so that a hundred thousand targets are not one document (OPS-2).

use model::{NodeId, Timestamp};

use crate::closure::limit;
use crate::error::Result;

/// The largest document of a task, in bytes.
pub const MAX_TASK_DOCUMENT: usize = 1024 * 1024;
/// The largest state of one target of a task, in bytes.
pub const MAX_TARGET_STATE: usize = 64 * 1024;
/// The longest id of a task or an action, and the longest name of an operator, in bytes.
pub const MAX_TASK_TEXT: usize = 256;
/// The most tasks and workflows that are open at one time.
pub const MAX_OPEN_TASKS: usize = 1000;
/// The most targets in one put.
pub const MAX_TARGETS_IN_PUT: usize = 10_000;

/// What sort of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// One thing for many nodes.
    Task,
    /// Steps, each a task.
    Workflow,
}

/// A task or a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// Its id, unique among all.
    pub id: String,
    /// What sort.
    pub kind: TaskKind,
    /// When it was asked for.
    pub created: Timestamp,
    /// Who asked for it.
    pub by: String,
    /// What was asked for and how it stands: JSON text that the store does not read.
    pub document: String,
    /// When it ended; absent while it is open.
    pub finished: Option<Timestamp>,
}

/// One target of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskNode {
    /// The node.
    pub node: NodeId,
    /// The action that it was asked for; empty before it was.
    pub action: String,
    /// How it stands: JSON text that the store does not read.
    pub state: String,
}

/// Holds a task to its bounds.
pub(crate) fn check_task(task: &TaskRecord) -> Result<()> {
    limit("a task's id in bytes", task.id.len() as u64, MAX_TASK_TEXT as u64)?;
    limit("the name of who asked, in bytes", task.by.len() as u64, MAX_TASK_TEXT as u64)?;
    limit("a task's document in bytes", task.document.len() as u64, MAX_TASK_DOCUMENT as u64)
}

/// Holds targets to their bounds.
pub(crate) fn check_targets(targets: &[TaskNode]) -> Result<()> {
    limit("targets in one put", targets.len() as u64, MAX_TARGETS_IN_PUT as u64)?;
    targets.iter().try_for_each(|target| {
        limit("an action's id in bytes", target.action.len() as u64, MAX_TASK_TEXT as u64)?;
        limit("a target's state in bytes", target.state.len() as u64, MAX_TARGET_STATE as u64)
    })
}
