//! Two links joined by a wire that loses nothing, with shells that work at once.
#![allow(dead_code)]

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use model::{Incarnation, Kind, ObjectKey, SectionKey, Stub, Timestamp};
use sync::admission::Permits;
use sync::durable::Content;
use sync::frame::Frame;
use sync::link::{ApplyItem, ItemOutcome, NotDurable, Note};
use sync::{
    Feed, Input, Link, LinkConfig, LoadedChange, Mode, Output, Replica, Role, SavedFeed, SavedReplica,
};

#[path = "signing.rs"]
pub mod signing;

pub const PRINCIPAL: usize = 0;
pub const AGENT: usize = 1;

pub struct Side {
    pub config: LinkConfig,
    pub feed: Feed,
    pub replica: Replica,
    pub link: Option<Link>,
    pub contents: BTreeMap<ObjectKey, Bytes>,
    /// Applied, in order.
    pub applied: Vec<ObjectKey>,
    pub frames: Vec<Frame>,
    pub notes: Vec<Note>,
    pub closed: Option<(&'static str, Option<u64>)>,
    pub outcome: fn(&ApplyItem, u32) -> ItemOutcome,
    pub tries: BTreeMap<ObjectKey, u32>,
    /// Applies wait here while this is set.
    pub slow: bool,
    pub held: VecDeque<Input>,
    pub incarnations: u32,
    /// A new incarnation is refused, for so long.
    pub refound_again: Option<Duration>,
    /// No permits are given while this is set.
    pub busy: bool,
    /// Permits that were wanted.
    pub wanted: Cell<u32>,
    /// Loads wait while this is set.
    pub full: bool,
    /// Nothing can be kept while this is set.
    pub disk_full: bool,
}

impl Side {
    /// What is kept of an object of the feed, proven where the feed is signed.
    fn loaded(&self, key: &ObjectKey) -> Option<LoadedChange> {
        let (rev, state) = self.feed.get(key)?;
        let content = |bytes: &Bytes| Content { bytes: bytes.clone(), trace: None, at: 1 };
        let content = state.stub().and_then(|_| self.contents.get(key).map(content));
        let proof = signing::proof(&self.config.proofs, self.feed.incarnation(), rev, key, state);
        Some(LoadedChange { rev, content, proof })
    }
}

/// Permits that are counted, and not given while the rest of the fleet is busy.
struct CountedPermits<'a> {
    busy: bool,
    wanted: &'a Cell<u32>,
}

impl Permits for CountedPermits<'_> {
    fn take(&self) -> Result<(), Duration> {
        self.wanted.set(self.wanted.get() + 1);
        if self.busy { Err(Duration::from_secs(1)) } else { Ok(()) }
    }

    fn give_back(&self) {}
}

pub struct Pair {
    pub now: Timestamp,
    pub sides: [Side; 2],
    pub wires: [VecDeque<Frame>; 2],
    /// Frames the wire drops on the way to a side.
    pub drops: fn(usize, &Frame) -> bool,
}

pub fn key(kind: &str, name: &str) -> ObjectKey {
    ObjectKey { section: SectionKey { kind: Kind::new(kind), namespace: "ns".into() }, name: name.into() }
}

/// A feed as it would be kept.
pub fn saved_feed(feed: &Feed) -> SavedFeed {
    SavedFeed {
        incarnation: feed.incarnation().clone(),
        head: feed.head(),
        compacted: feed.compacted(),
        changes: feed.changes(),
    }
}

/// A replica as it would be kept.
pub fn saved(replica: &Replica) -> SavedReplica {
    let object = |(key, stub): (&ObjectKey, &Stub)| {
        (key.clone(), stub.clone(), replica.get(key).map_or(0, |(_, rev)| rev))
    };
    SavedReplica { cursor: replica.cursor().cloned(), objects: replica.objects().map(object).collect() }
}

impl Pair {
    pub fn new(mode: Mode) -> Pair {
        let side = |role, incarnation: &str| Side {
            config: LinkConfig::new(
                role,
                mode,
                "i",
                vec![Kind::new("AppProject"), Kind::new("Application"), Kind::new("Repository")],
            ),
            feed: Feed::new(incarnation.parse::<Incarnation>().unwrap()),
            replica: Replica::new(),
            link: None,
            contents: BTreeMap::new(),
            applied: Vec::new(),
            frames: Vec::new(),
            notes: Vec::new(),
            closed: None,
            outcome: |_, _| ItemOutcome::Done,
            tries: BTreeMap::new(),
            slow: false,
            held: VecDeque::new(),
            incarnations: 0,
            refound_again: None,
            busy: false,
            wanted: Cell::new(0),
            full: false,
            disk_full: false,
        };
        Pair {
            now: Timestamp(0),
            sides: [side(Role::Principal, "p"), side(Role::Agent, "a")],
            wires: [VecDeque::new(), VecDeque::new()],
            drops: |_, _| false,
        }
    }

    pub fn put(&mut self, at: usize, key: &ObjectKey, uid: &str, content: &str) {
        let content = Bytes::from(content.to_owned());
        let stub = Stub { uid: uid.into(), ..Stub::of(&content) };
        let side = &mut self.sides[at];
        side.contents.insert(key.clone(), content);
        if let Some(change) = side.feed.planner().put(key, &stub).unwrap() {
            side.feed.commit(change).unwrap();
        }
        self.give(at, Input::Tick);
    }

