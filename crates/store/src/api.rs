//! [`Store`]: every question and order that the control plane has for its durable state.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use model::chunk::Chunk;
use model::condition::SyncCondition;
use model::exchange::{Signed, TraitReport};
use model::log::Fact;
use model::{Channel, Digest, Incarnation, NodeId, ObjectKey, ObjectSet, Selection, Timestamp};
use sync::FeedCursor;

use crate::error::{CommitError, EnrollError, PutError, Result};
use crate::objects::{ObjectFilter, ObjectPlace, ObjectRecord, SyncHead};
use crate::record::{
    Accepted, ChannelHead, Enrolled, FactRecord, FleetMeta, Health, NewNode, NodeRecord, Pruned, Release,
    Retention, RunFilter, RunRecord, TokenUse, Touch,
};
use crate::tasks::{TaskNode, TaskRecord};

/// The control plane's durable state.
///
/// When a call that changes something returns `Ok`, the change is durable; when it
/// returns an error, nothing changed ([`crate::StoreError::Closed`] excepted). Any call
/// may fail with a [`crate::StoreError`].
#[async_trait]
pub trait Store: Send + Sync {
    // The fleet.

    /// What this store is for; `None` while it is empty.
    async fn fleet(&self) -> Result<Option<FleetMeta>>;
    /// Founds the fleet, if there is none; returns the one that is stored now.
    async fn found_fleet(&self, meta: FleetMeta) -> Result<FleetMeta>;
    /// Counts one more start of a control plane on this store: 1 for the first.
    async fn open_epoch(&self, now: Timestamp) -> Result<u64>;

    // Nodes.

    /// Records a node and burns its token in one transaction (ENR-2).
    ///
    /// The same token and key yield the same node again until the certificate is first
    /// used (ENR-7). A new token for an active node of the same key and hostname, and for
    /// a removed one, enrolls it once more; its history stays.
    ///
    /// # Errors
    /// [`EnrollError`] names the refusal; the token is not burned by one.
    async fn enroll(&self, node: NewNode, token: TokenUse, now: Timestamp) -> Result<Enrolled, EnrollError>;
    /// The node called with its certificate. Says it as often as wanted.
    async fn certificate_used(&self, node: &NodeId) -> Result<()>;
    /// An operator confirmed the node's key (ENR-9); `false` when no active node has the id.
    async fn confirm_key(&self, node: &NodeId) -> Result<bool>;
    /// All active nodes, in the order of their ids.
    async fn nodes(&self) -> Result<Vec<NodeRecord>>;
    /// One node, active or removed.
    async fn node(&self, node: &NodeId) -> Result<Option<NodeRecord>>;
    /// Removes a node: frees its hostname, refuses its facts, keeps its history; `false`
    /// when no active node has the id.
    async fn remove_node(&self, node: &NodeId, now: Timestamp) -> Result<bool>;
    /// Persists contacts in one batch (CNV-4).
    async fn touch(&self, touches: Vec<Touch>) -> Result<()>;
    /// Keeps the node's newest traits.
    async fn put_traits(&self, node: &NodeId, traits: TraitReport, now: Timestamp) -> Result<()>;
    /// Keeps the node's newest `seen` document.
    async fn put_seen(&self, node: &NodeId, document: Signed, now: Timestamp) -> Result<()>;
    /// The node's newest traits.
    async fn traits(&self, node: &NodeId) -> Result<Option<TraitReport>>;

    // Facts.

    /// Accepts facts exactly once, by `(node, incarnation, seq)`, in any order.
    ///
    /// Those already known change nothing (the first that came counts); those beyond a
    /// gap are not accepted, and the cursor says from where to send again. At most
    /// [`model::log::MAX_FACTS`] in one call.
    async fn append_facts(
        &self,
        node: &NodeId,
        incarnation: &Incarnation,
        facts: Vec<Fact>,
        now: Timestamp,
    ) -> Result<Accepted>;
    /// Runs, newest first.
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>>;
    /// One run by its fact's name.
    async fn run(&self, node: &NodeId, incarnation: &Incarnation, seq: u64) -> Result<Option<RunRecord>>;
    /// Facts of a node, runs among them, newest first, before the record of an id.
    async fn facts(&self, node: &NodeId, before: Option<u64>, limit: usize) -> Result<Vec<FactRecord>>;

