//! CNV-10, CFG-4: `verify:` runs after the writes and before the handlers, only when
//! something changed; its failure puts everything back and nobody is notified.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{Host, action, apply, lines, plan, set};
use model::Action;
use serde_json::json;

fn nginx() -> crate::common::Set {
    set(json!([
        {"name": "nginx",
         "verify": {"argv": ["nginx", "-t"]},
         "resources": [
            {"type": "directory", "name": "/etc/nginx"},
            {"type": "file", "name": "/etc/nginx/site", "notify": ["reload", "late/restart"], "attributes": {"content": "new"}},
            {"type": "file", "name": "/etc/nginx/made", "attributes": {"content": "made"}},
            {"type": "file", "name": "/etc/nginx/gone", "attributes": {"state": "absent"}},
         ],
         "handlers": [{"type": "exec", "name": "reload", "attributes": {"command": ["reload"]}}]},
        {"name": "late",
         "handlers": [{"type": "exec", "name": "restart", "attributes": {"command": ["restart"]}}]},
        {"name": "needs", "depends_on": ["nginx"],
         "resources": [{"type": "file", "name": "/needs", "attributes": {"content": "x"}}]},
    ]))
}

fn host() -> Host {
    let mut host = Host::default();
    host.write("/etc/nginx/site", "old");
    host.write("/etc/nginx/gone", "still here");
    host
}

#[test]
fn a_good_verify_stands_between_writes_and_handlers() {
    let mut host = host();
    apply(&mut host, &nginx());
    let at = |line: &str| host.log.iter().position(|logged| logged == line).unwrap();
    assert!(at("apply nginx/file:/etc/nginx/gone") < at("verify nginx"));
    assert!(at("verify nginx") < at("run reload") && at("run reload") < at("run restart"));
    assert_eq!(host.file("/etc/nginx/site"), Some("new"));
    assert!(host.disk.pending.is_empty());

    host.log.clear();
    apply(&mut host, &nginx());
    assert!(host.log.is_empty(), "nothing changed, so nothing is verified: {:?}", host.log);
}

#[test]
fn a_failed_verify_restores_and_notifies_nobody() {
    let mut host = host();
    let before = host.nodes.clone();
    host.broken.insert("nginx -t".into());
    let report = apply(&mut host, &nginx());
    assert_eq!(host.nodes, before);
    assert_eq!(host.count("undo nginx"), 1);
    assert_eq!((host.count("run reload"), host.count("run restart")), (0, 0));
    assert!(host.disk.pending.is_empty());
    let restored = "restored: its module's verify failed";
    let each =
        ["directory:/etc/nginx", "file:/etc/nginx/site", "file:/etc/nginx/made", "file:/etc/nginx/gone"];
    // What was put back is no change: else the run would count as one that corrects drift, each time.
    let mut expected: Vec<String> = each.iter().map(|name| format!("nginx/{name} {restored}")).collect();
    expected.push("nginx failed: verify failed: nginx -t failed".into());
    expected.push("needs skipped: it depends on nginx, which failed".into());
    assert_eq!(lines(&report), expected);
    assert_eq!((report.counts.changed, report.counts.failed), (0, 1));

    // The cause is gone: the next run does it all.
    host.broken.clear();
    let report = apply(&mut host, &nginx());
    assert_eq!(host.file("/etc/nginx/site"), Some("new"));
    assert_eq!(host.count("run reload"), 1);
    assert_eq!(report.counts.failed, 0);
}

#[test]
fn what_cannot_be_put_back_is_named() {
    let mut set = nginx();
    set.edit("nginx", |module| {
        module.resources = serde_json::from_value(json!([
            {"type": "exec", "name": "migrate", "attributes": {"command": ["migrate"], "always": true}}
        ]))
        .unwrap();
    });
    let mut host = host();
    host.broken.insert("nginx -t".into());
    let report = apply(&mut host, &set);
    assert!(
        lines(&report)
            .contains(&"nginx/exec:migrate failed: a command's effect cannot be put back".to_owned())
    );
    assert_eq!(host.count("undo nginx"), 0);
    assert!(host.disk.pending.is_empty());
}

#[test]
fn a_plan_neither_verifies_nor_forgets_that_it_is_due() {
    let mut host = host();
    let report = plan(&mut host, &nginx());
    assert_eq!(action(&report, "nginx/file:/etc/nginx/site"), Action::WouldChange);
    assert_eq!(action(&report, "nginx/exec:reload"), Action::WouldChange);
}
