//! EXE-1, CNV-10: a part of a text file is set once, kept apart from the rest of the file, taken out
//! when its resource goes, and put back as it was.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;

use catalog::module::OnRemove;
use catalog::schema::{BindContext, bind, find};
use catalog::types::Spec;
use common::{lab, mode};
use converge::ledger::{LedgerEntry, Prior};
use converge::run::Undo;
use lang::Value;
use model::Timestamp;
use serde_json::json;

/// A resource with the attributes that the ledger would keep of it.
fn bound(kind: &str, json: serde_json::Value) -> (Spec, BTreeMap<String, Value>) {
    let attributes: BTreeMap<String, Value> = serde_json::from_value(json).unwrap();
    let context = BindContext { files: &BTreeMap::new(), rendered: None };
    let spec = bind(kind, "x", &attributes, &context).unwrap();
    let kept = find(kind).unwrap().removal.iter();
    let kept = kept.filter_map(|name| Some(((*name).to_owned(), attributes.get(*name)?.clone()))).collect();
    (spec, kept)
}

#[test]
fn a_part_is_set_removed_and_put_back() {
    let block = |create: bool| json!({"path": "/etc/f", "content": "one\n", "create": create});
    let ini =
        |create: bool| json!({"path": "/etc/f", "section": "s", "key": "k", "value": "v", "create": create});
    let json_merge = json!({"path": "/etc/f", "merge": {"k": 1}, "create": true});
    let json_value = json!({"path": "/etc/f", "pointer": "/k", "value": 1});
    // What was there before; what a removal leaves.
    let table = [
        ("block", block(false), Some("# a\n"), Some("# a\n")),
        ("ini", ini(false), Some("[s]\nk=0\n"), Some("[s]\n")),
        ("json", json_value, Some("{\"a\": 1, \"k\": 0}"), Some("{\"a\": 1}")),
        ("json", json_merge.clone(), Some("{\"a\": 1, \"k\": 0}"), Some("{\"a\": 1}")),
        // A file that was there empty is not Muster's.
        ("block", block(true), Some(""), Some("")),
        ("ini", ini(true), Some("[s]\n"), Some("[s]\n")),
        ("json", json_merge.clone(), Some("{}"), Some("{}")),
        // One that was made goes.
        ("block", block(true), None, None),
        ("ini", ini(true), None, None),
        ("json", json_merge, None, None),
    ];
    for (kind, attributes, file, removed) in table {
        let lab = lab();
        lab.write("/etc/beside", b"");
        file.iter().for_each(|file| lab.write("/etc/f", file.as_bytes()));
        let left = || lab.path("/etc/f").exists().then(|| lab.read("/etc/f"));
        let (spec, attributes) = bound(kind, attributes);
        let checked = lab.check(&spec);
        assert!(checked.edit.is_some(), "{kind}");
        let made = checked.surroundings.missing.clone();
        assert_eq!(made.len(), usize::from(file.is_none()), "{kind}: {made:?}");
        assert!(lab.apply(&spec).unwrap().changed);
        assert!(lab.check(&spec).edit.is_none(), "{kind}: {}", lab.read("/etc/f"));
        assert!(!lab.apply(&spec).unwrap().changed);
        let set = lab.read("/etc/f");
        let (prior, path, kept, kind) = (checked.prior, "x".to_owned(), false, kind.to_owned());
        let undo = Undo {
            path: path.clone(),
            prior: prior.clone(),
            kept,
            kind: kind.clone(),
            attributes: attributes.clone(),
            made: made.clone(),
        };
        lab.kinds.undo(&undo).unwrap();
        lab.kinds.undo(&undo).unwrap();
        assert_eq!(left().as_deref(), file, "{kind}");
        lab.write("/etc/f", set.as_bytes());
        let entry = entry(kind, prior, attributes, made);
        assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(true));
        assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(false));
        assert_eq!(left().as_deref(), removed, "{}", entry.kind);
    }
}

fn entry(kind: String, prior: Prior, attributes: BTreeMap<String, Value>, made: Vec<String>) -> LedgerEntry {
    LedgerEntry {
        kind,
        path: "x".to_owned(),
        prior,
        kept: false,
        on_remove: OnRemove::Delete,
        at: Timestamp(0),
        sensitive: false,
        attributes,
        made,
        generation: None,
    }
}

#[test]
fn a_file_that_was_made_goes_with_the_last_of_its_parts() {
    let lab = lab();
    lab.write("/etc/beside", b"");
    let key =
        |name: &str| json!({"path": "/etc/f", "section": "s", "key": name, "value": "v", "create": true});
    let entries = ["a", "b"].map(|name| {
        let (spec, attributes) = bound("ini", key(name));
        let prior = lab.check(&spec).prior;
        assert!(lab.apply(&spec).unwrap().changed);
        entry("ini".to_owned(), prior, attributes, vec!["/etc/f".to_owned()])
    });
    assert_eq!(lab.kinds.remove(&entries[0], OnRemove::Delete), Ok(true));
    assert_eq!(lab.read("/etc/f"), "[s]\nb = v\n");
    // Somebody else took the last one out: what was made goes all the same.
    lab.write("/etc/f", b"[s]\n");
    assert_eq!(lab.kinds.remove(&entries[1], OnRemove::Delete), Ok(true));
    assert!(!lab.path("/etc/f").exists());
}

