//! OPS-2 and LIF-5: an action runs at most once, whatever dies when. `started` is durable
//! before the command; what was begun and has no terminal fact is `unknown`, and only that.
//!
//! The model: an agent over a disk of marks, a log and a replica; its process is killed
//! between any two durable steps, its marks are damaged, its log is acknowledged at any moment, and
//! the control plane may take an object away, cancel it, or offer it again from an old backup.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use model::Timestamp;
use model::work::{ActionEvent, ActionFact, ActionOutcome, ActionRefusal, Order, RefusalCode};
use node::work::{
    ActionMark, MAX_PARALLEL, RestoredWork, WorkEffect, WorkInput, WorkMachine, WorkPermit, WorkTime,
};
use proptest::prelude::*;

const SECS: i64 = 1000;
const EXPIRES: i64 = 600 * SECS;

/// What survives.
#[derive(Default)]
struct Disk {
    marks: BTreeMap<String, ActionMark>,
    log: Vec<ActionFact>,
    acked: usize,
    replica: Vec<(String, Order)>,
}

/// What the world saw, kept outside of the agent.
#[derive(Default)]
struct Seen {
    executed: BTreeMap<String, u32>,
    /// Executed, and the process died before its end was known.
    killed_within: BTreeSet<String>,
    /// A mark was written, and the process died before a terminal fact was.
    lost: BTreeSet<String>,
}

/// One step that is durable or is not.
type Durable = Box<dyn FnOnce(&mut World)>;

struct Agent {
    work: WorkMachine,
    running: BTreeSet<String>,
    pending: Vec<WorkEffect<()>>,
}

struct World {
    disk: Disk,
    seen: Seen,
    agent: Agent,
    now: i64,
    next: u32,
    /// Terminal facts that the control plane knows.
    known: BTreeMap<String, ActionOutcome>,
    issued: BTreeMap<String, Order>,
}

fn allows(work: &model::work::Work) -> Result<WorkPermit<()>, ActionRefusal> {
    match work {
        model::work::Work::Command { argv } if argv[0] == "/forbidden" => {
            Err(ActionRefusal { code: RefusalCode::NotDelegated, message: "no release delegates it".into() })
        }
        _ => Ok(WorkPermit { permitted: (), timeout_secs: 60 }),
    }
}

impl World {
    fn new() -> World {
        let at = WorkTime { now: Timestamp(0), trusted: Timestamp(0) };
        let (work, pending) = WorkMachine::new(RestoredWork::default(), at, &allows);
        World {
            disk: Disk::default(),
            seen: Seen::default(),
            agent: Agent { work, running: BTreeSet::new(), pending },
            now: 0,
            next: 0,
            known: BTreeMap::new(),
            issued: BTreeMap::new(),
        }
    }

    fn at(&self) -> WorkTime {
        WorkTime { now: Timestamp(self.now), trusted: Timestamp(self.now) }
    }

    fn tell(&mut self, input: WorkInput) {
        let at = self.at();
        let effects = self.agent.work.handle(input, at, &allows);
        let first = |effect: &WorkEffect<()>| !matches!(effect, WorkEffect::Execute { .. });
        assert!(effects.is_sorted_by_key(first), "what is executed waits for no write: {effects:?}");
        self.agent.pending.extend(effects);
        assert!(self.agent.work.active() <= MAX_PARALLEL);
    }

