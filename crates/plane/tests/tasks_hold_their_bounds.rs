//! OPS-2: a task never has more than its batch in flight, never lets more than its budget
//! and one fail (what is in flight counted as failed), asks no node twice, brings every
//! target to an end, and goes on after a restart of the control plane as if there was none.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::work::{ActionOutcome, Order, Work};
use model::{NodeId, Timestamp};
use plane::work::{
    NodeStage, NodeWork, Reach, Share, Task, TaskDocument, TaskEffect, TaskInput, TaskSpec, action_id,
    parse_action_id,
};
use proptest::prelude::*;

const SECOND: i64 = 1000;

fn node(n: u8) -> NodeId {
    NodeId::of_key(&[n; 32])
}

/// What a node did with its order, by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Nothing,
    Runs,
    Ended {
        success: bool,
    },
    /// Said that it did not begin.
    Declined,
}

#[derive(Clone, Debug)]
enum Said {
    Started,
    Ended(ActionOutcome),
}

/// A control plane's durable state, its fleet, and the task in its memory.
struct World {
    document: Option<TaskDocument>,
    rows: BTreeMap<NodeId, NodeWork>,
    feed: BTreeMap<NodeId, Order>,
    /// What each node said, taken in or not.
    facts: BTreeMap<NodeId, VecDeque<Said>>,
    taken: BTreeMap<NodeId, Vec<Said>>,
    did: BTreeMap<NodeId, Did>,
    online: BTreeSet<NodeId>,
    task: Task,
    now: Timestamp,
    pending: VecDeque<TaskEffect>,
    /// The first expiry that each node was given.
    asked: BTreeMap<NodeId, Timestamp>,
    finished: u32,
    batch: usize,
    most: usize,
}

impl World {
    fn new(spec: TaskSpec, targets: u8, online: &BTreeSet<u8>) -> World {
        let nodes: Vec<NodeId> = (0..targets).map(node).collect();
        let task = Task::new(spec, nodes.clone(), Timestamp(0)).unwrap();
        let (batch, most) = (task.batch(), task.max_failures());
        World {
            document: Some(task.document()),
            rows: task.nodes().clone(),
            feed: BTreeMap::new(),
            facts: BTreeMap::new(),
            taken: BTreeMap::new(),
            did: nodes.iter().map(|node| (node.clone(), Did::Nothing)).collect(),
            online: online.iter().filter(|n| **n < targets).map(|n| node(*n)).collect(),
            task,
            now: Timestamp(0),
            pending: VecDeque::new(),
            asked: BTreeMap::new(),
            finished: 0,
            batch,
            most,
        }
    }

    fn tell(&mut self, input: TaskInput) {
        let reach = reach(&self.online);
        let effects = self.task.handle(input, self.now, &reach);
        self.pending.extend(effects);
    }

    fn restart(&mut self) {
        self.pending.clear();
        let mut task = Task::restore(self.document.clone().unwrap(), self.rows.clone());
        // The facts that are stored come first.
        let open: Vec<NodeId> = self
            .rows
            .iter()
            .filter(|(_, row)| row.stage.has_object())
            .map(|(node, _)| node.clone())
            .collect();
        if !task.summary().state.is_final() {
            for node in open {
                for said in self.taken.get(&node).into_iter().flatten() {
                    let effects = task.handle(input(&node, said), self.now, &reach(&self.online));
                    self.pending.extend(effects);
                }
            }
        }
        let effects = task.resume(self.now, &reach(&self.online));
        self.pending.extend(effects);
        self.task = task;
        // What the task does not want in the feed goes.
        let unwanted: Vec<NodeId> =
            self.feed.keys().filter(|node| self.task.order_for(node).is_none()).cloned().collect();
        unwanted.iter().for_each(|node| drop(self.feed.remove(node)));
    }

    /// Carries effects out; dies after so many.
    fn settle(&mut self, mut steps: u32) -> bool {
        while let Some(effect) = self.pending.pop_front() {
            if steps == 0 {
                return false;
            }
            steps -= 1;
            match effect {
                TaskEffect::SaveDocument(document) => self.document = Some(*document),
                TaskEffect::SaveNodes(nodes) => {
                    for node in nodes {
                        self.rows.insert(node.clone(), self.task.nodes()[&node].clone());
                    }
                }
                TaskEffect::Put { node, id, order } => {
                    assert_eq!(parse_action_id(&id), Some((self.task.spec().id.as_str(), node.clone())));
                    assert!(self.rows[&node].issued.is_some(), "that it is asked is durable before it is");
                    if order.expires != Timestamp::default() {
                        let first = self.asked.entry(node.clone()).or_insert(order.expires);
                        assert_eq!(*first, order.expires, "it is asked once");
                    }
                    self.feed.insert(node, *order);
                }
                TaskEffect::Drop { node, .. } => {
                    assert!(self.rows[&node].outcome.is_some(), "the terminal fact is durable");
                    self.feed.remove(&node);
                }
                TaskEffect::Finished(_) => self.finished += 1,
            }
        }
        true
    }

