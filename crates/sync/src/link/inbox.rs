//! The receiving half of a link: events into one lane per object, batches out of them.
//!
//! ```text
//! event --> waiting: one of each object --ready--> batch in flight --> applied
//!              ^   \-- held until a retry, or until it is fetched anew     |
//!              +----------------- failed ---------------------------------+
//! ```
//!
//! Every accepted event has a *place*, a number that rises; what is sent again keeps the place of what it
//! replaces. The cursor may move to what a place stands for once no place up to it is open. The newest
//! event of an object replaces one that waits; what waits for a retry holds up the cursor and the
//! comparison of roots until it is released, and nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::cursor::{FeedCursor, Position};
use model::set::MAX_SECTIONS;
use model::{ObjectKey, SectionKey, Timestamp};

use super::batch::{Batch, Item, ItemOutcome};
use super::types::{Limits, Output};
use super::{Cx, Link};
use crate::frame::{Ack, Checkpoint, Event, Frame, Op};
use crate::identity;
use crate::object::MAX_CONTENT;
use crate::refusal;
use crate::replica::{RejectedObject, Replica};

/// Places from here on hold back nothing: of what fails again and again.
pub(super) const FIRST_RELEASED_POSITION: u64 = 1 << 62;

/// Why something waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// It does not: it goes with the next batch.
    Ready,
    /// For a retry.
    Until(Timestamp),
    /// For the object to be sent anew; asked again then.
    Fetch(Timestamp),
}

#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub item: Item,
    pub hold: Hold,
}

impl Pending {
    /// The cursor goes on without it, and roots are compared without it.
    pub fn is_released(&self) -> bool {
        self.item.place >= FIRST_RELEASED_POSITION
    }
}

#[derive(Debug)]
pub(super) struct InFlightBatch {
    pub batch: Arc<Batch>,
    since: Timestamp,
}

/// The receiving half.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// The number of the last event.
    pub seq: u64,
    place: u64,
    open: BTreeSet<u64>,
    uptos: VecDeque<(u64, FeedCursor)>,
    pub waiting: BTreeMap<ObjectKey, Pending>,
    ready: BTreeMap<u64, ObjectKey>,
    pub held: BTreeMap<(Timestamp, u64), ObjectKey>,
    /// How many wait that are released, and how many ever were.
    pub set_aside: usize,
    pub released_total: u64,
    /// Bytes of the contents of what is ready, and of what is held.
    bytes: u64,
    held_bytes: u64,
    pub in_flight: Option<InFlightBatch>,
    batches: u64,
    pub ack_due: bool,
    ack_at: Timestamp,
    pub checkpoint: Option<Checkpoint>,
    pub verified: bool,
    /// The highest revision that the other side said to be at, or sent, otherwise than by a
    /// checkpoint.
    pub announced: u64,
    /// A batch could not be kept: a cursor alone is written no sooner.
    pub cursor_again: Option<Timestamp>,
    /// Refusals noted since an instant.
    pub noted: (Timestamp, u32),
}

impl Inbox {
    /// Nothing is under way but retries.
    pub fn is_drained(&self) -> bool {
        self.in_flight.is_none() && self.ready.is_empty()
    }

    /// Nothing is under way that a comparison of roots would miss.
    pub fn is_settled(&self) -> bool {
        self.in_flight.is_none() && self.waiting.len() == self.set_aside
    }

    pub fn under_way(&self) -> usize {
        self.waiting.len() + self.in_flight.as_ref().map_or(0, |batch| batch.batch.items.len())
    }

    /// There is room to hold one more of this size for a retry.
    pub fn may_hold(&self, bytes: u64, most: u64) -> bool {
        self.held.is_empty() || self.held_bytes.saturating_add(bytes) <= most
    }

    /// There is no room for more.
    pub fn is_full(&self, events: usize, bytes: u64) -> bool {
        self.ready.len() >= events || self.bytes >= bytes
    }

    /// Up to which number events are settled, or kept for a retry.
    fn settled_seq(&self) -> u64 {
        let waiting = self.waiting.values().map(|pending| pending.item.seq);
        let in_flight = self.in_flight.iter().flat_map(|one| one.batch.items.iter().map(|item| item.seq));
        let first = waiting.chain(in_flight).filter(|seq| *seq > 0).min();
        first.map_or(self.seq, |first| first - 1)
    }

    /// The newest cursor that no open place holds back, but for those of these items.
    fn reached(&self, settled: &[Item]) -> Option<&FeedCursor> {
        let settled: BTreeSet<u64> = settled.iter().map(|item| item.place).collect();
        let block = self.open.iter().find(|place| !settled.contains(place)).copied().unwrap_or(u64::MAX);
        self.uptos.iter().rev().find(|(place, _)| *place < block).map(|(_, cursor)| cursor)
    }

