//! LIF-4: the schema of the control plane's database is what its golden dump says, and a database
//! of that schema opens. Its migrations are never edited, only added to. `MUSTER_BLESS=1` writes
//! the dump anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use store::SqliteStore;

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
        "SELECT sql || ';' FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type DESC, name",
    );
    let migrations = rows(
        "SELECT format('INSERT INTO migration VALUES (%d, %Q, %Q);', number, name, checksum)
         FROM migration ORDER BY number",
    );
    [schema, migrations].concat().join("\n") + "\n"
}

async fn open_and_close(path: &Path) {
    let store = SqliteStore::open(path).unwrap();
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
    let refused = SqliteStore::open(&path).err().unwrap();
    assert!(refused.to_string().contains("newer version"), "{refused}");
}
