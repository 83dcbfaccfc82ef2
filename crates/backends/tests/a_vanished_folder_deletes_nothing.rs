//! SYN-9: a folder that is unmounted, renamed, unreadable or replaced says nothing.

use crate::support::{Stage, app, changed, yaml};
use backends::{ApplyRequest, Backend as _, BackendError, ErrorClass, Expect};

fn filled() -> Stage {
    let mut stage = Stage::new();
    for name in ["a", "b", "c", "d"] {
        stage.write(&format!("{name}.yaml"), yaml(name, 1));
    }
    assert!(stage.list().complete);
    stage
}

const ALL: [&str; 4] = ["a=1", "b=1", "c=1", "d=1"];

#[track_caller]
fn says_nothing_new(stage: &mut Stage) {
    stage.settle();
    let listing = stage.list();
    assert!(!listing.complete);
    assert_eq!(stage.said(), ALL);
    assert_eq!(stage.codes(), [(String::new(), "folder-gone")]);
}

#[test]
fn renamed_and_back() {
    let mut stage = filled();
    let told = stage.watch();
    stage.settle();
    changed(&told);
    std::fs::rename(stage.root(), stage.outside("away")).unwrap();
    says_nothing_new(&mut stage);
    assert!(changed(&told), "that it is gone is told");
    let key = app("e");
    let spec = br#"{"kind":"App","metadata":{"name":"e"}}"#;
    let apply = ApplyRequest { key: &key, spec, source_uid: None, expect: Expect::Anything };
    let refused = stage.folder.apply(apply);
    assert!(
        matches!(refused, Err(BackendError { class: ErrorClass::Temporary, code: "folder-gone", .. })),
        "{refused:?}"
    );
    assert!(!stage.root().exists(), "nothing is made in its place");
    std::fs::rename(stage.outside("away"), stage.root()).unwrap();
    stage.settle();
    assert!(changed(&told), "that it is back is told");
    assert_eq!(stage.said(), ALL);
    assert!(stage.list().complete && stage.list().problems.is_empty());
}

#[test]
fn replaced_by_an_empty_one_at_once() {
    let mut stage = filled();
    std::fs::rename(stage.root(), stage.outside("away")).unwrap();
    std::fs::create_dir(stage.root()).unwrap();
    std::fs::create_dir(stage.path("lost+found")).unwrap();
    says_nothing_new(&mut stage);
    // Somebody works in the new one: it is the folder now.
    stage.write("a.yaml", yaml("a", 2));
    stage.settle();
    assert_eq!(stage.said(), ["a=2"]);
    assert!(stage.list().complete);
}

#[test]
fn removed_as_a_whole() {
    let mut stage = filled();
    for name in ["a", "b", "c", "d"] {
        stage.remove(&format!("{name}.yaml"));
        stage.pass(50);
    }
    std::fs::remove_dir(stage.root()).unwrap();
    says_nothing_new(&mut stage);
    // What was missing before the folder went begins to wait anew when it is back.
    std::fs::create_dir(stage.root()).unwrap();
    says_nothing_new(&mut stage);
}

#[test]
fn replaced_by_a_link_or_a_file() {
    let mut stage = filled();
    std::fs::rename(stage.root(), stage.outside("away")).unwrap();
    std::os::unix::fs::symlink(stage.outside("away"), stage.root()).unwrap();
    says_nothing_new(&mut stage);
    std::fs::remove_file(stage.root()).unwrap();
    std::fs::write(stage.root(), "").unwrap();
    says_nothing_new(&mut stage);
}

#[test]
fn gone_from_the_start() {
    let mut stage = filled();
    std::fs::rename(stage.root(), stage.outside("away")).unwrap();
    stage.restart();
    let listing = stage.list();
    assert!(listing.objects.is_empty() && !listing.complete, "no folder is not an empty folder");
    std::fs::rename(stage.outside("away"), stage.root()).unwrap();
    stage.pass(10);
    assert!(!stage.list().complete, "its files have not settled");
    stage.settle();
    assert_eq!(stage.said(), ALL);
    assert!(stage.list().complete);
}

#[test]
fn a_mounted_file_system_and_its_absence() {
    use std::process::Command;
    let mut stage = Stage::new();
    let target = stage.root();
    let mount = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&target).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: nothing can be mounted here");
        return;
    }
    let unmount = || Command::new("umount").arg(&target).status().unwrap().success();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for name in ["a", "b", "c", "d"] {
            stage.write(&format!("{name}.yaml"), yaml(name, 1));
        }
        assert_eq!(stage.said(), ALL);
    }));
    assert!(unmount());
    result.unwrap();
    says_nothing_new(&mut stage);
}
