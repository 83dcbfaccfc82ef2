//! Writes of synchronization: the own feed and the replica of one node, whole or not.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::object::SectionKey;
use model::{NodeId, ObjectKey, Stub, Timestamp};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};
use sync::Content;
use sync::FeedCursor;
use sync::feed::ObjectState;

use super::cell::{OrFail, dig, int, uint};
use super::nodes::active;
use super::query::{self, change};
use super::writer::Session;
use crate::error::{Result, StoreError};
use crate::objects::SyncProgress;

/// The column of [`sync::Side::Feed`].
pub(super) const OURS: i64 = 0;
/// The column of [`sync::Side::Replica`].
pub(super) const THEIRS: i64 = 1;
/// What a failure of a write is called.
const WRITE: &str = "write what is synchronized";

/// What is kept of a node besides its objects.
#[derive(Default)]
pub(super) struct StoredSync {
    pub(super) incarnation: Option<String>,
    pub(super) head: u64,
    pub(super) compacted: u64,
    pub(super) theirs_incarnation: Option<String>,
    pub(super) theirs_rev: u64,
    pub(super) theirs_pass: Option<String>,
    pub(super) acked_incarnation: Option<String>,
    pub(super) acked_rev: u64,
    /// Objects by side.
    pub(super) objects: [u64; 2],
    pub(super) changed: Timestamp,
    /// JSON of a condition.
    pub(super) condition: Option<String>,
}

pub(super) fn row_of(db: &Connection, node: i64) -> Result<Option<StoredSync>> {
    const SQL: &str =
        "SELECT incarnation, head, compacted, theirs_incarnation, theirs_rev, acked_incarnation, acked_rev,
        our_objects, their_objects, changed, condition, theirs_pass FROM sync WHERE node = ?1";
    query::one(db, "read how far a node is", SQL, [node], |row| row_at(row, 0))
}

/// The row that begins with this column.
pub(super) fn row_at(row: &Row<'_>, first: usize) -> rusqlite::Result<StoredSync> {
    Ok(StoredSync {
        incarnation: row.get(first)?,
        head: uint(row.get(first + 1)?),
        compacted: uint(row.get(first + 2)?),
        theirs_incarnation: row.get(first + 3)?,
        theirs_rev: uint(row.get(first + 4)?),
        acked_incarnation: row.get(first + 5)?,
        acked_rev: uint(row.get(first + 6)?),
        objects: [uint(row.get(first + 7)?), uint(row.get(first + 8)?)],
        changed: Timestamp(row.get(first + 9)?),
        condition: row.get(first + 10)?,
        theirs_pass: row.get(first + 11)?,
    })
}

pub(super) fn write(session: &mut Session, node: &NodeId, write: &sync::Write, now: Timestamp) -> Result<()> {
    let node = active(&session.db, node)?;
    let mut row = row_of(&session.db, node)?.unwrap_or_default();
    let head = write.check(row.incarnation.as_ref().map(|_| row.head)).map_err(StoreError::Unsound)?;
    if let Some(incarnation) = &write.begin {
        forget_side(&session.db, node, OURS)?;
        row = StoredSync {
            incarnation: Some(incarnation.to_string()),
            compacted: 0,
            acked_incarnation: None,
            acked_rev: 0,
            ..row
        };
        row.objects[OURS as usize] = 0;
    }
    if write.forget_replica {
        forget_side(&session.db, node, THEIRS)?;
        (row.theirs_incarnation, row.theirs_rev, row.theirs_pass) = (None, 0, None);
        row.objects[THEIRS as usize] = 0;
    }
    row.head = head.unwrap_or(0);
    let next_body = match session.next_body {
        Some(next) => next,
        None => first_free_body(&session.db)?,
    };
    let mut pen = Pen::new(&session.db, node, now, next_body, row.objects)?;
    pen.objects(write)?;
    if let Some(compacted) = write.compacted.filter(|compacted| *compacted > row.compacted) {
        pen.forget_tombstones(compacted)?;
        row.compacted = compacted;
    }
    pen.sections_left()?;
    (session.next_body, row.objects) = (Some(pen.next_body), pen.objects);
    drop(pen);
    if let Some(FeedCursor { incarnation, revision, pass }) = &write.cursor {
        (row.theirs_incarnation, row.theirs_rev) = (Some(incarnation.to_string()), *revision);
        row.theirs_pass = pass.as_ref().map(ToString::to_string);
    }
    row.changed = now;
    keep(&session.db, node, &row)
}