    /// Once everything accepted so far is settled, the replica is complete up to here.
    pub fn complete_to(&mut self, cursor: FeedCursor, durable: Option<&FeedCursor>) {
        let known = |old: &FeedCursor| old.incarnation == cursor.incarnation && !cursor.is_ahead_of(old);
        if durable.is_some_and(known) {
            return;
        }
        if let Some((place, last)) = self.uptos.back_mut() {
            if last.incarnation == cursor.incarnation && !cursor.is_ahead_of(last) {
                return;
            }
            // With nothing open in between the older says nothing any more.
            if self.open.range(*place..).next().is_none() {
                (*place, *last) = (self.place, cursor);
                return;
            }
        }
        self.uptos.push_back((self.place, cursor));
    }

    pub fn forget_uptos(&mut self) {
        let block = self.open.first().copied().unwrap_or(u64::MAX);
        while self.uptos.get(1).is_some_and(|(place, _)| *place < block) {
            self.uptos.pop_front();
        }
    }

    /// Takes what waits for an object out of every order.
    pub fn take(&mut self, key: &ObjectKey) -> Option<Pending> {
        let pending = self.waiting.remove(key)?;
        self.set_aside -= usize::from(pending.is_released());
        let (place, bytes) = (pending.item.place, pending.item.change.content_len());
        match pending.hold {
            Hold::Ready => {
                self.ready.remove(&place);
                self.bytes -= bytes;
            }
            Hold::Until(at) | Hold::Fetch(at) => {
                self.held.remove(&(at, place));
                self.held_bytes -= bytes;
            }
        }
        Some(pending)
    }

    pub fn insert(&mut self, pending: Pending) {
        let (place, key) = (pending.item.place, pending.item.key.clone());
        if pending.is_released() {
            self.set_aside += 1;
        } else {
            self.open.insert(place);
        }
        let bytes = pending.item.change.content_len();
        match pending.hold {
            Hold::Ready => {
                self.ready.insert(place, key.clone());
                self.bytes += bytes;
            }
            Hold::Until(at) | Hold::Fetch(at) => {
                self.held.insert((at, place), key.clone());
                self.held_bytes += bytes;
            }
        }
        self.waiting.insert(key, pending);
    }

    pub fn settle(&mut self, place: u64) {
        self.open.remove(&place);
    }
}

impl Link {
    /// An event of the stream.
    pub(super) fn event(&mut self, event: Event, cx: &mut Cx<'_>) {
        self.counters.received += 1;
        self.resync.requested_at = cx.now;
        self.counters.received_bytes += event.op.content_len();
        if event.seq == 0 {
            self.answered(event, cx);
            return;
        }
        let Some(incarnation) = self.peer_incarnation().cloned() else { return };
        if event.seq != self.inbox.seq.saturating_add(1) {
            return self.out_of_order(event.seq, cx);
        }
        self.inbox.seq = event.seq;
        // Not over a set of another incarnation.
        if !cx.replica.is_of(&incarnation) {
            self.counters.ignored += 1;
            self.inbox.ack_due = true;
            return;
        }
        self.peer_head = self.peer_head.max(event.rev);
        self.inbox.announced = self.inbox.announced.max(event.rev);
        self.inbox.checkpoint = None;
        self.inbox.verified = false;
        let upto = FeedCursor::new(incarnation, event.upto);
        let seq = event.seq;
        self.resync.changed(&event.key, cx.now);
        self.accept(event, seq, cx);
        self.inbox.complete_to(upto, cx.replica.cursor());
    }

    /// The transport lost, repeated or reordered something, or the other side cannot count.
    pub(super) fn out_of_order(&mut self, seq: u64, cx: &mut Cx<'_>) {
        let message = format!("number {seq} came after event {}", self.inbox.seq);
        self.go_away("out-of-order", &message, Some(1), cx);
    }

