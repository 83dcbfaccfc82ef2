//! EXE-1, CNV-1, CNV-10: a directory with a folder of the module holds its files by digest, reads none
//! again that was not touched, removes only what it was told to, and is put back as it was.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use catalog::module::{FileRef, OnRemove};
use catalog::schema::{BindContext, bind};
use catalog::types::Spec;
use common::{Lab, lab, mode};
use converge::ledger::LedgerEntry;
use converge::run::Undo;
use lang::Value;
use model::Timestamp;
use serde_json::json;

fn tree(lab: &Lab, files: &[(&str, &str)], more: serde_json::Value) -> Spec {
    let files: BTreeMap<String, FileRef> = files
        .iter()
        .map(|(path, text)| {
            let digest = lab.blobs.put(text.as_bytes());
            (
                format!("files/site/{path}"),
                FileRef { digest, size: text.len() as u64, executable: path.starts_with("bin/") },
            )
        })
        .collect();
    let mut attributes = json!({"source": "site"});
    attributes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let attributes: BTreeMap<String, Value> = serde_json::from_value(attributes).unwrap();
    bind("directory", "/srv/site", &attributes, &BindContext { files: &files, rendered: None }).unwrap()
}

/// Every path below a directory, and what it holds.
fn all(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(path) = todo.pop() {
        let is = fs::symlink_metadata(&path).unwrap();
        let holds = if is.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            "/".to_owned()
        } else if is.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            fs::read_to_string(&path).unwrap()
        };
        found.insert(path.strip_prefix(dir).unwrap().display().to_string(), holds);
    }
    found
}

const FILES: &[(&str, &str)] = &[("index.html", "<p>"), ("css/a.css", "a"), ("css/deep/b.css", "b")];

#[test]
fn a_tree_is_made_and_only_what_differs_is_written_again() {
    let lab = lab();
    fs::create_dir_all(lab.path("/srv")).unwrap();
    let spec = tree(&lab, FILES, json!({"file_mode": "0640", "mode": "0750"}));
    assert!(lab.apply(&spec).unwrap().changed);
    assert!(lab.check(&spec).edit.is_none());
    assert_eq!(lab.read("/srv/site/css/deep/b.css"), "b");
    assert_eq!((mode(&lab.path("/srv/site/css")), mode(&lab.path("/srv/site/css/a.css"))), (0o750, 0o640));
    // A file of one's own beside it is kept; one that was changed is named.
    lab.write("/srv/site/own", b"own");
    lab.write("/srv/site/css/a.css", b"mine");
    let edit = lab.check(&spec).edit.unwrap();
    assert_eq!(edit.to().unwrap().keys().collect::<Vec<_>>(), ["./css/a.css"]);
    assert!(lab.apply(&spec).unwrap().changed);
    assert_eq!(
        (lab.read("/srv/site/css/a.css"), lab.read("/srv/site/own")),
        ("a".to_owned(), "own".to_owned())
    );
    // Something else in the place of a file, or of a directory, is left alone.
    fs::remove_file(lab.path("/srv/site/index.html")).unwrap();
    fs::create_dir(lab.path("/srv/site/index.html")).unwrap();
    assert!(lab.failed_check(&spec).contains("/srv/site/index.html is no file"));
    fs::remove_dir(lab.path("/srv/site/index.html")).unwrap();
    fs::remove_dir_all(lab.path("/srv/site/css")).unwrap();
    fs::create_dir(lab.path("/elsewhere")).unwrap();
    symlink(lab.path("/elsewhere"), lab.path("/srv/site/css")).unwrap();
    assert!(lab.failed_check(&spec).contains("/srv/site/css is no directory"));
    assert_eq!(fs::read_dir(lab.path("/elsewhere")).unwrap().count(), 0);
}

