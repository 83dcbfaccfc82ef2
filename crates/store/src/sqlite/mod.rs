//! [`SqliteStore`]: the store in one SQLite file, for a fleet with one control plane.
//!
//! WAL, `synchronous = FULL`, one writer thread with group commit, a few readers.

mod cell;
mod chunks;
mod facts;
mod migrate;
mod nodes;
mod objects;
mod open;
mod prune;
mod query;
mod readers;
mod releases;
mod sweep;
mod sync;
mod tasks;
mod writer;

use std::ops::Range;
use std::path::Path;

use ::sync::FeedCursor;
use async_trait::async_trait;
use bytes::Bytes;
use model::chunk::Chunk;
use model::condition::SyncCondition;
use model::exchange::{Signed, TraitReport};
use model::log::Fact;
use model::{Channel, Digest, FleetId, Incarnation, NodeId, ObjectKey, ObjectSet, Selection, Timestamp};
use rusqlite::{Connection, params};
use tokio::sync::watch;

use self::cell::{OrFail, Text, uint};
use self::chunks::Table;
use self::readers::Readers;
use self::writer::{Cause, Session, Writer};
use crate::api::Store;
use crate::closure::{self, limit};
use crate::error::{CommitError, EnrollError, PutError, Result};
use crate::objects::{ObjectFilter, ObjectPlace, ObjectRecord, SyncHead};
use crate::record::{
    Accepted, ChannelHead, Enrolled, FactRecord, FleetMeta, Health, NewNode, NodeRecord, Pruned, Release,
    Retention, RunFilter, RunRecord, TokenUse, Touch,
};
use crate::tasks::{self as bounds, TaskNode, TaskRecord};
use crate::{MAX_ASKED, MAX_CHANGES_IN_WRITE, MAX_CONTENTS_ASKED, MAX_WRITE_BYTES};

/// Threads that read.
const READERS: usize = 3;
/// Contacts in one transaction.
const TOUCHES_IN_BATCH: usize = 2_000;
/// Digests asked for in one transaction.
const ASKED_IN_BATCH: usize = 10_000;
/// The most problems that an integrity check names.
const MAX_PROBLEMS: usize = 100;

/// A [`Store`] in a SQLite file. Dropping it runs what waits and closes the file.
pub struct SqliteStore {
    // In the order in which they end: the lock goes after all that writes, then it is told.
    readers: Readers,
    writer: Writer,
    _lock: open::DatabaseLock,
    closed: watch::Sender<()>,
}

impl SqliteStore {
    /// Opens or creates the file and brings its schema up to date. Blocks.
    ///
    /// # Errors
    /// [`crate::StoreError::InUse`] when another process has it, [`crate::StoreError::Schema`] when it
    /// is not ours to read, and those of the disk.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore> {
        let opened = open::open(path.as_ref(), READERS)?;
        let writer = Writer::start(opened.writer)?;
        let readers = Readers::start(opened.readers)?;
        Ok(SqliteStore { readers, writer, _lock: opened.lock, closed: watch::Sender::new(()) })
    }

    /// Waits until the store is dropped and its file closed; whoever holds it meanwhile.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + Sync + 'static {
        let mut open = self.closed.subscribe();
        // Nothing is ever sent: it only ends.
        async move { while open.changed().await.is_ok() {} }
    }

    async fn write<T: Send + 'static, E: Cause>(
        &self,
        bytes: usize,
        work: impl FnOnce(&mut Session) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        self.writer.run(bytes, work).await
    }

    async fn read<T: Send + 'static, E: Cause>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        self.readers.run(work).await
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

#[async_trait]
impl Store for SqliteStore {
    async fn fleet(&self) -> Result<Option<FleetMeta>> {
        self.read(fleet).await
    }

    async fn found_fleet(&self, meta: FleetMeta) -> Result<FleetMeta> {
        self.write(0, move |session| {
            let sql = "INSERT INTO fleet (one, id, created) VALUES (1, ?1, ?2) ON CONFLICT DO NOTHING";
            query::change(&session.db, "found a fleet", sql, params![meta.fleet.as_str(), meta.created.0])?;
            Ok(fleet(&session.db)?.unwrap_or(meta))
        })
        .await
    }

