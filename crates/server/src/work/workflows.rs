//! Workflows: one actor for all of them; each step is a task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::NodeId;
use net::accept::stopped;
use plane::work::{
    MAX_OPEN_WORKFLOWS, NodeStage, NodeWork, TaskDocument, TaskProgress, TaskSpec, TaskState, TaskSummary,
    Workflow, WorkflowEffect, WorkflowInput,
};
use store::{Store, TaskKind, TaskRecord};
use tokio::sync::{mpsc, oneshot, watch};
use wire::{Code, Problem};

use super::actor::PAUSE;
use super::{select, targets};
use crate::answer::store_problem;
use crate::state::{ControlPlane, now};

/// The most inputs that wait.
const MAX_INPUTS: usize = 1024;

/// All open workflows, as everybody but the actor sees them.
pub(crate) struct Workflows {
    open: Mutex<BTreeMap<String, OpenWorkflow>>,
    inputs: mpsc::Sender<(String, WorkflowInput, Option<oneshot::Sender<()>>)>,
    received: Mutex<Option<WorkflowInputs>>,
    /// Changes with every change of any of them.
    pub(crate) versions: watch::Sender<u64>,
}

type WorkflowInputs = mpsc::Receiver<(String, WorkflowInput, Option<oneshot::Sender<()>>)>;

/// A workflow under way.
#[derive(Clone)]
pub(crate) struct OpenWorkflow {
    pub(crate) workflow: Workflow,
    pub(crate) version: u64,
}

impl Workflows {
    pub(super) fn new() -> Workflows {
        let (inputs, received) = mpsc::channel(MAX_INPUTS);
        Workflows {
            open: Mutex::default(),
            inputs,
            received: Mutex::new(Some(received)),
            versions: watch::Sender::new(0),
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<String, OpenWorkflow>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.open().len()
    }

    /// A workflow under way.
    pub(crate) fn get(&self, id: &str) -> Option<OpenWorkflow> {
        self.open().get(id).cloned()
    }

    /// Takes up a workflow that was kept, before the actor runs.
    pub(super) fn restore(&self, workflow: Workflow, version: u64) {
        self.open().insert(workflow.id.clone(), OpenWorkflow { workflow, version });
    }

    /// Tells a workflow what happened; not heard by one that is over.
    pub(super) async fn tell(&self, id: &str, input: WorkflowInput) {
        let _ = self.inputs.send((id.to_owned(), input, None)).await;
    }

    /// Tells a workflow what an operator wants; done when it returns.
    pub(crate) async fn turn(&self, id: &str, input: WorkflowInput) -> Result<(), Problem> {
        let (done, heard) = oneshot::channel();
        let _ = self.inputs.send((id.to_owned(), input, Some(done))).await;
        // Given up with what could not be sent.
        heard.await.map_err(|_| Code::Internal.into())
    }

    /// Begins a workflow; durable in this handle of the store when it returns.
    pub(crate) async fn begin(
        &self,
        plane: &ControlPlane,
        store: &Store,
        workflow: Workflow,
    ) -> Result<(), Problem> {
        let id = workflow.id.clone();
        {
            let mut open = self.open();
            if open.len() >= MAX_OPEN_WORKFLOWS {
                let detail = format!("{MAX_OPEN_WORKFLOWS} workflows are open; abort one, or wait");
                return Err(Problem::new(Code::TaskRefused, detail));
            }
            let version = plane.work.next_version();
            open.insert(id.clone(), OpenWorkflow { workflow: workflow.clone(), version });
        }
        if let Err(error) = store.put_task(record(&workflow)?).await {
            self.open().remove(&id);
            return Err(store_problem(error));
        }
        tracing::info!(workflow = id, by = workflow.by, "a workflow begins");
        self.turn(&id, WorkflowInput::Begin).await
    }

    fn next_deadline(&self) -> Option<model::Timestamp> {
        self.open().values().filter_map(|open| open.workflow.next_deadline()).min()
    }
}

/// A workflow as the store keeps it.
fn record(workflow: &Workflow) -> Result<TaskRecord, Problem> {
    let document = serde_json::to_string(workflow).map_err(|_| Problem::from(Code::Internal))?;
    let (id, by) = (workflow.id.clone(), workflow.by.clone());
    let (created, finished) = (workflow.created, workflow.finished);
    Ok(TaskRecord { id, kind: TaskKind::Workflow, created, by, document, finished })
}

/// The actor: runs until the control plane stops.
pub(super) async fn run(plane: Arc<ControlPlane>, mut stop: watch::Receiver<bool>) {
    let inputs = plane.work.workflows.received.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut inputs) = inputs else { return };
    tokio::select! {
        () = forever(&plane, &mut inputs) => {}
        () = stopped(&mut stop) => {}
    }
}

async fn forever(plane: &Arc<ControlPlane>, inputs: &mut WorkflowInputs) {
    let flows = &plane.work.workflows;
    let restored: Vec<Workflow> = flows.open().values().map(|open| open.workflow.clone()).collect();
    for workflow in restored {
        let effects = workflow.resume_after_restart();
        carry_out(plane, &workflow.id, effects).await;
        if workflow.phase == plane::work::WorkflowPhase::Planned {
            handle(plane, &workflow.id, WorkflowInput::Begin).await;
        }
    }
    loop {
        let wait = flows.next_deadline().map_or(Duration::from_secs(3600), |at| at.since(now()));
        match tokio::time::timeout(wait.max(Duration::from_millis(1)), inputs.recv()).await {
            Ok(Some((id, input, done))) => {
                handle(plane, &id, input).await;
                if let Some(done) = done {
                    let _ = done.send(());
                }
            }
            Ok(None) => return,
            Err(_) => {
                let all: Vec<String> = flows.open().keys().cloned().collect();
                for id in all {
                    handle(plane, &id, WorkflowInput::Tick).await;
                }
            }
        }
    }
}

