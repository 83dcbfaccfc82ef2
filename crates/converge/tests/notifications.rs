//! CFG-4: notify, subscribes, `changed`, handlers: a notified target runs once, after its
//! notifiers; EXE-3: across modules and with custom executors too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{Host, action, apply, lines, plan, set};
use model::Action;
use serde_json::{Value, json};

fn file(path: &str, notify: &[&str]) -> Value {
    json!({"type": "file", "name": path, "notify": notify, "attributes": {"content": "x"}})
}

fn handler(id: &str) -> Value {
    json!({"type": "exec", "name": id, "id": id, "attributes": {"command": [id]}})
}

#[test]
fn a_handler_runs_once_at_the_end_and_only_when_notified() {
    let set = set(json!([{"name": "m",
        "resources": [file("/a", &["reload"]), file("/b", &["reload"]), file("/c", &[])],
        "handlers": [handler("idle"), handler("reload")],
    }]));
    let mut host = Host::default();
    let report = apply(&mut host, &set);
    assert_eq!(
        host.log,
        ["apply m/file:/a", "apply m/file:/b", "apply m/file:/c", "apply m/exec:reload", "run reload"]
    );
    assert_eq!(action(&report, "m/exec:reload"), Action::Changed);
    assert_eq!((report.counts.changed, report.counts.ok, report.counts.skipped), (4, 0, 0));
    assert!(host.disk.pending.is_empty());

    host.log.clear();
    apply(&mut host, &set);
    assert!(host.log.is_empty(), "{:?}", host.log);

    host.write("/b", "by hand");
    apply(&mut host, &set);
    assert_eq!(host.log, ["apply m/file:/b", "apply m/exec:reload", "run reload"]);
}

#[test]
fn subscribes_is_notify_from_the_other_side() {
    let mut reload = handler("reload");
    reload["subscribes"] = json!(["/a", "other/b"]);
    let mut b = file("/b", &[]);
    b["id"] = json!("b");
    let set = set(json!([
        {"name": "m", "resources": [file("/a", &[])], "handlers": [reload]},
        {"name": "other", "resources": [b]},
    ]));
    let mut host = Host::default();
    apply(&mut host, &set);
    assert_eq!(host.log, ["apply other/file:/b", "apply m/file:/a", "apply m/exec:reload", "run reload"]);
}

#[test]
fn a_module_notifies_a_later_one() {
    let set = set(json!([
        {"name": "app", "resources": [file("/app", &[])], "handlers": [handler("restart")]},
        {"name": "certs", "resources": [file("/cert", &["app/restart"])]},
    ]));
    let mut host = Host::default();
    apply(&mut host, &set);
    assert_eq!(
        host.log,
        ["apply certs/file:/cert", "apply app/file:/app", "apply app/exec:restart", "run restart"]
    );
}

#[test]
fn handlers_notify_handlers() {
    let mut first = handler("first");
    first["notify"] = json!(["second"]);
    let set = set(json!([{"name": "m",
        "resources": [file("/a", &["first"])],
        "handlers": [handler("second"), first],
    }]));
    let mut host = Host::default();
    apply(&mut host, &set);
    assert_eq!(host.log[1..], ["apply m/exec:first", "run first", "apply m/exec:second", "run second"]);
    assert!(host.disk.pending.is_empty());
}

#[test]
fn changed_is_one_of_my_notifiers() {
    let exec = |name: &str, when: &str| {
        json!({"type": "exec", "name": name, "when": when, "subscribes": ["/a", "b"],
               "attributes": {"command": [name], "always": true}})
    };
    let mut b = file("/b", &[]);
    b["id"] = json!("b");
    let set = set(json!([{"name": "m", "resources": [
        exec("any", "changed"),
        exec("of-a", "changed(\"/a\")"),
        exec("of-b", "changed(\"b\") or changed(\"m/b\")"),
        exec("of-none", "changed(\"c\")"),
        file("/a", &[]),
        b,
    ]}]));
    let mut host = Host::default();
    host.write("/b", "x");
    let report = apply(&mut host, &set);
    assert_eq!(host.log, ["apply m/file:/a", "apply m/exec:any", "run any", "apply m/exec:of-a", "run of-a"]);
    assert_eq!(
        lines(&report)[3..],
        [
            "m/exec:of-b skipped: when is false: changed(\"b\") or changed(\"m/b\")",
            "m/exec:of-none failed: when: nothing notifies it that `changed(\"c\")` could mean",
        ]
    );
    assert!(report.counts.skipped == 1 && report.counts.failed == 1);

    host.log.clear();
    apply(&mut host, &set);
    assert!(host.log.is_empty(), "what was acted on is no longer changed: {:?}", host.log);
}

