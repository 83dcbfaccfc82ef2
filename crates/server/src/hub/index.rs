//! [`SyncIndex`]: the [`SyncSummary`] of every node that synchronizes, in the order of node ids.
//!
//! ```text
//! link, feed, operator --update(node, ..)--> SyncSummary --> FleetIndex slot: work waits?
//! status, metrics, listings <--read(node, ..)-- SyncSummary     --> wakes the node's long polls
//! flush: take_unsaved --> store
//! ```
//!
//! Invariants: a node that is not in the [`FleetIndex`] gets no summary, so the last words of a
//! removed node's link do not bring it back. Locks are taken in the order index, slot. Nobody
//! walks a set, reads a store or clones all summaries while the lock is held.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::replication::TransportKind;
use model::{Kind, NodeId};
use store::{SyncHead, SyncProgress};
use sync::Feed;

use super::link::{LinkReport, NodeLink};
use super::summary::SyncSummary;
use crate::index::FleetIndex;
use crate::state::now;

/// The fleet as it stands with synchronization, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetSyncTotals {
    /// Links by transport.
    pub(crate) links: BTreeMap<TransportKind, u64>,
    /// Nodes whose objects are behind.
    pub(crate) nodes_behind: u64,
    /// Changes that wait for their nodes, actions included.
    pub(crate) behind: u64,
    /// Of the node that is furthest behind.
    pub(crate) most_behind: u64,
    /// Nodes whose sets differ, and stay so without help.
    pub(crate) out_of_sync: u64,
    /// Objects that go down.
    pub(crate) down: u64,
    /// Objects that came up.
    pub(crate) up: u64,
}

/// The node is in the fleet no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeRemoved;

/// All nodes that have sets, links or wishes.
pub(crate) struct SyncIndex {
    index: Arc<FleetIndex>,
    nodes: Mutex<BTreeMap<NodeId, SyncSummary>>,
}