    /// Carries effects out, durable step by durable step; dies after `steps` of them.
    fn settle(&mut self, mut steps: u32) -> bool {
        while !self.agent.pending.is_empty() {
            let effect = self.agent.pending.remove(0);
            let mut writes: Vec<Durable> = Vec::new();
            let mut then = None;
            match effect {
                WorkEffect::Begin { id, mark } => {
                    let fact = ActionFact { id: id.clone(), event: ActionEvent::Started };
                    let marked = id.clone();
                    writes.push(Box::new(move |w| w.mark(marked, mark)));
                    writes.push(Box::new(move |w| w.disk.log.push(fact)));
                    then = Some(WorkInput::Begun { id });
                }
                WorkEffect::Execute { id, .. } => {
                    let started = ActionFact { id: id.clone(), event: ActionEvent::Started };
                    assert!(self.disk.log.contains(&started), "`started` is durable before the command");
                    assert!(self.disk.marks.contains_key(&id));
                    *self.seen.executed.entry(id.clone()).or_default() += 1;
                    assert_eq!(self.seen.executed[&id], 1, "{id} is executed twice");
                    self.agent.running.insert(id);
                }
                WorkEffect::Kill { id } => {
                    if self.agent.running.remove(&id) {
                        then =
                            Some(WorkInput::Ended { id, outcome: ActionOutcome::Cancelled, duration_ms: 1 });
                    }
                }
                WorkEffect::Say(fact) => writes.push(Box::new(move |w| w.disk.log.push(fact))),
                WorkEffect::End { fact, mark } => {
                    let id = fact.id.clone();
                    let waits = &self.disk.log[self.disk.acked..];
                    let said = waits.iter().any(|fact| is_end(fact) && fact.id == id);
                    // A control plane from an old backup may ask again for what expired and is
                    // remembered no more: that it is too late is said as often as it asks.
                    let late = matches!(
                        fact.event,
                        ActionEvent::Ended {
                            outcome: ActionOutcome::Expired | ActionOutcome::Refused { .. },
                            ..
                        }
                    );
                    assert!(!said || late, "the terminal fact of {id} is in the log, and is said again");
                    writes.push(Box::new(move |w| w.disk.log.push(fact)));
                    let marked = id.clone();
                    if let Some(mark) = mark {
                        writes.push(Box::new(move |w| w.mark(marked, mark)));
                    }
                    then = Some(WorkInput::Kept { id });
                }
                WorkEffect::Remember { id, mark } => {
                    writes.push(Box::new(move |w| w.mark(id, mark)));
                }
                WorkEffect::Forget { id } => {
                    writes.push(Box::new(move |w| {
                        w.disk.marks.remove(&id);
                    }));
                }
                WorkEffect::Drained | WorkEffect::CheckIn => {}
            }
            for write in writes {
                if steps == 0 {
                    return false;
                }
                steps -= 1;
                write(self);
            }
            if let Some(input) = then {
                self.tell(input);
            }
        }
        true
    }

    /// One in three marks is lost to damage.
    fn damage(&mut self, pick: u8) {
        let mut number = usize::from(pick);
        self.disk.marks.retain(|_, _| {
            number += 1;
            number % 3 > 0
        });
        let here: BTreeSet<String> = self.disk.replica.iter().map(|(id, _)| id.clone()).collect();
        // Of what is lost and not ordered at the moment nobody on the node knows any more: a control plane
        // from an old backup could have it run again.
        let marks = &self.disk.marks;
        self.issued.retain(|id, _| here.contains(id) || marks.contains_key(id));
        self.seen.lost.extend(here);
        self.restart(true);
    }

    /// The process is killed and started again.
    fn die(&mut self) {
        self.restart(false);
    }

    fn restart(&mut self, damaged: bool) {
        for id in std::mem::take(&mut self.agent.running) {
            self.seen.killed_within.insert(id);
        }
        let ended: BTreeSet<&str> =
            self.disk.log.iter().filter(|fact| is_end(fact)).map(|f| &*f.id).collect();
        for (id, mark) in &self.disk.marks {
            if mark.stage == node::work::ActionStage::Begun && !ended.contains(id.as_str()) {
                self.seen.lost.insert(id.clone());
            }
        }
        let orders = self.disk.replica.iter().map(|(id, order)| (id.clone(), Ok(order.clone()))).collect();
        let mut restored = RestoredWork { orders, ..RestoredWork::default() };
        let at = self.at();
        if damaged {
            restored.presume_begun(&mut self.disk.marks, at);
        }
        restored.marks = self.disk.marks.clone();
        self.disk.log[self.disk.acked..].iter().for_each(|fact| restored.notice(fact));
        let (work, pending) = WorkMachine::new(restored, at, &allows);
        self.agent = Agent { work, running: BTreeSet::new(), pending };
    }

