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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Kind, NodeId};
use store::{SyncHead, SyncProgress};
use sync::Feed;

use super::link::{LinkReport, NodeLink};
use super::summary::SyncSummary;
use super::totals::{FleetSyncTotals, SyncShare, SyncTotals};
use crate::index::FleetIndex;
use crate::state::now;

/// The node is in the fleet no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeRemoved;

/// All nodes that have sets, links or wishes.
pub(crate) struct SyncIndex {
    index: Arc<FleetIndex>,
    nodes: Mutex<Summaries>,
}

/// All summaries, and what is derived of them.
#[derive(Default)]
struct Summaries {
    by_node: BTreeMap<NodeId, CountedSummary>,
    totals: SyncTotals,
    /// Nodes whose summaries the store does not have as they are.
    unsaved: BTreeSet<NodeId>,
}

/// A summary, and its share in the totals.
#[derive(Default)]
struct CountedSummary {
    summary: SyncSummary,
    share: SyncShare,
}

impl Summaries {
    fn get(&self, id: &NodeId) -> Option<&SyncSummary> {
        self.by_node.get(id).map(|counted| &counted.summary)
    }

    fn get_mut(&mut self, id: &NodeId) -> Option<&mut SyncSummary> {
        self.by_node.get_mut(id).map(|counted| &mut counted.summary)
    }

    /// A summary may have changed: it counts as it is.
    fn recount(&mut self, id: &NodeId) {
        let Some(counted) = self.by_node.get_mut(id) else { return };
        let now = SyncShare::of(&counted.summary);
        self.totals.replace(std::mem::replace(&mut counted.share, now), now);
        if counted.summary.unsaved {
            self.unsaved.insert(id.clone());
        }
    }

    fn remove(&mut self, id: &NodeId) -> Option<SyncSummary> {
        let CountedSummary { summary, share } = self.by_node.remove(id)?;
        self.totals.replace(share, SyncShare::default());
        self.unsaved.remove(id);
        Some(summary)
    }
}

impl SyncIndex {
    pub(super) fn new(index: Arc<FleetIndex>) -> SyncIndex {
        SyncIndex { index, nodes: Mutex::default() }
    }

    fn nodes(&self) -> MutexGuard<'_, Summaries> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in how far every node is, and the actions in their feeds by the revisions of their
    /// last changes.
    pub(super) fn fill(&self, heads: Vec<(NodeId, SyncHead)>, mut actions: BTreeMap<NodeId, Vec<u64>>) {
        let mut nodes = self.nodes();
        for (node, head) in heads {
            let actions = actions.remove(&node).unwrap_or_default();
            let summary = SyncSummary::restored(head, &actions);
            nodes.by_node.insert(node.clone(), CountedSummary { summary, share: SyncShare::default() });
            self.changed(&mut nodes, &node);
        }
    }

    /// A summary may have changed: counts it, and puts into the node's entry whether a link is wanted.
    fn changed(&self, nodes: &mut Summaries, id: &NodeId) {
        nodes.recount(id);
        let (Some(slot), Some(summary)) = (self.index.get(id), nodes.get(id)) else { return };
        let (waits, revision) = (summary.wants_link(), summary.revision());
        let mut entry = slot.lock();
        let unannounced = entry.work_changed(waits, revision);
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
        let done = change(&mut nodes.by_node.entry(id.clone()).or_default().summary);
        self.changed(&mut nodes, id);
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

    /// Everything in numbers, as they are kept.
    pub(crate) fn totals(&self) -> FleetSyncTotals {
        self.nodes().totals.view()
    }

    /// The feed is loaded: now it is known how many changes of objects the node lacks.
    pub(super) fn feed_loaded(&self, id: &NodeId, feed: &Feed) {
        let acked = self.read(id, |summary| summary.acked.clone());
        let acked = acked.filter(|acked| acked.incarnation == *feed.incarnation());
        // A feed may be long: other nodes do not wait for it.
        let from = acked.map_or(0, |acked| acked.revision);
        let lacks = feed.count_after_without(from, &Kind::new(Kind::ACTION));
        let mut nodes = self.nodes();
        if let Some(summary) = nodes.get_mut(id) {
            summary.lacks(lacks);
            self.changed(&mut nodes, id);
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
    /// There is no such node (any more), or it is revoked.
    pub(crate) fn link_opened(&self, link: &Arc<NodeLink>) -> Result<Option<Arc<NodeLink>>, NodeRemoved> {
        let mut nodes = self.nodes();
        // Whoever removes a node takes it out of the fleet's index first, then out of here.
        let slot = self.index.get(&link.node).ok_or(NodeRemoved)?;
        // Whoever revokes a node says so in the fleet's index first, then ends its link.
        if slot.lock().node.revoked.is_some() {
            return Err(NodeRemoved);
        }
        let summary = &mut nodes.by_node.entry(link.node.clone()).or_default().summary;
        if summary.link.as_ref().is_some_and(|stream| stream.goes_up_by(link)) {
            return Ok(None);
        }
        let before = summary.link.replace(link.clone());
        if let Some(before) = &before {
            before.end("replaced", "the node opened another link");
        }
        self.changed(&mut nodes, &link.node);
        Ok(before)
    }

    /// A link is gone; a newer one stays.
    pub(crate) fn link_closed(&self, link: &Arc<NodeLink>) {
        let mut nodes = self.nodes();
        // A node that was removed meanwhile does not come back by this.
        let Some(summary) = nodes.get_mut(&link.node) else { return };
        summary.link_closed(link, now());
        self.changed(&mut nodes, &link.node);
    }

    /// All links that are open.
    pub(crate) fn links(&self) -> Vec<Arc<NodeLink>> {
        self.nodes().by_node.values().filter_map(|counted| counted.summary.link.clone()).collect()
    }

    /// The node is removed.
    pub(super) fn remove(&self, id: &NodeId) -> Option<SyncSummary> {
        self.nodes().remove(id)
    }

    /// How far nodes acknowledged and what comparisons came to since the last time.
    pub(super) fn take_unsaved(&self) -> Vec<SyncProgress> {
        let nodes = &mut *self.nodes();
        let unsaved = std::mem::take(&mut nodes.unsaved);
        unsaved.iter().filter_map(|id| nodes.get_mut(id)?.take_unsaved(id)).collect()
    }

    /// These outcomes could not be persisted: they are taken again.
    pub(super) fn not_saved(&self, lost: &[SyncProgress]) {
        let mut nodes = self.nodes();
        for progress in lost {
            if let Some(summary) = nodes.get_mut(&progress.node) {
                summary.unsaved = true;
                nodes.unsaved.insert(progress.node.clone());
            }
        }
    }
}
