//! CNV-6: `plan` predicts without touching, and predictions chain. SEC-3: what is
//! sensitive is hidden. CNV-2: reports are bounded.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{Host, action, apply, lines, plan, set};
use model::report::{MAX_ITEMS, MAX_TEXT};
use model::{Action, Edit};
use serde_json::json;

#[test]
fn predictions_chain() {
    let set = set(json!([
        {"name": "m", "resources": [
            {"type": "directory", "name": "/srv/app"},
            {"type": "file", "name": "/srv/app/conf", "notify": ["reload", "migrate", "late/restart"], "attributes": {"content": "y\n"}},
            {"type": "line", "name": "l", "when": "dir_exists(\"/srv/app\")", "attributes": {"path": "/srv/app/conf", "line": "y"}},
            {"type": "exec", "name": "migrate", "when": "changed(\"/srv/app/conf\")", "attributes": {"command": ["migrate"], "always": true}},
            {"type": "file", "name": "/old", "attributes": {"state": "absent"}},
            {"type": "file", "name": "/seen", "when": "file_exists(\"/srv/app/conf\") and not file_exists(\"/old\")", "attributes": {"content": "x"}},
            {"type": "line", "name": "elsewhere", "attributes": {"path": "/missing", "line": "y"}},
         ],
         "handlers": [{"type": "exec", "name": "reload", "attributes": {"command": ["reload"]}},
                      {"type": "exec", "name": "idle", "attributes": {"command": ["idle"]}}]},
        {"name": "late", "handlers": [{"type": "exec", "name": "restart", "attributes": {"command": ["restart"]}}]},
    ]));
    let mut host = Host::default();
    host.write("/old", "x");
    let report = plan(&mut host, &set);
    assert_eq!(
        lines(&report),
        [
            "m/directory:/srv/app would_change",
            "m/file:/srv/app/conf would_change",
            "m/line:l unknown: /srv/app/conf would have been changed before it, so its outcome is not known",
            "m/exec:migrate would_change",
            "m/file:/old would_change",
            "m/file:/seen would_change",
            "m/line:elsewhere failed: /missing is missing",
            "m/exec:reload would_change",
            "late/exec:restart would_change",
        ]
    );

    // What the plan said is what the run does.
    let done = apply(&mut host, &set);
    for item in report.items.iter().filter(|item| item.action == Action::WouldChange) {
        assert_eq!(action(&done, &item.resource), Action::Changed, "{}", item.resource);
    }
    let after = plan(&mut host, &set);
    assert_eq!(lines(&after)[1..], ["m/line:elsewhere failed: /missing is missing"]);
}

#[test]
fn what_is_sensitive_is_hidden() {
    let secret = "hunter2";
    let set = set(json!([{"name": "m", "resources": [
        {"type": "file", "name": "/key", "sensitive": true, "attributes": {"content": secret}},
        {"type": "custom", "name": "c", "sensitive": true, "attributes": {"script": "executors/x", "params": {"answer": "fail"}}},
    ], "files": {"executors/x": {"digest": "00".repeat(32), "size": 1}}}]));
    let mut host = Host::default();
    let planned = plan(&mut host, &set);
    let done = apply(&mut host, &set);
    assert!(planned.items.iter().chain(&done.items).all(|item| item.edit.is_none()));
    assert_eq!(
        lines(&done),
        [
            "m/file:/key changed",
            "m/custom:c failed: it failed; what it said is hidden, because the resource is sensitive",
        ]
    );
}

#[test]
fn what_commands_of_a_sensitive_resource_print_is_hidden() {
    let resources = json!([
        {"type": "line", "name": "unchecked", "sensitive": true,
         "attributes": {"path": "/other", "line": "password hunter2"}},
        {"type": "exec", "name": "made", "sensitive": true, "on_remove": "delete",
         "attributes": {"command": ["make"], "always": true, "remove": ["unmake", "hunter2"]}},
        {"type": "line", "name": "checked", "sensitive": true,
         "attributes": {"path": "/conf", "line": "password hunter2", "validate": ["check", "%s"]}},
    ]);
    let mut host = Host::default();
    host.write("/conf", "");
    host.write("/other", "");
    host.broken.insert("/conf".into());
    let done = apply(&mut host, &set(json!([{"name": "m", "resources": resources}])));
    let hidden = "it failed; what it said is hidden, because the resource is sensitive";
    let failed = format!("m/line:checked failed: {hidden}");
    assert_eq!(lines(&done), ["m/line:unchecked changed", "m/exec:made changed", &failed]);

    host.broken.insert("made".into());
    let done = apply(&mut host, &set(json!([{"name": "m", "resources": []}])));
    assert_eq!(lines(&done), [format!("m/exec:made failed: {hidden}")]);
    assert_eq!(host.count("remove m/exec:made"), 1);
}

#[test]
fn reports_are_bounded_and_keep_the_failures() {
    let long = "x".repeat(10 * MAX_TEXT);
    let mut resources: Vec<_> = (0..MAX_ITEMS + 50)
        .map(|i| json!({"type": "file", "name": format!("/f{i:04}"), "attributes": {"content": "x"}}))
        .collect();
    resources.push(json!({"type": "line", "name": "l", "attributes": {"path": "/base", "line": long}}));
    resources.push(json!({"type": "file", "name": "/z", "attributes": {"content": "x"}}));
    let set = set(json!([{"name": "m", "resources": resources}]));
    let mut host = Host::default();
    host.write("/base", "");
    host.broken.insert("/z".into());
    let report = apply(&mut host, &set);
    assert_eq!(report.items.len(), MAX_ITEMS);
    assert_eq!(report.counts.changed as usize, MAX_ITEMS + 51);
    assert_eq!(action(&report, "m/file:/z"), Action::Failed);

    host.write("/base", "");
    let report = apply(&mut host, &set);
    let Some(Edit::Change { to, .. }) = &report.items[0].edit else { panic!("{report:?}") };
    assert!(to["content"].len() < MAX_TEXT + 50 && to["content"].ends_with("(40960 bytes)"));
}
