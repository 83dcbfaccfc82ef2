//! EXE-1, CNV-10: a thing of the host with a state is looked at, set, looked at again, removed and put
//! back by what the ledger kept of it; a command and a script are removed by what they declared.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;

use catalog::module::OnRemove;
use catalog::schema::{BindContext, bind};
use catalog::types::Spec;
use common::{Lab, lab};
use converge::ledger::{LedgerEntry, Prior};
use converge::run::Undo;
use lang::Value;
use model::Timestamp;
use serde_json::json;

fn attributes(json: serde_json::Value) -> BTreeMap<String, Value> {
    serde_json::from_value(json).unwrap()
}

fn bound(kind: &str, name: &str, json: serde_json::Value) -> Spec {
    let context = BindContext { files: &BTreeMap::new(), rendered: None };
    bind(kind, name, &attributes(json), &context).unwrap()
}

fn entry(kind: &str, name: &str, prior: Prior, kept: serde_json::Value) -> LedgerEntry {
    LedgerEntry {
        kind: kind.to_owned(),
        path: name.to_owned(),
        prior,
        kept: false,
        on_remove: OnRemove::Delete,
        at: Timestamp(0),
        sensitive: false,
        attributes: attributes(kept),
        made: Vec::new(),
        generation: None,
    }
}

fn hosts(lab: &Lab) -> String {
    fs::read_to_string(lab.path("/etc/hosts")).unwrap()
}

#[test]
fn a_host_entry_is_set_once_and_removed_and_put_back() {
    let lab = lab();
    fs::create_dir_all(lab.path("/etc")).unwrap();
    lab.write("/etc/hosts", b"127.0.0.1 localhost\n192.0.2.9 db\n");
    let spec = bound("host", "db", json!({"address": "192.0.2.10"}));
    let checked = lab.check(&spec);
    assert!(checked.edit.is_some());
    let prior = checked.prior.clone();
    assert!(matches!(&prior, Prior::State(Some(fields)) if fields["address"] == "192.0.2.9"));
    assert!(lab.kinds.apply("db", &spec, &checked, common::LONG).unwrap().changed);
    assert_eq!(hosts(&lab), "127.0.0.1 localhost\n192.0.2.10 db\n");
    assert!(lab.check(&spec).edit.is_none());
    assert!(!lab.kinds.apply("db", &spec, &checked, common::LONG).unwrap().changed);

    let undo = Undo {
        path: "db".to_owned(),
        prior: prior.clone(),
        kept: false,
        kind: "host".to_owned(),
        attributes: BTreeMap::new(),
        made: Vec::new(),
    };
    lab.kinds.undo(&undo).unwrap();
    lab.kinds.undo(&undo).unwrap();
    assert_eq!(hosts(&lab), "127.0.0.1 localhost\n192.0.2.9 db\n");

    let entry = entry("host", "db", prior, json!({}));
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Restore), Ok(false));
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(true));
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(false));
    assert_eq!(hosts(&lab), "127.0.0.1 localhost\n");
}

#[test]
fn a_command_is_removed_by_the_command_that_it_declared() {
    let lab = lab();
    let made = lab.path("/made");
    let path = made.display().to_string();
    fs::write(&made, "").unwrap();
    let entry =
        entry("exec", "make", Prior::State(None), json!({"command": ["true"], "remove": ["rm", path]}));
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(true));
    assert!(!made.exists());
    let refused = lab.kinds.remove(&entry, OnRemove::Delete).unwrap_err();
    assert!(refused.contains("exited with 1"), "{refused}");
}

#[test]
fn a_script_is_asked_to_make_it_absent() {
    let lab = lab();
    let out = lab.path("/asked");
    let script = format!("#!/bin/sh\ncat > {}\necho '{{\"changed\": true}}'\n", out.display());
    let digest = lab.blobs.put(script.as_bytes());
    let kept = json!({"script": "executors/x.sh", "sha256": digest.to_string(), "params": {"a": "b"}});
    let entry = entry("custom", "thing", Prior::State(None), kept);
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(true));
    let asked: serde_json::Value = serde_json::from_slice(&fs::read(out).unwrap()).unwrap();
    assert_eq!(asked, json!({"name": "thing", "state": "absent", "params": {"a": "b"}}));
}
