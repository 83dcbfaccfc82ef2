//! Tasks, queries and workflows on the operator port (OPS-2).

use std::collections::BTreeMap;

use model::work::{ActionOutcome, OutputStream, Work};
use model::{Hostname, NodeId, Timestamp};
use plane::work::{BEGIN_SECS, NodeStage, Share, TaskSpec, TaskSummary};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::operation::{Limit, Operation, Page};

/// Whom a selector means now.
pub static SELECT: Operation<Select, Selected> = Operation::post("/v1/selections").reads().in_scope();
/// Tasks, the newest first.
pub static TASKS: Operation<WorkHistory, Vec<TaskView>> = Operation::get("/v1/tasks").in_scope();
/// One task, or what is new of it.
pub static TASK: Operation<WorkQuery, TaskView> = Operation::get("/v1/tasks/{id}").in_scope();
/// What became of a task on its nodes, page by page.
pub static TASK_NODES: Operation<TaskNodesQuery, TaskNodesView> =
    Operation::get("/v1/tasks/{id}/nodes").in_scope();
/// What a node printed for a task.
pub static OUTPUT: Operation<OutputQuery, Vec<OutputView>> =
    Operation::get("/v1/tasks/{id}/output/{node}").in_scope();
/// Begins a task.
pub static BEGIN_TASK: Operation<NewTask, TaskView> =
    Operation::transfer("/v1/tasks").by_operators().in_scope();
/// Calls a task off.
pub static CANCEL_TASK: Operation<WorkQuery, TaskView> =
    Operation::post("/v1/tasks/{id}/cancel").by_operators().in_scope();
/// Workflows, the newest first.
pub static WORKFLOWS: Operation<WorkHistory, Vec<WorkflowView>> = Operation::get("/v1/workflows");
/// One workflow, or what is new of it.
pub static WORKFLOW: Operation<WorkQuery, WorkflowView> = Operation::get("/v1/workflows/{id}");
/// Begins a workflow.
pub static BEGIN_WORKFLOW: Operation<NewWorkflow, WorkflowView> =
    Operation::transfer("/v1/workflows").by_operators();
/// Tells a workflow how to go on.
pub static CONTROL_WORKFLOW: Operation<ControlWorkflow, WorkflowView> =
    Operation::post("/v1/workflows/{id}/{turn}").by_operators();

/// The longest that a question for news is held, in seconds.
pub const MAX_LONG_POLL_SECS: u64 = 30;

/// Tasks or workflows, the newest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WorkHistory {
    /// Only those that were begun before the one with this id.
    pub before: Option<String>,
    /// The most in one answer.
    pub limit: Limit,
}

/// One task or workflow.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WorkQuery {
    /// Its id.
    pub id: String,
    /// How long the answer is held while there is nothing new, in seconds, up to
    /// [`MAX_LONG_POLL_SECS`].
    pub wait: u64,
    /// The version that is known already.
    pub after: Option<u64>,
}

impl From<&str> for WorkQuery {
    fn from(id: &str) -> WorkQuery {
        WorkQuery { id: id.to_owned(), ..WorkQuery::default() }
    }
}

/// The nodes of a task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskNodesQuery {
    /// The task.
    pub id: String,
    /// Behind this node, the last of the page before.
    pub from: Option<NodeId>,
    /// The most in one answer.
    #[serde(default)]
    pub limit: Limit,
}

impl From<&str> for TaskNodesQuery {
    fn from(id: &str) -> TaskNodesQuery {
        TaskNodesQuery { id: id.to_owned(), from: None, limit: Limit::default() }
    }
}

/// What a node printed for a task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OutputQuery {
    /// The task.
    pub id: String,
    /// The node, by hostname or id.
    pub node: String,
    /// Only behind the piece with this number.
    #[serde(default)]
    pub after: u64,
}

/// A selector.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Select {
    /// The selector.
    pub selector: String,
}

/// The answer to [`Select`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selected {
    /// How many nodes.
    pub count: usize,
    /// The first few of them.
    pub first: Vec<Hostname>,
    /// How many of them have a stream.
    pub online: usize,
    /// Will open a stream at their next contact.
    pub promotable: usize,
    /// Missed three contacts that they were promised; an earlier control plane counts them as offline.
    #[serde(default)]
    pub unreachable: usize,
    /// Missed ten.
    pub offline: usize,
}

/// A task to begin.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewTask {
    /// Whom.
    pub selector: String,
    /// What.
    pub work: Work,
    /// At most so many at a time; absent: all.
    pub batch: Option<Share>,
    /// So many may fail.
    pub max_failures: Option<Share>,
    /// So many must succeed first.
    #[serde(default)]
    pub canaries: u32,
    /// The longest time on one node, in seconds.
    pub timeout_secs: u64,
    /// How long nodes that are unreachable or offline are waited for, in seconds.
    #[serde(default)]
    pub wait_secs: u64,
    /// How many nodes the operator confirmed; another number is refused.
    pub expected: Option<usize>,
}

