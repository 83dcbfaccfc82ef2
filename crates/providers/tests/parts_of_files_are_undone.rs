//! EXE-1, CNV-10: a part of a text file is set once, kept apart from the rest of the file, taken out
//! when its resource goes, and put back as it was.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;

use catalog::module::OnRemove;
use catalog::schema::{BindContext, bind, find};
use catalog::types::Spec;
use common::{lab, mode};
use converge::ledger::LedgerEntry;
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
    let table = [
        ("block", json!({"path": "/etc/f", "content": "one\n"}), "# a\n", Some("# a\n")),
        (
            "ini",
            json!({"path": "/etc/f", "section": "s", "key": "k", "value": "v"}),
            "[s]\nk=0\n",
            Some("[s]\n"),
        ),
        (
            "json",
            json!({"path": "/etc/f", "pointer": "/k", "value": 1}),
            "{\"a\": 1, \"k\": 0}",
            Some("{\"a\": 1}"),
        ),
        ("json", json!({"path": "/etc/f", "merge": {"k": 1}}), "{\"a\": 1, \"k\": 0}", Some("{\"a\": 1}")),
        ("block", json!({"path": "/etc/f", "content": "one\n", "create": true}), "", None),
        ("ini", json!({"path": "/etc/f", "key": "k", "value": "v", "create": true}), "", None),
        ("json", json!({"path": "/etc/f", "merge": {"k": 1}, "create": true}), "{}", None),
    ];
    for (kind, attributes, file, removed) in table {
        let lab = lab();
        lab.write("/etc/f", file.as_bytes());
        let (spec, attributes) = bound(kind, attributes);
        let checked = lab.check(&spec);
        assert!(checked.edit.is_some(), "{kind}");
        assert!(lab.apply(&spec).unwrap().changed);
        assert!(lab.check(&spec).edit.is_none(), "{kind}: {}", lab.read("/etc/f"));
        assert!(!lab.apply(&spec).unwrap().changed);
        let set = lab.read("/etc/f");
        let prior = checked.prior;
        let (path, kept, kind) = ("x".to_owned(), false, kind.to_owned());
        let undo = Undo {
            path: path.clone(),
            prior: prior.clone(),
            kept,
            kind: kind.clone(),
            attributes: attributes.clone(),
        };
        lab.kinds.undo(&undo).unwrap();
        lab.kinds.undo(&undo).unwrap();
        match removed {
            Some(_) => assert_eq!(lab.read("/etc/f"), file),
            None => assert!(!lab.path("/etc/f").exists()),
        }
        lab.write("/etc/f", set.as_bytes());
        let on_remove = OnRemove::Delete;
        let entry = LedgerEntry {
            kind,
            path,
            prior,
            kept,
            on_remove,
            at: Timestamp(0),
            sensitive: false,
            attributes,
        };
        assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(true));
        assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(false));
        match removed {
            Some(removed) => assert_eq!(lab.read("/etc/f"), removed),
            None => assert!(!lab.path("/etc/f").exists()),
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
