//! SYN-9: what cannot be read deletes nothing; it is told, and what was said before stays.

use crate::support::{Stage, app, yaml};

#[test]
fn in_a_running_process() {
    for (text, code) in [
        ("", "empty"),
        ("\n\n", "empty"),
        ("# all is a comment now\n", "empty"),
        ("kind: App\nmeta", "not-yaml"),
        ("kind: App\nmetadata:\n  name: [", "not-yaml"),
        ("apiVersion: v1\n", "no-kind"),
        ("kind: App\n", "no-name"),
        ("- kind: App\n", "not-a-map"),
        ("kind: App\nkind: App\n", "duplicate-key"),
    ] {
        let mut stage = Stage::new();
        stage.write("two.yaml", format!("{}---\n{}", yaml("a", 1), yaml("b", 1)));
        stage.write("c.yaml", yaml("c", 1));
        stage.list();
        stage.write("two.yaml", text);
        stage.settle();
        assert_eq!(stage.said(), ["a=1", "b=1", "c=1"], "{text:?}");
        assert_eq!(stage.codes(), [("two.yaml".to_owned(), code)], "{text:?}");
        let listing = stage.list();
        assert_eq!(listing.problems[0].kept, [app("a"), app("b")]);
        assert!(listing.complete, "all objects are known: {text:?}");
        stage.write("two.yaml", yaml("b", 2));
        stage.settle();
        assert_eq!(stage.said(), ["b=2", "c=1"], "a file that reads well counts");
        assert!(stage.list().problems.is_empty());
    }
}

#[test]
fn after_a_restart_nothing_may_be_taken_for_deleted() {
    let mut stage = Stage::new();
    stage.write("a.yaml", yaml("a", 1));
    stage.write("b.yaml", "kind: App\nmetad");
    assert_eq!(stage.said(), ["a=1"]);
    assert!(!stage.list().complete);
    assert_eq!(stage.list().problems[0].line, Some(2));
    stage.restart();
    assert!(!stage.list().complete, "who knows what it said");
    stage.write("b.yaml", yaml("b", 1));
    stage.settle();
    assert_eq!(stage.said(), ["a=1", "b=1"]);
    assert!(stage.list().complete);
}

#[test]
fn a_file_really_removed_deletes_its_objects() {
    let mut stage = Stage::new();
    stage.write("a.yaml", yaml("a", 1));
    stage.write("b.yaml", yaml("b", 1));
    stage.list();
    stage.write("b.yaml", "kind: [");
    stage.settle();
    stage.remove("b.yaml");
    stage.settle();
    assert_eq!(stage.said(), ["a=1"]);
    let listing = stage.list();
    assert!(listing.complete && listing.problems.is_empty());
}

#[test]
fn a_broken_status_keeps_the_last() {
    let mut stage = Stage::new();
    stage.write("a.yaml", yaml("a", 1));
    stage.write("a.yaml.status.json", r#"{"ready": true}"#);
    let status = |stage: &mut Stage| stage.list().objects[0].status.clone().map(|it| it.to_vec());
    assert_eq!(status(&mut stage).unwrap(), br#"{"ready":true}"#);
    stage.write("a.yaml.status.json", r#"{"ready": fal"#);
    stage.settle();
    assert_eq!(status(&mut stage).unwrap(), br#"{"ready":true}"#);
    assert_eq!(stage.codes(), [("a.yaml.status.json".to_owned(), "not-json")]);
    assert!(stage.list().complete, "a status says nothing of which objects there are");
}
