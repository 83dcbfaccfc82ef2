//! [`MemoryStore`]: the store as plain maps. The model that other backends are held
//! against, and the store of simulations. Durable only as long as the process lives.

mod chunks;
mod nodes;
mod releases;
mod sync;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::sync::FeedCursor;
use async_trait::async_trait;
use bytes::Bytes;
use model::chunk::Chunk;
use model::condition::SyncCondition;
use model::exchange::{Signed, TraitReport};
use model::log::Fact;
use model::{Channel, Digest, Hostname, Incarnation, NodeId, ObjectKey, ObjectSet, Selection, Timestamp};

use crate::api::Store;
use crate::closure::{self, limit};
use crate::error::{CommitError, EnrollError, PutError, Result};
use crate::objects::{ObjectFilter, ObjectPlace, ObjectRecord, SyncHead};
use crate::record::{
    Accepted, ChannelHead, Enrolled, FactRecord, FleetMeta, Health, NewNode, NewRelease, NodeRecord, Pruned,
    Release, Retention, RunFilter, RunRecord, TokenUse, Touch,
};
use crate::tasks::{self as bounds, TaskNode, TaskRecord};
use crate::{MAX_ASKED, MAX_CHANGES_IN_WRITE, MAX_CONTENTS_ASKED, MAX_LISTED, MAX_WRITE_BYTES, log};

/// A [`Store`] in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    fleet: Option<FleetMeta>,
    epoch: u64,
    nodes: BTreeMap<NodeId, Node>,
    /// Of active nodes.
    hostnames: BTreeMap<Hostname, NodeId>,
    /// Burned nonces with the expiry of their tokens.
    nonces: BTreeMap<String, Timestamp>,
    /// How far each log is accepted.
    logs: BTreeMap<(NodeId, Incarnation), u64>,
    facts: BTreeMap<u64, FactRecord>,
    last_fact: u64,
    /// The ids of the facts of each action on a node.
    actions: BTreeMap<(NodeId, String), BTreeSet<u64>>,
    sync: BTreeMap<NodeId, sync::Sets>,
    tasks: BTreeMap<u64, tasks::Task>,
    last_task: u64,
    chunks: BTreeMap<Digest, StoredChunk>,
    contents: BTreeMap<Digest, StoredContent>,
    releases: BTreeMap<u64, Release>,
    heads: BTreeMap<Channel, ChannelHead>,
}

#[derive(Debug)]
struct Node {
    record: NodeRecord,
    /// The nonce of the token that it last enrolled with.
    nonce: String,
    traits: Option<TraitReport>,
}

#[derive(Debug)]
struct StoredChunk {
    body: Vec<u8>,
    height: u32,
    touched: Timestamp,
}

#[derive(Debug)]
struct StoredContent {
    bytes: Bytes,
    touched: Timestamp,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic inside a change would be a bug; the maps are still maps after it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn fleet(&self) -> Result<Option<FleetMeta>> {
        Ok(self.state().fleet.clone())
    }

    async fn found_fleet(&self, meta: FleetMeta) -> Result<FleetMeta> {
        Ok(self.state().fleet.get_or_insert(meta).clone())
    }

    async fn open_epoch(&self, _now: Timestamp) -> Result<u64> {
        let mut state = self.state();
        state.epoch += 1;
        Ok(state.epoch)
    }

    async fn enroll(&self, node: NewNode, token: TokenUse, now: Timestamp) -> Result<Enrolled, EnrollError> {
        self.state().enroll(node, token, now)
    }

    async fn certificate_used(&self, node: &NodeId) -> Result<()> {
        if let Some(node) = self.state().nodes.get_mut(node) {
            node.record.cert_used = true;
        }
        Ok(())
    }

    async fn confirm_key(&self, node: &NodeId) -> Result<bool> {
        Ok(self.state().active(node).map(|node| node.record.key_confirmed = true).is_ok())
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        let state = self.state();
        let active = state.nodes.values().filter(|node| node.record.removed.is_none());
        Ok(active.map(|node| node.record.clone()).collect())
    }

    async fn node(&self, node: &NodeId) -> Result<Option<NodeRecord>> {
        Ok(self.state().nodes.get(node).map(|node| node.record.clone()))
    }

    async fn remove_node(&self, node: &NodeId, now: Timestamp) -> Result<bool> {
        Ok(self.state().remove_node(node, now))
    }

    async fn touch(&self, touches: Vec<Touch>) -> Result<()> {
        let mut state = self.state();
        touches.into_iter().for_each(|touch| state.touch(touch));
        Ok(())
    }

    async fn put_traits(&self, node: &NodeId, traits: TraitReport, _now: Timestamp) -> Result<()> {
        let mut state = self.state();
        let node = state.active(node)?;
        node.record.traits = Some(traits.digest);
        node.traits = Some(traits);
        Ok(())
    }

