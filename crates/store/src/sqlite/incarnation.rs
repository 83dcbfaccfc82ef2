//! Incarnations of the database: whether it went back to what it was before (SCL-4).

use model::exchange::Signed;
use model::{Incarnation, Timestamp};
use rusqlite::{Connection, Row, params};

use super::cell::{Json, Text, int, uint};
use super::query::{self, change};
use crate::error::Result;
use crate::record::{DatabaseIncarnation, IncarnationCause};

/// Takes up the incarnation of a database that is started on; begins another one, with the id given, where
/// there is none yet or the file is a copy of the one that it was in.
pub(super) fn open(
    db: &Connection,
    id: &Incarnation,
    file: &str,
    now: Timestamp,
) -> Result<DatabaseIncarnation> {
    const FILE: &str = "SELECT file FROM incarnation ORDER BY number DESC LIMIT 1";
    let file_of = |row: &Row<'_>| row.get::<_, Option<String>>(0);
    let known = query::one(db, "read the incarnation's file", FILE, [], file_of)?;
    let Some(newest) = newest(db)?.zip(known) else {
        return begin(db, id, IncarnationCause::Founded, Some(file), now);
    };
    match newest {
        (_, Some(known)) if known != file => begin(db, id, IncarnationCause::Copied, Some(file), now),
        (newest, Some(_)) => Ok(newest),
        (newest, None) => {
            let sql = "UPDATE incarnation SET file = ?1 WHERE number = (SELECT max(number) FROM incarnation)";
            change(db, "keep the incarnation's file", sql, [file])?;
            Ok(newest)
        }
    }
}

/// Begins an incarnation.
pub(super) fn begin(
    db: &Connection,
    id: &Incarnation,
    cause: IncarnationCause,
    file: Option<&str>,
    now: Timestamp,
) -> Result<DatabaseIncarnation> {
    let sql = "INSERT INTO incarnation (id, cause, began, file) VALUES (?1, ?2, ?3, ?4)";
    change(db, "begin an incarnation", sql, params![id.as_str(), cause.as_str(), now.0, file])?;
    Ok(DatabaseIncarnation::begun(id.clone(), cause, now))
}

pub(super) fn newest(db: &Connection) -> Result<Option<DatabaseIncarnation>> {
    let sql = "SELECT id, cause, began, published FROM incarnation ORDER BY number DESC LIMIT 1";
    query::one(db, "read the incarnation", sql, [], of_row)
}

fn of_row(row: &Row<'_>) -> rusqlite::Result<DatabaseIncarnation> {
    Ok(DatabaseIncarnation {
        id: row.get::<_, Text<_>>(0)?.0,
        cause: IncarnationCause::named(&row.get::<_, String>(1)?),
        began: Timestamp(row.get(2)?),
        published: row.get::<_, Option<i64>>(3)?.map(uint),
    })
}

/// A release was committed: from here on the numbers of releases are known to go on above all before.
pub(super) fn published(db: &Connection, seq: u64) -> Result<()> {
    let sql = "UPDATE incarnation SET published = ?1
        WHERE number = (SELECT max(number) FROM incarnation) AND published IS NULL";
    change(db, "note a release", sql, [int(seq)]).map(drop)
}

/// Keeps a header that a node holds, if its number is above the one that is kept. The data went back, as no
/// release here has the number: another incarnation begins, unless none was published in since the last began.
pub(super) fn keep_node_header(
    db: &Connection,
    seq: u64,
    header: &Signed,
    id: &Incarnation,
    now: Timestamp,
) -> Result<()> {
    const KEEP: &str = "INSERT INTO node_header (one, seq, header) VALUES (1, ?1, ?2)
        ON CONFLICT (one) DO UPDATE SET seq = ?1, header = ?2 WHERE seq < ?1";
    const FILE: &str = "SELECT file FROM incarnation ORDER BY number DESC LIMIT 1";
    change(db, "keep a header of nodes", KEEP, params![int(seq), Json(header)])?;
    let known_to_be_back = newest(db)?.is_some_and(|newest| newest.went_back().is_some());
    if !known_to_be_back {
        let file =
            query::one(db, "read the incarnation's file", FILE, [], |row| row.get::<_, Option<String>>(0))?;
        begin(db, id, IncarnationCause::Overtaken, file.flatten().as_deref(), now)?;
    }
    Ok(())
}

pub(super) fn node_header(db: &Connection) -> Result<Option<Signed>> {
    let sql = "SELECT header FROM node_header";
    query::one(db, "read the header of nodes", sql, [], |row| Ok(row.get::<_, Json<Signed>>(0)?.0))
}
