//! LIF-4: the schema of the control plane's database is what its golden dump says, and a database
//! of that schema opens. Its migrations are never edited, only added to. `MUSTER_BLESS=1` writes
//! the dump anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use store::Store;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/schema.sql")
}

/// The schema and the migrations applied, as SQL.
fn dump(path: &Path) -> String {
    let database = Connection::open(path).unwrap();
    let rows = |sql: &str| -> Vec<String> {
        let mut statement = database.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let schema = rows(
        "SELECT sql || ';' FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type = 'table' DESC, type DESC, name",
    );
    let migrations = rows(
        "SELECT format('INSERT INTO migration VALUES (%d, %Q, %Q);', number, name, checksum)
         FROM migration ORDER BY number",
    );
    [schema, migrations].concat().join("\n") + "\n"
}

async fn open_and_close(path: &Path) {
    let store = Store::open(path).unwrap();
    let closed = store.closed();
    drop(store);
    closed.await;
}

#[tokio::test]
async fn the_schema_is_the_golden_one_and_opens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new.db");
    open_and_close(&path).await;
    let written = dump(&path);
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::create_dir_all(golden().parent().unwrap()).unwrap();
        std::fs::write(golden(), &written).unwrap();
    }
    let kept = std::fs::read_to_string(golden()).unwrap();
    assert_eq!(written, kept);

    let path = directory.path().join("kept.db");
    Connection::open(&path).unwrap().execute_batch(&kept).unwrap();
    open_and_close(&path).await;
    assert_eq!(dump(&path), kept, "nothing is left to migrate");

    let newer = Connection::open(&path).unwrap();
    newer.execute_batch("INSERT INTO migration VALUES (999, 'later', 'x')").unwrap();
    drop(newer);
    let refused = Store::open(&path).err().unwrap();
    assert!(refused.to_string().contains("newer version"), "{refused}");
}

#[test]
fn a_database_of_the_version_before_is_left_as_it_is_with_the_way_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("earlier.db");
    let earlier = Connection::open(&path).unwrap();
    let checksum = "e4ef80f35b37a3e29aee74c85b869d25ad18f6ef4de90780cec46659286a1f30";
    let sql = format!(
        "CREATE TABLE migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT;
         INSERT INTO migration VALUES (0, '0001_first', '{checksum}');"
    );
    earlier.execute_batch(&sql).unwrap();
    drop(earlier);
    let refused = Store::open(&path).err().unwrap().to_string();
    assert!(refused.contains("Move it away") && refused.contains("join anew"), "{refused}");
    let tables: i64 = Connection::open(&path)
        .unwrap()
        .query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(tables, 1, "nothing was written");
}
