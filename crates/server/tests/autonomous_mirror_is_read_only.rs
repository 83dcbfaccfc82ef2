//! SYN-5: objects of an autonomous node are changed on the node alone, and what a release does
//! not declare is synchronized with nobody.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::condition::SyncState;
use model::replication::Mode;
use serde_json::json;
use server::api::objects::{ApplyOutcome, ObjectResults, SyncsView};
use test_support::fleet::Fleet;
use test_support::fleet::release::params;
use test_support::fleet::synced::{managed, manifest, publish, sync_object};
use wire::Code;

async fn fleet_of_modes() -> (Fleet, test_support::fleet::Operator) {
    let fleet = Fleet::start().await;
    for name in ["own-1", "web-1", "off-1", "new-1"] {
        fleet.node(name).await;
    }
    let mut operator = fleet.operator().await;
    let own = vec![params("a"), sync_object(Mode::Autonomous, &["Application"])];
    let nodes = [("own-1", own), ("web-1", managed()), ("off-1", vec![params("a")])];
    publish(&fleet, &mut operator, &nodes).await;
    (fleet, operator)
}

fn refused(results: &ObjectResults, code: Code) -> &str {
    let [done] = results.results.as_slice() else { panic!("{results:?}") };
    assert_eq!(done.outcome, ApplyOutcome::Refused, "{done:?}");
    let why = done.why.as_deref().unwrap();
    assert!(why.starts_with(&format!("{}: ", code.as_str())), "{why}");
    why
}

#[tokio::test]
async fn a_change_of_a_mirror_is_refused_and_names_who_may() {
    let (_fleet, mut operator) = fleet_of_modes().await;
    let results = operator.apply(vec![manifest("own-1", "shop", 1)]).await;
    assert!(refused(&results, Code::ReadOnly).contains("own-1 is the source of truth"));
    let name = json!({"node": "own-1", "kind": "Application", "namespace": "own-1", "name": "shop"});
    let results: ObjectResults =
        operator.post("/v1/objects-delete", &json!({"objects": [name]})).await.unwrap();
    refused(&results, Code::ReadOnly);
    assert!(operator.objects("").await.is_empty());
}

#[tokio::test]
async fn an_unknown_kind_is_refused() {
    let (_fleet, mut operator) = fleet_of_modes().await;
    for kind in ["Secret", "Application:status", "Action"] {
        let mut unknown = manifest("web-1", "x", 1);
        unknown["kind"] = json!(kind);
        let results = operator.apply(vec![unknown]).await;
        let why = results.results[0].why.clone().unwrap_or_default();
        assert_eq!(results.results[0].outcome, ApplyOutcome::Refused, "{kind}");
        assert!(
            why.starts_with(Code::UnknownKind.as_str()) || why.starts_with(Code::BadBody.as_str()),
            "{why}"
        );
    }
    let mut unknown = manifest("web-1", "x", 1);
    unknown["kind"] = json!("Secret");
    let results = operator.apply(vec![unknown]).await;
    assert!(refused(&results, Code::UnknownKind).contains("Application, AppProject"));
}

#[tokio::test]
async fn a_node_without_leave_takes_no_objects() {
    let (_fleet, mut operator) = fleet_of_modes().await;
    for node in ["off-1", "new-1"] {
        let results = operator.apply(vec![manifest(node, "shop", 1)]).await;
        refused(&results, Code::SyncOff);
    }
}

#[tokio::test]
async fn modes_and_states_are_shown() {
    let (_fleet, mut operator) = fleet_of_modes().await;
    operator.apply(vec![manifest("web-1", "shop", 1)]).await;
    let page: SyncsView = operator.get("/v1/sync?limit=3").await.unwrap();
    let shown: Vec<_> =
        page.nodes.iter().map(|view| (view.node.as_str(), view.mode, view.condition.state)).collect();
    let wanted = [
        ("new-1", Mode::Off, SyncState::Off),
        ("off-1", Mode::Off, SyncState::Off),
        ("own-1", Mode::Autonomous, SyncState::Unknown),
    ];
    assert_eq!(shown, wanted);
    assert_eq!(page.next.as_ref().unwrap().as_str(), "web-1");
    assert_eq!(page.states, [(SyncState::Behind, 1), (SyncState::Off, 2), (SyncState::Unknown, 1)].into());
    let page: SyncsView = operator.get("/v1/sync?from=web-1").await.unwrap();
    let web = &page.nodes[0];
    assert_eq!((web.condition.state, web.behind, web.down), (SyncState::Behind, 1, 1));
    assert!(page.states.is_empty(), "a later page costs what it shows");
}
