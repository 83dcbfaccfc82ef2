//! The sending half of a link: events of the own feed through a bounded window.
//!
//! ```text
//!            hello, or an exchange's assumption: can go on
//!   Unknown ------------------> Open ---------+
//!      |                         ^            | tombstones are forgotten that are needed
//!      | hello: cannot           | acknowledged cursor, or Done{from}
//!      +--------------> Stuck ---+ <----------+
//!      | hello: ahead of the feed (also from Open)
//!      +--------------> Reincarnate, and the link ends
//! ```
//!
//! Changes are sent in *passes*: all that the feed changed up to some head, puts kind by kind
//! in the declared order, then deletes in the opposite order. Every event says where the other
//! side stands once it is durable, so that a link that is cut costs what was in flight. A change
//! that is overtaken during its pass is left to the next one. When deletes that the other side
//! lacks are forgotten, the flow is stuck.
//!
//! Invariants: events are numbered 1, 2, 3 over the whole link; at most a window of them is not
//! acknowledged; while events flow nothing is sent twice; one load of contents is under way, for events
//! or for answers of a resync ([`super::serve`]), in turn while both wait; a peer that acknowledges
//! nothing for [`super::Limits::ack_within`] while events are in flight loses the link.

use std::collections::VecDeque;
use std::time::Duration;

use crate::cursor::{FeedCursor, KindOrder, PassPosition, Position};
use model::sort::SortCompactly;
use model::{Kind, ObjectKey, Timestamp};

use super::{Cx, Link};
use crate::durable::LoadedChange;
use crate::feed::{Feed, ObjectState, Resume};
use crate::frame::{Ack, Checkpoint, Event, Frame, Interop, Op};
use crate::link::types::{Limits, Note, Output};

/// The least time between two checkpoints while changes are acknowledged in between.
const CHECKPOINT_AFTER: Duration = Duration::from_secs(30);

/// Whether events flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Flow {
    /// Where the other side stands is not known.
    #[default]
    Unknown,
    /// They do.
    Open,
    /// The other side cannot go on by changes; it is to resync.
    Stuck,
}

/// One way through the changes of the feed up to some head.
#[derive(Debug)]
struct Pass {
    from: u64,
    to: u64,
    stages: Vec<PassStage>,
    stage: usize,
    at: u64,
    sent: u64,
}

/// Changes of one rank: of a declared kind, of its statuses, or of all other kinds.
#[derive(Debug)]
struct PassStage {
    rank: u32,
    kinds: Vec<Kind>,
    live: bool,
}

impl Pass {
    fn begin(feed: &Feed, from: u64, to: u64, declared: &[Kind]) -> Pass {
        let mut puts: Vec<(u32, &Kind)> = feed.kinds().map(|kind| (put_rank(kind, declared), kind)).collect();
        puts.sort_compactly();
        let mut stages: Vec<PassStage> = Vec::new();
        for (rank, kind) in puts {
            match stages.last_mut().filter(|stage| stage.rank == rank) {
                Some(stage) => stage.kinds.push(kind.clone()),
                None => stages.push(PassStage { rank, kinds: vec![kind.clone()], live: true }),
            }
        }
        let last = 2 * put_ranks(declared) - 1;
        let gone = |stage: &PassStage| PassStage {
            rank: last - stage.rank,
            kinds: stage.kinds.clone(),
            live: false,
        };
        let deletes: Vec<PassStage> = stages.iter().rev().map(gone).collect();
        stages.extend(deletes);
        Pass { from, to, stages, stage: 0, at: from, sent: 0 }
    }

    /// Goes on behind a position.
    fn skip_to(&mut self, position: &PassPosition) {
        self.stage = self.stages.partition_point(|stage| stage.rank < position.rank);
        if self.stages.get(self.stage).is_some_and(|stage| stage.rank == position.rank) {
            self.at = position.revision.max(self.from);
        }
    }

