//! Chunks and contents.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use model::chunk::TreeChunk;
use model::object::blobs_named;
use model::{Digest, Timestamp};
use rusqlite::{Connection, Row, params};

use super::cell::{OrFail, dig, int, uint};
use super::query::{self, change};
use super::sweep::Recent;
use super::writer::Session;
use crate::closure::{self, Prepared};
use crate::error::{PutError, Result, StoreError};

/// A row is not written again for being reported as present within this many
/// milliseconds of the last time. Pruning adds it to the grace period.
pub(super) const TOUCH_GRAIN_MS: i64 = 3600 * 1000;

/// Which of the two tables.
#[derive(Clone, Copy)]
pub(super) enum Table {
    Chunk,
    Content,
}

/// Those of `digests` that are not stored; the others are touched.
pub(super) fn missing(
    session: &mut Session,
    table: Table,
    digests: &[Digest],
    now: Timestamp,
) -> Result<Vec<Digest>> {
    let (select, update) = match table {
        Table::Chunk => {
            ("SELECT no, touched FROM chunk WHERE digest = ?1", "UPDATE chunk SET touched = ?2 WHERE no = ?1")
        }
        Table::Content => (
            "SELECT no, touched FROM content WHERE digest = ?1",
            "UPDATE content SET touched = ?2 WHERE no = ?1",
        ),
    };
    let mut missing = Vec::new();
    for digest in digests {
        let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let found = query::one(&session.db, "look for a digest", select, [dig(digest)], row)?;
        let Some((no, touched)) = found else {
            missing.push(*digest);
            continue;
        };
        if touched.saturating_add(TOUCH_GRAIN_MS) <= now.0 {
            change(&session.db, "touch a chunk or content", update, params![no, now.0])?;
        }
        Recent::note(&mut session.recent, table, digest);
    }
    Ok(missing)
}

pub(super) fn put_contents(
    session: &mut Session,
    digests: &[Digest],
    contents: &[Bytes],
    now: Timestamp,
) -> Result<()> {
    const PUT: &str = "INSERT INTO content (digest, size, touched, body) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (digest) DO UPDATE SET touched = max(touched, ?3)";
    for (digest, content) in digests.iter().zip(contents) {
        let row = params![dig(digest), int(content.len() as u64), now.0, content.as_ref()];
        change(&session.db, "store a content", PUT, row)?;
        Recent::note(&mut session.recent, Table::Content, digest);
    }
    Ok(())
}

pub(super) fn put_chunks(
    session: &mut Session,
    prepared: &BTreeMap<Digest, Prepared>,
    now: Timestamp,
) -> Result<(), PutError> {
    const PUT: &str = "INSERT INTO chunk (digest, height, touched, body) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (digest) DO UPDATE SET touched = max(touched, ?3)";
    let heights = closure::check(prepared, &session.db)?;
    for (digest, chunk) in prepared {
        let height = heights.get(digest).copied().unwrap_or_default();
        change(&session.db, "store a chunk", PUT, params![dig(digest), height, now.0, chunk.body])?;
        Recent::note(&mut session.recent, Table::Chunk, digest);
    }
    Ok(())
}

/// The height of a stored chunk.
pub(crate) fn height(db: &Connection, chunk: &Digest) -> Result<Option<u32>> {
    let sql = "SELECT height FROM chunk WHERE digest = ?1";
    query::one(db, "look for a chunk", sql, [dig(chunk)], |row| row.get(0))
}

/// The blobs that a stored content names.
pub(crate) fn blobs(db: &Connection, module: &Digest) -> Result<BTreeSet<Digest>> {
    Ok(content(db, module, None)?.map(|bytes| blobs_named(&bytes)).unwrap_or_default())
}

/// The size of a stored content.
pub(crate) fn size(db: &Connection, content: &Digest) -> Result<Option<u64>> {
    let sql = "SELECT size FROM content WHERE digest = ?1";
    query::one(db, "look for a content", sql, [dig(content)], |row| Ok(uint(row.get(0)?)))
}

/// A stored chunk.
pub(crate) fn chunk(db: &Connection, digest: &Digest) -> Result<Option<TreeChunk>> {
    let sql = "SELECT body FROM chunk WHERE digest = ?1";
    let decode = |row: &Row<'_>| Ok(closure::decode(row.get_ref(0)?.as_blob()?));
    query::one(db, "read a chunk", sql, [dig(digest)], decode)?.transpose()
}

pub(super) fn content(db: &Connection, digest: &Digest, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
    let sql = "SELECT no, size FROM content WHERE digest = ?1";
    let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, uint(row.get(1)?)));
    let found = query::one(db, "look for a content", sql, [dig(digest)], row)?;
    let Some((no, size)) = found else { return Ok(None) };
    let range = closure::clamp(range, size);
    let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
    let mut blob = db.blob_open("main", "content", "body", no, true).or_fail("open a content")?;
    let failed = |error| StoreError::Backend { operation: "read a content", source: Arc::new(error) };
    std::io::Seek::seek(&mut blob, std::io::SeekFrom::Start(range.start)).map_err(failed)?;
    blob.take(range.end - range.start).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes.into()))
}
