//! Statements, prepared once for each connection.

use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::cell::{OrFail, int};
use crate::MAX_LISTED;
use crate::error::Result;

/// Runs a statement; returns how many rows it changed.
pub(super) fn change(
    db: &Connection,
    operation: &'static str,
    sql: &'static str,
    params: impl Params,
) -> Result<usize> {
    db.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).or_fail(operation)
}

/// The first row, if there is one.
pub(super) fn one<T>(
    db: &Connection,
    operation: &'static str,
    sql: &'static str,
    params: impl Params,
    map: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>> {
    let read = || db.prepare_cached(sql)?.query_row(params, map).optional();
    read().or_fail(operation)
}

/// All rows.
pub(super) fn all<T>(
    db: &Connection,
    operation: &'static str,
    sql: &'static str,
    params: impl Params,
    map: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let read = || -> rusqlite::Result<Vec<T>> { db.prepare_cached(sql)?.query_map(params, map)?.collect() };
    read().or_fail(operation)
}

/// The bound of a listing that is paged from the newest on.
pub(super) fn upper(before: Option<u64>) -> i64 {
    before.map_or(i64::MAX, int)
}

/// A limit held to its bound.
pub(super) fn listed(limit: usize) -> i64 {
    int(limit.min(MAX_LISTED) as u64)
}
