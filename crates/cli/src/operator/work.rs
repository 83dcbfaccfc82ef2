//! Tasks, queries and workflows on the operator port.

use http::Method;
use server::api::MAX_PAGE;
use server::api::work::{
    NewTask, NewWorkflow, OutputView, Select, Selected, TaskNodeView, TaskNodesView, TaskView, WorkflowOrder,
    WorkflowView,
};

use super::{Bytes, CALL, Called, Operator, UPLOAD, escape};

/// How long a question for news is held, in seconds; shorter than a call may take, and than
/// somebody who follows a task likes to wonder why it waits.
const NEWS_SECS: u64 = 8;

/// What may be done with a workflow that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Let the next step begin.
    Approve,
    /// Call it off.
    Abort,
    /// Begin the step that failed once more.
    Resume,
}

impl Turn {
    /// The last part of its path.
    fn as_str(self) -> &'static str {
        match self {
            Turn::Approve => "approve",
            Turn::Abort => "abort",
            Turn::Resume => "resume",
        }
    }
}

impl Operator {
    /// Whom a selector means.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn select(&self, selector: &str) -> Called<Selected> {
        self.post("selections", &Select { selector: selector.to_owned() }, CALL).await
    }

    /// Begins a task.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn begin_task(&self, task: &NewTask) -> Called<TaskView> {
        self.post("tasks", task, UPLOAD).await
    }

    /// The newest tasks.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn tasks(&self, limit: usize) -> Called<Vec<TaskView>> {
        self.get(&format!("/v1/tasks?limit={limit}")).await
    }

    /// A task as it stands; after a version, as soon as there is a newer one, or a little later.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn task(&self, id: &str, after: Option<u64>) -> Called<TaskView> {
        self.get(&format!("/v1/tasks/{}{}", escape(id), news(after))).await
    }

    /// All nodes of a task, page by page.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn task_nodes(&self, id: &str) -> Called<Vec<TaskNodeView>> {
        let path = format!("/v1/tasks/{}/nodes?limit={MAX_PAGE}", escape(id));
        let mut page: TaskNodesView = self.get(&path).await?;
        let mut all = page.nodes;
        while let Some(next) = page.next {
            page = self.get(&format!("{path}&from={}", escape(next.as_str()))).await?;
            all.append(&mut page.nodes);
        }
        Ok(all)
    }

    /// Output of a task on one node (hostname or id) after a piece, as much as is there.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn output(&self, id: &str, node: &str, after: u64) -> Called<Vec<OutputView>> {
        let mut all: Vec<OutputView> = Vec::new();
        loop {
            let after = all.last().map_or(after, |piece| piece.number);
            let path = format!("/v1/tasks/{}/output/{}?after={after}", escape(id), escape(node));
            let page: Vec<OutputView> = self.get(&path).await?;
            let more = page.iter().any(|piece| piece.number > after);
            all.extend(page.into_iter().filter(|piece| piece.number > after));
            if !more {
                return Ok(all);
            }
        }
    }

    /// Calls a task off.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn cancel_task(&self, id: &str) -> Called<TaskView> {
        self.json(Method::POST, &format!("/v1/tasks/{}/cancel", escape(id)), Bytes::new(), CALL).await
    }

    /// Begins a workflow.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn begin_workflow(&self, workflow: &NewWorkflow) -> Called<WorkflowView> {
        self.post("workflows", workflow, UPLOAD).await
    }

    /// The newest workflows.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn workflows(&self, limit: usize) -> Called<Vec<WorkflowView>> {
        self.get(&format!("/v1/workflows?limit={limit}")).await
    }

    /// A workflow, as [`Operator::task`].
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn workflow(&self, id: &str, after: Option<u64>) -> Called<WorkflowView> {
        self.get(&format!("/v1/workflows/{}{}", escape(id), news(after))).await
    }

    /// Tells a workflow how to go on.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn turn(&self, id: &str, turn: Turn, order: &WorkflowOrder) -> Called<WorkflowView> {
        self.post(&format!("workflows/{}/{}", escape(id), turn.as_str()), order, CALL).await
    }
}

/// The query of a question for news.
fn news(after: Option<u64>) -> String {
    after.map(|version| format!("?wait={NEWS_SECS}&after={version}")).unwrap_or_default()
}
