//! ROL-2: of many publishers one wins, and the others are told what is newest now; no
//! release is lost or overwritten.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use store::{ReleaseCommitError, Store};

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

use fixture::{at, put, release, tree};

fn open(directory: &tempfile::TempDir) -> Arc<Store> {
    Arc::new(Store::open(directory.path().join("muster.db")).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn publishers_at_once() {
    const PUBLISHERS: u64 = 8;
    const EACH: u64 = 5;
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let tree = tree(2, "a");
    put(&store, &tree, at(0)).await;
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|publisher| {
            let (store, root) = (Arc::clone(&store), tree.root);
            tokio::spawn(async move {
                let mut head: Option<u64> = None;
                let mut done = Vec::new();
                while (done.len() as u64) < EACH {
                    // Each has numbers of its own, so that only what it was built on
                    // can be in the way.
                    let seq = head.map_or(0, |head| head / PUBLISHERS + 1) * PUBLISHERS + publisher;
                    let mut new = release(seq, root);
                    new.ref_label = format!("of {publisher}");
                    match store.commit_release(new, head).await {
                        Ok(()) => {
                            done.push((head, seq));
                            head = Some(seq);
                        }
                        Err(ReleaseCommitError::HeadMoved { head: now }) => head = now,
                        Err(other) => panic!("{other:?}"),
                    }
                }
                (publisher, done)
            })
        })
        .collect();
    let mut all = Vec::new();
    for publisher in publishers {
        let (publisher, done) = publisher.await.unwrap();
        for (_, seq) in &done {
            let label = store.release(*seq).await.unwrap().unwrap().ref_label;
            assert_eq!(label, format!("of {publisher}"), "r{seq} was overwritten");
        }
        all.extend(done);
    }
    all.sort_unstable();
    let mut head = None;
    for (built_on, seq) in all {
        assert_eq!(built_on, head, "r{seq} was not built on the one before it");
        head = Some(seq);
    }
    assert_eq!(Some(store.heads().await.unwrap()[0].seq), head);
}

#[tokio::test]
async fn a_release_and_its_heads_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("muster.db");
    let tree = tree(2, "a");
    let store = Store::open(&path).unwrap();
    put(&store, &tree, at(0)).await;
    store.commit_release(release(1, tree.root), None).await.unwrap();
    let (heads, stored) = (store.heads().await.unwrap(), store.release(1).await.unwrap());
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!((store.heads().await.unwrap(), store.release(1).await.unwrap()), (heads, stored));
    assert_eq!(store.selection(&tree.root, None).await.unwrap().unwrap(), tree.selection);
}
