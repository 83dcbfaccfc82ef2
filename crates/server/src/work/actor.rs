//! One task under way: inputs in, effects carried out in their order, saving first.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use model::NodeId;
use model::work::{ActionOutcome, Order};
use net::accept::stopped;
use plane::work::{NodeStage, Reach, Task, TaskDocument, TaskEffect, TaskInput, WorkflowInput, action_id};
use store::TaskNode;
use sync::Content;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::{OpenTask, action_key, reach, record, restore, row, views, without};
use crate::hub::{EditOutcome, FeedEdit, HubError, Uid};
use crate::state::{ControlPlane, GivenUp, now};

/// Between two attempts at what the store did not take.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Actions put or taken away at once: they share the store's commits.
const AT_ONCE: usize = 64;
/// The most inputs taken together.
const TOGETHER: usize = 256;

/// The actor of one task.
pub(super) struct Actor {
    plane: Arc<ControlPlane>,
    open: Arc<OpenTask>,
    task: Task,
    inputs: mpsc::Receiver<TaskInput>,
    stop: watch::Receiver<bool>,
    /// Nodes whose object is perhaps not what it has to be.
    undone: BTreeSet<NodeId>,
}

/// The control plane stops.
struct Stopped;

impl Actor {
    pub(super) fn new(
        plane: Arc<ControlPlane>,
        open: Arc<OpenTask>,
        task: Task,
        inputs: mpsc::Receiver<TaskInput>,
        stop: watch::Receiver<bool>,
    ) -> Actor {
        Actor { plane, open, task, inputs, stop, undone: BTreeSet::new() }
    }

    /// Runs until the task is over or the control plane stops.
    pub(super) async fn run(mut self, resumed: bool) {
        let mut stop = self.stop.clone();
        let over = tokio::select! {
            over = self.whole(resumed) => over.is_ok(),
            () = stopped(&mut stop) => false,
        };
        if over {
            self.plane.work.open().remove(&self.open.spec.id);
            self.last_words().await;
        }
    }

    async fn whole(&mut self, resumed: bool) -> Result<(), Stopped> {
        let effects = if resumed { self.resume().await } else { self.begin().await };
        self.carry_out(effects).await?;
        loop {
            self.publish();
            if self.task.summary().state.is_final() && self.undone.is_empty() {
                return Ok(());
            }
            let inputs = self.next().await;
            let effects = self.take(inputs);
            self.carry_out(effects).await?;
        }
    }

    /// Nodes of which it is plain that they would refuse are answered here; then it begins.
    async fn begin(&mut self) -> Vec<TaskEffect> {
        let mut inputs = Vec::new();
        for (node, refusal) in super::select::refusals(&self.plane, &self.task).await {
            inputs.push(TaskInput::Ended { node, outcome: refusal.into(), duration_ms: 0 });
        }
        inputs.push(TaskInput::Begin);
        self.handle(inputs)
    }

    async fn resume(&mut self) -> Vec<TaskEffect> {
        let inputs = restore::stored_facts(&self.plane, &self.task).await;
        let mut effects = self.handle(inputs);
        let plane = self.plane.clone();
        effects.extend(self.task.resume(now(), &|node| reach(&plane, node)));
        effects
    }

    fn handle(&mut self, inputs: Vec<TaskInput>) -> Vec<TaskEffect> {
        let plane = self.plane.clone();
        let reached = |node: &NodeId| reach(&plane, node);
        inputs.into_iter().flat_map(|input| self.task.handle(input, now(), &reached)).collect()
    }

    fn take(&mut self, inputs: Vec<TaskInput>) -> Vec<TaskEffect> {
        if inputs.is_empty() { self.handle(vec![TaskInput::Tick]) } else { self.handle(inputs) }
    }