    /// Facts of one action on a node, in the order in which they were accepted; at most
    /// [`crate::MAX_LISTED`], which is more than an action has.
    async fn action_facts(&self, node: &NodeId, action: &str) -> Result<Vec<FactRecord>>;
    /// Those of the actions whose terminal fact is stored for the node, in the order
    /// given. At most [`crate::MAX_ASKED`] in one call. After a crash between the
    /// acceptance of a terminal fact and the removal of its `Action` from the feed, this
    /// says what is left to remove.
    async fn ended_actions(&self, node: &NodeId, actions: Vec<String>) -> Result<Vec<String>>;

    // Synchronization. Of active nodes alone: when a node is removed its two sets are out
    // of reach at once, and go with the next pruning or when it enrolls again.

    /// Everything that is kept for a node, contents apart; empty when nothing is.
    ///
    /// # Errors
    /// [`crate::StoreError::UnknownNode`] when the node is not active.
    async fn sync_load(&self, node: &NodeId) -> Result<sync::Saved>;
    /// Makes a write durable, whole. At most [`crate::MAX_CHANGES_IN_WRITE`] objects and
    /// [`crate::MAX_WRITE_BYTES`] of contents in one call. Writes of several nodes that
    /// wait at one time share a commit.
    ///
    /// # Errors
    /// [`crate::StoreError::UnknownNode`] when the node is not active, and
    /// [`crate::StoreError::Unsound`] when the write does not follow what is kept.
    async fn sync_write(&self, node: &NodeId, write: sync::Write, now: Timestamp) -> Result<()>;
    /// The contents of objects, in the order of their keys; `None` for one that is not
    /// there. At most [`crate::MAX_CONTENTS_ASKED`] in one call.
    ///
    /// # Errors
    /// [`crate::StoreError::UnknownNode`] when the node is not active.
    async fn sync_contents(
        &self,
        node: &NodeId,
        side: sync::Side,
        keys: Vec<ObjectKey>,
    ) -> Result<Vec<Option<sync::Content>>>;
    /// How far the sets of all active nodes are that have any, in the order of their ids.
    async fn sync_heads(&self) -> Result<Vec<(NodeId, SyncHead)>>;
    /// Keeps how far nodes said that they have our feed. One that is not active, and one
    /// of another incarnation of the feed, is left out.
    async fn sync_acked(&self, acked: Vec<(NodeId, FeedCursor)>) -> Result<()>;
    /// Keeps what comparisons of nodes' sets came to; `None`: they were not compared to the end.
    /// One that is not active is left out.
    async fn sync_conditions(&self, conditions: Vec<(NodeId, Option<SyncCondition>)>) -> Result<()>;
    /// Objects of active nodes in the order of their places, after one.
    async fn sync_objects(
        &self,
        filter: ObjectFilter,
        after: Option<ObjectPlace>,
        limit: usize,
    ) -> Result<Vec<ObjectRecord>>;

    // Tasks and workflows.

    /// Keeps a task: a new one, or a new document and end of one that is known. At most
    /// [`crate::MAX_OPEN_TASKS`] are open at one time.
    async fn put_task(&self, task: TaskRecord) -> Result<()>;
    /// One task.
    async fn task(&self, id: &str) -> Result<Option<TaskRecord>>;
    /// Tasks, newest first, those before the one of an id.
    async fn tasks(&self, limit: usize, before: Option<&str>) -> Result<Vec<TaskRecord>>;
    /// Tasks that are not finished, oldest first.
    async fn open_tasks(&self) -> Result<Vec<TaskRecord>>;
    /// Keeps targets of a task, new ones and new states of known ones. At most
    /// [`crate::MAX_TARGETS_IN_PUT`] in one call.
    ///
    /// # Errors
    /// [`crate::StoreError::UnknownTask`].
    async fn put_task_nodes(&self, task: &str, targets: Vec<TaskNode>) -> Result<()>;
    /// Targets of a task in the order of their nodes' ids, after one.
    async fn task_nodes(&self, task: &str, after: Option<&NodeId>, limit: usize) -> Result<Vec<TaskNode>>;

