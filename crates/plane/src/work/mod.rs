//! Work that operators ask of nodes: tasks, queries and workflows (OPS-2, SYN-10).
//!
//! ```text
//! operator --> Workflow --StartTask--> Task --Put, Drop--> Action object in the node's feed
//!                 ^                     ^                          |
//!                 +---- TaskFinished ---+<-- Started, Ended -- facts of the node
//!
//! a target:  Waiting --room in the batch--> Issued --began--> Running --its end--> Ended
//!             |   ^                            |                 |
//!             |   +-- Deferred (no contact)    +-- past its time +--> Silent
//!             +--> Unreachable, Offline, Withdrawn, Removed: never asked
//! ```
//!
//! Pure: [`Task::handle`] and [`Workflow::handle`] turn inputs into effects; the shell
//! carries them out in their order. A query is a task whose work is a query and which has
//! no batches; there is one machine.
//!
//! Invariants:
//!
//! - *Never more than the batch is in flight*, and never so much that the failure budget
//!   could be exceeded: what is in flight counts as if it failed. Whatever happens, at most
//!   `max_failures + 1` nodes fail.
//! - *Nothing is asked twice.* An action's id is a function of task and node, and a node
//!   that was asked once is not asked again by this task. To run something again is a new
//!   task, an operator's own word.
//! - Every target comes to an end: of itself, or as unreachable, offline, withdrawn or silent, which
//!   frees its slot of the batch. What a node says later than that is still taken in.
//! - What the Action object of a node has to be is a function of the task's state
//!   ([`Task::order_for`]), so after a crash at any moment [`Task::resume`] puts right what
//!   was not done.
//!
//! What must be durable: the [`TaskDocument`] and one [`NodeWork`] for each target.

mod progress;
mod spec;
mod target;
mod task;
mod workflow;
mod workflow_spec;

pub use model::share::{ParseShareError, Share};
pub use progress::{TaskProgress, TaskState, TaskSummary};
pub use spec::{SpecError, TaskSpec};
pub use target::{NodeStage, NodeWork, Reach, action_id, parse_action_id};
pub use task::{Task, TaskDocument, TaskEffect, TaskInput};
pub use workflow::{Attempt, Workflow, WorkflowEffect, WorkflowInput, WorkflowPhase};
pub use workflow_spec::{Gate, StepSpec, WorkflowError, WorkflowSpec};

use std::time::Duration;

/// The most targets of one task.
pub const MAX_TARGETS: usize = 100_000;
/// The most tasks that are open at one time, workflows' ones included.
pub const MAX_OPEN_TASKS: usize = 256;
/// The most workflows that are open at one time.
pub const MAX_OPEN_WORKFLOWS: usize = 64;
/// The most steps of a workflow.
pub const MAX_STEPS: usize = 64;
/// The most times that one step of a workflow is begun.
pub const MAX_ATTEMPTS: usize = 32;
/// The longest id of a task or workflow, in bytes.
pub const MAX_TASK_ID: usize = 64;
/// The largest work of a task, as JSON, in bytes: it is written for every target.
pub const MAX_WORK: usize = 32 * 1024;
/// The longest text that a node says of an outcome that is kept in a target's state.
pub const MAX_MESSAGE: usize = 1024;
/// The longest that nodes that cannot be reached are waited for, and that a soak takes, in seconds.
pub const MAX_WAIT_SECS: u64 = 7 * 24 * 3600;
/// The time that a node has to begin, beyond the wait until its next contact, in seconds.
pub const BEGIN_SECS: u64 = 300;
/// How long after the last moment at which it should have been over a node is still waited
/// for; then it counts as silent.
pub const GRACE: Duration = Duration::from_secs(600);