    async fn open_epoch(&self, now: Timestamp) -> Result<u64> {
        self.write(0, move |session| {
            query::change(&session.db, "open an epoch", "INSERT INTO epoch (opened) VALUES (?1)", [now.0])?;
            Ok(uint(session.db.last_insert_rowid()))
        })
        .await
    }

    async fn enroll(&self, node: NewNode, token: TokenUse, now: Timestamp) -> Result<Enrolled, EnrollError> {
        self.write(0, move |session| nodes::enroll(&session.db, &node, &token, now)).await
    }

    async fn certificate_used(&self, node: &NodeId) -> Result<()> {
        let node = node.clone();
        self.write(0, move |session| nodes::certificate_used(&session.db, &node)).await
    }

    async fn confirm_key(&self, node: &NodeId) -> Result<bool> {
        let node = node.clone();
        self.write(0, move |session| nodes::confirm_key(&session.db, &node)).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        self.read(nodes::all).await
    }

    async fn node(&self, node: &NodeId) -> Result<Option<NodeRecord>> {
        let node = node.clone();
        self.read(move |db| nodes::one(db, &node)).await
    }

    async fn remove_node(&self, node: &NodeId, now: Timestamp) -> Result<bool> {
        let node = node.clone();
        self.write(0, move |session| nodes::remove(&session.db, &node, now)).await
    }

    async fn touch(&self, mut touches: Vec<Touch>) -> Result<()> {
        while !touches.is_empty() {
            let batch: Vec<Touch> = touches.drain(..touches.len().min(TOUCHES_IN_BATCH)).collect();
            self.write(0, move |session| batch.iter().try_for_each(|touch| nodes::touch(&session.db, touch)))
                .await?;
        }
        Ok(())
    }

    async fn put_traits(&self, node: &NodeId, traits: TraitReport, now: Timestamp) -> Result<()> {
        let node = node.clone();
        self.write(0, move |session| nodes::put_traits(&session.db, &node, &traits, now)).await
    }

    async fn put_seen(&self, node: &NodeId, document: Signed, now: Timestamp) -> Result<()> {
        let node = node.clone();
        self.write(0, move |session| nodes::put_seen(&session.db, &node, &document, now)).await
    }

    async fn traits(&self, node: &NodeId) -> Result<Option<TraitReport>> {
        let node = node.clone();
        self.read(move |db| nodes::traits(db, &node)).await
    }

