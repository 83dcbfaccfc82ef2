//! CNV-10: what was there before is kept before it is changed, and can be put back; what
//! cannot be undone says so beforehand.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use catalog::module::OnRemove;
use catalog::types::{DirectorySpec, Ensure, Ownership, Spec, SymlinkSpec};
use common::{Lab, exec, file, lab, mode};
use converge::ledger::{LedgerEntry, MAX_KEPT, Prior};
use converge::run::Undo;
use model::{PathState, Timestamp};

/// Checks, keeps and applies as an agent does; gives how to undo it.
fn change(lab: &Lab, path: &str, spec: &Spec) -> Undo {
    let checked = lab.check(spec);
    let kept = lab.kinds.keep_prior(spec, &checked).unwrap();
    assert!(lab.kinds.apply("n", spec, &checked, common::LONG).unwrap().changed);
    undo(path, checked.prior, kept)
}

fn undo(path: &str, prior: Prior, kept: bool) -> Undo {
    Undo {
        path: path.to_owned(),
        prior,
        kept,
        kind: "file".to_owned(),
        attributes: BTreeMap::new(),
        made: vec![],
    }
}

fn entry(undo: &Undo, kind: &str) -> LedgerEntry {
    LedgerEntry {
        kind: kind.to_owned(),
        path: undo.path.clone(),
        prior: undo.prior.clone(),
        kept: undo.kept,
        on_remove: OnRemove::Restore,
        at: Timestamp(0),
        sensitive: false,
        attributes: BTreeMap::new(),
        made: Vec::new(),
        generation: None,
    }
}

#[test]
fn files_links_and_directories_come_back() {
    let lab = lab();
    lab.write("/file", b"old\xff");
    fs::set_permissions(lab.path("/file"), fs::Permissions::from_mode(0o751)).unwrap();
    symlink("somewhere", lab.path("/link")).unwrap();
    fs::create_dir(lab.path("/dir")).unwrap();
    fs::set_permissions(lab.path("/dir"), fs::Permissions::from_mode(0o711)).unwrap();
    let mut owned = file("/file", "new");
    owned.ownership.mode = Some(0o600);
    let link = |path: &str, target: &str| {
        Spec::Symlink(SymlinkSpec {
            path: path.to_owned(),
            ensure: Ensure::Present,
            target: target.to_owned(),
            in_the_way: catalog::types::InTheWay::Stays,
        })
    };
    let directory = |path: &str, ensure| {
        let ownership = Ownership { mode: Some(0o700), ..Ownership::default() };
        Spec::Directory(DirectorySpec {
            path: path.to_owned(),
            ensure,
            ownership,
            recurse: false,
            in_the_way: catalog::types::InTheWay::Stays,
        })
    };
    let undos = [
        change(&lab, "/file", &Spec::File(owned)),
        change(&lab, "/new", &Spec::File(file("/new", "new"))),
        change(&lab, "/link", &Spec::File(file("/link", "a file now"))),
        change(&lab, "/new-link", &link("/new-link", "x")),
        change(&lab, "/dir", &directory("/dir", Ensure::Present)),
        change(&lab, "/new-dir", &directory("/new-dir", Ensure::Present)),
    ];
    for round in 0..2 {
        for undo in &undos {
            lab.kinds.undo(undo).unwrap_or_else(|why| panic!("round {round}: {}: {why}", undo.path));
        }
        assert_eq!(fs::read(lab.path("/file")).unwrap(), b"old\xff");
        assert_eq!((mode(&lab.path("/file")), mode(&lab.path("/dir"))), (0o751, 0o711));
        assert_eq!(fs::read_link(lab.path("/link")).unwrap().to_str(), Some("somewhere"));
        let mut names: Vec<_> =
            fs::read_dir(lab.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["dir", "file", "link"], "what was new is gone");
    }
}

#[test]
fn a_removed_file_and_a_removed_directory_come_back() {
    let lab = lab();
    lab.write("/file", b"old");
    fs::create_dir(lab.path("/dir")).unwrap();
    let mut absent = file("/file", "");
    (absent.ensure, absent.content) = (Ensure::Absent, None);
    let undo = change(&lab, "/file", &Spec::File(absent));
    assert!(!lab.path("/file").exists());
    lab.kinds.undo(&undo).unwrap();
    assert_eq!(lab.read("/file"), "old");
}

#[test]
fn what_leaves_the_set_is_deleted_or_restored() {
    let lab = lab();
    lab.write("/file", b"old");
    let undo = change(&lab, "/file", &Spec::File(file("/file", "new")));
    let entry = entry(&undo, "file");
    fs::write(lab.path("/.file.muster-new"), "left by a run that died").unwrap();
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Keep), Ok(false));
    assert_eq!(lab.read("/file"), "new");
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Restore), Ok(true));
    assert_eq!(lab.read("/file"), "old");
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Restore), Ok(false), "twice does no harm");
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(true));
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(false));
    assert_eq!(fs::read_dir(lab.dir.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_with_other_peoples_files_is_not_deleted() {
    let lab = lab();
    lab.write("/dir/theirs", b"");
    let undo = undo("/dir", Prior::Path(PathState::Missing), false);
    let refused = lab.kinds.remove(&entry(&undo, "directory"), OnRemove::Delete).unwrap_err();
    assert_eq!(refused, "cannot remove /dir: the directory is not empty");
    assert!(lab.path("/dir/theirs").exists());
}

#[test]
fn a_line_or_a_command_deletes_no_file() {
    let lab = lab();
    lab.write("/file", b"all of it");
    let undo = undo("/file", Prior::Path(PathState::Missing), false);
    for kind in ["line", "exec", "shell", "custom"] {
        assert_eq!(lab.kinds.remove(&entry(&undo, kind), OnRemove::Delete), Ok(false));
    }
    assert_eq!(lab.read("/file"), "all of it");
}

#[test]
fn a_file_that_changes_under_the_check_is_not_overwritten() {
    let lab = lab();
    lab.write("/file", b"old");
    let spec = Spec::File(file("/file", "new"));
    let checked = lab.check(&spec);
    lab.write("/file", b"changed by a human just now");
    let refused = lab.kinds.keep_prior(&spec, &checked).unwrap_err();
    assert_eq!(refused, "/file was changed by something else just now; the next run looks again");
}

#[test]
fn what_cannot_be_undone_says_so_beforehand() {
    let lab = lab();
    let big = fs::File::create(lab.path("/big")).unwrap();
    big.set_len(MAX_KEPT + 1).unwrap();
    let spec = Spec::File(file("/big", "small"));
    let checked = lab.check(&spec);
    assert_eq!(checked.note.as_deref(), Some("cannot be undone: the previous content is over 64 MiB"));
    assert_eq!(lab.kinds.keep_prior(&spec, &checked), Ok(false));
    let lost = undo("/big", checked.prior.clone(), false);
    lab.kinds.apply("n", &spec, &checked, common::LONG).unwrap();
    assert!(lab.kinds.undo(&lost).unwrap_err().contains("cannot be put back"));
    assert_eq!(lab.read("/big"), "small");
    let command = lab.check(&Spec::Exec(exec("true")));
    assert_eq!(command.note.as_deref(), Some("cannot be undone: it is a command"));
}
