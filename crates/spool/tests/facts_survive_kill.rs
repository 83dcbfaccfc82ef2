//! CNV-5, CNV-10, LIF-10: what was acknowledged to the caller survives `kill -9` at any
//! moment. The process is a real one: this test starts itself again.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{fault_at, now, open, pending, said};
use serde::{Deserialize, Serialize};
use spool::{Disk, FaultAction, Journal, StateFile};

const DIRECTORY: &str = "MUSTER_TEST_DIRECTORY";
const POINT: &str = "MUSTER_TEST_POINT";
/// Steps of the script that is killed at every point.
const STEPS: u64 = 12;

/// This test again, as a process of its own.
fn child(test: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(DIRECTORY, directory).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn in_child() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

fn acknowledge(number: u64) {
    // Not `println!`: the line must be out before the process ends.
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "\nacked {number}").unwrap();
    stdout.flush().unwrap();
}

fn acknowledged(line: &str) -> Option<u64> {
    line.strip_prefix("acked ")?.parse().ok()
}

#[test]
fn every_acknowledged_append_survives_sigkill() {
    if let Some(directory) = in_child() {
        let mut log = open(&Disk::new(), &directory, "one").unwrap().log;
        loop {
            let seq = log.append(said("x"), now()).unwrap();
            acknowledge(seq);
        }
    }
    for kill_after in [1, 7, 100] {
        let directory = common::tempdir();
        let mut child =
            child("every_acknowledged_append_survives_sigkill", directory.path()).spawn().unwrap();
        let mut last = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            last = acknowledged(&line.unwrap()).unwrap_or(last);
            if last == kill_after {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let opened = open(&Disk::new(), directory.path(), "two").unwrap();
        assert_eq!(opened.repairs, Vec::<String>::new());
        let there = pending(&opened.log);
        assert!(there.len() as u64 >= last, "{last} were acknowledged, {} are there", there.len());
        let numbers: Vec<u64> = there.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(numbers, (1..=there.len() as u64).collect::<Vec<_>>());
    }
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Pending {
    notifications: Vec<u64>,
}

/// What an agent does in a run, step by step: fact, ledger, pending notifications, and an
/// acknowledgement now and then.
fn script(disk: &Disk, directory: &Path, done: &mut dyn FnMut(u64)) {
    let mut log = open(disk, &directory.join("log"), "one").unwrap().log;
    let mut ledger = Journal::<u64, String>::open(disk, &directory.join("ledger")).unwrap().journal;
    let slot = StateFile::<Pending>::new(disk, directory.join("pending"), 0o600);
    let mut value = Pending::default();
    for step in 1..=STEPS {
        log.append(said(&format!("fact {step}")), now()).unwrap();
        ledger.apply(vec![(step, Some("x".repeat(200))), (step.saturating_sub(5), None)]).unwrap();
        value.notifications.push(step);
        slot.store(&value).unwrap();
        if step % 4 == 0 {
            log.ack(step - 2).unwrap();
        }
        done(step);
    }
}

fn check(directory: &Path, done: u64, when: &str) {
    let disk = Disk::new();
    let opened = open(&disk, &directory.join("log"), "two").unwrap();
    assert_eq!(opened.repairs, Vec::<String>::new(), "{when}");
    let log = opened.log;
    let there = pending(&log);
    let last = there.last().map_or(log.acked(), |(seq, _)| *seq);
    assert!(last == done || last == done + 1, "{when}: {done} steps were done, the last fact is {last}");
    let expected: Vec<_> = (log.acked() + 1..=last).map(|seq| (seq, format!("fact {seq}"))).collect();
    assert_eq!(there, expected, "{when}");
    let acked = (done / 4 * 4).saturating_sub(2);
    assert!(log.acked() >= acked, "{when}: acknowledged up to {acked}");

    let opened = Journal::<u64, String>::open(&disk, &directory.join("ledger")).unwrap();
    assert_eq!(opened.repairs, Vec::<String>::new(), "{when}");
    let keys: Vec<u64> = opened.journal.entries().keys().copied().collect();
    let after = |step: u64| (step.saturating_sub(4).max(1)..=step).collect::<Vec<_>>();
    assert!(keys == after(done) || keys == after(done + 1), "{when}: the ledger has {keys:?}");

    let loaded = StateFile::<Pending>::new(&disk, directory.join("pending"), 0o600).load().unwrap();
    assert_eq!(loaded.set_aside, None, "{when}");
    let steps = loaded.value.unwrap_or_default().notifications;
    let expected: Vec<u64> = (1..=steps.len() as u64).collect();
    assert_eq!(steps, expected, "{when}");
    assert!(steps.len() as u64 == done || steps.len() as u64 == done + 1, "{when}");
}

#[test]
fn killed_at_every_point() {
    if let Some(directory) = in_child() {
        let point = std::env::var(POINT).unwrap().parse().unwrap();
        script(&fault_at(point, FaultAction::Abort), &directory, &mut acknowledge);
        return;
    }
    let directory = common::tempdir();
    let disk = Disk::new();
    script(&disk, directory.path(), &mut |_| {});
    check(directory.path(), STEPS, "not killed");
    for point in 0..disk.points() {
        let directory = common::tempdir();
        let output =
            child("killed_at_every_point", directory.path()).env(POINT, point.to_string()).output().unwrap();
        assert!(!output.status.success(), "the child was not killed at point {point}");
        let text = String::from_utf8_lossy(&output.stdout);
        let done = text.lines().filter_map(acknowledged).next_back().unwrap_or(0);
        check(directory.path(), done, &format!("killed at point {point}"));
    }
}
