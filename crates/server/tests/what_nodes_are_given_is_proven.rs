//! IDN-9: objects and actions of the control plane's own authority are proven to the node that they are for: over links
//! and polls, through restarts, another key, and a database that somebody wrote into.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use model::Timestamp;
use model::replication::Mode;
use serde_json::json;
use server::api::TrustView;
use server::api::objects::ObjectResults;
use sync::link::{FeedProofs, LinkConfig};
use test_support::fleet::link::{Poller, config, grpc, handler, item, publish_mode, running};
use test_support::fleet::{Fleet, Member, now};
use test_support::memory::MemoryLinkHandler;
use test_support::wait::until;
use trust::chain::{self, ChainHead, SlotChange, SlotName};
use trust::{FeedOwner, FeedVerifier, SigningKey};

async fn fleet() -> (Fleet, Member) {
    let fleet = Fleet::start().await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], Mode::Managed, 1).await;
    (fleet, node)
}

async fn newest(fleet: &Fleet) -> ChainHead {
    let view: TrustView = fleet.operator().await.get("/v1/trust").await.unwrap();
    let newest = view.versions.into_iter().next_back().unwrap();
    ChainHead { document: newest.document, digest: newest.digest }
}

/// A node's end that believes what the newest trust document says.
async fn believing(fleet: &Fleet, node: &Member) -> LinkConfig {
    let trust = newest(fleet).await.document;
    let keys = trust.control_plane.expect("the fleet was founded with the key");
    let owner = FeedOwner { fleet: trust.fleet, node: node.id.clone() };
    let mut config = config(Mode::Managed, "one");
    config.proofs = FeedProofs::Required(Arc::new(FeedVerifier::new(owner, keys)));
    config
}

async fn apply(fleet: &Fleet, names: std::ops::Range<usize>, text: &str) {
    let manifest = |n: usize| {
        json!({"apiVersion": "test/v1", "kind": "Item",
            "metadata": {"namespace": "web", "name": format!("i{n}")}, "spec": {"text": text}})
    };
    let apply = json!({"manifests": names.map(manifest).collect::<Vec<_>>(), "node": "edge-1"});
    let _: ObjectResults = fleet.operator().await.post("/v1/objects", &apply).await.unwrap();
}