impl NewTask {
    /// Work for all that a selector means, at once and without waiting for who cannot be reached.
    pub fn new(selector: &str, work: Work, timeout_secs: u64) -> NewTask {
        let selector = selector.to_owned();
        let (batch, max_failures, canaries, wait_secs, expected) = (None, None, 0, 0, None);
        NewTask { selector, work, batch, max_failures, canaries, timeout_secs, wait_secs, expected }
    }

    /// The task as it is carried out.
    pub fn spec(&self, id: &str, by: &str) -> TaskSpec {
        TaskSpec {
            id: id.to_owned(),
            by: by.to_owned(),
            selector: self.selector.clone(),
            work: self.work.clone(),
            batch: self.batch.unwrap_or(Share::ALL),
            max_failures: self.max_failures,
            canaries: self.canaries,
            timeout_secs: self.timeout_secs,
            wait_secs: self.wait_secs,
            begin_secs: BEGIN_SECS,
            workflow: None,
        }
    }
}

/// A task.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskView {
    /// Its id.
    pub id: String,
    /// Who asked for it.
    pub by: String,
    /// Whom.
    pub selector: String,
    /// What.
    pub work: Work,
    /// When it was asked for.
    pub created: Timestamp,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// The workflow that it is a step of.
    pub workflow: Option<String>,
    /// Rises whenever something about it or its nodes changes; to be given as `after`.
    pub version: u64,
    /// How it stands.
    pub summary: TaskSummary,
}

/// One node of a task.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskNodeView {
    /// Which.
    pub node: NodeId,
    /// Its name; absent when it is no node any more.
    pub hostname: Option<Hostname>,
    /// How it stands.
    pub stage: NodeStage,
    /// Since when.
    pub since: Timestamp,
    /// When it begins no more, once it was asked.
    pub expires: Option<Timestamp>,
    /// How it ended; with the answer, when it was a query.
    pub outcome: Option<ActionOutcome>,
    /// How long it took, in milliseconds.
    pub duration_ms: Option<u64>,
}

/// One page of [`TaskNodeView`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TaskNodesView {
    /// In the order of the nodes' ids.
    pub nodes: Vec<TaskNodeView>,
    /// The id to ask on from, when there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NodeId>,
}

impl Page for TaskNodesView {
    type Item = TaskNodeView;

    fn next_page(&self) -> Option<String> {
        self.next.as_ref().map(ToString::to_string)
    }

    fn items(self) -> Vec<TaskNodeView> {
        self.nodes
    }
}

/// A piece of output, in order.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputView {
    /// Its number; to be given as `after` for what follows.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// Which stream.
    pub stream: OutputStream,
    /// The text.
    pub text: String,
    /// Bytes left out before it.
    #[serde(default)]
    pub dropped: u64,
}

/// A workflow.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Who asked for it.
    pub by: String,
    /// When.
    pub created: Timestamp,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// How it stands, in one word.
    pub state: String,
    /// Why, when it stands still.
    pub why: Option<String>,
    /// Its steps in order.
    pub steps: Vec<StepView>,
    /// Rises with every change.
    pub version: u64,
}

/// One step of a workflow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// Its name.
    pub name: String,
    /// How it stands, in one word.
    pub state: String,
    /// Its tasks, the newest last.
    pub tasks: Vec<String>,
    /// How the newest task stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<TaskSummary>,
}

/// A workflow to begin.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewWorkflow {
    /// What to do; `plane::work::WorkflowSpec` as JSON, checked there.
    pub spec: serde_json::Value,
    /// How many nodes each step's selector meant when the operator was asked, by step.
    #[serde(default)]
    pub expected: BTreeMap<String, usize>,
}

/// How a workflow goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Turn {
    /// The next step may begin.
    Approve,
    /// It is called off.
    Abort,
    /// The failed step is run again where it did not succeed.
    Resume,
}

impl std::fmt::Display for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// An order to a workflow; its body may be left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlWorkflow {
    /// The workflow.
    pub id: String,
    /// What to do.
    pub turn: Turn,
    /// The step whose end is approved, from 0; absent: the one at which it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// Resume also on nodes of which it is not known whether they did it.
    #[serde(default)]
    pub include_unknown: bool,
}

impl ControlWorkflow {
    /// An order to the step at which the workflow stands.
    pub fn new(id: &str, turn: Turn) -> ControlWorkflow {
        ControlWorkflow { id: id.to_owned(), turn, step: None, include_unknown: false }
    }
}