    // Chunks and contents.

    /// Those of the chunks that are not stored; the others stay at least the grace period.
    /// At most [`crate::MAX_ASKED`] in one call.
    async fn missing_chunks(&self, chunks: Vec<Digest>, now: Timestamp) -> Result<Vec<Digest>>;
    /// As [`Store::missing_chunks`], of contents.
    async fn missing_contents(&self, contents: Vec<Digest>, now: Timestamp) -> Result<Vec<Digest>>;
    /// Stores contents; returns their digests in the order given. At most
    /// [`model::object::MAX_BLOB`] bytes each and [`crate::MAX_PUT_BYTES`] in one call.
    ///
    /// # Errors
    /// [`PutError`]; then none is stored.
    async fn put_contents(&self, contents: Vec<Bytes>, now: Timestamp) -> Result<Vec<Digest>, PutError>;
    /// Stores chunks, in any order; returns their digests in the order given. Everything
    /// that they need is already stored or among them, so whoever has a chunk has
    /// everything below it. At most [`crate::MAX_CHUNKS_IN_PUT`] in one call.
    ///
    /// # Errors
    /// [`PutError`]; then none is stored.
    async fn put_chunks(&self, chunks: Vec<Chunk>, now: Timestamp) -> Result<Vec<Digest>, PutError>;
    /// A chunk.
    async fn chunk(&self, digest: &Digest) -> Result<Option<Chunk>>;
    /// A content, or the part of it that lies in `range` (cut off at its end).
    async fn content(&self, digest: &Digest, range: Option<Range<u64>>) -> Result<Option<Bytes>>;
    /// A content's length in bytes.
    async fn content_size(&self, digest: &Digest) -> Result<Option<u64>>;
    /// The set of a root; `None` when it is not stored.
    async fn set(&self, root: &Digest) -> Result<Option<ObjectSet>>;
    /// The selection of a root, without its sets; `None` when it is not stored. Only what
    /// differs from a known one is read; the rest is shared with it.
    async fn selection(&self, root: &Digest, known: Option<&Selection>) -> Result<Option<Selection>>;

    // Releases.

    /// Commits a release if the newest is still the one that it was built on (`None` when it is
    /// the first), and points its channels to it. The same release again is `Ok`, so a publisher may retry.
    ///
    /// # Errors
    /// [`CommitError`] names the refusal.
    async fn commit_release(&self, release: Release, built_on: Option<u64>) -> Result<(), CommitError>;
    /// What each channel points to, in the order of their names.
    async fn heads(&self) -> Result<Vec<ChannelHead>>;
    /// Keeps a newer proof of freshness for a channel's header; `false` when the channel
    /// does not point to release `seq` (any more).
    async fn add_beacon(&self, channel: &Channel, seq: u64, beacon: Signed, at: Timestamp) -> Result<bool>;
    /// A release.
    async fn release(&self, seq: u64) -> Result<Option<Release>>;
    /// Releases, newest first, below `before`.
    async fn releases(&self, limit: usize, before: Option<u64>) -> Result<Vec<Release>>;

    // Pushes.

    /// Asks these nodes to converge now and to confirm with this number (DLT-5); a node's
    /// earlier push is replaced. Nodes that are not active are left out.
    async fn set_push(&self, nodes: Vec<NodeId>, push: u64, now: Timestamp) -> Result<()>;
    /// The node confirmed a push: this one and earlier ones are done.
    async fn clear_push(&self, node: &NodeId, push: u64) -> Result<()>;

    // The store itself.

    /// Takes away history beyond `retention`, chunks and contents that no kept release
    /// reaches, and the sets of removed nodes. Other work goes on meanwhile.
    async fn prune(&self, now: Timestamp, retention: Retention) -> Result<Pruned>;
    /// Checks that the stored bytes are sound; returns what is not, in words.
    async fn integrity(&self) -> Result<Vec<String>>;
    /// How the store does; never waits.
    fn health(&self) -> Health;
}
