//! CNV-10, CFG-6: what Muster made and what is declared to be of another type now is replaced in one step: a
//! file by a directory, an empty directory by a file. What was there before Muster stays in the way.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{Host, Node, Set, apply, drive, id, lines, plan, set};
use converge::RunMode;
use serde_json::{Value, json};

fn module(resources: Vec<Value>) -> Set {
    set(json!([{"name": "m", "resources": resources}]))
}

fn file(path: &str) -> Value {
    json!({"type": "file", "name": path, "on_remove": "delete", "attributes": {"content": "x"}})
}

fn directory(path: &str) -> Value {
    json!({"type": "directory", "name": path, "on_remove": "delete"})
}

#[test]
fn an_own_file_becomes_a_directory_and_a_file_again() {
    let mut host = Host::default();
    apply(&mut host, &module(vec![file("/etc/del")]));
    let planned = plan(&mut host, &module(vec![directory("/etc/del")]));
    assert_eq!(lines(&planned), ["m/directory:/etc/del would_change"]);
    let report = apply(&mut host, &module(vec![directory("/etc/del"), file("/etc/del/x")]));
    assert_eq!(lines(&report), ["m/directory:/etc/del changed", "m/file:/etc/del/x changed"]);
    assert_eq!(host.nodes["/etc/del"], Node::Directory);
    // The run after it finds all right, and knows the new kind.
    assert!(
        apply(&mut host, &module(vec![directory("/etc/del")])).items.len() == 1,
        "only the file inside goes"
    );
    assert_eq!(host.disk.ledger.entries[&id("m/directory:/etc/del")].kind, "directory");
    let report = apply(&mut host, &module(vec![file("/etc/del")]));
    assert_eq!(lines(&report), ["m/file:/etc/del changed"]);
    assert_eq!(host.file("/etc/del"), Some("x"));
    // It is still Muster's to delete.
    apply(&mut host, &module(vec![]));
    assert!(host.nodes.is_empty());
}

#[test]
fn a_link_becomes_a_directory_and_a_directory_a_link() {
    let link = json!({"type": "symlink", "name": "/srv/x", "attributes": {"target": "/srv/y"}});
    let mut host = Host::default();
    apply(&mut host, &module(vec![link.clone()]));
    apply(&mut host, &module(vec![directory("/srv/x")]));
    assert_eq!(host.nodes["/srv/x"], Node::Directory);
    apply(&mut host, &module(vec![link]));
    assert_eq!(host.nodes["/srv/x"], Node::Symlink("/srv/y".into()));
}

#[test]
fn what_was_there_before_stays_in_the_way() {
    let mut host = Host::default();
    host.write("/etc/theirs", "before");
    apply(&mut host, &module(vec![file("/etc/theirs")]));
    let report = apply(&mut host, &module(vec![directory("/etc/theirs")]));
    assert_eq!(report.counts.failed, 1);
    assert_eq!(host.file("/etc/theirs"), Some("x"));
    // Nobody made this one here.
    host.write("/etc/other", "by hand");
    let report = apply(&mut host, &module(vec![directory("/etc/other")]));
    assert_eq!(report.counts.failed, 1);
}

#[test]
fn a_run_that_is_killed_or_fails_is_followed_by_one_that_does_it() {
    for lives in 0..12 {
        let mut host = Host::default();
        apply(&mut host, &module(vec![file("/etc/del")]));
        host.lives = Some(lives);
        let _ = drive(&mut host, &module(vec![directory("/etc/del")]).bind(), RunMode::Apply, 0);
        host.lives = None;
        let report = apply(&mut host, &module(vec![directory("/etc/del")]));
        assert_eq!(report.counts.failed, 0, "{lives}: {:?}", report.items);
        assert_eq!(host.nodes["/etc/del"], Node::Directory, "{lives}");
    }
    let mut host = Host::default();
    apply(&mut host, &module(vec![file("/etc/del")]));
    host.broken.insert("/etc/del".into());
    assert_eq!(apply(&mut host, &module(vec![directory("/etc/del")])).counts.failed, 1);
    host.broken.clear();
    assert_eq!(apply(&mut host, &module(vec![directory("/etc/del")])).counts.changed, 1);
}
