//! LIF-10 on the control plane: a full disk is a clear error, nothing is acknowledged that
//! is not durable, and it is over when there is room again. Needs root, for a small disk.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use store::{PutError, Store, StoreError};

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

use fixture::{at, enrolled, incarnation, started};

/// A small file system in memory, as long as this exists.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let disk = SmallDisk(tempfile::tempdir().unwrap());
        let options = ["-t", "tmpfs", "-o", "size=4m", "muster-test"];
        let mounted = Command::new("mount").args(options).arg(disk.path()).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(disk)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_and_it_passes() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: this needs root and the right to mount");
        return;
    };
    let path = disk.path().join("muster.db");
    let store = Store::open(&path).unwrap();
    let node = enrolled(&store, 1).await;
    let kept = store.put_contents(vec![Bytes::from_static(b"kept")], at(0)).await.unwrap();

    // Ballast fills the disk, and goes away as an operator would make it.
    let ballast = disk.path().join("ballast");
    let _ = std::fs::write(&ballast, vec![0u8; 8 << 20]);
    let mut acked = 0;
    let refused = loop {
        match store.append_facts(&node, &incarnation("one"), vec![started(acked + 1)], at(1)).await {
            Ok(accepted) => acked = accepted.cursor.seq,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, StoreError::Full), "{refused:?}");
    let health = store.health();
    assert!(!health.writable && health.last_error.is_some(), "{health:?}");
    let large = Bytes::from(vec![1u8; 1 << 20]);
    let refused = store.put_contents(vec![large.clone()], at(1)).await.unwrap_err();
    assert!(matches!(refused, PutError::Store(StoreError::Full)), "{refused:?}");
    assert_eq!(store.content(&kept[0], None).await.unwrap().unwrap(), "kept", "reading goes on");
    assert_eq!(store.facts(&node, None, 1000).await.unwrap().len() as u64, acked);

    std::fs::remove_file(&ballast).unwrap();
    let accepted =
        store.append_facts(&node, &incarnation("one"), vec![started(acked + 1)], at(2)).await.unwrap();
    assert_eq!(accepted.cursor.seq, acked + 1);
    store.put_contents(vec![large], at(2)).await.unwrap();
    assert!(store.health().writable);
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.integrity().await.unwrap(), Vec::<String>::new());
    assert_eq!(store.node(&node).await.unwrap().unwrap().cursor.unwrap().seq, acked + 1);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("muster.db");
    std::fs::write(&path, "this is a letter, not a database; ".repeat(100)).unwrap();
    let refused = Store::open(&path).err().unwrap();
    assert!(matches!(refused, StoreError::Corrupt(_)), "{refused:?}");
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("this is a letter"));
}