fn keep(db: &Connection, node: i64, row: &StoredSync) -> Result<()> {
    const SQL: &str =
        "INSERT OR REPLACE INTO sync (node, incarnation, head, compacted, theirs_incarnation, theirs_rev,
        acked_incarnation, acked_rev, our_objects, their_objects, changed, condition, theirs_pass)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    let [ours, theirs] = row.objects;
    let row = params![
        node,
        row.incarnation,
        int(row.head),
        int(row.compacted),
        row.theirs_incarnation,
        int(row.theirs_rev),
        row.acked_incarnation,
        int(row.acked_rev),
        int(ours),
        int(theirs),
        row.changed.0,
        row.condition,
        row.theirs_pass
    ];
    change(db, WRITE, SQL, row).map(|_| ())
}

fn first_free_body(db: &Connection) -> Result<i64> {
    let sql = "SELECT coalesce(max(no), 0) + 1 FROM object_body";
    Ok(query::one(db, WRITE, sql, [], |row| row.get(0))?.unwrap_or(1))
}

fn forget_side(db: &Connection, node: i64, side: i64) -> Result<()> {
    const BODIES: &str = "DELETE FROM object_body WHERE no IN
        (SELECT body FROM object WHERE node = ?1 AND side = ?2 AND body IS NOT NULL)";
    const OBJECTS: &str = "DELETE FROM object WHERE node = ?1 AND side = ?2";
    change(db, WRITE, BODIES, [node, side])?;
    change(db, WRITE, OBJECTS, [node, side])?;
    let sections = "DELETE FROM section WHERE node = ?1 AND NOT EXISTS
        (SELECT 1 FROM object WHERE object.node = ?1 AND side = 1 - ?2 AND object.section = section.no)";
    change(db, WRITE, sections, [node, side]).map(|_| ())
}

/// Forgets all that is kept for a node at once.
pub(super) fn forget(db: &Connection, node: i64) -> Result<()> {
    forget_side(db, node, OURS)?;
    forget_side(db, node, THEIRS)?;
    change(db, WRITE, "DELETE FROM sync WHERE node = ?1", [node]).map(|_| ())
}

/// Forgets at most so many objects of a node, if it is removed, and at last its row;
/// returns how many objects went, and whether that was all.
pub(super) fn forget_some(db: &Connection, node: i64, most: usize) -> Result<(u64, bool)> {
    const REMOVED: &str = "SELECT 1 FROM node WHERE no = ?1 AND removed IS NOT NULL";
    const SOME: &str = "SELECT side, section, name, body FROM object WHERE node = ?1 LIMIT ?2";
    const ROW: &str = "DELETE FROM object WHERE node = ?1 AND side = ?2 AND section = ?3 AND name = ?4";
    if query::one(db, WRITE, REMOVED, [node], |_| Ok(()))?.is_none() {
        return Ok((0, true));
    }
    type Key = (i64, i64, String, Option<i64>);
    let key =
        |row: &Row<'_>| -> rusqlite::Result<Key> { Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)) };
    let keys = query::all(db, WRITE, SOME, params![node, int(most as u64)], key)?;
    let mut gone = 0;
    for (side, section, name, body) in &keys {
        if let Some(body) = body {
            change(db, WRITE, "DELETE FROM object_body WHERE no = ?1", [body])?;
            gone += 1;
        }
        change(db, WRITE, ROW, params![node, side, section, name])?;
    }
    let all = keys.len() < most;
    if all {
        change(db, WRITE, "DELETE FROM section WHERE node = ?1", [node])?;
        change(db, WRITE, "DELETE FROM sync WHERE node = ?1", [node])?;
    }
    Ok((gone, all))
}

