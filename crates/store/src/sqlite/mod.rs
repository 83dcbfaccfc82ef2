//! [`Store`]: the store in one SQLite file, for a fleet with one control plane.
//!
//! WAL, `synchronous = FULL`, one writer thread with group commit, a few readers.

mod audit;
pub mod backup;
mod cell;
pub(crate) mod chunks;
mod facts;
mod incarnation;
mod joining;
mod joins;
mod migrate;
mod nodes;
mod objects;
mod open;
mod operators;
mod prefixes;
mod prune;
mod query;
mod readers;
mod releases;
mod rollouts;
mod sweep;
mod sync;
mod tasks;
mod writer;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use model::chunk::TreeChunk;
use model::exchange::{Signed, TraitReport};
use model::log::Fact;
use model::tags::TaggedRun;
use model::{
    AgentCapabilities, Digest, FleetId, Incarnation, NodeId, ObjectKey, ObjectSet, Selection, Timestamp,
};
use rusqlite::{Connection, params};
use tokio::sync::watch;

use self::cell::{Text, uint};
use self::chunks::Table;
use self::readers::Readers;
use self::writer::{Cause, Session, Writer};
use crate::audit::AuditDraft;
use crate::closure::{self, limit};
use crate::error::{EnrollError, PutError, ReleaseCommitError, Result};
use crate::objects::{ObjectFilter, ObjectPosition, ObjectRecord, SyncHead, SyncProgress};
use crate::record::{
    Accepted, ChannelHead, DatabaseIncarnation, Enrolled, FactRecord, FleetMeta, Health, NewNode, NodeRecord,
    Pruned, Release, Retention, RunFilter, RunRecord, TokenUse, Touch,
};
use crate::{MAX_ASKED, MAX_CHANGES_IN_WRITE, MAX_CONTENTS_ASKED, MAX_WRITE_BYTES};

/// Threads that read.
const READERS: usize = 3;
/// Contacts in one transaction.
const TOUCHES_IN_BATCH: usize = 2_000;
/// Digests asked for in one transaction.
const ASKED_IN_BATCH: usize = 10_000;

/// The control plane's durable state, in a SQLite file. Dropping it runs what waits and closes the
/// file.
///
/// When a call that changes something returns `Ok`, the change is durable; when it
/// returns an error, nothing changed ([`crate::StoreError::Closed`] excepted). Any call
/// may fail with a [`crate::StoreError`].
pub struct Store {
    opened: Arc<OpenedDatabase>,
    /// What the first write of this handle appends to the audit log.
    draft: Option<Arc<AuditDraft>>,
}

/// What all handles of one database share.
struct OpenedDatabase {
    // In the order in which they end: the lock goes after all that writes, then it is told.
    readers: Readers,
    writer: Writer,
    _lock: open::DatabaseLock,
    /// Tells the file from copies of it.
    file: String,
    closed: watch::Sender<()>,
}

impl Store {
    /// Opens or creates the file and brings its schema up to date. Blocks.
    ///
    /// # Errors
    /// [`crate::StoreError::InUse`] when another process has it, [`crate::StoreError::Schema`] when it
    /// is not ours to read, and those of the disk.
    pub fn open(path: impl AsRef<Path>) -> Result<Store> {
        let opened = open::open(path.as_ref(), READERS)?;
        let writer = Writer::start(opened.writer)?;
        let readers = Readers::start(opened.readers)?;
        let (file, closed) = (opened.file, watch::Sender::new(()));
        let opened = OpenedDatabase { readers, writer, _lock: opened.lock, file, closed };
        Ok(Store { opened: Arc::new(opened), draft: None })
    }

    /// A handle of the same database whose first write that succeeds appends the entry of a request to the audit log, in
    /// the same transaction (OPS-5). However many writes there are, the request has one entry.
    pub fn recording(&self, draft: AuditDraft) -> Store {
        Store { opened: self.opened.clone(), draft: Some(Arc::new(draft)) }
    }

