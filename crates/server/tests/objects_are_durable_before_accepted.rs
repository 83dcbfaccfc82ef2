//! SYN-4, SYN-5: what the control plane accepts of objects is in its store before it says so;
//! each object has its own answer, and what is not stored is not accepted.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::condition::Direction;
use rusqlite::Connection;
use serde_json::json;
use server::api::objects::{Apply, ApplyOutcome, ObjectResults, ObjectView};
use test_support::fleet::synced::{apply, manifest, one_managed};
use wire::Code;

#[tokio::test]
async fn an_accepted_object_is_there_after_a_restart_with_the_same_uid() {
    let (mut fleet, mut operator, _node) = one_managed().await;
    let results = operator.apply(vec![manifest("web-1", "shop", 1)]).await;
    assert_eq!(results.results[0].outcome, ApplyOutcome::Created, "{results:?}");
    let before = operator.objects("").await;
    let [object] = before.as_slice() else { panic!("{before:?}") };
    assert_eq!(
        (object.way, object.kind.as_str(), object.name.as_str()),
        (Direction::Down, "Application", "shop")
    );
    assert!(!object.uid.is_empty() && object.delivered == Some(false), "{object:?}");
    let trace = object.trace.clone().unwrap();
    assert!(trace.starts_with("00-") && trace.len() == 55, "{trace}");
    fleet.stop().await;
    fleet.start_again().await;
    let mut operator = fleet.operator().await;
    let results = operator.apply(vec![manifest("web-1", "shop", 1), manifest("web-1", "shop", 2)]).await;
    let outcomes: Vec<ApplyOutcome> = results.results.iter().map(|done| done.outcome).collect();
    assert_eq!(outcomes, [ApplyOutcome::Unchanged, ApplyOutcome::Changed]);
    let after: ObjectView = operator.get("/v1/objects/web-1/Application/web-1/shop").await.unwrap();
    assert_eq!(after.uid, object.uid, "the uid is kept over updates and restarts");
    assert!(after.rev > object.rev);
    assert_eq!(after.manifest.unwrap()["spec"]["value"], 2);
}

/// What a server keeps in a manifest is no part of it: the same object with another status or
/// resource version is unchanged.
#[tokio::test]
async fn only_what_is_said_counts() {
    let (_fleet, mut operator, _node) = one_managed().await;
    operator.apply(vec![manifest("web-1", "shop", 1)]).await;
    let mut same = manifest("web-1", "shop", 1);
    same["status"] = json!({"health": "fine"});
    same["metadata"]["resourceVersion"] = json!("17");
    let results = operator.apply(vec![same]).await;
    assert_eq!(results.results[0].outcome, ApplyOutcome::Unchanged, "{results:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_stored_is_refused_and_not_there() {
    let (fleet, mut operator, _node) = one_managed().await;
    let held = Connection::open(fleet.dir.path().join("muster.db")).unwrap();
    held.busy_timeout(test_support::fleet::PATIENCE).unwrap();
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    let results = operator.apply(vec![manifest("web-1", "shop", 1)]).await;
    held.execute_batch("ROLLBACK").unwrap();
    assert_eq!(results.results[0].outcome, ApplyOutcome::Refused);
    assert!(results.results[0].why.is_some());
    assert!(operator.objects("").await.is_empty());
    let results = operator.apply(vec![manifest("web-1", "shop", 1)]).await;
    assert_eq!(results.results[0].outcome, ApplyOutcome::Created);
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_and_changes_nothing() {
    let (_fleet, mut operator, _node) = one_managed().await;
    operator.apply(vec![manifest("web-1", "shop", 1)]).await;
    let asked = Apply {
        dry_run: true,
        ..apply(vec![manifest("web-1", "shop", 2), manifest("web-1", "new", 1), manifest("gone-1", "x", 1)])
    };
    let results: ObjectResults = operator.post("/v1/objects", &asked).await.unwrap();
    let [changed, created, refused] = results.results.as_slice() else { panic!("{results:?}") };
    assert_eq!(changed.outcome, ApplyOutcome::Changed);
    assert_eq!(changed.before.as_ref().unwrap()["spec"]["value"], 1);
    assert_eq!(changed.after.as_ref().unwrap()["spec"]["value"], 2);
    assert_eq!(created.outcome, ApplyOutcome::Created);
    assert!(created.before.is_none() && created.after.is_some());
    assert_eq!(refused.outcome, ApplyOutcome::Refused);
    assert_eq!(operator.objects("").await.len(), 1);
}

#[tokio::test]
async fn a_deleted_object_is_gone_and_comes_back_as_another_life() {
    let (_fleet, mut operator, _node) = one_managed().await;
    operator.apply(vec![manifest("web-1", "shop", 1)]).await;
    let first = operator.objects("").await[0].uid.clone();
    let name = json!({"node": "web-1", "kind": "Application", "namespace": "web-1", "name": "shop"});
    let delete = json!({"objects": [name, name]});
    let results: ObjectResults = operator.post("/v1/objects-delete", &delete).await.unwrap();
    let outcomes: Vec<ApplyOutcome> = results.results.iter().map(|done| done.outcome).collect();
    assert_eq!(outcomes, [ApplyOutcome::Deleted, ApplyOutcome::Absent]);
    assert!(operator.objects("").await.is_empty());
    operator.apply(vec![manifest("web-1", "shop", 1)]).await;
    assert_ne!(operator.objects("").await[0].uid, first);
}

#[tokio::test]
async fn a_large_object_is_refused_by_name_and_the_others_are_taken() {
    let (_fleet, mut operator, _node) = one_managed().await;
    let mut large = manifest("web-1", "large", 1);
    large["spec"]["text"] = json!("x".repeat(sync::object::MAX_CONTENT + 1));
    let results = operator.apply(vec![large, manifest("web-1", "small", 1)]).await;
    let [refused, taken] = results.results.as_slice() else { panic!("{results:?}") };
    let why = refused.why.as_deref().unwrap();
    assert!(why.starts_with(Code::ObjectTooLarge.as_str()), "{why}");
    assert_eq!(taken.outcome, ApplyOutcome::Created);
}

#[tokio::test]
async fn pages_of_objects_fit_together() {
    let (_fleet, mut operator, _node) = one_managed().await;
    let all: Vec<_> = (0..25).map(|n| manifest("web-1", &format!("app-{n:02}"), n)).collect();
    operator.apply(all).await;
    for nodes in ["", "match=web-*&"] {
        let (mut seen, mut from) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/objects?{nodes}limit=10{from}");
            let page: server::api::objects::ObjectsView = operator.get(&path).await.unwrap();
            seen.extend(page.objects.into_iter().map(|object| object.name));
            let Some(next) = page.next else { break };
            from = format!("&from={}", next.replace('/', "%2F"));
        }
        assert_eq!(seen, (0..25).map(|n| format!("app-{n:02}")).collect::<Vec<_>>(), "{nodes}");
    }
}
