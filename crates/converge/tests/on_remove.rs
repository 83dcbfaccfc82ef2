//! CNV-10: what leaves the set follows `on_remove`, from a ledger that holds the state
//! before; what cannot be undone is named beforehand.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{Host, Node, Set, apply, drive, id, lines, plan, set};
use converge::{Prior, RunMode};
use model::PathState;
use serde_json::{Value, json};

fn file(path: &str, on_remove: &str) -> Value {
    json!({"type": "file", "name": path, "on_remove": on_remove, "attributes": {"content": "managed"}})
}

fn module(resources: Vec<Value>) -> Set {
    set(json!([{"name": "m", "resources": resources}]))
}

fn empty() -> Set {
    module(Vec::new())
}

/// CFG-2: a path has one way to write it, so that another way to write it neither makes nor removes anything.
#[test]
fn a_path_that_is_written_otherwise_is_the_same_path() {
    let mut host = Host::default();
    apply(&mut host, &module(vec![file("/etc/motd", "delete")]));
    host.log.clear();
    let again = apply(&mut host, &module(vec![file("/etc//motd", "delete")]));
    assert!(host.log.is_empty() && again.counts.changed == 0, "{:?}", lines(&again));
    assert!(host.disk.ledger.entries.contains_key(&id("m/file:/etc/motd")));

    // A ledger of before has it as it was written then.
    let entry = host.disk.ledger.entries.remove(&id("m/file:/etc/motd")).unwrap();
    let entry = converge::LedgerEntry { path: "/etc//motd".into(), ..entry };
    host.disk.ledger.entries.insert(id("m/file:/etc//motd"), entry);
    let moved = apply(&mut host, &module(vec![file("/etc/motd", "delete")]));
    assert_eq!(moved.counts.changed, 0, "{:?}", lines(&moved));
    assert_eq!(host.file("/etc/motd"), Some("managed"));
    assert!(host.disk.ledger.entries.keys().eq([&id("m/file:/etc/motd")]));
}

#[test]
fn keep_delete_and_restore() {
    let mut host = Host::default();
    host.write("/restored", "before");
    host.write("/kept", "before");
    let full = module(vec![
        file("/kept", "keep"),
        file("/deleted", "delete"),
        file("/restored", "restore"),
        file("/made", "restore"),
    ]);
    apply(&mut host, &full);
    assert_eq!(host.disk.ledger.entries.len(), 4);
    let entry = &host.disk.ledger.entries[&id("m/file:/restored")];
    assert!(entry.kept && matches!(entry.prior, Prior::Path(PathState::File { size: 6, .. })));

    let planned = plan(&mut host, &empty());
    let would = |name: &str, what: &str| {
        format!("m/file:{name} would_change: no longer declared: {what} (on_remove)")
    };
    let back = "what was there before would be put back";
    assert_eq!(
        lines(&planned),
        [would("/restored", back), would("/made", back), would("/deleted", "it would be deleted")]
    );

    let report = apply(&mut host, &empty());
    assert_eq!(
        lines(&report),
        ["m/file:/restored restored", "m/file:/made restored", "m/file:/deleted deleted"]
    );
    assert_eq!(report.counts.changed, 3, "what is put back is a change of the host");
    assert_eq!(host.file("/kept"), Some("managed"));
    assert_eq!(host.file("/restored"), Some("before"));
    assert_eq!(host.nodes.len(), 2);
    assert!(host.disk.ledger.entries.is_empty());

    host.log.clear();
    assert!(apply(&mut host, &empty()).items.is_empty() && host.log.is_empty());
}

/// The file that the ledger says was made around each block.
fn made(host: &Host) -> Vec<(&str, Vec<&str>)> {
    let entries = host.disk.ledger.entries.iter();
    entries.map(|(id, entry)| (id.as_str(), entry.made.iter().map(String::as_str).collect())).collect()
}

#[test]
fn a_file_that_was_made_for_a_part_is_known_to_all_its_parts() {
    let block = |name: &str, path: &str| {
        json!({"type": "block", "name": name, "on_remove": "delete",
            "attributes": {"path": path, "content": "x", "create": true}})
    };
    let mut host = Host::default();
    host.write("/theirs", "");
    let mut parts = vec![block("a", "/ours"), block("b", "/ours"), block("c", "/theirs")];
    apply(&mut host, &module(parts.clone()));
    let ours = ["m/block:a", "m/block:b"].map(|id| (id, vec!["/ours"]));
    let theirs = ("m/block:c", vec![]);
    assert_eq!(made(&host), [ours[0].clone(), ours[1].clone(), theirs.clone()]);
    // One that comes later, too; and one whose file went away and was made anew.
    parts.push(block("d", "/ours"));
    host.nodes.remove("/theirs");
    apply(&mut host, &module(parts));
    let fourth = ("m/block:d", vec!["/ours"]);
    let remade = ("m/block:c", vec!["/theirs"]);
    assert_eq!(made(&host), [ours[0].clone(), ours[1].clone(), remade, fourth]);
}

