//! The orchestrator: carries out what [`plane::work`] decides about tasks and workflows
//! (OPS-2, SYN-10).
//!
//! Every open task is one actor; so is the whole of workflows. A decision is durable before
//! any effect of it, and every effect is a function of what is durable, so a start after a
//! crash puts right what was not done ([`restore`]).

mod actor;
pub(crate) mod restore;
pub(crate) mod select;
pub(crate) mod views;
pub(crate) mod workflows;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::log::{Fact, FactBody};
use model::work::{ActionEvent, ActionFact, ActionOutcome};
use model::{Kind, NodeId, ObjectKey, Timestamp};
use plane::work::{
    MAX_OPEN_TASKS, NodeWork, Reach, Task, TaskDocument, TaskInput, TaskSpec, TaskState, action_id,
    parse_action_id,
};
use store::{Store, StoreError, TaskKind, TaskNode, TaskRecord};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use wire::{Code, Problem};

use crate::answer::store_problem;
use crate::api::work::TaskView;
use crate::hub::FeedEdit;
use crate::posture;
use crate::state::{ControlPlane, now};
use workflows::Workflows;

/// The most inputs that wait for one task; then those who have more wait.
const MAX_INPUTS: usize = 1024;
/// Targets that are read at once.
const PAGE: usize = 1000;
/// How long an operator waits until a task says that it is called off.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

/// All open tasks and workflows.
pub(crate) struct Orchestrator {
    open: Mutex<BTreeMap<String, Arc<OpenTask>>>,
    pub(crate) workflows: Workflows,
    versions: AtomicU64,
    actors: tokio::sync::Mutex<JoinSet<()>>,
    stop: watch::Sender<bool>,
}

/// A task under way, as everybody but its actor sees it.
pub(crate) struct OpenTask {
    pub(crate) spec: TaskSpec,
    inputs: mpsc::Sender<TaskInput>,
    /// There was no room for an input: what is stored shows it.
    missed: AtomicBool,
    /// Wakes the actor: output came, or something was missed.
    wake: Notify,
    pub(crate) view: watch::Sender<TaskView>,
}

/// What became of an input to a task.
#[derive(PartialEq, Eq)]
enum TaskDelivery {
    /// It knows, or will look.
    Heard,
    /// It is over.
    Over,
}

impl OpenTask {
    /// Tells the task something without ever waiting for it: one that cannot save must not hold
    /// up those who speak to it.
    fn tell(&self, input: TaskInput) -> TaskDelivery {
        match self.inputs.try_send(input) {
            Ok(()) => TaskDelivery::Heard,
            Err(TrySendError::Full(_)) => {
                self.missed.store(true, Ordering::Release);
                self.wake.notify_one();
                TaskDelivery::Heard
            }
            Err(TrySendError::Closed(_)) => TaskDelivery::Over,
        }
    }
}

