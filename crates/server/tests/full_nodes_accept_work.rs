//! OPS-2: a node whose objects take all the room that there is for them can still be worked on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::work::ActionOutcome;
use server::api::work::TaskNodesView;
use test_support::fleet::synced::{ended, manifest, one_managed};

/// Objects in one request.
const TOGETHER: u64 = 7;

#[tokio::test(flavor = "multi_thread")]
async fn an_action_has_room_beside_a_full_set() {
    let (_fleet, mut operator, node) = one_managed().await;
    let mut full = false;
    for round in 0..30 {
        let big = |number: u64| {
            let mut manifest = manifest("web-1", &format!("big-{round}-{number}"), number);
            manifest["spec"]["text"] = "x".repeat(1_000_000).into();
            manifest
        };
        let results = operator.apply((0..TOGETHER).map(big).collect()).await;
        full = results.results.iter().any(|done| format!("{done:?}").contains("too-many"));
        if full {
            break;
        }
    }
    assert!(full, "the node's set has a bound");
    // What is left over of the last object's room is not enough for the action.
    for (size, count) in [(30_000, 40), (2_000, 20)] {
        let small = |number: u64| {
            let mut manifest = manifest("web-1", &format!("small-{size}-{number}"), number);
            manifest["spec"]["text"] = "x".repeat(size).into();
            manifest
        };
        operator.apply((0..count).map(small).collect()).await;
    }
    let argument = "y".repeat(1000);
    let mut argv = vec!["/bin/true"];
    argv.extend([argument.as_str(); 20]);
    let task = operator.begin("web-1", &argv).await;
    let action = operator.actions_when("web-1", 1).await.remove(0);
    node.says(1, vec![(&action, ended())]).await;
    operator.task_over(&task.id).await;
    let nodes: TaskNodesView = operator.get(&format!("/v1/tasks/{}/nodes", task.id)).await.unwrap();
    assert_eq!(nodes.nodes[0].outcome, Some(ActionOutcome::Exited { code: 0 }));
}
