//! Reads of synchronization: what a node's sets hold, contents, how far they are, lists.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::object::SectionKey;
use model::{Digest, Kind, NodeId, ObjectKey, Stub, Timestamp};
use rusqlite::{Connection, Row, params};
use sync::FeedCursor;
use sync::feed::{Change, ObjectState, SavedFeed};
use sync::{Content, LoadedChange, Saved, SavedReplica, Side};

use super::Store;
use super::cell::{Bytes32, OrFail, Text, int, uint};
use super::nodes::active;
use super::query;
use super::sync::{OURS, StoredSync, THEIRS, row_at, row_of};
use crate::closure::limit;
use crate::error::{Result, StoreError};
use crate::objects::{ObjectFilter, ObjectPosition, ObjectRecord, SyncHead};
use crate::{MAX_CONTENTS_ASKED, MAX_LISTED};

const LOAD: &str = "load what is synchronized";
const LIST: &str = "list objects";

fn column(side: Side) -> i64 {
    match side {
        Side::Feed => OURS,
        Side::Replica => THEIRS,
    }
}

pub(super) fn load(db: &Connection, node: &NodeId) -> Result<Saved> {
    const SQL: &str = "SELECT side, section, name, rev, born, uid, digest, size, body IS NULL
        FROM object WHERE node = ?1";
    let node = active(db, node)?;
    let Some(kept) = row_of(db, node)? else { return Ok(Saved::default()) };
    let sections: BTreeMap<i64, SectionKey> = sections(db, node)?.into_iter().collect();
    let (mut changes, mut objects) = (Vec::new(), Vec::new());
    let mut read = || -> rusqlite::Result<bool> {
        let mut statement = db.prepare_cached(SQL)?;
        let mut rows = statement.query([node])?;
        while let Some(row) = rows.next()? {
            let Some(section) = sections.get(&row.get(1)?) else { return Ok(false) };
            let name = row.get_ref(2)?.as_str()?.into();
            let key = ObjectKey { section: section.clone(), name };
            let rev = uint(row.get(3)?);
            let uid = row.get_ref(5)?.as_str()?.into();
            if row.get(8)? {
                changes.push(Change { rev, key, state: ObjectState::Deleted { uid } });
                continue;
            }
            let stub = Stub { uid, digest: Digest(row.get::<_, Bytes32>(6)?.0), size: uint(row.get(7)?) };
            if row.get::<_, i64>(0)? == OURS {
                let born = uint(row.get(4)?);
                changes.push(Change { rev, key, state: ObjectState::Live { stub, born } });
            } else {
                objects.push((key, stub, rev));
            }
        }
        Ok(true)
    };
    if !read().or_fail(LOAD)? {
        return Err(no_section());
    }
    let replica = replica_cursor(&kept)?;
    let feed = match cursor(kept.incarnation.as_deref(), kept.head)? {
        None => None,
        Some(FeedCursor { incarnation, revision: head, .. }) => {
            Some(SavedFeed { incarnation, head, compacted: kept.compacted, changes })
        }
    };
    Ok(Saved { feed, replica: SavedReplica { cursor: replica, objects } })
}

fn no_section() -> StoreError {
    StoreError::Corrupt("an object without its section".into())
}

fn cursor(incarnation: Option<&str>, seq: u64) -> Result<Option<FeedCursor>> {
    let parsed = incarnation.map(str::parse).transpose();
    let incarnation = parsed.map_err(|error| StoreError::Corrupt(format!("an incarnation: {error}")))?;
    Ok(incarnation.map(|incarnation| FeedCursor::at(incarnation, seq)))
}

/// How far the replica is.
fn replica_cursor(kept: &StoredSync) -> Result<Option<FeedCursor>> {
    let cursor = cursor(kept.theirs_incarnation.as_deref(), kept.theirs_rev)?;
    let corrupt = |error| StoreError::Corrupt(format!("a position in a pass: {error}"));
    let pass = kept.theirs_pass.as_deref().map(str::parse).transpose().map_err(corrupt)?;
    Ok(cursor.map(|cursor| FeedCursor { pass, ..cursor }))
}

/// A node's sections in the order of their names.
fn sections(db: &Connection, node: i64) -> Result<Vec<(i64, SectionKey)>> {
    const SQL: &str = "SELECT no, kind, namespace FROM section WHERE node = ?1 ORDER BY kind, namespace";
    query::all(db, LOAD, SQL, [node], |row| {
        let kind = Kind::new(row.get_ref(1)?.as_str()?);
        Ok((row.get(0)?, SectionKey { kind, namespace: row.get_ref(2)?.as_str()?.into() }))
    })
}