    /// Waits until the store is dropped and its file closed; whoever holds it meanwhile.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + Sync + 'static {
        let mut open = self.opened.closed.subscribe();
        // Nothing is ever sent: it only ends.
        async move { while open.changed().await.is_ok() {} }
    }

    async fn write<T: Send + 'static, E: Cause>(
        &self,
        bytes: usize,
        work: impl FnOnce(&mut Session) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let Some(draft) = self.draft.clone() else { return self.opened.writer.run(bytes, work).await };
        let recorded = move |session: &mut Session| {
            let done = work(session)?;
            audit::append_once(&session.db, &draft)?;
            Ok(done)
        };
        self.opened.writer.run(bytes, recorded).await
    }

    async fn read<T: Send + 'static, E: Cause>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        self.opened.readers.run(work).await
    }

    async fn missing(&self, table: Table, digests: Vec<Digest>, now: Timestamp) -> Result<Vec<Digest>> {
        limit("digests asked for", digests.len() as u64, MAX_ASKED as u64)?;
        let mut missing = Vec::new();
        for batch in digests.chunks(ASKED_IN_BATCH) {
            let batch = batch.to_vec();
            missing.extend(self.write(0, move |s| chunks::missing(s, table, &batch, now)).await?);
        }
        Ok(missing)
    }
}

impl Store {
    // The fleet.

    /// What this store is for; `None` while it is empty.
    pub async fn fleet(&self) -> Result<Option<FleetMeta>> {
        self.read(fleet).await
    }

    /// Founds the fleet, if there is none; returns the one that is stored now.
    pub async fn found_fleet(&self, meta: FleetMeta) -> Result<FleetMeta> {
        self.write(0, move |session| {
            let sql = "INSERT INTO fleet (one, id, created) VALUES (1, ?1, ?2) ON CONFLICT DO NOTHING";
            query::change(&session.db, "found a fleet", sql, params![meta.fleet.as_str(), meta.created.0])?;
            Ok(fleet(&session.db)?.unwrap_or(meta))
        })
        .await
    }

    /// Counts one more start of a control plane on this store: 1 for the first.
    pub async fn open_epoch(&self, now: Timestamp) -> Result<u64> {
        self.write(0, move |session| {
            query::change(&session.db, "open an epoch", "INSERT INTO epoch (opened) VALUES (?1)", [now.0])?;
            Ok(uint(session.db.last_insert_rowid()))
        })
        .await
    }

    /// Takes up the database's incarnation at a start; begins one with the id given where there is none, or
    /// where the file is a copy of the one that was started on before (SCL-4).
    pub async fn open_incarnation(&self, id: &Incarnation, now: Timestamp) -> Result<DatabaseIncarnation> {
        let (id, file) = (id.clone(), self.opened.file.clone());
        self.write(0, move |session| incarnation::open(&session.db, &id, &file, now)).await
    }

    /// The database's incarnation; `None` before the first start.
    pub async fn incarnation(&self) -> Result<Option<DatabaseIncarnation>> {
        self.read(incarnation::newest).await
    }

    /// Keeps a verified header that a node holds, and whose number is above those of all releases here or
    /// given twice. The data went back then: an incarnation with this id begins, unless one does already.
    pub async fn keep_node_header(
        &self,
        seq: u64,
        header: Signed,
        id: &Incarnation,
        now: Timestamp,
    ) -> Result<()> {
        let id = id.clone();
        self.write(0, move |session| incarnation::keep_node_header(&session.db, seq, &header, &id, now)).await
    }

    /// The header with the highest number that was kept of nodes.
    pub async fn node_header(&self) -> Result<Option<Signed>> {
        self.read(incarnation::node_header).await
    }

    // Nodes.

    /// Records a node and burns its token in one transaction (ENR-2).
    ///
    /// The same token and key yield the same node again until the certificate is first
    /// used (ENR-7). A new token for an active node of the same key and hostname, and for
    /// a removed one, enrolls it once more; its history stays.
    ///
    /// # Errors
    /// [`EnrollError`] names the refusal; the token is not burned by one.
    pub async fn enroll(
        &self,
        node: NewNode,
        token: TokenUse,
        now: Timestamp,
    ) -> Result<Enrolled, EnrollError> {
        self.write(0, move |session| nodes::enroll(&session.db, &node, &token, now)).await
    }

