//! CNV-6: `observe` on node, module or resource reports what would change and touches
//! nothing, not even what is owed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{Host, Set, action, apply, lines, set};
use model::Action;
use serde_json::json;

fn web() -> Set {
    set(json!([
        {"name": "base", "resources": [{"type": "file", "name": "/base", "attributes": {"content": "x"}}]},
        {"name": "web", "verify": {"argv": ["check"]},
         "resources": [
            {"type": "file", "name": "/a", "notify": ["reload"], "on_remove": "delete", "attributes": {"content": "x"}},
            {"type": "custom", "name": "c", "attributes": {"script": "executors/x"}},
            {"type": "custom", "name": "dry", "attributes": {"script": "executors/x", "dry_run": true}},
         ],
         "handlers": [{"type": "exec", "name": "reload", "attributes": {"command": ["reload"]}}],
         "files": {"executors/x": {"digest": "00".repeat(32), "size": 1}}},
    ]))
}

#[test]
fn a_node_that_observes() {
    let mut set = web();
    set.params.observe = true;
    let mut host = Host::default();
    let report = apply(&mut host, &set);
    assert_eq!(
        lines(&report),
        [
            "base/file:/base would_change",
            "web/file:/a would_change",
            "web/custom:c unknown",
            "web/custom:dry would_change",
            "web/exec:reload would_change",
        ]
    );
    assert_eq!((report.counts.would_change, report.counts.changed), (5, 0));
    assert!(host.nodes.is_empty() && host.log.is_empty() && host.disk.ledger.entries.is_empty());
    assert!(host.disk.pending.is_empty());
}

#[test]
fn a_module_that_observes_among_others() {
    let mut set = web();
    set.edit("web", |module| module.observe = true);
    let mut host = Host::default();
    let report = apply(&mut host, &set);
    assert_eq!(host.nodes.keys().collect::<Vec<_>>(), ["/base"]);
    assert_eq!(host.log, ["apply base/file:/base"]);
    assert_eq!(report.counts.would_change, 4);
}

#[test]
fn a_resource_that_observes_notifies_nobody() {
    let mut set = web();
    set.edit("web", |module| module.resources[0].observe = true);
    let mut host = Host::default();
    let report = apply(&mut host, &set);
    assert_eq!(action(&report, "web/file:/a"), Action::WouldChange);
    assert_eq!(host.count("run reload"), 0);
    assert!(host.file("/a").is_none());
}

#[test]
fn what_is_due_stays_due_while_it_observes() {
    let mut host = Host::default();
    host.broken.insert("reload".into());
    apply(&mut host, &web());
    let due = host.disk.pending.clone();
    assert_eq!(due.notified.len(), 1);

    host.broken.clear();
    let mut observing = web();
    observing.edit("web", |module| module.observe = true);
    let report = apply(&mut host, &observing);
    assert_eq!(action(&report, "web/exec:reload"), Action::WouldChange);
    assert_eq!(host.disk.pending, due);

    apply(&mut host, &web());
    assert_eq!(host.count("run reload"), 2);
    assert!(host.disk.pending.is_empty());
}

#[test]
fn a_node_that_observes_removes_nothing() {
    let mut host = Host::default();
    apply(&mut host, &web());
    let (nodes, ledger) = (host.nodes.clone(), host.disk.ledger.clone());
    let mut set = web();
    set.edit("web", |module| drop(module.resources.remove(0)));
    set.params.observe = true;
    let report = apply(&mut host, &set);
    let removed = report.items.last().unwrap();
    assert_eq!(removed.reason.as_deref(), Some("no longer declared: it would be deleted (on_remove)"));
    assert_eq!((host.nodes, host.disk.ledger), (nodes, ledger));
}
