//! Orders to tasks and workflows.

use plane::work::{Workflow, WorkflowInput, WorkflowPhase, WorkflowSpec};
use wire::{Code, Problem};

use super::OperatorCall;
use crate::answer::chain;
use crate::api::work::{ControlWorkflow, NewTask, NewWorkflow, TaskView, Turn, WorkQuery, WorkflowView};
use crate::state::{now, run_to_completion};
use crate::work::{fresh_id, select, views};

pub(super) async fn begin_task(call: OperatorCall, asked: NewTask) -> Result<TaskView, Problem> {
    let OperatorCall { plane, by } = call;
    let nodes = select::meant(&plane, &select::read(&asked.selector)?).await?;
    let targets = select::ids(&nodes, asked.expected)?;
    let spec = asked.spec(&fresh_id('t')?, &by);
    let (id, begun) = (spec.id.clone(), plane.clone());
    // Whole, also when the operator hangs up: a task half written down is begun by nobody.
    run_to_completion(async move { begun.work.begin(&begun, spec, targets).await }).await?;
    views::task_now(&plane, &id).await
}

pub(super) async fn cancel_task(call: OperatorCall, asked: WorkQuery) -> Result<TaskView, Problem> {
    let (OperatorCall { plane, by }, id) = (call, asked.id);
    if views::task_now(&plane, &id).await?.finished.is_none() {
        plane.work.cancel(&id, &by).await?;
        tracing::info!(by, task = id, "a task was called off");
    }
    views::task_now(&plane, &id).await
}

pub(super) async fn begin_workflow(call: OperatorCall, asked: NewWorkflow) -> Result<WorkflowView, Problem> {
    let OperatorCall { plane, by } = call;
    let refused = |detail: String| Problem::new(Code::TaskRefused, detail);
    let spec: WorkflowSpec =
        serde_json::from_value(asked.spec).map_err(|error| refused(error.to_string()))?;
    for step in &spec.steps {
        if let Some(expected) = asked.expected.get(&step.name) {
            let nodes = select::meant(&plane, &step.on).await?;
            let named = |problem: Problem| {
                let detail = problem.detail.clone().unwrap_or_default();
                Problem { detail: Some(format!("step {:?}: {detail}", step.name)), ..problem }
            };
            select::ids(&nodes, Some(*expected)).map_err(named)?;
        }
    }
    let id = fresh_id('w')?;
    let workflow = Workflow::new(&id, &by, spec, now()).map_err(|error| refused(chain(&error)))?;
    let begun = plane.clone();
    run_to_completion(async move { begun.work.workflows.begin(&begun, workflow).await }).await?;
    views::workflow_now(&plane, &id).await
}

pub(super) async fn control_workflow(
    call: OperatorCall,
    asked: ControlWorkflow,
) -> Result<WorkflowView, Problem> {
    let OperatorCall { plane, by } = call;
    let ControlWorkflow { id, turn, step, include_unknown } = asked;
    // What is none is said before what is over.
    let view = views::workflow_now(&plane, &id).await?;
    let wrong = || {
        let detail = format!("workflow {id} is {}; it cannot {turn}", view.state);
        Problem::new(Code::WrongPhase, detail)
    };
    let workflow = plane.work.workflows.get(&id).ok_or_else(wrong)?.workflow;
    tracing::info!(by, workflow = id, %turn, "a workflow goes on as an operator asked");
    let input = match (turn, &workflow.phase) {
        (Turn::Approve, WorkflowPhase::AwaitingApproval) => {
            WorkflowInput::Approve { by, step: step.unwrap_or(workflow.step) }
        }
        (Turn::Resume, WorkflowPhase::Failed { .. }) => WorkflowInput::Resume { by, include_unknown },
        (Turn::Abort, phase)
            if !matches!(phase, WorkflowPhase::Aborting | WorkflowPhase::Aborted | WorkflowPhase::Done) =>
        {
            WorkflowInput::Abort { by }
        }
        _ => return Err(wrong()),
    };
    plane.work.workflows.turn(&id, input).await?;
    views::workflow_now(&plane, &id).await
}