#[test]
fn executable_files_are_executable_by_those_who_may_read_them() {
    let lab = lab();
    fs::create_dir_all(lab.path("/srv")).unwrap();
    let files = &[("bin/tool", "#!/bin/sh"), ("data", "d")];
    let spec = tree(&lab, files, json!({}));
    assert!(lab.apply(&spec).unwrap().changed);
    assert!(lab.check(&spec).edit.is_none());
    let modes = || (mode(&lab.path("/srv/site/bin/tool")), mode(&lab.path("/srv/site/data")));
    assert_eq!(modes(), (0o755, 0o644));
    // A bit that was taken away comes back; a mode that nobody declared stays otherwise.
    fs::set_permissions(lab.path("/srv/site/bin/tool"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(lab.path("/srv/site/data"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(lab.apply(&spec).unwrap().changed);
    assert_eq!(modes(), (0o700, 0o600));
    assert!(lab.apply(&tree(&lab, files, json!({"file_mode": "0640"}))).unwrap().changed);
    assert_eq!(modes(), (0o750, 0o640));
}

#[test]
fn a_purge_removes_what_is_not_in_the_tree_and_follows_no_link() {
    let lab = lab();
    let spec = tree(&lab, FILES, json!({"purge": true}));
    lab.write("/outside/keep", b"keep");
    lab.write("/srv/site/old/one", b"1");
    lab.write("/srv/site/css/two", b"2");
    symlink(lab.path("/outside"), lab.path("/srv/site/link")).unwrap();
    symlink(lab.path("/outside/keep"), lab.path("/srv/site/index.html")).unwrap();
    let before = all(&lab.path("/srv/site"));
    let checked = lab.check(&spec);
    assert!(lab.apply(&spec).unwrap().changed);
    assert!(lab.check(&spec).edit.is_none());
    let now = all(&lab.path("/srv/site"));
    assert_eq!(
        now.keys().map(String::as_str).collect::<Vec<_>>(),
        ["", "css", "css/a.css", "css/deep", "css/deep/b.css", "index.html"]
    );
    assert_eq!((lab.read("/outside/keep"), lab.read("/srv/site/index.html")), ("keep".into(), "<p>".into()));

    let undo = Undo {
        path: "/srv/site".to_owned(),
        prior: checked.prior,
        kept: false,
        kind: "directory".to_owned(),
        attributes: kept(),
        made: Vec::new(),
    };
    lab.kinds.undo(&undo).unwrap();
    lab.kinds.undo(&undo).unwrap();
    // Without the declaration nobody knows of the purge, but all that it took was written down.
    assert_eq!(all(&lab.path("/srv/site")), before);
}

fn kept() -> BTreeMap<String, Value> {
    let names: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
    serde_json::from_value(json!({"source": "site", "tree": names})).unwrap()
}

#[test]
fn a_tree_that_is_removed_takes_its_files_and_no_others() {
    let lab = lab();
    fs::create_dir_all(lab.path("/srv")).unwrap();
    let spec = tree(&lab, FILES, json!({}));
    let checked = lab.check(&spec);
    assert!(lab.apply(&spec).unwrap().changed);
    lab.write("/srv/site/css/own", b"own");
    let entry = LedgerEntry {
        kind: "directory".to_owned(),
        path: "/srv/site".to_owned(),
        prior: checked.prior,
        kept: false,
        on_remove: OnRemove::Delete,
        at: Timestamp(0),
        sensitive: false,
        attributes: kept(),
        made: Vec::new(),
        generation: None,
    };
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(true));
    assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(false));
    let left = all(&lab.path("/srv"));
    assert_eq!(left.keys().map(String::as_str).collect::<Vec<_>>(), ["", "site", "site/css", "site/css/own"]);
}

#[test]
fn a_long_plan_is_bounded_and_says_what_a_purge_removes() {
    let lab = lab();
    let spec = tree(&lab, FILES, json!({"purge": true}));
    for index in 0..100 {
        lab.write(&format!("/srv/site/old-{index:03}"), b"x");
    }
    let checked = lab.check(&spec);
    let edit = checked.edit.unwrap();
    assert_eq!(edit.to().unwrap().len(), 51);
    assert_eq!(edit.to().unwrap()["more"], "and 55 more");
    assert_eq!(checked.note.as_deref(), Some("removes 100 files, links and directories"));
}

#[test]
fn a_thousand_files_that_were_not_touched_are_not_read_again() {
    let lab = lab();
    fs::create_dir_all(lab.path("/srv")).unwrap();
    let text = "x".repeat(8192);
    let names: Vec<String> = (0..1000).map(|index| format!("d{}/{index}", index % 10)).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), &*text)).collect();
    let spec = tree(&lab, &files, json!({}));
    assert!(lab.apply(&spec).unwrap().changed);
    // The stamp of a file that was written this moment says nothing: wait until all are remembered.
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        let before = read_bytes();
        assert!(lab.check(&spec).edit.is_none());
        let read = read_bytes() - before;
        if read < 1_000_000 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{read} bytes were read");
    }
    // One that was written again, with a text of the same length, is seen.
    lab.write("/srv/site/d7/7", "y".repeat(8192).as_bytes());
    assert_eq!(lab.check(&spec).edit.unwrap().to().unwrap().keys().collect::<Vec<_>>(), ["./d7/7"]);
}

/// What this thread read, in bytes.
fn read_bytes() -> u64 {
    let io = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    line.parse().unwrap()
}
