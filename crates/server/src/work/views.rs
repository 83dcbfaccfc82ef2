//! What operators are shown of tasks and workflows, and the news that they wait for.

use std::time::Duration;

use model::NodeId;
use model::log::FactBody;
use model::work::{ActionEvent, ActionOutcome};
use plane::work::{NodeWork, TaskDocument, TaskSpec, Workflow, WorkflowPhase, action_id};
use store::{FactRecord, TaskKind, TaskRecord};
use tokio::time::Instant;
use wire::{Code, Problem};

use super::version_at;
use crate::answer::store_problem;
use crate::api::work::{
    MAX_LONG_POLL_SECS, OutputQuery, OutputView, StepView, TaskNodeView, TaskNodesQuery, TaskNodesView,
    TaskView, WorkHistory, WorkQuery, WorkflowView,
};
use crate::operator_port::OperatorCall;
use crate::refresh::refresh;
use crate::state::ControlPlane;

/// The most bytes of answers in one page of nodes; a larger page ends early.
const MAX_ANSWERS: usize = 8 * 1024 * 1024;

fn no_task(id: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no task {id:?}"))
}

/// How long a question for news is held.
fn wait(request: &WorkQuery) -> Duration {
    Duration::from_secs(request.wait.min(MAX_LONG_POLL_SECS))
}

/// Whether an operator sees the task of another: one with a scope sees those that he began.
fn is_shown(call: &OperatorCall, by: &str) -> bool {
    !call.is_scoped() || call.by == by
}

/// A task as it stands, where the operator may see it.
pub(crate) async fn shown_task(call: &OperatorCall, id: &str) -> Result<TaskView, Problem> {
    let view = task_now(&call.plane, id).await?;
    if is_shown(call, &view.by) { Ok(view) } else { Err(no_task(id)) }
}

/// A task, as soon as it differs from what is known, or when the wait is over.
pub(crate) async fn task(call: OperatorCall, request: WorkQuery) -> Result<TaskView, Problem> {
    if let Some(open) = call.plane.work.get(&request.id).filter(|open| is_shown(&call, &open.spec.by)) {
        let mut views = open.view.subscribe();
        let other = views.wait_for(|view| Some(view.version) != request.after);
        let _ = tokio::time::timeout(wait(&request), other).await;
        return Ok(open.view.borrow().clone());
    }
    shown_task(&call, &request.id).await
}

/// A task as it stands.
pub(crate) async fn task_now(plane: &ControlPlane, id: &str) -> Result<TaskView, Problem> {
    if let Some(open) = plane.work.get(id) {
        return Ok(open.view.borrow().clone());
    }
    let record = plane.store.task(id).await.map_err(store_problem)?;
    let record = record.filter(|record| record.kind == TaskKind::Task).ok_or_else(|| no_task(id))?;
    stored(&record).ok_or_else(|| no_task(id))
}

pub(crate) async fn tasks(call: OperatorCall, request: WorkHistory) -> Result<Vec<TaskView>, Problem> {
    let records = records(&call, TaskKind::Task, request).await?;
    let view_of = |record: &TaskRecord| match call.plane.work.get(&record.id) {
        Some(open) => Some(open.view.borrow().clone()),
        None => stored(record),
    };
    Ok(records.iter().filter_map(view_of).collect())
}

async fn records(
    call: &OperatorCall,
    kind: TaskKind,
    request: WorkHistory,
) -> Result<Vec<TaskRecord>, Problem> {
    let WorkHistory { mut before, limit } = request;
    let limit = limit.get();
    let mut found = Vec::new();
    loop {
        let page = call.plane.store.tasks(limit, before.as_deref()).await.map_err(store_problem)?;
        let Some(last) = page.last() else { return Ok(found) };
        before = Some(last.id.clone());
        let shown = |record: &TaskRecord| record.kind == kind && is_shown(call, &record.by);
        found.extend(page.into_iter().filter(shown));
        if found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
    }
}

fn stored(record: &TaskRecord) -> Option<TaskView> {
    let document: TaskDocument = serde_json::from_str(&record.document).ok()?;
    let version = version_at(document.finished.unwrap_or(document.created));
    Some(view(document, version))
}