#[test]
fn an_undo_knows_what_its_change_made() {
    let mut host = Host::default();
    host.broken.insert("false".to_owned());
    let part =
        json!({"type": "block", "name": "a", "attributes": {"path": "/f", "content": "x", "create": true}});
    let verified = set(json!([{"name": "m", "verify": {"argv": ["false"]}, "resources": [part]}]));
    // Killed before the verify, it still owes the undo.
    let mut killed = 0;
    for lives in 0..40 {
        let mut host = host.clone();
        host.lives = Some(lives);
        let _ = drive(&mut host, &verified.bind(), RunMode::Apply, 0);
        let owed = host.disk.pending.unverified.values().flatten();
        for undo in owed {
            assert_eq!(undo.made, ["/f"]);
            killed += 1;
        }
    }
    assert!(killed > 0);
}

#[test]
fn what_is_inside_goes_before_the_directory() {
    let mut host = Host::default();
    apply(
        &mut host,
        &module(vec![
            json!({"type": "directory", "name": "/srv/app", "on_remove": "delete"}),
            file("/srv/app/x", "delete"),
        ]),
    );
    host.log.clear();
    apply(&mut host, &empty());
    assert_eq!(host.log, ["remove m/file:/srv/app/x", "remove m/directory:/srv/app"]);
}

#[test]
fn the_declaration_of_the_day_counts() {
    let mut host = Host::default();
    apply(&mut host, &module(vec![file("/a", "keep")]));
    apply(&mut host, &module(vec![file("/a", "delete")]));
    apply(&mut host, &empty());
    assert!(host.file("/a").is_none());
}

#[test]
fn a_file_that_was_already_right_is_deleted_too_when_that_is_declared() {
    let mut host = Host::default();
    host.write("/a", "managed");
    host.write("/b", "managed");
    apply(&mut host, &module(vec![file("/a", "delete"), file("/b", "restore")]));
    apply(&mut host, &empty());
    assert_eq!(host.nodes.keys().collect::<Vec<_>>(), ["/b"]);
}

#[test]
fn a_path_that_moves_to_another_module_is_not_removed() {
    let mut host = Host::default();
    host.write("/a", "before");
    apply(&mut host, &module(vec![file("/a", "restore")]));
    let moved = set(json!([{"name": "other", "resources": [file("/a", "restore")]}, {"name": "m"}]));
    let report = apply(&mut host, &moved);
    assert!(report.items.is_empty(), "{:?}", lines(&report));
    assert_eq!(host.file("/a"), Some("managed"));
    assert_eq!(host.disk.ledger.entries.keys().collect::<Vec<_>>(), [&id("other/file:/a")]);

    // The state before is still that of the first change.
    apply(&mut host, &empty());
    assert_eq!(host.file("/a"), Some("before"));
}

#[test]
fn a_module_that_cannot_be_bound_loses_nothing() {
    let mut host = Host::default();
    let mut whole = module(vec![file("/a", "delete")]);
    apply(&mut host, &whole);
    whole.edit("m", |module| {
        module.params = serde_json::from_value(json!({"x": {"type": "int", "required": true}})).unwrap();
    });
    let report = apply(&mut host, &whole);
    assert_eq!(lines(&report), ["m failed: m.x: it is required and nothing sets it"]);
    assert_eq!(host.file("/a"), Some("managed"));
    assert_eq!(host.disk.ledger.entries.len(), 1);

    let unnamed =
        module(vec![json!({"type": "file", "name": "/${{ params.nope }}", "attributes": {"content": "x"}})]);
    apply(&mut host, &unnamed);
    assert_eq!(host.file("/a"), Some("managed"));
}

#[test]
fn a_false_when_removes_nothing() {
    let mut host = Host::default();
    apply(&mut host, &module(vec![file("/a", "delete")]));
    let mut unwanted = file("/a", "delete");
    unwanted["when"] = json!("false");
    apply(&mut host, &module(vec![unwanted]));
    assert_eq!(host.file("/a"), Some("managed"));
}

#[test]
fn what_cannot_be_restored_is_named_and_tried_again() {
    let mut host = Host::default();
    host.write("/a", "before");
    apply(&mut host, &module(vec![file("/a", "restore")]));
    host.disk.ledger.entries.get_mut(&id("m/file:/a")).unwrap().kept = false;
    host.disk.blobs.clear();
    let planned = plan(&mut host, &empty());
    assert_eq!(
        planned.items[0].reason.as_deref(),
        Some(
            "no longer declared: what was there before would be put back (on_remove), but the bytes that were there before were not kept"
        )
    );
    let report = apply(&mut host, &empty());
    assert_eq!(lines(&report), ["m/file:/a failed: no such blob"]);
    assert_eq!(host.disk.ledger.entries.len(), 1);
    assert_eq!(host.nodes["/a"], Node::File("managed".into()));
}