    /// The inputs since, or none when time is up.
    async fn next(&mut self) -> Vec<TaskInput> {
        let mut inputs = Vec::new();
        let wait = match self.task.next_deadline() {
            _ if !self.undone.is_empty() => PAUSE,
            Some(at) => at.since(now()).max(Duration::from_millis(1)),
            None => Duration::from_secs(3600),
        };
        let open = self.open.clone();
        tokio::select! {
            _ = self.inputs.recv_many(&mut inputs, TOGETHER) => {}
            // Output came, or more than there was room for.
            () = open.wake.notified() => {}
            // Time out: the clock may be set back, and then it is looked at again.
            () = tokio::time::sleep(wait) => {}
        }
        if self.open.missed.swap(false, Ordering::AcqRel) {
            inputs.extend(self.missed().await);
        }
        inputs
    }

    /// The inputs that may have come while there was no room for them.
    async fn missed(&self) -> Vec<TaskInput> {
        let mut inputs = restore::stored_facts(&self.plane, &self.task).await;
        for (node, _) in self.task.nodes().iter().filter(|(_, work)| work.stage == NodeStage::Deferred) {
            match reach(&self.plane, node) {
                Reach::Online | Reach::Promotable { .. } => inputs.push(TaskInput::Online(node.clone())),
                Reach::Removed => inputs.push(TaskInput::Removed(node.clone())),
                Reach::Unreachable | Reach::Offline => {}
            }
        }
        inputs
    }

    /// Everything durable first, then what is to be done; nothing of it is forgotten.
    async fn carry_out(&mut self, mut effects: Vec<TaskEffect>) -> Result<(), Stopped> {
        loop {
            let refused = self.carry_out_once(effects).await?;
            if refused.is_empty() {
                return Ok(());
            }
            effects = self.handle(refused);
        }
    }

    /// Effects of several inputs as one: everything is saved before anything is done, and an
    /// object is put once, as it has to be in the end. Returns how those ended whose objects do not
    /// fit.
    async fn carry_out_once(&mut self, effects: Vec<TaskEffect>) -> Result<Vec<TaskInput>, Stopped> {
        let (mut decided, mut ended, mut nodes, mut finished) = (None, None, BTreeSet::new(), None);
        for effect in effects {
            match effect {
                TaskEffect::SaveDocument(document) if document.finished.is_some() => ended = Some(document),
                TaskEffect::SaveDocument(document) => decided = Some(document),
                TaskEffect::SaveNodes(more) => nodes.extend(more),
                TaskEffect::Put { node, .. } | TaskEffect::Drop { node, .. } => {
                    self.undone.insert(node);
                }
                TaskEffect::Finished(summary) => finished = Some(summary),
            }
        }
        if let Some(document) = decided {
            self.save(&document).await?;
        }
        self.save_nodes(nodes).await?;
        if let Some(document) = ended {
            self.save(&document).await?;
        }
        let refused = self.put_right().await;
        if let Some(summary) = finished
            && let Some(workflow) = &self.open.spec.workflow
        {
            let task = self.open.spec.id.clone();
            let input = WorkflowInput::TaskFinished { task, summary };
            self.plane.work.workflows.tell(workflow, input).await;
        }
        Ok(refused)
    }

    async fn save(&mut self, document: &TaskDocument) -> Result<(), Stopped> {
        loop {
            let Ok(record) = record(document) else { return Ok(()) };
            match self.plane.store.put_task(record).await {
                Ok(()) => return Ok(()),
                Err(error) => self.pause("a task could not be saved", &error).await?,
            }
        }
    }

    async fn save_nodes(&mut self, nodes: BTreeSet<NodeId>) -> Result<(), Stopped> {
        let id = self.open.spec.id.clone();
        let row = |node: &NodeId| {
            let encoded = row(&id, node, self.task.nodes().get(node)?);
            let failed = |error: &store::StoreError| {
                // What the store has of it stays, and is older, but no other state.
                tracing::error!(task = id, %node, error = %crate::answer::chain(error), "a target cannot be saved");
            };
            encoded.inspect_err(failed).ok()
        };
        let rows: Vec<TaskNode> = nodes.iter().filter_map(row).collect();
        for rows in rows.chunks(store::MAX_TARGETS_IN_PUT) {
            while let Err(error) = self.plane.store.put_task_nodes(&id, rows.to_vec()).await {
                self.pause("targets of a task could not be saved", &error).await?;
            }
        }
        Ok(())
    }

