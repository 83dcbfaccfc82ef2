//! SCL-4: the database begins another incarnation where it is known to have gone back to what it was before:
//! restored from a backup, copied, or overtaken by a release that nodes hold; and only there. OPS-6: a copy is
//! made while the database is open.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "shared with the conformance tests")]
mod fixture;

use fixture::{at, incarnation, put, release, signed, tree};
use store::{IncarnationCause, Store, StoreError};

async fn close(store: Store) {
    let closed = store.closed();
    drop(store);
    closed.await;
}

#[tokio::test]
async fn a_database_that_went_back_begins_another_incarnation() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("muster.db"), directory.path().join("copy.db"));
    let (first, second) = (incarnation("first"), incarnation("second"));
    let store = Store::open(&path).unwrap();
    let founded = store.open_incarnation(&first, at(1)).await.unwrap();
    assert_eq!((founded.id.clone(), founded.cause), (first.clone(), IncarnationCause::Founded));
    assert_eq!(store.open_incarnation(&second, at(2)).await.unwrap(), founded, "a start is no other life");
    store.open_epoch(at(2)).await.unwrap();
    close(store).await;

    // A copy, as a file system's copy is one, put in the place of what it was copied from.
    std::fs::copy(&path, &copy).unwrap();
    std::fs::rename(&copy, &path).unwrap();
    let store = Store::open(&path).unwrap();
    let copied = store.open_incarnation(&second, at(3)).await.unwrap();
    assert_eq!((&copied.id, copied.cause), (&second, IncarnationCause::Copied));
    assert_eq!(copied.went_back(), Some(IncarnationCause::Copied));
    let tree = tree(2, "a");
    put(&store, &tree, at(0)).await;
    store.commit_release(release(7, tree.root), None).await.unwrap();
    let published = store.incarnation().await.unwrap().unwrap();
    assert_eq!((published.published, published.went_back()), (Some(7), None));

    // A node holds what no release here is.
    store.keep_node_header(9, signed("nine"), &incarnation("third"), at(4)).await.unwrap();
    store.keep_node_header(8, signed("eight"), &incarnation("fourth"), at(5)).await.unwrap();
    assert_eq!(store.node_header().await.unwrap(), Some(signed("nine")));
    let overtaken = store.incarnation().await.unwrap().unwrap();
    assert_eq!((overtaken.id, overtaken.cause), (incarnation("third"), IncarnationCause::Overtaken));
    close(store).await;

    // A backup, made while the database is open, and restored.
    let _store = Store::open(&path).unwrap();
    let backup = directory.path().join("backup.db");
    store::backup::copy(&path, &backup).unwrap();
    assert!(matches!(store::backup::hold(&path), Err(StoreError::InUse)));
    store::backup::restored(&backup, &incarnation("fifth"), at(6)).unwrap();
    let held = store::backup::inspect(&backup).unwrap();
    assert_eq!((held.seq, held.releases, held.problems.len()), (7, 1, 0));
    let restored = Store::open(&backup).unwrap();
    let begun = restored.open_incarnation(&incarnation("sixth"), at(7)).await.unwrap();
    assert_eq!((begun.id, begun.cause), (incarnation("fifth"), IncarnationCause::Restored));
    close(restored).await;
    let restored = Store::open(&backup).unwrap();
    let same = restored.open_incarnation(&incarnation("seventh"), at(8)).await.unwrap();
    assert_eq!(same.id, incarnation("fifth"));
}
