//! Orders to tasks and workflows.

use plane::work::{Workflow, WorkflowInput, WorkflowPhase, WorkflowSpec};
use store::audit::AuditSubject;
use wire::{Code, Problem};

use super::OperatorCall;
use crate::answer::chain;
use crate::api::work::{ControlWorkflow, NewTask, NewWorkflow, TaskView, Turn, WorkQuery, WorkflowView};
use crate::state::{now, run_to_completion};
use crate::work::{fresh_id, select, views};

pub(super) async fn begin_task(call: OperatorCall, request: NewTask) -> Result<TaskView, Problem> {
    let nodes = select::meant(&call.plane, &select::read(&request.selector)?).await?;
    call.all_in_scope(&nodes).await?;
    let targets = select::ids(&nodes, request.expected)?;
    let spec = request.spec(&fresh_id('t')?, &call.by);
    let subject = OperatorCall::subject(&nodes).and(format!("task {} on {}", spec.id, spec.selector));
    let (store, plane) = (call.recording(subject), call.plane);
    let (id, begun) = (spec.id.clone(), plane.clone());
    // Whole, also when the operator hangs up: a task half written down is begun by nobody.
    run_to_completion(async move { begun.work.begin(&begun, &store, spec, targets).await }).await?;
    views::task_now(&plane, &id).await
}

pub(super) async fn cancel_task(call: OperatorCall, request: WorkQuery) -> Result<TaskView, Problem> {
    let open = views::shown_task(&call, &request.id).await?;
    let (OperatorCall { plane, by, audit, .. }, id) = (call, request.id);
    if open.finished.is_none() {
        // The task's actor writes it down: the entry comes before it.
        audit.record(AuditSubject::of(format!("task {id}"))).await?;
        plane.work.cancel(&id, &by).await?;
        tracing::info!(by, task = id, "a task was called off");
    }
    views::task_now(&plane, &id).await
}

pub(super) async fn begin_workflow(
    call: OperatorCall,
    request: NewWorkflow,
) -> Result<WorkflowView, Problem> {
    let OperatorCall { plane, by, audit, .. } = call;
    let refused = |detail: String| Problem::new(Code::TaskRefused, detail);
    let spec: WorkflowSpec =
        serde_json::from_value(request.spec).map_err(|error| refused(error.to_string()))?;
    for step in &spec.steps {
        if let Some(expected) = request.expected.get(&step.name) {
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
    let store = audit.store(AuditSubject::of(format!("workflow {id}: {}", workflow.spec.name)));
    run_to_completion(async move { begun.work.workflows.begin(&begun, &store, workflow).await }).await?;
    views::workflow_now(&plane, &id).await
}

pub(super) async fn control_workflow(
    call: OperatorCall,
    request: ControlWorkflow,
) -> Result<WorkflowView, Problem> {
    let OperatorCall { plane, by, audit, .. } = call;
    let ControlWorkflow { id, turn, step, include_unknown } = request;
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
    // The workflows' actor writes it down: the entry comes before it.
    audit.record(AuditSubject::of(format!("workflow {id}: {turn}"))).await?;
    plane.work.workflows.turn(&id, input).await?;
    views::workflow_now(&plane, &id).await
}