async fn handle(plane: &Arc<ControlPlane>, id: &str, input: WorkflowInput) {
    let Some(OpenWorkflow { mut workflow, .. }) = plane.work.workflows.get(id) else { return };
    let effects = workflow.handle(input, now());
    if !effects.is_empty() {
        save(plane, &workflow).await;
    }
    carry_out(plane, id, effects).await;
}

/// Durable first; then everybody sees it.
async fn save(plane: &ControlPlane, workflow: &Workflow) {
    let Ok(record) = record(workflow) else { return };
    while let Err(error) = plane.store.put_task(record.clone()).await {
        tracing::warn!(workflow = workflow.id, %error, "a workflow could not be saved; it is tried again");
        tokio::time::sleep(PAUSE).await;
    }
    let version = plane.work.next_version();
    let flows = &plane.work.workflows;
    flows.open().insert(workflow.id.clone(), OpenWorkflow { workflow: workflow.clone(), version });
    flows.versions.send_replace(version);
}

async fn carry_out(plane: &Arc<ControlPlane>, id: &str, effects: Vec<WorkflowEffect>) {
    for effect in effects {
        match effect {
            WorkflowEffect::Save => {}
            WorkflowEffect::StartTask { spec, not_succeeded_in, not_unknown_in } => {
                let task = spec.id.clone();
                let earlier = !not_succeeded_in.is_empty();
                let started = start(plane, *spec, &not_succeeded_in, &not_unknown_in).await;
                let input = match started {
                    Ok(StartedStep::Begun) => continue,
                    Ok(StartedStep::Over(summary)) => WorkflowInput::TaskFinished { task, summary },
                    Ok(StartedStep::Nobody) if earlier => {
                        let progress = TaskProgress::default();
                        let summary = TaskSummary { state: TaskState::Done, why: None, progress };
                        WorkflowInput::TaskFinished { task, summary }
                    }
                    Ok(StartedStep::Nobody) => {
                        let why = "the selector means no node".to_owned();
                        WorkflowInput::TaskRefused { task, why }
                    }
                    Err(problem) => {
                        let why = problem.detail.unwrap_or(problem.title);
                        WorkflowInput::TaskRefused { task, why }
                    }
                };
                Box::pin(handle(plane, id, input)).await;
            }
            WorkflowEffect::CancelTask { task, by } => {
                if plane.work.cancel(&task, &by).await.is_err()
                    && let Some(summary) = ended(plane, &task).await
                {
                    Box::pin(handle(plane, id, WorkflowInput::TaskFinished { task, summary })).await;
                }
            }
            WorkflowEffect::Finished => {
                plane.work.workflows.open().remove(id);
                plane.work.workflows.versions.send_replace(plane.work.next_version());
            }
        }
    }
}

/// What became of a step's task.
enum StartedStep {
    Begun,
    Over(TaskSummary),
    Nobody,
}

async fn start(
    plane: &Arc<ControlPlane>,
    spec: TaskSpec,
    not_succeeded_in: &[String],
    not_unknown_in: &[String],
) -> Result<StartedStep, Problem> {
    if plane.work.get(&spec.id).is_some() {
        return Ok(StartedStep::Begun);
    }
    if let Some(summary) = ended(plane, &spec.id).await {
        return Ok(StartedStep::Over(summary));
    }
    let nodes = select::meant(plane, &select::read(&spec.selector)?).await?;
    let mut left_out = nodes_of(plane, not_succeeded_in, NodeWork::succeeded).await?;
    left_out.extend(nodes_of(plane, not_unknown_in, is_unknown).await?);
    let mut targets = select::ids(&nodes, None)?;
    targets.retain(|node| !left_out.contains(node));
    if targets.is_empty() {
        return Ok(StartedStep::Nobody);
    }
    plane.work.begin(plane, &plane.store, spec, targets).await?;
    Ok(StartedStep::Begun)
}

/// It is not known whether it did it.
fn is_unknown(work: &NodeWork) -> bool {
    work.stage == NodeStage::Silent || work.outcome == Some(model::work::ActionOutcome::Unknown)
}

/// The targets of tasks for which something holds.
async fn nodes_of(
    plane: &ControlPlane,
    tasks: &[String],
    holds: fn(&NodeWork) -> bool,
) -> Result<BTreeSet<NodeId>, Problem> {
    let mut found = BTreeSet::new();
    for task in tasks {
        let targets = targets(plane, task).await.map_err(store_problem)?.into_iter();
        found.extend(targets.filter(|(_, work)| holds(work)).map(|(node, _)| node));
    }
    Ok(found)
}

/// What a task that is over came to.
async fn ended(plane: &ControlPlane, task: &str) -> Option<TaskSummary> {
    let record = plane.store.task(task).await.ok().flatten()?;
    let document: TaskDocument = serde_json::from_str(&record.document).ok()?;
    document.finished.map(|_| document.summary)
}
