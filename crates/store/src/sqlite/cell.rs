//! Values as they lie in columns.

use std::str::FromStr;
use std::sync::Arc;

use model::Digest;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Error, ErrorCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Result, StoreError};

/// 32 raw bytes.
pub(super) struct Bytes32(pub(super) [u8; 32]);
/// A value whose text form is stored.
pub(super) struct Text<T>(pub(super) T);
/// A document.
pub(super) struct Json<T>(pub(super) T);

/// A digest's column.
pub(super) fn dig(digest: &Digest) -> &[u8] {
    digest.as_bytes()
}

/// A number as SQLite has them; beyond its range the largest, which no real number is.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number from its column.
pub(super) fn uint(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

impl FromSql for Bytes32 {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Bytes32> {
        value.as_blob()?.try_into().map(Bytes32).map_err(FromSqlError::other)
    }
}

impl<T: FromStr<Err: std::error::Error + Send + Sync + 'static>> FromSql for Text<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Text<T>> {
        value.as_str()?.parse().map(Text).map_err(FromSqlError::other)
    }
}

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Json<T>> {
        serde_json::from_slice(value.as_bytes()?).map(Json).map_err(FromSqlError::other)
    }
}

impl<T: Serialize> ToSql for Json<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let text = serde_json::to_string(&self.0).map_err(|e| Error::ToSqlConversionFailure(e.into()))?;
        Ok(text.into())
    }
}

/// Gives SQLite's errors their names here.
pub(super) trait OrFail<T> {
    /// The value, or the error of `operation` (an infinitive: "read a node").
    fn or_fail(self, operation: &'static str) -> Result<T>;
}

impl<T> OrFail<T> for rusqlite::Result<T> {
    fn or_fail(self, operation: &'static str) -> Result<T> {
        self.map_err(|error| named(operation, error))
    }
}

fn named(operation: &'static str, error: Error) -> StoreError {
    match (&error, error.sqlite_error_code()) {
        (_, Some(ErrorCode::DiskFull)) => StoreError::Full,
        (_, Some(ErrorCode::ReadOnly)) => StoreError::ReadOnly,
        (_, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) => StoreError::Busy,
        (_, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) => {
            StoreError::Corrupt(error.to_string())
        }
        (Error::FromSqlConversionFailure(..) | Error::InvalidColumnType(..), _) => {
            StoreError::Corrupt(format!("cannot {operation}: {error}"))
        }
        _ => StoreError::Backend { operation, source: Arc::new(error) },
    }
}
