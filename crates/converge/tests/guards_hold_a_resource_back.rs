//! CFG-5: `only_if` and `not_if` are asked of the host before a resource is looked at, in a plan
//! too; a resource that they hold back is skipped, with the reason, and counted.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::Action;
use serde_json::{Value, json};

use crate::common::{Host, Set, action, apply, lines, plan, set};

fn guarded(guards: Value) -> Set {
    let mut resource = json!({"type": "file", "name": "/a", "id": "a", "notify": ["h"],
        "attributes": {"content": "x"}});
    resource.as_object_mut().unwrap().extend(guards.as_object().unwrap().clone());
    set(json!([{"name": "m", "resources": [
        resource,
        {"type": "file", "name": "/b", "depends_on": ["a"], "attributes": {"content": "x"}},
    ], "handlers": [{"type": "exec", "name": "h", "attributes": {"command": ["h"]}}]}]))
}

fn only_if(path: &str) -> Value {
    json!({"only_if": {"argv": ["test", "-e", path]}})
}

#[test]
fn only_if_needs_success_and_not_if_failure() {
    let mut host = Host::default();
    let report = apply(&mut host, &guarded(only_if("/home")));
    assert_eq!(
        lines(&report),
        ["m/file:/a skipped: only_if did not succeed: test -e /home", "m/file:/b changed"]
    );
    assert_eq!((report.counts.skipped, host.count("run h")), (1, 0));
    host.write("/home", "");
    let report = apply(&mut host, &guarded(only_if("/home")));
    assert_eq!(lines(&report), ["m/file:/a changed", "m/exec:h changed"]);
    let not_if = json!({"not_if": {"shell": "test -e /home"}});
    let report = apply(&mut host, &guarded(not_if));
    assert_eq!(lines(&report), ["m/file:/a skipped: not_if succeeded: test -e /home"]);
    // Both: the first that holds it back decides.
    let both = json!({"only_if": {"argv": ["true"]}, "not_if": {"argv": ["test", "-e", "/home"]}});
    host.log.clear();
    assert_eq!(action(&apply(&mut host, &guarded(both)), "m/file:/a"), Action::Skipped);
    assert_eq!(host.log, ["ask true", "ask test -e /home"]);
}

#[test]
fn a_guard_that_cannot_be_asked_fails_its_resource() {
    let mut host = Host::default();
    host.broken.insert("gone".into());
    let report = apply(&mut host, &guarded(json!({"only_if": {"argv": ["gone"]}})));
    assert_eq!(
        lines(&report),
        [
            "m/file:/a failed: only_if: gone cannot be started",
            "m/file:/b skipped: it depends on m/file:/a, which failed"
        ]
    );
}

#[test]
fn guards_are_asked_in_a_plan_and_not_where_when_is_false() {
    let mut host = Host::default();
    let report = converge_plan(&mut host, &guarded(only_if("/home")));
    assert_eq!(action(&report, "m/file:/a"), Action::Skipped);
    let mut never = guarded(only_if("/home"));
    never.edit("m", |module| module.resources[0].when = Some("false".into()));
    host.log.clear();
    apply(&mut host, &never);
    assert_eq!(host.count("ask test -e /home"), 0);
}

#[test]
fn guards_are_evaluated_and_hidden_where_the_resource_is_sensitive() {
    let mut host = Host::default();
    let mut sensitive = guarded(json!({"only_if": {"argv": ["test", "-e", "/${{ node.hostname }}"]}}));
    let report = apply(&mut host, &sensitive);
    assert_eq!(report.items[0].reason.as_deref(), Some("only_if did not succeed: test -e /web-1"));
    sensitive.edit("m", |module| module.resources[0].sensitive = true);
    let report = apply(&mut host, &sensitive);
    assert_eq!(report.items[0].reason.as_deref(), Some("only_if did not succeed"));
}

/// A plan that may ask, and touches nothing.
fn converge_plan(host: &mut Host, set: &Set) -> model::RunReport {
    let asked = host.log.len();
    let mut seen = host.clone();
    let report = crate::common::drive(&mut seen, &set.bind(), converge::RunMode::Plan, 0).unwrap().report;
    assert_eq!(seen.nodes, host.nodes);
    assert!(seen.log[asked..].iter().all(|line| line.starts_with("ask ")), "{:?}", seen.log);
    assert_eq!(
        plan(&mut Host { nodes: host.nodes.clone(), ..Host::default() }, &set_without_guards(set))
            .counts
            .failed,
        0
    );
    report
}

fn set_without_guards(set: &Set) -> Set {
    let mut set = set.clone();
    set.edit("m", |module| module.resources[0].only_if = None);
    set
}