    fn check(&self) {
        let in_flight = |row: &&NodeWork| row.stage.in_flight();
        assert!(self.task.nodes().values().filter(in_flight).count() <= self.batch);
        let progress = self.task.summary().progress;
        let counted = self.task.nodes().values().filter(|row| row.stage == NodeStage::Waiting).count();
        assert_eq!((progress.waiting, progress.total), (counted, self.task.nodes().len()));
        // What really happened out there, whether or not it is known here.
        let failed = self.did.values().filter(|did| **did == Did::Ended { success: false }).count();
        assert!(failed <= self.most.saturating_add(1), "{failed} failed, and {} may", self.most);
    }

    fn hear(&mut self, n: u8) {
        let node = node(n);
        let Some(order) = self.feed.get(&node) else { return };
        let facts = self.facts.entry(node.clone()).or_default();
        match self.did[&node] {
            Did::Nothing if order.cancel => {
                facts.push_back(Said::Ended(ActionOutcome::Cancelled));
                self.did.insert(node, Did::Declined);
            }
            Did::Nothing if self.now > order.expires => {
                facts.push_back(Said::Ended(ActionOutcome::Expired));
                self.did.insert(node, Did::Declined);
            }
            Did::Nothing => {
                facts.push_back(Said::Started);
                self.did.insert(node, Did::Runs);
            }
            Did::Runs if order.cancel => self.end(n, ActionOutcome::Cancelled, true),
            Did::Runs | Did::Ended { .. } | Did::Declined => {}
        }
    }

    /// `fine`: it is no failure in the sense of the budget.
    fn end(&mut self, n: u8, outcome: ActionOutcome, fine: bool) {
        let node = node(n);
        if self.did.get(&node) == Some(&Did::Runs) {
            self.facts.entry(node.clone()).or_default().push_back(Said::Ended(outcome));
            self.did.insert(node, Did::Ended { success: fine });
        }
    }

    fn take_in(&mut self, n: u8) {
        let node = node(n);
        let Some(said) = self.facts.get_mut(&node).and_then(VecDeque::pop_front) else { return };
        self.taken.entry(node.clone()).or_default().push(said.clone());
        self.tell(input(&node, &said));
    }

    fn online(&mut self, n: u8, there: bool) {
        let node = node(n);
        if !self.did.contains_key(&node) {
            return;
        }
        if there {
            self.online.insert(node.clone());
            self.tell(TaskInput::Online(node));
        } else {
            self.online.remove(&node);
        }
    }

    /// Everyone is there, everything is heard and said.
    fn run_out(&mut self) {
        for _ in 0..400 {
            if self.task.summary().state.is_final() && self.facts.values().all(VecDeque::is_empty) {
                break;
            }
            for n in 0..u8::try_from(self.did.len()).unwrap() {
                self.online(n, true);
                self.settle(u32::MAX);
                self.hear(n);
                self.end(n, ActionOutcome::Exited { code: 0 }, true);
                self.take_in(n);
                self.settle(u32::MAX);
                self.check();
            }
        }
    }
}

/// Some hold a stream, some poll, some are not there.
fn reach(online: &BTreeSet<NodeId>) -> impl Fn(&NodeId) -> Reach + use<> {
    let online = online.clone();
    move |node: &NodeId| match online.contains(node) {
        true if node.as_str().ends_with(['0', '2', '4', '6', '8', 'a', 'c', 'e']) => Reach::Online,
        true => Reach::Promotable { within_secs: 60 },
        false => Reach::Offline,
    }
}