    async fn pause(&mut self, what: &str, error: &store::StoreError) -> Result<(), Stopped> {
        tracing::warn!(task = self.open.spec.id, error = %error, "{what}; it is tried again");
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => Ok(()),
            () = stopped(&mut self.stop) => Err(Stopped),
        }
    }

    /// Makes the objects of all nodes that are undone what they have to be. Nodes that have no
    /// room for theirs are returned, as ended.
    async fn put_right(&mut self) -> Vec<TaskInput> {
        let mut running = JoinSet::new();
        let mut under_way = HashMap::new();
        let mut left: Vec<NodeId> = std::mem::take(&mut self.undone).into_iter().collect();
        let mut refused = Vec::new();
        loop {
            while running.len() < AT_ONCE
                && let Some(node) = left.pop()
            {
                let Some(edit) = self.edit_for(&node) else { continue };
                let (plane, of) = (self.plane.clone(), node.clone());
                let work = running.spawn(async move { plane.hub.change(&of, vec![edit]).await });
                under_way.insert(work.id(), node);
            }
            let (id, outcome) = match running.join_next_with_id().await {
                None => return refused,
                Some(Ok(done)) => done,
                Some(Err(broke)) => (broke.id(), Err(GivenUp.into())),
            };
            let Some(node) = under_way.remove(&id) else { continue };
            match outcome {
                Ok(outcome) => {
                    refused.extend(outcome.into_iter().find_map(|outcome| no_room(&node, outcome)))
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => {
                    tracing::warn!(task = self.open.spec.id, %node, %error, "work could not be put; it is tried again");
                    self.undone.insert(node);
                }
            }
        }
    }

    /// What makes a node's object what it has to be; `None` for one that was never asked.
    fn edit_for(&self, node: &NodeId) -> Option<FeedEdit> {
        self.task.nodes().get(node).filter(|work| work.issued.is_some())?;
        let id = action_id(&self.open.spec.id, node);
        match self.task.order_for(node) {
            Some(order) => {
                let slot = self.plane.index.get(node);
                let release = slot.and_then(|slot| slot.pointed_seq(&self.plane.heads()));
                put(&id, &Order { release, ..order })
            }
            None => Some(without(&id)),
        }
    }

    fn publish(&self) {
        let document = self.task.document();
        let version = self.plane.work.next_version();
        self.open.view.send_replace(views::view(document, version));
    }

    /// The inputs that came while it ended.
    async fn last_words(&mut self) {
        self.inputs.close();
        let mut inputs = Vec::new();
        while let Some(input) = self.inputs.recv().await {
            inputs.push(input);
        }
        if self.open.missed.swap(false, Ordering::AcqRel) {
            inputs.extend(self.missed().await);
        }
        for input in inputs {
            if let TaskInput::Ended { node, outcome, duration_ms } = input {
                restore::late(&self.plane, &self.open.spec.id, &node, &outcome, duration_ms).await;
            }
        }
    }
}

/// The node is none any more: it has no set to put anything into.
fn is_gone(error: &HubError) -> bool {
    matches!(error, HubError::Store(store::StoreError::UnknownNode(_)))
}

/// A node that has no room for an action does not get it.
fn no_room(node: &NodeId, outcome: EditOutcome) -> Option<TaskInput> {
    let Err(why) = outcome else { return None };
    let outcome = ActionOutcome::Failed { message: why.to_string() };
    Some(TaskInput::Ended { node: node.clone(), outcome, duration_ms: 0 })
}

/// Puts an action's object.
fn put(id: &str, order: &Order) -> Option<FeedEdit> {
    let bytes: Bytes = model::canonical::to_bytes(order).ok()?.into();
    let content = Content { bytes, trace: None, at: now().0 };
    Some(FeedEdit { key: action_key(id), put: Some((Uid::Generated(id.into()), content)) })
}
