//! OPS-2, SYN-4: a task goes on after the control plane was stopped at any moment; an action is
//! asked for once, stays until its terminal fact is here, and goes with it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::work::{ActionEvent, ActionOutcome};
use plane::work::{NodeStage, TaskState};
use rusqlite::Connection;
use server::api::work::TaskNodesView;
use store::Store;
use test_support::fleet::synced::{ended, exited, managed, one_managed, publish};
use test_support::fleet::{Fleet, Member};

async fn restart(fleet: &mut Fleet, nodes: &mut [&mut Member]) -> test_support::fleet::Operator {
    fleet.stop().await;
    fleet.start_again().await;
    for node in nodes {
        node.url = fleet.url();
    }
    fleet.operator().await
}

#[tokio::test]
async fn a_task_goes_on_where_it_was() {
    let mut fleet = Fleet::start().await;
    let (mut one, mut two) = (fleet.node("web-1").await, fleet.node("web-2").await);
    let mut operator = fleet.operator().await;
    publish(&fleet, &mut operator, &[("web-1", managed()), ("web-2", managed())]).await;
    one.survives().await;
    two.survives().await;
    let task = operator.begin("web-*", &["/bin/true"]).await;
    let first = operator.actions_when("web-1", 1).await.remove(0);
    let second = operator.actions_when("web-2", 1).await.remove(0);
    one.says(1, vec![(&first, ActionEvent::Started), (&first, ended())]).await;
    operator.actions_when("web-1", 0).await;
    let mut operator = restart(&mut fleet, &mut [&mut one, &mut two]).await;
    let view = operator.task(&task.id).await;
    assert!(view.version > task.version);
    assert_eq!((view.summary.progress.succeeded, view.finished), (1, None));
    // What is done is not asked for again; what was asked for still is, under the same name.
    assert_eq!(operator.actions_when("web-2", 1).await, std::slice::from_ref(&second));
    assert!(operator.actions("web-1").await.is_empty());
    two.says(1, vec![(&second, ActionEvent::Started), (&second, exited(3))]).await;
    let view = operator.task_over(&task.id).await;
    assert_eq!(view.summary.state, TaskState::Done);
    assert_eq!((view.summary.progress.succeeded, view.summary.progress.failed), (1, 1));
    operator.actions_when("web-2", 0).await;
    let mut operator = restart(&mut fleet, &mut [&mut one, &mut two]).await;
    assert_eq!(operator.task(&task.id).await.summary, view.summary);
}

/// A crash came between the acceptance of facts and everything that follows from it.
#[tokio::test]
async fn facts_that_nobody_heard_of_are_found() {
    let (mut fleet, mut operator, mut node) = one_managed().await;
    let task = operator.begin("web-1", &["/bin/true"]).await;
    let action = operator.actions_when("web-1", 1).await.remove(0);
    let path = fleet.dir.path().join("muster.db");
    let before = rows(&path);
    node.says(1, vec![(&action, ActionEvent::Started), (&action, ended())]).await;
    operator.task_over(&task.id).await;
    operator.actions_when("web-1", 0).await;
    fleet.stop().await;
    // Take back what follows from the facts: the task and its target are as before.
    undo(&path, &task.id, &before);
    fleet.start_again().await;
    node.url = fleet.url();
    let mut operator = fleet.operator().await;
    let view = operator.task_over(&task.id).await;
    assert_eq!((view.summary.state, view.summary.progress.succeeded), (TaskState::Done, 1));
    operator.actions_when("web-1", 0).await;
}