pub(super) fn contents(
    db: &Connection,
    node: &NodeId,
    side: Side,
    keys: &[ObjectKey],
) -> Result<Vec<Option<Content>>> {
    const SQL: &str = "SELECT bytes, trace, at FROM object JOIN object_body ON object_body.no = object.body
        WHERE node = ?1 AND side = ?2 AND section = ?3 AND name = ?4";
    let node = active(db, node)?;
    let sections: BTreeMap<SectionKey, i64> =
        sections(db, node)?.into_iter().map(|(no, key)| (key, no)).collect();
    let content = |row: &Row<'_>| {
        let bytes = Bytes::from(row.get::<_, Vec<u8>>(0)?);
        Ok(Content { bytes, trace: row.get(1)?, at: row.get(2)? })
    };
    let read = |key: &ObjectKey| match sections.get(&key.section) {
        None => Ok(None),
        Some(section) => query::one(db, LOAD, SQL, params![node, column(side), section, &*key.name], content),
    };
    keys.iter().map(read).collect()
}

impl Store {
    /// Objects of the control plane's feed for a node with what proves them, in the order of their keys; `None` for
    /// one that was never there. At most [`crate::MAX_CONTENTS_ASKED`] in one call.
    ///
    /// # Errors
    /// [`crate::StoreError::UnknownNode`] when the node is not active.
    pub async fn sync_feed_objects(
        &self,
        node: &NodeId,
        keys: Vec<ObjectKey>,
    ) -> Result<Vec<Option<LoadedChange>>> {
        limit("contents asked for", keys.len() as u64, MAX_CONTENTS_ASKED as u64)?;
        let node = node.clone();
        self.read(move |db| feed_objects(db, &node, &keys)).await
    }

    /// Of each key that signed changes of the control plane's feed for a node the proof that was signed first, by which
    /// all of that key are judged (`trust::feed_proof::counts`); `None` among them where changes have none.
    ///
    /// # Errors
    /// [`crate::StoreError::UnknownNode`] when the node is not active.
    pub async fn sync_first_proofs(&self, node: &NodeId) -> Result<Vec<Option<Bytes>>> {
        let node = node.clone();
        self.read(move |db| first_proofs(db, &node)).await
    }
}

/// Objects of the control plane's feed with what proves them; `None` for one that was never there.
pub(super) fn feed_objects(
    db: &Connection,
    node: &NodeId,
    keys: &[ObjectKey],
) -> Result<Vec<Option<LoadedChange>>> {
    const SQL: &str = "SELECT rev, proof, bytes, trace, at FROM object
        LEFT JOIN object_body ON object_body.no = object.body
        WHERE node = ?1 AND side = ?2 AND section = ?3 AND name = ?4";
    let node = active(db, node)?;
    let sections: BTreeMap<SectionKey, i64> =
        sections(db, node)?.into_iter().map(|(no, key)| (key, no)).collect();
    let object = |row: &Row<'_>| {
        let bytes: Option<Vec<u8>> = row.get(2)?;
        let (trace, at) = (row.get(3)?, row.get(4)?);
        let content = bytes.map(|bytes| Content { bytes: bytes.into(), trace, at });
        let proof = row.get::<_, Option<Vec<u8>>>(1)?.map(Bytes::from);
        Ok(LoadedChange { rev: uint(row.get(0)?), content, proof })
    };
    let read = |key: &ObjectKey| match sections.get(&key.section) {
        None => Ok(None),
        Some(section) => query::one(db, LOAD, SQL, params![node, OURS, section, &*key.name], object),
    };
    keys.iter().map(read).collect()
}

/// The oldest proof of each key that signed changes of the control plane's feed for a node, and whether some have none.
fn first_proofs(db: &Connection, node: &NodeId) -> Result<Vec<Option<Bytes>>> {
    // A proof begins with its form and the key's id; its time stands from byte 74 on, big-endian. Beside `min`, SQLite
    // answers the other columns of the row that has it.
    const SQL: &str = "SELECT proof, min(substr(proof, 74, 8)) FROM object WHERE node = ?1 AND side = ?2
        GROUP BY substr(proof, 1, 9)";
    let node = active(db, node)?;
    let proof = |row: &Row<'_>| Ok(row.get::<_, Option<Vec<u8>>>(0)?.map(Bytes::from));
    query::all(db, LOAD, SQL, params![node, OURS], proof)
}

pub(super) fn heads(db: &Connection) -> Result<Vec<(NodeId, SyncHead)>> {
    const SQL: &str =
        "SELECT id, incarnation, head, compacted, theirs_incarnation, theirs_rev, acked_incarnation, acked_rev,
            our_objects, their_objects, changed, condition, theirs_pass
        FROM sync JOIN node ON node.no = sync.node WHERE removed IS NULL ORDER BY id";
    let row = |row: &Row<'_>| Ok((row.get::<_, Text<NodeId>>(0)?.0, row_at(row, 1)?));
    let rows: Vec<(NodeId, StoredSync)> = query::all(db, "read how far the nodes are", SQL, [], row)?;
    rows.into_iter().map(|(node, kept)| Ok((node, head(&kept)?))).collect()
}

