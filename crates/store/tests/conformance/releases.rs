//! Releases and what they reach.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use model::{Channel, Digest};

use super::fixture::{DAY, Tree, at, put, release, signed, tree, tree_with_blobs};
use store::{Pruned, Release, Retention};
use store::{PutError, ReleaseCommitError, Store};

/// ROL-2: compare and set.
pub(super) async fn releases_are_committed_in_order(store: &Store) {
    let tree = tree(3, "a");
    let refused = store.commit_release(release(1, tree.root), None).await.unwrap_err();
    assert!(matches!(refused, ReleaseCommitError::NotComplete { .. }), "{refused:?}");
    put(store, &tree, at(0)).await;
    let set = tree.sets.values().next().unwrap().root();
    let refused = store.commit_release(release(1, set), None).await.unwrap_err();
    assert!(matches!(refused, ReleaseCommitError::NotComplete { .. }), "a set is no selection: {refused:?}");
    let mut empty = release(1, tree.root);
    empty.headers.clear();
    let refused = store.commit_release(empty, None).await.unwrap_err();
    assert!(matches!(refused, ReleaseCommitError::NoHeader), "{refused:?}");

    store.commit_release(release(5, tree.root), None).await.unwrap();
    store.commit_release(release(5, tree.root), None).await.unwrap();
    for (seq, expected) in [(6, None), (6, Some(4)), (5, Some(5)), (4, Some(5)), (6, Some(6))] {
        let mut other = release(seq, tree.root);
        other.ref_label = "other".into();
        let refused = store.commit_release(other, expected).await.unwrap_err();
        let ReleaseCommitError::HeadMoved { head } = refused else { panic!("{refused:?}") };
        assert_eq!(head, Some(5), "r{seq} on {expected:?}");
    }
    store.commit_release(release(6, tree.root), Some(5)).await.unwrap();
    let sixth: Release = release(6, tree.root);
    assert_eq!(store.release(6).await.unwrap(), Some(sixth.clone()));
    assert_eq!(store.release(7).await.unwrap(), None);
    let seqs = async |limit, before| -> Vec<u64> {
        store.releases(limit, before).await.unwrap().iter().map(|release| release.seq).collect()
    };
    assert_eq!(seqs(10, None).await, [6, 5]);
    assert_eq!(seqs(1, None).await, [6]);
    assert_eq!(seqs(10, Some(6)).await, [5]);
}

pub(super) async fn channels_point_to_their_newest_release(store: &Store) {
    let (a, b) = (tree(3, "a"), tree(3, "b"));
    put(store, &a, at(0)).await;
    put(store, &b, at(0)).await;
    let canary = "canary".parse().unwrap();
    let mut first = release(1, a.root);
    first.headers.insert(canary, signed("canary 1"));
    store.commit_release(first, None).await.unwrap();
    store.commit_release(release(2, b.root), Some(1)).await.unwrap();

    let heads = store.heads().await.unwrap();
    let seen: Vec<_> = heads.iter().map(|head| (head.channel.as_str(), head.seq, head.selection)).collect();
    assert_eq!(seen, [("canary", 1, a.root), ("stable", 2, b.root)]);
    assert_eq!(heads[1].header, signed("header 2"));

    // A release that a channel points to is kept, however old.
    let retention = Retention { releases: 1, ..Retention::default() };
    assert_eq!(store.prune(at(DAY * 9), retention).await.unwrap().releases, 0);
    assert!(store.selection(&a.root, None).await.unwrap().is_some());
}

/// ROL-4: a beacon is kept for each release of a channel, also once another one is published, and goes with its release.
pub(super) async fn beacons_are_kept_as_long_as_their_release(store: &Store) {
    let (a, b) = (tree(3, "a"), tree(3, "b"));
    put(store, &a, at(0)).await;
    put(store, &b, at(0)).await;
    let (canary, stable): (Channel, Channel) = ("canary".parse().unwrap(), "stable".parse().unwrap());
    store.commit_release(release(1, a.root), None).await.unwrap();
    assert_eq!(store.beacon(&stable, 1).await.unwrap(), None);
    assert!(store.put_beacon(&stable, 1, signed("first"), at(1)).await.unwrap());
    assert!(store.put_beacon(&stable, 1, signed("second"), at(2)).await.unwrap());
    assert_eq!(store.beacon(&stable, 1).await.unwrap(), Some(signed("second")));
    store.commit_release(release(2, b.root), Some(1)).await.unwrap();
    assert_eq!(store.beacon(&stable, 1).await.unwrap(), Some(signed("second")), "a publish takes none away");
    assert_eq!(store.beacon(&stable, 2).await.unwrap(), None, "and the new release has none");
    assert!(store.put_beacon(&stable, 1, signed("third"), at(3)).await.unwrap());
    assert!(store.put_beacon(&stable, 2, signed("of 2"), at(3)).await.unwrap());
    for (channel, seq) in [(&canary, 2), (&stable, 3)] {
        let put = store.put_beacon(channel, seq, signed("of nothing"), at(3)).await.unwrap();
        assert!(!put && store.beacon(channel, seq).await.unwrap().is_none(), "{channel} {seq}");
    }

    let retention = Retention { releases: 1, ..Retention::default() };
    assert_eq!(store.prune(at(DAY), retention).await.unwrap().releases, 1);
    assert_eq!(store.beacon(&stable, 1).await.unwrap(), None, "it goes with its release");
    assert_eq!(store.beacon(&stable, 2).await.unwrap(), Some(signed("of 2")));
}

