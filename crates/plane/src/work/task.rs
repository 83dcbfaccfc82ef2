//! [`Task`]: one thing to do on many nodes, a batch at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::work::{ActionOutcome, Order};
use model::{NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use super::progress::{TaskProgress, TaskState, TaskSummary};
use super::spec::{SpecError, TaskSpec};
use super::target::{NodeStage, NodeWork, Reach, action_id};
use super::{GRACE, MAX_WAIT_SECS};

/// What happened.
#[derive(Clone, Debug)]
pub enum TaskInput {
    /// Everything is written down: begin.
    Begin,
    /// A node's log says that it began.
    Started(NodeId),
    /// A node's log has its terminal fact.
    Ended {
        /// The node.
        node: NodeId,
        /// How it ended.
        outcome: ActionOutcome,
        /// How long it took, in milliseconds.
        duration_ms: u64,
    },
    /// A node that was offline called.
    Online(NodeId),
    /// A node was removed from the fleet, and its set with it.
    Removed(NodeId),
    /// An operator calls it off.
    Cancel {
        /// Who.
        by: String,
    },
    /// Time passed.
    Tick,
}

/// What the shell is to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskEffect {
    /// Make the document durable.
    SaveDocument(Box<TaskDocument>),
    /// Make the states of these targets durable, as [`Task::nodes`] has them.
    SaveNodes(Vec<NodeId>),
    /// Put this Action object into what the control plane authors for the node, and ask a
    /// node that polls for a stream. Putting what is there changes nothing.
    Put {
        /// The node.
        node: NodeId,
        /// The action's id: the object's name and uid.
        id: String,
        /// Its content.
        order: Box<Order>,
    },
    /// Take the Action object away: its terminal fact is here.
    Drop {
        /// The node.
        node: NodeId,
        /// The action's id.
        id: String,
    },
    /// It is over. Said once for each task, and perhaps again after a restart of the control plane.
    Finished(TaskSummary),
}

/// What is kept of a task besides its targets.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskDocument {
    /// What was asked for.
    pub spec: TaskSpec,
    /// How it stands. Its numbers are of the moment at which it was kept.
    pub summary: TaskSummary,
    /// When it was asked for.
    pub created: Timestamp,
    /// When it began.
    pub begun: Option<Timestamp>,
    /// When it was over.
    pub finished: Option<Timestamp>,
}

/// How nodes can be reached now.
pub type Reaches<'a> = &'a dyn Fn(&NodeId) -> Reach;

/// A task and all of its targets.
#[derive(Clone, Debug)]
pub struct Task {
    /// What is kept besides the targets, as it stands.
    document: TaskDocument,
    nodes: BTreeMap<NodeId, NodeWork>,
    /// What was not asked yet, in order.
    waiting: BTreeSet<(u32, NodeId)>,
    /// What cannot be reached and is waited for.
    deferred: BTreeSet<NodeId>,
    /// What is in flight, by when it counts as silent.
    deadlines: BTreeSet<(Timestamp, NodeId)>,
    /// Targets that changed since the last save.
    dirty: BTreeSet<NodeId>,
    /// The document that has to be durable before the targets: what was decided for all of
    /// them must not be half forgotten.
    decided: Option<Box<TaskDocument>>,
}

impl Task {
    /// A task that is planned: write the document and all targets down, then
    /// [`TaskInput::Begin`]. A target that is named twice is one.
    ///
    /// # Errors
    /// When it breaks a bound.
    pub fn new(spec: TaskSpec, targets: Vec<NodeId>, now: Timestamp) -> Result<Task, SpecError> {
        spec.check(targets.len())?;
        let mut nodes = BTreeMap::new();
        for (index, node) in (0u32..).zip(targets) {
            nodes.entry(node).or_insert_with(|| NodeWork::new(index, now));
        }
        let document = TaskDocument {
            spec,
            summary: TaskSummary { state: TaskState::Planned, why: None, progress: TaskProgress::default() },
            created: now,
            begun: None,
            finished: None,
        };
        Ok(Task::restore(document, nodes))
    }

    /// A task as it was kept; [`Task::resume`] it.
    pub fn restore(mut document: TaskDocument, nodes: BTreeMap<NodeId, NodeWork>) -> Task {
        document.summary.progress = TaskProgress::default();
        let mut task = Task {
            document,
            nodes: BTreeMap::new(),
            waiting: BTreeSet::new(),
            deferred: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            dirty: BTreeSet::new(),
            decided: None,
        };
        for (node, work) in &nodes {
            task.index(node, work, true);
        }
        task.nodes = nodes;
        task
    }

