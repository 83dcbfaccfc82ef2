//! Facts: accepted once, listed newest first.

use model::log::{Cursor, Fact, FactBody};
use model::{Incarnation, NodeId, Timestamp};
use rusqlite::{Connection, Row, params};

use super::cell::{Json, Text, int, uint};
use super::nodes::active;
use super::prune;
use super::query::{self, change, listed, upper};
use crate::MAX_LISTED;
use crate::error::Result;
use crate::log::{self, Derived};
use crate::record::{Accepted, FactRecord, NODE_FACT_BYTES, RunFilter, RunRecord};

pub(super) fn append(
    db: &Connection,
    node: &NodeId,
    incarnation: &Incarnation,
    facts: Vec<Fact>,
    now: Timestamp,
) -> Result<Accepted> {
    let node = active(db, node)?;
    let (known_log, after) = cursor(db, node, incarnation)?;
    let new = model::log::contiguous(after, facts);
    let Some(last) = new.last() else {
        let cursor = Cursor { incarnation: incarnation.clone(), seq: after };
        return Ok(Accepted { cursor, new });
    };
    let seq = last.seq;
    let log = match known_log {
        Some(log) => log,
        None => insert_log(db, node, incarnation)?,
    };
    insert(db, node, log, &new, now)?;
    change(db, "move a cursor", "UPDATE log SET cursor = ?2 WHERE no = ?1", params![log, int(seq)])?;
    keep_derived(db, node, log, derived(db, node)?.after(&new))?;
    count_bytes(db, node, log, after)?;
    let cursor = Cursor { incarnation: incarnation.clone(), seq };
    Ok(Accepted { cursor, new })
}

fn cursor(db: &Connection, node: i64, incarnation: &Incarnation) -> Result<(Option<i64>, u64)> {
    let sql = "SELECT no, cursor FROM log WHERE node = ?1 AND incarnation = ?2";
    let name = params![node, incarnation.as_str()];
    let cursor = |row: &Row<'_>| Ok((Some(row.get(0)?), uint(row.get(1)?)));
    Ok(query::one(db, "read a log's cursor", sql, name, cursor)?.unwrap_or((None, 0)))
}

fn insert_log(db: &Connection, node: i64, incarnation: &Incarnation) -> Result<i64> {
    let sql = "INSERT INTO log (node, incarnation, cursor) VALUES (?1, ?2, 0)";
    change(db, "begin a log", sql, params![node, incarnation.as_str()])?;
    Ok(db.last_insert_rowid())
}

fn insert(db: &Connection, node: i64, log: i64, facts: &[Fact], now: Timestamp) -> Result<()> {
    let sql = "INSERT INTO fact (node, log, seq, at, received, sort, body, action, ended)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    for fact in facts {
        let (sort, body) = (log::sort_of(fact) as i64, Json(&fact.body));
        let action = log::action_of(fact);
        let (id, ended) = (action.map(|action| &action.id), action.is_some_and(log::is_end));
        let row = params![node, log, int(fact.seq), fact.at.0, now.0, sort, body, id, ended];
        change(db, "append a fact", sql, row)?;
    }
    Ok(())
}

/// Counts the bytes of what follows a number in a log. A node that has far more than is kept of it does not wait
/// until the next pruning.
fn count_bytes(db: &Connection, node: i64, log: i64, after: u64) -> Result<()> {
    const COUNT: &str = "UPDATE contact SET fact_bytes = fact_bytes
        + (SELECT coalesce(sum(octet_length(body)), 0) FROM fact WHERE log = ?2 AND seq > ?3)
        WHERE node = ?1 RETURNING fact_bytes";
    let count = params![node, log, int(after)];
    let bytes = query::one(db, "count a node's facts", COUNT, count, |row| row.get(0))?;
    if uint(bytes.unwrap_or(0)) > 2 * NODE_FACT_BYTES {
        prune::by_bytes(db, node, NODE_FACT_BYTES)?;
    }
    Ok(())
}

fn derived(db: &Connection, node: i64) -> Result<Derived> {
    let sql = "SELECT streak, last_run FROM contact WHERE node = ?1";
    let derived = |row: &Row<'_>| {
        let kept = row.get::<_, Option<Json<_>>>(1)?.map(|kept| kept.0);
        Ok(Derived::restored(kept, row.get(0)?))
    };
    Ok(query::one(db, "read a node's runs", sql, [node], derived)?.unwrap_or_default())
}

fn keep_derived(db: &Connection, node: i64, log: i64, derived: Derived) -> Result<()> {
    let sql = "INSERT INTO contact (node, streak, last_run, log) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (node) DO UPDATE SET streak = ?2, last_run = ?3, log = ?4";
    let (streak, runs) = (derived.runs.streak, derived.stored().map(Json));
    change(db, "keep a node's runs", sql, params![node, streak, runs, log]).map(|_| ())
}

