//! ROL-10, EXE-1, CNV-10: an image is complete beside what is in use before its link leads to it; what fails switches
//! nothing; the trees before are kept within their bounds, and what was there before comes back. A pair of commands goes there
//! and back.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

use catalog::module::FileRef;
use catalog::schema::{BindContext, bind};
use catalog::types::Spec;
use common::{Lab, lab};
use converge::Prior;
use converge::run::Undo;
use lang::Value;
use model::Digest;
use providers::Blobs;
use serde_json::json;
use test_support::tar::{member, tar};

fn app(version: &str) -> Vec<u8> {
    tar(&[member("bin/", b'5', "", 0o644, b""), member("bin/app", b'0', "", 0o644, version.as_bytes())])
}

fn image_of(lab: &Lab, bytes: &[u8], keep: i64) -> Spec {
    let file = FileRef { digest: lab.blobs.put(bytes), size: bytes.len() as u64, executable: false };
    let files = BTreeMap::from([("files/app.tar".to_owned(), file)]);
    let attributes: BTreeMap<String, Value> =
        serde_json::from_value(json!({"source": "app.tar", "keep": keep})).unwrap();
    bind("image", "/opt/app", &attributes, &BindContext { files: &files, rendered: None }).unwrap()
}

fn image(lab: &Lab, version: &str) -> Spec {
    image_of(lab, &app(version), 2)
}

fn opt() -> Lab {
    let lab = lab();
    fs::create_dir_all(lab.path("/opt")).unwrap();
    lab
}

fn trees(lab: &Lab) -> usize {
    fs::read_dir(lab.path("/opt/.app.generations")).map_or(0, Iterator::count)
}

#[test]
fn an_image_is_switched_and_back_without_its_archive() {
    let lab = opt();
    let (one, two) = (image(&lab, "one"), image(&lab, "two"));
    lab.apply(&one).unwrap();
    assert_eq!(lab.read("/opt/app/bin/app"), "one");
    assert!(!lab.apply(&one).unwrap().changed);
    lab.apply(&two).unwrap();
    assert_eq!((lab.read("/opt/app/bin/app").as_str(), trees(&lab)), ("two", 2));
    // Offline, and with the archive lost.
    lab.blobs.forget(Digest::of(&app("one")));
    lab.apply(&one).unwrap();
    assert_eq!(lab.read("/opt/app/bin/app"), "one");
    // Two are kept: the one in use and the one before.
    lab.apply(&image(&lab, "three")).unwrap();
    assert_eq!(trees(&lab), 2);
    lab.apply(&one).unwrap();
    assert_eq!(lab.read("/opt/app/bin/app"), "one");
}

/// LIF-4: what is remembered of a tree and of the order of trees is what a later version reads.
#[test]
fn what_is_remembered_keeps_its_form() {
    let lab = opt();
    lab.apply(&image(&lab, "one")).unwrap();
    lab.apply(&image(&lab, "two")).unwrap();
    let names = ["one", "two"].map(|version| Digest::of(&app(version)));
    let order = lab.blobs.unpacked("/opt/.app.generations").unwrap().unwrap();
    assert_eq!(json!(order), json!({names[0].to_string(): "1", names[1].to_string(): "2"}));
    let tree = lab.blobs.unpacked(&format!("/opt/.app.generations/{}", names[1])).unwrap().unwrap();
    let file = format!("sha256:{} 3 bytes 0644 - -", Digest::of(b"two"));
    let archive = format!("sha256:{}", names[1]);
    let expected = json!({".": "directory 0755 - -", "./bin": "directory 0744 - -", "./bin/app": file, "archive": archive});
    assert_eq!(json!(tree), expected);
}

#[test]
fn what_cannot_be_unpacked_switches_nothing_and_leaves_nothing() {
    let lab = opt();
    lab.apply(&image(&lab, "one")).unwrap();
    let hostile = [
        member("../../etc/passwd", b'0', "", 0o644, b"x"),
        member("/etc/passwd", b'0', "", 0o644, b"x"),
        member("out", b'2', "../../../etc", 0o644, b""),
        member("device", b'3', "", 0o644, b""),
    ];
    for hostile in hostile {
        let mut bytes = [member("bin/app", b'0', "", 0o644, b"bad"), hostile].concat();
        bytes.extend([0; 1024]);
        lab.apply(&image_of(&lab, &bytes, 2)).unwrap_err();
        assert_eq!((lab.read("/opt/app/bin/app").as_str(), trees(&lab)), ("one", 1));
    }
    let mut cut = app("two");
    cut.truncate(1100);
    lab.apply(&image_of(&lab, &cut, 2)).unwrap_err();
    assert_eq!((lab.read("/opt/app/bin/app").as_str(), trees(&lab)), ("one", 1));
}