    /// Into the lane of its object.
    pub(super) fn accept(&mut self, event: Event, seq: u64, cx: &mut Cx<'_>) {
        self.inbox.place += 1;
        let place = self.inbox.place;
        let refusal = refusal::of_kind(
            &event.key.section.kind,
            self.config.role.other(),
            self.config.mode,
            &self.config.kinds,
        )
        .or_else(|| refusal::of_event(&event));
        // Revisions are not compared: frames come in order, and a restored source may have given
        // out a revision twice.
        let before = self.inbox.take(&event.key);
        let tries = match &before {
            Some(before) => {
                self.inbox.settle(before.item.place);
                self.counters.superseded += 1;
                let failing = matches!(before.hold, Hold::Fetch(_)) || before.is_released();
                if before.item.rev == event.rev || failing { before.item.tries } else { 0 }
            }
            None => 0,
        };
        if let Some((code, message)) = refusal {
            return self.refuse(event.key, RejectedObject::of(&event.op, event.rev, code, message), cx);
        }
        // What is said again, or answers a question, keeps the place of what it replaces, so
        // that the cursor stays below it.
        let again =
            before.filter(|before| !before.is_released() && (seq == 0 || before.item.rev == event.rev));
        let place = again.map_or(place, |before| before.item.place);
        let item = Item {
            key: event.key,
            rev: event.rev,
            change: event.op,
            trace: event.trace,
            at: event.at,
            place,
            seq,
            tries,
        };
        self.inbox.insert(Pending { item, hold: Hold::Ready });
    }

    /// Takes an orphan out with the next batch.
    pub(super) fn delete_orphan(&mut self, key: ObjectKey, rev: u64, cx: &mut Cx<'_>) {
        let uid = cx.replica.get(&key).map_or_else(|| "".into(), |(stub, _)| stub.uid.clone());
        self.counters.orphans += 1;
        let event =
            Event { seq: 0, rev, upto: Position::default(), key, op: Op::Delete { uid }, trace: None, at: 0 };
        self.accept(event, 0, cx);
    }

    /// An answer to a question: of a resync, or of a recovery.
    fn answered(&mut self, event: Event, cx: &mut Cx<'_>) {
        let recovers = self.inbox.waiting.get(&event.key).is_some_and(|p| matches!(p.hold, Hold::Fetch(_)));
        let Some(event) = self.resync_answer(event, cx) else { return };
        if recovers {
            self.accept(event, 0, cx);
        } else {
            self.counters.ignored += 1;
        }
    }

    /// The next batch, when none is under way.
    pub(super) fn form_batch(&mut self, cx: &mut Cx<'_>) {
        if self.inbox.in_flight.is_some() {
            return;
        }
        self.wake(cx);
        let items = self.collect(cx);
        let nowhere = self.peer_incarnation().map(|incarnation| FeedCursor::at(incarnation.clone(), 0));
        let inbox = &mut self.inbox;
        let base = if cx.replica.cursor().is_none() { nowhere } else { None };
        let moved = |reached: Option<&FeedCursor>| {
            reached.filter(|reached| Some(*reached) != cx.replica.cursor()).cloned()
        };
        let settled = moved(inbox.reached(&items));
        let waits = inbox.cursor_again.is_some_and(|at| cx.now < at);
        if items.is_empty() && (settled.is_none() || waits) {
            return;
        }
        inbox.cursor_again = None;
        inbox.batches += 1;
        let (settled, unsettled) = (settled.or(base.clone()), moved(inbox.reached(&[])).or(base));
        let batch = Arc::new(Batch { id: inbox.batches, items, settled, unsettled });
        cx.out.push(Output::Apply(batch.clone()));
        self.counters.batches += 1;
        inbox.in_flight = Some(InFlightBatch { batch, since: cx.now });
    }

    fn collect(&mut self, cx: &mut Cx<'_>) -> Vec<Item> {
        let limits = self.config.limits;
        let (mut items, mut bytes) = (Vec::new(), 0);
        let mut uids = BTreeSet::new();
        let mut room = Room::of(cx.replica, &limits);
        while let Some((_, key)) = self.inbox.ready.first_key_value() {
            let key = key.clone();
            let next = self.inbox.waiting.get(&key).map_or(0, |pending| pending.item.change.content_len());
            if !items.is_empty() && (items.len() >= limits.batch_events || bytes + next > limits.batch_bytes)
            {
                break;
            }
            let Some(pending) = self.inbox.take(&key) else { break };
            if self.is_already_applied(&pending.item, cx) {
                self.counters.duplicates += 1;
                self.inbox.settle(pending.item.place);
                self.inbox.ack_due = true;
                continue;
            }
            if let Op::Delete { uid } = &pending.item.change
                && let Some((here, rev)) = cx.replica.get(&pending.item.key)
                && !identity::delete_applies(Some(&here.uid), rev, uid, pending.item.rev)
            {
                let message = format!("the object here has uid {}, and is not older", here.uid);
                self.give_up(pending, refusal::UID_MISMATCH, message, cx);
                continue;
            }
            if let Op::Put { stub, .. } = &pending.item.change {
                let kind = &pending.item.key.section.kind;
                let twice = match cx.replica.holder(kind, &stub.uid) {
                    Some(holder) => *holder != pending.item.key,
                    None => !uids.insert((kind.clone(), stub.uid.clone())),
                };
                if twice {
                    self.failed(pending, ItemOutcome::Recoverable(refusal::UID_TWICE.to_owned()), cx);
                    continue;
                }
                if let Some(full) = room.take(cx.replica, &limits, &pending.item.key, stub.size) {
                    self.give_up(pending, refusal::TOO_MANY, full, cx);
                    continue;
                }
            }
            bytes += next;
            items.push(pending.item);
        }
        items
    }