macro_rules! select_facts {
    ($rest:literal) => {
        concat!(
            "SELECT fact.id, node.id, incarnation, received, seq, at, body FROM fact
                JOIN node ON node.no = fact.node JOIN log ON log.no = fact.log ",
            $rest
        )
    };
}

pub(super) fn of_node(
    db: &Connection,
    node: &NodeId,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<FactRecord>> {
    const SQL: &str = select_facts!(
        "WHERE fact.node = (SELECT no FROM node WHERE id = ?1) AND fact.id < ?2
        ORDER BY fact.id DESC LIMIT ?3"
    );
    let bounds = params![node.as_str(), upper(before), listed(limit)];
    query::all(db, "read facts", SQL, bounds, fact_record)
}

pub(super) fn of_action(db: &Connection, node: &NodeId, action: &str) -> Result<Vec<FactRecord>> {
    const SQL: &str = select_facts!(
        "WHERE fact.node = (SELECT no FROM node WHERE id = ?1) AND fact.action = ?2
        ORDER BY fact.id LIMIT ?3"
    );
    let bounds = params![node.as_str(), action, listed(MAX_LISTED)];
    query::all(db, "read an action's facts", SQL, bounds, fact_record)
}

pub(super) fn ended(db: &Connection, node: &NodeId, mut actions: Vec<String>) -> Result<Vec<String>> {
    const NODE: &str = "SELECT no FROM node WHERE id = ?1";
    const ENDED: &str = "SELECT 1 FROM fact WHERE node = ?1 AND action = ?2 AND ended = 1 LIMIT 1";
    let node: Option<i64> = query::one(db, "find a node", NODE, [node.as_str()], |row| row.get(0))?;
    let Some(node) = node else { return Ok(Vec::new()) };
    let mut failed = None;
    actions.retain(|action| {
        let found = query::one(db, "find an action's end", ENDED, params![node, action], |_| Ok(()));
        found.map(|end| end.is_some()).unwrap_or_else(|error| {
            failed = Some(error);
            false
        })
    });
    failed.map_or(Ok(actions), Err)
}

pub(super) fn runs(db: &Connection, filter: &RunFilter) -> Result<Vec<RunRecord>> {
    const ALL: &str = select_facts!("WHERE fact.sort = 1 AND fact.id < ?1 ORDER BY fact.id DESC LIMIT ?2");
    const OF_NODE: &str = select_facts!(
        "WHERE fact.node = (SELECT no FROM node WHERE id = ?3) AND fact.sort = 1 AND fact.id < ?1
        ORDER BY fact.id DESC LIMIT ?2"
    );
    let (before, limit) = (upper(filter.before), listed(filter.limit));
    let records = match &filter.node {
        None => query::all(db, "read runs", ALL, params![before, limit], fact_record)?,
        Some(node) => {
            let bounds = params![before, limit, node.as_str()];
            query::all(db, "read runs", OF_NODE, bounds, fact_record)?
        }
    };
    Ok(records.into_iter().filter_map(run_record).collect())
}

pub(super) fn run(
    db: &Connection,
    node: &NodeId,
    incarnation: &Incarnation,
    seq: u64,
) -> Result<Option<RunRecord>> {
    const SQL: &str = select_facts!(
        "WHERE fact.sort = 1 AND fact.seq = ?3 AND fact.log = (SELECT no FROM log
            WHERE incarnation = ?2 AND node = (SELECT no FROM node WHERE id = ?1))"
    );
    let name = params![node.as_str(), incarnation.as_str(), int(seq)];
    Ok(query::one(db, "read a run", SQL, name, fact_record)?.and_then(run_record))
}

fn fact_record(row: &Row<'_>) -> rusqlite::Result<FactRecord> {
    Ok(FactRecord {
        id: uint(row.get(0)?),
        node: row.get::<_, Text<_>>(1)?.0,
        incarnation: row.get::<_, Text<_>>(2)?.0,
        received: Timestamp(row.get(3)?),
        fact: Fact {
            seq: uint(row.get(4)?),
            at: Timestamp(row.get(5)?),
            body: row.get::<_, Json<FactBody>>(6)?.0,
        },
    })
}

fn run_record(record: FactRecord) -> Option<RunRecord> {
    let FactRecord { id, node, incarnation, received, fact } = record;
    match fact.body {
        FactBody::Run(report) => {
            Some(RunRecord { id, node, incarnation, seq: fact.seq, at: fact.at, received, report })
        }
        _ => None,
    }
}
