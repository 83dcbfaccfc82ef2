//! A copy of a database, made while a control plane uses it, and what a database that was restored holds
//! (OPS-6).

use std::path::Path;

use model::{FleetId, Incarnation, Timestamp};
use rusqlite::{Connection, OpenFlags};
use schemars::JsonSchema;
use serde::Serialize;

use super::cell::{OrFail, Text, uint};
use super::migrate::migrate;
use super::open::{DatabaseLock, PATIENCE, create, lock};
use super::{audit, incarnation, query};
use crate::MAX_LISTED;
use crate::audit::{AuditBreak, AuditHead, AuditVerifier};
use crate::error::{Result, StoreError};
use crate::record::{DatabaseIncarnation, IncarnationCause};

/// The most problems that an integrity check names.
const MAX_PROBLEMS: usize = 100;

/// What a database holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseSummary {
    /// The fleet; absent while it is of none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetId>,
    /// Its incarnation; absent before the first start of a control plane that numbers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<DatabaseIncarnation>,
    /// Active nodes.
    pub nodes: u64,
    /// Releases that are kept.
    pub releases: u64,
    /// The newest release's number; 0 before the first.
    pub seq: u64,
    /// Objects of both directions, actions among them.
    pub objects: u64,
    /// Tasks and workflows that are not finished.
    pub open_tasks: u64,
    /// Facts that are kept.
    pub facts: u64,
    /// What an integrity check found; empty when all is well.
    pub problems: Vec<String>,
}

/// Copies a database as it is at one moment into a new file, which only its owner can read. The control
/// plane that has it open goes on meanwhile; its writes lengthen the write-ahead log until the copy is made.
/// Blocks.
///
/// # Errors
/// Those of the disk, and [`StoreError::Corrupt`]; the copy is not to be used then.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let source = connect(from)?;
    create(to)?;
    let name = to.to_str().ok_or_else(|| StoreError::Backend {
        operation: "copy the database",
        source: std::sync::Arc::new(std::io::Error::other("the copy's path is no UTF-8")),
    })?;
    source.execute("VACUUM INTO ?1", [name]).or_fail("copy the database").map(drop)
}

/// Holds a database against control planes that would start on it, as long as the lock lives; the database
/// need not be there.
///
/// # Errors
/// [`StoreError::InUse`] when a control plane has it.
pub fn hold(path: &Path) -> Result<DatabaseLock> {
    lock(path)
}

/// Opens a database that nobody uses, brings its schema up to date and checks it. Blocks.
///
/// # Errors
/// [`StoreError::Schema`] when a newer version wrote it, and those of the disk.
pub fn inspect(path: &Path) -> Result<DatabaseSummary> {
    let db = connect(path)?;
    migrate(&db)?;
    let count = |sql: &'static str| {
        query::one(&db, "count what the database holds", sql, [], |row| Ok(uint(row.get(0)?)))
            .map(Option::unwrap_or_default)
    };
    Ok(DatabaseSummary {
        fleet: query::one(&db, "read what the store is for", "SELECT id FROM fleet", [], |row| {
            Ok(row.get::<_, Text<FleetId>>(0)?.0)
        })?,
        incarnation: incarnation::newest(&db)?,
        nodes: count("SELECT count(*) FROM node WHERE removed IS NULL")?,
        releases: count("SELECT count(*) FROM release")?,
        seq: count("SELECT coalesce(max(seq), 0) FROM release")?,
        objects: count("SELECT count(*) FROM object WHERE body IS NOT NULL")?,
        open_tasks: count("SELECT count(*) FROM task WHERE finished IS NULL")?,
        facts: count("SELECT count(*) FROM fact")?,
        problems: integrity(&db)?,
    })
}

/// The newest entry of the audit log of a database that nobody writes; `None` where an earlier version wrote it,
/// which kept no such log.
///
/// # Errors
/// Those of the disk.
pub fn audit_head(path: &Path) -> Result<Option<AuditHead>> {
    const HAS_LOG: &str = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'audit'";
    let db = connect(path)?;
    let has_log = query::one(&db, "look for the audit log", HAS_LOG, [], |_| Ok(()))?;
    has_log.map(|()| audit::head(&db)).transpose()
}

/// Verifies the audit log of a database, also of one that is in use, and that these heads are in it, which were
/// noted elsewhere. Blocks.
///
/// # Errors
/// Those of the disk; what does not hold is the inner error.
pub fn verify_audit(path: &Path, noted: Vec<AuditHead>) -> Result<Result<AuditHead, AuditBreak>> {
    let db = connect(path)?;
    let mut verifier = AuditVerifier::with_noted(noted);
    loop {
        let rows = audit::after(&db, verifier.head().number, MAX_LISTED)?;
        if rows.is_empty() {
            return Ok(verifier.end());
        }
        for row in rows {
            if let Err(broken) = verifier.take(&row) {
                return Ok(Err(broken));
            }
        }
    }
}

/// Notes in a database that nobody uses that it was restored: another incarnation begins (SCL-4).
///
/// # Errors
/// Those of the disk.
pub fn restored(path: &Path, id: &Incarnation, now: Timestamp) -> Result<()> {
    incarnation::begin(&connect(path)?, id, IncarnationCause::Restored, None, now).map(drop)
}

fn connect(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).or_fail("open the database")?;
    connection.busy_timeout(PATIENCE).or_fail("prepare a connection")?;
    Ok(connection)
}

/// What is not sound of the stored bytes, in words.
pub(super) fn integrity(db: &Connection) -> Result<Vec<String>> {
    let read = || -> rusqlite::Result<Vec<String>> {
        let mut statement = db.prepare(&format!("PRAGMA quick_check({MAX_PROBLEMS})"))?;
        statement.query_map([], |row| row.get(0))?.collect()
    };
    let mut problems = read().or_fail("check the store")?;
    problems.retain(|problem| problem != "ok");
    Ok(problems)
}
