//! SRV: every backend does the same; CNV-3, CNV-4, DLT-5, IDN-1, ENR-2, ENR-7, ROL-2,
//! SYN-4, SYN-6, OPS-2, LIF-5.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Mutex;

use store::{MemoryStore, SqliteStore, Store, conformance};

#[tokio::test]
async fn memory() {
    conformance::all(|| Box::new(MemoryStore::new())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite() {
    let directories = Mutex::new(Vec::new());
    let make = || -> Box<dyn Store> {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(directory.path().join("muster.db")).unwrap();
        directories.lock().unwrap().push(directory);
        Box::new(store)
    };
    conformance::all(make).await;
}
