//! SYN-9: with its own clock and thread, a watched folder reports what users do long before the
//! next look that is due anyway.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use backends::{Backend, Folder};

use crate::support::{app, watch};

/// Far below the time between two looks at a folder at rest.
const SOON: Duration = Duration::from_secs(15);

/// Asks without a look at the folder, whenever the listener was called.
fn wait_until(told: &Receiver<()>, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        let left = deadline.saturating_duration_since(Instant::now());
        told.recv_timeout(left).expect("the listener is called before the deadline");
    }
}

#[test]
fn in_new_directories_too() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("folder");
    std::fs::create_dir(&root).unwrap();
    let mut folder = Folder::new(&root);
    let told = watch(&mut folder);
    assert!(folder.list().complete);
    // `get` gives what was published last.
    let there = |folder: &mut Folder, name: &str| folder.get(&app(name)).unwrap().is_some();
    let text = |name: &str| format!("kind: App\nmetadata: {{name: {name}}}\n");
    std::fs::write(root.join("a.yaml"), text("a")).unwrap();
    wait_until(&told, || there(&mut folder, "a"));
    std::fs::create_dir_all(root.join("x/y")).unwrap();
    std::fs::write(root.join("x/y/b.yaml"), text("b")).unwrap();
    wait_until(&told, || there(&mut folder, "b"));
    std::fs::write(root.join("x/y/c.yaml"), text("c")).unwrap();
    std::fs::remove_file(root.join("a.yaml")).unwrap();
    wait_until(&told, || there(&mut folder, "c") && !there(&mut folder, "a"));
    while told.try_recv().is_ok() {}
    std::fs::rename(&root, dir.path().join("away")).unwrap();
    told.recv_timeout(SOON).expect("that it is gone is told");
    assert!(!folder.list().complete);
    std::fs::rename(dir.path().join("away"), &root).unwrap();
    wait_until(&told, || folder.list().complete);
    assert_eq!(folder.list().objects.len(), 2);
}

#[test]
fn until_the_folder_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let mut folder = Folder::new(dir.path());
    let told = watch(&mut folder);
    drop(folder);
    let disconnected = std::sync::mpsc::RecvTimeoutError::Disconnected;
    let ended = std::iter::repeat_with(|| told.recv_timeout(SOON)).find(Result::is_err);
    assert_eq!(ended, Some(Err(disconnected)), "the thread lets go of its listener");
}
