//! SYN-9: a pull and a checkout are edits of what differs, whatever order git works in.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use crate::support::{Stage, changed, yaml};

fn git(stage: &Stage, dir: &std::path::Path, args: &[&str]) -> bool {
    let run = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"])
        .args(args)
        .current_dir(dir)
        .env("HOME", stage.outside(""))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output();
    run.is_ok_and(|output| output.status.success())
}

#[test]
fn a_real_pull() {
    let mut stage = Stage::new();
    let (origin, root) = (stage.outside("origin"), stage.root());
    std::fs::create_dir(&origin).unwrap();
    if !git(&stage, &origin, &["init", "-q"]) {
        eprintln!("skipped: there is no git here");
        return;
    }
    let put = |name: &str, text: String| std::fs::write(origin.join(name), text).unwrap();
    for name in ["a", "b", "c"] {
        put(&format!("{name}.yaml"), yaml(name, 1));
    }
    assert!(git(&stage, &origin, &["add", "."]) && git(&stage, &origin, &["commit", "-qm", "one"]));
    assert!(git(&stage, &root, &["clone", "-q", origin.to_str().unwrap(), "."]));
    assert_eq!(stage.said(), ["a=1", "b=1", "c=1"]);
    let told = stage.watch();
    stage.settle();
    let before = stage.list().objects;

    put("a.yaml", yaml("a", 2));
    std::fs::remove_file(origin.join("b.yaml")).unwrap();
    std::fs::create_dir(origin.join("sub")).unwrap();
    std::fs::rename(origin.join("c.yaml"), origin.join("sub/moved.yaml")).unwrap();
    assert!(git(&stage, &origin, &["add", "-A"]) && git(&stage, &origin, &["commit", "-qm", "two"]));
    assert!(git(&stage, &root, &["pull", "-q"]));
    stage.settle();
    assert!(changed(&told));
    assert_eq!(stage.said(), ["a=2", "c=1"]);
    assert_eq!(stage.list().objects.last(), before.last(), "what only moved is no change");
    assert!(stage.list().problems.is_empty(), "{:?}", stage.list().problems);

    assert!(git(&stage, &root, &["checkout", "-q", "HEAD~1"]));
    stage.settle();
    assert_eq!(stage.said(), ["a=1", "b=1", "c=1"]);
}

#[test]
fn a_slow_checkout_that_moves_objects_deletes_none() {
    let mut stage = Stage::new();
    for n in 0..20 {
        stage.write(&format!("old/{n:02}.yaml"), yaml(&format!("x{n:02}"), 1));
    }
    let before = stage.said();
    // Far slower than a file's own wait: what is missing counts until the folder rests.
    for n in 0..20 {
        stage.remove(&format!("old/{n:02}.yaml"));
        stage.pass(100);
        assert_eq!(stage.said(), before);
    }
    for n in 0..20 {
        stage.write(&format!("new/{n:02}.yaml"), yaml(&format!("x{n:02}"), 1));
        stage.pass(100);
        assert_eq!(stage.said(), before);
    }
    stage.settle();
    assert_eq!(stage.said(), before);
    assert!(stage.list().problems.is_empty());
}
