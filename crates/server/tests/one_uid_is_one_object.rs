//! SYN-7: one uid is one object. It is refused under a second name, and another uid under one
//! name is another incarnation of it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};
use server::api::objects::{ApplyOutcome, ObjectView};
use test_support::fleet::synced::{manifest, one_managed};

fn with_uid(name: &str, uid: &str) -> Value {
    let mut manifest = manifest("web-1", name, 1);
    manifest["metadata"]["uid"] = json!(uid);
    manifest
}

#[tokio::test]
async fn one_uid_under_two_names_is_refused() {
    let (_fleet, mut operator, _node) = one_managed().await;
    // In one request, and across two.
    let results = operator.apply(vec![with_uid("a", "u-1"), with_uid("b", "u-1")]).await;
    assert_eq!(results.results[0].outcome, ApplyOutcome::Created);
    for results in
        [results.results[1].clone(), operator.apply(vec![with_uid("c", "u-1")]).await.results[0].clone()]
    {
        assert_eq!(results.outcome, ApplyOutcome::Refused);
        let why = results.why.unwrap();
        assert!(why.starts_with("uid-twice: Application/web-1/a"), "{why}");
    }
    assert_eq!(operator.objects("").await.len(), 1);
    // The same under its own name is nothing new, and another kind is another object.
    assert_eq!(operator.apply(vec![with_uid("a", "u-1")]).await.results[0].outcome, ApplyOutcome::Unchanged);
    let mut project = with_uid("a", "u-1");
    project["kind"] = json!("AppProject");
    assert_eq!(operator.apply(vec![project]).await.results[0].outcome, ApplyOutcome::Created);
}

#[tokio::test]
async fn another_uid_is_another_life() {
    let (_fleet, mut operator, _node) = one_managed().await;
    operator.apply(vec![with_uid("a", "u-1")]).await;
    let results = operator.apply(vec![with_uid("a", "u-2")]).await;
    assert_eq!(results.results[0].outcome, ApplyOutcome::Changed);
    let view: ObjectView = operator.get("/v1/objects/web-1/Application/web-1/a").await.unwrap();
    assert_eq!(view.uid, "u-2");
    // The first uid is free now.
    assert_eq!(operator.apply(vec![with_uid("b", "u-1")]).await.results[0].outcome, ApplyOutcome::Created);
    // Without a uid the one that it has is kept.
    let results = operator.apply(vec![manifest("web-1", "a", 2)]).await;
    assert_eq!(results.results[0].outcome, ApplyOutcome::Changed);
    let view: ObjectView = operator.get("/v1/objects/web-1/Application/web-1/a").await.unwrap();
    assert_eq!(view.uid, "u-2");
}
