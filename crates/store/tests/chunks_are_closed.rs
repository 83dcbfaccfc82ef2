//! DLT-3, DLT-4: whoever has a chunk has everything below it, also while garbage is taken
//! away in the midst of uploads.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use model::Digest;
use store::{PutError, Retention, Store};

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

use fixture::{DAY, Tree, at, tree};

const ROUNDS: i64 = 12;

/// Everything that a stored chunk needs is stored.
async fn assert_closed(store: &Store, trees: &[Tree]) {
    for chunk in trees.iter().flat_map(|tree| &tree.chunks) {
        if store.chunk(&chunk.hash().unwrap()).await.unwrap().is_none() {
            continue;
        }
        let needs = chunk.needs();
        for below in needs.chunks {
            assert!(store.chunk(&below).await.unwrap().is_some(), "{below:?} is missing");
        }
        for (content, size) in needs.contents {
            assert_eq!(store.content_size(&content).await.unwrap(), Some(size), "{content:?} is missing");
        }
    }
}

/// Uploads a tree as a publisher does: asks from the top down, sends from the bottom up.
async fn upload(store: &Store, tree: &Tree, clock: &AtomicI64) {
    let now = || at(clock.load(Ordering::Relaxed));
    let contents: Vec<Digest> = tree.contents.iter().map(|content| Digest::of(content)).collect();
    for _ in 0..50 {
        let missing = store.missing_contents(contents.clone(), now()).await.unwrap();
        let send = tree.contents.iter().filter(|content| missing.contains(&Digest::of(content)));
        store.put_contents(send.cloned().collect(), now()).await.unwrap();
        let all = tree.chunks.iter().map(|chunk| chunk.hash().unwrap()).collect();
        let missing = store.missing_chunks(all, now()).await.unwrap();
        let send: Vec<_> =
            tree.chunks.iter().filter(|chunk| missing.contains(&chunk.hash().unwrap())).cloned().collect();
        let mut whole = true;
        for part in send.chunks(7) {
            match store.put_chunks(part.to_vec(), now()).await {
                Ok(_) => {}
                // The clock of this test runs so fast that even the grace period passes.
                Err(PutError::NotComplete { .. }) => whole = false,
                Err(other) => panic!("{other:?}"),
            }
        }
        if whole {
            return;
        }
    }
    panic!("an upload never came to its end");
}

async fn churn(store: Arc<Store>) {
    let trees: Arc<Vec<Tree>> = Arc::new((0..4).map(|n| tree(25, &format!("t{n}"))).collect());
    let clock = Arc::new(AtomicI64::new(0));
    let uploads: Vec<_> = (0..trees.len())
        .map(|n| {
            let (store, trees, clock) = (Arc::clone(&store), Arc::clone(&trees), Arc::clone(&clock));
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    upload(&store, &trees[n], &clock).await;
                }
            })
        })
        .collect();
    let retention = Retention { grace: Duration::from_secs(3600), ..Retention::default() };
    let mut gone = 0;
    while !uploads.iter().all(tokio::task::JoinHandle::is_finished) {
        let now = clock.fetch_add(DAY / 12, Ordering::Relaxed);
        gone += store.prune(at(now), retention).await.unwrap().chunks;
        assert_closed(&store, &trees).await;
    }
    for upload in uploads {
        upload.await.unwrap();
    }
    assert_closed(&store, &trees).await;
    let now = clock.load(Ordering::Relaxed);
    gone += store.prune(at(now + 9 * DAY), retention).await.unwrap().chunks;
    assert!(gone > 0, "no garbage was ever taken away: this test shows nothing");
    assert!(store.chunk(&trees[0].root).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite() {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    churn(Arc::new(Store::open(directory.path().join("muster.db")).unwrap())).await;
}
