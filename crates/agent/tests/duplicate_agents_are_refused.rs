//! IDN-10, SYN-13: of two agents under one identity neither has a stream, and neither gets objects, until an operator
//! decides; and one that was killed is followed by its own next instance at once.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::replication::{Mode, TransportPolicy};
use test_support::agent_pair::{Pair, item, says};
use test_support::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn the_second_one_is_refused_and_a_next_life_is_not() {
    let mut pair = Pair::new(&says(Mode::Managed, None, TransportPolicy::Grpc)).await;
    let first = pair.daemon();
    pair.apply(vec![item("a", "one")]).await;
    until("the first one is in sync", async || {
        (pair.status()["condition"]["cause"]["type"] == "in-sync").then_some(())
    })
    .await;
    // A clone of the machine: the same key in another directory.
    let clone = pair.dir.join("clone");
    std::fs::create_dir_all(&clone).unwrap();
    for name in ["identity.key", "membership.json", "adoption.json"] {
        std::fs::copy(pair.state().join(name), clone.join(name)).unwrap();
    }
    for from in test_support::agent_pair::files(&pair.state().join("content")) {
        let to = clone.join(from.strip_prefix(pair.state()).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    }
    std::fs::set_permissions(&clone, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let second = pair.daemon_at(&clone);
    until("the second one is told", async || second.log().contains("another agent").then_some(())).await;
    pair.apply(vec![item("b", "two")]).await;
    until("the first one has no link any more", async || {
        first.log().contains("hold this node's key").then_some(())
    })
    .await;
    assert_eq!(pair.status()["replicaObjects"], 1, "neither gets objects until an operator decides");
    second.kill();
    first.kill();
    pair.resolve_copy().await;
    let _again = pair.daemon();
    pair.apply(vec![item("c", "three")]).await;
    until("the next incarnation goes on", async || (pair.status()["replicaObjects"] == 3).then_some(()))
        .await;
}
