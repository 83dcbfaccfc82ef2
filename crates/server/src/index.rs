//! The FleetIndex: every node in memory, for the hot path (CNV-4).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use model::log::{Cursor, Fact};
use model::replication::Mode;
pub(crate) use model::text::beginning;
use model::{
    CertificateValidity, Channel, Digest, FailureKey, FailureNote, Hostname, NodeId, RunsHeard, Timestamp,
};
use plane::renewal::{CertificateIssuer, CertificateRecovery};
use plane::{Heads, KeptSeen, NodeState};
use store::{NodeRecord, Touch};
use tokio::sync::Notify;
use trust::PublicKey;
use wire::{Code, Problem};

use crate::authority::CountingIssuers;
use crate::declared::{DeclaredNode, LabelIndex, SetFacts};
use crate::streams::StreamAdmission;
use crate::totals::{CountedNode, FleetTotals};

/// All active nodes by id and by hostname.
#[derive(Default)]
pub(crate) struct FleetIndex {
    nodes: RwLock<Tables>,
    /// On how many nodes something fails for a cause. Taken while a node's entry is locked, and never
    /// the other way round.
    failing: Mutex<BTreeMap<FailureKey, u32>>,
    /// The fleet in numbers. Taken while a node's entry is locked, and never the other way round.
    totals: Mutex<FleetTotals>,
    /// Nodes that changed since they were counted, each once. Taken as `totals` is.
    queue: Mutex<Vec<Arc<NodeSlot>>>,
    /// Nodes whose contact waits to be persisted, each once. Taken as `totals` is.
    touched: Mutex<Vec<Arc<NodeSlot>>>,
    /// By what all nodes were counted; `None` before they were.
    counted_by: Mutex<Option<CountBasis>>,
    /// Nodes by what is declared of them. Taken as `totals` is.
    declared: LabelIndex,
    /// One brings the totals up to date at a time.
    pub(crate) refreshing: tokio::sync::Mutex<()>,
    /// Nodes whose set is another one than the index has declared facts of, each once. Taken as `totals` is.
    undeclared: Mutex<Vec<Arc<NodeSlot>>>,
    /// One reads what is declared at a time.
    pub(crate) declaring: tokio::sync::Mutex<()>,
}

/// What changes how every node counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountBasis {
    /// The version of the heads.
    pub(crate) heads: u64,
    /// Who recovers a certificate, which goes by the posture.
    pub(crate) recovery: CertificateRecovery,
    /// Whose certificates count.
    pub(crate) issuers: CountingIssuers,
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
    dirty: bool,
    /// Of a node that synchronizes, which most of a large fleet do not.
    work: Option<Box<WorkNotice>>,
    /// The version of the newest trust document that it was sent.
    pub(crate) trust_sent: u64,
    /// It waits to be counted anew.
    pub(crate) queued: bool,
    /// Its share in the totals.
    counted: Option<Box<CountedNode>>,
    /// What is declared of it, as the index has it.
    declared: Option<Box<DeclaredNode>>,
    /// It waits until what is declared of it is read.
    declare_queued: bool,
    /// Whether the node is to compare its objects because the control plane started.
    pub(crate) comparison: StartComparison,
    /// It left the index, and what it fails for is counted no more.
    removed: bool,
}

/// What goes down to a node.
#[derive(Default)]
struct WorkNotice {
    /// Its last change.
    head: u64,
    /// Up to which change the node was notified that work waits; a long poll is answered at once for each of them
    /// once.
    notified: Option<u64>,
}

impl NodeEntry {
    /// What goes down to the node ends with this revision now, and waits for a link or not; `true` where the node is to
    /// be notified.
    pub(crate) fn work_changed(&mut self, waits: bool, revision: u64) -> bool {
        let before = std::mem::replace(&mut self.node.work_waits, waits);
        let work = self.work.get_or_insert_default();
        work.head = revision;
        waits && (!before || work.notified != Some(revision))
    }

    /// An answer asks the node for a stream; `true` where it is the first that does so for the last change.
    pub(crate) fn note_work_notified(&mut self) -> bool {
        let work = self.work.get_or_insert_default();
        let head = Some(work.head);
        std::mem::replace(&mut work.notified, head) != head
    }

    /// It counts as something else than it is by these heads at this time.
    pub(crate) fn counts_otherwise(&mut self, heads: &Heads, now: Timestamp) -> bool {
        let state = self.node.status(heads, now).overall();
        self.counted.as_ref().is_none_or(|counted| counted.state != state)
    }
}

/// What became of what a set declares of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeclareOutcome {
    /// It is kept, in the place of a set of this mode.
    After(Mode),
    /// The node was pointed to another set meanwhile: what was kept before is kept still.
    Outdated,
}

