//! OPS-2: the steps of a workflow are tasks, one after the other; between two of them stands a
//! gate, and a workflow is where it was after a restart.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use plane::work::TaskState;
use serde_json::json;
use server::api::work::WorkflowView;
use test_support::fleet::synced::{ended, exited, one_managed};
use test_support::fleet::{Operator, refuses};
use wire::Code;

fn two_steps(gate: &serde_json::Value) -> serde_json::Value {
    json!({"spec": {"name": "renew", "steps": [
        {"name": "first", "on": "web-1", "command": ["/bin/true", "1"], "gate": gate},
        {"name": "second", "on": "web-1", "command": ["/bin/true", "2"]},
    ]}})
}

/// The workflow once it is in a state.
async fn when(operator: &mut Operator, id: &str, state: &str) -> WorkflowView {
    let mut after = 0;
    for _ in 0..20 {
        let path = format!("/v1/workflows/{id}?wait=5&after={after}");
        let view: WorkflowView = operator.get(&path).await.unwrap();
        if view.state == state {
            return view;
        }
        after = view.version;
    }
    panic!("workflow {id} never was {state}");
}

#[tokio::test]
async fn a_gate_holds_the_next_step_until_it_is_approved() {
    let (mut fleet, mut operator, mut node) = one_managed().await;
    let flow: WorkflowView =
        operator.post("/v1/workflows", &two_steps(&json!({"approve": true}))).await.unwrap();
    assert_eq!((flow.state.as_str(), flow.steps[1].state.as_str()), ("running", "waiting"));
    let refused: Result<WorkflowView, _> =
        operator.post(&format!("/v1/workflows/{}/approve", flow.id), &json!({})).await;
    refuses(refused, Code::WrongPhase);
    let action = operator.actions_when("web-1", 1).await.remove(0);
    node.says(1, vec![(&action, ended())]).await;
    when(&mut operator, &flow.id, "awaiting-approval").await;
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    let mut operator = fleet.operator().await;
    let view = when(&mut operator, &flow.id, "awaiting-approval").await;
    assert_eq!(view.steps[0].summary.as_ref().unwrap().state, TaskState::Done);
    assert!(operator.actions("web-1").await.is_empty());
    let view: WorkflowView =
        operator.post(&format!("/v1/workflows/{}/approve", flow.id), &json!({})).await.unwrap();
    assert_eq!((view.state.as_str(), view.steps[0].state.as_str()), ("running", "done"));
    let action = operator.actions_when("web-1", 1).await.remove(0);
    node.says(2, vec![(&action, ended())]).await;
    let view = when(&mut operator, &flow.id, "done").await;
    assert!(view.finished.is_some());
    let all: Vec<WorkflowView> = operator.get("/v1/workflows?limit=10").await.unwrap();
    assert_eq!(all.len(), 1);
}

#[tokio::test]
async fn a_step_that_fails_stops_it_until_it_is_resumed_or_aborted() {
    let (_fleet, mut operator, node) = one_managed().await;
    let flow: WorkflowView = operator.post("/v1/workflows", &two_steps(&json!({}))).await.unwrap();
    let action = operator.actions_when("web-1", 1).await.remove(0);
    node.says(1, vec![(&action, exited(1))]).await;
    let view = when(&mut operator, &flow.id, "failed").await;
    assert!(view.why.is_some(), "{view:?}");
    let _: WorkflowView =
        operator.post(&format!("/v1/workflows/{}/resume", flow.id), &json!({})).await.unwrap();
    let again = operator.actions_when("web-1", 1).await.remove(0);
    assert_ne!(again, action, "to run something again is a new task");
    let _: WorkflowView =
        operator.post(&format!("/v1/workflows/{}/abort", flow.id), &json!({})).await.unwrap();
    node.says(2, vec![(&again, exited(1))]).await;
    let view = when(&mut operator, &flow.id, "aborted").await;
    assert_eq!(view.steps[0].tasks.len(), 2);
    assert_eq!(view.steps[1].state, "waiting");
}

#[tokio::test]
async fn a_step_that_means_others_than_told_is_refused() {
    let (_fleet, mut operator, _node) = one_managed().await;
    let mut asked = two_steps(&json!({}));
    asked["expected"] = json!({"second": 3});
    let refused: Result<WorkflowView, _> = operator.post("/v1/workflows", &asked).await;
    let problem = refuses(refused, Code::SelectionMoved);
    assert!(problem.detail.unwrap().contains("second"));
    asked["spec"]["steps"] = json!([]);
    let refused: Result<WorkflowView, _> = operator.post("/v1/workflows", &asked).await;
    refuses(refused, Code::TaskRefused);
}