    /// The control plane takes in the log up to a fact, and drops what is answered.
    fn take_in(&mut self, upto: usize) {
        let upto = self.disk.acked.max(upto.min(self.disk.log.len()));
        for fact in &self.disk.log[self.disk.acked..upto] {
            if let ActionEvent::Ended { outcome, .. } = &fact.event {
                // The first terminal fact counts.
                self.known.entry(fact.id.clone()).or_insert_with(|| outcome.clone());
            }
        }
        self.disk.acked = upto;
    }

    fn mark(&mut self, id: String, mark: ActionMark) {
        self.disk.marks.insert(id, mark);
    }

    fn put(&mut self, id: String, order: Order) {
        self.disk.replica.retain(|(name, _)| *name != id);
        self.disk.replica.push((id.clone(), order.clone()));
        self.tell(WorkInput::Put { id, order: Ok(order) });
    }

    fn remove(&mut self, id: String) {
        self.disk.replica.retain(|(name, _)| *name != id);
        self.tell(WorkInput::Removed { id });
    }

    fn any<'a, T>(&self, from: impl Iterator<Item = &'a T>, pick: u8) -> Option<T>
    where
        T: Clone + 'a,
    {
        let all: Vec<&T> = from.collect();
        all.get(usize::from(pick).checked_rem(all.len())?).map(|found| (*found).clone())
    }
}

fn is_end(fact: &ActionFact) -> bool {
    matches!(fact.event, ActionEvent::Ended { .. })
}

#[derive(Clone, Debug)]
enum Op {
    Order { forbidden: bool },
    Cancel(u8),
    Print(u8),
    Exit(u8),
    TakeIn(u8),
    Answered(u8),
    Backup(u8),
    Pass(u16),
    Die(u32),
    Damage(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => any::<bool>().prop_map(|f| Op::Order { forbidden: f }),
        1 => any::<u8>().prop_map(Op::Cancel),
        2 => any::<u8>().prop_map(Op::Print),
        4 => any::<u8>().prop_map(Op::Exit),
        3 => any::<u8>().prop_map(Op::TakeIn),
        3 => any::<u8>().prop_map(Op::Answered),
        1 => any::<u8>().prop_map(Op::Backup),
        2 => any::<u16>().prop_map(Op::Pass),
        3 => (0u32..8).prop_map(Op::Die),
        1 => any::<u8>().prop_map(Op::Damage),
    ]
}

fn act(world: &mut World, op: Op) -> u32 {
    match op {
        Op::Order { forbidden } => {
            let id = format!("t{}", world.next);
            world.next += 1;
            let program = if forbidden { "/forbidden" } else { "/bin/true" };
            let order = Order {
                task: "t".into(),
                work: model::work::Work::Command { argv: vec![program.into()] },
                timeout_secs: 60,
                expires: Timestamp(world.now + EXPIRES),
                cancel: false,
                release: None,
            };
            world.issued.insert(id.clone(), order.clone());
            world.put(id, order);
        }
        Op::Cancel(pick) => {
            if let Some((id, order)) = world.any(world.disk.replica.iter(), pick) {
                world.put(id, Order { cancel: true, ..order });
            }
        }
        Op::Print(pick) => {
            if let Some(id) = world.any(world.agent.running.iter(), pick) {
                let stream = model::work::OutputStream::Stdout;
                world.tell(WorkInput::Output { id, stream, bytes: b"line\n".to_vec() });
            }
        }
        Op::Exit(pick) => {
            if let Some(id) = world.any(world.agent.running.iter(), pick) {
                world.agent.running.remove(&id);
                let outcome = ActionOutcome::Exited { code: i32::from(pick % 2) };
                world.tell(WorkInput::Ended { id, outcome, duration_ms: 1 });
            }
        }
        Op::TakeIn(share) => {
            let waits = world.disk.log.len() - world.disk.acked;
            world.take_in(world.disk.acked + waits * usize::from(share) / 255);
        }
        Op::Answered(pick) => {
            if let Some(id) = world.any(world.known.keys(), pick) {
                world.remove(id);
            }
        }
        // The control plane forgot that it was answered, or asked at all.
        Op::Backup(pick) => {
            let issued: Vec<(String, Order)> = world.issued.clone().into_iter().collect();
            if let Some((id, order)) = world.any(issued.iter(), pick) {
                world.put(id, order);
            }
        }
        Op::Pass(secs) => {
            world.now += i64::from(secs % 400) * SECS;
            world.tell(WorkInput::Tick);
        }
        Op::Die(steps) => return steps,
        Op::Damage(pick) => world.damage(pick),
    }
    u32::MAX
}