    /// The node called with its certificate. Says it as often as wanted.
    pub async fn certificate_used(&self, node: &NodeId) -> Result<()> {
        let node = node.clone();
        self.write(0, move |session| nodes::certificate_used(&session.db, &node)).await
    }

    /// Notes since when two hosts hold the node's key, or that one does (IDN-10); what its agent is and can do is not
    /// known then, until it says so again.
    ///
    /// # Errors
    /// [`crate::StoreError::UnknownNode`] when no active node has the id.
    pub async fn set_copied(&self, node: &NodeId, copied: Option<Timestamp>) -> Result<()> {
        let node = node.clone();
        self.write(0, move |session| nodes::set_copied(&session.db, &node, copied)).await
    }

    /// Keeps what the node's agent is and can do (ENR-5).
    ///
    /// # Errors
    /// [`crate::StoreError::UnknownNode`] when no active node has the id.
    pub async fn put_capabilities(&self, node: &NodeId, capabilities: AgentCapabilities) -> Result<()> {
        let node = node.clone();
        self.write(0, move |session| nodes::put_capabilities(&session.db, &node, &capabilities)).await
    }

    /// So many active nodes in the order of their ids, from the first one after `after` on.
    pub async fn nodes(&self, after: Option<&NodeId>, limit: usize) -> Result<Vec<NodeRecord>> {
        let after = after.cloned();
        self.read(move |db| nodes::page(db, after.as_ref(), limit)).await
    }

    /// One node, active or removed.
    pub async fn node(&self, node: &NodeId) -> Result<Option<NodeRecord>> {
        let node = node.clone();
        self.read(move |db| nodes::one(db, &node)).await
    }

    /// Removes a node: frees its hostname, refuses its facts, keeps its history; `false`
    /// when no active node has the id.
    pub async fn remove_node(&self, node: &NodeId, now: Timestamp) -> Result<bool> {
        let node = node.clone();
        self.write(0, move |session| nodes::remove(&session.db, &node, now)).await
    }

    /// Persists contacts in one batch (CNV-4).
    pub async fn touch(&self, mut touches: Vec<Touch>) -> Result<()> {
        while !touches.is_empty() {
            let batch: Vec<Touch> = touches.drain(..touches.len().min(TOUCHES_IN_BATCH)).collect();
            self.write(0, move |session| batch.iter().try_for_each(|touch| nodes::touch(&session.db, touch)))
                .await?;
        }
        Ok(())
    }

    /// Keeps the node's newest traits.
    pub async fn put_traits(&self, node: &NodeId, traits: TraitReport, now: Timestamp) -> Result<()> {
        let node = node.clone();
        self.write(0, move |session| nodes::put_traits(&session.db, &node, &traits, now)).await
    }

    /// Keeps the node's newest `seen` document.
    pub async fn put_seen(&self, node: &NodeId, document: Signed, now: Timestamp) -> Result<()> {
        let node = node.clone();
        self.write(0, move |session| nodes::put_seen(&session.db, &node, &document, now)).await
    }

    /// The node's newest traits.
    pub async fn traits(&self, node: &NodeId) -> Result<Option<TraitReport>> {
        let node = node.clone();
        self.read(move |db| nodes::traits(db, &node)).await
    }

    // Facts.

    /// Accepts facts exactly once, by `(node, incarnation, seq)`, in any order.
    ///
    /// Those already known change nothing (the first that came counts); those beyond a
    /// gap are not accepted, and the cursor says from where to send again. At most
    /// [`model::log::MAX_FACTS`] in one call.
    pub async fn append_facts(
        &self,
        node: &NodeId,
        incarnation: &Incarnation,
        facts: Vec<Fact>,
        now: Timestamp,
    ) -> Result<Accepted> {
        limit("facts in one call", facts.len() as u64, model::log::MAX_FACTS as u64)?;
        let (node, incarnation) = (node.clone(), incarnation.clone());
        self.write(0, move |session| facts::append(&session.db, &node, &incarnation, facts, now)).await
    }

