//! One node of a task.

use std::time::Duration;

use model::status::{Contact, contact_of};
use model::work::ActionOutcome;
use model::{NodeId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MAX_MESSAGE, MAX_TASK_ID};

/// How a node can be reached now (SYN-10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It has a stream.
    Online,
    /// It polls, and will open a stream (or fetch its work) at its next contact.
    Promotable {
        /// Within so many seconds.
        within_secs: u64,
    },
    /// It missed three contacts that it was promised (LIF-1).
    Unreachable,
    /// It missed ten.
    Offline,
    /// It is no node of the fleet (any more).
    Removed,
}

impl Reach {
    /// By its contact, where it has no stream; `silent_since` is [`NodeState::silent_since`](crate::NodeState::silent_since).
    pub fn by_contact(silent_since: Timestamp, promised: Duration, now: Timestamp) -> Reach {
        match contact_of(silent_since, promised, now) {
            Contact::Online => {
                Reach::Promotable { within_secs: promised.saturating_sub(now.since(silent_since)).as_secs() }
            }
            Contact::Unreachable => Reach::Unreachable,
            Contact::Offline => Reach::Offline,
        }
    }
}

/// How a target stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeStage {
    /// It was not asked yet.
    #[default]
    Waiting,
    /// It was not asked yet: it is unreachable or offline, and is waited for.
    Deferred,
    /// It was asked, and did not say that it began.
    Issued,
    /// It said that it began.
    Running,
    /// Its terminal fact is here.
    Ended,
    /// It was not asked, because it was unreachable.
    Unreachable,
    /// It was not asked, because it was offline.
    Offline,
    /// It was called off before it began.
    Withdrawn,
    /// It was asked, and is past every time at which it should have been over.
    Silent,
    /// It was removed from the fleet before it was asked, or before it answered.
    Removed,
}

impl NodeStage {
    /// It was not asked, and may be yet.
    pub fn is_open(self) -> bool {
        matches!(self, NodeStage::Waiting | NodeStage::Deferred)
    }

    /// It takes a slot of the batch.
    pub fn in_flight(self) -> bool {
        matches!(self, NodeStage::Issued | NodeStage::Running)
    }

    /// Its Action object has to be in the node's set.
    pub fn has_object(self) -> bool {
        matches!(self, NodeStage::Issued | NodeStage::Running | NodeStage::Silent)
    }
}

/// What is kept of one target.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeWork {
    /// Its index in the order of the targets.
    pub index: u32,
    /// How it stands.
    pub stage: NodeStage,
    /// Since when.
    pub since: Timestamp,
    /// When it was asked.
    pub issued: Option<Timestamp>,
    /// Until when it may begin.
    pub expires: Option<Timestamp>,
    /// When its word came that it began.
    pub begun: Option<Timestamp>,
    /// After this it counts as silent.
    pub deadline: Option<Timestamp>,
    /// It is not to begin any more; if it runs, it may go on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
    /// It is to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// How it ended. The answer of a query is left out here: it is in the facts.
    pub outcome: Option<ActionOutcome>,
    /// How long it took, in milliseconds.
    pub duration_ms: Option<u64>,
}

impl NodeWork {
    /// A target that was not asked yet.
    pub fn new(index: u32, now: Timestamp) -> NodeWork {
        NodeWork { index, since: now, ..NodeWork::default() }
    }

    /// Takes a terminal fact in; `false` when one is here already: the first counts. Also
    /// for a target of a task that is finished, without the task.
    pub fn end(&mut self, outcome: ActionOutcome, duration_ms: u64, now: Timestamp) -> bool {
        if self.outcome.is_some() {
            return false;
        }
        let called_off = self.withdrawn || self.cancelled;
        let not_begun =
            self.begun.is_none() && matches!(outcome, ActionOutcome::Expired | ActionOutcome::Cancelled);
        self.enter(if called_off && not_begun { NodeStage::Withdrawn } else { NodeStage::Ended }, now);
        self.outcome = Some(kept(outcome));
        self.duration_ms = Some(duration_ms);
        true
    }

    /// It is what was asked for.
    pub fn succeeded(&self) -> bool {
        self.stage == NodeStage::Ended && self.outcome.as_ref().is_some_and(ActionOutcome::is_success)
    }

    /// It counts against the failure budget.
    pub fn failed(&self) -> bool {
        match self.stage {
            NodeStage::Ended => {
                let called_off = self.cancelled && self.outcome == Some(ActionOutcome::Cancelled);
                !(self.succeeded() || called_off)
            }
            NodeStage::Silent => true,
            _ => false,
        }
    }

    pub(super) fn enter(&mut self, stage: NodeStage, now: Timestamp) {
        (self.stage, self.since) = (stage, now);
        if !stage.in_flight() {
            self.deadline = None;
        }
    }
}

/// An outcome without what may be large.
fn kept(outcome: ActionOutcome) -> ActionOutcome {
    let clip = |mut message: String| {
        let end = (0..=MAX_MESSAGE.min(message.len())).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
        message
    };
    match outcome {
        ActionOutcome::Answered { .. } => ActionOutcome::Answered { result: serde_json::Value::Null },
        ActionOutcome::Refused { code, message } => ActionOutcome::Refused { code, message: clip(message) },
        ActionOutcome::Failed { message } => ActionOutcome::Failed { message: clip(message) },
        other => other,
    }
}

/// The id of the action of a task on a node: the name and the uid of its object.
pub fn action_id(task: &str, node: &NodeId) -> String {
    format!("{task}.{node}")
}

/// The task and the node of an action's id; `None` for what is none. A node may speak only
/// of its own: compare.
pub fn parse_action_id(id: &str) -> Option<(&str, NodeId)> {
    let (task, node) = id.rsplit_once('.')?;
    let good = !task.is_empty() && task.len() <= MAX_TASK_ID;
    good.then_some(())?;
    Some((task, node.parse().ok()?))
}
