//! SYN-14, LIF-3, OPS-2: an agent that is told to stop begins nothing new, lets an action end,
//! delivers what it came to over the stream that is open, and closes it in order. Output is at
//! the control plane while the action runs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use model::condition::SyncState;
use model::replication::{Mode, TransportKind, TransportPolicy};
use server::api::objects::SyncsView;
use test_support::agent_pair::{NODE, Pair, item, says};
use test_support::wait::until;

const SLOW: &str = "echo begun; until [ -e $MUSTER_ROOT/go ]; do sleep 0.1; done; echo done";

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_ends_and_is_told() {
    let says = says(Mode::Managed, None, TransportPolicy::Grpc).delegating(&[&["/bin/sh", "-c", SLOW]]);
    let mut pair = Pair::new(&says).await;
    let daemon = pair.daemon();
    let task = pair.begin(&["/bin/sh", "-c", SLOW]).await;
    until("output is there while it runs", async || (pair.output(&task.id).await == "begun\n").then_some(()))
        .await;
    until("the node says so", async || (pair.status()["actionsRunning"] == 1).then_some(())).await;
    daemon.tell_to_end();
    // What comes now is not begun.
    let late = pair.begin(&["/bin/sh", "-c", SLOW]).await;
    std::fs::write(pair.root().join("go"), "").unwrap();
    assert!(daemon.end().await.success());
    let over = pair.task_over(&task.id).await;
    assert_eq!(over.summary.progress.succeeded, 1, "{over:?}");
    assert_eq!(pair.output(&task.id).await, "begun\ndone\n");
    assert_eq!(pair.output(&late.id).await, "", "it was begun by an agent that stops");
    // The next incarnation begins it.
    let daemon = pair.daemon();
    let over = pair.task_over(&late.id).await;
    assert_eq!(over.summary.progress.succeeded, 1, "{over:?}");
    assert!(daemon.end().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_link_is_closed_in_order_and_at_once() {
    let mut pair = Pair::new(&says(Mode::Managed, None, TransportPolicy::Grpc)).await;
    let daemon = pair.daemon();
    pair.apply(vec![item("a", "one")]).await;
    let state = async |pair: &mut Pair| {
        let syncs: SyncsView = pair.operator.get(&format!("/v1/sync?match={NODE}")).await.unwrap();
        (syncs.nodes[0].condition.state, syncs.nodes[0].link)
    };
    until("both sides are in sync", async || {
        (state(&mut pair).await == (SyncState::InSync, Some(TransportKind::Grpc))).then_some(())
    })
    .await;
    until("the node says so too", async || {
        (pair.status()["condition"]["cause"]["type"] == "in-sync").then_some(())
    })
    .await;
    let told = Instant::now();
    assert!(daemon.end().await.success());
    assert!(told.elapsed() < Duration::from_secs(10), "it took {:?}", told.elapsed());
    until("the link is gone", async || state(&mut pair).await.1.is_none().then_some(())).await;
    assert!(pair.status()["link"].is_null());
}
