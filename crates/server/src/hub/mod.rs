//! [`Hub`]: the two sets of every node that synchronizes, in memory while a link, a post or an operator
//! needs them, and of all nodes a [`SyncSummary`], always.
//!
//! ```text
//! operator's change --> NodeSync (node.rs): plan, store, commit --> head: Signal --> the node's link
//! link's batch ------> NodeSync: store, then the link commits to the replica
//! NodeLink (link.rs): the one link of a node    SyncIndex (index.rs): the summaries of all nodes
//! Hub::flush: what links acknowledged and compared --> store
//! ```
//!
//! Invariants: of a node's sets one copy counts, the others are stale, and none is ahead of the store; a
//! node has at most one link, beside whose server-sent events a post is the way up, and a newer one ends
//! the one before; the answer to "how does it stand" loads no set.

mod index;
pub(crate) mod link;
pub(crate) mod node;
mod recent;
mod summary;
mod totals;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use model::condition::{NodeProblem, node_status_key};
use model::{Incarnation, Kind, NodeId};
use store::{ObjectFilter, ObjectRecord, Store, StoreError};
use sync::Side;

pub(crate) use index::SyncIndex;
pub(crate) use link::{LinkReport, NodeLink, Wants};
use node::NodeShared;
pub(crate) use node::{EditOutcome, FeedEdit, NodeSync, Uid};
pub(crate) use summary::{ConditionContext, SyncSummary};
pub(crate) use totals::FleetSyncTotals;

use crate::feed_signing::FeedSigning;
use crate::index::FleetIndex;
use crate::posture;
use crate::state::GivenUp;

/// Entries of nodes whose sets are not held any more are swept when there are this many.
const SWEEP_AT: usize = 1024;
/// Nodes loaded at once; one node never twice.
const LOADS: usize = 16;
/// Nodes whose sets are kept between their posts.
const RECENT: usize = 64;
/// How long a resync by posts may keep its node's sets in memory.
const RESYNC_WITHIN: Duration = Duration::from_secs(300);
/// Objects read at once.
const PAGE: usize = 1000;

/// Why a node's sets cannot be had or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HubError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operating system gives no randomness.
    #[error("no randomness")]
    Random,
    /// The work was given up.
    #[error(transparent)]
    GivenUp(#[from] GivenUp),
}

/// All nodes' sets.
pub(crate) struct Hub {
    store: Arc<Store>,
    /// Proves what nodes are given.
    pub(crate) signing: Arc<FeedSigning>,
    sync_index: Arc<SyncIndex>,
    /// Those that a link, a post or an operator's request holds.
    nodes: Mutex<HashMap<NodeId, Weak<NodeSync>>>,
    /// Sets that posts were answered from last: the next posts want them.
    recent: Mutex<VecDeque<(Arc<NodeSync>, Instant)>>,
    /// A node is loaded by one at a time, so that there are never two of it in memory.
    loading: [tokio::sync::Mutex<()>; LOADS],
}

impl Hub {
    pub(crate) fn new(store: Arc<Store>, index: Arc<FleetIndex>) -> Hub {
        Hub {
            store,
            signing: Arc::default(),
            sync_index: Arc::new(SyncIndex::new(index)),
            nodes: Mutex::default(),
            recent: Mutex::default(),
            loading: std::array::from_fn(|_| tokio::sync::Mutex::default()),
        }
    }

    /// Learns how far every node is. The fleet's index is filled before.
    pub(crate) async fn fill(&self) -> Result<(), StoreError> {
        let heads = self.store.sync_heads().await?;
        self.sync_index.fill(heads, self.actions().await?);
        self.fill_node_problems().await
    }

    /// What nodes say of the backends of their objects.
    async fn fill_node_problems(&self) -> Result<(), StoreError> {
        let key = node_status_key();
        for record in self.all_of(Side::Replica, &key.section.kind).await? {
            let request = self.store.sync_contents(&record.node, Side::Replica, vec![key.clone()]);
            let content = request.await?.into_iter().flatten().next();
            let problem = content.and_then(|content| NodeProblem::from_content(&content.bytes));
            self.sync_index.update(&record.node, |summary| summary.node_problem = problem);
        }
        Ok(())
    }

    /// The actions that wait in feeds, by the numbers of their last changes.
    async fn actions(&self) -> Result<BTreeMap<NodeId, Vec<u64>>, StoreError> {
        let mut found = BTreeMap::<NodeId, Vec<u64>>::new();
        for action in self.all_of(Side::Feed, &Kind::new(Kind::ACTION)).await? {
            found.entry(action.node).or_default().push(action.rev);
        }
        Ok(found)
    }

    /// All objects of a kind, of every node: at most a few of each.
    pub(crate) async fn all_of(&self, side: Side, kind: &Kind) -> Result<Vec<ObjectRecord>, StoreError> {
        let filter = ObjectFilter { side: Some(side), kind: Some(kind.clone()), ..ObjectFilter::default() };
        let mut found: Vec<ObjectRecord> = Vec::new();
        loop {
            let after = found.last().map(ObjectRecord::position);
            let page = self.store.sync_objects(filter.clone(), after, PAGE).await?;
            if page.is_empty() {
                return Ok(found);
            }
            found.extend(page);
        }
    }

