//! OPS-2, SYN-10: tasks and queries by selector: refused where no release delegates them,
//! answered at once where a node is offline, called off on an operator's word, and shown with
//! output and answers as they come.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::work::{ActionEvent, ActionOutcome, OutputStream};
use plane::work::{NodeStage, TaskState};
use serde_json::json;
use server::api::work::{OutputView, Selected, TaskNodesView, TaskView};
use test_support::fleet::release::params;
use test_support::fleet::synced::{declared, delegation, ended, labelled, one_managed, publish};
use test_support::fleet::{Fleet, refuses};
use wire::Code;

#[tokio::test]
async fn what_is_plainly_not_delegated_is_refused_without_the_node() {
    let (_fleet, mut operator, _node) = one_managed().await;
    let task = operator.begin("web-1", &["/usr/bin/rm", "-rf", "/"]).await;
    let view = operator.task_over(&task.id).await;
    assert_eq!(view.summary.progress.failed, 1);
    let nodes: TaskNodesView = operator.get(&format!("/v1/tasks/{}/nodes", task.id)).await.unwrap();
    let [node] = nodes.nodes.as_slice() else { panic!("{nodes:?}") };
    assert_eq!(node.stage, NodeStage::Ended);
    assert!(
        matches!(&node.outcome, Some(ActionOutcome::Refused { message, .. }) if message.contains("rm")),
        "{node:?}"
    );
    assert!(operator.actions("web-1").await.is_empty());
}

#[tokio::test]
async fn an_offline_node_is_answered_at_once() {
    let (fleet, mut operator, node) = one_managed().await;
    fleet.node("web-2").await;
    let selected: Selected = operator.post("/v1/selections", &json!({"selector": "web-*"})).await.unwrap();
    assert_eq!((selected.count, selected.online, selected.promotable, selected.offline), (2, 0, 1, 1));
    let task = operator.begin("web-*", &["/bin/true"]).await;
    let action = operator.actions_when("web-1", 1).await.remove(0);
    assert_eq!(operator.task(&task.id).await.summary.progress.offline, 1);
    node.says(1, vec![(&action, ended())]).await;
    assert_eq!(operator.task_over(&task.id).await.summary.state, TaskState::Done);
}

#[tokio::test]
async fn an_offline_node_that_is_waited_for_is_asked_when_it_calls() {
    let (fleet, mut operator, _node) = one_managed().await;
    let late = fleet.node("late-1").await;
    let asked = json!({
        "selector": "late-1", "work": {"kind": "query", "what": "traits"},
        "timeoutSecs": 60, "waitSecs": 3600,
    });
    let task: TaskView = operator.post("/v1/tasks", &asked).await.unwrap();
    assert!(operator.actions("late-1").await.is_empty());
    late.survives().await;
    operator.actions_when("late-1", 1).await;
    assert_eq!(operator.task(&task.id).await.summary.progress.issued, 1);
}

#[tokio::test]
async fn another_number_of_nodes_than_told_is_refused() {
    let (_fleet, mut operator, _node) = one_managed().await;
    let mut asked = json!({
        "selector": "web-*", "work": {"kind": "command", "argv": ["/bin/true"]},
        "timeoutSecs": 60, "expected": 2,
    });
    let refused: Result<TaskView, _> = operator.post("/v1/tasks", &asked).await;
    refuses(refused, Code::SelectionMoved);
    asked["expected"] = json!(1);
    let _: TaskView = operator.post("/v1/tasks", &asked).await.unwrap();
    asked["timeoutSecs"] = json!(0);
    let refused: Result<TaskView, _> = operator.post("/v1/tasks", &asked).await;
    refuses(refused, Code::TaskRefused);
    asked["selector"] = json!("");
    let refused: Result<TaskView, _> = operator.post("/v1/tasks", &asked).await;
    refuses(refused, Code::BadSelector);
}

