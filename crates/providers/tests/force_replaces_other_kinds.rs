//! EXE-1, CNV-10: what is of another kind is replaced only with `force`, never a directory of the system, and
//! comes back when the replacement fails or its run died.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

use catalog::schema::{BindContext, bind};
use catalog::types::{DirectorySpec, FileSpec, InTheWay, Spec};
use common::{Lab, lab};
use converge::run::Undo;
use lang::Value;
use serde_json::json;

fn spec(kind: &str, path: &str, attributes: serde_json::Value) -> Spec {
    let attributes: BTreeMap<String, Value> = serde_json::from_value(attributes).unwrap();
    bind(kind, path, &attributes, &BindContext { files: &BTreeMap::new(), rendered: None }).unwrap()
}

fn full(lab: &Lab) {
    lab.write("/srv/x/deep/file", b"bytes");
}

#[test]
fn a_directory_goes_only_by_force() {
    for (kind, more) in [("file", json!({"content": "new"})), ("symlink", json!({"target": "/there"}))] {
        let lab = lab();
        full(&lab);
        let why = lab.failed_check(&spec(kind, "/srv/x", more.clone()));
        assert!(why.contains("is a directory") && why.contains("`force: true`"), "{why}");
        let mut forced = more;
        forced["force"] = json!(true);
        let forced = spec(kind, "/srv/x", forced);
        let checked = lab.check(&forced);
        assert!(checked.note.unwrap().contains("cannot be undone"));
        let edit = checked.edit.unwrap();
        assert_eq!(edit.from().unwrap()["entries"], "removed with everything inside");
        assert!(lab.apply(&forced).unwrap().changed);
        assert!(!lab.apply(&forced).unwrap().changed);
        assert!(!lab.path("/srv/x").is_dir());
        assert_eq!(fs::read_dir(lab.path("/srv")).unwrap().count(), 1, "nothing is left beside it");
    }
}

#[test]
fn a_file_and_a_link_make_way_for_a_directory_and_come_back() {
    let lab = lab();
    full(&lab);
    lab.write("/srv/file", b"bytes");
    symlink("/srv/x", lab.path("/srv/link")).unwrap();
    for path in ["/srv/file", "/srv/link"] {
        let why = lab.failed_check(&spec("directory", path, json!({})));
        assert!(why.contains("is not a directory") && why.contains("`force: true`"), "{why}");
        let forced = spec("directory", path, json!({"force": true, "mode": "0750"}));
        let checked = lab.check(&forced);
        let kept = lab.kinds.keep_prior(&forced, &checked).unwrap();
        assert!(lab.apply(&forced).unwrap().changed);
        assert!(!lab.apply(&forced).unwrap().changed);
        assert!(fs::symlink_metadata(lab.path(path)).unwrap().is_dir());
        let undo = Undo {
            path: path.to_owned(),
            prior: checked.prior,
            kept,
            kind: "directory".to_owned(),
            attributes: BTreeMap::new(),
            made: Vec::new(),
        };
        lab.kinds.undo(&undo).unwrap();
    }
    assert_eq!((lab.read("/srv/file"), lab.read("/srv/x/deep/file")), ("bytes".into(), "bytes".into()));
    assert!(lab.path("/srv/link").is_symlink());
}

#[test]
fn what_is_refused_leaves_the_directory_where_it_was() {
    let lab = lab();
    full(&lab);
    let refused = spec("file", "/srv/x", json!({"content": "new", "force": true, "validate": ["false"]}));
    assert!(lab.apply(&refused).is_err());
    assert_eq!(lab.read("/srv/x/deep/file"), "bytes");
    assert_eq!(fs::read_dir(lab.path("/srv")).unwrap().count(), 1);
}

