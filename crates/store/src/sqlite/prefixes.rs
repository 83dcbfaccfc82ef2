//! Address prefixes of which somebody authenticated lately.

use model::Timestamp;
use rusqlite::{Connection, params};

use super::Store;
use super::cell::int;
use super::query::{self, change};
use crate::error::Result;
use crate::record::KnownPrefix;

impl Store {
    /// Keeps when somebody authenticated of each prefix. What was before `forget` goes, and of more than `most` those
    /// of which somebody authenticated longest ago.
    pub async fn keep_prefixes(&self, known: Vec<KnownPrefix>, forget: Timestamp, most: usize) -> Result<()> {
        self.write(0, move |session| keep(&session.db, &known, forget, most)).await
    }

    /// The address prefixes that are kept, the newest first.
    pub async fn prefixes(&self) -> Result<Vec<KnownPrefix>> {
        self.read(all).await
    }
}

/// Keeps when somebody authenticated of each prefix; forgets what was before a time, and of more than `most` those of
/// which somebody authenticated longest ago.
fn keep(db: &Connection, known: &[KnownPrefix], forget: Timestamp, most: usize) -> Result<()> {
    const KEEP: &str = "INSERT INTO known_prefix (prefix, authenticated) VALUES (?1, ?2)
        ON CONFLICT (prefix) DO UPDATE SET authenticated = max(authenticated, ?2)";
    const FORGET: &str = "DELETE FROM known_prefix WHERE authenticated < ?1 OR prefix IN (
        SELECT prefix FROM known_prefix ORDER BY authenticated DESC LIMIT -1 OFFSET ?2)";
    for KnownPrefix { prefix, authenticated } in known {
        change(db, "keep an address prefix", KEEP, params![prefix, authenticated.0])?;
    }
    change(db, "forget address prefixes", FORGET, params![forget.0, int(most as u64)]).map(drop)
}

/// All that are kept, the newest first.
fn all(db: &Connection) -> Result<Vec<KnownPrefix>> {
    let sql = "SELECT prefix, authenticated FROM known_prefix ORDER BY authenticated DESC, prefix";
    query::all(db, "read the address prefixes", sql, [], |row| {
        Ok(KnownPrefix { prefix: row.get(0)?, authenticated: Timestamp(row.get(1)?) })
    })
}
