//! How a task stands, in numbers.

use model::work::ActionOutcome;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::target::{NodeStage, NodeWork};

/// How a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// Its targets are being written down.
    Planned,
    /// It goes on.
    Running,
    /// The failure budget is used up; what is in flight comes to its end.
    Halting,
    /// An operator called it off; what is in flight is being ended.
    Cancelling,
    /// Every target came to an end.
    Done,
    /// It was called off because of failures.
    Halted,
    /// An operator called it off.
    Cancelled,
}

impl TaskState {
    /// Its name, as messages and metrics have it.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskState::Planned => "planned",
            TaskState::Running => "running",
            TaskState::Halting => "halting",
            TaskState::Cancelling => "cancelling",
            TaskState::Done => "done",
            TaskState::Halted => "halted",
            TaskState::Cancelled => "cancelled",
        }
    }

    /// Nothing more is done.
    pub fn is_final(self) -> bool {
        matches!(self, TaskState::Done | TaskState::Halted | TaskState::Cancelled)
    }
}

/// The targets of a task by how they stand; each is in one of these but `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskProgress {
    /// All of them.
    pub total: usize,
    /// Not asked yet.
    pub waiting: usize,
    /// Unreachable or offline, and waited for.
    pub deferred: usize,
    /// Asked, not begun by their word.
    pub issued: usize,
    /// Begun.
    pub running: usize,
    /// Ended as wanted.
    pub succeeded: usize,
    /// Ended otherwise.
    pub failed: usize,
    /// Begun, and what became of it is not known, because the agent died.
    pub unknown: usize,
    /// Ended by an operator while it ran.
    pub cancelled: usize,
    /// Not asked, because they were unreachable.
    pub unreachable: usize,
    /// Not asked, because they were offline.
    pub offline: usize,
    /// Called off before it began.
    pub withdrawn: usize,
    /// Asked, and never heard of again.
    pub silent: usize,
    /// Removed from the fleet.
    pub removed: usize,
}

impl TaskProgress {
    /// How many take a slot of the batch.
    pub fn in_flight(&self) -> usize {
        self.issued + self.running
    }

    /// How many may still be asked.
    pub fn open(&self) -> usize {
        self.waiting + self.deferred
    }

    /// How many count against the failure budget.
    pub fn failures(&self) -> usize {
        self.failed + self.unknown + self.silent
    }

    /// Puts a target in, or takes it out again.
    pub(super) fn count(&mut self, work: &NodeWork, there: bool) {
        let counter = match (work.stage, &work.outcome) {
            (NodeStage::Waiting, _) => &mut self.waiting,
            (NodeStage::Deferred, _) => &mut self.deferred,
            (NodeStage::Issued, _) => &mut self.issued,
            (NodeStage::Running, _) => &mut self.running,
            (NodeStage::Ended, _) if work.succeeded() => &mut self.succeeded,
            (NodeStage::Ended, Some(ActionOutcome::Unknown)) => &mut self.unknown,
            (NodeStage::Ended, _) if work.failed() => &mut self.failed,
            (NodeStage::Ended, _) => &mut self.cancelled,
            (NodeStage::Unreachable, _) => &mut self.unreachable,
            (NodeStage::Offline, _) => &mut self.offline,
            (NodeStage::Withdrawn, _) => &mut self.withdrawn,
            (NodeStage::Silent, _) => &mut self.silent,
            (NodeStage::Removed, _) => &mut self.removed,
        };
        if there {
            *counter += 1;
            self.total += 1;
        } else {
            *counter -= 1;
            self.total -= 1;
        }
    }
}

/// What a task came to, or how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSummary {
    /// How it stands.
    pub state: TaskState,
    /// Why it was called off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// In numbers.
    #[serde(flatten)]
    pub progress: TaskProgress,
}