#[tokio::test]
async fn selectors_see_labels_and_traits_and_say_what_they_cannot_see() {
    let fleet = Fleet::start().await;
    for name in ["web-1", "web-2"] {
        fleet.node(name).await;
    }
    let mut operator = fleet.operator().await;
    let with = |region: &str| vec![labelled(&json!({"region": region})), delegation()];
    publish(&fleet, &mut operator, &[("web-1", with("eu")), ("web-2", with("us"))]).await;
    let first = async |operator: &mut test_support::fleet::Operator, selector: &str| {
        let selected: Selected =
            operator.post("/v1/selections", &json!({ "selector": selector })).await.unwrap();
        selected.first.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(first(&mut operator, "region=eu").await, ["web-1"]);
    assert_eq!(first(&mut operator, "*,!region=eu").await, ["web-2"]);
    assert_eq!(first(&mut operator, r#"where:labels.region == "us""#).await, ["web-2"]);
    assert!(first(&mut operator, r#"where:traits.os.id == "debian""#).await.is_empty());
    let refused: Result<Selected, _> = operator.post("/v1/selections", &json!({"selector": "@edge"})).await;
    refuses(refused, Code::BadSelector);
}

#[tokio::test]
async fn a_named_group_means_its_members_and_one_that_nobody_is_in_is_refused() {
    let fleet = Fleet::start().await;
    for name in ["web-1", "web-2", "web-3"] {
        fleet.node(name).await;
    }
    let mut operator = fleet.operator().await;
    let with =
        |groups: &[&str]| vec![declared(&json!({"channel": "stable", "groups": groups})), delegation()];
    let none = vec![labelled(&json!({})), delegation()];
    publish(
        &fleet,
        &mut operator,
        &[("web-1", with(&["eu", "db"])), ("web-2", with(&["us"])), ("web-3", none)],
    )
    .await;
    let first = async |operator: &mut test_support::fleet::Operator, selector: &str| {
        let selected: Selected =
            operator.post("/v1/selections", &json!({ "selector": selector })).await.unwrap();
        selected.first.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(first(&mut operator, "@eu").await, ["web-1"]);
    assert_eq!(first(&mut operator, "@eu,@us").await, ["web-1", "web-2"]);
    assert_eq!(first(&mut operator, "*,!@db").await, ["web-2", "web-3"]);
    for (selector, says) in [
        ("@asia", "no node is in a group \"asia\"; there are @db, @eu, @us"),
        ("@euu,web-1", "no node is in a group \"euu\"; did you mean @eu?"),
    ] {
        let refused: Result<Selected, _> =
            operator.post("/v1/selections", &json!({ "selector": selector })).await;
        let problem = refuses(refused, Code::BadSelector);
        assert_eq!(problem.detail.as_deref(), Some(says), "{selector}");
    }
}

#[tokio::test]
async fn output_and_answers_are_kept_and_shown() {
    let (_fleet, mut operator, node) = one_managed().await;
    let task = operator.begin("web-1", &["/bin/true", "x"]).await;
    let action = operator.actions_when("web-1", 1).await.remove(0);
    let piece =
        |text: &str| ActionEvent::Output { stream: OutputStream::Stdout, text: text.to_owned(), dropped: 0 };
    let seen = operator.task(&task.id).await.version;
    node.says(1, vec![(&action, ActionEvent::Started), (&action, piece("one\n")), (&action, piece("two\n"))])
        .await;
    // Whoever waits for news hears of it.
    let path = format!("/v1/tasks/{}?wait=20&after={seen}", task.id);
    let news: TaskView = operator.get(&path).await.unwrap();
    assert!(news.version > seen);
    let path = format!("/v1/tasks/{}/output/web-1", task.id);
    let pieces: Vec<OutputView> = operator.get(&path).await.unwrap();
    assert_eq!(pieces.iter().map(|piece| piece.text.as_str()).collect::<String>(), "one\ntwo\n");
    let rest: Vec<OutputView> = operator.get(&format!("{path}?after={}", pieces[0].number)).await.unwrap();
    assert_eq!(rest.iter().map(|piece| piece.text.as_str()).collect::<Vec<_>>(), ["two\n"]);
    node.says(4, vec![(&action, ended())]).await;
    operator.task_over(&task.id).await;

    let asked = json!({"selector": "web-1", "work": {"kind": "query", "what": "traits"}, "timeoutSecs": 30});
    let task: TaskView = operator.post("/v1/tasks", &asked).await.unwrap();
    let action = operator.actions_when("web-1", 1).await.remove(0);
    let outcome = ActionOutcome::Answered { result: json!({"os": {"id": "debian"}}) };
    node.says(5, vec![(&action, ActionEvent::Ended { outcome: outcome.clone(), duration_ms: 3 })]).await;
    operator.task_over(&task.id).await;
    let nodes: TaskNodesView = operator.get(&format!("/v1/tasks/{}/nodes", task.id)).await.unwrap();
    assert_eq!(nodes.nodes[0].outcome, Some(outcome));
}

#[tokio::test]
async fn a_task_is_called_off() {
    let (_fleet, mut operator, node) = one_managed().await;
    let task = operator.begin("web-1", &["/bin/true"]).await;
    let action = operator.actions_when("web-1", 1).await.remove(0);
    let view: TaskView = operator.post(&format!("/v1/tasks/{}/cancel", task.id), &json!({})).await.unwrap();
    assert_eq!(view.summary.state, TaskState::Cancelling);
    // The object stays, and says that it is to end.
    let object: server::api::objects::ObjectView =
        operator.get(&format!("/v1/objects/web-1/Action/_/{action}")).await.unwrap();
    assert_eq!(object.manifest.unwrap()["cancel"], true);
    let cancelled = ActionEvent::Ended { outcome: ActionOutcome::Cancelled, duration_ms: 0 };
    node.says(1, vec![(&action, cancelled)]).await;
    let view = operator.task_over(&task.id).await;
    assert_eq!((view.summary.state, view.summary.progress.withdrawn), (TaskState::Cancelled, 1));
    operator.actions_when("web-1", 0).await;
}

/// A release without `Sync` still takes work: actions go down in every mode.
#[tokio::test]
async fn work_goes_to_nodes_that_synchronize_nothing() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let mut operator = fleet.operator().await;
    publish(&fleet, &mut operator, &[("web-1", vec![params("a"), delegation()])]).await;
    node.survives().await;
    operator.begin("web-1", &["/bin/true"]).await;
    operator.actions_when("web-1", 1).await;
    assert!(node.check_in(&test_support::fleet::quiet()).await.unwrap().stream_requested);
}