async fn comes_to(handler: &Arc<MemoryLinkHandler>, count: usize) {
    until(&format!("the node has {count} objects"), async || (handler.their_count() == count).then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_and_polls_carry_proofs_also_after_a_restart() {
    let (mut fleet, mut node) = fleet().await;
    apply(&fleet, 0..300, "one").await;
    let (linked, polled) = (handler("n1"), handler("n2"));
    let link =
        running(believing(&fleet, &node).await, &linked, grpc(&node, &mut node.dial().await).await.unwrap());
    comes_to(&linked, 300).await;
    // What was written just now goes from memory, deletes included.
    apply(&fleet, 300..301, "one").await;
    comes_to(&linked, 301).await;
    let delete = json!({"objects": [{"node": "edge-1", "kind": "Item", "namespace": "web", "name": "i300"}]});
    let _: ObjectResults = fleet.operator().await.post("/v1/objects-delete", &delete).await.unwrap();
    comes_to(&linked, 300).await;
    assert_eq!(link.stop().await.counters.refused_here, 0);
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    Poller::new(believing(&fleet, &node).await, &polled).all(&node).await;
    comes_to(&polled, 300).await;
}

/// A new version of the trust document with another control-plane key.
async fn add_trust(fleet: &Fleet, change: SlotChange, reject_before: Option<Timestamp>) {
    let next =
        chain::next_version(&newest(fleet).await, SlotName::ControlPlane, change, reject_before, now());
    let link = chain::sign(&next.unwrap(), &fleet.root_key()).unwrap();
    let _: u64 = fleet.operator().await.post("/v1/trust", &server::api::AddTrust { link }).await.unwrap();
}

/// Another key counts, and the one before no more: everything is proven by the new one.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dropped_key_signed_is_signed_anew() {
    let (fleet, node) = fleet().await;
    apply(&fleet, 0..20, "one").await;
    let before = believing(&fleet, &node).await;
    let handler = handler("n1");
    Poller::new(before.clone(), &handler).all(&node).await;
    comes_to(&handler, 20).await;

    let new = SigningKey::from_seed(&[7; 32]);
    add_trust(&fleet, SlotChange::Replace(new.public()), None).await;
    std::fs::write(fleet.dir.path().join("control-plane.key"), new.to_file().as_bytes()).unwrap();

    apply(&fleet, 20..21, "two").await;
    let after = believing(&fleet, &node).await;
    assert_ne!(format!("{:?}", after.proofs), format!("{:?}", before.proofs));
    // The key is read again within seconds; until then the node is told nothing that it believes.
    until("the node has what the new key signed", async || {
        let _ = Poller::new(after.clone(), &handler).poll(&node).await;
        (handler.their_count() == 21).then_some(())
    })
    .await;
}

/// The key of before counts on, and what it signed before now does not: its objects are signed anew, and none of them
/// has to change for it. One that was signed since then does not hide those of before.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_signed_before_signatures_count_is_signed_anew() {
    let (fleet, node) = fleet().await;
    apply(&fleet, 0..20, "one").await;
    let limit = now().plus(Duration::from_secs(2));
    until("the time from which on signatures count", async || (now() > limit).then_some(())).await;
    apply(&fleet, 20..21, "two").await;

    let new = SigningKey::from_seed(&[7; 32]);
    add_trust(&fleet, SlotChange::Rotate(new.public()), Some(limit)).await;
    std::fs::write(fleet.dir.path().join("control-plane.key"), new.to_file().as_bytes()).unwrap();

    let (after, handler) = (believing(&fleet, &node).await, handler("n1"));
    until("the node has what was signed anew", async || {
        let _ = Poller::new(after.clone(), &handler).poll(&node).await;
        (handler.their_count() == 21).then_some(())
    })
    .await;
}

/// Somebody writes another content into the database, with its digest: no node takes it.
#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_wrote_into_the_database_is_not_taken() {
    let (mut fleet, mut node) = fleet().await;
    apply(&fleet, 0..2, "one").await;
    fleet.stop().await;
    let evil = br#"{"apiVersion":"test/v1","kind":"Item","metadata":{"name":"i0","namespace":"web"},"spec":{"text":"evil"}}"#;
    let db = rusqlite::Connection::open(fleet.dir.path().join("muster.db")).unwrap();
    let digest = model::Digest::of(evil);
    let changed = db.execute(
        "UPDATE object SET digest = ?1, size = ?2 WHERE name = 'i0'",
        rusqlite::params![digest.as_bytes(), evil.len() as i64],
    );
    assert_eq!(changed.unwrap(), 1);
    let body = "UPDATE object_body SET bytes = ?1 WHERE no = (SELECT body FROM object WHERE name = 'i0')";
    assert_eq!(db.execute(body, [&evil[..]]).unwrap(), 1);
    drop(db);
    fleet.start_again().await;
    node.url = fleet.url();
    let handler = handler("n1");
    let link =
        running(believing(&fleet, &node).await, &handler, grpc(&node, &mut node.dial().await).await.unwrap());
    let ended = link.ended.await.unwrap();
    assert_eq!(ended.code, "unproven", "{}", ended.message);
    assert!(ended.message.contains("Item/web/i0"), "{}", ended.message);
    assert!(!handler.theirs().contains_key(&item("i0")));
}

/// A key that nodes believe and that does not lie there is told at the start.
#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_without_its_key_does_not_start() {
    let (mut fleet, _) = fleet().await;
    fleet.stop().await;
    std::fs::remove_file(fleet.dir.path().join("control-plane.key")).unwrap();
    let config = test_support::fleet::config(fleet.dir.path(), 0, 0);
    let error = server::start(config).await.err().expect("it does not start");
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(text.contains("control-plane.key is not the key"), "{text}");
}
