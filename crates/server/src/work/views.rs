//! What operators are shown of tasks and workflows, and the news that they wait for.

use std::time::Duration;

use model::log::FactBody;
use model::work::{ActionEvent, Outcome};
use model::{NodeId, Timestamp};
use plane::work::{NodeWork, Phase, Summary, TaskDocument, TaskSpec, Workflow, action_id};
use store::{FactRecord, TaskKind, TaskRecord};
use tokio::time::Instant;
use wire::{Code, Problem};

use super::version_at;
use crate::answer::store_problem;
use crate::api::work::{
    MAX_NEWS_WAIT, OutputView, StepView, TaskNodeView, TaskNodesView, TaskView, WorkflowView,
};
use crate::state::ControlPlane;

/// The most bytes of answers in one page of nodes; a larger page ends early.
const MAX_ANSWERS: usize = 8 * 1024 * 1024;

/// A question for news.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wait {
    /// How long.
    pub(crate) wait: Duration,
    /// The version that is known.
    pub(crate) after: Option<u64>,
}

impl Wait {
    /// Seconds and version as asked for.
    pub(crate) fn new(secs: Option<u64>, after: Option<u64>) -> Wait {
        Wait { wait: Duration::from_secs(secs.unwrap_or(0).min(MAX_NEWS_WAIT)), after }
    }
}

fn no_task(id: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no task {id:?}"))
}

/// A task, as soon as it differs from what is known, or when the wait is over.
pub(crate) async fn task(plane: &ControlPlane, id: &str, wait: Wait) -> Result<TaskView, Problem> {
    if let Some(open) = plane.work.get(id) {
        let mut news = open.news.subscribe();
        let other = news.wait_for(|news| Some(news.version) != wait.after);
        let _ = tokio::time::timeout(wait.wait, other).await;
        let news = open.news.borrow().clone();
        return Ok(view(&open.spec, open.created, news.finished, news.version, news.summary));
    }
    let record = plane.store.task(id).await.map_err(store_problem)?;
    let record = record.filter(|record| record.kind == TaskKind::Task).ok_or_else(|| no_task(id))?;
    stored(&record).ok_or_else(|| no_task(id))
}

/// Tasks, newest first.
pub(crate) async fn tasks(
    plane: &ControlPlane,
    limit: usize,
    before: Option<String>,
) -> Result<Vec<TaskView>, Problem> {
    let records = records(plane, TaskKind::Task, limit, before).await?;
    let view_of = |record: &TaskRecord| match plane.work.get(&record.id) {
        Some(open) => {
            let news = open.news.borrow().clone();
            Some(view(&open.spec, open.created, news.finished, news.version, news.summary))
        }
        None => stored(record),
    };
    Ok(records.iter().filter_map(view_of).collect())
}

async fn records(
    plane: &ControlPlane,
    kind: TaskKind,
    limit: usize,
    mut before: Option<String>,
) -> Result<Vec<TaskRecord>, Problem> {
    let mut found = Vec::new();
    loop {
        let page = plane.store.tasks(limit, before.as_deref()).await.map_err(store_problem)?;
        let Some(last) = page.last() else { return Ok(found) };
        before = Some(last.id.clone());
        found.extend(page.into_iter().filter(|record| record.kind == kind));
        if found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
    }
}

fn stored(record: &TaskRecord) -> Option<TaskView> {
    let document: TaskDocument = serde_json::from_str(&record.document).ok()?;
    let TaskDocument { spec, summary, created, finished, .. } = document;
    Some(view(&spec, created, finished, version_at(finished.unwrap_or(created)), summary))
}

fn view(
    spec: &TaskSpec,
    created: Timestamp,
    finished: Option<Timestamp>,
    version: u64,
    summary: Summary,
) -> TaskView {
    TaskView {
        id: spec.id.clone(),
        by: spec.by.clone(),
        selector: spec.selector.clone(),
        work: spec.work.clone(),
        created,
        finished,
        workflow: spec.workflow.clone(),
        version,
        summary,
    }
}

