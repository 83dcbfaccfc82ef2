//! Routes of tasks, queries and workflows.

use std::sync::Arc;

use plane::work::{BEGIN_SECS, Phase, Share, TaskSpec, Workflow, WorkflowInput, WorkflowSpec};
use serde::Deserialize;
use wire::body;
use wire::{Code, Problem};

use super::query::Query;
use crate::answer::{Reply, chain, json};
use crate::api::work::{NewTask, NewWorkflow, Select, WorkflowOrder};
use crate::state::{ControlPlane, now};
use crate::work::views::{self, Wait};
use crate::work::{fresh_id, select};

pub(super) async fn get(
    plane: &Arc<ControlPlane>,
    asked: &[&str],
    query: &Query<'_>,
    gzip: bool,
) -> Result<Reply, Problem> {
    let wait = Wait::new(query.number("wait"), query.number("after"));
    match asked {
        ["tasks"] => json(&views::tasks(plane, query.limit(), query.get("before")).await?, gzip),
        ["tasks", id] => json(&views::task(plane, id, wait).await?, gzip),
        ["tasks", id, "nodes"] => {
            let not_one = |_| Problem::new(Code::BadBody, "`from` is no node's id");
            let after = query.get("from").map(|from| from.parse().map_err(not_one)).transpose()?;
            json(&views::nodes(plane, id, after, query.limit().max(1)).await?, gzip)
        }
        ["tasks", id, "output", node] => {
            let node = node_id(plane, node)?;
            json(&views::output(plane, id, &node, query.number("after").unwrap_or(0)).await?, gzip)
        }
        ["workflows"] => json(&views::workflows(plane, query.limit()).await?, gzip),
        ["workflows", id] => json(&views::workflow(plane, id, wait).await?, gzip),
        _ => Err(Code::NotFound.into()),
    }
}

/// A node by hostname or id; one that was removed by its id alone.
fn node_id(plane: &ControlPlane, name: &str) -> Result<model::NodeId, Problem> {
    match plane.index.find(name) {
        Some(slot) => Ok(slot.lock().node.id.clone()),
        None => {
            name.parse().map_err(|_| Problem::new(Code::NotFound, format!("no node {name:?} is enrolled")))
        }
    }
}

pub(super) async fn order(
    plane: &Arc<ControlPlane>,
    order: &[&str],
    bytes: &[u8],
    operator: &str,
) -> Result<Reply, Problem> {
    match order {
        ["selections"] => {
            let asked: Select = body::decode(bytes)?;
            json(&select::count(plane, &asked.selector).await?, false)
        }
        ["tasks"] => {
            let id = begin_task(plane, body::decode(bytes)?, operator).await?;
            json(&views::task(plane, &id, Wait::default()).await?, false)
        }
        ["tasks", id, "cancel"] => {
            // That it is none, or over, is said better than that it is not open.
            let view = views::task(plane, id, Wait::default()).await?;
            if view.finished.is_none() {
                plane.work.cancel(id, operator).await?;
                tracing::info!(by = operator, task = id, "a task was called off");
            }
            json(&views::task(plane, id, Wait::default()).await?, false)
        }
        ["workflows"] => {
            let id = begin_workflow(plane, body::decode(bytes)?, operator).await?;
            json(&views::workflow(plane, &id, Wait::default()).await?, false)
        }
        ["workflows", id, turn] => {
            turn_workflow(plane, id, turn, &asked_for(bytes)?, operator).await?;
            json(&views::workflow(plane, id, Wait::default()).await?, false)
        }
        _ => Err(Code::NotFound.into()),
    }
}

/// A body that may be left out.
fn asked_for<T: Default + for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, Problem> {
    if bytes.is_empty() { Ok(T::default()) } else { Ok(body::decode(bytes)?) }
}

async fn begin_task(plane: &Arc<ControlPlane>, asked: NewTask, operator: &str) -> Result<String, Problem> {
    let nodes = select::meant(plane, &select::read(&asked.selector)?).await?;
    let targets = select::ids(&nodes, asked.expected)?;
    let spec = TaskSpec {
        id: fresh_id('t')?,
        by: operator.to_owned(),
        selector: asked.selector,
        work: asked.work,
        batch: asked.batch.unwrap_or(Share::ALL),
        max_failures: asked.max_failures,
        canaries: asked.canaries,
        timeout_secs: asked.timeout_secs,
        wait_secs: asked.wait_secs,
        begin_secs: BEGIN_SECS,
        workflow: None,
    };
    let id = spec.id.clone();
    let plane = plane.clone();
    // Whole, also when the operator hangs up: a task half written down is begun by nobody.
    crate::node_port::whole(async move { plane.work.begin(&plane, spec, targets).await }).await?;
    Ok(id)
}

async fn begin_workflow(
    plane: &Arc<ControlPlane>,
    asked: NewWorkflow,
    operator: &str,
) -> Result<String, Problem> {
    let refused = |detail: String| Problem::new(Code::TaskRefused, detail);
    let spec: WorkflowSpec =
        serde_json::from_value(asked.spec).map_err(|error| refused(error.to_string()))?;
    for step in &spec.steps {
        if let Some(expected) = asked.expected.get(&step.name) {
            let nodes = select::meant(plane, &step.on).await?;
            let named = |problem: Problem| {
                let detail = problem.detail.clone().unwrap_or_default();
                Problem { detail: Some(format!("step {:?}: {detail}", step.name)), ..problem }
            };
            select::ids(&nodes, Some(*expected)).map_err(named)?;
        }
    }
    let id = fresh_id('w')?;
    let workflow = Workflow::new(&id, operator, spec, now()).map_err(|error| refused(chain(&error)))?;
    let plane = plane.clone();
    crate::node_port::whole(async move { plane.work.workflows.begin(&plane, workflow).await }).await?;
    Ok(id)
}

async fn turn_workflow(
    plane: &Arc<ControlPlane>,
    id: &str,
    turn: &str,
    asked: &WorkflowOrder,
    operator: &str,
) -> Result<(), Problem> {
    // What is none is said before what is over.
    let view = views::workflow(plane, id, Wait::default()).await?;
    let wrong = || {
        let detail = format!("workflow {id} is {}; it cannot be told to {turn}", view.state);
        Problem::new(Code::WrongPhase, detail)
    };
    let workflow = plane.work.workflows.get(id).ok_or_else(wrong)?.workflow;
    let by = operator.to_owned();
    let input = match (turn, &workflow.phase) {
        ("approve", Phase::AwaitingApproval) => {
            WorkflowInput::Approve { by, step: asked.step.unwrap_or(workflow.step) }
        }
        ("resume", Phase::Failed { .. }) => {
            WorkflowInput::Resume { by, include_unknown: asked.include_unknown }
        }
        ("abort", phase) if !matches!(phase, Phase::Aborting | Phase::Aborted | Phase::Done) => {
            WorkflowInput::Abort { by }
        }
        ("approve" | "resume" | "abort", _) => return Err(wrong()),
        _ => return Err(Code::NotFound.into()),
    };
    tracing::info!(by = operator, workflow = id, turn, "a workflow was told how to go on");
    plane.work.workflows.turn(id, input).await
}
