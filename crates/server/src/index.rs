//! The FleetIndex: every node in memory, for the hot path (CNV-4).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use model::log::{Cursor, Fact};
use model::{Digest, FailureKey, FailureNote, Hostname, NodeId};
use plane::{Heads, KeptSeen, NodeState};
use store::{NodeRecord, Touch};
use tokio::sync::Notify;
use trust::PublicKey;
use wire::{Code, Problem};

use crate::streams::StreamAdmission;

/// All active nodes by id and by hostname.
#[derive(Default)]
pub(crate) struct FleetIndex {
    nodes: RwLock<Tables>,
    /// On how many nodes something fails for a cause. Taken while a node's entry is locked, and never
    /// the other way round.
    failing: Mutex<BTreeMap<FailureKey, u32>>,
}

#[derive(Default)]
struct Tables {
    by_id: HashMap<NodeId, Arc<NodeSlot>>,
    by_name: BTreeMap<Hostname, NodeId>,
}

/// One node's entry.
pub(crate) struct NodeSlot {
    state: Mutex<NodeEntry>,
    /// Wakes the node's long polls: a run was requested, or work waits.
    pub(crate) wake: Notify,
    /// Made for the first link: most nodes of a large fleet have none.
    admission: OnceLock<Arc<StreamAdmission>>,
}

/// A node's state, and whether its contact waits to be persisted.
pub(crate) struct NodeEntry {
    pub(crate) node: NodeState,
    pub(crate) dirty: bool,
    /// The last change of what goes down to the node.
    pub(crate) work_head: u64,
    /// Up to which change the node was notified that work waits; a long poll is answered at once
    /// for each of them once.
    pub(crate) work_notified: Option<u64>,
    /// It left the index, and what it fails for is counted no more.
    removed: bool,
}

impl NodeSlot {
    /// The node's id.
    pub(crate) fn id(&self) -> NodeId {
        self.lock().node.id.clone()
    }

    /// The node's id and hostname.
    pub(crate) fn names(&self) -> (NodeId, Hostname) {
        let entry = self.lock();
        (entry.node.id.clone(), entry.node.hostname.clone())
    }

    /// The root of the set that the node is pointed to.
    pub(crate) fn pointed_root(&self, heads: &Heads) -> Option<Digest> {
        self.lock().node.pointed(heads).map(|(_, entry)| entry.root)
    }

    /// The number of the release that the node is pointed to.
    pub(crate) fn pointed_seq(&self, heads: &Heads) -> Option<u64> {
        self.lock().node.pointed(heads).map(|(head, _)| head.header.seq)
    }

    /// How the node opens links.
    pub(crate) fn stream_admission(&self) -> &Arc<StreamAdmission> {
        self.admission.get_or_init(Arc::default)
    }

    /// The entry. A panic elsewhere while it was held cannot have left it half changed:
    /// every change is one assignment of the step's.
    pub(crate) fn lock(&self) -> MutexGuard<'_, NodeEntry> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FleetIndex {
    /// Fills the index from the store's records.
    pub(crate) fn fill(&self, records: Vec<NodeRecord>) {
        for record in records {
            match record.public_key.parse::<PublicKey>() {
                Ok(key) => self.insert(restored(record, key)),
                Err(_) => tracing::error!(node = %record.node_id, "a stored node has no valid key"),
            }
        }
    }

    /// Adds a node, or replaces it.
    pub(crate) fn insert(&self, node: NodeState) {
        self.count_failures(&[], &node.summary.failures);
        let mut tables = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        tables.by_name.insert(node.hostname.clone(), node.id.clone());
        let entry = NodeEntry { node, dirty: false, work_head: 0, work_notified: None, removed: false };
        let slot = NodeSlot { state: Mutex::new(entry), wake: Notify::new(), admission: OnceLock::new() };
        let id = slot.lock().node.id.clone();
        if let Some(old) = tables.by_id.insert(id, Arc::new(slot)) {
            self.forget_failures(&old);
        }
    }

    /// Takes a node out.
    pub(crate) fn remove(&self, id: &NodeId) {
        let mut tables = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = tables.by_id.remove(id) {
            tables.by_name.remove(&slot.names().1);
            self.forget_failures(&slot);
        }
    }

    /// Facts of a node were made durable.
    pub(crate) fn accepted(&self, slot: &NodeSlot, cursor: Cursor, new: &[Fact]) {
        let mut entry = slot.lock();
        let before = entry.node.summary.failures.clone();
        entry.node.accepted(cursor, new);
        if !entry.removed {
            self.count_failures(&before, &entry.node.summary.failures);
        }
    }

