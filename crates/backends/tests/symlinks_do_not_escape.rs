//! SYN-9: nothing outside the folder is read or written, whatever links say.

use std::os::unix::fs::symlink;

use crate::support::{Stage, app, yaml};
use backends::{ApplyRequest, Backend as _, Expect, OperationRequest};
use model::Timestamp;
use model::replication::ObjectOperation;

#[test]
fn links_out_are_not_read() {
    let mut stage = Stage::new();
    std::fs::write(stage.outside("secret.yaml"), yaml("secret", 1)).unwrap();
    std::fs::create_dir(stage.outside("dir")).unwrap();
    std::fs::write(stage.outside("dir/s.yaml"), yaml("s", 1)).unwrap();
    symlink(stage.outside("secret.yaml"), stage.path("absolute.yaml")).unwrap();
    symlink("../secret.yaml", stage.path("relative.yaml")).unwrap();
    symlink(stage.outside("dir"), stage.path("dir")).unwrap();
    symlink("/proc/self/environ", stage.path("proc.yaml")).unwrap();
    stage.write("a.yaml", yaml("a", 1));
    assert_eq!(stage.said(), ["a=1"]);
    let codes = stage.codes();
    let told: Vec<&str> = codes
        .iter()
        .map(|(place, code)| {
            assert_eq!(*code, "link");
            place.as_str()
        })
        .collect();
    assert_eq!(told, ["absolute.yaml", "proc.yaml", "relative.yaml"]);
    assert!(!stage.list().complete, "what such a link said before is not known");
}

#[test]
fn links_inside_count_as_what_they_lead_to() {
    let mut stage = Stage::new();
    stage.write(".data/v1/a.yaml", yaml("a", 1));
    stage.write(".data/v2/a.yaml", yaml("a", 2));
    symlink("v1", stage.path(".data/now")).unwrap();
    symlink(".data/now/a.yaml", stage.path("a.yaml")).unwrap();
    assert_eq!(stage.said(), ["a=1"]);
    symlink("v2", stage.path(".data/next")).unwrap();
    std::fs::rename(stage.path(".data/next"), stage.path(".data/now")).unwrap();
    stage.settle();
    assert_eq!(stage.said(), ["a=2"]);
    assert!(stage.list().complete);
}

#[test]
fn a_file_that_becomes_a_link_out_keeps_what_it_said() {
    let mut stage = Stage::new();
    std::fs::write(stage.outside("other.yaml"), yaml("a", 9)).unwrap();
    stage.write("a.yaml", yaml("a", 1));
    stage.list();
    stage.remove("a.yaml");
    symlink("../other.yaml", stage.path("a.yaml")).unwrap();
    stage.settle();
    assert_eq!(stage.said(), ["a=1"]);
    assert!(!stage.list().complete);
}

#[test]
fn writes_go_through_no_link() {
    let mut stage = Stage::new();
    let put = |stage: &mut Stage| {
        let (key, spec) = (app("a"), br#"{"kind":"App","metadata":{"name":"a"},"spec":{"v":1}}"#);
        stage.folder.apply(ApplyRequest { key: &key, spec, source_uid: None, expect: Expect::Anything })
    };
    std::fs::create_dir(stage.outside("dir")).unwrap();
    symlink(stage.outside("dir"), stage.path("app")).unwrap();
    stage.list();
    assert!(put(&mut stage).is_err(), "a directory that is a link is not entered");
    assert_eq!(std::fs::read_dir(stage.outside("dir")).unwrap().count(), 0);

    std::fs::remove_file(stage.path("app")).unwrap();
    std::fs::create_dir_all(stage.path("app/_")).unwrap();
    std::fs::write(stage.outside("victim"), "untouched").unwrap();
    symlink(stage.outside("victim"), stage.path("app/_/a.yaml")).unwrap();
    put(&mut stage).unwrap();
    assert_eq!(std::fs::read_to_string(stage.outside("victim")).unwrap(), "untouched");

    // What else is written beside it, and the name under which a file is made.
    let placed = std::fs::read_dir(stage.path("app/_")).unwrap();
    let file = placed
        .map(|it| it.unwrap().path())
        .find(|it| !it.is_symlink())
        .unwrap_or_else(|| stage.path("app/_/a.yaml"));
    let operation = format!("{}.operation.json", file.display());
    symlink(stage.outside("victim"), &operation).unwrap();
    let (operation, requested_at) = (ObjectOperation::Sync, Timestamp(0));
    let request = OperationRequest { operation, id: "t-1.n".into(), requested_at };
    stage.folder.request_operation(&app("a"), &request).unwrap();
    assert_eq!(std::fs::read_to_string(stage.outside("victim")).unwrap(), "untouched");
}

#[test]
fn other_things_than_files_are_ignored() {
    let mut stage = Stage::new();
    stage.write("a.yaml", yaml("a", 1));
    let fifo = std::process::Command::new("mkfifo").arg(stage.path("fifo.yaml")).status();
    assert!(fifo.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(stage.path("socket.yaml")).unwrap();
    symlink("fifo.yaml", stage.path("to-fifo.yaml")).unwrap();
    std::fs::create_dir(stage.path("dir.yaml")).unwrap();
    stage.write("dir.yaml/b.yml", yaml("b", 1));
    stage.write("README.md", "# not a manifest");
    stage.write(".git/config.yaml", yaml("git", 1));
    stage.write(".hidden.yaml", yaml("hidden", 1));
    assert_eq!(stage.said(), ["a=1", "b=1"]);
    assert!(stage.list().complete && stage.list().problems.is_empty(), "{:?}", stage.list().problems);
}
