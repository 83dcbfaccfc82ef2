//! Two sides with their disks, and the wire between them.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::condition::SetCondition;
use model::{Incarnation, Kind, ObjectKey, SectionKey, Timestamp};
use sync::FeedCursor;
use sync::admission::Permits;
use sync::durable::{Content, Write};
use sync::frame::{Frame, Refused, ResyncResponse};
use sync::link::{ApplyBatch, FeedProofs, ItemOutcome, Limits, LinkCommand, Note, Span};
use sync::{Feed, Input, Link, LinkConfig, LoadedChange, Mode, Output, Replica, Role, refusal};

#[path = "changes.rs"]
mod changes;
#[path = "disk.rs"]
mod disk;
#[path = "heal.rs"]
mod heal;
#[path = "history.rs"]
mod history;
#[path = "signing.rs"]
mod signing;

use disk::Disk;
pub use history::{Op, Rng, history};

const PRINCIPAL: usize = 0;
const AGENT: usize = 1;
const TOMBSTONES: usize = 4;
const WINDOW: usize = 5;
const BATCH: usize = 3;
const PARKED: usize = 2;

enum Job {
    Load(Vec<(ObjectKey, u64)>),
    Apply(Arc<ApplyBatch>),
    Applied(Vec<ItemOutcome>),
    Reincarnate,
}

struct Side {
    role: Role,
    disk: Disk,
    backup: Option<Disk>,
    feed: Feed,
    replica: Replica,
    link: Option<Link>,
    jobs: VecDeque<Job>,
    backend: BTreeMap<ObjectKey, Bytes>,
    /// It holds a permit.
    permit: Cell<bool>,
    walk: bool,
    last_ack: (u64, Option<FeedCursor>),
    last_sent: u64,
    known: Option<FeedCursor>,
    instance: u64,
}

pub struct World {
    now: Timestamp,
    mode: Mode,
    /// Transports end at any frame.
    cuts: bool,
    /// The principal proves its feed, and the agent takes nothing else.
    signed: bool,
    healed: bool,
    sides: [Side; 2],
    wires: [VecDeque<Frame>; 2],
    cut_until: Timestamp,
    uids: u64,
    incarnations: u64,
    delivered: BTreeMap<ObjectKey, Bytes>,
    permit_rng: Rng,
    pub reached: BTreeMap<&'static str, u64>,
}

/// The principal's permits, which it does not always get.
struct SomePermits<'a> {
    held: &'a Cell<bool>,
    denied: Option<Duration>,
    /// One was asked for, and given or not.
    asked: Cell<Option<bool>>,
}

impl SomePermits<'_> {
    fn new<'a>(held: &'a Cell<bool>, rng: Option<&mut Rng>) -> SomePermits<'a> {
        let denied = rng.and_then(|rng| rng.chance(30).then(|| Duration::from_secs(rng.below(5))));
        SomePermits { held, denied, asked: Cell::new(None) }
    }
}

impl Permits for SomePermits<'_> {
    fn take(&self) -> Result<(), Duration> {
        self.asked.set(Some(self.denied.is_none()));
        self.denied.map_or(Ok(()), Err)?;
        assert!(!self.held.replace(true), "one permit at a time");
        Ok(())
    }

    fn give_back(&self) {
        assert!(self.held.replace(false), "a permit is given back that was not held");
    }
}

fn incarnation(n: u64) -> Incarnation {
    format!("l{n}").parse().unwrap()
}

