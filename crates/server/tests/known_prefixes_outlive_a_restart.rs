//! SCL-3: an address prefix of which a node authenticated keeps its room over a restart of the control plane.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use net::admission::KNOWN_FOR;
use store::{KnownPrefix, Store};
use test_support::fleet::{Fleet, now};

/// What the database of a control plane that is stopped keeps.
async fn kept(fleet: &Fleet) -> Vec<KnownPrefix> {
    let store = Store::open(fleet.dir.path().join("muster.db")).unwrap();
    let (kept, closed) = (store.prefixes().await.unwrap(), store.closed());
    drop(store);
    closed.await;
    kept
}

#[tokio::test]
async fn who_authenticated_is_kept_and_who_did_not_is_not() {
    let mut fleet = Fleet::start().await;
    fleet.anonymous().await;
    fleet.stop().await;
    assert_eq!(kept(&fleet).await, []);
    fleet.start_again().await;
    let (before, mut node) = (now(), fleet.node("web-1").await);
    node.url = fleet.url();
    node.survives().await;
    fleet.stop().await;
    let known = kept(&fleet).await;
    let [KnownPrefix { prefix, authenticated }] = known.as_slice() else { panic!("{known:?}") };
    assert_eq!(prefix, "127.0.0.0/24");
    assert!((before.minus(Duration::from_secs(1))..=now()).contains(authenticated), "{authenticated}");
    // What is past its day goes with the next one that is kept.
    let store = Store::open(fleet.dir.path().join("muster.db")).unwrap();
    let old = KnownPrefix { prefix: "192.0.2.0/24".to_owned(), authenticated: now().minus(KNOWN_FOR * 2) };
    store.keep_prefixes(vec![old], model::Timestamp(0), 9).await.unwrap();
    let closed = store.closed();
    drop(store);
    closed.await;
    fleet.start_again().await;
    node.url = fleet.url();
    node.survives().await;
    fleet.stop().await;
    let prefixes: Vec<String> = kept(&fleet).await.into_iter().map(|known| known.prefix).collect();
    assert_eq!(prefixes, ["127.0.0.0/24"]);
}