    /// The replica is like that already; what is only remembered is put right.
    fn is_already_applied(&self, item: &Item, cx: &mut Cx<'_>) -> bool {
        let here = cx.replica.get(&item.key).map(|(stub, _)| stub);
        match (&item.change, here) {
            (Op::Put { stub, .. }, Some(here)) if here.uid == stub.uid && here.digest == stub.digest => {
                cx.replica.put(item.key.clone(), stub.clone(), item.rev);
                true
            }
            (Op::Delete { .. }, None) => {
                cx.replica.remove(&item.key);
                true
            }
            _ => false,
        }
    }

    /// Says what is durable, once for all that happened.
    pub(super) fn send_ack(&mut self, cx: &mut Cx<'_>) {
        let busy = self.inbox.in_flight.as_ref().map(|batch| batch.since.max(self.inbox.ack_at));
        let alive = busy.is_some_and(|since| cx.now.since(since) >= self.config.limits.ack_within / 4);
        if !self.inbox.ack_due && !alive || self.peer.is_none() && !self.sends_before_hello() {
            return;
        }
        self.inbox.ack_due = false;
        self.inbox.ack_at = cx.now;
        self.counters.acks_sent += 1;
        cx.send(Frame::Ack(Ack {
            seq: self.inbox.settled_seq(),
            cursor: cx.replica.cursor().cloned(),
            refused: cx.replica.refused().saturating_add(self.resync.lacking()),
        }));
    }

    pub(super) fn inbox_deadline(&self) -> Option<Timestamp> {
        let held = self.inbox.held.first_key_value().map(|(&(at, _), _)| at);
        let held = if self.inbox.in_flight.is_some() { None } else { held };
        let alive = self
            .inbox
            .in_flight
            .as_ref()
            .map(|batch| batch.since.max(self.inbox.ack_at).plus(self.config.limits.ack_within / 4));
        held.into_iter().chain(alive).chain(self.inbox.cursor_again).min()
    }
}

/// What a batch may still add to the replica.
#[derive(Debug, Default)]
struct Room {
    /// The replica is so full that each item has to be looked at.
    tight: bool,
    objects: usize,
    added: u64,
    freed: u64,
    sections: BTreeSet<SectionKey>,
}

impl Room {
    fn of(replica: &Replica, limits: &Limits) -> Room {
        let bytes = limits.batch_bytes.max(MAX_CONTENT as u64);
        let tight = replica.len().saturating_add(limits.batch_events) >= limits.objects
            || replica.bytes().saturating_add(bytes) >= limits.object_bytes;
        Room { tight, ..Room::default() }
    }

    /// Takes room for an item that puts; why there is none.
    fn take(&mut self, replica: &Replica, limits: &Limits, key: &ObjectKey, size: u64) -> Option<String> {
        let begins = !replica.has_section(&key.section) && !self.sections.contains(&key.section);
        if begins && replica.sections() + self.sections.len() >= MAX_SECTIONS {
            return Some(format!("a replica has at most {MAX_SECTIONS} kinds and namespaces"));
        }
        if self.tight {
            let old = replica.get(key).map(|(stub, _)| stub.size);
            let objects = self.objects + usize::from(old.is_none());
            let (added, freed) =
                (self.added.saturating_add(size), self.freed.saturating_add(old.unwrap_or(0)));
            if replica.len() + objects > limits.objects {
                return Some(format!("a replica has at most {} objects", limits.objects));
            }
            // An object that does not grow is taken, also where there is too much already.
            let bytes = replica.bytes().saturating_add(added).saturating_sub(freed);
            if bytes > limits.object_bytes && old.is_none_or(|old| old < size) {
                let most = limits.object_bytes;
                return Some(format!("the objects of a replica hold at most {most} bytes together"));
            }
            (self.objects, self.added, self.freed) = (objects, added, freed);
        }
        if begins {
            self.sections.insert(key.section.clone());
        }
        None
    }
}
