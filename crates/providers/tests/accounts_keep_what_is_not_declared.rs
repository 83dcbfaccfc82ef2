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
    let undo =
        Undo { path: name.to_owned(), prior, kept: false, kind: kind.to_owned(), attributes, made: vec![] };
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

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl amy@laptop";
const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA other";

fn owner(lab: &Lab, path: &str) -> (u32, u32) {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::symlink_metadata(lab.path(path)).unwrap();
    (metadata.uid(), metadata.mode() & 0o7777)
}

#[test]
fn a_key_is_the_users_and_other_lines_are_kept() {
    let Some(lab) = accounts() else { return };
    std::os::unix::fs::chown(lab.path("/home/amy"), Some(1000), Some(1000)).unwrap();
    let amy = bound("ssh_key", "amy: key", json!({"key": KEY, "user": "amy"}));
    let prior = made(&lab, &amy);
    let file = "/home/amy/.ssh/authorized_keys";
    assert_eq!(lab.read(file), format!("{KEY}\n"));
    assert_eq!((owner(&lab, file), owner(&lab, "/home/amy/.ssh")), ((1000, 0o600), (1000, 0o700)));
    lab.write(file, format!("# mine\n{OTHER}\n{KEY}\n").as_bytes());
    assert_eq!(lab.check(&amy).edit, None);
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(lab.path(file), fs::Permissions::from_mode(0o666)).unwrap();
    made(&lab, &amy);
    assert_eq!(owner(&lab, file), (1000, 0o644));
    let undo = Undo {
        path: "amy: key".to_owned(),
        prior,
        kept: false,
        kind: "ssh_key".to_owned(),
        attributes: serde_json::from_value(json!({"key": KEY, "user": "amy"})).unwrap(),
        made: Vec::new(),
    };
    lab.kinds.undo(&undo).unwrap();
    assert_eq!(lab.read(file), format!("# mine\n{OTHER}\n"));
}

#[test]
fn what_was_made_for_a_key_goes_when_nothing_is_left_in_it() {
    let (directory, file) = ("/home/amy/.ssh", "/home/amy/.ssh/authorized_keys");
    // What was there; what comes meanwhile; whether the file and the directory are left.
    let table: [(&[&str], Option<&str>, [bool; 2]); 5] = [
        (&[], None, [false, false]),
        (&[directory], None, [false, true]),
        (&[directory, file], None, [true, true]),
        (&[], Some("/home/amy/.ssh/id_ed25519"), [false, true]),
        (&[], Some(file), [true, true]),
    ];
    for (there, meanwhile, left) in table {
        let Some(lab) = accounts() else { return };
        std::os::unix::fs::chown(lab.path("/home/amy"), Some(1000), Some(1000)).unwrap();
        if there.contains(&directory) {
            fs::create_dir_all(lab.path(directory)).unwrap();
        }
        if there.contains(&file) {
            lab.write(file, b"");
        }
        let amy = bound("ssh_key", "amy: key", json!({"key": KEY, "user": "amy"}));
        let made = lab.check(&amy).surroundings.missing;
        assert_eq!(made.len() + there.len(), 2, "{made:?}");
        lab.apply(&amy).unwrap();
        if let Some(path) = meanwhile {
            lab.write(path, format!("{OTHER}\n{KEY}\n").as_bytes());
        }
        let undo = Undo {
            path: "amy: key".to_owned(),
            prior: Prior::State(None),
            kept: false,
            kind: "ssh_key".to_owned(),
            attributes: serde_json::from_value(json!({"key": KEY, "user": "amy"})).unwrap(),
            made,
        };
        lab.kinds.undo(&undo).unwrap();
        assert_eq!([file, directory].map(|path| lab.path(path).exists()), left, "{there:?} {meanwhile:?}");
    }
}

#[test]
fn a_link_that_a_user_put_in_the_way_leads_nowhere() {
    let Some(lab) = accounts() else { return };
    lab.write("/etc/secret", b"root's\n");
    let amy = bound("ssh_key", "amy: key", json!({"key": KEY, "user": "amy"}));
    let link = |target: &str, name: &str| {
        let _ = fs::remove_file(lab.path(name));
        std::os::unix::fs::symlink(target, lab.path(name)).unwrap();
        std::os::unix::fs::lchown(lab.path(name), Some(1000), Some(1000)).unwrap();
    };
    std::os::unix::fs::chown(lab.path("/home/amy"), Some(1000), Some(1000)).unwrap();
    link("/etc", "/home/amy/.ssh");
    assert!(lab.failed_check(&amy).contains("not followed"), "{}", lab.failed_check(&amy));
    fs::remove_file(lab.path("/home/amy/.ssh")).unwrap();
    fs::create_dir(lab.path("/home/amy/.ssh")).unwrap();
    link("/etc/secret", "/home/amy/.ssh/authorized_keys");
    assert!(lab.failed_check(&amy).contains("left alone"));
    assert_eq!(lab.read("/etc/secret"), "root's\n");
}

#[test]
fn a_file_that_a_user_may_not_read_is_not_given_to_them() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let Some(lab) = accounts() else { return };
    let amy = bound("ssh_key", "amy: key", json!({"key": KEY, "user": "amy"}));
    let part = json!({"path": "/home/amy/.ssh/authorized_keys", "content": "x", "owner": "amy"});
    let part = bound("block", "part", part);
    fs::create_dir(lab.path("/home/amy/.ssh")).unwrap();
    ["/home/amy", "/home/amy/.ssh"]
        .iter()
        .for_each(|path| chown(lab.path(path), Some(1000), Some(1000)).unwrap());
    let file = "/home/amy/.ssh/authorized_keys";
    lab.write("/etc/secret", b"root's\n");
    fs::set_permissions(lab.path("/etc/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    // A second name of it, and then the file itself under another name.
    fs::hard_link(lab.path("/etc/secret"), lab.path(file)).unwrap();
    for words in ["hard links", "not given"] {
        assert!(lab.failed_check(&amy).contains(words), "{words}");
        assert!(lab.apply(&part).unwrap_err().contains(words), "{words}");
        assert_eq!((owner(&lab, file), lab.read(file)), ((0, 0o600), "root's\n".to_owned()));
        let _ = fs::remove_file(lab.path("/etc/secret"));
    }
    // What everybody may read is nothing new to them.
    fs::set_permissions(lab.path(file), fs::Permissions::from_mode(0o644)).unwrap();
    lab.apply(&amy).unwrap();
    assert_eq!((owner(&lab, file), lab.read(file)), ((1000, 0o644), format!("root's\n{KEY}\n")));
    // A directory of somebody else's is not given either.
    fs::remove_dir_all(lab.path("/home/amy/.ssh")).unwrap();
    fs::create_dir(lab.path("/home/amy/.ssh")).unwrap();
    fs::set_permissions(lab.path("/home/amy/.ssh"), fs::Permissions::from_mode(0o770)).unwrap();
    assert!(lab.apply(&amy).unwrap_err().contains("not given"));
    assert_eq!(fs::metadata(lab.path("/home/amy/.ssh")).unwrap().uid(), 0);
}

#[test]
fn a_key_of_nobody_fails_and_names_the_user() {
    let Some(lab) = accounts() else { return };
    let key = bound("ssh_key", "zoe: key", json!({"key": KEY, "user": "zoe"}));
    assert!(lab.apply(&key).unwrap_err().contains("no user `zoe`"));
    let gone = bound("ssh_key", "zoe: key", json!({"key": KEY, "user": "zoe", "state": "absent"}));
    assert_eq!(lab.check(&gone).edit, None);
}
