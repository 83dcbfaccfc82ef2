//! ENR-2: the token is burned in the transaction that records the node, never on an error.
//! ENR-7: a retry with the same token and key yields the same node, until the certificate
//! is first used. Also when many try at once.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use store::{EnrollError, Enrolled, Store};

#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

use fixture::{at, new_node, token};

fn open(directory: &tempfile::TempDir) -> Arc<Store> {
    Arc::new(Store::open(directory.path().join("muster.db")).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_keys_wins() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let tries: Vec<_> = (0..32)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.enroll(new_node(n), token("one"), at(0)).await })
        })
        .collect();
    let mut won = 0;
    for one in tries {
        match one.await.unwrap() {
            Ok(Enrolled::New) => won += 1,
            Err(EnrollError::NonceUsed) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((won, store.nodes(None, 100).await.unwrap().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_holders_of_a_hostname_wins_and_no_other_token_is_burned() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let node = |n| {
        let mut node = new_node(n);
        node.hostname = "wanted".parse().unwrap();
        node
    };
    let tries: Vec<_> = (0..16)
        .map(|n| {
            let (store, node) = (Arc::clone(&store), node(n));
            let token = token(&format!("token-{n}"));
            tokio::spawn(async move { (n, store.enroll(node, token, at(0)).await) })
        })
        .collect();
    let mut lost = Vec::new();
    for one in tries {
        match one.await.unwrap() {
            (_, Ok(Enrolled::New)) => {}
            (n, Err(EnrollError::HostnameTaken { .. })) => lost.push(n),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lost.len(), 15);
    for n in lost {
        let again = store.enroll(new_node(n), token(&format!("token-{n}")), at(1)).await;
        assert_eq!(again.unwrap(), Enrolled::New, "its token was not burned by the error");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_yield_one_node_until_the_certificate_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let tries: Vec<_> = (0..32)
        .map(|n| {
            let store = Arc::clone(&store);
            let mut node = new_node(1);
            node.cert_serial = format!("{n}");
            tokio::spawn(async move { store.enroll(node, token("one"), at(0)).await.unwrap() })
        })
        .collect();
    let mut new = 0;
    for one in tries {
        new += u32::from(one.await.unwrap() == Enrolled::New);
    }
    assert_eq!((new, store.nodes(None, 100).await.unwrap().len()), (1, 1));
    store.certificate_used(&new_node(1).node_id).await.unwrap();
    let late = store.enroll(new_node(1), token("one"), at(1)).await;
    assert!(matches!(late, Err(EnrollError::NonceUsed)), "{late:?}");
}

#[tokio::test]
async fn a_burned_token_stays_burned_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("muster.db");
    let store = Store::open(&path).unwrap();
    store.enroll(new_node(1), token("one"), at(0)).await.unwrap();
    drop(store);
    let store = Store::open(&path).unwrap();
    let refused = store.enroll(new_node(2), token("one"), at(1)).await;
    assert!(matches!(refused, Err(EnrollError::NonceUsed)), "{refused:?}");
    assert_eq!(store.enroll(new_node(1), token("one"), at(1)).await.unwrap(), Enrolled::Again);
}