    /// Runs, newest first.
    pub async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>> {
        self.read(move |db| facts::runs(db, &filter)).await
    }

    /// One run by its fact's name.
    pub async fn run(&self, node: &NodeId, incarnation: &Incarnation, seq: u64) -> Result<Option<RunRecord>> {
        let (node, incarnation) = (node.clone(), incarnation.clone());
        self.read(move |db| facts::run(db, &node, &incarnation, seq)).await
    }

    /// Facts of a node, runs among them, newest first, before the record of an id.
    pub async fn facts(&self, node: &NodeId, before: Option<u64>, limit: usize) -> Result<Vec<FactRecord>> {
        let node = node.clone();
        self.read(move |db| facts::of_node(db, &node, before, limit)).await
    }

    /// Facts of one action on a node, in the order in which they were accepted; at most
    /// [`crate::MAX_LISTED`], which is more than an action has.
    pub async fn action_facts(&self, node: &NodeId, action: &str) -> Result<Vec<FactRecord>> {
        let (node, action) = (node.clone(), action.to_owned());
        self.read(move |db| facts::of_action(db, &node, &action)).await
    }

    /// Those of the actions whose terminal fact is stored for the node, in the order
    /// given. At most [`crate::MAX_ASKED`] in one call. After a crash between the
    /// acceptance of a terminal fact and the removal of its `Action` from the feed, this
    /// says what is left to remove.
    pub async fn ended_actions(&self, node: &NodeId, actions: Vec<String>) -> Result<Vec<String>> {
        limit("actions asked for", actions.len() as u64, MAX_ASKED as u64)?;
        let node = node.clone();
        self.read(move |db| facts::ended(db, &node, actions)).await
    }

    // Synchronization. Of active nodes alone: when a node is removed its two sets are out

    // of reach at once, and go with the next pruning or when it enrolls again.

    /// Everything that is kept for a node, contents apart; empty when nothing is.
    ///
    /// # Errors
    /// [`crate::StoreError::UnknownNode`] when the node is not active.
    pub async fn sync_load(&self, node: &NodeId) -> Result<::sync::Saved> {
        let node = node.clone();
        self.read(move |db| objects::load(db, &node)).await
    }

    /// Makes a write durable, whole. At most [`crate::MAX_CHANGES_IN_WRITE`] objects and
    /// [`crate::MAX_WRITE_BYTES`] of contents in one call. Writes of several nodes that
    /// wait at one time share a commit.
    ///
    /// # Errors
    /// [`crate::StoreError::UnknownNode`] when the node is not active, and
    /// [`crate::StoreError::Unsound`] when the write does not follow what is kept.
    pub async fn sync_write(&self, node: &NodeId, write: ::sync::Write, now: Timestamp) -> Result<()> {
        limit("objects in one write", write.changes() as u64, MAX_CHANGES_IN_WRITE as u64)?;
        let bytes = write.bytes();
        limit("contents in one write, in bytes", bytes as u64, MAX_WRITE_BYTES)?;
        let node = node.clone();
        self.write(bytes, move |session| sync::write(session, &node, &write, now)).await
    }

    /// The contents of objects, in the order of their keys; `None` for one that is not
    /// there. At most [`crate::MAX_CONTENTS_ASKED`] in one call.
    ///
    /// # Errors
    /// [`crate::StoreError::UnknownNode`] when the node is not active.
    pub async fn sync_contents(
        &self,
        node: &NodeId,
        side: ::sync::Side,
        keys: Vec<ObjectKey>,
    ) -> Result<Vec<Option<::sync::Content>>> {
        limit("contents asked for", keys.len() as u64, MAX_CONTENTS_ASKED as u64)?;
        let node = node.clone();
        self.read(move |db| objects::contents(db, &node, side, &keys)).await
    }