impl SyncIndex {
    pub(super) fn new(index: Arc<FleetIndex>) -> SyncIndex {
        SyncIndex { index, nodes: Mutex::default() }
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<NodeId, SyncSummary>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in how far every node is, and the actions in their feeds by the revisions of their
    /// last changes.
    pub(super) fn fill(&self, heads: Vec<(NodeId, SyncHead)>, mut actions: BTreeMap<NodeId, Vec<u64>>) {
        let mut nodes = self.nodes();
        for (node, head) in heads {
            let actions = actions.remove(&node).unwrap_or_default();
            let summary = SyncSummary::restored(head, &actions);
            self.show(&node, &summary);
            nodes.insert(node, summary);
        }
    }

    /// Puts into the node's entry whether a link is wanted.
    fn show(&self, id: &NodeId, summary: &SyncSummary) {
        let Some(slot) = self.index.get(id) else { return };
        let (waits, revision) = (summary.wants_link(), summary.revision());
        let mut entry = slot.lock();
        let unannounced = waits && (!entry.node.work_waits || entry.work_notified != Some(revision));
        entry.node.work_waits = waits;
        entry.work_head = revision;
        self.index.mark_entry(&slot, &mut entry);
        drop(entry);
        if unannounced {
            slot.wake.notify_waiters();
        }
    }

    /// Changes what is known of a node; of one that was removed nothing is kept.
    pub(crate) fn update<T>(&self, id: &NodeId, change: impl FnOnce(&mut SyncSummary) -> T) -> T {
        let mut nodes = self.nodes();
        if self.index.get(id).is_none() {
            return change(&mut SyncSummary::default());
        }
        let summary = nodes.entry(id.clone()).or_default();
        let done = change(summary);
        self.show(id, summary);
        done
    }

    /// Looks at what is known of a node, briefly.
    pub(crate) fn read<T>(&self, id: &NodeId, look: impl FnOnce(&SyncSummary) -> T) -> T {
        match self.nodes().get(id) {
            Some(summary) => look(summary),
            None => look(&SyncSummary::default()),
        }
    }

    /// The link that a node has.
    pub(crate) fn link(&self, id: &NodeId) -> Option<Arc<NodeLink>> {
        self.nodes().get(id)?.link.clone()
    }

    /// Everything in numbers. Cost: the nodes that synchronize.
    pub(crate) fn totals(&self) -> FleetSyncTotals {
        let mut totals = FleetSyncTotals::default();
        for summary in self.nodes().values() {
            let behind = summary.behind();
            totals.nodes_behind += u64::from(summary.objects_behind() > 0);
            totals.behind += behind;
            totals.most_behind = totals.most_behind.max(behind);
            totals.out_of_sync += u64::from(summary.is_out_of_sync());
            totals.down += summary.objects_down();
            totals.up += summary.up;
            if let Some(link) = &summary.link {
                *totals.links.entry(link.transport).or_default() += 1;
            }
        }
        totals
    }

    /// The feed is loaded: now it is known how many changes of objects the node lacks.
    pub(super) fn feed_loaded(&self, id: &NodeId, feed: &Feed) {
        let acked = self.read(id, |summary| summary.acked.clone());
        let acked = acked.filter(|acked| acked.incarnation == *feed.incarnation());
        // A feed may be long: other nodes do not wait for it.
        let from = acked.map_or(0, |acked| acked.revision);
        let lacks = feed.count_after_without(from, &Kind::new(Kind::ACTION));
        if let Some(summary) = self.nodes().get_mut(id) {
            summary.lacks(lacks);
            self.show(id, summary);
        }
    }

    /// The node's link reports how both sets stand.
    pub(crate) fn reported(&self, link: &Arc<NodeLink>, report: LinkReport) {
        if let Some(before) = link.reports(&report) {
            self.update(&link.node, |summary| summary.reported(link, report, before, now()));
        }
    }

    /// A link takes the place of the one before, if there is one, which gets a go-away and is returned;
    /// a post of the process that has a stream down is no other link.
    ///
    /// # Errors
    /// There is no such node (any more).
    pub(crate) fn link_opened(&self, link: &Arc<NodeLink>) -> Result<Option<Arc<NodeLink>>, NodeRemoved> {
        let mut nodes = self.nodes();
        // Whoever removes a node takes it out of the fleet's index first, then out of here.
        self.index.get(&link.node).ok_or(NodeRemoved)?;
        let summary = nodes.entry(link.node.clone()).or_default();
        if summary.link.as_ref().is_some_and(|stream| stream.goes_up_by(link)) {
            return Ok(None);
        }
        let before = summary.link.replace(link.clone());
        if let Some(before) = &before {
            before.end("replaced", "the node opened another link");
        }
        self.show(&link.node, summary);
        Ok(before)
    }

    /// A link is gone; a newer one stays.
    pub(crate) fn link_closed(&self, link: &Arc<NodeLink>) {
        let mut nodes = self.nodes();
        // A node that was removed meanwhile does not come back by this.
        let Some(summary) = nodes.get_mut(&link.node) else { return };
        summary.link_closed(link, now());
        self.show(&link.node, summary);
    }

    /// All links that are open.
    pub(crate) fn links(&self) -> Vec<Arc<NodeLink>> {
        self.nodes().values().filter_map(|summary| summary.link.clone()).collect()
    }

    /// The node is removed.
    pub(super) fn remove(&self, id: &NodeId) -> Option<SyncSummary> {
        self.nodes().remove(id)
    }

    /// How far nodes acknowledged and what comparisons came to since the last time.
    pub(super) fn take_unsaved(&self) -> Vec<SyncProgress> {
        self.nodes().iter_mut().filter_map(|(id, summary)| summary.take_unsaved(id)).collect()
    }

    /// These outcomes could not be persisted: they are taken again.
    pub(super) fn not_saved(&self, lost: &[SyncProgress]) {
        let mut nodes = self.nodes();
        for progress in lost {
            if let Some(summary) = nodes.get_mut(&progress.node) {
                summary.unsaved = true;
            }
        }
    }
}