/// One page of a task's nodes, after one.
pub(crate) async fn nodes(
    plane: &ControlPlane,
    id: &str,
    after: Option<NodeId>,
    limit: usize,
) -> Result<TaskNodesView, Problem> {
    if plane.work.get(id).is_none() {
        plane.store.task(id).await.map_err(store_problem)?.ok_or_else(|| no_task(id))?;
    }
    let page = plane.store.task_nodes(id, after.as_ref(), limit).await.map_err(store_problem)?;
    let full = page.len() == limit;
    let (mut nodes, mut bytes) = (Vec::with_capacity(page.len()), 0);
    for row in page {
        let Ok(mut work) = serde_json::from_str::<NodeWork>(&row.state) else { continue };
        if let Some(Outcome::Answered { .. }) = &work.outcome {
            let (answer, size) = answer(plane, id, &row.node).await?;
            bytes += size;
            work.outcome = answer.or(work.outcome);
        }
        let slot = plane.index.get(&row.node);
        let hostname = slot.map(|slot| slot.lock().node.hostname.clone());
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
) -> Result<(Option<Outcome>, usize), Problem> {
    let facts = plane.store.action_facts(node, &action_id(task, node)).await.map_err(store_problem)?;
    let ended = facts.into_iter().find_map(|record| match record.fact.body {
        FactBody::Action(action) => match action.event {
            ActionEvent::Ended { outcome, .. } => Some(outcome),
            _ => None,
        },
        _ => None,
    });
    let size = match &ended {
        Some(Outcome::Answered { result }) => serde_json::to_vec(result).map_or(0, |bytes| bytes.len()),
        _ => 0,
    };
    Ok((ended, size))
}

/// The output of a task on one node after a piece, as far as it came.
pub(crate) async fn output(
    plane: &ControlPlane,
    task: &str,
    node: &NodeId,
    after: u64,
) -> Result<Vec<OutputView>, Problem> {
    let facts = plane.store.action_facts(node, &action_id(task, node)).await.map_err(store_problem)?;
    let piece = |record: FactRecord| {
        let FactBody::Action(action) = record.fact.body else { return None };
        let ActionEvent::Output { stream, text, dropped } = action.event else { return None };
        Some(OutputView { number: record.id, at: record.fact.at, stream, text, dropped })
    };
    Ok(facts.into_iter().filter(|record| record.id > after).filter_map(piece).collect())
}

fn no_workflow(id: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no workflow {id:?}"))
}

/// A workflow, as soon as it or its task differs from what is known, or when the wait is over.
pub(crate) async fn workflow(plane: &ControlPlane, id: &str, wait: Wait) -> Result<WorkflowView, Problem> {
    let deadline = Instant::now() + wait.wait;
    let mut news = plane.work.workflows.news.subscribe();
    loop {
        let Some(open) = plane.work.workflows.get(id) else {
            let record = plane.store.task(id).await.map_err(store_problem)?;
            let record = record.filter(|record| record.kind == TaskKind::Workflow);
            let read = record.and_then(|record| serde_json::from_str::<Workflow>(&record.document).ok());
            let workflow = read.ok_or_else(|| no_workflow(id))?;
            let version = version_at(workflow.finished.unwrap_or(workflow.created));
            return Ok(workflow_view(plane, &workflow, version));
        };
        let task = open.workflow.attempts.last().and_then(|attempt| plane.work.get(&attempt.task));
        let mut of_task = task.map(|task| task.news.subscribe());
        let seen = of_task.as_mut().map(|news| news.borrow_and_update().version);
        let version = open.version.max(seen.unwrap_or(0));
        if Some(version) != wait.after || Instant::now() >= deadline {
            return Ok(workflow_view(plane, &open.workflow, version));
        }
        let task_changes = async {
            match &mut of_task {
                Some(news) => drop(news.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = news.changed() => {}
            () = task_changes => {}
            () = tokio::time::sleep_until(deadline) => {}
        }
    }
}

/// Workflows, newest first.
pub(crate) async fn workflows(plane: &ControlPlane, limit: usize) -> Result<Vec<WorkflowView>, Problem> {
    let records = records(plane, TaskKind::Workflow, limit, None).await?;
    let view_of = |record: &TaskRecord| match plane.work.workflows.get(&record.id) {
        Some(open) => Some(workflow_view(plane, &open.workflow, open.version)),
        None => {
            let workflow: Workflow = serde_json::from_str(&record.document).ok()?;
            let version = version_at(workflow.finished.unwrap_or(workflow.created));
            Some(workflow_view(plane, &workflow, version))
        }
    };
    Ok(records.iter().filter_map(view_of).collect())
}

fn workflow_view(plane: &ControlPlane, workflow: &Workflow, version: u64) -> WorkflowView {
    let (state, why) = phase(&workflow.phase);
    let steps = workflow.spec.steps.iter().enumerate().map(|(place, step)| {
        let attempts: Vec<_> = workflow.attempts_of(place).collect();
        let live = |task: &str| Some(plane.work.get(task)?.news.borrow().summary.clone());
        let summary =
            attempts.last().and_then(|attempt| attempt.summary.clone().or_else(|| live(&attempt.task)));
        let state = match place.cmp(&workflow.step) {
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

/// The word of a phase, and why it stands still.
fn phase(phase: &Phase) -> (&'static str, Option<String>) {
    match phase {
        Phase::Planned => ("planned", None),
        Phase::Running => ("running", None),
        Phase::Soaking { until } => ("soaking", Some(format!("the next step begins at {until}"))),
        Phase::AwaitingApproval => {
            ("awaiting-approval", Some("the next step waits for an operator's approval".to_owned()))
        }
        Phase::Failed { why } => ("failed", Some(why.clone())),
        Phase::Aborting => ("aborting", None),
        Phase::Aborted => ("aborted", None),
        Phase::Done => ("done", None),
    }
}