    /// How far the sets of all active nodes are that have any, in the order of their ids.
    pub async fn sync_heads(&self) -> Result<Vec<(NodeId, SyncHead)>> {
        self.read(objects::heads).await
    }

    /// Keeps how far nodes said that they have our feed, and what comparisons of their sets came to. A node
    /// that is not active is left out, and so is a cursor of another incarnation of the feed.
    pub async fn sync_progress(&self, mut progress: Vec<SyncProgress>) -> Result<()> {
        while !progress.is_empty() {
            let batch: Vec<_> = progress.drain(..progress.len().min(TOUCHES_IN_BATCH)).collect();
            let note = move |s: &mut Session| batch.iter().try_for_each(|one| sync::progress(&s.db, one));
            self.write(0, note).await?;
        }
        Ok(())
    }

    /// Objects of active nodes in the order of their positions, after one.
    pub async fn sync_objects(
        &self,
        filter: ObjectFilter,
        after: Option<ObjectPosition>,
        limit: usize,
    ) -> Result<Vec<ObjectRecord>> {
        self.read(move |db| objects::list(db, &filter, after.as_ref(), limit)).await
    }

    // Chunks and contents.

    /// Those of the chunks that are not stored; the others stay at least the grace period.
    /// At most [`crate::MAX_ASKED`] in one call.
    pub async fn missing_chunks(&self, chunks: Vec<Digest>, now: Timestamp) -> Result<Vec<Digest>> {
        self.missing(Table::Chunk, chunks, now).await
    }

    /// As [`Store::missing_chunks`], of contents.
    pub async fn missing_contents(&self, contents: Vec<Digest>, now: Timestamp) -> Result<Vec<Digest>> {
        self.missing(Table::Content, contents, now).await
    }

    /// Stores contents; returns their digests in the order given. At most
    /// [`model::object::MAX_BLOB`] bytes each and [`crate::MAX_PUT_BYTES`] in one call.
    ///
    /// # Errors
    /// [`PutError`]; then none is stored.
    pub async fn put_contents(&self, contents: Vec<Bytes>, now: Timestamp) -> Result<Vec<Digest>, PutError> {
        let bytes = contents.iter().map(Bytes::len).sum();
        let hash = move |_: &Connection| Ok((closure::prepare_contents(&contents)?, contents));
        let (digests, contents) = self.read::<_, PutError>(hash).await?;
        self.write(bytes, move |session| {
            chunks::put_contents(session, &digests, &contents, now)?;
            Ok(digests)
        })
        .await
    }

    /// Stores chunks, in any order; returns their digests in the order given. Everything
    /// that they need is already stored or among them, so whoever has a chunk has
    /// everything below it. At most [`crate::MAX_CHUNKS_IN_PUT`] in one call.
    ///
    /// # Errors
    /// [`PutError`]; then none is stored.
    pub async fn put_chunks(&self, chunks: Vec<TreeChunk>, now: Timestamp) -> Result<Vec<Digest>, PutError> {
        let prepared = self.read(move |_| closure::prepare(&chunks)).await;
        let (digests, prepared) = prepared?;
        let bytes = prepared.values().map(|chunk| chunk.body.len()).sum();
        self.write(bytes, move |session| {
            chunks::put_chunks(session, &prepared, now)?;
            Ok(digests)
        })
        .await
    }

    /// A chunk.
    pub async fn chunk(&self, digest: &Digest) -> Result<Option<TreeChunk>> {
        let digest = *digest;
        self.read(move |db| chunks::chunk(db, &digest)).await
    }

    /// A content, or the part of it that lies in `range` (cut off at its end).
    pub async fn content(&self, digest: &Digest, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        let digest = *digest;
        self.read(move |db| chunks::content(db, &digest, range)).await
    }

    /// A content's length in bytes.
    pub async fn content_size(&self, digest: &Digest) -> Result<Option<u64>> {
        let digest = *digest;
        self.read(move |db| chunks::size(db, &digest)).await
    }