    pub fn remove(&mut self, at: usize, key: &ObjectKey) {
        let side = &mut self.sides[at];
        if let Some(change) = side.feed.planner().remove(key) {
            side.feed.commit(change).unwrap();
        }
        self.give(at, Input::Tick);
    }

    pub fn connect(&mut self) {
        self.wires.iter_mut().for_each(VecDeque::clear);
        for side in &mut self.sides {
            side.link = Some(Link::new(side.config.clone(), self.now));
            (side.closed, side.frames) = (None, Vec::new());
        }
        self.give(AGENT, Input::Open);
        self.give(PRINCIPAL, Input::Open);
        self.run();
    }

    pub fn disconnect(&mut self) {
        for at in [PRINCIPAL, AGENT] {
            self.give(at, Input::Disconnected);
            self.sides[at].link = None;
            self.sides[at].held.clear();
        }
    }

    /// The process starts again: what it had in memory beyond the disk is gone.
    pub fn restart(&mut self, at: usize) {
        self.disconnect();
        let side = &mut self.sides[at];
        side.feed = Feed::restore(saved_feed(&side.feed));
        side.replica = Replica::restore(saved(&side.replica));
    }

    pub fn reconnect(&mut self) {
        self.disconnect();
        self.connect();
    }

    pub fn give(&mut self, at: usize, input: Input) {
        let side = &mut self.sides[at];
        let Some(link) = side.link.as_mut() else { return };
        let permits = CountedPermits { busy: side.busy, wanted: &side.wanted };
        let permits = (at == PRINCIPAL).then_some(&permits as &dyn Permits);
        let mut outs: VecDeque<Output> =
            link.handle(input, &mut side.feed, &mut side.replica, permits, self.now).into();
        while let Some(out) = outs.pop_front() {
            let side = &mut self.sides[at];
            match out {
                Output::Send(frame) => {
                    side.frames.push(frame.clone());
                    if !(self.drops)(1 - at, &frame) {
                        self.wires[1 - at].push_back(frame);
                    }
                }
                Output::Load(wants) => {
                    let loaded = wants.iter().map(|(key, _)| side.loaded(key)).collect();
                    side.held.push_front(Input::Loaded(loaded));
                }
                Output::Apply(_) if side.disk_full => {
                    side.held.push_back(Input::Applied(Err(NotDurable("no space".to_owned()))));
                }
                Output::Apply(batch) => {
                    let mut outcomes = Vec::new();
                    for item in &batch.items {
                        let tries = side.tries.entry(item.key.clone()).or_default();
                        *tries += 1;
                        let outcome = (side.outcome)(item, *tries);
                        if outcome == ItemOutcome::Done {
                            side.applied.push(item.key.clone());
                        }
                        outcomes.push(outcome);
                    }
                    side.held.push_back(Input::Applied(Ok(outcomes)));
                }
                Output::Reincarnate => {
                    side.incarnations += 1;
                    match side.refound_again {
                        Some(wait) => side.held.push_back(Input::Reincarnated(Err(wait))),
                        None => {
                            side.feed =
                                side.feed.reincarnate(format!("x{}", side.incarnations).parse().unwrap());
                            side.held.push_back(Input::Reincarnated(Ok(())));
                        }
                    }
                }
                // Tests end soon: what a code leaks does not count.
                Output::Close(why, _) => side.closed = Some((why.code.leak(), why.retry_after)),
                Output::Note(note) => side.notes.push(note),
                Output::Received(_) => {}
            }
        }
    }

    /// Until nothing is on its way.
    pub fn run(&mut self) {
        for _ in 0..1_000_000 {
            let mut busy = false;
            for at in [PRINCIPAL, AGENT] {
                let side = &mut self.sides[at];
                let waits = |input: &Input| match input {
                    Input::Applied(_) => side.slow,
                    Input::Loaded(_) => side.full,
                    _ => false,
                };
                let next = side.held.iter().position(|input| !waits(input));
                if let Some(input) = next.and_then(|next| side.held.remove(next)) {
                    self.give(at, input);
                    busy = true;
                }
                if self.sides[at].link.as_ref().is_some_and(Link::wants_input)
                    && let Some(frame) = self.wires[at].pop_front()
                {
                    self.give(at, Input::Frame(frame));
                    busy = true;
                }
            }
            if !busy {
                return;
            }
        }
        panic!("the pair does not come to rest");
    }

    pub fn pass(&mut self, secs: u64) {
        for _ in 0..secs {
            self.now = self.now.plus(Duration::from_secs(1));
            for at in [PRINCIPAL, AGENT] {
                self.give(at, Input::Tick);
                // A task that is told of an instant in the past asks again at once, for ever.
                let Side { link, closed, .. } = &self.sides[at];
                let due = link.as_ref().filter(|_| closed.is_none()).and_then(Link::next_deadline);
                assert!(due.is_none_or(|due| due > self.now), "what was due is done");
            }
            self.run();
        }
    }

    pub fn link(&self, at: usize) -> &Link {
        self.sides[at].link.as_ref().unwrap()
    }

    /// Roots of what one side authors and of what the other has of it.
    pub fn is_equal(&mut self, source: usize) -> bool {
        let root = self.sides[source].feed.root();
        self.sides[1 - source].replica.root() == root
    }
}