    /// What is known of nodes without loading them.
    pub(crate) fn sync_index(&self) -> &SyncIndex {
        &self.sync_index
    }

    /// A node's sets, from memory or the store. Hold them while they are needed.
    pub(crate) async fn node(&self, id: &NodeId) -> Result<Arc<NodeSync>, HubError> {
        if let Some(found) = self.held(id) {
            return Ok(found);
        }
        let shard = id.as_str().bytes().fold(0usize, |sum, byte| sum + usize::from(byte)) % LOADS;
        let _one = self.loading[shard].lock().await;
        if let Some(found) = self.held(id) {
            return Ok(found);
        }
        let saved = self.store.sync_load(id).await?;
        let shared = NodeShared {
            store: self.store.clone(),
            signing: self.signing.clone(),
            sync_index: self.sync_index.clone(),
        };
        let node = Arc::new(NodeSync::restore(id.clone(), shared, saved)?);
        if !self.signing.believes(&self.store.sync_first_proofs(id).await?) {
            // Nodes take nothing of it: the same objects in a new incarnation are signed anew, at once.
            node.reincarnate().await?;
        }
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.len() >= SWEEP_AT && nodes.len().is_power_of_two() {
            nodes.retain(|_, node| node.strong_count() > 0);
        }
        nodes.insert(id.clone(), Arc::downgrade(&node));
        Ok(node)
    }

    /// Keeps the sets in memory for the node's next post, among [`RECENT`]. The first to go is the
    /// oldest that is not in the middle of a resync, whose progress goes with it; one that is has
    /// its permit for [`RESYNC_WITHIN`].
    pub(crate) fn remember(&self, node: &Arc<NodeSync>) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let known = recent.iter().position(|(one, _)| Arc::ptr_eq(one, node));
        let since = known.and_then(|at| recent.remove(at)).map_or_else(Instant::now, |(_, since)| since);
        recent.push_back((node.clone(), since));
        if recent.len() > RECENT {
            let may_go = |(one, since): &(Arc<NodeSync>, Instant)| {
                since.elapsed() > RESYNC_WITHIN || !one.sets().replica.is_resyncing()
            };
            let first = recent.iter().position(may_go).unwrap_or(RECENT);
            recent.remove(first);
        }
    }

    /// A node's sets, if they are in memory.
    pub(crate) fn held(&self, id: &NodeId) -> Option<Arc<NodeSync>> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.get(id)?.upgrade().filter(|node| !node.is_stale())
    }

    /// Makes edits of one node's feed durable.
    pub(crate) async fn change(
        &self,
        id: &NodeId,
        edits: Vec<FeedEdit>,
    ) -> Result<Vec<EditOutcome>, HubError> {
        self.node(id).await?.change(edits, self.store.clone()).await
    }

    /// The same through this handle of the store, which appends the entry of a request to the audit log.
    pub(crate) async fn change_recorded(
        &self,
        id: &NodeId,
        edits: Vec<FeedEdit>,
        store: Arc<Store>,
    ) -> Result<Vec<EditOutcome>, HubError> {
        self.node(id).await?.change(edits, store).await
    }

    /// A node is removed from the fleet: its link ends, and nothing of it stays.
    pub(crate) fn remove(&self, id: &NodeId) {
        if let Some(link) = self.sync_index.remove(id).and_then(|summary| summary.link) {
            link.end("removed", "the node was removed from the fleet");
        }
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).retain(|(node, _)| node.id != *id);
    }

    /// Nodes believe another key of the control plane's: sets that are in memory are loaded anew, and signed anew
    /// where need be.
    pub(crate) fn signers_changed(&self) {
        let held: Vec<Arc<NodeSync>> = {
            let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.values().filter_map(Weak::upgrade).collect()
        };
        for node in held {
            node.abandon();
            if let Some(link) = self.sync_index.link(&node.id) {
                link.end(
                    "reincarnated",
                    "the control plane signs by another key, and signs anew what it gave",
                );
            }
        }
    }

    /// A node is revoked: its link ends, and what is kept for it stays.
    pub(crate) fn revoke(&self, id: &NodeId) {
        if let Some(link) = self.sync_index.link(id) {
            link.end("revoked", "the node is revoked");
        }
    }

    /// Persists how far nodes acknowledged, and what comparisons came to.
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        let unsaved = self.sync_index.take_unsaved();
        self.store.sync_progress(unsaved.clone()).await.inspect_err(|_| self.sync_index.not_saved(&unsaved))
    }
}

pub(crate) fn fresh_incarnation() -> Result<Incarnation, HubError> {
    let bytes = posture::random::<8>().map_err(|_| HubError::Random)?;
    // An `s` and hex digits are always a name.
    format!("s{}", data_encoding::HEXLOWER.encode(&bytes)).parse().map_err(|_| HubError::Random)
}
