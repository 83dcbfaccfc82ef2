//! The audit log in its table.

use std::sync::Arc;

use model::Digest;
use rusqlite::{Connection, Row, params};

use super::Store;
use super::cell::{Bytes32, int, uint};
use super::query::{self, change, listed, upper};
use crate::audit::{AuditDraft, AuditFilter, AuditHead, AuditRow, MAX_NAMED_NODES};
use crate::error::{Result, StoreError};

/// The hostname under which entries are found that are of more nodes than they name.
const MORE_NODES: &str = "*";

impl Store {
    /// Appends the entry of a request that was let in to the audit log, unless it has one.
    pub async fn append_audit(&self, draft: AuditDraft) -> Result<()> {
        self.write(0, move |session| append_once(&session.db, &draft)).await
    }

    /// Appends the entry of a request that was refused.
    pub async fn append_refusal(&self, draft: AuditDraft) -> Result<()> {
        self.write(0, move |session| append(&session.db, &draft)).await
    }

    /// The newest entry of the audit log.
    pub async fn audit_head(&self) -> Result<AuditHead> {
        self.read(head).await
    }

    /// Entries of the audit log, the newest first.
    pub async fn audit(&self, filter: AuditFilter) -> Result<Vec<AuditRow>> {
        self.read(move |db| list(db, &filter)).await
    }

    /// Entries of the audit log after one, the oldest first: to verify their chain.
    pub async fn audit_after(&self, after: u64, limit: usize) -> Result<Vec<AuditRow>> {
        self.read(move |db| self::after(db, after, limit)).await
    }
}

/// Appends the entry of a request that was let in, unless there is one.
pub(super) fn append_once(db: &Connection, draft: &AuditDraft) -> Result<()> {
    const KNOWN: &str = "SELECT 1 FROM audit WHERE request = ?1 AND refused IS NULL";
    match query::one(db, "look into the audit log", KNOWN, [&draft.request], |_| Ok(()))? {
        Some(()) => Ok(()),
        None => append(db, draft),
    }
}

/// Appends an entry.
fn append(db: &Connection, draft: &AuditDraft) -> Result<()> {
    const ENTRY: &str = "INSERT INTO audit (number, digest, entry) VALUES (?1, ?2, ?3)";
    const NODE: &str = "INSERT OR IGNORE INTO audit_node (hostname, number) VALUES (?1, ?2)";
    let row = head(db)?.follow(draft).map_err(|error| StoreError::Backend {
        operation: "encode an entry of the audit log",
        source: Arc::new(error),
    })?;
    let number = int(row.number);
    change(db, "append to the audit log", ENTRY, params![number, row.digest.as_bytes(), row.entry])?;
    let subject = &draft.subject;
    let more = (subject.node_count > subject.nodes.len() as u64).then_some(MORE_NODES);
    for hostname in subject.nodes.iter().take(MAX_NAMED_NODES).map(String::as_str).chain(more) {
        change(db, "append to the audit log", NODE, params![hostname, number])?;
    }
    Ok(())
}

/// The newest entry.
pub(super) fn head(db: &Connection) -> Result<AuditHead> {
    const SQL: &str = "SELECT number, digest FROM audit ORDER BY number DESC LIMIT 1";
    let head = query::one(db, "read the head of the audit log", SQL, [], |row| {
        Ok(AuditHead { number: uint(row.get(0)?), digest: Digest(row.get::<_, Bytes32>(1)?.0) })
    })?;
    Ok(head.unwrap_or_default())
}

/// Entries, the newest first.
fn list(db: &Connection, filter: &AuditFilter) -> Result<Vec<AuditRow>> {
    const ALL: &str = "SELECT number, digest, entry FROM audit WHERE number < ?1
        AND (?2 IS NULL OR author = ?2) AND (?3 IS NULL OR at >= ?3) AND ?4 IS NULL
        ORDER BY number DESC LIMIT ?5";
    const OF_NODE: &str = "SELECT number, digest, entry FROM audit WHERE number < ?1
        AND (?2 IS NULL OR author = ?2) AND (?3 IS NULL OR at >= ?3)
        AND number IN (SELECT number FROM audit_node WHERE hostname IN (?4, '*'))
        ORDER BY number DESC LIMIT ?5";
    let AuditFilter { since, author, node, before, limit } = filter;
    let sql = if node.is_some() { OF_NODE } else { ALL };
    let bounds = params![upper(*before), author, since.map(|at| at.0), node, listed(*limit)];
    query::all(db, "read the audit log", sql, bounds, row)
}

/// Entries after one, the oldest first.
pub(super) fn after(db: &Connection, after: u64, limit: usize) -> Result<Vec<AuditRow>> {
    const SQL: &str = "SELECT number, digest, entry FROM audit WHERE number > ?1 ORDER BY number LIMIT ?2";
    query::all(db, "read the audit log", SQL, params![int(after), listed(limit)], row)
}

fn row(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    let digest = Digest(row.get::<_, Bytes32>(1)?.0);
    Ok(AuditRow { number: uint(row.get(0)?), digest, entry: row.get(2)? })
}
