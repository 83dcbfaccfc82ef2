//! The receiving half of a link: events into one lane per object, batches out of them.
//!
//! ```text
//! event --> waiting: one of each object --due--> batch in flight --> applied
//!              ^   \-- held until a retry, or until it is fetched anew   |
//!              +----------------- failed -------------------------------+
//! ```
//!
//! Every accepted event has a *position*, a number that rises; an event keeps the position of what it
//! replaces. The cursor may move to what a position stands for once nothing up to it waits. The newest
//! event of an object replaces one that waits. What is held for a retry or to be fetched anew holds up the
//! cursor and the comparison of roots until it is released; beyond `pending_retries` of them
//! acknowledgements too. Held are at most `window_bytes` of content, in so many objects as the window and
//! `pending_retries` come to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::cursor::{FeedCursor, Position};
use model::{ObjectKey, Timestamp};

use super::batch::{ApplyBatch, ApplyItem, ItemOutcome};
use super::proof::ChangeAge;
use super::types::{Limits, Output};
use super::{Cx, Link, LinkConfig};
use crate::frame::{Ack, Checkpoint, Event, Frame, Op};
use crate::identity;
use crate::refusal;
use crate::totals::Totals;

/// The most cursors that wait for what holds them back; of more the newest takes the place of the last.
const MAX_CURSORS: usize = 4096;

/// Why something waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// It goes with the next batch.
    Ready,
    /// For a retry.
    Retry,
    /// For the object to be sent anew; asked again then.
    Fetch,
}

#[derive(Clone, Debug)]
pub(super) struct PendingItem {
    pub item: ApplyItem,
    pub hold: Hold,
    /// It goes with no batch before.
    pub due: Timestamp,
}

#[derive(Debug)]
pub(super) struct InFlightBatch {
    pub batch: Arc<ApplyBatch>,
    since: Timestamp,
}

/// The receiving half.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// The number of the last event.
    pub seq: u64,
    /// The position of the last one that was accepted.
    position: u64,
    /// Cursors that are reached once nothing up to a position waits.
    uptos: VecDeque<(u64, FeedCursor)>,
    pub waiting: BTreeMap<ObjectKey, PendingItem>,
    /// What waits, in the order in which it is due.
    order: BTreeMap<(Timestamp, u64), ObjectKey>,
    ready: Totals,
    /// What waits for a retry, or to be fetched anew.
    pub held: Totals,
    pub in_flight: Option<InFlightBatch>,
    pub ack_due: bool,
    ack_at: Timestamp,
    pub checkpoint: Option<Checkpoint>,
    pub verified: bool,
    /// The highest revision that the other side said to be at, or sent, otherwise than by a
    /// checkpoint.
    pub announced: u64,
    /// A batch could not be kept: the next one is made no sooner.
    pub batch_again: Option<Timestamp>,
}

impl Inbox {
    /// Nothing is under way but retries.
    pub fn is_drained(&self) -> bool {
        self.in_flight.is_none() && self.ready.objects == 0
    }

    /// Nothing is under way that a comparison of roots would miss.
    pub fn is_settled(&self) -> bool {
        self.in_flight.is_none() && self.waiting.values().all(|pending| pending.item.released)
    }

    pub fn under_way(&self) -> usize {
        self.waiting.len() + self.in_flight.as_ref().map_or(0, |batch| batch.batch.items.len())
    }

    /// There is room to hold one more of this size: a source that heeds the window has no more of them
    /// than the window and the retries that go beside it.
    pub fn may_hold(&self, bytes: u64, limits: &Limits) -> bool {
        let fits = self.held.bytes.saturating_add(bytes) <= limits.window_bytes;
        let most = limits.window_events.saturating_add(limits.pending_retries);
        self.held.objects == 0 || fits && self.held.objects < most
    }

    /// There is no room for more.
    pub fn is_full(&self, events: usize, bytes: u64) -> bool {
        self.ready.objects >= events || self.ready.bytes >= bytes
    }

    /// Up to which number events are settled, or kept for a retry.
    fn settled_seq(&self) -> u64 {
        let waiting = self.waiting.values().map(|pending| pending.item.seq);
        let in_flight = self.in_flight.iter().flat_map(|one| one.batch.items.iter().map(|item| item.seq));
        let first = waiting.chain(in_flight).filter(|seq| *seq > 0).min();
        first.map_or(self.seq, |first| first - 1)
    }

