//! EXE-1: sudo rules, kernel parameters, mounts and the host's name are checked before they count, and
//! what the host refuses is not left behind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use catalog::schema::{BindContext, bind};
use catalog::types::Spec;
use common::{Lab, lab};
use converge::Prior;
use converge::run::Undo;
use serde_json::json;

fn bound(kind: &str, name: &str, json: serde_json::Value) -> Spec {
    let context = BindContext { files: &BTreeMap::new(), rendered: None };
    bind(kind, name, &serde_json::from_value(json).unwrap(), &context).unwrap()
}

/// Applies it, and sees that it is right then; gives what was there before.
fn made(lab: &Lab, spec: &Spec) -> Prior {
    let checked = lab.check(spec);
    assert!(checked.edit.is_some(), "nothing differs");
    assert!(lab.kinds.apply("name", spec, &checked, common::LONG).unwrap().changed);
    assert_eq!(lab.check(spec).edit, None);
    checked.prior
}

fn undo(lab: &Lab, kind: &str, name: &str, prior: Prior) {
    let attributes = BTreeMap::new();
    let undo = Undo { path: name.to_owned(), prior, kept: false, kind: kind.to_owned(), attributes };
    lab.kinds.undo(&undo).unwrap();
}

/// Where sudo rules are checked; `None`, with the reason, where they cannot be.
fn sudoers() -> Option<Lab> {
    if !common::is_root() || !Path::new("/usr/sbin/visudo").exists() {
        println!("skipped: it needs root and visudo");
        return None;
    }
    let lab = lab();
    fs::create_dir_all(lab.path("/etc/sudoers.d")).unwrap();
    Some(lab)
}

#[test]
fn a_rule_is_written_with_its_mode_and_removed() {
    let Some(lab) = sudoers() else { return };
    let rule = bound(
        "sudo",
        "deploy",
        json!({
            "users": ["amy"], "groups": ["adm"], "nopasswd": true, "runas": "root",
            "commands": ["/usr/bin/systemctl restart nginx", "/usr/bin/env A=b,c"],
        }),
    );
    let prior = made(&lab, &rule);
    let file = "/etc/sudoers.d/deploy";
    assert_eq!(
        lab.read(file),
        "amy, %adm ALL = (root) NOPASSWD: /usr/bin/systemctl restart nginx, /usr/bin/env A\\=b\\,c\n"
    );
    assert_eq!(common::mode(&lab.path(file)), 0o440);
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(lab.path(file), fs::Permissions::from_mode(0o644)).unwrap();
    made(&lab, &rule);
    assert_eq!(common::mode(&lab.path(file)), 0o440);
    undo(&lab, "sudo", "deploy", prior);
    assert!(!lab.path(file).exists());
}

#[test]
fn a_rule_with_a_mistake_is_never_visible() {
    let Some(lab) = sudoers() else { return };
    let right = bound("sudo", "ops", json!({"content": "amy ALL=(ALL) ALL"}));
    made(&lab, &right);
    let wrong = bound("sudo", "ops", json!({"content": "amy ALL=(ALL ALL\n"}));
    let note = lab.check(&wrong).note.unwrap_or_default();
    assert!(note.contains("visudo refuses the rule"), "a plan says so: {note}");
    let refused = lab.apply(&wrong).unwrap_err();
    assert!(refused.contains("syntax error"), "{refused}");
    assert_eq!(lab.read("/etc/sudoers.d/ops"), "amy ALL=(ALL) ALL\n");
    let names: Vec<_> = fs::read_dir(lab.path("/etc/sudoers.d")).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing is left beside it");
}