/// Keeps of one node what is known of it.
pub(super) fn progress(
    db: &Connection,
    SyncProgress { node, acked, condition }: &SyncProgress,
) -> Result<()> {
    const ACKED: &str =
        "UPDATE sync SET acked_incarnation = incarnation, acked_rev = ?3 WHERE incarnation = ?2
        AND node = (SELECT no FROM node WHERE id = ?1 AND removed IS NULL)";
    const CONDITION: &str = "INSERT INTO sync
            (node, head, compacted, theirs_rev, acked_rev, our_objects, their_objects, changed, condition)
        SELECT no, 0, 0, 0, 0, 0, 0, 0, ?2 FROM node WHERE id = ?1 AND removed IS NULL
        ON CONFLICT (node) DO UPDATE SET condition = ?2";
    if let Some(cursor) = acked {
        let row = params![node.as_str(), cursor.incarnation.as_str(), int(cursor.revision)];
        change(db, "note how far a node is", ACKED, row)?;
    }
    if let Some(condition) = condition {
        // A condition is texts and numbers, which JSON always has.
        let json = serde_json::to_string(condition).ok();
        change(db, "keep what a comparison came to", CONDITION, params![node.as_str(), json])?;
    }
    Ok(())
}

/// One write, with its statements at hand: they run once for each object.
struct Pen<'db> {
    db: &'db Connection,
    node: i64,
    now: Timestamp,
    next_body: i64,
    objects: [u64; 2],
    sections: BTreeMap<SectionKey, i64>,
    /// Sections that lost an object.
    lost: BTreeSet<i64>,
    find: CachedStatement<'db>,
    insert: CachedStatement<'db>,
    update: CachedStatement<'db>,
    put_body: CachedStatement<'db>,
    take: CachedStatement<'db>,
    take_body: CachedStatement<'db>,
}

/// Where an object stands in the order of its feed, and what proves it.
#[derive(Clone, Copy)]
struct StoredRevision<'a> {
    rev: u64,
    born: u64,
    proof: Option<&'a [u8]>,
}