    /// The next change, without taking it; moves over stages that are through.
    fn peek<'f>(&mut self, feed: &'f Feed) -> Option<(u64, &'f ObjectKey)> {
        while let Some(stage) = self.stages.get(self.stage) {
            let next = |kind| feed.by_kind_after(kind, stage.live, self.at, self.to);
            if let Some(first) = stage.kinds.iter().filter_map(next).min_by_key(|(rev, _)| *rev) {
                return Some(first);
            }
            self.stage += 1;
            self.at = self.from;
        }
        None
    }

    /// Takes the change that was looked at; where a replica stands once it is durable.
    fn take(&mut self, rev: u64, feed: &Feed, order: KindOrder) -> Position {
        let rank = self.stages.get(self.stage).map_or(0, |stage| stage.rank);
        self.at = rev;
        self.sent += 1;
        if self.peek(feed).is_none() {
            return Position::at(self.to);
        }
        Position { revision: self.from, pass: Some(PassPosition { to: self.to, rank, revision: rev, order }) }
    }
}

/// How many ranks puts have.
fn put_ranks(declared: &[Kind]) -> u32 {
    u32::try_from(2 * declared.len() + 1).unwrap_or(u32::MAX / 4)
}

/// Whether a rank is one of deletes.
pub(super) fn is_delete_rank(rank: u32, declared: &[Kind]) -> bool {
    rank >= put_ranks(declared)
}

/// The rank of puts of a kind: declared kinds in their order, their statuses, all others.
fn put_rank(kind: &Kind, declared: &[Kind]) -> u32 {
    let status = crate::object::kind_of_status(kind);
    let index = |kind: &Kind| declared.iter().position(|one| one == kind);
    let of_status = || status.as_ref().and_then(index).map(|at| at + declared.len());
    let rank = index(kind).or_else(of_status).and_then(|at| u32::try_from(at).ok());
    rank.unwrap_or(put_ranks(declared) - 1)
}

/// The position of an object in the order of application.
pub(super) fn order_of(key: &ObjectKey, declared: &[Kind]) -> (u32, Kind) {
    (put_rank(&key.section.kind, declared), key.section.kind.clone())
}

/// An event before it has its content.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub key: ObjectKey,
    pub rev: u64,
    pub state: ObjectState,
    pub purpose: Purpose,
}

/// What a planned event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A change of the feed; fields as of [`Event`] and [`Op::Put`].
    Change { upto: Position, created: bool },
    /// The answer to a request.
    Answer,
    /// Nothing any more.
    None,
}

/// The sending half.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub flow: Flow,
    /// The number of the last event sent.
    seq: u64,
    /// Everything up to here was sent, or passed over by what comes later.
    done: u64,
    /// Where the other side stood in a pass, until that is begun again there.
    resumes: Option<PassPosition>,
    /// The other side needs all deletes after this.
    deletes_after: u64,
    pass: Option<Pass>,
    /// Events in flight: number, bytes of content.
    window: VecDeque<(u64, u64)>,
    window_bytes: u64,
    /// The other side's durable cursor in our feed.
    pub acked: Option<FeedCursor>,
    /// The other side compared this feed on this link: its hello has the root, or it acknowledged
    /// everything after a checkpoint.
    pub compared: bool,
    /// Since when an acknowledgement is waited for; meaningless with an empty window.
    waits_since: Timestamp,
    /// What the shell was asked for contents of. The next ones are asked for only when they have come.
    pub load: Option<Vec<Planned>>,
    /// Changes were loaded last: answers of a resync that wait are loaded next.
    pub answers_next: bool,
    /// When the last checkpoint was sent; `None`: one is wanted.
    checkpoint_sent: Option<Timestamp>,
    sent_since_checkpoint: bool,
    /// How many of our objects the other side could not take.
    pub refused_there: Option<u64>,
}

