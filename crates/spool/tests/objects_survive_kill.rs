//! SYN-4, LIF-10: what was acknowledged of synchronization survives `kill -9` at any
//! moment, and a write that was torn is not there at all. The process is a real one: this
//! test starts itself again.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::objects::{SMALL, Sets, cursor, gone, open, put, their, theirs};
use common::{fault_at, incarnation};
use spool::objects::{ObjectLimits, ObjectLog};
use spool::{Disk, FaultAction};
use sync::Write;

const DIRECTORY: &str = "MUSTER_TEST_DIRECTORY";
const POINT: &str = "MUSTER_TEST_POINT";
/// Writes of the script that is killed at every point: enough to fill, move out of and
/// remove several files.
const STEPS: u64 = 30;

fn acknowledge(step: u64) {
    // Not `println!`: the line must be out before the process ends.
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "\nacked {step}").unwrap();
    stdout.flush().unwrap();
}

/// The write of a step: objects that stay, others that change all the time, removals.
fn write(step: u64) -> Write {
    let text = |n: u64| format!("{step}.{n} {}", "x".repeat(150));
    let rev = 3 * (step - 1);
    Write {
        begin: (step == 1).then(|| incarnation("f")),
        feed: vec![
            put(rev + 1, &format!("stays-{step}"), &text(1)),
            put(rev + 2, "changes", &text(2)),
            gone(rev + 3, &format!("stays-{}", step.saturating_sub(4))),
        ],
        proofs: Vec::new(),
        compacted: step.is_multiple_of(7).then_some(rev.saturating_sub(6)),
        replica: vec![
            their(step, &format!("stays-{}", step % 5), &text(3)),
            (theirs(&format!("stays-{}", (step + 2) % 5)), None),
        ],
        cursor: cursor("t", step),
        forget_replica: step == 20,
    }
}

fn script(disk: &Disk, directory: &Path, done: &mut dyn FnMut(u64)) {
    let mut log = open(disk, directory, "unused").unwrap().log;
    for step in 1..=STEPS {
        if step % 10 == 0 {
            log = open(disk, directory, "unused").unwrap().log;
        }
        log.write(&write(step)).unwrap();
        done(step);
    }
}

fn after(steps: u64) -> Sets {
    (1..=steps).fold(Sets::default(), |sets, step| sets.after(&write(step)))
}

fn check(directory: &Path, done: u64, when: &str) {
    let opened = open(&Disk::new(), directory, "unused").unwrap();
    assert_eq!(opened.repairs, Vec::<String>::new(), "{when}");
    let there = Sets::of(&opened);
    assert!(there == after(done) || there == after(done + 1), "{when}: {done} were done, but {there:#?}");
    // And it goes on from there.
    let mut log = opened.log;
    let next = there.cursor.as_ref().map_or(0, |cursor| cursor.revision) + 1;
    log.write(&write(next)).unwrap();
    let opened = open(&Disk::new(), directory, "unused").unwrap();
    assert_eq!(Sets::of(&opened), after(next), "{when}");
}

#[test]
fn killed_at_every_point() {
    if let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) {
        let point = std::env::var(POINT).unwrap().parse().unwrap();
        script(&fault_at(point, FaultAction::Abort), &directory, &mut acknowledge);
        return;
    }
    let directory = common::tempdir();
    let disk = Disk::new();
    script(&disk, directory.path(), &mut |_| {});
    check(directory.path(), STEPS, "not killed");
    let first = directory.path().join("00000000000000000001.segment");
    assert!(!first.exists(), "nothing was moved out of the first file: this test shows little");
    for point in 0..disk.points() {
        let directory = common::tempdir();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed_at_every_point", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, directory.path())
            .env(POINT, point.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .output()
            .unwrap();
        assert!(!output.status.success(), "the child was not killed at point {point}");
        let text = String::from_utf8_lossy(&output.stdout);
        let mut acked = text.lines().filter_map(|line| line.strip_prefix("acked ")?.parse().ok());
        check(directory.path(), acked.next_back().unwrap_or(0), &format!("killed at point {point}"));
    }
}

#[test]
fn every_cut_of_the_last_write_leaves_the_one_before() {
    let made = common::tempdir();
    let limits = ObjectLimits { segment_bytes: 1 << 20, ..SMALL };
    let mut log = ObjectLog::open(&Disk::new(), made.path(), &incarnation("unused"), limits).unwrap().log;
    log.write(&write(1)).unwrap();
    let name = "00000000000000000001.segment";
    let whole = std::fs::read(made.path().join(name)).unwrap();
    log.write(&write(2)).unwrap();
    let longer = std::fs::read(made.path().join(name)).unwrap();
    assert!(longer.len() > whole.len() && longer.starts_with(&whole));
    let left = |bytes: &[u8], when: &str| {
        let directory = common::tempdir();
        std::fs::write(directory.path().join(name), bytes).unwrap();
        check(directory.path(), 1, when);
    };
    for length in whole.len()..longer.len() {
        left(&longer[..length], &format!("cut at {length}"));
    }
    // The length came to the disk, the bytes did not.
    left(&[whole.as_slice(), &[0; 5000]].concat(), "zeros");
}
