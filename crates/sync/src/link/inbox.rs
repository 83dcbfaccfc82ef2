//! The receiving half of a link: events into one lane per object, batches out of them.
//!
//! Every accepted event has a *place*, a number that only rises. The cursor may move to what
//! a place stands for once no place up to it is open. The newest event of an object replaces
//! one that waits; what waits for a retry holds up nothing but the cursor.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::log::Cursor;
use model::{ObjectKey, Timestamp};

use super::batch::{Batch, Item, ItemChange, Outcome};
use super::outbox::content_len;
use super::types::{Note, Output};
use super::{Cx, Link};
use crate::frame::{Ack, Event, Frame, Interop, Mark, Op, RUN, Refused, Resource, Rewind};
use crate::refusal;
use crate::replica::Unfit;

/// Why something waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// It does not: it goes with the next batch.
    Ready,
    /// For a retry.
    Until(Timestamp),
    /// For the object to be sent anew; asked again then.
    Fetch(Timestamp),
}

#[derive(Clone, Debug)]
struct Pending {
    item: Item,
    /// Its number in the run; 0 when it stands outside.
    n: u64,
    tries: u32,
    hold: Hold,
}

#[derive(Debug)]
struct Flying {
    batch: Arc<Batch>,
    /// Number in the run and tries of each item, and the run.
    metas: Vec<(u64, u32)>,
    run: u64,
    since: Timestamp,
}

/// The receiving half.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub run: u64,
    /// The number last accepted in the run.
    pub n: u64,
    /// A rewind was asked for: older runs are dropped until the new one comes.
    pub rewinding: bool,
    place: u64,
    open: BTreeSet<u64>,
    uptos: VecDeque<(u64, Cursor)>,
    waiting: BTreeMap<ObjectKey, Pending>,
    ready: BTreeMap<u64, ObjectKey>,
    held: BTreeMap<(Timestamp, u64), ObjectKey>,
    bytes: u64,
    unacked: BTreeSet<u64>,
    flying: Option<Flying>,
    batches: u64,
    acked: u64,
    acked_cursor: Option<Cursor>,
    pub ack_due: bool,
    ack_at: Timestamp,
    pub mark: Option<Mark>,
    pub verified: bool,
    refused: u64,
}

impl Inbox {
    /// Nothing is under way but retries.
    pub fn is_drained(&self) -> bool {
        self.flying.is_none() && self.ready.is_empty()
    }

    /// Nothing at all is under way.
    pub fn is_empty(&self) -> bool {
        self.flying.is_none() && self.waiting.is_empty()
    }

    pub fn is_flying(&self) -> bool {
        self.flying.is_some()
    }

    pub fn under_way(&self) -> usize {
        self.waiting.len() + self.flying.as_ref().map_or(0, |flying| flying.batch.items.len())
    }

    /// There is no room for more.
    pub fn is_full(&self, events: usize, bytes: u64) -> bool {
        self.ready.len() >= events || self.bytes >= bytes
    }

    fn seq(&self) -> u64 {
        let n = self.unacked.first().map_or(self.n, |first| first - 1);
        self.run * RUN + n
    }

    /// The newest cursor that no open place holds back.
    fn reached(&self) -> Option<&Cursor> {
        let block = self.open.first().copied().unwrap_or(u64::MAX);
        self.uptos.iter().rev().find(|(place, _)| *place < block).map(|(_, cursor)| cursor)
    }

    /// The newest cursor of what was accepted, durable or not.
    pub fn accepted(&self) -> Option<&Cursor> {
        self.uptos.back().map(|(_, cursor)| cursor)
    }