impl Outbox {
    /// Sends the changes after a position from now on.
    fn go_on_after(&mut self, position: Position) {
        self.stop(Flow::Open);
        (self.done, self.checkpoint_sent) = (position.revision, None);
        self.deletes_after = position.needs_deletes_after();
        self.resumes = position.pass;
    }

    /// What was planned is not sent.
    fn stop(&mut self, flow: Flow) {
        (self.flow, self.pass) = (flow, None);
        let planned = self.load.iter_mut().flatten().filter(|one| one.purpose != Purpose::Answer);
        planned.for_each(|one| one.purpose = Purpose::None);
    }

    pub fn in_flight(&self) -> usize {
        self.window.len()
    }

    /// Everything was sent, and is acknowledged.
    pub fn is_fully_acknowledged(&self, feed: &Feed) -> bool {
        self.flow == Flow::Open && self.done == feed.head() && self.is_quiet()
    }

    /// Since when an acknowledgement is waited for.
    pub fn waits_since(&self) -> Option<Timestamp> {
        (!self.window.is_empty()).then_some(self.waits_since)
    }

    /// Nothing is in flight, nor asked of the shell.
    pub fn is_quiet(&self) -> bool {
        self.window.is_empty() && self.load.is_none()
    }

    /// When the next checkpoint is due after one that was sent.
    pub fn checkpoint_due(&self, limits: &Limits) -> Option<Timestamp> {
        let changed = self.sent_since_checkpoint && self.window.is_empty();
        let after = if changed { CHECKPOINT_AFTER } else { limits.periodic };
        self.checkpoint_sent.filter(|_| self.flow == Flow::Open).map(|at| at.plus(after))
    }
}

impl Link {
    /// The other side says where it stands in our feed.
    pub(super) fn resume(&mut self, have: Option<(FeedCursor, bool)>, cx: &mut Cx<'_>) {
        if self.reincarnating {
            return;
        }
        let resume = match &have {
            None => Resume::From(Position::default()),
            Some((cursor, empty)) => match cx.feed.can_resume(cursor) {
                // Who has nothing needs no tombstones. Only numbers must not be given out twice.
                Resume::From(_) | Resume::Behind if *empty => Resume::From(Position::default()),
                resume => resume,
            },
        };
        let ahead = resume == Resume::AheadOfHead;
        self.out.acked = have.filter(|(_, empty)| !empty && !ahead).map(|(cursor, _)| cursor);
        match resume {
            Resume::From(position) => {
                self.out.go_on_after(position);
                if self.out.acked.is_none() {
                    self.out.deletes_after = cx.feed.head();
                }
            }
            Resume::Behind => self.stuck(cx),
            Resume::AheadOfHead => {
                // With the new incarnation the link goes away.
                self.reincarnating = true;
                self.out.stop(Flow::Unknown);
                cx.out.push(Output::Reincarnate);
            }
        }
    }

    /// Changes alone do not lead on: the other side compares the root, and resyncs.
    fn stuck(&mut self, cx: &mut Cx<'_>) {
        self.out.stop(Flow::Stuck);
        if !self.both.trie_resync {
            cx.send(Frame::Interop(Box::new(Interop::RequestResync)));
        }
        self.send_checkpoint(cx);
    }

    fn send_checkpoint(&mut self, cx: &mut Cx<'_>) {
        let (seq, cursor, root) = (self.out.seq, cx.feed.cursor(), cx.feed.root());
        cx.send(Frame::Checkpoint(Checkpoint { seq, cursor, root }));
        self.out.checkpoint_sent = Some(cx.now);
        self.out.sent_since_checkpoint = false;
    }

    /// The other side's resync is done: the changes after `from` follow, if they do not already, and
    /// a checkpoint says whether it helped.
    pub(super) fn resync_done(&mut self, from: &FeedCursor, cx: &mut Cx<'_>) {
        (self.server.served, self.out.checkpoint_sent) = (None, None);
        cx.feed.freeze(false);
        if self.out.flow != Flow::Stuck {
            return;
        }
        match cx.feed.can_resume(from) {
            Resume::From(position) => self.out.go_on_after(position),
            _ => self.stuck(cx),
        }
    }