#[test]
fn a_run_that_died_in_the_middle_is_ended_at_the_next_start() {
    let lab = lab();
    full(&lab);
    // Killed before the new file was there: the directory comes back.
    lab.kinds.host().set_aside("/srv/x").unwrap();
    assert!(!lab.path("/srv/x").exists());
    lab.kinds.sweep(["/srv/x"]);
    assert_eq!(lab.read("/srv/x/deep/file"), "bytes");
    // Killed after it, and what is there now may be somebody's: nothing of either is removed.
    for at_its_place in ["/srv/x", "/srv/x/new/file"] {
        lab.kinds.host().set_aside("/srv/x").unwrap();
        lab.write(at_its_place, b"new");
        lab.kinds.sweep(["/srv/x"]);
        assert_eq!(
            (lab.read(at_its_place), lab.read("/srv/.x.muster-aside/deep/file")),
            ("new".into(), "bytes".into())
        );
        let again = spec("file", "/srv/x", json!({"content": "newer", "force": true}));
        if lab.path("/srv/x").is_dir() {
            let why = lab.apply(&again).unwrap_err();
            assert!(why.contains(".x.muster-aside beside it") && why.contains("by hand"), "{why}");
            fs::remove_dir_all(lab.path("/srv/x")).unwrap();
        } else {
            fs::remove_file(lab.path("/srv/x")).unwrap();
        }
        lab.kinds.sweep(["/srv/x"]);
        assert_eq!(lab.read("/srv/x/deep/file"), "bytes");
    }
    // An empty one is nothing that could be lost.
    fs::remove_dir_all(lab.path("/srv/x")).unwrap();
    fs::create_dir(lab.path("/srv/.x.muster-aside")).unwrap();
    lab.write("/srv/x", b"new");
    lab.kinds.sweep(["/srv/x"]);
    assert_eq!(fs::read_dir(lab.path("/srv")).unwrap().count(), 1);
}

#[test]
fn a_directory_that_somebody_moved_to_the_name_stays() {
    let lab = lab();
    full(&lab);
    let theirs = lab.kinds.host().set_aside("/srv/x").unwrap();
    fs::rename(lab.path("/srv/.x.muster-aside"), lab.path("/srv/elsewhere")).unwrap();
    lab.write("/srv/of-root/file", b"bytes");
    fs::rename(lab.path("/srv/of-root"), lab.path("/srv/.x.muster-aside")).unwrap();
    assert!(lab.kinds.host().discard_aside("/srv/x", theirs).is_err());
    assert_eq!(lab.read("/srv/.x.muster-aside/file"), "bytes");
}

#[test]
fn directories_of_the_system_and_of_muster_stay() {
    let lab = lab();
    lab.write("/etc/systemd/file", b"x");
    lab.write("/usr/lib/file", b"x");
    lab.write("/var/lib/muster/identity.key", b"x");
    lab.write("/var/lib/muster-server/muster.db", b"x");
    symlink("usr/lib", lab.path("/lib")).unwrap();
    let table = [
        spec("file", "/etc/systemd", json!({"content": "", "force": true})),
        spec("symlink", "/usr/lib", json!({"target": "x", "force": true})),
        spec("directory", "/lib", json!({"force": true})),
        spec("directory", "/usr/lib", json!({"state": "absent", "recurse": true})),
        spec("directory", "/etc", json!({"state": "absent", "recurse": true})),
        spec("directory", "/var/lib/muster", json!({"state": "absent", "recurse": true})),
        spec("symlink", "/var/lib/muster-server", json!({"target": "x", "force": true})),
    ];
    for spec in table {
        let why = lab.failed_check(&spec);
        assert!(why.contains("is a directory of the system"), "{why}");
    }
}

/// CNV-10: what Muster made itself goes without `force`, a directory only while it is empty.
#[test]
fn an_own_thing_of_another_kind_makes_way() {
    let lab = lab();
    let own = |spec: Spec| match spec {
        Spec::File(file) => Spec::File(FileSpec { in_the_way: InTheWay::OwnIsReplaced, ..file }),
        Spec::Directory(directory) => {
            Spec::Directory(DirectorySpec { in_the_way: InTheWay::OwnIsReplaced, ..directory })
        }
        spec => spec,
    };
    let directory = own(spec("directory", "/srv/x", json!({})));
    let file = own(spec("file", "/srv/x", json!({"content": "new"})));
    lab.write("/srv/x", b"bytes");
    assert!(lab.apply(&directory).unwrap().changed);
    assert!(lab.path("/srv/x").is_dir());
    lab.write("/srv/x/inside", b"bytes");
    assert!(lab.failed_check(&file).contains("is a directory"));
    fs::remove_file(lab.path("/srv/x/inside")).unwrap();
    assert!(lab.apply(&file).unwrap().changed);
    assert_eq!(fs::read(lab.path("/srv/x")).unwrap(), b"new");
}