    /// Once everything accepted so far is settled, the replica is complete up to here.
    pub fn complete_to(&mut self, cursor: Cursor, durable: Option<&Cursor>) {
        if durable.is_some_and(|old| old.incarnation == cursor.incarnation && old.seq >= cursor.seq) {
            return;
        }
        if let Some((place, last)) = self.uptos.back_mut() {
            if last.incarnation == cursor.incarnation && last.seq >= cursor.seq {
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

    fn forget_uptos(&mut self) {
        let block = self.open.first().copied().unwrap_or(u64::MAX);
        while self.uptos.get(1).is_some_and(|(place, _)| *place < block) {
            self.uptos.pop_front();
        }
    }

    /// Takes what waits for an object out of every order.
    fn take(&mut self, key: &ObjectKey) -> Option<Pending> {
        let pending = self.waiting.remove(key)?;
        match pending.hold {
            Hold::Ready => drop(self.ready.remove(&pending.item.place)),
            Hold::Until(at) | Hold::Fetch(at) => drop(self.held.remove(&(at, pending.item.place))),
        }
        self.bytes -= size(&pending.item);
        Some(pending)
    }

    fn insert(&mut self, pending: Pending) {
        let (place, key) = (pending.item.place, pending.item.key.clone());
        self.open.insert(place);
        self.bytes += size(&pending.item);
        match pending.hold {
            Hold::Ready => drop(self.ready.insert(place, key.clone())),
            Hold::Until(at) | Hold::Fetch(at) => drop(self.held.insert((at, place), key.clone())),
        }
        self.waiting.insert(key, pending);
    }

    fn settle(&mut self, place: u64, n: u64) {
        self.open.remove(&place);
        if n > 0 {
            self.unacked.remove(&n);
        }
    }

    /// Numbers begin anew; what was accepted stays.
    pub fn begin_run(&mut self, run: u64) {
        (self.run, self.n, self.acked) = (run, 0, run * RUN);
        self.rewinding = false;
        self.unacked.clear();
        self.waiting.values_mut().for_each(|pending| pending.n = 0);
    }
}

fn size(item: &Item) -> u64 {
    match &item.change {
        ItemChange::Put { content, .. } => content.len() as u64,
        ItemChange::Delete { .. } => 0,
    }
}

impl Link {
    /// An event of the stream.
    pub(super) fn event(&mut self, event: Event, cx: &mut Cx<'_>) {
        self.counters.received += 1;
        self.counters.received_bytes += content_len(&event);
        if event.seq == 0 {
            self.answered(event, cx);
            return;
        }
        let (run, n) = (event.seq / RUN, event.seq % RUN);
        let Some(life) = self.peer_life().cloned() else { return };
        // Not over a set of another life, nor one that a walk is to put right.
        if !cx.replica.is_of(&life) || self.resync.stops_stream() || run < self.inbox.run {
            self.counters.ignored += 1;
            return;
        }
        if run > self.inbox.run {
            self.inbox.begin_run(run);
        }
        if n <= self.inbox.n {
            self.counters.duplicates += 1;
            self.inbox.ack_due = true;
            return;
        }
        if n > self.inbox.n + 1 {
            self.gap(cx);
            return;
        }
        if self.inbox.rewinding {
            if n != 1 {
                return;
            }
            self.inbox.rewinding = false;
        }
        self.inbox.n = n;
        self.inbox.mark = None;
        self.inbox.verified = false;
        let upto = Cursor { incarnation: life, seq: event.upto };
        let old = cx
            .replica
            .cursor()
            .is_some_and(|cursor| cursor.incarnation == upto.incarnation && event.rev <= cursor.seq);
        if old {
            self.counters.duplicates += 1;
            self.inbox.ack_due = true;
        } else {
            self.accept(event, n, cx);
        }
        self.inbox.complete_to(upto, cx.replica.cursor());
    }

    /// Something was lost: go on from what is durable, once for each run.
    pub(super) fn gap(&mut self, cx: &mut Cx<'_>) {
        if self.inbox.rewinding {
            return;
        }
        let from = cx.replica.cursor().cloned();
        self.rewind(from, cx);
    }

    pub(super) fn rewind(&mut self, from: Option<Cursor>, cx: &mut Cx<'_>) {
        let run = self.inbox.run + 1;
        self.inbox.begin_run(run);
        self.inbox.rewinding = true;
        self.inbox.mark = None;
        self.counters.rewinds_sent += 1;
        cx.send(Frame::Rewind(Rewind { from, run }));
    }

    /// Into the lane of its object.
    pub(super) fn accept(&mut self, event: Event, n: u64, cx: &mut Cx<'_>) {
        self.inbox.place += 1;
        let place = self.inbox.place;
        let refusal = refusal::of_kind(
            &event.key.section.kind,
            self.config.role.other(),
            self.config.mode,
            &self.config.kinds,
        )
        .or_else(|| refusal::of_event(&event));
        // Numbers and revisions are not compared: runs keep old events out, and answers are
        // taken once. A restored source may have given out a revision twice.
        let before = self.inbox.take(&event.key);
        let tries = match &before {
            Some(before) => {
                self.inbox.settle(before.item.place, before.n);
                self.counters.superseded += 1;
                if before.item.rev == event.rev || matches!(before.hold, Hold::Fetch(_)) {
                    before.tries
                } else {
                    0
                }
            }
            None => 0,
        };
        if let Some((code, message)) = refusal {
            let stub = stub_of(&event);
            self.refuse(event.key, stub, event.rev, code.to_owned(), message, cx);
            return;
        }
        // What is said again, or answers a question, keeps the place of what it replaces, so
        // that the cursor stays below it.
        let again = before.filter(|before| n == 0 || before.item.rev == event.rev);
        let place = again.map_or(place, |before| before.item.place);
        let change = match event.op {
            Op::Put { stub, content, created } => ItemChange::Put { stub, content, created },
            Op::Delete { uid } => ItemChange::Delete { uid },
        };
        let item = Item { key: event.key, rev: event.rev, change, trace: event.trace, at: event.at, place };
        if n > 0 {
            self.inbox.unacked.insert(n);
        }
        self.inbox.insert(Pending { item, n, tries, hold: Hold::Ready });
    }

    /// Takes an orphan out with the next batch.
    pub(super) fn delete_orphan(&mut self, key: ObjectKey, rev: u64, cx: &mut Cx<'_>) {
        let uid = cx.replica.get(&key).map_or_else(|| "".into(), |(stub, _)| stub.uid.clone());
        self.counters.orphans += 1;
        let event = Event { seq: 0, rev, upto: 0, key, op: Op::Delete { uid }, trace: None, at: 0 };
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
        if self.inbox.flying.is_some() {
            return;
        }
        self.wake(cx);
        let (items, metas) = self.collect(cx);
        let inbox = &mut self.inbox;
        let reached = inbox.reached();
        let moves = reached.is_some() && reached != cx.replica.cursor();
        if items.is_empty() && !moves {
            return;
        }
        let mine: BTreeSet<u64> = items.iter().map(|item| item.place).collect();
        let barrier = inbox.open.iter().find(|place| !mine.contains(place)).copied().unwrap_or(u64::MAX);
        inbox.batches += 1;
        let base = match cx.replica.cursor() {
            Some(_) => None,
            None => {
                self.peer.as_ref().map(|hello| Cursor { incarnation: hello.head.incarnation.clone(), seq: 0 })
            }
        };
        let uptos = inbox.uptos.iter().filter(|(place, _)| *place < barrier).cloned().collect();
        let batch = Arc::new(Batch { id: inbox.batches, items, barrier, uptos, base });
        cx.out.push(Output::Apply(batch.clone()));
        self.counters.batches += 1;
        inbox.flying = Some(Flying { batch, metas, run: inbox.run, since: cx.now });
    }

    fn collect(&mut self, cx: &mut Cx<'_>) -> (Vec<Item>, Vec<(u64, u32)>) {
        let limits = self.config.limits;
        let (mut items, mut metas, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut uids = BTreeSet::new();
        while let Some((_, key)) = self.inbox.ready.first_key_value() {
            let key = key.clone();
            let next = self.inbox.waiting.get(&key).map_or(0, |pending| size(&pending.item));
            if !items.is_empty() && (items.len() >= limits.batch_events || bytes + next > limits.batch_bytes)
            {
                break;
            }
            let Some(pending) = self.inbox.take(&key) else { break };
            if self.is_said_already(&pending.item, cx) {
                self.counters.duplicates += 1;
                self.inbox.settle(pending.item.place, pending.n);
                self.inbox.ack_due = true;
                continue;
            }
            if let ItemChange::Put { stub, .. } = &pending.item.change {
                let kind = &pending.item.key.section.kind;
                let twice =
                    cx.replica.holder(kind, &stub.uid).is_some_and(|holder| *holder != pending.item.key);
                if twice || !uids.insert((kind.clone(), stub.uid.clone())) {
                    self.failed(pending, Outcome::Recoverable(refusal::UID_TWICE.to_owned()), cx);
                    continue;
                }
            }
            bytes += next;
            metas.push((pending.n, pending.tries));
            items.push(pending.item);
        }
        (items, metas)
    }

    /// The replica is like that already; what is only remembered is put right.
    fn is_said_already(&self, item: &Item, cx: &mut Cx<'_>) -> bool {
        let here = cx.replica.get(&item.key).map(|(stub, _)| stub);
        match (&item.change, here) {
            (ItemChange::Put { stub, .. }, Some(here))
                if here.uid == stub.uid && here.digest == stub.digest =>
            {
                cx.replica.put(item.key.clone(), stub.clone(), item.rev);
                true
            }
            (ItemChange::Delete { .. }, None) => {
                cx.replica.remove(&item.key);
                true
            }
            _ => false,
        }
    }

    /// A batch is durable.
    pub(super) fn applied(&mut self, id: u64, outcomes: Vec<Outcome>, cx: &mut Cx<'_>) {
        match self.inbox.flying.take() {
            Some(flying) if flying.batch.id == id => self.landed(flying, outcomes, cx),
            other => {
                self.inbox.flying = other;
                self.counters.ignored += 1;
            }
        }
    }

    fn landed(&mut self, flying: Flying, mut outcomes: Vec<Outcome>, cx: &mut Cx<'_>) {
        let Flying { batch, metas, run, .. } = flying;
        let unsaid = || Outcome::Temporary("the shell said nothing of it".to_owned());
        outcomes.resize_with(batch.items.len(), unsaid);
        if let Some(cursor) = batch.cursor(&outcomes) {
            cx.replica.set_cursor(cursor);
        }
        let mut oldest = i64::MAX;
        let mut done = 0;
        for ((item, (n, tries)), outcome) in batch.items.iter().zip(metas).zip(outcomes) {
            let n = if run == self.inbox.run { n } else { 0 };
            match outcome {
                Outcome::Done => {
                    done += 1;
                    oldest = if item.at > 0 { oldest.min(item.at) } else { oldest };
                    match &item.change {
                        ItemChange::Put { stub, .. } => {
                            cx.replica.put(item.key.clone(), stub.clone(), item.rev)
                        }
                        ItemChange::Delete { .. } => cx.replica.remove(&item.key),
                    }
                    self.inbox.settle(item.place, n);
                }
                other => self.failed(Pending { item: item.clone(), n, tries, hold: Hold::Ready }, other, cx),
            }
        }
        self.counters.applied += done as u64;
        if done > 0 {
            cx.note(Note::Applied { items: done, oldest: if oldest == i64::MAX { 0 } else { oldest } });
        }
        if !cx.replica.unfit().is_empty() && cx.replica.forget_twins() {
            self.want_resync(cx);
        }
        self.inbox.forget_uptos();
        self.inbox.ack_due = true;
    }

    /// An item did not work out.
    fn failed(&mut self, mut pending: Pending, outcome: Outcome, cx: &mut Cx<'_>) {
        self.inbox.settle(pending.item.place, 0);
        let newer = self.inbox.waiting.contains_key(&pending.item.key);
        if newer && !matches!(outcome, Outcome::Permanent { .. }) {
            self.inbox.settle(0, pending.n);
            self.counters.superseded += 1;
            return;
        }
        pending.tries += 1;
        let wait = self.config.limits.retry_first * (1 << (pending.tries - 1).min(16));
        let again = cx.now.plus(wait.min(self.config.limits.retry_longest));
        match outcome {
            Outcome::Temporary(_) | Outcome::Done => {
                self.counters.temporary += 1;
                pending.hold = Hold::Until(again);
            }
            Outcome::Recoverable(why) if pending.tries > self.config.limits.refetches => {
                let code =
                    if why == refusal::UID_TWICE { refusal::UID_TWICE } else { refusal::RECOVERY_FAILED };
                let message = format!("fetched anew {} times: {why}", self.config.limits.refetches);
                return self.give_up(pending, code.to_owned(), message, cx);
            }
            Outcome::Recoverable(_) => {
                self.counters.recoverable += 1;
                pending.hold = Hold::Fetch(again);
                self.refetch(&pending.item.key, cx);
            }
            Outcome::Permanent { code, message } => return self.give_up(pending, code, message, cx),
        }
        // Acknowledgements go on past what waits, as long as there is room for it.
        if pending.n > 0 && self.inbox.held.len() < self.config.limits.parked {
            self.inbox.unacked.remove(&pending.n);
            pending.n = 0;
        }
        self.inbox.insert(pending);
    }

    fn give_up(&mut self, pending: Pending, code: String, message: String, cx: &mut Cx<'_>) {
        self.inbox.settle(pending.item.place, pending.n);
        let stub = match pending.item.change {
            ItemChange::Put { stub, .. } => Some(stub),
            ItemChange::Delete { .. } => None,
        };
        self.refuse(pending.item.key, stub, pending.item.rev, code, message, cx);
    }

    fn refuse(
        &mut self,
        key: ObjectKey,
        stub: Option<model::Stub>,
        rev: u64,
        code: String,
        message: String,
        cx: &mut Cx<'_>,
    ) {
        self.counters.refused_here += 1;
        self.inbox.refused += 1;
        let refused = Refused { rev, key: key.clone(), code: code.clone(), message: message.clone() };
        cx.send(Frame::Refused(Box::new(refused)));
        cx.note(Note::RefusedHere { key: key.clone(), code: code.clone(), message: message.clone() });
        cx.replica.refuse(key, Unfit { stub, rev, code, message });
        self.inbox.ack_due = true;
    }

    fn refetch(&mut self, key: &ObjectKey, cx: &mut Cx<'_>) {
        let resource = Resource {
            name: key.name.to_string(),
            namespace: key.section.namespace.to_string(),
            uid: String::new(),
            kind: key.section.kind.to_string(),
            checksum: None,
        };
        cx.send(Frame::Interop(Box::new(Interop::RequestUpdate(resource))));
    }

    /// Retries whose time has come.
    fn wake(&mut self, cx: &mut Cx<'_>) {
        while let Some((&(at, _), key)) = self.inbox.held.first_key_value() {
            if at > cx.now {
                return;
            }
            let key = key.clone();
            let Some(mut pending) = self.inbox.take(&key) else { return };
            if matches!(pending.hold, Hold::Fetch(_)) {
                // The answer was lost, or the source is slow: that counts as a try.
                let why = Outcome::Recoverable("the source did not send it".to_owned());
                self.failed(pending, why, cx);
            } else {
                pending.hold = Hold::Ready;
                self.inbox.insert(pending);
            }
        }
    }

    /// Says what is durable, once for all that happened.
    pub(super) fn send_ack(&mut self, cx: &mut Cx<'_>) {
        let busy = self.inbox.flying.as_ref().map(|flying| flying.since.max(self.inbox.ack_at));
        let alive = busy.is_some_and(|since| cx.now.since(since) >= self.config.limits.resend_after / 2);
        if !self.inbox.ack_due && !alive || self.peer.is_none() {
            return;
        }
        self.inbox.ack_due = false;
        self.inbox.ack_at = cx.now;
        self.inbox.acked = self.inbox.seq();
        self.inbox.acked_cursor = cx.replica.cursor().cloned();
        self.counters.acks_sent += 1;
        cx.send(Frame::Ack(Ack {
            seq: self.inbox.acked,
            cursor: self.inbox.acked_cursor.clone(),
            refused: (cx.replica.unfit().len() + self.resync.kept.map_or(0, |(kept, _)| kept)) as u64,
        }));
    }

    pub(super) fn inbox_deadline(&self) -> Option<Timestamp> {
        let held = self.inbox.held.first_key_value().map(|(&(at, _), _)| at);
        let held = if self.inbox.flying.is_some() { None } else { held };
        let alive = self
            .inbox
            .flying
            .as_ref()
            .map(|flying| flying.since.max(self.inbox.ack_at).plus(self.config.limits.resend_after / 2));
        held.into_iter().chain(alive).min()
    }
}

fn stub_of(event: &Event) -> Option<model::Stub> {
    match &event.op {
        Op::Put { stub, .. } => Some(stub.clone()),
        Op::Delete { .. } => None,
    }
}
