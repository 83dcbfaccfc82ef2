//! SYN-9: a status lies beside its object's file; it is no part of the spec, and local tools
//! write it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support::{Stage, app, changed, yaml};
use backends::{ApplyRequest, Backend as _, Deleted, Expect, FoundObject};

fn found(stage: &mut Stage, name: &str) -> FoundObject {
    stage.folder.get(&app(name)).unwrap().unwrap()
}

fn status(stage: &mut Stage, name: &str) -> Option<String> {
    found(stage, name).status.map(|status| String::from_utf8(status.to_vec()).unwrap())
}

#[test]
fn a_tool_writes_it_beside() {
    let mut stage = Stage::new();
    stage.write("x/a.yaml", yaml("a", 1));
    stage.list();
    let version = found(&mut stage, "a").version;
    let told = stage.watch();
    stage.settle();
    stage.write("x/a.yaml.status.json", "{ \"n\": 1,\n \"a\": [] }");
    stage.settle();
    assert!(changed(&told));
    assert_eq!(status(&mut stage, "a").unwrap(), r#"{"a":[],"n":1}"#);
    assert_eq!(found(&mut stage, "a").version, version);
    stage.write("x/a.yaml.status.json", r#"{"a":[],"n":1}"#);
    stage.settle();
    assert!(!changed(&told), "the same status is no change");
    stage.remove("x/a.yaml.status.json");
    stage.settle();
    assert_eq!(status(&mut stage, "a"), None);
    assert_eq!(stage.said(), ["a=1"]);
}

#[test]
fn each_object_of_a_file_has_its_own() {
    let mut stage = Stage::new();
    stage.write("all.yaml", format!("{}---\n{}", yaml("a", 1), yaml("b", 1)));
    stage.list();
    stage.write("all.yaml.app._.b.status.json", r#"{"b":1}"#);
    stage.settle();
    assert_eq!((status(&mut stage, "a"), status(&mut stage, "b").unwrap()), (None, r#"{"b":1}"#.into()));
    // The file has one object now; its status is found all the same.
    stage.write("all.yaml", yaml("b", 1));
    stage.settle();
    assert_eq!(status(&mut stage, "b").unwrap(), r#"{"b":1}"#);
    stage.write("all.yaml.status.json", r#"{"b":2}"#);
    stage.settle();
    assert_eq!(status(&mut stage, "b").unwrap(), r#"{"b":2}"#);
    assert_eq!(stage.folder.delete(&app("b"), &Expect::Anything).unwrap(), Deleted::Removed);
    let beside = ["all.yaml.status.json", "all.yaml.app._.b.status.json"];
    assert!(!beside.iter().any(|path| stage.path(path).exists()), "they go with their object");
}

#[test]
fn one_inside_the_manifest_counts_where_none_lies_beside() {
    let mut stage = Stage::new();
    stage.write("a.yaml", format!("{}status: {{n: 1}}\n", yaml("a", 1)));
    stage.list();
    assert_eq!(status(&mut stage, "a").unwrap(), r#"{"n":1}"#);
    let version = found(&mut stage, "a").version;
    stage.write("a.yaml", format!("{}status: {{n: 2}}\n", yaml("a", 1)));
    stage.settle();
    assert_eq!(status(&mut stage, "a").unwrap(), r#"{"n":2}"#);
    assert_eq!(found(&mut stage, "a").version, version, "it is no part of the spec");
    stage.write("a.yaml.status.json", r#"{"n":3}"#);
    stage.settle();
    assert_eq!(status(&mut stage, "a").unwrap(), r#"{"n":3}"#);
}

#[test]
fn another_spec_leaves_it_alone() {
    let mut stage = Stage::new();
    stage.write("a.yaml", format!("{}status: {{n: 1}}\n", yaml("a", 1)));
    stage.write("b.yaml", yaml("b", 1));
    stage.write("b.yaml.status.json", r#"{"b":1}"#);
    stage.list();
    for name in ["a", "b"] {
        let (key, spec) =
            (app(name), format!(r#"{{"kind":"App","metadata":{{"name":"{name}"}},"spec":{{"v":2}}}}"#));
        let apply = ApplyRequest {
            key: &key,
            spec: spec.as_bytes(),
            source_uid: Some("u-1"),
            expect: Expect::Anything,
        };
        stage.folder.apply(apply).unwrap();
    }
    stage.settle();
    assert_eq!(stage.said(), ["a=2", "b=2"]);
    assert_eq!(
        (status(&mut stage, "a").unwrap(), status(&mut stage, "b").unwrap()),
        (r#"{"n":1}"#.into(), r#"{"b":1}"#.into())
    );
}