fn input(node: &NodeId, said: &Said) -> TaskInput {
    match said {
        Said::Started => TaskInput::Started(node.clone()),
        Said::Ended(outcome) => {
            TaskInput::Ended { node: node.clone(), outcome: outcome.clone(), duration_ms: 1 }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Hear(u8),
    Succeed(u8),
    Fail(u8),
    Lose(u8),
    TakeIn(u8),
    Online(u8, bool),
    Pass(u16),
    Cancel,
}

fn op() -> impl Strategy<Value = Op> {
    let n = 0u8..12;
    prop_oneof![
        6 => n.clone().prop_map(Op::Hear),
        4 => n.clone().prop_map(Op::Succeed),
        2 => n.clone().prop_map(Op::Fail),
        1 => n.clone().prop_map(Op::Lose),
        6 => n.clone().prop_map(Op::TakeIn),
        2 => (n, any::<bool>()).prop_map(|(n, there)| Op::Online(n, there)),
        1 => any::<u16>().prop_map(Op::Pass),
        1 => prop::bool::weighted(0.1).prop_map(|cancel| if cancel { Op::Cancel } else { Op::Pass(1) }),
    ]
}

fn act(world: &mut World, op: &Op) {
    match *op {
        Op::Hear(n) => world.hear(n),
        Op::Succeed(n) => world.end(n, ActionOutcome::Exited { code: 0 }, true),
        Op::Fail(n) => world.end(n, ActionOutcome::Exited { code: 1 }, false),
        Op::Lose(n) => world.end(n, ActionOutcome::Unknown, false),
        Op::TakeIn(n) => world.take_in(n),
        Op::Online(n, there) => world.online(n, there),
        Op::Pass(secs) => {
            world.now = Timestamp(world.now.0 + i64::from(secs % 1500) * SECOND);
            world.tell(TaskInput::Tick);
        }
        Op::Cancel => world.tell(TaskInput::Cancel { by: "ada".into() }),
    }
}

fn share() -> impl Strategy<Value = Share> {
    prop_oneof![(1u32..6).prop_map(Share::Count), (1u8..=100).prop_map(Share::Percent)]
}

fn spec() -> impl Strategy<Value = TaskSpec> {
    let budget =
        prop::option::of(prop_oneof![(0u32..4).prop_map(Share::Count), (0u8..60).prop_map(Share::Percent)]);
    (share(), budget, 0u32..3, prop::bool::ANY).prop_map(|(batch, max_failures, canaries, wait)| TaskSpec {
        id: "t1".to_owned(),
        by: "ada".to_owned(),
        selector: "*".to_owned(),
        work: Work::Command { argv: vec!["/bin/true".into()] },
        batch,
        max_failures,
        canaries,
        timeout_secs: 60,
        wait_secs: if wait { 3600 } else { 0 },
        begin_secs: plane::work::BEGIN_SECS,
        workflow: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn bounds_hold_whatever_happens_and_every_target_ends(
        spec in spec(),
        targets in 1u8..12,
        online in prop::collection::btree_set(0u8..12, 0..12),
        ops in prop::collection::vec((op(), prop::option::weighted(0.15, 0u32..6)), 0..80),
    ) {
        let mut world = World::new(spec, targets, &online);
        world.tell(TaskInput::Begin);
        world.settle(u32::MAX);
        for (op, dies_after) in &ops {
            act(&mut world, op);
            world.settle(dies_after.unwrap_or(u32::MAX));
            if dies_after.is_some() {
                world.restart();
                world.settle(u32::MAX);
            }
            world.check();
        }
        world.run_out();
        let summary = world.task.summary();
        prop_assert!(summary.state.is_final(), "{summary:?}");
        prop_assert!(world.finished >= 1);
        for (node, row) in world.task.nodes() {
            prop_assert!(!row.stage.is_open() && !row.stage.in_flight(), "{node} has no end: {row:?}");
            prop_assert_eq!(world.feed.contains_key(node), row.stage == NodeStage::Silent);
            prop_assert_eq!(&world.rows[node], row, "what is kept is what is");
            let did = world.did[node];
            // What was called off was not begun, and what was begun has its outcome here.
            prop_assert!(row.stage != NodeStage::Withdrawn || matches!(did, Did::Nothing | Did::Declined));
            let done = did == Did::Ended { success: true };
            prop_assert!(!row.succeeded() || done);
        }
    }

    #[test]
    fn a_restart_between_any_two_moments_changes_nothing(
        spec in spec(),
        targets in 1u8..12,
        online in prop::collection::btree_set(0u8..12, 0..12),
        ops in prop::collection::vec((op(), any::<bool>()), 0..60),
    ) {
        let mut one = World::new(spec.clone(), targets, &online);
        let mut other = World::new(spec, targets, &online);
        for world in [&mut one, &mut other] {
            world.tell(TaskInput::Begin);
            world.settle(u32::MAX);
        }
        for (op, restart) in &ops {
            for world in [&mut one, &mut other] {
                act(world, op);
                world.settle(u32::MAX);
            }
            if *restart {
                other.restart();
                other.settle(u32::MAX);
            }
            prop_assert_eq!(&one.rows, &other.rows);
            prop_assert_eq!(&one.document.as_ref().unwrap().summary.state, &other.document.as_ref().unwrap().summary.state);
            prop_assert_eq!(&one.feed, &other.feed);
            prop_assert_eq!(one.task.summary(), other.task.summary());
            prop_assert_eq!(one.task.next_deadline(), other.task.next_deadline());
        }
    }
}

#[test]
fn the_id_of_an_action_names_task_and_node() {
    let id = action_id("t-1", &node(3));
    assert_eq!(parse_action_id(&id), Some(("t-1", node(3))));
    for bad in ["", "t-1", "t-1.", ".n-0", "t-1.n-xyz", &format!(".{}", node(1))] {
        assert_eq!(parse_action_id(bad), None, "{bad}");
    }
}