    fn forget_failures(&self, slot: &NodeSlot) {
        let mut entry = slot.lock();
        if !std::mem::replace(&mut entry.removed, true) {
            self.count_failures(&entry.node.summary.failures, &[]);
        }
    }

    /// A node of the index fails for other causes than before.
    fn count_failures(&self, before: &[FailureNote], now: &[FailureNote]) {
        if before == now {
            return;
        }
        let keys = |notes: &[FailureNote]| notes.iter().map(FailureNote::key).collect::<BTreeSet<_>>();
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys(now) {
            *failing.entry(key).or_default() += 1;
        }
        for key in keys(before) {
            if let Some(count) = failing.get_mut(&key) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    failing.remove(&key);
                }
            }
        }
    }

    /// On how many other nodes of the index these failures of one are failures too, by resource; those
    /// of it alone are left out.
    pub(crate) fn others_failing(&self, notes: &[FailureNote]) -> BTreeMap<String, u32> {
        if notes.is_empty() {
            return BTreeMap::new();
        }
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let others = |note: &FailureNote| {
            let count = failing.get(&note.key())?.saturating_sub(1);
            (count > 0).then(|| (note.resource.clone(), count))
        };
        notes.iter().filter_map(others).collect()
    }

    /// A node by id.
    pub(crate) fn get(&self, id: &NodeId) -> Option<Arc<NodeSlot>> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).by_id.get(id).cloned()
    }

    /// A node by id or hostname.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<NodeSlot>> {
        if let Ok(id) = name.parse::<NodeId>()
            && let Some(slot) = self.get(&id)
        {
            return Some(slot);
        }
        let tables = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        let hostname: Hostname = name.parse().ok()?;
        tables.by_id.get(tables.by_name.get(&hostname)?).cloned()
    }

    /// A node by id or hostname, as an operator names it.
    pub(crate) fn named(&self, name: &str) -> Result<Arc<NodeSlot>, Problem> {
        let unknown = || Problem::new(Code::NotFound, format!("no node {:?} is enrolled", clip(name)));
        self.find(name).ok_or_else(unknown)
    }

    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).by_id.len()
    }

    /// So many nodes in the order of their hostnames, from a hostname on.
    pub(crate) fn page(&self, from: &str, limit: usize) -> Vec<Arc<NodeSlot>> {
        let tables = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        let later = tables.by_name.range::<str, _>((Bound::Included(from), Bound::Unbounded));
        later.filter_map(|(_, id)| tables.by_id.get(id).cloned()).take(limit).collect()
    }

    /// Contacts that were not yet persisted; they count as persisted from now on.
    pub(crate) fn take_touches(&self) -> Vec<Touch> {
        let mut touches = Vec::new();
        for slot in self.page("", usize::MAX) {
            let mut entry = slot.lock();
            if let (true, Some(last_seen)) = (entry.dirty, entry.node.last_seen) {
                entry.dirty = false;
                touches.push(Touch {
                    node: entry.node.id.clone(),
                    last_seen,
                    held: entry.node.held.clone(),
                    run: entry.node.run.clone(),
                    promised_secs: entry.node.promised.as_secs(),
                });
            }
        }
        touches
    }
}

/// What is worth repeating of a text that somebody sent.
pub(crate) fn clip(text: &str) -> String {
    beginning(text, 100).to_owned()
}

/// The first so many bytes of a text, to the end of a character.
pub(crate) fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

fn restored(record: NodeRecord, key: PublicKey) -> NodeState {
    let mut node = NodeState::new(record.node_id, record.hostname, key, record.cert_not_before);
    node.certificate_used = record.cert_used;
    node.last_seen = record.last_seen;
    if record.promised_secs > 0 {
        node.promised = std::time::Duration::from_secs(record.promised_secs);
    }
    node.held = record.held;
    node.run = record.run;
    // When they were heard of is not kept: the run by the node's clock, if that is not ahead; the set at the latest.
    node.run_heard = node.run.as_ref().map(|run| run.at).min(node.last_seen);
    node.held_heard = node.last_seen.filter(|_| node.held.is_some());
    node.cursor = record.cursor;
    node.traits = record.traits;
    node.seen = record.seen.as_ref().and_then(KeptSeen::restored).map(Box::new);
    node.run_request = record.run_request;
    node.tagged_run = record.tagged_run.map(Box::new);
    node.summary = record.runs;
    node.keep_contended(&record.contended);
    if let Some(refusal) = record.refusal {
        node.keep_refusal(&refusal.code, &refusal.message);
    }
    node
}