    /// The first position that holds back the cursor, of what waits and of these items.
    fn first_open(&self, items: &[ApplyItem]) -> u64 {
        let open = self.waiting.values().map(|pending| &pending.item).chain(items);
        open.filter(|item| !item.released).map(|item| item.position).min().unwrap_or(u64::MAX)
    }

    /// The newest cursor that neither what waits holds back nor these items.
    fn reached(&self, items: &[ApplyItem]) -> Option<&FeedCursor> {
        let open = self.first_open(items);
        self.uptos.iter().rev().find(|(position, _)| *position < open).map(|(_, cursor)| cursor)
    }

    /// Once everything accepted so far is settled, the replica is complete up to here.
    pub fn complete_to(&mut self, cursor: FeedCursor, durable: Option<&FeedCursor>) {
        let known = |old: &FeedCursor| old.incarnation == cursor.incarnation && !cursor.is_ahead_of(old);
        if durable.into_iter().chain(self.uptos.back().map(|(_, last)| last)).any(known) {
            return;
        }
        let full = self.uptos.len() >= MAX_CURSORS;
        self.uptos.pop_back_if(|(position, _)| full || *position == self.position);
        self.uptos.push_back((self.position, cursor));
    }

    /// Older cursors than the one that is reached say nothing any more.
    pub fn forget_uptos(&mut self) {
        let open = self.first_open(&[]);
        while self.uptos.get(1).is_some_and(|(position, _)| *position < open) {
            self.uptos.pop_front();
        }
    }

    fn load(&mut self, hold: Hold) -> &mut Totals {
        if hold == Hold::Ready { &mut self.ready } else { &mut self.held }
    }

    /// What goes with the next batch first.
    fn first_due(&self, now: Timestamp) -> Option<&PendingItem> {
        let ((due, _), key) = self.order.first_key_value()?;
        self.waiting.get(key).filter(|_| *due <= now)
    }

    /// Takes what waits for an object out of the order.
    pub fn take(&mut self, key: &ObjectKey) -> Option<PendingItem> {
        let pending = self.waiting.remove(key)?;
        self.order.remove(&(pending.due, pending.item.position));
        let load = self.load(pending.hold);
        load.objects -= 1;
        load.bytes -= pending.item.change.content_len();
        if self.waiting.is_empty() {
            // A map that was emptied keeps kilobytes for what may come.
            (self.waiting, self.order) = Default::default();
        }
        Some(pending)
    }

    pub fn insert(&mut self, pending: PendingItem) {
        let load = self.load(pending.hold);
        load.objects += 1;
        load.bytes += pending.item.change.content_len();
        let key = &pending.item.key;
        self.order.insert((pending.due, pending.item.position), key.clone());
        self.waiting.insert(key.clone(), pending);
    }
}

impl Link {
    /// An event of the stream.
    pub(super) fn event(&mut self, event: Event, cx: &mut Cx<'_>) {
        self.counters.received += 1;
        self.resync.is_answered(cx.now);
        if event.seq == 0 {
            self.answered(event, cx);
            return;
        }
        let Some(incarnation) = self.peer_incarnation.clone() else { return };
        if event.seq != self.inbox.seq.saturating_add(1) {
            return self.out_of_order(event.seq, cx);
        }
        self.inbox.seq = event.seq;
        // Not over a set of another incarnation.
        if !self.takes_changes_of(&incarnation, cx) {
            self.inbox.ack_due = true;
            return;
        }
        let age = match self.judge(&event, cx) {
            Ok(age) => age,
            Err(why) => return self.unproven(&event.key, why, cx),
        };
        self.peer_head = self.peer_head.max(event.rev);
        self.inbox.announced = self.inbox.announced.max(event.rev);
        self.inbox.checkpoint = None;
        self.inbox.verified = false;
        let upto = FeedCursor::new(incarnation, event.upto);
        self.resync.changed(&event.key, cx.now);
        match age {
            ChangeAge::Newer => self.accept(event, cx),
            ChangeAge::Known => self.duplicate(),
        }
        self.inbox.complete_to(upto, cx.replica.cursor());
    }

    /// The transport lost, repeated or reordered something, or the other side cannot count.
    pub(super) fn out_of_order(&mut self, seq: u64, cx: &mut Cx<'_>) {
        let message = format!("number {seq} came after event {}", self.inbox.seq);
        self.go_away("out-of-order", &message, Some(1), cx);
    }