/// The states of all targets.
fn rows(path: &std::path::Path) -> Vec<(String, String)> {
    let db = Connection::open(path).unwrap();
    let mut found = db.prepare("SELECT node, state FROM task_node").unwrap();
    let rows = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

fn undo(path: &std::path::Path, task: &str, before: &[(String, String)]) {
    let db = Connection::open(path).unwrap();
    for (node, state) in before {
        db.execute("UPDATE task_node SET state = ?1 WHERE node = ?2", [state, node]).unwrap();
    }
    let document: String =
        db.query_row("SELECT document FROM task WHERE id = ?1", [task], |row| row.get(0)).unwrap();
    let mut document: serde_json::Value = serde_json::from_str(&document).unwrap();
    document["summary"]["state"] = "running".into();
    document.as_object_mut().unwrap().remove("finished");
    db.execute("UPDATE task SET document = ?1, finished = NULL WHERE id = ?2", [&document.to_string(), task])
        .unwrap();
}

/// A crash came between the terminal fact of a task that is over and the removal of its object.
#[tokio::test]
async fn an_ended_action_that_was_left_behind_is_taken_away() {
    let (mut fleet, mut operator, mut node) = one_managed().await;
    let task = operator.begin("web-1", &["/bin/true"]).await;
    let action = operator.actions_when("web-1", 1).await.remove(0);
    node.says(1, vec![(&action, ended())]).await;
    operator.task_over(&task.id).await;
    operator.actions_when("web-1", 0).await;
    fleet.stop().await;
    put_again(&fleet, &node, &[&action, "t000000000000.nobody"]).await;
    fleet.start_again().await;
    node.url = fleet.url();
    fleet.operator().await.actions_when("web-1", 0).await;
}

/// Puts actions into what goes down, past the control plane.
async fn put_again(fleet: &Fleet, node: &Member, actions: &[&str]) {
    let store = Store::open(fleet.dir.path().join("muster.db")).unwrap();
    let head = store.sync_load(&node.id).await.unwrap().feed.unwrap().head;
    let bytes = bytes::Bytes::from_static(b"{}");
    let ours = (head + 1..).zip(actions).map(|(rev, action)| {
        let stub = model::Stub { uid: (*action).into(), ..model::Stub::of(&bytes) };
        let key = model::ObjectKey::of(model::Kind::ACTION, action);
        let change = sync::Change { rev, key, state: sync::feed::ObjectState::Live { stub, born: rev } };
        (change, Some(sync::Content { bytes: bytes.clone(), trace: None, at: 0 }))
    });
    let write = sync::Write { feed: ours.collect(), ..sync::Write::default() };
    store.sync_write(&node.id, write, test_support::fleet::now()).await.unwrap();
}

#[tokio::test]
async fn at_most_once_and_the_first_word_counts() {
    let (_fleet, mut operator, node) = one_managed().await;
    let task = operator.begin("web-1", &["/bin/true"]).await;
    let action = operator.actions_when("web-1", 1).await.remove(0);
    let unknown = ActionEvent::Ended { outcome: ActionOutcome::Unknown, duration_ms: 0 };
    node.says(1, vec![(&action, ActionEvent::Started), (&action, unknown)]).await;
    let view = operator.task_over(&task.id).await;
    assert_eq!(view.summary.progress.unknown, 1);
    // It is gone, and never asked for again, whatever is said later.
    operator.actions_when("web-1", 0).await;
    node.says(3, vec![(&action, ActionEvent::Started), (&action, ended())]).await;
    let nodes: TaskNodesView = operator.get(&format!("/v1/tasks/{}/nodes", task.id)).await.unwrap();
    assert_eq!(nodes.nodes[0].outcome, Some(ActionOutcome::Unknown));
    assert!(operator.actions("web-1").await.is_empty());
}

#[tokio::test]
async fn a_node_speaks_of_its_own_actions_alone() {
    let fleet = Fleet::start().await;
    let (one, two) = (fleet.node("web-1").await, fleet.node("web-2").await);
    let mut operator = fleet.operator().await;
    publish(&fleet, &mut operator, &[("web-1", managed()), ("web-2", managed())]).await;
    one.survives().await;
    two.survives().await;
    let task = operator.begin("web-*", &["/bin/true"]).await;
    let action = operator.actions_when("web-1", 1).await.remove(0);
    let own = operator.actions_when("web-2", 1).await;
    // Neither the other's part ends by that, nor its own.
    two.says(1, vec![(&action, ActionEvent::Started), (&action, exited(1))]).await;
    one.says(1, vec![(&action, ended())]).await;
    operator.actions_when("web-1", 0).await;
    assert_eq!(operator.actions("web-2").await, own);
    two.says(3, vec![(&own[0], ended())]).await;
    assert_eq!(operator.task_over(&task.id).await.summary.progress.succeeded, 2);
}

#[tokio::test]
async fn a_removed_node_ends_its_part() {
    let (_fleet, mut operator, _node) = one_managed().await;
    let task = operator.begin("web-1", &["/bin/true"]).await;
    operator.actions_when("web-1", 1).await;
    let _: server::api::NodeView = operator.delete("/v1/nodes/web-1").await.unwrap();
    assert_eq!(operator.task_over(&task.id).await.summary.progress.removed, 1);
    let nodes: TaskNodesView = operator.get(&format!("/v1/tasks/{}/nodes", task.id)).await.unwrap();
    assert_eq!((nodes.nodes[0].stage, &nodes.nodes[0].hostname), (NodeStage::Removed, &None));
}