    async fn append_facts(
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

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>> {
        self.read(move |db| facts::runs(db, &filter)).await
    }

    async fn run(&self, node: &NodeId, incarnation: &Incarnation, seq: u64) -> Result<Option<RunRecord>> {
        let (node, incarnation) = (node.clone(), incarnation.clone());
        self.read(move |db| facts::run(db, &node, &incarnation, seq)).await
    }

    async fn facts(&self, node: &NodeId, before: Option<u64>, limit: usize) -> Result<Vec<FactRecord>> {
        let node = node.clone();
        self.read(move |db| facts::of_node(db, &node, before, limit)).await
    }

    async fn action_facts(&self, node: &NodeId, action: &str) -> Result<Vec<FactRecord>> {
        let (node, action) = (node.clone(), action.to_owned());
        self.read(move |db| facts::of_action(db, &node, &action)).await
    }

    async fn ended_actions(&self, node: &NodeId, actions: Vec<String>) -> Result<Vec<String>> {
        limit("actions asked for", actions.len() as u64, MAX_ASKED as u64)?;
        let node = node.clone();
        self.read(move |db| facts::ended(db, &node, actions)).await
    }

    async fn sync_load(&self, node: &NodeId) -> Result<::sync::Saved> {
        let node = node.clone();
        self.read(move |db| objects::load(db, &node)).await
    }

    async fn sync_write(&self, node: &NodeId, write: ::sync::Write, now: Timestamp) -> Result<()> {
        limit("objects in one write", write.changes() as u64, MAX_CHANGES_IN_WRITE as u64)?;
        let bytes = write.bytes();
        limit("contents in one write, in bytes", bytes as u64, MAX_WRITE_BYTES)?;
        let node = node.clone();
        self.write(bytes, move |session| sync::write(session, &node, &write, now)).await
    }

    async fn sync_contents(
        &self,
        node: &NodeId,
        side: ::sync::Side,
        keys: Vec<ObjectKey>,
    ) -> Result<Vec<Option<::sync::Content>>> {
        limit("contents asked for", keys.len() as u64, MAX_CONTENTS_ASKED as u64)?;
        let node = node.clone();
        self.read(move |db| objects::contents(db, &node, side, &keys)).await
    }

    async fn sync_heads(&self) -> Result<Vec<(NodeId, SyncHead)>> {
        self.read(objects::heads).await
    }

    async fn sync_acked(&self, mut acked: Vec<(NodeId, FeedCursor)>) -> Result<()> {
        while !acked.is_empty() {
            let batch: Vec<_> = acked.drain(..acked.len().min(TOUCHES_IN_BATCH)).collect();
            let note = move |s: &mut Session| {
                batch.iter().try_for_each(|(node, cursor)| sync::acked(&s.db, node, cursor))
            };
            self.write(0, note).await?;
        }
        Ok(())
    }

    async fn sync_conditions(&self, mut conditions: Vec<(NodeId, Option<SyncCondition>)>) -> Result<()> {
        while !conditions.is_empty() {
            let batch: Vec<_> = conditions.drain(..conditions.len().min(TOUCHES_IN_BATCH)).collect();
            let note = move |s: &mut Session| {
                batch
                    .iter()
                    .try_for_each(|(node, condition)| sync::keep_condition(&s.db, node, condition.as_ref()))
            };
            self.write(0, note).await?;
        }
        Ok(())
    }

    async fn sync_objects(
        &self,
        filter: ObjectFilter,
        after: Option<ObjectPlace>,
        limit: usize,
    ) -> Result<Vec<ObjectRecord>> {
        self.read(move |db| objects::list(db, &filter, after.as_ref(), limit)).await
    }

    async fn put_task(&self, task: TaskRecord) -> Result<()> {
        bounds::check_task(&task)?;
        self.write(task.document.len(), move |session| tasks::put(&session.db, &task)).await
    }

    async fn task(&self, id: &str) -> Result<Option<TaskRecord>> {
        let id = id.to_owned();
        self.read(move |db| tasks::one(db, &id)).await
    }

    async fn tasks(&self, limit: usize, before: Option<&str>) -> Result<Vec<TaskRecord>> {
        let before = before.map(str::to_owned);
        self.read(move |db| tasks::list(db, limit, before.as_deref())).await
    }

    async fn open_tasks(&self) -> Result<Vec<TaskRecord>> {
        self.read(tasks::open).await
    }

    async fn put_task_nodes(&self, task: &str, targets: Vec<TaskNode>) -> Result<()> {
        bounds::check_targets(&targets)?;
        let task = task.to_owned();
        let bytes = targets.iter().map(|target| target.state.len()).sum();
        self.write(bytes, move |session| tasks::put_nodes(&session.db, &task, &targets)).await
    }

    async fn task_nodes(&self, task: &str, after: Option<&NodeId>, limit: usize) -> Result<Vec<TaskNode>> {
        let (task, after) = (task.to_owned(), after.cloned());
        self.read(move |db| tasks::nodes(db, &task, after.as_ref(), limit)).await
    }

    async fn missing_chunks(&self, chunks: Vec<Digest>, now: Timestamp) -> Result<Vec<Digest>> {
        self.missing(Table::Chunk, chunks, now).await
    }

    async fn missing_contents(&self, contents: Vec<Digest>, now: Timestamp) -> Result<Vec<Digest>> {
        self.missing(Table::Content, contents, now).await
    }

    async fn put_contents(&self, contents: Vec<Bytes>, now: Timestamp) -> Result<Vec<Digest>, PutError> {
        let bytes = contents.iter().map(Bytes::len).sum();
        let hash = move |_: &Connection| Ok((closure::prepare_contents(&contents)?, contents));
        let (digests, contents) = self.read::<_, PutError>(hash).await?;
        self.write(bytes, move |session| {
            chunks::put_contents(session, &digests, &contents, now)?;
            Ok(digests)
        })
        .await
    }

    async fn put_chunks(&self, chunks: Vec<Chunk>, now: Timestamp) -> Result<Vec<Digest>, PutError> {
        let prepared = self.read(move |_| closure::prepare(&chunks)).await;
        let (digests, prepared) = prepared?;
        let bytes = prepared.values().map(|chunk| chunk.body.len()).sum();
        self.write(bytes, move |session| {
            chunks::put_chunks(session, &prepared, now)?;
            Ok(digests)
        })
        .await
    }

    async fn chunk(&self, digest: &Digest) -> Result<Option<Chunk>> {
        let digest = *digest;
        self.read(move |db| chunks::chunk(db, &digest)).await
    }

    async fn content(&self, digest: &Digest, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        let digest = *digest;
        self.read(move |db| chunks::content(db, &digest, range)).await
    }

    async fn content_size(&self, digest: &Digest) -> Result<Option<u64>> {
        let digest = *digest;
        self.read(move |db| chunks::size(db, &digest)).await
    }

    async fn set(&self, root: &Digest) -> Result<Option<ObjectSet>> {
        let root = *root;
        self.read(move |db| closure::read_set(&root, &mut |digest| chunks::chunk(db, digest))).await
    }

    async fn selection(&self, root: &Digest, known: Option<&Selection>) -> Result<Option<Selection>> {
        let (root, known) = (*root, known.cloned().unwrap_or_default());
        self.read(move |db| closure::read_selection(&root, &known, &mut |digest| chunks::chunk(db, digest)))
            .await
    }

    async fn commit_release(&self, release: Release, built_on: Option<u64>) -> Result<(), CommitError> {
        self.write(0, move |session| releases::commit(session, &release, built_on)).await
    }

    async fn heads(&self) -> Result<Vec<ChannelHead>> {
        self.read(releases::heads).await
    }

    async fn add_beacon(&self, channel: &Channel, seq: u64, beacon: Signed, at: Timestamp) -> Result<bool> {
        let channel = channel.clone();
        self.write(0, move |session| releases::add_beacon(&session.db, &channel, seq, &beacon, at)).await
    }

    async fn release(&self, seq: u64) -> Result<Option<Release>> {
        self.read(move |db| releases::release(db, seq)).await
    }

    async fn releases(&self, limit: usize, before: Option<u64>) -> Result<Vec<Release>> {
        self.read(move |db| releases::list(db, limit, before)).await
    }

    async fn set_push(&self, nodes: Vec<NodeId>, push: u64, now: Timestamp) -> Result<()> {
        self.write(0, move |session| nodes::set_push(&session.db, &nodes, push, now)).await
    }

    async fn clear_push(&self, node: &NodeId, push: u64) -> Result<()> {
        let node = node.clone();
        self.write(0, move |session| nodes::clear_push(&session.db, &node, push)).await
    }

    async fn prune(&self, now: Timestamp, retention: Retention) -> Result<Pruned> {
        prune::prune(self, now, retention).await
    }

    async fn integrity(&self) -> Result<Vec<String>> {
        self.read(integrity).await
    }

    fn health(&self) -> Health {
        let last_error = self.writer.failure();
        Health { writable: last_error.is_none(), queue_depth: self.writer.waiting(), last_error }
    }
}

fn fleet(db: &Connection) -> Result<Option<FleetMeta>> {
    let sql = "SELECT id, created FROM fleet";
    query::one(db, "read what the store is for", sql, [], |row| {
        let fleet = row.get::<_, Text<FleetId>>(0)?.0;
        Ok(FleetMeta { fleet, created: Timestamp(row.get(1)?) })
    })
}

fn integrity(db: &Connection) -> Result<Vec<String>> {
    let read = || -> rusqlite::Result<Vec<String>> {
        let mut statement = db.prepare(&format!("PRAGMA quick_check({MAX_PROBLEMS})"))?;
        statement.query_map([], |row| row.get(0))?.collect()
    };
    let mut problems = read().or_fail("check the store")?;
    problems.retain(|problem| problem != "ok");
    Ok(problems)
}