fn head(kept: &StoredSync) -> Result<SyncHead> {
    let [feed_objects, replica_objects] = kept.objects;
    Ok(SyncHead {
        feed: cursor(kept.incarnation.as_deref(), kept.head)?,
        replica: replica_cursor(kept)?,
        acked: cursor(kept.acked_incarnation.as_deref(), kept.acked_rev)?,
        // What cannot be read is no comparison.
        condition: kept.condition.as_deref().and_then(|json| serde_json::from_str(json).ok()),
        feed_objects,
        replica_objects,
        changed: kept.changed,
    })
}

/// Node by node, set by set, section by section: each step is a search in the order of
/// the table, so a page costs what it returns, and a step for each section passed over.
pub(super) fn list(
    db: &Connection,
    filter: &ObjectFilter,
    after: Option<&ObjectPosition>,
    limit: usize,
) -> Result<Vec<ObjectRecord>> {
    let limit = limit.min(MAX_LISTED);
    let mut page = Vec::new();
    let from = after.map_or("", |place| place.node.as_str());
    let only = filter.node.as_ref().map(NodeId::as_str);
    const NODES: &str = "SELECT node.no, node.id FROM node CROSS JOIN sync ON sync.node = node.no
        WHERE removed IS NULL AND id >= ?1 AND (?2 IS NULL OR id = ?2) ORDER BY id";
    const NODE: &str = "SELECT node.no, node.id FROM node CROSS JOIN sync ON sync.node = node.no
        WHERE removed IS NULL AND id >= ?1 AND id = ?2";
    let mut statement = db.prepare_cached(if only.is_some() { NODE } else { NODES }).or_fail(LIST)?;
    let mut nodes = statement.query(params![from, only]).or_fail(LIST)?;
    while page.len() < limit
        && let Some(row) = nodes.next().or_fail(LIST)?
    {
        let no: i64 = row.get(0).or_fail(LIST)?;
        let node = row.get::<_, Text<NodeId>>(1).or_fail(LIST)?.0;
        list_node(db, no, &node, filter, after.filter(|place| place.node == node), limit, &mut page)?;
    }
    Ok(page)
}

fn list_node(
    db: &Connection,
    no: i64,
    node: &NodeId,
    filter: &ObjectFilter,
    after: Option<&ObjectPosition>,
    limit: usize,
    page: &mut Vec<ObjectRecord>,
) -> Result<()> {
    let mut sections = sections(db, no)?;
    sections.retain(|(_, key)| filter.lets(key.kind.as_str(), &key.namespace));
    let sides: BTreeSet<Side> = [Side::Feed, Side::Replica].into();
    for side in sides.into_iter().filter(|side| filter.side.is_none_or(|wanted| wanted == *side)) {
        for (section, key) in &sections {
            let from = match after {
                Some(place) if (place.side, &place.key.section) > (side, key) => continue,
                Some(place) if (place.side, &place.key.section) == (side, key) => Some(&*place.key.name),
                _ => None,
            };
            if page.len() >= limit {
                return Ok(());
            }
            let place = (no, node, side, *section, key);
            list_section(db, place, filter.name.as_deref(), from, limit, page)?;
        }
    }
    Ok(())
}

fn list_section(
    db: &Connection,
    (no, node, side, section, key): (i64, &NodeId, Side, i64, &SectionKey),
    name: Option<&str>,
    from: Option<&str>,
    limit: usize,
    page: &mut Vec<ObjectRecord>,
) -> Result<()> {
    const ALL: &str = "SELECT name, rev, uid, digest, size, at, trace FROM object
        WHERE node = ?1 AND side = ?2 AND section = ?3 AND name > ?4 AND body IS NOT NULL
        ORDER BY name LIMIT ?5";
    const ONE: &str = "SELECT name, rev, uid, digest, size, at, trace FROM object
        WHERE node = ?1 AND side = ?2 AND section = ?3 AND name = ?4 AND body IS NOT NULL LIMIT ?5";
    if let (Some(name), Some(from)) = (name, from)
        && name <= from
    {
        return Ok(());
    }
    let record = |row: &Row<'_>| {
        let name = row.get_ref(0)?.as_str()?.into();
        Ok(ObjectRecord {
            node: node.clone(),
            side,
            key: ObjectKey { section: key.clone(), name },
            stub: Stub {
                uid: row.get_ref(2)?.as_str()?.into(),
                digest: Digest(row.get::<_, Bytes32>(3)?.0),
                size: uint(row.get(4)?),
            },
            rev: uint(row.get(1)?),
            at: Timestamp(row.get(5)?),
            trace: row.get(6)?,
        })
    };
    let left = int((limit - page.len()) as u64);
    let (sql, bound) = match name {
        Some(name) => (ONE, name),
        // No name is empty, so every name is beyond it.
        None => (ALL, from.unwrap_or("")),
    };
    page.extend(query::all(db, LIST, sql, params![no, column(side), section, bound, left], record)?);
    Ok(())
}