fn check(world: &mut World) {
    // Let everything come to its end, without further deaths.
    world.settle(u32::MAX);
    while let Some(id) = world.agent.running.iter().next().cloned() {
        world.agent.running.remove(&id);
        world.tell(WorkInput::Ended { id, outcome: ActionOutcome::Exited { code: 0 }, duration_ms: 1 });
        world.settle(u32::MAX);
    }
    assert_eq!((world.agent.work.active(), world.agent.work.waiting()), (0, 0));
    world.take_in(usize::MAX);
    for (id, _) in &world.disk.replica {
        assert!(world.known.contains_key(id), "{id} is never answered");
    }
    for (id, outcome) in &world.known {
        let unknown = *outcome == ActionOutcome::Unknown;
        assert!(!unknown || world.seen.lost.contains(id), "{id} was not lost and is said to be unknown");
        assert!(
            !world.seen.killed_within.contains(id) || unknown,
            "{id} was lost and is said to be {outcome}"
        );
        let refused = matches!(outcome, ActionOutcome::Refused { .. });
        assert!(!(refused && world.seen.executed.contains_key(id)), "{id} was refused and executed");
    }
    // What is answered and gone is forgotten once it has expired.
    for id in world.known.keys().cloned().collect::<Vec<_>>() {
        world.remove(id);
    }
    world.now += 2 * EXPIRES;
    world.tell(WorkInput::Tick);
    world.settle(u32::MAX);
    assert!(world.disk.marks.is_empty() && world.agent.work.marks().is_empty(), "{:?}", world.disk.marks);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn nothing_runs_twice_and_unknown_is_exactly_what_was_lost(ops in prop::collection::vec(op(), 1..60)) {
        let mut world = World::new();
        for op in ops {
            let steps = act(&mut world, op);
            if !world.settle(steps) || steps != u32::MAX {
                world.die();
                // Half of the time it dies again while it recovers.
                if steps % 2 == 1 && !world.settle(1) {
                    world.die();
                }
            }
        }
        check(&mut world);
    }
}

/// One action, the agent killed after every single durable step of it.
#[test]
fn a_kill_between_any_two_steps_of_one_action() {
    let mut outcomes = BTreeMap::new();
    for steps in 0..6 {
        let mut world = World::new();
        act(&mut world, Op::Order { forbidden: false });
        let mut left = steps;
        let mut alive = world.settle(left.min(2));
        left = left.saturating_sub(2);
        if alive && !world.agent.running.is_empty() {
            act(&mut world, Op::Exit(0));
            alive = world.settle(left);
        }
        if !alive || steps == 5 {
            world.die();
        }
        world.settle(u32::MAX);
        let executed = world.seen.executed.get("t0").copied().unwrap_or(0);
        check(&mut world);
        outcomes.insert(steps, (executed, world.known["t0"].to_string()));
    }
    let unknown = ActionOutcome::Unknown.to_string();
    let wanted = [
        (0, (1, "exit 0".to_owned())),
        // The mark is there, and the fact is not: it may have run, for all that is known.
        (1, (0, unknown.clone())),
        // Both are there; it ran, and its end is not durable.
        (2, (1, unknown)),
        (3, (1, "exit 0".to_owned())),
        (4, (1, "exit 0".to_owned())),
        (5, (1, "exit 0".to_owned())),
    ];
    assert_eq!(outcomes, BTreeMap::from(wanted));
}
