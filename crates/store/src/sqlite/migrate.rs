//! Brings a database to this version's schema.

use model::Digest;
use rusqlite::{Connection, params};

use super::cell::OrFail;
use super::query;
use crate::error::{Result, StoreError};

/// In order; one that has been released is never edited.
const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_first", include_str!("migrations/0001_first.sql")),
    ("0002_sync", include_str!("migrations/0002_sync.sql")),
    ("0003_condition", include_str!("migrations/0003_condition.sql")),
    ("0004_tagged_run", include_str!("migrations/0004_tagged_run.sql")),
    ("0005_incarnation", include_str!("migrations/0005_incarnation.sql")),
    ("0006_bytes", include_str!("migrations/0006_bytes.sql")),
    ("0007_certificates", include_str!("migrations/0007_certificates.sql")),
    ("0008_health", include_str!("migrations/0008_health.sql")),
    ("0009_renewal", include_str!("migrations/0009_renewal.sql")),
    ("0010_conditions", include_str!("migrations/0010_conditions.sql")),
    ("0011_operators_and_audit", include_str!("migrations/0011_operators_and_audit.sql")),
    ("0012_signed_lists", include_str!("migrations/0012_signed_lists.sql")),
    ("0013_joins", include_str!("migrations/0013_joins.sql")),
    ("0014_proofs", include_str!("migrations/0014_proofs.sql")),
    ("0015_certificate_authority", include_str!("migrations/0015_certificate_authority.sql")),
    ("0016_rollouts", include_str!("migrations/0016_rollouts.sql")),
    ("0017_beacons", include_str!("migrations/0017_beacons.sql")),
];

/// Checksum of the first migration of the version before durable formats had numbers.
const UNNUMBERED_FIRST: &str = "e4ef80f35b37a3e29aee74c85b869d25ad18f6ef4de90780cec46659286a1f30";
/// The way out for a database of that version.
const UNNUMBERED: &str = "it was written by the version before formats had numbers, and is left as it is. Move it \
    away (the keys beside it stay), start again, publish again, and let the nodes join anew";

/// Applies what is missing, each in a transaction of its own.
///
/// # Errors
/// [`StoreError::Schema`] when the database has what this version does not know, or a
/// migration that was applied is not the one here.
pub(super) fn migrate(connection: &Connection) -> Result<()> {
    const TABLE: &str = "CREATE TABLE IF NOT EXISTS migration (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT";
    connection.execute_batch(TABLE).or_fail("create the table of migrations")?;
    let applied = applied(connection)?;
    if applied.len() > MIGRATIONS.len() {
        return Err(StoreError::Schema("it was written by a newer version".into()));
    }
    for (number, (name, sql)) in MIGRATIONS.iter().enumerate() {
        let checksum = Digest::of(sql.as_bytes()).to_string();
        match applied.get(number) {
            Some(known) if *known == checksum => {}
            Some(known) if known == UNNUMBERED_FIRST => return Err(StoreError::Schema(UNNUMBERED.into())),
            Some(_) => return Err(StoreError::Schema(format!("migration {name} is not the one applied"))),
            None => apply(connection, number, name, sql, &checksum)?,
        }
    }
    Ok(())
}

fn applied(connection: &Connection) -> Result<Vec<String>> {
    let sql = "SELECT checksum FROM migration ORDER BY number";
    query::all(connection, "read the migrations", sql, [], |row| row.get(0))
}

fn apply(connection: &Connection, number: usize, name: &str, sql: &str, checksum: &str) -> Result<()> {
    let run = || {
        let transaction = connection.unchecked_transaction()?;
        transaction.execute_batch(sql)?;
        let row = "INSERT INTO migration (number, name, checksum) VALUES (?1, ?2, ?3)";
        transaction.execute(row, params![number as i64, name, checksum])?;
        transaction.commit()
    };
    run().or_fail("apply a migration")
}
