//! CNV-1: a second run changes nothing. No file, link or directory is written, replaced or
//! even touched when it is as declared.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use catalog::types::{DirectorySpec, Ensure, FileContent, LineSpec, Ownership, Spec, SymlinkSpec};
use common::{exec, file, lab};

/// Everything that a write would change, for every path below a directory.
fn traces(dir: &Path) -> Vec<(String, u64, i64, i64, i64, i64, u64)> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(path) = todo.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let m = &metadata;
        found.push((
            path.display().to_string(),
            m.ino(),
            m.mtime(),
            m.mtime_nsec(),
            m.ctime(),
            m.ctime_nsec(),
            m.size(),
        ));
    }
    found.sort();
    found
}

fn ownership(mode: u32) -> Ownership {
    Ownership { mode: Some(mode), owner: Some("root".to_owned()), group: Some("0".to_owned()) }
}

#[test]
fn the_second_run_changes_nothing() {
    let lab = lab();
    let big = vec![b'z'; 300_000];
    let digest = lab.blobs.put(&big);
    let mut blob = file("/dir/blob", "");
    blob.content = Some(FileContent::Blob { digest, size: big.len() as u64 });
    blob.backup = true;
    let mut script = exec("echo once > $MUSTER_ROOT/dir/once");
    script.creates = Some("/dir/once".to_owned());
    let line = |ensure, line: &str, matching: Option<&str>| {
        Spec::Line(LineSpec {
            path: "/dir/config".to_owned(),
            ensure,
            line: line.to_owned(),
            matching: matching.map(str::to_owned),
            after: None,
            create: true,
            ownership: ownership(0o600),
            validate: None,
        })
    };
    let absent = |path: &str| {
        let mut spec = file(path, "");
        (spec.ensure, spec.content) = (Ensure::Absent, None);
        Spec::File(spec)
    };
    let directory = |path: &str, ensure, recurse| {
        Spec::Directory(DirectorySpec {
            path: path.to_owned(),
            ensure,
            ownership: ownership(0o750),
            recurse,
            in_the_way: catalog::types::InTheWay::Stays,
        })
    };
    lab.write("/old/tree/file", b"");
    lab.write("/old/file", b"");
    let specs = [
        directory("/dir", Ensure::Present, false),
        Spec::File(file("/dir/text", "hello\n")),
        Spec::File({
            let mut spec = file("/dir/owned", "mine");
            spec.ownership = ownership(0o4711);
            spec
        }),
        Spec::File(blob),
        Spec::Symlink(SymlinkSpec {
            path: "/dir/link".to_owned(),
            ensure: Ensure::Present,
            target: "nowhere".to_owned(),
            in_the_way: catalog::types::InTheWay::Stays,
        }),
        line(Ensure::Present, "Port 22", Some("^Port")),
        line(Ensure::Present, "Port 22", None),
        line(Ensure::Absent, "Gone", Some("^Gone")),
        absent("/old/file"),
        directory("/old/tree", Ensure::Absent, true),
        Spec::Exec(script),
    ];
    let first: Vec<bool> = specs.iter().map(|spec| lab.apply(spec).unwrap().changed).collect();
    assert_eq!(first, [true, true, true, true, true, true, false, false, true, true, true]);
    let before = traces(lab.dir.path());
    for spec in &specs {
        assert_eq!(lab.check(spec).edit, None, "{spec:?}");
        let applied = lab.apply(spec);
        match spec {
            // An exec is never applied when its check finds nothing to do.
            Spec::Exec(_) => {}
            _ => assert!(!applied.unwrap().changed, "{spec:?}"),
        }
        if matches!(spec, Spec::Exec(_)) {
            continue;
        }
        assert_eq!(traces(lab.dir.path()), before, "{spec:?}");
    }
}

#[test]
fn a_check_never_writes() {
    let lab = lab();
    lab.write("/dir/config", b"a\nb\n");
    let before = traces(lab.dir.path());
    let specs = [
        Spec::File(file("/dir/new", "x")),
        Spec::File(file("/dir/config", "other")),
        Spec::Directory(DirectorySpec {
            path: "/dir".to_owned(),
            ensure: Ensure::Absent,
            ownership: Ownership::default(),
            recurse: true,
            in_the_way: catalog::types::InTheWay::Stays,
        }),
        Spec::Symlink(SymlinkSpec {
            path: "/dir/config".to_owned(),
            ensure: Ensure::Present,
            target: "x".to_owned(),
            in_the_way: catalog::types::InTheWay::Stays,
        }),
    ];
    for spec in specs {
        assert!(lab.check(&spec).edit.is_some());
    }
    assert_eq!(traces(lab.dir.path()), before);
}
