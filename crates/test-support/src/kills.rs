//! A test that starts its own binary again and has it killed at a chosen operation of the disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use spool::{Disk, FaultAction, Faults, Point};

use crate::children::test_beside;

const POINT: &str = "MUSTER_TEST_KILL_AT";
const STEP: &str = "MUSTER_TEST_STEP";
const DIR: &str = "MUSTER_TEST_DIR";

struct KillAt(u64);

impl Faults for KillAt {
    fn before(&self, point: Point<'_>) -> FaultAction {
        if point.number == self.0 { FaultAction::Abort } else { FaultAction::Go }
    }
}

/// The disk of a child that ends at the point that its parent named, and the parent's directory; `None` in a parent.
pub fn doomed() -> Option<(Disk, PathBuf)> {
    let point = std::env::var(POINT).ok()?.parse().unwrap();
    let dir = PathBuf::from(std::env::var_os(DIR).unwrap());
    Some((Disk::with_faults(Arc::new(KillAt(point))), dir))
}

/// What the parent wants of its child; empty where it has one step alone.
pub fn step() -> String {
    std::env::var(STEP).unwrap_or_default()
}

/// Runs the test `child` of this file in a process of its own; true when it was killed.
pub fn killed(dir: &Path, point: u64) -> bool {
    killed_in(dir, "", point)
}

/// As [`killed`], of a child that has several steps ([`step`]).
pub fn killed_in(dir: &Path, step: &str, point: u64) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let mut child = test_beside("child");
    let output = child.env(POINT, point.to_string()).env(STEP, step).env(DIR, dir).output().unwrap();
    let killed = output.status.signal().is_some();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(killed || output.status.success(), "{step} point {point}: {:?}\n{text}", output.status);
    killed
}