pub(super) async fn what_no_release_reaches_is_pruned(store: &Store) {
    let (a, b) = (tree(40, "a"), tree(40, "b"));
    put(store, &a, at(0)).await;
    store.commit_release(release(1, a.root), None).await.unwrap();
    put(store, &b, at(0)).await;
    store.commit_release(release(2, b.root), Some(1)).await.unwrap();
    let retention = Retention { releases: 1, grace: Duration::from_secs(3600), ..Retention::default() };
    let pruned = store.prune(at(DAY), retention).await.unwrap();
    let gone = a.chunks.iter().filter(|chunk| !b.chunks.contains(chunk)).count() as u64;
    assert!(gone > 40);
    assert_eq!(pruned, Pruned { releases: 1, chunks: gone, contents: 1, ..Pruned::default() });
    assert_whole(store, &b).await;
    assert_eq!(store.chunk(&a.root).await.unwrap(), None);
    assert_eq!(store.prune(at(DAY), retention).await.unwrap(), Pruned::default());
}

/// The blobs that a module names are below it: a release without them is not whole, and one
/// that is kept keeps them.
pub(super) async fn blobs_are_below_what_names_them(store: &Store) {
    let retention = Retention { releases: 1, grace: Duration::from_secs(3600), ..Retention::default() };
    let mut before = None;
    // With one module its leaf is in the set's own chunk, with many in buckets.
    for (seq, modules) in [(1, 1), (2, 30)] {
        let blobs: Vec<Bytes> = (0..modules).map(|n| Bytes::from(format!("blob {n} of {seq}"))).collect();
        let tree = tree_with_blobs(&blobs);
        store.put_contents(tree.contents.clone(), at(0)).await.unwrap();
        let refused = store.put_chunks(tree.chunks.clone(), at(0)).await.unwrap_err();
        let PutError::NotComplete { chunks, contents } = refused else { panic!("{refused:?}") };
        let digests: BTreeSet<Digest> = blobs.iter().map(|blob| Digest::of(blob)).collect();
        assert_eq!((chunks, contents), (vec![], digests.iter().copied().collect()));
        store.put_contents(blobs.clone(), at(0)).await.unwrap();
        store.put_chunks(tree.chunks.clone(), at(0)).await.unwrap();
        store.commit_release(release(seq, tree.root), before).await.unwrap();
        store.prune(at(DAY * seq as i64), retention).await.unwrap();
        for digest in &digests {
            assert!(store.content_size(digest).await.unwrap().is_some(), "release {seq} needs it");
        }
        before = Some(seq);
    }
    let gone = Digest::of(b"blob 0 of 1");
    assert_eq!(store.content_size(&gone).await.unwrap(), None, "no release reaches it any more");
}

pub(super) async fn an_upload_in_progress_is_safe(store: &Store) {
    let (a, b) = (tree(20, "a"), tree(20, "b"));
    put(store, &a, at(0)).await;
    put(store, &b, at(0)).await;
    let retention = Retention { grace: Duration::from_secs(6 * 3600), ..Retention::default() };
    // One is asked for again, and counts as used with all that is below it.
    assert_eq!(store.missing_chunks(vec![a.root], at(DAY)).await.unwrap(), []);
    let lone = Digest::of(&b.contents[20]);
    assert_eq!(store.missing_contents(vec![lone], at(DAY)).await.unwrap(), []);
    store.prune(at(DAY + 3600), retention).await.unwrap();
    assert_whole(store, &a).await;
    assert_eq!(store.chunk(&b.root).await.unwrap(), None);
    assert!(store.content_size(&lone).await.unwrap().is_some());
    store.prune(at(DAY * 2), retention).await.unwrap();
    assert_eq!(store.chunk(&a.root).await.unwrap(), None);
    assert_eq!(store.content_size(&lone).await.unwrap(), None);
}

async fn assert_whole(store: &Store, tree: &Tree) {
    assert_eq!(store.selection(&tree.root, None).await.unwrap().as_ref(), Some(&tree.selection));
    for set in tree.sets.values() {
        assert_eq!(store.set(&set.root()).await.unwrap().as_ref(), Some(set));
        for (key, stub) in set.objects() {
            assert_eq!(store.content_size(&stub.digest).await.unwrap(), Some(stub.size), "{key}");
        }
    }
}