impl Orchestrator {
    pub(crate) fn new() -> Orchestrator {
        Orchestrator {
            open: Mutex::default(),
            workflows: Workflows::new(),
            // Above every version before this start.
            versions: AtomicU64::new(version_at(now())),
            actors: tokio::sync::Mutex::default(),
            stop: watch::Sender::new(false),
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<String, Arc<OpenTask>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_version(&self) -> u64 {
        self.versions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A task under way.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<OpenTask>> {
        self.open().get(id).cloned()
    }

    /// The states of open tasks, as metrics name them.
    pub(crate) fn states(&self) -> Vec<&'static str> {
        self.open().values().map(|task| task.view.borrow().summary.state.as_str()).collect()
    }

    /// How many workflows are open.
    pub(crate) fn open_workflows(&self) -> usize {
        self.workflows.count()
    }

    /// Begins a task: durable in this handle of the store, with all of its targets, when it returns.
    pub(crate) async fn begin(
        &self,
        plane: &Arc<ControlPlane>,
        store: &Store,
        spec: TaskSpec,
        targets: Vec<NodeId>,
    ) -> Result<Arc<OpenTask>, Problem> {
        if self.open().len() >= MAX_OPEN_TASKS {
            let detail = format!("{MAX_OPEN_TASKS} tasks are open; wait for one to end, or cancel one");
            return Err(Problem::new(Code::TaskRefused, detail));
        }
        let refused = |error: plane::work::SpecError| Problem::new(Code::TaskRefused, error.to_string());
        let task = Task::new(spec, targets, now()).map_err(refused)?;
        store.put_task(record(&task.document())?).await.map_err(store_problem)?;
        let id = task.spec().id.clone();
        let nodes = task.nodes().iter().map(|(node, work)| row(&id, node, work));
        let nodes = nodes.collect::<Result<Vec<TaskNode>, StoreError>>().map_err(store_problem)?;
        for nodes in nodes.chunks(store::MAX_TARGETS_IN_PUT) {
            if let Err(error) = plane.store.put_task_nodes(&id, nodes.to_vec()).await {
                // It is not begun, and its document is there: its actor calls it off, as after
                // a restart, and ends it once the store takes that.
                self.spawn(plane, task, true).await;
                return Err(store_problem(error));
            }
        }
        tracing::info!(task = id, by = task.spec().by, nodes = nodes.len(), "a task begins");
        Ok(self.spawn(plane, task, false).await)
    }

    /// Gives a task its actor.
    async fn spawn(&self, plane: &Arc<ControlPlane>, task: Task, resumed: bool) -> Arc<OpenTask> {
        let (inputs, received) = mpsc::channel(MAX_INPUTS);
        let document = task.document();
        let open = OpenTask {
            spec: document.spec.clone(),
            inputs,
            missed: AtomicBool::new(false),
            wake: Notify::new(),
            view: watch::Sender::new(views::view(document, self.next_version())),
        };
        let open = Arc::new(open);
        self.open().insert(open.spec.id.clone(), open.clone());
        let actor = actor::Actor::new(plane.clone(), open.clone(), task, received, self.stop.subscribe());
        self.actors.lock().await.spawn(actor.run(resumed));
        open
    }

    /// Runs until `shutdown` becomes true; then until every actor has ended.
    pub(crate) async fn run(plane: Arc<ControlPlane>, mut shutdown: watch::Receiver<bool>) {
        let work = &plane.work;
        let flow = workflows::run(plane.clone(), work.stop.subscribe());
        let sweep = restore::sweep(plane.clone(), work.stop.subscribe());
        {
            let mut actors = work.actors.lock().await;
            actors.spawn(flow);
            actors.spawn(sweep);
        }
        loop {
            // Those that ended are let go; new ones come meanwhile.
            while work.actors.lock().await.try_join_next().is_some() {}
            tokio::select! {
                () = tokio::time::sleep(actor::PAUSE) => {}
                () = net::accept::stopped(&mut shutdown) => break,
            }
        }
        work.stop.send_replace(true);
        let mut actors = std::mem::take(&mut *work.actors.lock().await);
        while actors.join_next().await.is_some() {}
    }

    /// Calls a task off.
    pub(crate) async fn cancel(&self, id: &str, by: &str) -> Result<Arc<OpenTask>, Problem> {
        let gone = || Problem::new(Code::WrongPhase, format!("task {id} is not open"));
        let task = self.get(id).ok_or_else(gone)?;
        let called_off = async {
            let mut views = task.view.subscribe();
            let input = TaskInput::Cancel { by: by.to_owned() };
            task.inputs.send(input).await.map_err(|_| gone())?;
            let called_off = |view: &TaskView| {
                view.summary.state.is_final() || matches!(view.summary.state, TaskState::Cancelling)
            };
            // An actor that has ended keeps its last news.
            let _ = views.wait_for(called_off).await;
            Ok::<(), Problem>(())
        };
        // One that cannot save takes longer; it has heard, and does it then.
        tokio::time::timeout(CANCEL_WITHIN, called_off).await.unwrap_or(Ok(()))?;
        Ok(task)
    }

    /// Takes in what a node's log says of actions; the facts are durable.
    pub(crate) async fn facts(&self, plane: &ControlPlane, node: &NodeId, facts: &[Fact]) {
        let mut foreign = 0;
        for fact in facts {
            let FactBody::Action(action) = &fact.body else { continue };
            match parse_action_id(&action.id) {
                Some((task, of)) if of == *node => self.fact(plane, task, node, action).await,
                _ => foreign += 1,
            }
        }
        if foreign > 0 {
            tracing::warn!(%node, foreign, "a node speaks of actions that are not its own; ignored");
        }
    }

    async fn fact(&self, plane: &ControlPlane, task: &str, node: &NodeId, action: &ActionFact) {
        if let ActionEvent::Ended { outcome, .. } = &action.event {
            plane.metrics.task_node_ended(outcome_word(outcome));
        }
        if let Some(open) = self.get(task) {
            match input(node, &action.event) {
                Some(input) => {
                    if open.tell(input) == TaskDelivery::Heard {
                        return;
                    }
                }
                // Nothing to decide, but news.
                None => return open.wake.notify_one(),
            }
        }
        if let ActionEvent::Ended { outcome, duration_ms } = &action.event {
            restore::late(plane, task, node, outcome, *duration_ms).await;
        }
    }

    /// A node that was late called again.
    pub(crate) fn online(&self, node: &NodeId) {
        let waiting = |task: &&Arc<OpenTask>| task.spec.wait_secs > 0;
        let tasks: Vec<_> = self.open().values().filter(waiting).cloned().collect();
        for task in tasks {
            task.tell(TaskInput::Online(node.clone()));
        }
    }

    /// A node was removed from the fleet.
    pub(crate) fn removed(&self, node: &NodeId) {
        let tasks: Vec<_> = self.open().values().cloned().collect();
        for task in tasks {
            task.tell(TaskInput::Removed(node.clone()));
        }
    }
}

/// What an event of an action is to its task.
fn input(node: &NodeId, event: &ActionEvent) -> Option<TaskInput> {
    match event {
        ActionEvent::Started => Some(TaskInput::Started(node.clone())),
        ActionEvent::Ended { outcome, duration_ms } => {
            let (outcome, duration_ms) = (outcome.clone(), *duration_ms);
            Some(TaskInput::Ended { node: node.clone(), outcome, duration_ms })
        }
        ActionEvent::Output { .. } | ActionEvent::Unknown => None,
    }
}

/// How a node can be reached now (SYN-10).
pub(crate) fn reach(plane: &ControlPlane, node: &NodeId) -> Reach {
    if plane.hub.sync_index().link(node).is_some() {
        return Reach::Online;
    }
    let Some(slot) = plane.index.get(node) else { return Reach::Removed };
    let (silent_since, promised) = {
        let entry = slot.lock();
        if entry.node.last_seen.is_none() {
            // Nobody knows whether it will ever call.
            return Reach::Offline;
        }
        (entry.node.silent_since(), entry.node.promised)
    };
    Reach::by_contact(silent_since, promised, now())
}

/// The key of an action's object in what goes down.
pub(crate) fn action_key(id: &str) -> ObjectKey {
    ObjectKey::of(Kind::ACTION, id)
}

/// Takes an action's object away.
pub(crate) fn without(id: &str) -> FeedEdit {
    FeedEdit { key: action_key(id), put: None }
}

/// An id that nobody had before: a letter and 12 hex digits.
pub(crate) fn fresh_id(letter: char) -> Result<String, Problem> {
    let bytes = posture::random::<6>().map_err(|_| Problem::from(Code::Internal))?;
    Ok(format!("{letter}{}", data_encoding::HEXLOWER.encode(&bytes)))
}

/// A task as the store keeps it.
fn record(document: &TaskDocument) -> Result<TaskRecord, Problem> {
    let text = serde_json::to_string(document).map_err(|_| Problem::from(Code::Internal))?;
    Ok(TaskRecord {
        id: document.spec.id.clone(),
        kind: TaskKind::Task,
        created: document.created,
        by: document.spec.by.clone(),
        document: text,
        finished: document.finished,
    })
}

/// A target as the store keeps it.
///
/// # Errors
/// [`StoreError::Backend`] when its state cannot be encoded; an empty one must never replace it.
fn row(task: &str, node: &NodeId, work: &NodeWork) -> Result<TaskNode, StoreError> {
    let action = if work.issued.is_some() { action_id(task, node) } else { String::new() };
    let state = serde_json::to_string(work).map_err(|error| StoreError::Backend {
        operation: "encode a target of a task",
        source: Arc::new(error),
    })?;
    Ok(TaskNode { node: node.clone(), action, state })
}

/// The targets of a task as they are stored; one that cannot be read is left out.
async fn targets(plane: &ControlPlane, task: &str) -> Result<Vec<(NodeId, NodeWork)>, StoreError> {
    let mut targets: Vec<(NodeId, NodeWork)> = Vec::new();
    let mut after: Option<NodeId> = None;
    loop {
        let page = plane.store.task_nodes(task, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(targets) };
        after = Some(last.node.clone());
        for TaskNode { node, state, .. } in page {
            match serde_json::from_str(&state) {
                Ok(work) => targets.push((node, work)),
                Err(error) => tracing::error!(task, %node, %error, "a stored target cannot be read"),
            }
        }
    }
}

/// What a version is at least at a time: above all given out before it.
pub(crate) fn version_at(at: Timestamp) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1000)
}

fn outcome_word(outcome: &ActionOutcome) -> &'static str {
    match outcome {
        ActionOutcome::Exited { code: 0 } => "succeeded",
        ActionOutcome::Exited { .. } => "exited",
        ActionOutcome::Signalled { .. } => "signalled",
        ActionOutcome::TimedOut => "timed-out",
        ActionOutcome::Cancelled => "cancelled",
        ActionOutcome::Refused { .. } => "refused",
        ActionOutcome::Failed { .. } => "failed",
        ActionOutcome::Expired => "expired",
        ActionOutcome::Unknown => "unknown",
        ActionOutcome::Answered { .. } => "answered",
        ActionOutcome::HandedOver => "handed-over",
    }
}
