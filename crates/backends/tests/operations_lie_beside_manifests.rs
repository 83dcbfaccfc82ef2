//! SYN-2, SYN-9: an operation on an object lies beside the object's file, for the local tool that
//! carries it out; it is no manifest and no change of the object.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support::{Stage, app, changed, yaml};
use backends::{Backend as _, Expect, OperationRequest};
use model::Timestamp;
use model::replication::ObjectOperation;

fn request(operation: ObjectOperation, id: &str) -> OperationRequest {
    OperationRequest { operation, id: id.to_owned(), requested_at: Timestamp(0) }
}

fn read(stage: &Stage, path: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(stage.path(path)).unwrap()).unwrap()
}

#[test]
fn it_is_handed_over_beside_and_changes_nothing() {
    let mut stage = Stage::new();
    stage.write("x/a.yaml", yaml("a", 1));
    stage.list();
    let before = stage.folder.get(&app("a")).unwrap();
    let told = stage.watch();
    stage.settle();
    stage.folder.request_operation(&app("a"), &request(ObjectOperation::Sync, "t-1.n")).unwrap();
    let want = serde_json::json!({"operation": "sync", "id": "t-1.n", "requestedAt": "1970-01-01T00:00:00Z"});
    assert_eq!(read(&stage, "x/a.yaml.operation.json"), want);
    stage.folder.request_operation(&app("a"), &request(ObjectOperation::Refresh, "t-2.n")).unwrap();
    assert_eq!(read(&stage, "x/a.yaml.operation.json")["id"], "t-2.n", "the newest counts");
    stage.settle();
    assert!(!changed(&told));
    assert_eq!(stage.folder.get(&app("a")).unwrap(), before);
    let listing = stage.list();
    assert_eq!((listing.objects.len(), listing.problems.len(), listing.complete), (1, 0, true));
    assert_eq!(std::fs::read_to_string(stage.path("x/a.yaml")).unwrap(), yaml("a", 1));
    stage.remove("x/a.yaml.operation.json");
    stage.settle();
    assert!(!changed(&told));
}

#[test]
fn each_object_of_a_file_has_its_own() {
    let mut stage = Stage::new();
    stage.write("all.yaml", format!("{}---\n{}", yaml("a", 1), yaml("b", 1)));
    stage.list();
    stage.folder.request_operation(&app("b"), &request(ObjectOperation::Sync, "t-1.n")).unwrap();
    assert_eq!(read(&stage, "all.yaml.app._.b.operation.json")["id"], "t-1.n");
    // The file has one object now: the tool finds one operation, the newest.
    stage.write("all.yaml", yaml("b", 1));
    stage.settle();
    stage.folder.request_operation(&app("b"), &request(ObjectOperation::Sync, "t-2.n")).unwrap();
    assert_eq!(read(&stage, "all.yaml.operation.json")["id"], "t-2.n");
    assert!(!stage.path("all.yaml.app._.b.operation.json").exists());
    stage.folder.delete(&app("b"), &Expect::Anything).unwrap();
    assert!(!stage.path("all.yaml.operation.json").exists(), "it goes with its object");
}

#[test]
fn an_absent_object_takes_none() {
    let mut stage = Stage::new();
    stage.write("a.yaml", yaml("a", 1));
    stage.list();
    let asked = request(ObjectOperation::Sync, "t-1.n");
    assert_eq!(stage.folder.request_operation(&app("b"), &asked).unwrap_err().code, "absent");
    // Gone, and not yet seen to be.
    stage.remove("a.yaml");
    assert_eq!(stage.folder.request_operation(&app("a"), &asked).unwrap_err().code, "absent");
    assert!(!stage.path("a.yaml.operation.json").exists());
}
