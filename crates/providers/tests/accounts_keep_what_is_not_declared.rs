//! EXE-1: users, groups and keys are made, changed and removed by the host's own tools, and what is not
//! declared of them stays. The tools run on a tree of their own (`--root`), which needs root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod common;

use std::collections::BTreeMap;
use std::fs;

use catalog::schema::{BindContext, bind};
use catalog::types::Spec;
use common::{Lab, lab};
use converge::Prior;
use converge::run::Undo;
use serde_json::json;

const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\namy:x:1000:1000:Amy,,,:/home/amy:/bin/sh\n";
const SHADOW: &str = "root:*:19000:0:99999:7:::\namy:$6$salt$old:19000:0:99999:7:::\n";
const GROUP: &str = "root:x:0:\nadm:x:4:amy\nsudo:x:27:\namy:x:1000:\n";
const HASH: &str = "$6$salt$aVerySecretHash";

/// A tree with accounts; `None`, with the reason, where the tools cannot work.
fn accounts() -> Option<Lab> {
    if !common::is_root() || !std::path::Path::new("/usr/sbin/useradd").exists() {
        println!("skipped: it needs root and the tools of the shadow suite");
        return None;
    }
    let lab = lab();
    lab.write("/etc/passwd", PASSWD.as_bytes());
    lab.write("/etc/shadow", SHADOW.as_bytes());
    lab.write("/etc/group", GROUP.as_bytes());
    lab.write("/etc/gshadow", b"root:*::\nadm:*::amy\nsudo:*::\namy:!::\n");
    for home in ["/home/amy", "/etc/skel"] {
        fs::create_dir_all(lab.path(home)).unwrap();
    }
    Some(lab)
}

fn bound(kind: &str, name: &str, json: serde_json::Value) -> Spec {
    let context = BindContext { files: &BTreeMap::new(), rendered: None };
    bind(kind, name, &serde_json::from_value(json).unwrap(), &context).unwrap()
}

/// Applies it, and sees that it is right then; gives what was there before.
fn made(lab: &Lab, spec: &Spec) -> Prior {
    let checked = lab.check(spec);
    assert!(checked.edit.is_some(), "nothing differs");
    assert!(!format!("{checked:?}").contains("VerySecret"));
    assert!(lab.kinds.apply("name", spec, &checked, common::LONG).unwrap().changed);
    assert_eq!(lab.check(spec).edit, None);
    checked.prior
}

fn undo(lab: &Lab, kind: &str, name: &str, prior: Prior) {
    let attributes = BTreeMap::new();
    let undo = Undo { path: name.to_owned(), prior, kept: false, kind: kind.to_owned(), attributes };
    lab.kinds.undo(&undo).unwrap();
}

fn line(lab: &Lab, file: &str, name: &str) -> String {
    let text = lab.read(file);
    text.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap_or_default().to_owned()
}

#[test]
fn a_user_is_made_with_all_that_is_declared_and_removed() {
    let Some(lab) = accounts() else { return };
    let bob = bound(
        "user",
        "bob",
        json!({
            "uid": 1234, "groups": ["sudo", "adm"], "comment": "Bob B", "shell": "/bin/bash",
            "password": HASH, "locked": true, "expires": "2027-01-31", "password_max_days": 90,
        }),
    );
    let prior = made(&lab, &bob);
    assert_eq!(prior, Prior::State(None));
    assert_eq!(line(&lab, "/etc/passwd", "bob"), "bob:x:1234:1234:Bob B:/home/bob:/bin/bash");
    assert!(line(&lab, "/etc/shadow", "bob").starts_with(&format!("bob:!{HASH}:")));
    assert!(line(&lab, "/etc/shadow", "bob").contains(":90:"));
    assert!(lab.path("/home/bob").is_dir());
    undo(&lab, "user", "bob", prior);
    assert_eq!(line(&lab, "/etc/passwd", "bob"), "");
    assert!(lab.path("/home/bob").is_dir(), "its home is kept");
    let back = bound("user", "bob", json!({"uid": 1235}));
    let note = lab.check(&back).note.unwrap_or_default();
    assert!(note.contains("the uid 1234"), "a home that is another's: {note}");
    assert!(lab.apply(&back).is_err());
    assert_eq!(lab.read("/etc/passwd"), PASSWD);
}

#[test]
fn one_attribute_is_changed_and_put_back() {
    let Some(lab) = accounts() else { return };
    let amy = bound("user", "amy", json!({"shell": "/bin/bash", "groups": ["sudo"], "locked": true}));
    let prior = made(&lab, &amy);
    assert_eq!(line(&lab, "/etc/passwd", "amy"), "amy:x:1000:1000:Amy,,,:/home/amy:/bin/bash");
    assert!(line(&lab, "/etc/shadow", "amy").starts_with("amy:!$6$salt$old:"));
    assert_eq!(line(&lab, "/etc/group", "adm"), "adm:x:4:amy");
    assert_eq!(line(&lab, "/etc/group", "sudo"), "sudo:x:27:amy");
    undo(&lab, "user", "amy", prior);
    assert_eq!(lab.read("/etc/passwd"), PASSWD);
    assert_eq!(lab.read("/etc/shadow"), SHADOW);
    assert_eq!(lab.read("/etc/group"), GROUP);
}

#[test]
fn a_group_is_made_changed_and_removed() {
    let Some(lab) = accounts() else { return };
    let ops = bound("group", "ops", json!({"gid": 2000, "members": ["amy"]}));
    let prior = made(&lab, &ops);
    assert_eq!(line(&lab, "/etc/group", "ops"), "ops:x:2000:amy");
    let whole = bound("group", "ops", json!({"members": [], "append": false}));
    made(&lab, &whole);
    assert_eq!(line(&lab, "/etc/group", "ops"), "ops:x:2000:");
    undo(&lab, "group", "ops", prior);
    assert_eq!(lab.read("/etc/group"), GROUP);
    let primary = bound("group", "amy", json!({"state": "absent"}));
    assert!(lab.apply(&primary).unwrap_err().contains("primary group of amy"));
}
