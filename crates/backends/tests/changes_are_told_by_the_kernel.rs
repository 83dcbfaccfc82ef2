//! SYN-9: with its own clock and thread, a watched folder tells what users do long before the
//! next look that is due anyway.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use backends::{Backend as _, Changes, Folder, Signal, Signals};

/// Far below the time between two looks at a folder at rest.
const SOON: Duration = Duration::from_secs(15);

fn wait_for(signals: &Signals, wanted: &mut dyn FnMut(Signal) -> bool) {
    let deadline = Instant::now() + SOON;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let signal = signals.next(left).expect("a signal before the deadline");
        if wanted(signal) {
            return;
        }
    }
}

fn wait_for_keys(signals: &Signals, names: &[&str]) {
    let mut left: BTreeSet<&str> = names.iter().copied().collect();
    wait_for(signals, &mut |signal| {
        if let Signal::Changed(Changes::Keys(keys)) = signal {
            left.retain(|name| !keys.iter().any(|key| &*key.name == *name));
        }
        left.is_empty()
    });
}

#[test]
fn in_new_directories_too() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("folder");
    std::fs::create_dir(&root).unwrap();
    let mut folder = Folder::new(&root);
    let signals = folder.watch().unwrap();
    assert!(folder.list().unwrap().complete);
    let text = |name: &str| format!("kind: App\nmetadata: {{name: {name}}}\n");
    std::fs::write(root.join("a.yaml"), text("a")).unwrap();
    wait_for_keys(&signals, &["a"]);
    std::fs::create_dir_all(root.join("x/y")).unwrap();
    std::fs::write(root.join("x/y/b.yaml"), text("b")).unwrap();
    wait_for_keys(&signals, &["b"]);
    std::fs::write(root.join("x/y/c.yaml"), text("c")).unwrap();
    std::fs::remove_file(root.join("a.yaml")).unwrap();
    wait_for_keys(&signals, &["a", "c"]);
    std::fs::rename(&root, dir.path().join("away")).unwrap();
    wait_for(&signals, &mut |signal| matches!(signal, Signal::Gone(_)));
    assert!(!folder.list().unwrap().complete);
    std::fs::rename(dir.path().join("away"), &root).unwrap();
    wait_for(&signals, &mut |signal| signal == Signal::Back);
    assert_eq!(folder.list().unwrap().objects.len(), 2);
}