/// What operators see of a task.
pub(super) fn view(document: TaskDocument, version: u64) -> TaskView {
    let TaskDocument { spec, summary, created, finished, .. } = document;
    let TaskSpec { id, by, selector, work, workflow, .. } = spec;
    TaskView { id, by, selector, work, created, finished, workflow, version, summary }
}

/// One page of a task's nodes, after one.
pub(crate) async fn nodes(call: OperatorCall, request: TaskNodesQuery) -> Result<TaskNodesView, Problem> {
    let (plane, id, limit) = (&call.plane, &request.id, request.limit.get());
    if call.is_scoped() {
        shown_task(&call, id).await?;
        refresh(plane).await;
    } else if plane.work.get(id).is_none() {
        plane.store.task(id).await.map_err(store_problem)?.ok_or_else(|| no_task(id))?;
    }
    let page = plane.store.task_nodes(id, request.from.as_ref(), limit).await.map_err(store_problem)?;
    let full = page.len() == limit;
    let (mut nodes, mut bytes) = (Vec::with_capacity(page.len()), 0);
    for row in page {
        if !call.covers_id(&row.node) {
            continue;
        }
        let Ok(mut work) = serde_json::from_str::<NodeWork>(&row.state) else { continue };
        if let Some(ActionOutcome::Answered { .. }) = &work.outcome {
            let (answer, size) = answer(plane, id, &row.node).await?;
            bytes += size;
            work.outcome = answer.or(work.outcome);
        }
        let hostname = plane.index.get(&row.node).map(|slot| slot.names().1);
        let NodeWork { stage, since, expires, outcome, duration_ms, .. } = work;
        nodes.push(TaskNodeView { node: row.node, hostname, stage, since, expires, outcome, duration_ms });
        if bytes > MAX_ANSWERS {
            let next = nodes.last().map(|node| node.node.clone());
            return Ok(TaskNodesView { nodes, next });
        }
    }
    let next = nodes.last().filter(|_| full).map(|node| node.node.clone());
    Ok(TaskNodesView { nodes, next })
}

/// The answer of a query as its terminal fact has it, and about how long it is.
async fn answer(
    plane: &ControlPlane,
    task: &str,
    node: &NodeId,
) -> Result<(Option<ActionOutcome>, usize), Problem> {
    let facts = plane.store.action_facts(node, &action_id(task, node)).await.map_err(store_problem)?;
    let ended = facts.into_iter().find_map(|record| match record.fact.body {
        FactBody::Action(action) => match action.event {
            ActionEvent::Ended { outcome, .. } => Some(outcome),
            _ => None,
        },
        _ => None,
    });
    let size = match &ended {
        Some(ActionOutcome::Answered { result }) => serde_json::to_vec(result).map_or(0, |bytes| bytes.len()),
        _ => 0,
    };
    Ok((ended, size))
}

/// The output of a task on one node after a piece, as far as it came.
pub(crate) async fn output(call: OperatorCall, request: OutputQuery) -> Result<Vec<OutputView>, Problem> {
    let OutputQuery { id, node, after } = request;
    if call.is_scoped() {
        shown_task(&call, &id).await?;
        call.node(&node).await?;
    }
    // A node that was removed goes by its id alone.
    let node = match call.plane.index.named(&node) {
        Ok(slot) => slot.id(),
        Err(unknown) => node.parse().map_err(|_| unknown)?,
    };
    let facts = call.plane.store.action_facts(&node, &action_id(&id, &node)).await.map_err(store_problem)?;
    let piece = |record: FactRecord| {
        let FactBody::Action(action) = record.fact.body else { return None };
        let ActionEvent::Output { stream, text, dropped } = action.event else { return None };
        Some(OutputView { number: record.id, at: record.fact.at, stream, text, dropped })
    };
    Ok(facts.into_iter().filter(|record| record.id > after).filter_map(piece).collect())
}

/// A workflow as it stands.
pub(crate) async fn workflow_now(plane: &ControlPlane, id: &str) -> Result<WorkflowView, Problem> {
    workflow_news(plane, id.into()).await
}

/// A workflow, as soon as it or its task differs from what is known, or when the wait is over.
pub(crate) async fn workflow(call: OperatorCall, request: WorkQuery) -> Result<WorkflowView, Problem> {
    workflow_news(&call.plane, request).await
}

