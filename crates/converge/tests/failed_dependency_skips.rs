//! CFG-4: a failed `depends_on` skips its dependents, all the way, and names the failure;
//! order alone never skips; a false `when` is skipped, counted, and skips nobody else.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{Host, apply, lines, set};
use serde_json::{Value, json};

fn file(path: &str, depends_on: &[&str]) -> Value {
    json!({"type": "file", "name": path, "depends_on": depends_on, "attributes": {"content": "x"}})
}

fn broken(path: &str) -> Host {
    let mut host = Host::default();
    host.broken.insert(path.into());
    host
}

#[test]
fn dependents_of_a_failure_are_skipped_and_others_are_not() {
    let set = set(json!([{"name": "m", "resources": [
        file("/a", &[]), file("/b", &["/a"]), file("/c", &["/b"]), file("/d", &[]),
    ]}]));
    let report = apply(&mut broken("/a"), &set);
    assert_eq!(
        lines(&report),
        [
            "m/file:/a failed: /a: read-only",
            "m/file:/b skipped: it depends on m/file:/a, which failed",
            "m/file:/c skipped: it depends on m/file:/b, which was skipped because m/file:/a failed",
            "m/file:/d changed",
        ]
    );
    assert_eq!((report.counts.failed, report.counts.skipped, report.counts.changed), (1, 2, 1));
}

#[test]
fn a_failed_module_skips_the_modules_that_depend_on_it() {
    let set = set(json!([
        {"name": "base", "resources": [file("/a", &[]), file("/b", &[])]},
        {"name": "web", "depends_on": ["base"], "resources": [file("/c", &[]), file("/d", &[])]},
        {"name": "app", "depends_on": ["web"], "resources": [file("/e", &[])]},
        {"name": "other", "resources": [file("/f", &[])]},
    ]));
    let report = apply(&mut broken("/a"), &set);
    assert_eq!(
        lines(&report),
        [
            "base/file:/a failed: /a: read-only",
            "base/file:/b changed",
            "web skipped: it depends on base, which failed",
            "app skipped: it depends on web, which was skipped because base failed",
            "other/file:/f changed",
        ]
    );
    assert_eq!(report.counts.skipped, 3);
}

#[test]
fn a_dependency_on_one_resource_of_another_module_skips_that_resource_alone() {
    let set = set(json!([
        {"name": "web", "resources": [file("/c", &["base//a"]), file("/d", &["base//b"])]},
        {"name": "base", "resources": [file("/a", &[]), file("/b", &[])]},
    ]));
    let report = apply(&mut broken("/a"), &set);
    assert_eq!(
        lines(&report)[2..],
        ["web/file:/c skipped: it depends on base/file:/a, which failed", "web/file:/d changed"]
    );
}

#[test]
fn what_needs_something_that_a_confined_host_skips_is_skipped_where_it_fails() {
    let exec = json!({"type": "exec", "name": "make", "attributes": {"command": ["make", "/b"]}});
    let needs = |path: &str| file(path, &["exec:make"]);
    let directory = json!({"type": "directory", "name": "/e", "depends_on": ["exec:make"]});
    let set = set(json!([{"name": "m", "resources": [
        exec, needs("/a"), needs("/b"), file("/c", &["/b"]), file("/d", &[]), directory, file("/e/f", &[]),
    ]}]));
    let mut host = Host { rooted: true, ..broken("/b") };
    host.broken.extend(["/c".into(), "/d".into(), "/e".into(), "/e/f".into()]);
    let report = apply(&mut host, &set);
    assert_eq!(
        lines(&report),
        [
            "m/exec:make skipped: rooted",
            "m/file:/a changed",
            "m/file:/b skipped: it needs m/exec:make, which is skipped on this host: /b: read-only",
            "m/file:/c skipped: it needs m/file:/b, which is skipped on this host: /c: read-only",
            "m/file:/d failed: /d: read-only",
            "m/directory:/e skipped: it needs m/exec:make, which is skipped on this host: /e: read-only",
            "m/file:/e/f skipped: it needs m/directory:/e, which is skipped on this host: /e/f: read-only",
        ]
    );
    assert_eq!((report.counts.failed, report.counts.skipped), (1, 5));
}

#[test]
fn order_never_skips() {
    let mut first = file("/a", &[]);
    first["before"] = json!(["/b"]);
    first["notify"] = json!(["later//c"]);
    let set = set(json!([
        {"name": "m", "resources": [first, file("/b", &[])]},
        {"name": "later", "resources": [file("/c", &[])]},
    ]));
    let report = apply(&mut broken("/a"), &set);
    assert_eq!(
        lines(&report),
        ["m/file:/a failed: /a: read-only", "m/file:/b changed", "later/file:/c changed"]
    );
}

#[test]
fn an_ignored_failure_skips_nobody_and_fails_nothing() {
    let mut first = file("/a", &[]);
    first["ignore_failure"] = json!(true);
    let set = set(json!([
        {"name": "m", "resources": [first, file("/b", &["/a"])]},
        {"name": "n", "depends_on": ["m"], "resources": [file("/c", &[])]},
    ]));
    let report = apply(&mut broken("/a"), &set);
    assert_eq!(
        lines(&report),
        ["m/file:/a ignored: /a: read-only", "m/file:/b changed", "n/file:/c changed"]
    );
    assert_eq!(report.counts.failed, 0);
}

#[test]
fn a_false_when_is_counted_and_skips_nobody_else() {
    let mut first = file("/a", &[]);
    first["when"] = json!("not file_exists(\"/there\")");
    let set = set(json!([
        {"name": "m", "resources": [first, file("/b", &["/a"])]},
        {"name": "no", "when": "file_exists(\"/missing\")", "resources": [file("/x", &[]), file("/y", &[])]},
        {"name": "n", "depends_on": ["no"], "resources": [file("/c", &[])]},
    ]));
    let mut host = Host::default();
    host.write("/there", "");
    let report = apply(&mut host, &set);
    assert_eq!(
        lines(&report),
        [
            "m/file:/a skipped: when is false: not file_exists(\"/there\")",
            "m/file:/b changed",
            "no skipped: when is false: file_exists(\"/missing\")",
            "n/file:/c changed",
        ]
    );
    assert_eq!(report.counts.skipped, 3);
}

#[test]
fn a_failed_handler_fails_its_module() {
    let mut first = file("/a", &[]);
    first["notify"] = json!(["reload"]);
    let set = set(json!([
        {"name": "m", "resources": [first], "handlers": [{"type": "exec", "name": "reload", "attributes": {"command": ["reload"]}}]},
        {"name": "n", "depends_on": ["m"], "resources": [file("/c", &[])]},
    ]));
    let report = apply(&mut broken("reload"), &set);
    assert_eq!(
        lines(&report)[1..],
        ["m/exec:reload failed: reload failed", "n skipped: it depends on m, which failed"]
    );
}
