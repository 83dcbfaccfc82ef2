//! Signed lists and failed joins (ENR-3, ENR-4, IDN-6).

use model::Timestamp;
use rusqlite::{Connection, Row, params};
use trust::ListName;

use super::Store;
use super::cell::{Json, Text, int, uint};
use super::query::{self, change, listed, upper};
use crate::error::{EnrollError, Result};
use crate::joining::{
    FailedJoin, FailedJoinRecord, JoinFailureKind, ListVersions, MAX_FAILED_JOINS, MAX_REPORTS_OF_TOKEN,
    PutListError, ReportJoinError, ReportingToken, StoredList,
};

impl Store {
    /// The signed lists that count.
    pub async fn signed_lists(&self) -> Result<Vec<StoredList>> {
        self.read(lists).await
    }

    /// Keeps lists in the place of those of lower numbers; all of them or none.
    ///
    /// # Errors
    /// [`PutListError::NotNewer`] when one's number is not higher than that of the one that is kept.
    pub async fn put_lists(&self, lists: Vec<StoredList>) -> Result<(), PutListError> {
        self.write(0, move |session| lists.iter().try_for_each(|list| put(&session.db, list))).await
    }

    /// Keeps what a host says of its failed join, if its token was not used: a token counts as used once its node
    /// called, as until then the same host may try again (ENR-7).
    ///
    /// # Errors
    /// [`ReportJoinError`] names the refusal.
    pub async fn report_failed_join(
        &self,
        token: ReportingToken,
        join: FailedJoin,
        now: Timestamp,
    ) -> Result<(), ReportJoinError> {
        self.write(0, move |session| report(&session.db, &token, &join, now)).await
    }

    /// Failed joins, the newest first.
    pub async fn failed_joins(&self, limit: usize, before: Option<u64>) -> Result<Vec<FailedJoinRecord>> {
        self.read(move |db| failed(db, limit, before)).await
    }
}

fn lists(db: &Connection) -> Result<Vec<StoredList>> {
    let sql = "SELECT name, seq, document FROM signed_list ORDER BY name";
    let all = query::all(db, "read the signed lists", sql, [], |row| {
        let name = ListName::named(row.get_ref(0)?.as_str()?);
        let (seq, document) = (uint(row.get(1)?), row.get::<_, Json<_>>(2)?.0);
        Ok(name.map(|name| StoredList { name, seq, document }))
    })?;
    Ok(all.into_iter().flatten().collect())
}

fn seq(db: &Connection, name: ListName) -> Result<Option<u64>> {
    let sql = "SELECT seq FROM signed_list WHERE name = ?1";
    query::one(db, "read the number of a signed list", sql, [name.as_str()], |row| Ok(uint(row.get(0)?)))
}

fn put(db: &Connection, list: &StoredList) -> Result<(), PutListError> {
    let StoredList { name, seq: number, document } = list;
    if let Some(held) = seq(db, *name)?.filter(|held| held >= number) {
        return Err(PutListError::NotNewer { name: *name, held });
    }
    let sql = "INSERT INTO signed_list (name, seq, document) VALUES (?1, ?2, ?3)
        ON CONFLICT (name) DO UPDATE SET seq = ?2, document = ?3";
    change(db, "keep a signed list", sql, params![name.as_str(), int(*number), Json(document)])?;
    Ok(())
}

/// An enrollment was judged by the lists that count still.
pub(super) fn judged_by(db: &Connection, by: ListVersions) -> Result<(), EnrollError> {
    let now = ListVersions {
        allowlist: seq(db, ListName::Allowlist)?.unwrap_or(0),
        revocations: seq(db, ListName::Revocations)?.unwrap_or(0),
    };
    if now == by { Ok(()) } else { Err(EnrollError::ListsMoved) }
}

fn report(
    db: &Connection,
    token: &ReportingToken,
    join: &FailedJoin,
    now: Timestamp,
) -> Result<(), ReportJoinError> {
    const BURNED: &str = "SELECT 1 FROM nonce WHERE nonce = ?1 AND NOT EXISTS
        (SELECT 1 FROM node WHERE id = ?2 AND nonce = ?1 AND cert_used = 0 AND removed IS NULL)";
    const COUNT: &str = "SELECT count(*) FROM failed_join WHERE nonce = ?1";
    const INSERT: &str =
        "INSERT INTO failed_join (received, nonce, hostname, fingerprint, failure, code, message, agent)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    const OLDEST: &str = "DELETE FROM failed_join WHERE number <= (SELECT max(number) FROM failed_join) - ?1";
    const KEEP: &str = "keep a failed join";
    let ReportingToken { nonce, node } = token;
    if query::one(db, KEEP, BURNED, params![nonce, node.as_str()], |_| Ok(()))?.is_some() {
        return Err(ReportJoinError::TokenUsed);
    }
    let told = query::one(db, KEEP, COUNT, [nonce], |row| row.get::<_, i64>(0))?.unwrap_or(0);
    if uint(told) >= MAX_REPORTS_OF_TOKEN as u64 {
        return Err(ReportJoinError::TooMany);
    }
    let FailedJoin { hostname, fingerprint, failure, code, message, agent } = join;
    let row = params![now.0, nonce, hostname.as_str(), fingerprint, failure.as_str(), code, message, agent];
    change(db, KEEP, INSERT, row)?;
    change(db, KEEP, OLDEST, [int(MAX_FAILED_JOINS as u64)])?;
    Ok(())
}

fn failed(db: &Connection, limit: usize, before: Option<u64>) -> Result<Vec<FailedJoinRecord>> {
    let sql = "SELECT number, received, hostname, fingerprint, failure, code, message, agent FROM failed_join
        WHERE number < ?1 ORDER BY number DESC LIMIT ?2";
    query::all(db, "read failed joins", sql, params![upper(before), listed(limit)], record)
}

fn record(row: &Row<'_>) -> rusqlite::Result<FailedJoinRecord> {
    let join = FailedJoin {
        hostname: row.get::<_, Text<_>>(2)?.0,
        fingerprint: row.get(3)?,
        failure: JoinFailureKind::named(row.get_ref(4)?.as_str()?),
        code: row.get(5)?,
        message: row.get(6)?,
        agent: row.get(7)?,
    };
    Ok(FailedJoinRecord { number: uint(row.get(0)?), received: Timestamp(row.get(1)?), join })
}
