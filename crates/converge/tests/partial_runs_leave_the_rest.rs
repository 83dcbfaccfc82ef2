//! CFG-5: a run by tag, or over single resources, leaves the rest as it is: neither checked nor
//! removed nor reported; what it is owed stays owed; what ran notifies as ever.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use converge::{FinishedRun, RunMode, RunScope};
use model::report::PartialRun;
use serde_json::json;

use crate::common::{Host, Set, drive_in, id, lines, set};

fn fleet() -> Set {
    set(json!([
        {"name": "base", "resources": [
            {"type": "file", "name": "/base", "id": "base", "tags": ["accounts"], "attributes": {"content": "x"}},
            {"type": "file", "name": "/other", "id": "other", "attributes": {"content": "x"}},
            {"type": "file", "name": "/late", "tags": ["accounts", "web"], "depends_on": ["other"],
                "notify": ["h"], "attributes": {"content": "x"}},
        ], "verify": {"argv": ["check"]},
           "handlers": [{"type": "exec", "name": "h", "attributes": {"command": ["h"]}}]},
        {"name": "web", "resources": [
            {"type": "exec", "name": "follow", "subscribes": ["base/base"], "when": "changed",
                "attributes": {"command": ["follow"], "always": true}},
            {"type": "file", "name": "/web", "attributes": {"content": "x"}},
        ]},
    ]))
}

fn tags(names: &[&str]) -> RunScope {
    RunScope::Tags(names.iter().map(|name| (*name).to_owned()).collect())
}

fn run(host: &mut Host, set: &Set, scope: RunScope) -> FinishedRun {
    drive_in(host, &set.bind(), RunMode::Apply, 0, scope).unwrap()
}

#[test]
fn only_what_is_in_scope_and_what_it_notifies_runs() {
    let mut host = Host::default();
    let finished = run(&mut host, &fleet(), tags(&["accounts"]));
    assert_eq!(
        lines(&finished.report),
        [
            "base/file:/base changed",
            "base/file:/late changed",
            "base/exec:h changed",
            "web/exec:follow changed",
        ]
    );
    assert_eq!((finished.report.counts.ok, finished.report.counts.skipped), (0, 0));
    assert_eq!(finished.report.partial, Some(PartialRun::Tags(vec!["accounts".into()])));
    assert_eq!(host.count("verify base"), 1, "a module that was changed is verified");
    let again = run(&mut host, &fleet(), tags(&["accounts"]));
    assert_eq!((again.report.counts.ok, again.report.items.len()), (2, 0));
    let untouched = run(&mut host, &fleet(), tags(&["nobody"]));
    assert_eq!((untouched.report.counts.ok, untouched.report.items.len()), (0, 0));
    assert_eq!(run(&mut host, &fleet(), RunScope::All).report.partial, None);
}

#[test]
fn single_resources_are_a_scope_too() {
    let mut host = Host::default();
    let scope = RunScope::Resources(BTreeSet::from([id("web/file:/web")]));
    let finished = run(&mut host, &fleet(), scope);
    assert_eq!(lines(&finished.report), ["web/file:/web changed"]);
    assert_eq!(finished.report.partial, Some(PartialRun::Resources(1)));
    assert_eq!(host.count("verify base"), 0);
}

#[test]
fn what_is_owed_outside_the_scope_stays_owed() {
    let mut host = Host::default();
    host.broken.insert("h".into());
    run(&mut host, &fleet(), RunScope::All);
    assert!(host.disk.pending.notified.contains_key(&id("base/exec:h")));
    host.broken.clear();
    host.log.clear();
    let finished = run(&mut host, &fleet(), RunScope::Resources(BTreeSet::from([id("web/file:/web")])));
    assert_eq!(host.count("run h"), 0, "its notifier is out of scope");
    assert!(finished.pending.notified.contains_key(&id("base/exec:h")));
    run(&mut host, &fleet(), tags(&["web"]));
    assert_eq!(host.count("run h"), 1, "the notifier is in scope, so the debt is paid");
    assert!(host.disk.pending.is_empty());
}

#[test]
fn nothing_is_removed_by_a_partial_run() {
    let mut host = Host::default();
    let mut set = fleet();
    set.edit("web", |module| module.resources[1].on_remove = Some(catalog::module::OnRemove::Delete));
    run(&mut host, &set, RunScope::All);
    set.edit("web", |module| drop(module.resources.pop()));
    let partial = run(&mut host, &set, tags(&["accounts"]));
    assert!(host.file("/web").is_some() && partial.ledger.entries.contains_key(&id("web/file:/web")));
    let plan = drive_in(&mut host, &set.bind(), RunMode::Plan, 0, tags(&["accounts"])).unwrap();
    assert_eq!(plan.report.counts.would_change, 0, "and none is predicted");
    run(&mut host, &set, RunScope::All);
    assert!(host.file("/web").is_none());
}

#[test]
fn a_plan_by_tag_predicts_what_the_run_would_do() {
    let mut host = Host::default();
    let plan = drive_in(&mut host, &fleet().bind(), RunMode::Plan, 0, tags(&["accounts"])).unwrap();
    let names: Vec<&str> = plan.report.items.iter().map(|item| item.resource.as_str()).collect();
    assert_eq!(names, ["base/file:/base", "base/file:/late", "base/exec:h", "web/exec:follow"]);
    assert!(host.nodes.is_empty());
}

#[test]
fn modules_out_of_scope_fail_nothing() {
    let mut set = fleet();
    set.edit("base", |module| module.when = Some("missing".into()));
    set.edit("web", |module| module.depends_on = ["base".to_owned()].into());
    let mut host = Host::default();
    let scope = RunScope::Resources(BTreeSet::from([id("web/file:/web")]));
    assert_eq!(lines(&run(&mut host, &set, scope).report), ["web/file:/web changed"]);
}

#[test]
fn a_tag_that_nothing_has_is_refused() {
    let desired = fleet().bind();
    assert_eq!(tags(&["accounts", "web"]).check(&desired), Ok(()));
    let unknown = tags(&["acounts"]).check(&desired).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "no resource of this node has the tag `acounts`; did you mean `accounts`?; there are accounts, web"
    );
}