async fn workflow_news(plane: &ControlPlane, request: WorkQuery) -> Result<WorkflowView, Problem> {
    let (id, deadline) = (&request.id, Instant::now() + wait(&request));
    let mut versions = plane.work.workflows.versions.subscribe();
    loop {
        let Some(open) = plane.work.workflows.get(id) else {
            let record = plane.store.task(id).await.map_err(store_problem)?;
            let record = record.filter(|record| record.kind == TaskKind::Workflow);
            let read = record.and_then(|record| stored_workflow(plane, &record));
            let none = || Problem::new(Code::NotFound, format!("there is no workflow {id:?}"));
            return read.ok_or_else(none);
        };
        let task = open.workflow.attempts.last().and_then(|attempt| plane.work.get(&attempt.task));
        let mut of_task = task.map(|task| task.view.subscribe());
        let seen = of_task.as_mut().map(|view| view.borrow_and_update().version);
        let version = open.version.max(seen.unwrap_or(0));
        if Some(version) != request.after || Instant::now() >= deadline {
            return Ok(workflow_view(plane, &open.workflow, version));
        }
        let task_changes = async {
            match &mut of_task {
                Some(view) => drop(view.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = versions.changed() => {}
            () = task_changes => {}
            () = tokio::time::sleep_until(deadline) => {}
        }
    }
}

/// Workflows, newest first.
pub(crate) async fn workflows(
    call: OperatorCall,
    request: WorkHistory,
) -> Result<Vec<WorkflowView>, Problem> {
    let plane = &call.plane;
    let records = records(&call, TaskKind::Workflow, request).await?;
    let view_of = |record: &TaskRecord| match plane.work.workflows.get(&record.id) {
        Some(open) => Some(workflow_view(plane, &open.workflow, open.version)),
        None => stored_workflow(plane, record),
    };
    Ok(records.iter().filter_map(view_of).collect())
}

fn stored_workflow(plane: &ControlPlane, record: &TaskRecord) -> Option<WorkflowView> {
    let workflow: Workflow = serde_json::from_str(&record.document).ok()?;
    let version = version_at(workflow.finished.unwrap_or(workflow.created));
    Some(workflow_view(plane, &workflow, version))
}

fn workflow_view(plane: &ControlPlane, workflow: &Workflow, version: u64) -> WorkflowView {
    let (state, why) = phase(&workflow.phase);
    let steps = workflow.spec.steps.iter().enumerate().map(|(index, step)| {
        let attempts: Vec<_> = workflow.attempts_of(index).collect();
        let live = |task: &str| Some(plane.work.get(task)?.view.borrow().summary.clone());
        let summary =
            attempts.last().and_then(|attempt| attempt.summary.clone().or_else(|| live(&attempt.task)));
        let state = match index.cmp(&workflow.step) {
            std::cmp::Ordering::Less => "done",
            std::cmp::Ordering::Equal => state,
            std::cmp::Ordering::Greater => "waiting",
        };
        StepView {
            name: step.name.clone(),
            state: state.to_owned(),
            tasks: attempts.iter().map(|attempt| attempt.task.clone()).collect(),
            summary,
        }
    });
    WorkflowView {
        id: workflow.id.clone(),
        name: workflow.spec.name.clone(),
        by: workflow.by.clone(),
        created: workflow.created,
        finished: workflow.finished,
        state: state.to_owned(),
        why,
        steps: steps.collect(),
        version,
    }
}

/// The name of a phase, and why it stands still.
fn phase(phase: &WorkflowPhase) -> (&'static str, Option<String>) {
    match phase {
        WorkflowPhase::Planned => ("planned", None),
        WorkflowPhase::Running => ("running", None),
        WorkflowPhase::Soaking { until } => ("soaking", Some(format!("the next step begins at {until}"))),
        WorkflowPhase::AwaitingApproval => {
            ("awaiting-approval", Some("the next step waits for an operator's approval".to_owned()))
        }
        WorkflowPhase::Failed { why } => ("failed", Some(why.clone())),
        WorkflowPhase::Aborting => ("aborting", None),
        WorkflowPhase::Aborted => ("aborted", None),
        WorkflowPhase::Done => ("done", None),
    }
}
