//! SYN-2, SYN-5: what an operator asks of an object of an autonomous node reaches whoever owns the
//! object there, if the node's release allows it, and never changes the object.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use model::replication::{Mode, ObjectOperation, TransportPolicy};
use serde_json::{Value, json};
use test_support::agent_pair::{Daemon, Pair, files, says};
use test_support::wait::until;

const FOLDER: &str = "/srv/manifests";

fn manifest(name: &str) -> String {
    format!("apiVersion: test/v1\nkind: Item\nmetadata: {{namespace: web, name: {name}}}\nspec: {{n: 1}}\n")
}

fn work(operation: &str, kind: &str, name: &str) -> Value {
    let object = json!({"kind": kind, "namespace": "web", "name": name});
    json!({"kind": "operation", "operation": operation, "object": object})
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// An autonomous node with one object alone in its file and two in another, which takes `sync`.
async fn pair() -> (Pair, Daemon, PathBuf) {
    let says = says(Mode::Autonomous, Some(FOLDER), TransportPolicy::Grpc);
    let mut pair = Pair::new(&says.operating(&[ObjectOperation::Sync])).await;
    let folder = pair.root().join("srv/manifests");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("alone.yaml"), manifest("alone")).unwrap();
    std::fs::write(folder.join("two.yaml"), format!("{}---\n{}", manifest("one"), manifest("other")))
        .unwrap();
    let daemon = pair.daemon();
    until("the objects are up", async || (pair.objects().await.len() == 3).then_some(())).await;
    (pair, daemon, folder)
}

async fn outcome(pair: &mut Pair, work: Value) -> (String, Value) {
    let task = pair.begin_work(work).await;
    pair.task_over(&task.id).await;
    let outcome = pair.outcome(&task.id).await;
    (task.id, outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_has_the_operation_and_the_object_is_as_it_was() {
    let (mut pair, daemon, folder) = pair().await;
    let before = pair.object("alone").await.unwrap();
    let (task, handed) = outcome(&mut pair, work("sync", "Item", "alone")).await;
    assert_eq!(handed["outcome"], "handedOver", "{handed}");
    let file = folder.join("alone.yaml.operation.json");
    let said = read(&file);
    assert_eq!(said["operation"], "sync");
    assert!(said["id"].as_str().unwrap().starts_with(&task), "{said}");
    assert!(said["requestedAt"].is_string(), "{said}");
    let (_, handed) = outcome(&mut pair, work("sync", "Item", "other")).await;
    assert_eq!(handed["outcome"], "handedOver", "{handed}");
    let other = folder.join("two.yaml.item.web.other.operation.json");
    assert_eq!(read(&other)["operation"], "sync");
    // The local tool takes it away. The operation file was no object and no change of one.
    std::fs::remove_file(&file).unwrap();
    std::fs::remove_file(&other).unwrap();
    std::fs::write(folder.join("more.yaml"), manifest("more")).unwrap();
    until("a later object is up", async || (pair.objects().await.len() == 4).then_some(())).await;
    let after = pair.object("alone").await.unwrap();
    assert_eq!((after.uid, after.manifest), (before.uid, before.manifest));
    assert_eq!(std::fs::read_to_string(folder.join("alone.yaml")).unwrap(), manifest("alone"));
    assert_eq!(pair.status()["problems"], json!({}));
    // Done once: a restart hands nothing over again.
    assert!(daemon.end().await.success());
    let _daemon = pair.daemon();
    outcome(&mut pair, work("sync", "Item", "more")).await;
    assert!(!file.exists() && !other.exists(), "{:?}", files(&folder));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_release_does_not_allow_is_refused_with_a_code() {
    let (mut pair, _daemon, folder) = pair().await;
    for (asked, code) in [
        (work("refresh", "Item", "alone"), "operation-not-allowed"),
        (work("sync", "Other", "alone"), "kind-not-synchronized"),
        (work("sync", "Item", "absent"), "object-absent"),
    ] {
        let (_, refused) = outcome(&mut pair, asked).await;
        assert_eq!((&refused["outcome"], &refused["code"]), (&json!("refused"), &json!(code)), "{refused}");
    }
    pair.publish(&says(Mode::Managed, Some(FOLDER), TransportPolicy::Grpc)).await;
    until("the node is managed", async || (pair.status()["mode"] == "managed").then_some(())).await;
    let (_, refused) = outcome(&mut pair, work("sync", "Item", "alone")).await;
    assert_eq!(refused["code"], "not-autonomous", "{refused}");
    assert_eq!(files(&folder).len(), 2, "{:?}", files(&folder));
}