    /// Into the lane of its object.
    pub(super) fn accept(&mut self, event: Event, cx: &mut Cx<'_>) {
        // An object that was refused may go at the source: then nothing is left to be refused.
        let gone = matches!(event.op, Op::Delete { .. }) && cx.replica.get(&event.key).is_none();
        let refusal = self.refuses_kind(&event.key).filter(|_| !gone);
        let refusal = refusal.or_else(|| refusal::of_event(&event));
        self.inbox.position += 1;
        // Revisions are not compared: frames come in order, and a restored source may have given
        // out a revision twice.
        let before = self.inbox.take(&event.key);
        self.counters.superseded += u64::from(before.is_some());
        // What fails again and again holds back nothing, and its position is behind the cursor by now.
        let position = before.as_ref().map(|before| &before.item).filter(|item| !item.released);
        let position = position.map_or(self.inbox.position, |item| item.position);
        // Another version counts its tries anew, unless one was asked for because of them.
        let fails = |before: &PendingItem| before.hold == Hold::Fetch || before.item.released;
        let tried = before.filter(|before| before.item.rev == event.rev || fails(before));
        let item = ApplyItem {
            key: event.key,
            rev: event.rev,
            change: event.op,
            trace: event.trace,
            at: event.at,
            position,
            seq: event.seq,
            tries: tried.map_or(0, |before| before.item.tries),
            released: false,
        };
        if let Some((code, message)) = refusal {
            return self.reject(&item, code, message, cx);
        }
        self.inbox.insert(PendingItem { item, hold: Hold::Ready, due: cx.now });
    }

    /// Why objects of this kind are not taken from the other side.
    pub(super) fn refuses_kind(&self, key: &ObjectKey) -> Option<(&'static str, String)> {
        let LinkConfig { role, mode, kinds, .. } = &self.config;
        refusal::of_kind(&key.section.kind, role.other(), *mode, kinds)
    }

    /// Takes an orphan out with the next batch.
    pub(super) fn delete_orphan(&mut self, key: ObjectKey, rev: u64, cx: &mut Cx<'_>) {
        let uid = cx.replica.get(&key).map_or_else(|| "".into(), |(stub, _)| stub.uid.clone());
        self.counters.orphans += 1;
        let event = Event {
            seq: 0,
            rev,
            upto: Position::default(),
            key,
            op: Op::Delete { uid },
            trace: None,
            at: 0,
            proof: None,
        };
        self.accept(event, cx);
    }

    /// An answer to a request: of a resync, or of a recovery.
    fn answered(&mut self, event: Event, cx: &mut Cx<'_>) {
        match self.judge(&event, cx) {
            Ok(ChangeAge::Newer) => {}
            Ok(ChangeAge::Known) => return self.not_there(&event.key),
            Err(why) => return self.unproven(&event.key, why, cx),
        }
        let waiting = self.inbox.waiting.get(&event.key).filter(|waiting| waiting.hold == Hold::Fetch);
        let recovers =
            waiting.is_some_and(|waiting| !self.requires_proofs() || waiting.item.rev <= event.rev);
        let Some(event) = self.resync_answer(event, cx) else { return };
        if recovers {
            self.accept(event, cx);
        }
    }

    /// The next batch, when none is under way.
    pub(super) fn form_batch(&mut self, cx: &mut Cx<'_>) {
        if self.inbox.in_flight.is_some() || self.inbox.batch_again.is_some_and(|at| cx.now < at) {
            return;
        }
        self.inbox.batch_again = None;
        let items = self.collect(cx);
        let nowhere =
            self.peer_incarnation.as_ref().map(|incarnation| FeedCursor::at(incarnation.clone(), 0));
        let inbox = &mut self.inbox;
        let base = if cx.replica.cursor().is_none() { nowhere } else { None };
        let moved = |reached: Option<&FeedCursor>| {
            reached.filter(|reached| Some(*reached) != cx.replica.cursor()).cloned()
        };
        let settled = moved(inbox.reached(&[]));
        if items.is_empty() && settled.is_none() {
            return;
        }
        let (settled, unsettled) = (settled.or(base.clone()), moved(inbox.reached(&items)).or(base));
        let batch = Arc::new(ApplyBatch { items, settled, unsettled });
        cx.out.push(Output::Apply(batch.clone()));
        inbox.in_flight = Some(InFlightBatch { batch, since: cx.now });
    }

