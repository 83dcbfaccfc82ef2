//! Releases and what channels point to.

use model::chunk::TreeChunk;
use model::exchange::Signed;
use model::{Channel, Digest, Timestamp};
use rusqlite::{Connection, Row, params};

use super::Store;
use super::cell::{Bytes32, Json, Text, dig, int, uint};
use super::chunks::{self, Table};
use super::incarnation;
use super::query::{self, change, listed, upper};
use super::sweep::Recent;
use super::writer::Session;
use crate::error::{ReleaseCommitError, Result};
use crate::record::{ChannelHead, Release};

impl Store {
    /// The beacon that is kept for a channel's header of release `seq`.
    pub async fn beacon(&self, channel: &Channel, seq: u64) -> Result<Option<Signed>> {
        let channel = channel.clone();
        let sql = "SELECT document FROM beacon WHERE seq = ?1 AND channel = ?2";
        self.read(move |db| {
            let key = params![int(seq), channel.as_str()];
            query::one(db, "read a beacon", sql, key, |row| Ok(row.get::<_, Json<_>>(0)?.0))
        })
        .await
    }

    /// Keeps a beacon for a channel's header of release `seq`, in place of the one before; `false` when no such header
    /// is stored. Whether it is newer than that one is the caller's to say: one of a key that was dropped since counts
    /// no more, whatever its date.
    pub async fn put_beacon(
        &self,
        channel: &Channel,
        seq: u64,
        beacon: Signed,
        at: Timestamp,
    ) -> Result<bool> {
        let channel = channel.clone();
        let sql = "INSERT OR REPLACE INTO beacon (seq, channel, document, at)
            SELECT seq, ?1, ?3, ?4 FROM release
            WHERE seq = ?2 AND EXISTS (SELECT 1 FROM json_each(headers) WHERE key = ?1)";
        self.write(0, move |session| {
            let row = params![channel.as_str(), int(seq), Json(&beacon), at.0];
            Ok(change(&session.db, "keep a beacon", sql, row)? > 0)
        })
        .await
    }
}

pub(super) fn commit(
    session: &mut Session,
    new: &Release,
    built_on: Option<u64>,
) -> Result<(), ReleaseCommitError> {
    let db = &session.db;
    if release(db, new.seq)?.as_ref() == Some(new) {
        return Ok(());
    }
    if new.headers.is_empty() {
        return Err(ReleaseCommitError::NoHeader);
    }
    let head = newest(db)?;
    if head != built_on || head.is_some_and(|head| head >= new.seq) {
        return Err(ReleaseCommitError::HeadMoved { head });
    }
    if !matches!(chunks::chunk(db, &new.selection)?, Some(TreeChunk::Selection { .. })) {
        return Err(ReleaseCommitError::NotComplete { missing: vec![new.selection] });
    }
    insert(db, new)?;
    incarnation::published(db, new.seq)?;
    Recent::note(&mut session.recent, Table::Chunk, &new.selection);
    Ok(())
}

fn newest(db: &Connection) -> Result<Option<u64>> {
    let sql = "SELECT seq FROM release ORDER BY seq DESC LIMIT 1";
    query::one(db, "read the newest release", sql, [], |row| Ok(uint(row.get(0)?)))
}

fn insert(db: &Connection, new: &Release) -> Result<()> {
    const RELEASE: &str = "INSERT INTO release (seq, ref_label, created, selection, headers, summary)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    const HEAD: &str = "INSERT OR REPLACE INTO head (channel, seq, header, selection)
        VALUES (?1, ?2, ?3, ?4)";
    let (seq, selection) = (int(new.seq), dig(&new.selection));
    let row = params![seq, new.ref_label, new.created.0, selection, Json(&new.headers), Json(&new.summary)];
    change(db, "commit a release", RELEASE, row)?;
    for (channel, header) in &new.headers {
        change(db, "point a channel", HEAD, params![channel.as_str(), seq, Json(header), selection])?;
    }
    Ok(())
}

pub(super) fn heads(db: &Connection) -> Result<Vec<ChannelHead>> {
    let sql = "SELECT channel, seq, header, selection FROM head ORDER BY channel";
    query::all(db, "read the channels", sql, [], |row| {
        Ok(ChannelHead {
            channel: row.get::<_, Text<_>>(0)?.0,
            seq: uint(row.get(1)?),
            header: row.get::<_, Json<_>>(2)?.0,
            selection: Digest(row.get::<_, Bytes32>(3)?.0),
        })
    })
}

pub(super) fn release(db: &Connection, seq: u64) -> Result<Option<Release>> {
    let sql = "SELECT seq, ref_label, created, selection, headers, summary FROM release WHERE seq = ?1";
    query::one(db, "read a release", sql, [int(seq)], of_row)
}

pub(super) fn list(db: &Connection, limit: usize, before: Option<u64>) -> Result<Vec<Release>> {
    let sql = "SELECT seq, ref_label, created, selection, headers, summary FROM release
        WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";
    let bounds = params![upper(before), listed(limit)];
    query::all(db, "read the releases", sql, bounds, of_row)
}

fn of_row(row: &Row<'_>) -> rusqlite::Result<Release> {
    Ok(Release {
        seq: uint(row.get(0)?),
        ref_label: row.get(1)?,
        created: Timestamp(row.get(2)?),
        selection: Digest(row.get::<_, Bytes32>(3)?.0),
        headers: row.get::<_, Json<_>>(4)?.0,
        summary: row.get::<_, Json<_>>(5)?.0,
    })
}