#[test]
fn a_failed_handler_stays_due() {
    let set =
        set(json!([{"name": "m", "resources": [file("/a", &["reload"])], "handlers": [handler("reload")]}]));
    let mut host = Host::default();
    host.broken.insert("reload".into());
    let report = apply(&mut host, &set);
    assert_eq!(action(&report, "m/exec:reload"), Action::Failed);
    assert!(!host.disk.pending.is_empty());

    host.broken.clear();
    let report = apply(&mut host, &set);
    assert_eq!(action(&report, "m/exec:reload"), Action::Changed);
    assert_eq!(host.count("run reload"), 2);
    assert!(host.disk.pending.is_empty());
}

#[test]
fn what_changed_nothing_notifies_nobody() {
    let custom = |name: &str, answer: &str| {
        json!({"type": "custom", "name": name, "notify": ["reload"], "ignore_failure": true,
               "attributes": {"script": "executors/x", "params": {"answer": answer}}})
    };
    let module = |answer: &str| {
        set(json!([{"name": "m", "resources": [custom("c", answer)], "handlers": [handler("reload")],
                    "files": {"executors/x": {"digest": "00".repeat(32), "size": 1}}}]))
    };
    for (answer, ran) in [("same", 0), ("fail", 0), ("changed", 1)] {
        let mut host = Host::default();
        apply(&mut host, &module(answer));
        assert_eq!((host.count("custom c"), host.count("run reload")), (1, ran), "{answer}");
        assert!(host.disk.pending.is_empty(), "{answer}");
    }
}

#[test]
fn a_handler_that_cannot_run_here_is_skipped() {
    let set =
        set(json!([{"name": "m", "resources": [file("/a", &["reload"])], "handlers": [handler("reload")]}]));
    let mut host = Host { rooted: true, ..Host::default() };
    let report = apply(&mut host, &set);
    assert_eq!(lines(&report), ["m/file:/a changed", "m/exec:reload skipped: rooted"]);
    assert!(host.disk.pending.is_empty());
}

#[test]
fn debts_to_what_left_the_set_are_dropped() {
    let mut set =
        set(json!([{"name": "m", "resources": [file("/a", &["reload"])], "handlers": [handler("reload")]}]));
    let mut host = Host::default();
    host.broken.insert("reload".into());
    apply(&mut host, &set);
    set.edit("m", |module| {
        module.handlers.clear();
        module.resources[0].notify.clear();
    });
    apply(&mut host, &set);
    assert!(host.disk.pending.is_empty());
}

#[test]
fn jobs_of_what_is_notified_name_who_changed() {
    let set = set(json!([{"name": "m",
        "resources": [file("/a", &["/z"]), file("/b", &["/z"]), file("/c", &["/z"]), file("/z", &[])],
    }]));
    let mut host = Host::default();
    host.write("/c", "x");
    apply(&mut host, &set);
    assert_eq!(host.notified["check m/file:/z"], ["m/file:/a", "m/file:/b"], "/c was right already");
    assert_eq!(host.notified["apply m/file:/z"], ["m/file:/a", "m/file:/b"]);
    assert!(host.notified["check m/file:/a"].is_empty());
    // The next run owes nothing.
    apply(&mut host, &set);
    assert!(host.notified["check m/file:/z"].is_empty());
    // A plan names those that would change.
    host.write("/a", "by hand");
    plan(&mut host, &set);
    assert_eq!(host.notified["check m/file:/z"], ["m/file:/a"]);
}

#[test]
fn a_handler_of_what_its_module_also_declares_has_an_id_of_its_own() {
    let command = |notify: &[&str]| json!({"type": "exec", "name": "again", "notify": notify, "attributes": {"command": ["again"], "always": "true"}});
    let mut handler = command(&[]);
    handler["id"] = json!("later");
    let set = set(
        json!([{"name": "m", "resources": [command(&[]), file("/a", &["later"])], "handlers": [handler]}]),
    );
    let mut host = Host::default();
    let report = apply(&mut host, &set);
    assert_eq!(
        host.log,
        ["apply m/exec:again", "run again", "apply m/file:/a", "apply m/exec:again (handler)", "run again"]
    );
    assert_eq!(action(&report, "m/exec:again (handler)"), Action::Changed);
}