impl<'db> Pen<'db> {
    fn new(
        db: &'db Connection,
        node: i64,
        now: Timestamp,
        next_body: i64,
        objects: [u64; 2],
    ) -> Result<Pen<'db>> {
        const INSERT: &str = "INSERT INTO object
                (node, side, section, name, rev, born, uid, digest, size, at, trace, body, proof)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
        const UPDATE: &str =
            "UPDATE object SET rev = ?5, born = ?6, uid = ?7, digest = ?8, size = ?9, at = ?10,
                trace = ?11, body = ?12, proof = ?13
            WHERE node = ?1 AND side = ?2 AND section = ?3 AND name = ?4";
        const FIND: &str = "SELECT body FROM object
            WHERE node = ?1 AND side = ?2 AND section = ?3 AND name = ?4";
        const PUT_BODY: &str = "INSERT OR REPLACE INTO object_body (no, bytes) VALUES (?1, ?2)";
        const TAKE: &str = "DELETE FROM object WHERE node = ?1 AND side = ?2 AND section = ?3 AND name = ?4";
        const TAKE_BODY: &str = "DELETE FROM object_body WHERE no = ?1";
        let prepare = |sql: &'static str| db.prepare_cached(sql).or_fail(WRITE);
        Ok(Pen {
            db,
            node,
            now,
            next_body,
            objects,
            sections: BTreeMap::new(),
            lost: BTreeSet::new(),
            find: prepare(FIND)?,
            insert: prepare(INSERT)?,
            update: prepare(UPDATE)?,
            put_body: prepare(PUT_BODY)?,
            take: prepare(TAKE)?,
            take_body: prepare(TAKE_BODY)?,
        })
    }

    fn objects(&mut self, write: &sync::Write) -> Result<()> {
        for (at, (change, content)) in write.feed.iter().enumerate() {
            let proof = write.proofs.get(at).map(|proof| &proof[..]);
            match (&change.state, content) {
                (ObjectState::Live { stub, born }, Some(content)) => {
                    let revision = StoredRevision { rev: change.rev, born: *born, proof };
                    self.put(OURS, &change.key, stub, revision, content)?;
                }
                (ObjectState::Deleted { uid }, _) => self.bury(&change.key, uid, change.rev, proof)?,
                // The check of the write lets no such change through.
                (ObjectState::Live { .. }, None) => {}
            }
        }
        for (key, put) in &write.replica {
            match put {
                Some((stub, rev, content)) => {
                    let revision = StoredRevision { rev: *rev, born: 0, proof: None };
                    self.put(THEIRS, key, stub, revision, content)?;
                }
                None => self.take(THEIRS, key)?,
            }
        }
        Ok(())
    }

    fn put(
        &mut self,
        side: i64,
        key: &ObjectKey,
        stub: &Stub,
        StoredRevision { rev, born, proof }: StoredRevision<'_>,
        content: &Content,
    ) -> Result<()> {
        let section = self.section(&key.section)?;
        let row = self.row(side, section, &key.name)?;
        // An upsert would look for the row once more.
        let put = if row.is_some() { &mut self.update } else { &mut self.insert };
        // A live object keeps the number of its body.
        let body = row.flatten().unwrap_or_else(|| {
            self.next_body += 1;
            self.objects[side as usize] += 1;
            self.next_body - 1
        });
        let row = params![
            self.node,
            side,
            section,
            &*key.name,
            int(rev),
            int(born),
            &*stub.uid,
            dig(&stub.digest),
            int(stub.size),
            content.at,
            content.trace.as_deref(),
            body,
            proof
        ];
        put.execute(row).or_fail(WRITE)?;
        let bytes: &Bytes = &content.bytes;
        self.put_body.execute(params![body, &bytes[..]]).or_fail(WRITE).map(|_| ())
    }

    /// Takes an object away, if it is there.
    fn take(&mut self, side: i64, key: &ObjectKey) -> Result<()> {
        let section = self.section(&key.section)?;
        let body = self.row(side, section, &key.name)?.flatten();
        self.take.execute(params![self.node, side, section, &*key.name]).or_fail(WRITE)?;
        self.lost.insert(section);
        if let Some(body) = body {
            self.take_body.execute([body]).or_fail(WRITE)?;
            self.objects[side as usize] = self.objects[side as usize].saturating_sub(1);
        }
        Ok(())
    }

    /// The row of an object, if there is one: the number of its body, which a tombstone has not.
    fn row(&mut self, side: i64, section: i64, name: &str) -> Result<Option<Option<i64>>> {
        let body = self.find.query_row(params![self.node, side, section, name], |row| row.get(0));
        body.optional().or_fail(WRITE)
    }

    /// Puts a tombstone in the place of an object of ours.
    fn bury(&mut self, key: &ObjectKey, uid: &str, rev: u64, proof: Option<&[u8]>) -> Result<()> {
        const TOMBSTONE: &str =
            "INSERT INTO object (node, side, section, name, rev, born, uid, size, at, proof)
            VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, 0, ?7, ?8)";
        self.take(OURS, key)?;
        let section = self.section(&key.section)?;
        let row = params![self.node, OURS, section, &*key.name, int(rev), uid, self.now.0, proof];
        change(self.db, WRITE, TOMBSTONE, row).map(|_| ())
    }

    fn forget_tombstones(&mut self, compacted: u64) -> Result<()> {
        const SQL: &str = "DELETE FROM object WHERE node = ?1 AND body IS NULL AND rev <= ?2
            RETURNING section";
        let gone =
            query::all(self.db, WRITE, SQL, params![self.node, int(compacted)], |row| row.get::<_, i64>(0))?;
        self.lost.extend(gone);
        Ok(())
    }

    /// Forgets sections that have nothing left.
    fn sections_left(&mut self) -> Result<()> {
        const SQL: &str = "DELETE FROM section WHERE no = ?2 AND NOT EXISTS
            (SELECT 1 FROM object WHERE node = ?1 AND side IN (0, 1) AND section = ?2)";
        for section in std::mem::take(&mut self.lost) {
            change(self.db, WRITE, SQL, [self.node, section])?;
        }
        Ok(())
    }

    fn section(&mut self, key: &SectionKey) -> Result<i64> {
        const KNOWN: &str = "SELECT no FROM section WHERE node = ?1 AND kind = ?2 AND namespace = ?3";
        const NEW: &str = "INSERT INTO section (node, kind, namespace) VALUES (?1, ?2, ?3)";
        if let Some(number) = self.sections.get(key) {
            return Ok(*number);
        }
        let name = params![self.node, key.kind.as_str(), &*key.namespace];
        let number = match query::one(self.db, WRITE, KNOWN, name, |row| row.get(0))? {
            Some(number) => number,
            None => {
                change(self.db, WRITE, NEW, name)?;
                self.db.last_insert_rowid()
            }
        };
        self.sections.insert(key.clone(), number);
        Ok(number)
    }
}