    /// The set of a root; `None` when it is not stored.
    pub async fn set(&self, root: &Digest) -> Result<Option<ObjectSet>> {
        let root = *root;
        self.read(move |db| closure::read_set(&root, db)).await
    }

    /// The selection of a root, without its sets; `None` when it is not stored. Only what
    /// differs from a known one is read; the rest is shared with it.
    pub async fn selection(&self, root: &Digest, known: Option<&Selection>) -> Result<Option<Selection>> {
        let (root, known) = (*root, known.cloned().unwrap_or_default());
        self.read(move |db| closure::read_selection(&root, &known, db)).await
    }

    // Releases.

    /// Commits a release if the newest is still the one that it was built on (`None` when it is
    /// the first), and points its channels to it. The same release again is `Ok`, so a publisher may retry.
    ///
    /// # Errors
    /// [`ReleaseCommitError`] names the refusal.
    pub async fn commit_release(
        &self,
        release: Release,
        built_on: Option<u64>,
    ) -> Result<(), ReleaseCommitError> {
        self.write(0, move |session| releases::commit(session, &release, built_on)).await
    }

    /// What each channel points to, in the order of their names.
    pub async fn heads(&self) -> Result<Vec<ChannelHead>> {
        self.read(releases::heads).await
    }

    /// A release.
    pub async fn release(&self, seq: u64) -> Result<Option<Release>> {
        self.read(move |db| releases::release(db, seq)).await
    }

    /// Releases, newest first, below `before`.
    pub async fn releases(&self, limit: usize, before: Option<u64>) -> Result<Vec<Release>> {
        self.read(move |db| releases::list(db, limit, before)).await
    }

    // Run requests.

    /// Requests that these nodes run now and confirm with this number (DLT-5); a node's
    /// earlier request is replaced. Nodes that are not active are left out.
    pub async fn request_run(&self, nodes: Vec<NodeId>, number: u64, now: Timestamp) -> Result<()> {
        self.write(0, move |session| nodes::request_run(&session.db, &nodes, number, now)).await
    }

    /// The node confirmed a run: this request and earlier ones are done.
    pub async fn confirm_run(&self, node: &NodeId, number: u64) -> Result<()> {
        let node = node.clone();
        self.write(0, move |session| nodes::confirm_run(&session.db, &node, number)).await
    }

    /// Requests that these nodes run what has a tag (CFG-7); a node's earlier request is replaced. Nodes that
    /// are not active are left out.
    pub async fn request_tagged_runs(&self, runs: Vec<(NodeId, TaggedRun)>, now: Timestamp) -> Result<()> {
        self.write(0, move |session| nodes::request_tagged_runs(&session.db, &runs, now)).await
    }

    /// The node confirmed a run by tag: this request and earlier ones are done.
    pub async fn confirm_tagged_run(&self, node: &NodeId, number: u64) -> Result<()> {
        let node = node.clone();
        self.write(0, move |session| nodes::confirm_tagged_run(&session.db, &node, number)).await
    }

    // The store itself.

    /// Takes away history beyond `retention`, chunks and contents that no kept release
    /// reaches, and the sets of removed nodes. Other work goes on meanwhile.
    pub async fn prune(&self, now: Timestamp, retention: Retention) -> Result<Pruned> {
        prune::prune(self, now, retention).await
    }

    /// Checks that the stored bytes are sound; returns what is not, in words.
    pub async fn integrity(&self) -> Result<Vec<String>> {
        self.read(backup::integrity).await
    }

    /// How the store does; never waits.
    pub fn health(&self) -> Health {
        let writer = &self.opened.writer;
        let last_error = writer.failure();
        Health { writable: last_error.is_none(), queue_depth: writer.waiting(), last_error }
    }
}

fn fleet(db: &Connection) -> Result<Option<FleetMeta>> {
    let sql = "SELECT id, created FROM fleet";
    query::one(db, "read what the store is for", sql, [], |row| {
        let fleet = row.get::<_, Text<FleetId>>(0)?.0;
        Ok(FleetMeta { fleet, created: Timestamp(row.get(1)?) })
    })
}