/// Whether a node is to compare its objects because the control plane started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartComparison {
    /// It is in the data from before the start, which may be a backup's, and did not call since.
    Due,
    /// It was asked to, or has nothing to compare, or came after the start.
    Asked,
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

    /// How its synchronization stood when it was counted last; `None` before.
    pub(crate) fn counted_sync(&self) -> Option<model::condition::SyncState> {
        self.lock().counted.as_ref().map(|counted| counted.sync)
    }

    /// Its share in the totals, as it was counted last.
    pub(crate) fn counted(&self) -> Option<CountedNode> {
        self.lock().counted.as_deref().cloned()
    }

    /// The mode of the set of this root, where it is what the index has of the node.
    pub(crate) fn declared_mode(&self, root: &Digest) -> Option<Mode> {
        self.lock().declared.as_ref().filter(|declared| declared.root == *root).map(|declared| declared.mode)
    }

    /// The index has what is declared of it, as the last [`crate::refresh::refresh_declared`] left it.
    pub(crate) fn is_declared(&self) -> bool {
        self.lock().declared.is_some()
    }

    /// The entry. A panic elsewhere while it was held cannot have left it half changed:
    /// every change is one assignment of the step's.
    pub(crate) fn lock(&self) -> MutexGuard<'_, NodeEntry> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FleetIndex {
    /// Fills the index from the store's records. Names of channels are shared by all that were filled with the same
    /// `channels`.
    pub(crate) fn fill(&self, records: Vec<NodeRecord>, channels: &mut BTreeSet<Channel>) {
        for record in records {
            match record.public_key.parse::<PublicKey>() {
                Ok(key) => {
                    let mut node = restored(record, key);
                    node.held.iter_mut().for_each(|held| share(&mut held.channel, channels));
                    let id = node.id.clone();
                    self.insert(node);
                    if let Some(slot) = self.get(&id) {
                        slot.lock().comparison = StartComparison::Due;
                    }
                }
                Err(_) => tracing::error!(node = %record.node_id, "a stored node has no valid key"),
            }
        }
    }

    /// The control plane was away before `started`: that is no silence of its nodes (LIF-1).
    pub(crate) fn leave_out_absence(&self, started: Timestamp) {
        let slots = self.all();
        let newest = slots.iter().map(|slot| slot.lock().node.heard_at()).max();
        let absence = plane::absence_before(started, newest);
        slots.iter().for_each(|slot| slot.lock().node.control_plane_was_absent(absence));
    }

    /// Adds a node, or replaces it.
    pub(crate) fn insert(&self, node: NodeState) {
        self.count_failures(&[], &node.summary.failures);
        let mut tables = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        tables.by_name.insert(node.hostname.clone(), node.id.clone());
        let id = node.id.clone();
        let entry = NodeEntry {
            node,
            dirty: false,
            work: None,
            queued: false,
            trust_sent: 0,
            counted: None,
            declared: None,
            declare_queued: false,
            comparison: StartComparison::Asked,
            removed: false,
        };
        let slot = NodeSlot { state: Mutex::new(entry), wake: Notify::new(), admission: OnceLock::new() };
        let slot = Arc::new(slot);
        if let Some(old) = tables.by_id.insert(id, slot.clone()) {
            self.forget(&old);
        }
        self.mark(&slot);
    }

    /// Takes a node out.
    pub(crate) fn remove(&self, id: &NodeId) {
        let mut tables = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = tables.by_id.remove(id) {
            tables.by_name.remove(&slot.names().1);
            self.forget(&slot);
        }
    }

    /// Facts of a node were made durable.
    pub(crate) fn accepted(&self, slot: &Arc<NodeSlot>, cursor: Cursor, new: &[Fact]) {
        let mut entry = slot.lock();
        let before = entry.node.summary.failures.clone();
        entry.node.accepted(cursor, new);
        if !entry.removed {
            self.touch(slot, &mut entry);
            self.count_failures(&before, &entry.node.summary.failures);
            self.mark_entry(slot, &mut entry);
        }
    }

    /// It leaves the index: what counts of it is taken out.
    fn forget(&self, slot: &NodeSlot) {
        let mut entry = slot.lock();
        if !std::mem::replace(&mut entry.removed, true) {
            self.count_failures(&entry.node.summary.failures, &[]);
            let declared = entry.declared.take();
            self.declared.remove(&entry.node.hostname, declared.as_deref());
            if let Some(counted) = entry.counted.take() {
                let (id, name) = (&entry.node.id, &entry.node.hostname);
                self.locked_totals().replace(id, name, Some(&counted), None);
            }
        }
    }

    /// The mode of a node that is pointed to the set of this root. Where that is not declared yet the node waits until
    /// it is, and the mode is that of the set before.
    pub(crate) fn mode_or_queue(&self, slot: &Arc<NodeSlot>, root: Option<&Digest>) -> Mode {
        let mut entry = slot.lock();
        let known = entry.declared.as_ref().map(|declared| (declared.root, declared.mode));
        if known.map(|(root, _)| root).as_ref() != root
            && !entry.removed
            && !std::mem::replace(&mut entry.declare_queued, true)
        {
            self.undeclared.lock().unwrap_or_else(PoisonError::into_inner).push(slot.clone());
        }
        known.filter(|_| root.is_some()).map_or(Mode::Off, |(_, mode)| mode)
    }

    /// What is declared of all nodes is known.
    pub(crate) fn is_all_declared(&self) -> bool {
        self.undeclared.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// A node of which is to be read what is declared. Whoever takes it holds `declaring`, and reads it.
    pub(crate) fn take_undeclared(&self) -> Option<Arc<NodeSlot>> {
        let slot = self.undeclared.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        slot.lock().declare_queued = false;
        Some(slot)
    }

    /// What the set of a root declares of a node; `None` when it is pointed to none that is known. It is kept only if
    /// that is the root that `pointed` says then: a read takes its time. What was kept is looked at by the same lock
    /// when heads that are newer are counted.
    pub(crate) fn declare(
        &self,
        slot: &NodeSlot,
        facts: Option<(Digest, SetFacts)>,
        pointed: impl FnOnce(&mut NodeState) -> Option<Digest>,
    ) -> DeclareOutcome {
        let mut entry = slot.lock();
        if entry.removed {
            return DeclareOutcome::After(Mode::Off);
        }
        if facts.as_ref().is_some_and(|(root, _)| pointed(&mut entry.node) != Some(*root)) {
            return DeclareOutcome::Outdated;
        }
        let before = entry.declared.take();
        let name = &entry.node.hostname;
        match facts {
            None => self.declared.remove(name, before.as_deref()),
            Some((root, facts)) => {
                let declared = self.declared.replace(name, before.as_deref(), root, facts);
                entry.declared = Some(Box::new(declared));
            }
        }
        DeclareOutcome::After(before.map_or(Mode::Off, |before| before.mode))
    }

    /// Nodes by what is declared of them, as the last [`crate::refresh::refresh_declared`] left them.
    pub(crate) fn declared(&self) -> &LabelIndex {
        &self.declared
    }

    fn locked_totals(&self) -> MutexGuard<'_, FleetTotals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the fleet in numbers, briefly; as the last [`crate::refresh::refresh`] left them.
    pub(crate) fn totals<T>(&self, look: impl FnOnce(&FleetTotals) -> T) -> T {
        look(&self.locked_totals())
    }

    /// A node may count otherwise than it does.
    pub(crate) fn mark(&self, slot: &Arc<NodeSlot>) {
        self.mark_entry(slot, &mut slot.lock());
    }

    /// The same, where its entry is locked.
    pub(crate) fn mark_entry(&self, slot: &Arc<NodeSlot>, entry: &mut NodeEntry) {
        if !entry.removed && !std::mem::replace(&mut entry.queued, true) {
            self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(slot.clone());
        }
    }

    /// Every node counts as it is by this basis at this time.
    pub(crate) fn is_refreshed(&self, basis: CountBasis, now: Timestamp) -> bool {
        *self.counted_by.lock().unwrap_or_else(PoisonError::into_inner) == Some(basis)
            && self.queue.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
            && !self.locked_totals().has_due(now)
    }

    /// The nodes that are to be judged, so that each counts as it is by this basis at this time. Whoever
    /// takes them holds `refreshing`, and judges each.
    pub(crate) fn take_queued(&self, basis: CountBasis, now: Timestamp) -> Vec<Arc<NodeSlot>> {
        let changed = std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        let before = self.counted_by.lock().unwrap_or_else(PoisonError::into_inner).replace(basis);
        if before != Some(basis) {
            return self.page("", usize::MAX);
        }
        let mut due = Vec::new();
        while let Some(id) = self.next_due(now) {
            due.extend(self.get(&id));
        }
        due.extend(changed);
        due
    }

    fn next_due(&self, now: Timestamp) -> Option<NodeId> {
        self.locked_totals().take_due(now)
    }

    /// Counts a node as it is judged now.
    pub(crate) fn count(
        &self,
        slot: &NodeSlot,
        judged: impl FnOnce(&mut NodeState, &FleetTotals) -> CountedNode,
    ) {
        let mut entry = slot.lock();
        if entry.removed {
            return;
        }
        let mut totals = self.locked_totals();
        let now = judged(&mut entry.node, &totals);
        let before = entry.counted.replace(Box::new(now));
        let (id, name) = (&entry.node.id, &entry.node.hostname);
        totals.replace(id, name, before.as_deref(), entry.counted.as_deref());
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

    /// All nodes, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<NodeSlot>> {
        let tables = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        tables.by_id.values().cloned().collect()
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

    /// Nodes by their hostnames; those that are not there are left out.
    pub(crate) fn of_names(&self, names: &[Hostname]) -> Vec<Arc<NodeSlot>> {
        let tables = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        let slot = |name: &Hostname| tables.by_id.get(tables.by_name.get(name)?).cloned();
        names.iter().filter_map(slot).collect()
    }

    /// So many nodes in the order of their hostnames, from a hostname on.
    pub(crate) fn page(&self, from: &str, limit: usize) -> Vec<Arc<NodeSlot>> {
        let tables = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        let later = tables.by_name.range::<str, _>((Bound::Included(from), Bound::Unbounded));
        later.filter_map(|(_, id)| tables.by_id.get(id).cloned()).take(limit).collect()
    }

    /// A node called, or something that is kept with its contact changed.
    pub(crate) fn touch(&self, slot: &Arc<NodeSlot>, entry: &mut NodeEntry) {
        if !std::mem::replace(&mut entry.dirty, true) {
            self.touched.lock().unwrap_or_else(PoisonError::into_inner).push(slot.clone());
        }
    }

    /// Contacts that were not yet persisted; they count as persisted from now on.
    pub(crate) fn take_touches(&self) -> Vec<Touch> {
        let touched = std::mem::take(&mut *self.touched.lock().unwrap_or_else(PoisonError::into_inner));
        let mut touches = Vec::with_capacity(touched.len());
        for slot in touched {
            let mut entry = slot.lock();
            entry.dirty = false;
            if let (false, Some(last_seen)) = (entry.removed, entry.node.last_seen) {
                touches.push(Touch {
                    node: entry.node.id.clone(),
                    last_seen,
                    held: entry.node.held.clone(),
                    run: entry.node.run.clone(),
                    runs_heard: entry.node.runs.clone(),
                    promised_secs: entry.node.promised.as_secs(),
                    conditions: entry.node.open_items().conditions.clone(),
                    trust_version: entry.node.trust_version,
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

/// One copy of a channel's name.
fn share(channel: &mut Channel, known: &mut BTreeSet<Channel>) {
    match known.get(channel) {
        Some(known) => *channel = known.clone(),
        None => drop(known.insert(channel.clone())),
    }
}

fn restored(record: NodeRecord, key: PublicKey) -> NodeState {
    let mut node = NodeState::new(record.node_id, record.hostname, key, record.cert_not_before);
    node.certificate_used = record.cert_used;
    node.key_confirmation = record.key_confirmation;
    if let Some(capabilities) = &record.capabilities {
        node.keep_agent_version(&capabilities.version);
    }
    let from = record.cert_renewed.unwrap_or(record.cert_not_before);
    node.certificate = record.cert_not_after.map(|until| CertificateValidity { from, until });
    node.issuer = record.cert_authority.as_deref().and_then(CertificateIssuer::named);
    node.keep_invocation(record.invocation);
    node.last_seen = record.last_seen;
    if record.promised_secs > 0 {
        node.promised = std::time::Duration::from_secs(record.promised_secs);
    }
    node.held = record.held;
    node.run = record.run;
    // An earlier version did not keep it: the run by the node's clock, if that is not ahead; the set at the latest.
    node.runs = record.runs_heard.unwrap_or_else(|| RunsHeard {
        run: node.run.as_ref().map(|run| run.at).min(node.last_seen),
        held: node.last_seen.filter(|_| node.held.is_some()),
        ..RunsHeard::default()
    });
    node.cursor = record.cursor;
    node.traits = record.traits;
    node.keep_seen(record.seen.as_ref().and_then(KeptSeen::restored));
    node.trust_version = record.trust_version;
    node.change_open_items(|open_items| {
        open_items.conditions = record.conditions;
        open_items.copied = record.copied;
        open_items.run_request = record.run_request;
        open_items.tagged_run = record.tagged_run;
    });
    node.summary = record.runs;
    node.keep_contended(&record.contended);
    if let Some(refusal) = record.refusal {
        node.keep_refusal(&refusal.code, &refusal.message);
    }
    node
}

#[cfg(test)]
mod tests;