fn key(kind: &str, name: u64) -> ObjectKey {
    let section = SectionKey { kind: Kind::new(kind), namespace: "ns".into() };
    ObjectKey { section, name: format!("n{name}").into() }
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let mode = match rng.below(20) {
            0 => Mode::Off,
            1..=10 => Mode::Managed,
            _ => Mode::Autonomous,
        };
        let interop = rng.chance(25);
        let side = |at: usize, rng: &mut Rng| {
            let incarnation = incarnation(at as u64);
            let disk = Disk {
                incarnation: incarnation.clone(),
                head: 0,
                compacted: 0,
                ours: BTreeMap::new(),
                theirs: BTreeMap::new(),
                cursor: None,
            };
            Side {
                role: if at == PRINCIPAL { Role::Principal } else { Role::Agent },
                disk,
                backup: None,
                feed: Feed::new(incarnation).keeping_tombstones(TOMBSTONES),
                replica: Replica::new(),
                link: None,
                jobs: VecDeque::new(),
                backend: BTreeMap::new(),
                permit: Cell::new(false),
                walk: !interop || rng.chance(40),
                last_ack: (0, None),
                last_sent: 0,
                known: None,
                instance: 0,
            }
        };
        let mut sides = [side(0, &mut rng), side(1, &mut rng)];
        if interop && sides[0].walk {
            sides[1].walk = false;
        }
        let cuts = rng.chance(50);
        let mut world = World {
            now: Timestamp(1_000_000),
            mode,
            cuts,
            signed: !interop && seed % 4 == 1,
            healed: false,
            sides,
            wires: [VecDeque::new(), VecDeque::new()],
            cut_until: Timestamp(0),
            uids: 0,
            incarnations: 2,
            delivered: BTreeMap::new(),
            permit_rng: Rng::new(seed),
            reached: BTreeMap::new(),
        };
        world.reach(match mode {
            Mode::Off => "off",
            Mode::Managed => "managed",
            Mode::Autonomous => "autonomous",
        });
        world.reach(if interop { "interop" } else { "walk" });
        world.reach(if world.signed { "signed" } else { "unsigned" });
        world
    }

    fn reach(&mut self, what: &'static str) {
        self.reach_n(what, 1);
    }

    fn reach_n(&mut self, what: &'static str, n: u64) {
        if n > 0 {
            *self.reached.entry(what).or_default() += n;
        }
    }

    pub fn step(&mut self, op: &Op) {
        match *op {
            Op::Change(side, roll) => self.change(side, &mut Rng::new(roll)),
            Op::Local(side, roll) => self.local_edit(side, &mut Rng::new(roll)),
            Op::Deliver(to, roll) => {
                let mut rng = Rng::new(roll);
                self.redial(&mut rng);
                for _ in 0..=rng.below(10) {
                    self.deliver(to, &mut rng);
                }
            }
            Op::Work(side, roll) => {
                let mut rng = Rng::new(roll);
                for _ in 0..=rng.below(6) {
                    self.work(side, &mut rng);
                }
            }
            Op::Time(ms) => {
                self.now = self.now.plus(Duration::from_millis(ms));
                self.tick();
            }
            Op::Restart(side) => self.restart(side),
            Op::Cut(roll) => {
                self.reach("partition");
                if roll.is_multiple_of(2) {
                    self.disconnect(&mut Rng::new(roll));
                }
                self.cut_until = self.now.plus(Duration::from_millis(roll % 40_000));
            }
            Op::Connect(roll) => self.connect(&mut Rng::new(roll)),
            Op::Backup(side) => self.sides[side].backup = Some(self.sides[side].disk.clone()),
            Op::Restore(side) => {
                if let Some(disk) = self.sides[side].backup.clone() {
                    self.reach("backup restored");
                    self.sides[side].disk = disk;
                    self.restart(side);
                }
            }
            Op::Approve(side) => self.give(side, Input::Command(LinkCommand::Approve)),
            Op::Shutdown(side) => {
                self.reach("shutdown");
                self.give(side, Input::Command(LinkCommand::Shutdown));
            }
        }
    }

    // ------------------------------------------------------------------ the wire

    fn connect(&mut self, rng: &mut Rng) {
        if self.now < self.cut_until || self.sides.iter().any(|side| side.link.is_some()) {
            return;
        }
        self.wires.iter_mut().for_each(VecDeque::clear);
        for at in [AGENT, PRINCIPAL] {
            let side = &mut self.sides[at];
            let kinds = ["Proj", "App"].iter().map(|kind| Kind::new(kind)).collect();
            let mut config = LinkConfig::new(side.role, self.mode, &format!("i{}", side.instance), kinds);
            config.capabilities.trie_resync = side.walk;
            config.max_delete_percent = 40;
            if self.signed {
                config.proofs = if at == PRINCIPAL { signing::made(1) } else { signing::required(1) };
            }
            config.limits = Arc::new(Limits {
                window_events: WINDOW,
                window_bytes: 40,
                batch_events: BATCH,
                batch_bytes: 20,
                load_events: 2,
                pending_retries: PARKED,
                refetches: 3,
                shown_after: 2,
                requested: 2,
                ..Limits::default()
            });
            if rng.chance(20) {
                Arc::make_mut(&mut config.limits).ack_within = Duration::from_secs(4);
            }
            if rng.chance(20) {
                config.span = Span::Exchange { after: side.known.clone().map(Box::new) };
                if side.known.is_some() {
                    self.reach("polls ahead");
                }
            }
            let side = &mut self.sides[at];
            side.link = Some(Link::new(config, self.now));
            (side.last_ack, side.last_sent) = ((0, None), 0);
        }
        self.give(AGENT, Input::Open);
        self.give(PRINCIPAL, Input::Open);
    }

    /// An agent dials again by itself.
    fn redial(&mut self, rng: &mut Rng) {
        if self.sides.iter().all(|side| side.link.is_none()) && rng.chance(50) {
            self.connect(rng);
        }
    }

    fn disconnect(&mut self, rng: &mut Rng) {
        self.wires.iter_mut().for_each(VecDeque::clear);
        for at in [PRINCIPAL, AGENT] {
            self.hang_up(at, rng);
        }
    }

    /// One side's transport ends: batches under way come to their end, or the replica is read
    /// again.
    fn hang_up(&mut self, at: usize, rng: &mut Rng) {
        if self.sides[at].link.is_none() {
            return;
        }
        self.give(at, Input::Disconnected);
        let finish = rng.chance(60);
        while finish && let Some(job) = self.sides[at].jobs.pop_front() {
            if matches!(job, Job::Apply(_) | Job::Applied(..)) {
                self.sides[at].jobs.push_front(job);
                self.work(at, rng);
            }
        }
        let Some(link) = self.sides[at].link.take() else { return };
        self.count(&link);
        let side = &mut self.sides[at];
        side.known = link.resumes_after(&side.feed);
        let unsure = !side.jobs.is_empty();
        side.jobs.clear();
        assert!(!side.permit.get(), "a permit was not returned");
        if unsure {
            side.replica = side.disk.replica();
        }
    }

    fn count(&mut self, link: &Link) {
        let c = *link.counters();
        for (what, n) in [
            ("duplicates", c.duplicates),
            ("coalesced", c.coalesced),
            ("superseded", c.superseded),
            ("resyncs", c.resyncs),
            ("resyncs served", c.resyncs_served),
            ("walk objects", c.resync_objects),
            ("orphans", c.orphans),
            ("marks equal", c.checkpoints_equal),
            ("marks different", c.checkpoints_different),
            ("refused there", c.refused_there),
            ("refused here", c.refused_here),
            ("events", c.received),
            ("events sent", c.sent),
            ("acks", c.acks_sent),
        ] {
            self.reach_n(what, n);
        }
    }

    fn restart(&mut self, at: usize) {
        self.reach("restart");
        let mut rng = Rng::new(at as u64);
        let side = &mut self.sides[at];
        let applied = side.jobs.iter().any(|job| matches!(job, Job::Applied(..)));
        side.jobs.clear();
        if let Some(mut link) = side.link.take() {
            // The process dies; what a permit is worth dies with its server or is returned.
            let permits = SomePermits::new(&side.permit, None);
            let permits = (at == PRINCIPAL).then_some(&permits as &dyn Permits);
            link.handle(Input::Disconnected, &mut side.feed, &mut side.replica, permits, self.now);
            side.permit.set(false);
            self.count(&link);
        }
        let side = &mut self.sides[at];
        side.instance += 1;
        side.known = None;
        side.feed = side.disk.feed();
        side.replica = side.disk.replica();
        side.backend = side
            .disk
            .theirs
            .iter()
            .map(|(key, (.., content))| (key.clone(), content.bytes.clone()))
            .collect();
        if applied {
            self.reach("crash before applied");
        }
        self.wires.iter_mut().for_each(VecDeque::clear);
        self.hang_up(1 - at, &mut rng);
    }

    fn deliver(&mut self, to: usize, rng: &mut Rng) {
        if self.sides[to].link.is_none() || self.now < self.cut_until {
            return;
        }
        if self.sides[to].link.as_ref().is_some_and(|link| !link.wants_input()) {
            self.reach("held back");
            return;
        }
        let Some(frame) = self.wires[to].pop_front() else { return };
        // A transport delivers in order or ends: at any frame, before or behind it.
        let cut = self.cuts && !self.healed && rng.chance(4);
        if !cut || rng.chance(50) {
            self.give(to, Input::Frame(frame));
        }
        if cut {
            self.reach("cut");
            self.disconnect(rng);
        }
    }

    fn give(&mut self, at: usize, input: Input) {
        let side = &mut self.sides[at];
        let Some(link) = side.link.as_mut() else { return };
        let permits = SomePermits::new(&side.permit, (!self.healed).then_some(&mut self.permit_rng));
        let of_principal = (at == PRINCIPAL).then_some(&permits as &dyn Permits);
        let outs = link.handle(input, &mut side.feed, &mut side.replica, of_principal, self.now);
        let asked = permits.asked.get();
        if let Some(given) = asked {
            self.reach(if given { "permit wanted" } else { "permit denied" });
        }
        let side = &mut self.sides[at];
        let Some(link) = side.link.as_mut() else { return };
        assert!(link.in_flight() <= WINDOW, "window");
        assert!(link.under_way() <= PARKED + 4 * WINDOW + 16, "under way: {}", link.under_way());
        let mut close = false;
        for out in outs {
            match out {
                Output::Send(frame) => self.sent(at, frame),
                Output::Load(wants) => self.sides[at].jobs.push_back(Job::Load(wants)),
                Output::Apply(batch) => {
                    assert!(batch.items.len() <= BATCH, "batch");
                    self.sides[at].jobs.push_back(Job::Apply(batch));
                }
                Output::Reincarnate => self.sides[at].jobs.push_back(Job::Reincarnate),
                Output::Close(why, _) => {
                    self.reach(match why.code.as_str() {
                        "no-hello" => "closed no-hello",
                        "silence" => "closed silence",
                        "no-acknowledgement" => "closed no-acknowledgement",
                        "no-answer" => "closed no-answer",
                        "went-away" => "closed went-away",
                        "reincarnated" => "closed reincarnated",
                        "shutdown" => "closed shutdown",
                        "cursor" => "closed cursor",
                        "no-request" => "closed no-request",
                        other => panic!("closed: {other}: {}", why.message),
                    });
                    close = true;
                }
                Output::Note(note) => self.noted(note),
                Output::Received(_) => {}
            }
        }
        if close {
            self.hang_up(at, &mut Rng::new(self.now.0 as u64));
        }
    }

    fn noted(&mut self, note: Note) {
        match note {
            Note::Resynced { kept, .. } if kept > 0 => self.reach("kept orphans"),
            Note::RefusedHere(Refused { code, .. }) if code == refusal::FAILS => self.reach("let go"),
            _ => {}
        }
    }

    fn sent(&mut self, at: usize, frame: Frame) {
        match &frame {
            Frame::Ack(ack) => {
                let side = &mut self.sides[at];
                assert!(
                    ack.seq >= side.last_ack.0,
                    "acknowledgements go back: {} after {}",
                    ack.seq,
                    side.last_ack.0
                );
                if let (Some(new), Some(old)) = (&ack.cursor, &side.last_ack.1)
                    && new.incarnation == old.incarnation
                {
                    assert!(new == old || new.is_ahead_of(old), "the cursor goes back");
                }
                let later = side.jobs.iter().any(|job| matches!(job, Job::Applied(..)));
                assert!(later || ack.cursor == side.disk.cursor, "an acknowledgement of what is not durable");
                side.last_ack = (ack.seq, ack.cursor.clone());
            }
            Frame::Event(event) if event.seq > 0 => {
                let side = &mut self.sides[at];
                side.last_sent += 1;
                assert_eq!(event.seq, side.last_sent, "numbers have no gap");
            }
            Frame::ResyncResponse(tell) if matches!(**tell, ResyncResponse::Wait(_)) => {
                self.reach("tell wait")
            }
            _ => {}
        }
        self.wires[1 - at].push_back(frame);
    }

    fn reincarnate(&mut self, at: usize) {
        self.reach("reincarnated");
        self.incarnations += 1;
        let side = &mut self.sides[at];
        let new = side.feed.reincarnate(incarnation(self.incarnations));
        let contents: BTreeMap<ObjectKey, Option<Content>> =
            side.disk.ours.iter().map(|(key, (_, content))| (key.clone(), content.clone())).collect();
        let ours = new.changes();
        let ours = ours.into_iter().map(|change| {
            let content = contents[&change.key].clone();
            (change, content)
        });
        side.disk.write(Write {
            begin: Some(new.incarnation().clone()),
            feed: ours.collect(),
            ..Write::default()
        });
        side.feed = new;
    }

    // ------------------------------------------------------------------ the shell's work

    fn work(&mut self, at: usize, rng: &mut Rng) {
        let Some(job) = self.sides[at].jobs.pop_front() else { return };
        match job {
            Job::Load(wants) => {
                let proofs =
                    if self.signed && at == PRINCIPAL { signing::made(1) } else { FeedProofs::Unsigned };
                let Disk { ours, incarnation, .. } = &self.sides[at].disk;
                let loaded = |(key, _): &(ObjectKey, u64)| {
                    let (change, content) = ours.get(key)?;
                    let proof = signing::proof(&proofs, incarnation, change.rev, key, &change.state);
                    Some(LoadedChange { rev: change.rev, content: content.clone(), proof })
                };
                let loaded = wants.iter().map(loaded).collect();
                self.give(at, Input::Loaded(loaded));
            }
            Job::Apply(batch) => {
                let outcomes: Vec<ItemOutcome> =
                    batch.items.iter().map(|item| self.apply(item, rng)).collect();
                let write = batch.write(&outcomes);
                for (key, new) in &write.replica {
                    match new {
                        Some((.., content)) => {
                            if at == AGENT && key.section.kind.as_str() == "Action" {
                                self.delivered.insert(key.clone(), content.bytes.clone());
                            }
                            self.sides[at].backend.insert(key.clone(), content.bytes.clone());
                        }
                        None => drop(self.sides[at].backend.remove(key)),
                    }
                }
                self.sides[at].disk.write(write);
                self.sides[at].jobs.push_front(Job::Applied(outcomes));
            }
            Job::Applied(outcomes) => self.give(at, Input::Applied(Ok(outcomes))),
            Job::Reincarnate => {
                self.reincarnate(at);
                self.give(at, Input::Reincarnated(Ok(())));
            }
        }
    }

    fn apply(&mut self, item: &sync::link::ApplyItem, rng: &mut Rng) -> ItemOutcome {
        if let sync::frame::Op::Put { content, .. } = &item.change
            && content.starts_with(b"!")
        {
            self.reach("permanent");
            return ItemOutcome::Permanent {
                code: "cursed".to_owned(),
                message: "the content is cursed".to_owned(),
            };
        }
        if self.healed {
            return ItemOutcome::Done;
        }
        match rng.below(100) {
            0..=5 => {
                self.reach("temporary");
                ItemOutcome::Temporary("busy".to_owned())
            }
            6..=9 => {
                self.reach("recoverable");
                ItemOutcome::Recoverable("conflict".to_owned())
            }
            _ => ItemOutcome::Done,
        }
    }

    fn tick(&mut self) {
        for at in [PRINCIPAL, AGENT] {
            let due = self.sides[at].link.as_ref().and_then(Link::next_deadline);
            if due.is_some_and(|due| due <= self.now) {
                self.give(at, Input::Tick);
            }
        }
        for at in [PRINCIPAL, AGENT] {
            let side = &self.sides[at];
            let Some(link) = &side.link else { continue };
            let what = match link.replica_condition(&side.replica) {
                SetCondition::Connecting => "connecting",
                SetCondition::InSync => "in sync",
                SetCondition::Behind(_) => "behind",
                SetCondition::Comparing => "resyncing",
                SetCondition::OutOfSync(_) => "diverged",
            };
            self.reach(what);
        }
    }
}
