//! Tasks, queries and workflows on the operator port (OPS-2).

use std::collections::BTreeMap;

use model::work::{Outcome, Stream, Work};
use model::{Hostname, NodeId, Timestamp};
use plane::work::{NodeStage, Share, Summary};
use serde::{Deserialize, Serialize};

/// The longest that a question for news is held, in seconds.
pub const MAX_NEWS_WAIT: u64 = 30;

/// `POST /v1/selections`: whom does a selector mean?
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Select {
    /// The selector.
    pub selector: String,
}

/// The answer to [`Select`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selected {
    /// How many nodes.
    pub count: usize,
    /// The first few of them.
    pub first: Vec<Hostname>,
    /// How many of them have a stream, can be reached at their next contact, or are offline.
    pub online: usize,
    /// Will open a stream at their next contact.
    pub promotable: usize,
    /// Are late.
    pub offline: usize,
}

/// `POST /v1/tasks`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewTask {
    /// Whom.
    pub selector: String,
    /// What.
    pub work: Work,
    /// At most so many at a time; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Share>,
    /// So many may fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<Share>,
    /// So many must succeed first.
    #[serde(default)]
    pub canaries: u32,
    /// The longest time on one node, in seconds.
    pub timeout_secs: u64,
    /// How long nodes that are offline are waited for, in seconds.
    #[serde(default)]
    pub wait_secs: u64,
    /// How many nodes the operator was told; another number is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<usize>,
}

/// A task (`GET /v1/tasks`, `GET /v1/tasks/{id}?wait=s&after=version`).
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Timestamp>,
    /// The workflow that it is a step of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Rises whenever something about it or its nodes changes; to be given as `after`.
    pub version: u64,
    /// How it stands.
    pub summary: Summary,
}

/// One node of a task (`GET /v1/tasks/{id}/nodes?from=&limit=`).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskNodeView {
    /// Which.
    pub node: NodeId,
    /// Its name; absent when it is no node any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Hostname>,
    /// How it stands.
    pub stage: NodeStage,
    /// Since when.
    pub since: Timestamp,
    /// When it begins no more, once it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// How it ended; with the answer, when it was a query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// One page of [`TaskNodeView`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskNodesView {
    /// In the order of the nodes' ids.
    pub nodes: Vec<TaskNodeView>,
    /// The id to ask on from, when there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NodeId>,
}

/// A piece of output (`GET /v1/tasks/{id}/output/{node}?after=n`), in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputView {
    /// Its number; to be given as `after` for what follows.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// Which stream.
    pub stream: Stream,
    /// The text.
    pub text: String,
    /// Bytes left out before it.
    #[serde(default)]
    pub dropped: u64,
}

/// A workflow (`GET /v1/workflows`, `GET /v1/workflows/{id}`); `POST /v1/workflows` takes a
/// [`plane::work::WorkflowSpec`]; `POST /v1/workflows/{id}/{approve,abort,resume}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Timestamp>,
    /// How it stands, in one word.
    pub state: String,
    /// Why, when it stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Its steps in order.
    pub steps: Vec<StepView>,
    /// Rises with every change.
    pub version: u64,
}

/// One step of a workflow.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    pub summary: Option<Summary>,
}

/// `POST /v1/workflows`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewWorkflow {
    /// What to do; `plane::work::WorkflowSpec` as JSON, checked there.
    pub spec: serde_json::Value,
    /// How many nodes each step's selector meant when the operator was asked, by step.
    #[serde(default)]
    pub expected: BTreeMap<String, usize>,
}

/// `POST /v1/workflows/{id}/{approve,abort,resume}`; the body may be left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkflowOrder {
    /// The step whose end is approved, from 0; absent: the one at which it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// Resume also on nodes of which it is not known whether they did it.
    pub include_unknown: bool,
}