#[test]
fn half_a_tree_of_a_run_that_died_is_finished_or_removed() {
    let lab = opt();
    let (one, two) = (image(&lab, "one"), image(&lab, "two"));
    lab.apply(&one).unwrap();
    let Spec::Image(spec) = &two else { panic!() };
    fs::create_dir_all(lab.path(&spec.tree.path).join("bin")).unwrap();
    assert!(lab.check(&one).edit.is_some(), "it is seen");
    lab.apply(&one).unwrap();
    assert_eq!(trees(&lab), 1);
    fs::create_dir_all(lab.path(&spec.tree.path).join("bin")).unwrap();
    lab.apply(&two).unwrap();
    assert_eq!(lab.read("/opt/app/bin/app"), "two");
}

#[test]
fn what_was_there_before_comes_back() {
    let lab = opt();
    lab.write("/opt/app-0/bin/app", b"zero");
    symlink("app-0", lab.path("/opt/app")).unwrap();
    let one = image(&lab, "one");
    let prior = lab.check(&one).prior;
    lab.apply(&one).unwrap();
    assert_eq!(lab.read("/opt/app/bin/app"), "one");
    let undo = |prior: Prior| Undo {
        path: "/opt/app".into(),
        kind: "image".into(),
        prior,
        kept: false,
        made: Vec::new(),
        attributes: BTreeMap::new(),
    };
    lab.kinds.undo(&undo(prior)).unwrap();
    assert_eq!((lab.read("/opt/app/bin/app").as_str(), trees(&lab)), ("zero", 0));
    fs::remove_file(lab.path("/opt/app")).unwrap();
    lab.apply(&one).unwrap();
    lab.kinds.undo(&undo(Prior::State(None))).unwrap();
    assert!(!lab.path("/opt/app").exists() && !lab.path("/opt/.app.generations").exists());
    // A directory of somebody else is left alone.
    fs::create_dir(lab.path("/opt/app")).unwrap();
    assert!(lab.failed_check(&one).contains("move it away"));
}

#[test]
fn a_pair_of_commands_goes_there_and_back() {
    let lab = opt();
    let switch = |to: &str, run: &str| {
        let attributes = json!({"to": to, "run": format!("echo {to} > $MUSTER_ROOT/slot; {run}"),
            "back": format!("echo back from {to} >> $MUSTER_ROOT/backs; echo 1 > $MUSTER_ROOT/slot")});
        let attributes: BTreeMap<String, Value> = serde_json::from_value(attributes).unwrap();
        let files = BTreeMap::new();
        bind("switch", "slot", &attributes, &BindContext { files: &files, rendered: None }).unwrap()
    };
    let (one, two) = (switch("1", "true"), switch("2", "true"));
    lab.apply(&one).unwrap();
    assert!(!lab.apply(&one).unwrap().changed);
    lab.apply(&two).unwrap();
    lab.apply(&one).unwrap();
    assert_eq!((lab.read("/slot").as_str(), lab.read("/backs").as_str()), ("1\n", "back from 2\n"));
    lab.apply(&switch("3", "false")).unwrap_err();
    assert!(lab.check(&one).edit.is_some(), "it is somewhere in between");
    lab.apply(&one).unwrap();
    assert_eq!(lab.read("/backs"), "back from 2\nback from 3\n");
    // It goes: once, although `current` prints something for ever.
    let attributes = json!({"state": "absent", "back": "false", "current": "cat $MUSTER_ROOT/slot"});
    let attributes: BTreeMap<String, Value> = serde_json::from_value(attributes).unwrap();
    let context = BindContext { files: &BTreeMap::new(), rendered: None };
    let gone = bind("switch", "slot", &attributes, &context).unwrap();
    assert!(lab.apply(&gone).unwrap().changed);
    assert!(!lab.apply(&gone).unwrap().changed);
    assert_eq!(lab.read("/backs"), "back from 2\nback from 3\nback from 1\n");
}
