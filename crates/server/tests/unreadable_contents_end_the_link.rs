//! SYN-4, SYN-12: contents that cannot be read are no contents: the link ends with `internal`, goes on
//! reading until then, and the next one sends them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::replication::Mode;
use rusqlite::Connection;
use serde_json::json;
use server::api::objects::ObjectResults;
use streams::LinkCommand;
use sync::Frame;
use test_support::fleet::link::{handler, linked, publish_mode};
use test_support::fleet::{Fleet, PATIENCE, quiet};
use test_support::wait::{eventually, soon};

/// Changes the schema under the running control plane.
fn alter(fleet: &Fleet, sql: &str) {
    let connection = Connection::open(fleet.dir.path().join("muster.db")).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    connection.execute_batch(sql).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_link_ends_after_it_read_on_and_the_next_sends_them() {
    let fleet = Fleet::start().await;
    let node = fleet.node("edge-1").await;
    publish_mode(&fleet, &["edge-1"], Mode::Managed, 1).await;
    node.survives().await;
    let manifest = json!({"apiVersion": "test/v1", "kind": "Item",
        "metadata": {"namespace": "web", "name": "a"}, "spec": {}});
    let apply = json!({"manifests": [manifest], "node": "edge-1"});
    let _: ObjectResults = fleet.operator().await.post("/v1/objects", &apply).await.unwrap();

    alter(&fleet, "ALTER TABLE object_body RENAME TO object_body_away");
    let own = handler("n1");
    let link = linked(&node, Mode::Managed, "one", &own).await;
    let check_in = Frame::CheckIn(Box::new(quiet()));
    assert!(link.commands.send(LinkCommand::Send(Box::new(check_in))).await);
    let answered = || own.received().iter().any(|frame| matches!(frame, Frame::Answer(_)));
    eventually("the check-in is answered", answered).await;
    assert!(!link.ended.is_finished(), "contents are asked for several times first");
    let ended = soon(link.ended).await.unwrap();
    assert!(ended.message.starts_with("internal"), "{ended:?}");
    assert_eq!(own.their_count(), 0);

    alter(&fleet, "ALTER TABLE object_body_away RENAME TO object_body");
    let link = linked(&node, Mode::Managed, "one", &own).await;
    eventually("the object comes", || own.their_count() == 1).await;
    link.stop().await;
}