    fn collect(&mut self, cx: &mut Cx<'_>) -> Vec<ApplyItem> {
        let limits = self.config.limits.clone();
        let (mut items, mut bytes) = (Vec::new(), 0);
        let mut uids = BTreeSet::new();
        let mut room = cx.replica.index().room();
        while let Some(first) = self.inbox.first_due(cx.now) {
            let (key, next) = (first.item.key.clone(), first.item.change.content_len());
            if !items.is_empty() && (items.len() >= limits.batch_events || bytes + next > limits.batch_bytes)
            {
                break;
            }
            let Some(pending) = self.inbox.take(&key) else { break };
            if pending.hold == Hold::Fetch {
                // The answer was lost, or the source is slow: that counts as a try.
                let why = ItemOutcome::Recoverable("the source did not send it".to_owned());
                self.failed(pending, why, cx);
                continue;
            }
            let here = cx.replica.get(&key).map(|(stub, rev)| (stub.clone(), rev));
            match (&pending.item.change, here) {
                // The replica is like that already; what is only remembered is put right.
                (Op::Put { stub, .. }, Some((here, _)))
                    if here.uid == stub.uid && here.digest == stub.digest =>
                {
                    cx.replica.put(key, here, pending.item.rev);
                    self.duplicate();
                    continue;
                }
                (Op::Delete { .. }, None) => {
                    cx.replica.remove(&key);
                    self.duplicate();
                    continue;
                }
                (Op::Delete { uid }, Some((here, rev))) => {
                    if !identity::delete_applies(Some(&here.uid), rev, uid, pending.item.rev) {
                        let message = format!("the object here has uid {}, and is not older", here.uid);
                        self.reject(&pending.item, refusal::UID_MISMATCH, message, cx);
                        continue;
                    }
                }
                (Op::Put { stub, .. }, here) => {
                    let kind = &key.section.kind;
                    let twice = match cx.replica.holder(kind, &stub.uid) {
                        Some(holder) => *holder != key,
                        None => !uids.insert((kind.clone(), stub.uid.clone())),
                    };
                    if twice {
                        let message = "another object of the kind has this uid".to_owned();
                        self.reject(&pending.item, refusal::UID_TWICE, message, cx);
                        continue;
                    }
                    let sizes = (here.map(|(stub, _)| stub.size), stub.size);
                    if let Err(full) = room.put(cx.replica.index(), &key.section, sizes, limits.replica) {
                        self.reject(&pending.item, refusal::TOO_MANY, full.to_string(), cx);
                        continue;
                    }
                }
            }
            bytes += next;
            items.push(pending.item);
        }
        items
    }

    fn duplicate(&mut self) {
        self.counters.duplicates += 1;
        self.inbox.ack_due = true;
    }

    /// Says what is durable, once for all that happened.
    pub(super) fn send_ack(&mut self, cx: &mut Cx<'_>) {
        let busy = self.inbox.in_flight.as_ref().map(|batch| batch.since.max(self.inbox.ack_at));
        let alive = busy.is_some_and(|since| cx.now.since(since) >= self.config.limits.ack_within / 4);
        if !self.inbox.ack_due && !alive || !self.has_met() && !self.sends_before_hello() {
            return;
        }
        self.inbox.ack_due = false;
        self.inbox.ack_at = cx.now;
        self.counters.acks_sent += 1;
        cx.send(Frame::Ack(Ack {
            seq: self.inbox.settled_seq(),
            cursor: cx.replica.cursor().cloned(),
            refused: cx.replica.refused().saturating_add(self.resync.lacking()),
            compared: self.inbox.verified,
        }));
    }

    /// When what waits is due, or an acknowledgement while a batch takes long.
    pub(super) fn inbox_deadline(&self) -> Option<Timestamp> {
        let inbox = &self.inbox;
        let next = match &inbox.in_flight {
            Some(batch) => Some(batch.since.max(inbox.ack_at).plus(self.config.limits.ack_within / 4)),
            None => {
                inbox.order.first_key_value().map(|(&(due, _), _)| due.max(inbox.batch_again.unwrap_or(due)))
            }
        };
        next.or(inbox.batch_again)
    }
}
