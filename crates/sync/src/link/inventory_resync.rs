//! The requesting half of the resync that the source document describes, for peers without the
//! trie resync (SYN-6).
//!
//! ```text
//! Begin --pong--> Compare* --> List --pong--> Fetch* --> orphans taken, Done
//!                 every object here           what is listed and missing here
//!                 (each step: requests, a ping as barrier, answers, its pong)
//! ```
//!
//! For every object here `request-update` with its checksum, so that names alone are not
//! trusted; then the inventory's checksum, answered by a list when it differs; then
//! `request-update` for what is missing. A ping after each part is a barrier: its pong says
//! that all answers to the part were sent. A list of any length is asked for in parts, so nothing overflows.

use std::collections::{BTreeSet, VecDeque};

use crate::cursor::FeedCursor;
use model::{Digest, Kind, ObjectKey, SectionKey};

use super::trie_resync::ResyncStage;
use super::{Cx, Link};
use crate::frame::{Event, Frame, Interop, InventoryItem, MAX_REQUESTED, Op, Ping, PingOrder, Pong};
use crate::interop;
use crate::replica::Replica;

/// The barriers of an inventory resync are numbered from here, apart from pings that ask for a sign
/// of life.
const BARRIERS: u64 = 1 << 40;

/// The answers to a part are waited for during so many exchanges: events that are pushed are one too.
const EXCHANGES: u32 = 3;

/// What is asked for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum InventoryStep {
    /// Where the source stands.
    #[default]
    Begin,
    /// Objects here.
    Compare,
    /// Names there.
    List,
    /// Objects missing here.
    Fetch,
}

/// An inventory resync.
#[derive(Clone, Debug, Default)]
pub(crate) struct InventoryResync {
    part: InventoryStep,
    /// The source's place when it began.
    start: Option<FeedCursor>,
    queue: VecDeque<ObjectKey>,
    asked: Vec<ObjectKey>,
    listed: BTreeSet<ObjectKey>,
    orphans: BTreeSet<ObjectKey>,
    barrier: Option<u64>,
    /// Exchanges that ended since the part was asked for.
    exchanges: u32,
}

impl InventoryResync {
    /// The exchange is over. The request of a part goes with the next one, whose answer has the pong; if
    /// that is lost, the part is asked for again.
    pub fn carried_over(&mut self) {
        self.exchanges += 1;
        if self.exchanges > EXCHANGES {
            self.barrier = None;
        }
    }

    /// Keeps a delete back until all orphans are known; another answer goes on at once.
    pub fn keeps(&mut self, event: &Event, replica: &Replica) -> bool {
        let orphan = matches!(event.op, Op::Delete { .. });
        if orphan {
            if replica.get(&event.key).is_some() {
                self.orphans.insert(event.key.clone());
            }
        } else {
            self.orphans.remove(&event.key);
        }
        orphan
    }
}

/// A resource's name as the source document has it.
pub(super) fn resource(key: &ObjectKey, uid: &str, checksum: Option<Digest>) -> InventoryItem {
    InventoryItem {
        name: key.name.to_string(),
        namespace: key.section.namespace.to_string(),
        uid: uid.to_owned(),
        kind: key.section.kind.to_string(),
        checksum,
    }
}

/// The key of a resource.
pub(super) fn key_of(resource: &InventoryItem) -> ObjectKey {
    let section =
        SectionKey { kind: Kind::new(&resource.kind), namespace: resource.namespace.as_str().into() };
    ObjectKey { section, name: resource.name.as_str().into() }
}

