//! SYN-9: a status lies beside its object's file; it is no part of the spec, and local tools
//! write it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support::{Stage, app, yaml};
use backends::{Backend as _, Changes, Deleted, Found, Precondition, Signal};

fn found(stage: &mut Stage, name: &str) -> Found {
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
    let signals = stage.folder.watch().unwrap();
    stage.write("x/a.yaml.status.json", "{ \"n\": 1,\n \"a\": [] }");
    stage.settle();
    assert_eq!(signals.try_next(), Some(Signal::Changed(Changes::Keys([app("a")].into()))));
    assert_eq!(status(&mut stage, "a").unwrap(), r#"{"a":[],"n":1}"#);
    assert_eq!(found(&mut stage, "a").version, version);
    stage.write("x/a.yaml.status.json", r#"{"a":[],"n":1}"#);
    stage.settle();
    assert_eq!(signals.try_next(), None, "the same status is no change");
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
    stage.folder.put_status(&app("b"), None, Some(br#"{"b":1}"#)).unwrap();
    stage.settle();
    assert!(stage.path("all.yaml.app._.b.status.json").exists());
    assert_eq!((status(&mut stage, "a"), status(&mut stage, "b").unwrap()), (None, r#"{"b":1}"#.into()));
    // The file has one object now; its status is found all the same.
    stage.write("all.yaml", yaml("b", 1));
    stage.settle();
    assert_eq!(status(&mut stage, "b").unwrap(), r#"{"b":1}"#);
    stage.folder.put_status(&app("b"), None, Some(br#"{"b":2}"#)).unwrap();
    assert!(
        stage.path("all.yaml.status.json").exists() && !stage.path("all.yaml.app._.b.status.json").exists()
    );
    stage.settle();
    assert_eq!(status(&mut stage, "b").unwrap(), r#"{"b":2}"#);
    assert_eq!(stage.folder.delete(&app("b"), &Precondition::default()).unwrap(), Deleted::Gone);
    assert!(!stage.path("all.yaml.status.json").exists(), "it goes with its object");
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
    stage.folder.put_status(&app("a"), None, Some(br#"{"n":3}"#)).unwrap();
    stage.settle();
    assert_eq!(status(&mut stage, "a").unwrap(), r#"{"n":3}"#);
}