    async fn put_seen(&self, node: &NodeId, document: Signed, _now: Timestamp) -> Result<()> {
        self.state().active(node)?.record.seen = Some(document);
        Ok(())
    }

    async fn traits(&self, node: &NodeId) -> Result<Option<TraitReport>> {
        Ok(self.state().nodes.get(node).and_then(|node| node.traits.clone()))
    }

    async fn append_facts(
        &self,
        node: &NodeId,
        incarnation: &Incarnation,
        facts: Vec<Fact>,
        now: Timestamp,
    ) -> Result<Accepted> {
        limit("facts in one call", facts.len() as u64, model::log::MAX_FACTS as u64)?;
        self.state().append_facts(node, incarnation, facts, now)
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>> {
        let state = self.state();
        let of_node = |record: &&FactRecord| filter.node.as_ref().is_none_or(|node| record.node == *node);
        let runs = state.newest_facts(filter.before).filter(of_node).filter_map(nodes::run_record);
        Ok(runs.take(nodes::listed(filter.limit)).collect())
    }

    async fn run(&self, node: &NodeId, incarnation: &Incarnation, seq: u64) -> Result<Option<RunRecord>> {
        let state = self.state();
        let mut facts = state.facts.values();
        let named = |f: &&FactRecord| f.node == *node && f.incarnation == *incarnation && f.fact.seq == seq;
        Ok(facts.find(named).and_then(nodes::run_record))
    }

    async fn facts(&self, node: &NodeId, before: Option<u64>, limit: usize) -> Result<Vec<FactRecord>> {
        let state = self.state();
        let facts = state.newest_facts(before).filter(|record| record.node == *node);
        Ok(facts.take(nodes::listed(limit)).cloned().collect())
    }

    async fn action_facts(&self, node: &NodeId, action: &str) -> Result<Vec<FactRecord>> {
        Ok(self.state().action_facts(node, action).take(MAX_LISTED).cloned().collect())
    }

    async fn ended_actions(&self, node: &NodeId, mut actions: Vec<String>) -> Result<Vec<String>> {
        limit("actions asked for", actions.len() as u64, MAX_ASKED as u64)?;
        let state = self.state();
        let is_end = |record: &FactRecord| log::action_of(&record.fact).is_some_and(log::is_end);
        actions.retain(|action| state.action_facts(node, action).any(is_end));
        Ok(actions)
    }

    async fn sync_load(&self, node: &NodeId) -> Result<::sync::Saved> {
        self.state().sync_load(node)
    }

    async fn sync_write(&self, node: &NodeId, write: ::sync::Write, now: Timestamp) -> Result<()> {
        limit("objects in one write", write.changes() as u64, MAX_CHANGES_IN_WRITE as u64)?;
        limit("contents in one write, in bytes", write.bytes() as u64, MAX_WRITE_BYTES)?;
        self.state().sync_write(node, write, now)
    }

    async fn sync_contents(
        &self,
        node: &NodeId,
        side: ::sync::Side,
        keys: Vec<ObjectKey>,
    ) -> Result<Vec<Option<::sync::Content>>> {
        limit("contents asked for", keys.len() as u64, MAX_CONTENTS_ASKED as u64)?;
        self.state().sync_contents(node, side, &keys)
    }

    async fn sync_heads(&self) -> Result<Vec<(NodeId, SyncHead)>> {
        Ok(self.state().sync_heads())
    }

    async fn sync_acked(&self, acked: Vec<(NodeId, FeedCursor)>) -> Result<()> {
        let mut state = self.state();
        acked.into_iter().for_each(|(node, cursor)| state.sync_acked(&node, cursor));
        Ok(())
    }

    async fn sync_conditions(&self, conditions: Vec<(NodeId, Option<SyncCondition>)>) -> Result<()> {
        let mut state = self.state();
        conditions.into_iter().for_each(|(node, condition)| state.sync_condition(&node, condition));
        Ok(())
    }

    async fn sync_objects(
        &self,
        filter: ObjectFilter,
        after: Option<ObjectPlace>,
        limit: usize,
    ) -> Result<Vec<ObjectRecord>> {
        Ok(self.state().sync_objects(&filter, after.as_ref(), nodes::listed(limit)))
    }

    async fn put_task(&self, task: TaskRecord) -> Result<()> {
        bounds::check_task(&task)?;
        self.state().put_task(task)
    }

    async fn task(&self, id: &str) -> Result<Option<TaskRecord>> {
        Ok(self.state().task(id))
    }

    async fn tasks(&self, limit: usize, before: Option<&str>) -> Result<Vec<TaskRecord>> {
        Ok(self.state().list_tasks(limit, before))
    }

    async fn open_tasks(&self) -> Result<Vec<TaskRecord>> {
        Ok(self.state().open_tasks())
    }

    async fn put_task_nodes(&self, task: &str, targets: Vec<TaskNode>) -> Result<()> {
        bounds::check_targets(&targets)?;
        self.state().put_task_nodes(task, targets)
    }

    async fn task_nodes(&self, task: &str, after: Option<&NodeId>, limit: usize) -> Result<Vec<TaskNode>> {
        Ok(self.state().task_nodes(task, after, limit))
    }

    async fn missing_chunks(&self, chunks: Vec<Digest>, now: Timestamp) -> Result<Vec<Digest>> {
        limit("digests asked for", chunks.len() as u64, MAX_ASKED as u64)?;
        Ok(self.state().missing_chunks(chunks, now))
    }

    async fn missing_contents(&self, contents: Vec<Digest>, now: Timestamp) -> Result<Vec<Digest>> {
        limit("digests asked for", contents.len() as u64, MAX_ASKED as u64)?;
        Ok(self.state().missing_contents(contents, now))
    }

    async fn put_contents(&self, contents: Vec<Bytes>, now: Timestamp) -> Result<Vec<Digest>, PutError> {
        let digests = closure::prepare_contents(&contents)?;
        self.state().put_contents(&digests, contents, now);
        Ok(digests)
    }

    async fn put_chunks(&self, chunks: Vec<Chunk>, now: Timestamp) -> Result<Vec<Digest>, PutError> {
        let (digests, prepared) = closure::prepare(&chunks)?;
        self.state().put_chunks(prepared, now)?;
        Ok(digests)
    }

    async fn chunk(&self, digest: &Digest) -> Result<Option<Chunk>> {
        self.state().chunk(digest)
    }

    async fn content(&self, digest: &Digest, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        let state = self.state();
        let Some(content) = state.contents.get(digest) else { return Ok(None) };
        let size = content.bytes.len() as u64;
        let range = closure::clamp(range, size);
        Ok(Some(content.bytes.slice(range.start as usize..range.end as usize)))
    }

    async fn content_size(&self, digest: &Digest) -> Result<Option<u64>> {
        Ok(self.state().contents.get(digest).map(|content| content.bytes.len() as u64))
    }

    async fn set(&self, root: &Digest) -> Result<Option<ObjectSet>> {
        let state = self.state();
        closure::read_set(root, &mut |digest| state.chunk(digest))
    }

    async fn selection(&self, root: &Digest) -> Result<Option<Selection>> {
        let state = self.state();
        closure::read_selection(root, &mut |digest| state.chunk(digest))
    }

    async fn commit_release(&self, release: NewRelease) -> Result<(), CommitError> {
        self.state().commit_release(release)
    }

    async fn heads(&self) -> Result<Vec<ChannelHead>> {
        Ok(self.state().heads.values().cloned().collect())
    }

    async fn add_beacon(&self, channel: &Channel, seq: u64, beacon: Signed, _at: Timestamp) -> Result<bool> {
        let mut state = self.state();
        let Some(head) = state.heads.get_mut(channel).filter(|head| head.seq == seq) else {
            return Ok(false);
        };
        head.beacon = Some(beacon);
        Ok(true)
    }

    async fn release(&self, seq: u64) -> Result<Option<Release>> {
        Ok(self.state().releases.get(&seq).cloned())
    }

    async fn releases(&self, limit: usize, before: Option<u64>) -> Result<Vec<Release>> {
        let state = self.state();
        let below = state.releases.range(..before.unwrap_or(u64::MAX));
        Ok(below.rev().take(nodes::listed(limit)).map(|(_, release)| release.clone()).collect())
    }

    async fn set_push(&self, nodes: Vec<NodeId>, push: u64, _now: Timestamp) -> Result<()> {
        let mut state = self.state();
        for node in nodes {
            if let Ok(node) = state.active(&node) {
                node.record.push = Some(push);
            }
        }
        Ok(())
    }

    async fn pushes(&self) -> Result<Vec<(NodeId, u64)>> {
        let state = self.state();
        let pushed = |(id, node): (&NodeId, &Node)| Some((id.clone(), node.record.push?));
        Ok(state.nodes.iter().filter_map(pushed).collect())
    }

    async fn clear_push(&self, node: &NodeId, push: u64) -> Result<()> {
        if let Some(node) = self.state().nodes.get_mut(node) {
            node.record.push = node.record.push.filter(|pending| *pending > push);
        }
        Ok(())
    }

    async fn prune(&self, now: Timestamp, retention: Retention) -> Result<Pruned> {
        self.state().prune(now, &retention)
    }

    async fn integrity(&self) -> Result<Vec<String>> {
        Ok(self.state().integrity())
    }

    fn health(&self) -> Health {
        Health { writable: true, queue_depth: 0, last_error: None }
    }
}

/// What is derived from the runs that a record knows of.
fn derived(record: &NodeRecord) -> log::Derived {
    log::Derived { streak: record.streak, last_run: record.last_run.clone() }
}