impl Link {
    /// Asks for a part, and for a sign that all its answers were sent.
    pub(super) fn step_inventory(&mut self, cx: &mut Cx<'_>) {
        let full = self.inbox.is_full(self.config.limits.window_events, self.config.limits.window_bytes);
        let ResyncStage::InventoryResync(inventory) = &mut self.resync.stage else { return };
        if full || inventory.barrier.is_some() {
            return;
        }
        self.pings += 1;
        let number = BARRIERS + self.pings;
        (inventory.barrier, inventory.exchanges) = (Some(number), 0);
        let mut frames = Vec::new();
        match inventory.part {
            InventoryStep::Begin => {}
            InventoryStep::List => {
                let here = cx.replica.objects().map(|(key, stub)| (key, &*stub.uid));
                frames.push(Interop::RequestList { checksum: interop::inventory_checksum(here) });
            }
            InventoryStep::Compare | InventoryStep::Fetch => {
                for key in &inventory.asked {
                    let here = cx.replica.get(key).map(|(stub, _)| stub);
                    let uid = here.map_or("", |stub| &*stub.uid);
                    frames.push(Interop::RequestUpdate(resource(key, uid, here.map(|stub| stub.digest))));
                }
            }
        }
        self.resync.asked_at = Some(cx.now);
        self.resync.frames += frames.len() as u64 + 1;
        self.counters.resync_frames += frames.len() as u64;
        for frame in frames {
            cx.send(Frame::Interop(Box::new(frame)));
        }
        cx.send(Frame::Ping(Ping { number, head: cx.feed.head(), order: PingOrder::Barrier }));
    }

    /// The source has one like this.
    pub(super) fn listed(&mut self, resource: &InventoryItem, cx: &mut Cx<'_>) {
        let ResyncStage::InventoryResync(inventory) = &mut self.resync.stage else {
            self.counters.ignored += 1;
            return;
        };
        let key = key_of(resource);
        // What is here was compared by content before.
        if cx.replica.get(&key).is_none() && !cx.replica.rejected().contains_key(&key) {
            inventory.listed.insert(key);
            if inventory.listed.len() > self.config.limits.replica.objects {
                return self.too_many(cx);
            }
        }
        self.resync.is_answered(cx.now);
    }

    /// All answers to a part were sent.
    pub(super) fn ponged(&mut self, pong: Pong, cx: &mut Cx<'_>) {
        let Some(incarnation) = self.peer_incarnation.clone() else { return };
        let ResyncStage::InventoryResync(inventory) = &mut self.resync.stage else { return };
        if inventory.barrier != Some(pong.number) {
            return;
        }
        (inventory.barrier, self.resync.asked_at) = (None, None);
        let most = self.config.limits.requested.min(MAX_REQUESTED);
        match inventory.part {
            InventoryStep::Begin => {
                inventory.start = Some(FeedCursor::at(incarnation.clone(), pong.head));
                cx.replica.begin_incarnation(&incarnation);
                inventory.queue = cx.replica.objects().map(|(key, _)| key.clone()).collect();
                inventory.part = InventoryStep::Compare;
            }
            InventoryStep::Compare | InventoryStep::Fetch => inventory.asked.clear(),
            InventoryStep::List => {
                inventory.queue = std::mem::take(&mut inventory.listed).into_iter().collect();
                inventory.part = InventoryStep::Fetch;
            }
        }
        let next = inventory.queue.len().min(most);
        inventory.asked = inventory.queue.drain(..next).collect();
        if inventory.asked.is_empty() {
            match inventory.part {
                InventoryStep::Compare => inventory.part = InventoryStep::List,
                InventoryStep::Fetch => self.end_inventory(cx),
                InventoryStep::Begin | InventoryStep::List => {}
            }
        }
    }

    fn end_inventory(&mut self, cx: &mut Cx<'_>) {
        let ResyncStage::InventoryResync(inventory) = std::mem::take(&mut self.resync.stage) else { return };
        let Some(start) = inventory.start else { return };
        let here = |key: &ObjectKey| cx.replica.get(key).is_some();
        let orphans = inventory.orphans.into_iter().filter(here).collect();
        self.take_orphans(orphans, start.revision, cx);
        self.inbox.complete_to(start.clone(), cx.replica.cursor());
        self.end_resync(start, cx);
    }
}