    /// After a restart of the control plane: says again what may not have been done. First
    /// give it the facts of its open targets that are stored: [`TaskInput::Started`],
    /// [`TaskInput::Ended`]. One that was never begun is called off.
    pub fn resume(&mut self, now: Timestamp, reach: Reaches<'_>) -> Vec<TaskEffect> {
        let mut effects = Vec::new();
        match self.document.summary.state {
            TaskState::Planned => {
                let why = "the control plane stopped before it began";
                self.call_off(TaskState::Cancelling, why, now, &mut effects);
            }
            // Perhaps not every target was asked.
            TaskState::Halting | TaskState::Cancelling => {
                self.call_off(self.document.summary.state, "", now, &mut effects)
            }
            TaskState::Running | TaskState::Done | TaskState::Halted | TaskState::Cancelled => {}
        }
        effects.clear();
        let present: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, work)| work.stage.has_object())
            .map(|(node, _)| node.clone())
            .collect();
        for node in &present {
            self.put(node, &mut effects);
        }
        if self.document.summary.state.is_final() {
            effects.push(TaskEffect::Finished(self.summary()));
        }
        self.go_on(now, reach, &mut effects);
        self.saved(effects)
    }

    /// What to do about an input.
    pub fn handle(&mut self, input: TaskInput, now: Timestamp, reach: Reaches<'_>) -> Vec<TaskEffect> {
        let mut effects = Vec::new();
        match input {
            TaskInput::Tick => {}
            TaskInput::Begin => {
                if self.document.summary.state == TaskState::Planned {
                    (self.document.summary.state, self.document.begun) = (TaskState::Running, Some(now));
                    self.decided = Some(Box::new(self.document()));
                    self.answer_unreachable(now, reach);
                }
            }
            TaskInput::Started(node) => self.started(&node, now),
            TaskInput::Ended { node, outcome, duration_ms } => {
                let mut ended = false;
                self.change(&node, |work| ended = work.end(outcome, duration_ms, now));
                if ended {
                    effects.push(TaskEffect::Drop { id: self.action(&node), node });
                }
            }
            TaskInput::Online(node) => self.change(&node, |work| {
                if work.stage == NodeStage::Deferred {
                    work.enter(NodeStage::Waiting, now);
                }
            }),
            TaskInput::Removed(node) => self.change(&node, |work| {
                if work.stage.is_open() || work.stage.has_object() {
                    work.enter(NodeStage::Removed, now);
                }
            }),
            TaskInput::Cancel { by } => {
                if !self.document.summary.state.is_final()
                    && self.document.summary.state != TaskState::Cancelling
                {
                    let why = format!("cancelled by {by}");
                    self.call_off(TaskState::Cancelling, &why, now, &mut effects);
                }
            }
        }
        self.go_on(now, reach, &mut effects);
        self.saved(effects)
    }

    /// When an [`TaskInput::Tick`] is due next; `None` when nothing waits for time.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let silent = self.deadlines.first().map(|(at, _)| *at);
        let waited = (!self.deferred.is_empty()).then(|| self.waited_until()).flatten();
        silent.into_iter().chain(waited).min()
    }

    /// What the Action object of a node has to be now; `None` when there has to be none.
    pub fn order_for(&self, node: &NodeId) -> Option<Order> {
        let work = self.nodes.get(node).filter(|work| work.stage.has_object())?;
        let silent = work.stage == NodeStage::Silent;
        // An order that expired long ago is one that is not begun any more.
        let expires = work.expires.filter(|_| !work.withdrawn && !silent).unwrap_or_default();
        Some(Order {
            task: self.document.spec.id.clone(),
            work: self.document.spec.work.clone(),
            timeout_secs: self.document.spec.timeout_secs,
            expires,
            cancel: work.cancelled || silent,
            release: None,
        })
    }

    /// How it stands.
    pub fn summary(&self) -> TaskSummary {
        self.document.summary.clone()
    }

    /// What is to be kept besides the targets.
    pub fn document(&self) -> TaskDocument {
        self.document.clone()
    }

    /// What was asked for.
    pub fn spec(&self) -> &TaskSpec {
        &self.document.spec
    }

    /// The targets.
    pub fn nodes(&self) -> &BTreeMap<NodeId, NodeWork> {
        &self.nodes
    }

    /// How many may be in flight at a time.
    pub fn batch(&self) -> usize {
        self.document.spec.batch.at_least_one(self.nodes.len())
    }

    /// How many may fail before the rest is called off.
    pub fn max_failures(&self) -> usize {
        self.document.spec.max_failures.map_or(usize::MAX, |share| share.at_most(self.nodes.len()))
    }

    fn action(&self, node: &NodeId) -> String {
        action_id(&self.document.spec.id, node)
    }

    /// Puts a target into everything that is derived from targets, or takes it out.
    fn index(&mut self, node: &NodeId, work: &NodeWork, there: bool) {
        self.document.summary.progress.count(work, there);
        let (turn, due) = ((work.index, node.clone()), work.deadline.map(|due| (due, node.clone())));
        match (work.stage, there) {
            (NodeStage::Waiting, true) => drop(self.waiting.insert(turn)),
            (NodeStage::Waiting, false) => drop(self.waiting.remove(&turn)),
            (NodeStage::Deferred, true) => drop(self.deferred.insert(node.clone())),
            (NodeStage::Deferred, false) => drop(self.deferred.remove(node)),
            _ => {}
        }
        match (due, there) {
            (Some(due), true) => drop(self.deadlines.insert(due)),
            (Some(due), false) => drop(self.deadlines.remove(&due)),
            (None, _) => {}
        }
    }

    fn change(&mut self, node: &NodeId, change: impl FnOnce(&mut NodeWork)) {
        let Some((node, old)) = self.nodes.get_key_value(node).map(|(n, w)| (n.clone(), w.clone())) else {
            return;
        };
        let mut new = old.clone();
        change(&mut new);
        if new != old {
            self.index(&node, &old, false);
            self.index(&node, &new, true);
            self.nodes.insert(node.clone(), new);
            self.dirty.insert(node);
        }
    }

    /// Targets that cannot be reached are answered at once, unless they are waited for.
    fn answer_unreachable(&mut self, now: Timestamp, reach: Reaches<'_>) {
        let waiting: Vec<NodeId> = self.waiting.iter().map(|(_, node)| node.clone()).collect();
        for node in waiting {
            match reach(&node) {
                Reach::Online | Reach::Promotable { .. } => {}
                Reach::Unreachable => self.not_asked(&node, NodeStage::Unreachable, now),
                Reach::Offline => self.not_asked(&node, NodeStage::Offline, now),
                Reach::Removed => self.change(&node, |work| work.enter(NodeStage::Removed, now)),
            }
        }
    }

    /// A target cannot be reached; it ends so, unless it is waited for.
    fn not_asked(&mut self, node: &NodeId, end: NodeStage, now: Timestamp) {
        let waited = self.waited_until().is_some_and(|until| now < until);
        let stage = if waited { NodeStage::Deferred } else { end };
        self.change(node, |work| work.enter(stage, now));
    }

    /// Until when nodes that cannot be reached are waited for.
    fn waited_until(&self) -> Option<Timestamp> {
        let wait = Duration::from_secs(self.document.spec.wait_secs.min(MAX_WAIT_SECS));
        self.document.begun.map(|begun| begun.plus(wait))
    }

    fn started(&mut self, node: &NodeId, now: Timestamp) {
        let until = now.plus(Duration::from_secs(self.document.spec.timeout_secs)).plus(GRACE);
        self.change(node, |work| {
            if work.stage.has_object() && work.begun.is_none() {
                work.begun = Some(now);
            }
            // The slot of a silent one was given away: it stays silent until it ends.
            if work.stage == NodeStage::Issued {
                work.enter(NodeStage::Running, now);
                work.deadline = Some(until);
            }
        });
    }

    /// Everything that time, room and budget make possible.
    fn go_on(&mut self, now: Timestamp, reach: Reaches<'_>, effects: &mut Vec<TaskEffect>) {
        self.mark_silent(now, effects);
        if self.waited_until().is_some_and(|until| now >= until) {
            for node in self.deferred.clone() {
                let end = match reach(&node) {
                    Reach::Unreachable => NodeStage::Unreachable,
                    Reach::Removed => NodeStage::Removed,
                    // One that called just now was not asked either.
                    Reach::Offline | Reach::Online | Reach::Promotable { .. } => NodeStage::Offline,
                };
                self.change(&node, |work| work.enter(end, now));
            }
        }
        if self.document.summary.state == TaskState::Running
            && let Some(why) = self.exhausted()
        {
            self.call_off(TaskState::Halting, &why, now, effects);
        }
        self.issue(now, reach, effects);
        self.finish(now, effects);
    }

    fn mark_silent(&mut self, now: Timestamp, effects: &mut Vec<TaskEffect>) {
        while let Some((due, node)) = self.deadlines.first().cloned() {
            if now < due {
                return;
            }
            self.change(&node, |work| work.enter(NodeStage::Silent, now));
            self.put(&node, effects);
        }
    }

    /// Why the rest has to be called off, if it has to.
    fn exhausted(&self) -> Option<String> {
        let failures = self.document.summary.progress.failures();
        let canaries = self.canaries();
        if failures > 0 && self.document.summary.progress.succeeded < canaries {
            return Some(format!("one of the first {canaries} failed"));
        }
        let most = self.max_failures();
        (failures > most).then(|| format!("{failures} failed, and {most} may"))
    }

    fn canaries(&self) -> usize {
        (self.document.spec.canaries as usize).min(self.nodes.len())
    }

    /// One more may begin: there is room in the batch, and if all in flight fail the budget
    /// is passed by one at the most.
    fn has_room(&self) -> bool {
        let TaskProgress { succeeded, .. } = self.document.summary.progress;
        let in_flight = self.document.summary.progress.in_flight();
        let proven = succeeded >= self.canaries() || succeeded + in_flight < self.canaries();
        let within = self.document.summary.progress.failures() + in_flight <= self.max_failures();
        self.document.summary.state == TaskState::Running && in_flight < self.batch() && within && proven
    }

    fn issue(&mut self, now: Timestamp, reach: Reaches<'_>, effects: &mut Vec<TaskEffect>) {
        while self.has_room() {
            let Some((_, node)) = self.waiting.first().cloned() else { return };
            let within_secs = match reach(&node) {
                Reach::Online => 0,
                Reach::Promotable { within_secs } => within_secs.min(MAX_WAIT_SECS),
                Reach::Unreachable => {
                    self.not_asked(&node, NodeStage::Unreachable, now);
                    continue;
                }
                Reach::Offline => {
                    self.not_asked(&node, NodeStage::Offline, now);
                    continue;
                }
                Reach::Removed => {
                    self.change(&node, |work| work.enter(NodeStage::Removed, now));
                    continue;
                }
            };
            let expires =
                now.plus(Duration::from_secs(self.document.spec.begin_secs.saturating_add(within_secs)));
            let deadline = expires.plus(Duration::from_secs(self.document.spec.timeout_secs)).plus(GRACE);
            self.change(&node, |work| {
                work.enter(NodeStage::Issued, now);
                work.issued = Some(now);
                work.expires = Some(expires);
                work.deadline = Some(deadline);
            });
            self.put(&node, effects);
        }
    }

    /// Nothing more begins; with [`TaskState::Cancelling`] what runs is ended too.
    fn call_off(&mut self, state: TaskState, why: &str, now: Timestamp, effects: &mut Vec<TaskEffect>) {
        self.document.summary.state = state;
        self.document.summary.why.get_or_insert_with(|| why.to_owned());
        self.decided = Some(Box::new(self.document()));
        let cancel = state == TaskState::Cancelling;
        let timeout = Duration::from_secs(self.document.spec.timeout_secs);
        let open: Vec<(NodeId, NodeStage)> = self
            .nodes
            .iter()
            .filter(|(_, work)| work.stage.is_open() || work.stage.in_flight())
            .map(|(node, work)| (node.clone(), work.stage))
            .collect();
        for (node, stage) in open {
            self.change(&node, |work| {
                if stage.is_open() {
                    return work.enter(NodeStage::Withdrawn, now);
                }
                work.withdrawn |= stage == NodeStage::Issued;
                work.cancelled |= cancel;
                // It hears of it at its next contact, which was within its time to begin.
                let contact = work.expires.zip(work.issued).map(|(until, at)| until.since(at));
                let rest = if cancel { Duration::ZERO } else { timeout };
                let heard = now.plus(contact.unwrap_or_default()).plus(rest).plus(GRACE);
                work.deadline = work.deadline.map(|due| due.min(heard));
            });
            if stage == NodeStage::Issued || (cancel && stage.in_flight()) {
                self.put(&node, effects);
            }
        }
    }

    fn put(&self, node: &NodeId, effects: &mut Vec<TaskEffect>) {
        if let Some(order) = self.order_for(node) {
            effects.push(TaskEffect::Put {
                node: node.clone(),
                id: self.action(node),
                order: Box::new(order),
            });
        }
    }

    fn finish(&mut self, now: Timestamp, effects: &mut Vec<TaskEffect>) {
        let state = match self.document.summary.state {
            TaskState::Running => TaskState::Done,
            TaskState::Halting => TaskState::Halted,
            TaskState::Cancelling => TaskState::Cancelled,
            TaskState::Planned | TaskState::Done | TaskState::Halted | TaskState::Cancelled => return,
        };
        if self.document.summary.progress.in_flight() == 0 && self.document.summary.progress.open() == 0 {
            (self.document.summary.state, self.document.finished) = (state, Some(now));
            effects.push(TaskEffect::Finished(self.summary()));
        }
    }

    /// Saving goes first: what was not kept must not be done.
    fn saved(&mut self, effects: Vec<TaskEffect>) -> Vec<TaskEffect> {
        let mut all: Vec<TaskEffect> =
            self.decided.take().map(TaskEffect::SaveDocument).into_iter().collect();
        let nodes: Vec<NodeId> = std::mem::take(&mut self.dirty).into_iter().collect();
        if !nodes.is_empty() {
            all.push(TaskEffect::SaveNodes(nodes));
        }
        if effects.iter().any(|effect| matches!(effect, TaskEffect::Finished(_))) {
            all.push(TaskEffect::SaveDocument(Box::new(self.document())));
        }
        all.extend(effects);
        all
    }
}