#[test]
fn an_empty_file_goes_where_that_is_declared() {
    let empty_block = "# BEGIN MUSTER BLOCK x\n# END MUSTER BLOCK x\n";
    for (create, left) in [(false, true), (true, false)] {
        let parts = [
            ("block", json!({"path": "/etc/f", "state": "absent", "create": create}), empty_block),
            ("line", json!({"path": "/etc/f", "line": "x", "state": "absent", "create": create}), "x\n"),
        ];
        for (kind, attributes, content) in parts {
            let lab = lab();
            let (spec, _) = bound(kind, attributes);
            lab.write("/etc/f", format!("{content}y\n").as_bytes());
            assert!(lab.apply(&spec).unwrap().changed);
            assert_eq!(lab.read("/etc/f"), "y\n", "{kind}: something else is in it");
            lab.write("/etc/f", content.as_bytes());
            assert!(lab.apply(&spec).unwrap().changed);
            assert_eq!(lab.path("/etc/f").exists(), left, "{kind}, create: {create}");
            assert!(!lab.apply(&spec).unwrap().changed, "{kind}: a second time there is nothing to do");
        }
    }
}

#[test]
fn a_missing_file_is_made_only_where_that_is_declared() {
    let lab = lab();
    std::fs::create_dir_all(lab.path("/etc")).unwrap();
    let (spec, _) = bound("block", json!({"path": "/etc/f", "content": "a"}));
    assert!(lab.failed_check(&spec).contains("say `create: true`"));
    let (spec, _) = bound("block", json!({"path": "/etc/f", "content": "a", "create": true, "mode": "0600"}));
    assert!(lab.apply(&spec).unwrap().changed);
    assert_eq!(mode(&lab.path("/etc/f")), 0o600);
    let (spec, _) = bound("block", json!({"path": "/etc/f", "content": "a", "mode": "0640"}));
    let edit = lab.check(&spec).edit.unwrap();
    assert_eq!(edit.to().unwrap().keys().collect::<Vec<_>>(), ["mode"]);
    assert!(lab.apply(&spec).unwrap().changed);
    assert_eq!(mode(&lab.path("/etc/f")), 0o640);
    // What is there is no file: it is left alone.
    std::fs::create_dir(lab.path("/etc/d")).unwrap();
    let (spec, _) = bound("ini", json!({"path": "/etc/d", "key": "k", "value": "v"}));
    assert!(lab.failed_check(&spec).contains("not a regular file (directory)"));
}

#[test]
fn a_file_that_cannot_be_read_as_its_kind_is_left_alone() {
    let lab = lab();
    lab.write("/etc/f", b"{\"a\": 1,}");
    let (spec, _) = bound("json", json!({"path": "/etc/f", "pointer": "/a", "value": 2}));
    assert!(lab.failed_check(&spec).contains("line 1 column 9"));
    assert_eq!(lab.read("/etc/f"), "{\"a\": 1,}");
    lab.write("/etc/g", b"# BEGIN MUSTER BLOCK x\n");
    let (spec, _) = bound("block", json!({"path": "/etc/g", "content": "a"}));
    assert!(lab.failed_check(&spec).contains("begin stands in line 1, its end nowhere"));
    assert_eq!(lab.read("/etc/g"), "# BEGIN MUSTER BLOCK x\n");
}

#[test]
fn what_a_command_refuses_is_not_written() {
    let table = [
        ("line", json!({"path": "/etc/f", "line": "new"}), "old\n"),
        ("block", json!({"path": "/etc/f", "content": "new\n"}), "old\n"),
        ("ini", json!({"path": "/etc/f", "key": "k", "value": "new"}), "k = old\n"),
        ("json", json!({"path": "/etc/f", "pointer": "/k", "value": "new"}), "{\"k\": \"old\"}"),
    ];
    for (kind, attributes, file) in table {
        let lab = lab();
        lab.write("/etc/f", file.as_bytes());
        let validated = |command: serde_json::Value| {
            let mut attributes = attributes.clone();
            attributes["validate"] = command;
            bound(kind, attributes).0
        };
        // The command sees the whole new file, and the old one is still in its place.
        let refused = lab.apply(&validated(json!("grep -q new %s && exit 7"))).unwrap_err();
        assert!(refused.contains("exited with 7"), "{kind}: {refused}");
        assert_eq!(lab.read("/etc/f"), file, "{kind}");
        let names = std::fs::read_dir(lab.path("/etc")).unwrap().count();
        assert_eq!(names, 1, "{kind}: nothing is left beside it");
        assert!(lab.apply(&validated(json!(["grep", "-q", "new", "%s"]))).unwrap().changed, "{kind}");
        assert!(lab.read("/etc/f").contains("new"), "{kind}");
    }
}