    /// Sends what may be sent now.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_>) {
        if self.closing || !self.has_met() && self.out.flow != Flow::Open {
            return;
        }
        if self.out.flow == Flow::Open && self.out.deletes_after < cx.feed.compacted() {
            // Deletes that the other side has not are forgotten.
            self.stuck(cx);
        }
        while self.out.flow == Flow::Open && self.out.load.is_none() {
            let planned = self.plan(cx);
            if planned.is_empty() {
                break;
            }
            self.load(planned, cx);
        }
        self.send_checkpoint_when_due(cx);
    }

    fn plan(&mut self, cx: &mut Cx<'_>) -> Vec<Planned> {
        let limits = self.config.limits.clone();
        let mut planned = Vec::new();
        let mut bytes = self.out.window_bytes;
        loop {
            let in_flight = self.out.window.len() + planned.len();
            if in_flight >= limits.window_events || planned.len() >= limits.load_events {
                return planned;
            }
            if self.out.pass.is_none() {
                if cx.feed.head() <= self.out.done {
                    return planned;
                }
                self.begin_pass(cx.feed);
            }
            let Some(pass) = self.out.pass.as_mut() else { return planned };
            let Some((rev, key)) = pass.peek(cx.feed) else {
                self.counters.coalesced += (pass.to - pass.from).saturating_sub(pass.sent);
                self.out.done = pass.to;
                self.out.deletes_after = self.out.deletes_after.max(pass.to);
                self.out.pass = None;
                continue;
            };
            let Some((_, state)) = cx.feed.get(key) else { return planned };
            let size = state.size().unwrap_or(0);
            if bytes.saturating_add(size) > limits.window_bytes && in_flight > 0 {
                return planned;
            }
            bytes = bytes.saturating_add(size);
            let created = matches!(state, ObjectState::Live { born, .. } if *born > pass.from);
            let (key, state) = (key.clone(), state.clone());
            let purpose = Purpose::Change { upto: pass.take(rev, cx.feed, self.order), created };
            planned.push(Planned { key, rev, state, purpose });
        }
    }

    /// Begins a pass, or the one again in which the other side stands.
    fn begin_pass(&mut self, feed: &Feed) {
        let kinds = &self.config.kinds;
        let position = self.out.resumes.take().filter(|position| position.order == self.order);
        let to = position.map_or(feed.head(), |position| position.to);
        let mut pass = Pass::begin(feed, self.out.done, to, kinds);
        if let Some(position) = position {
            pass.skip_to(&position);
        }
        self.out.pass = Some(pass);
    }

    /// Asks the shell for contents, if any is needed.
    pub(super) fn load(&mut self, planned: Vec<Planned>, cx: &mut Cx<'_>) {
        let signed = self.signs();
        let loaded = planned.iter().filter(|one| signed || one.state.stub().is_some());
        let wants: Vec<_> = loaded.map(|one| (one.key.clone(), one.rev)).collect();
        self.out.answers_next = !planned.iter().any(|one| one.purpose == Purpose::Answer);
        self.out.load = Some(planned);
        if wants.is_empty() {
            self.loaded(Vec::new(), cx);
        } else {
            cx.out.push(Output::Load(wants));
        }
    }

    /// Contents came: sends what is still the newest; what overtook another, a later load brings.
    pub(super) fn loaded(&mut self, loaded: Vec<Option<LoadedChange>>, cx: &mut Cx<'_>) {
        let (signed, mut loaded) = (self.signs(), loaded.into_iter());
        for Planned { key, rev, state, purpose } in self.out.load.take().unwrap_or_default() {
            let asked = signed || state.stub().is_some();
            let LoadedChange { rev: found, content, proof } =
                Some(()).filter(|()| asked).and_then(|()| loaded.next().flatten()).unwrap_or_default();
            let (upto, created) = match purpose {
                Purpose::Change { upto, created } => (upto, created),
                Purpose::Answer => (Position::default(), false),
                Purpose::None => continue,
            };
            // The store may have what memory forgot: its proof is of that change.
            let proof = proof.filter(|_| found == rev);
            // And it may be ahead for a moment: what is newer there follows.
            if found > rev || cx.feed.get(&key).map_or(state.stub().is_some(), |(now, _)| now != rev) {
                self.counters.coalesced += 1;
                continue;
            }
            let (op, trace, at) = match (state, content) {
                (ObjectState::Live { stub, .. }, Some(content)) => {
                    (Op::Put { stub, content: content.bytes, created }, content.trace, content.at)
                }
                (ObjectState::Live { .. }, None) => {
                    cx.note(Note::Missing(key));
                    continue;
                }
                (ObjectState::Deleted { .. }, _)
                    if signed && proof.is_none() && purpose != Purpose::Answer =>
                {
                    // Its tombstone was forgotten meanwhile: the flow is stuck by that, and the other side compares.
                    continue;
                }
                (ObjectState::Deleted { uid }, _) => (Op::Delete { uid }, None, 0),
            };
            let seq = if purpose == Purpose::Answer { 0 } else { self.next_seq(op.content_len(), cx) };
            self.counters.sent += 1;
            cx.send(Frame::Event(Box::new(Event { seq, rev, upto, key, op, trace, at, proof })));
        }
    }

    /// The number of an event that goes into the window.
    fn next_seq(&mut self, size: u64, cx: &Cx<'_>) -> u64 {
        if self.out.window.is_empty() {
            self.out.waits_since = cx.now;
        }
        self.out.seq += 1;
        self.out.window.push_back((self.out.seq, size));
        self.out.window_bytes += size;
        self.out.sent_since_checkpoint = true;
        self.out.seq
    }

    fn send_checkpoint_when_due(&mut self, cx: &mut Cx<'_>) {
        let out = &self.out;
        if out.flow != Flow::Open || out.done < cx.feed.head() || out.load.is_some() {
            return;
        }
        if out.checkpoint_due(&self.config.limits).is_none_or(|at| at <= cx.now) {
            self.send_checkpoint(cx);
        }
    }

    /// The other side acknowledges.
    pub(super) fn take_ack(&mut self, ack: Ack, cx: &mut Cx<'_>) {
        self.counters.acks_received += 1;
        let ahead = |cursor: &FeedCursor| {
            cursor.incarnation == *cx.feed.incarnation() && cursor.position().highest() > cx.feed.head()
        };
        // Before anything of this link was taken, the hello decided what to do with a cursor ahead.
        let ahead = ack.seq > 0 && ack.cursor.as_ref().is_some_and(ahead);
        if ack.seq > self.out.seq || ahead {
            self.go_away("ack-of-unsent", "what was never sent was acknowledged", None, cx);
            return;
        }
        self.out.refused_there = Some(ack.refused);
        // One that was under way when the checkpoint went out says nothing of it, and neither does one of
        // a root that differs: only an older peer does not tell them apart.
        let tells = !self.both.compared || ack.compared;
        self.out.compared |= tells && self.out.checkpoint_sent.is_some() && ack.seq == self.out.seq;
        self.out.waits_since = cx.now;
        self.server.is_heard(cx.now);
        while self.out.window.front().is_some_and(|(first, _)| *first <= ack.seq) {
            if let Some((_, size)) = self.out.window.pop_front() {
                self.out.window_bytes -= size;
            }
        }
        if let Some(cursor) = ack.cursor
            && let Resume::From(position) = cx.feed.can_resume(&cursor)
        {
            let old = self.out.acked.as_ref();
            if old.is_none_or(|old| old.incarnation != cursor.incarnation || cursor.is_ahead_of(old)) {
                self.out.acked = Some(cursor);
            }
            if self.out.flow == Flow::Stuck {
                self.out.go_on_after(position);
            }
        }
    }
}
