//! CNV-5, CNV-10, CFG-4: pending notifications, the ledger and unsent facts survive
//! `kill -9` at any moment. A real process runs the agent's apply and ends itself, without
//! unwinding or flushing, at the n-th persistence point, for every n there is; then the
//! agent runs again undisturbed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use model::PathState;
use std::path::Path;

use agent::machine::Machine;
use agent::state::StateDir;
use agent::verbs::run_once;
use converge::{Prior, RunMode, RunScope};
use model::log::FactBody;
use test_support::agent_state::{adopt, file, handler, join, machine_options, module, verify};
use test_support::kills::{doomed, killed};

/// Far more than one apply has; reaching it means that the loop below does not end.
const MOST_POINTS: u64 = 500;

/// What the parent starts this test binary for; a plain test run finds nothing to do.
#[test]
fn child() {
    let Some((disk, dir)) = doomed() else { return };
    let (state, root) = (dir.join("state"), dir.join("root"));
    let machine =
        Machine::open_at(&machine_options(&state, &root, true), &StateDir::at(&state, disk)).unwrap();
    let report = run_once(&machine, RunMode::Apply, RunScope::All).unwrap();
    assert_eq!(report.counts.failed, 0, "{report:#?}");
}

fn prepare(state: &Path, root: &Path) {
    join(state, root, true);
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::write(root.join("etc/app.conf"), "as the distribution left it\n").unwrap();
    let mut app = module("app");
    let mut conf = file("/etc/app.conf", "port = 80\n");
    conf.notify = vec!["reload".to_owned()];
    let mut extra = file("/etc/app.d.conf", "extra\n");
    extra.notify = vec!["reload".to_owned()];
    app.resources = vec![conf, extra];
    app.verify = verify("grep -q port $MUSTER_ROOT/etc/app.conf");
    app.handlers = vec![handler("reload", "cat $MUSTER_ROOT/etc/app.conf >> $MUSTER_ROOT/reloaded")];
    adopt(state, 1, vec![app]);
}

#[test]
fn nothing_owed_is_forgotten() {
    let mut killed_at = 0;
    for point in 0..MOST_POINTS {
        let dir = tempfile::tempdir().unwrap();
        let (state, root) = (dir.path().join("state"), dir.path().join("root"));
        prepare(&state, &root);
        let was_killed = killed(dir.path(), point);
        killed_at += u64::from(was_killed);
        settle_and_check(&state, &root, point);
        if !was_killed {
            println!("killed at {killed_at} points, each followed by a run that owed nothing afterwards");
            assert!(killed_at > 20, "only {killed_at} points: the faults do not reach what they should");
            return;
        }
    }
    panic!("more than {MOST_POINTS} persistence points in one apply");
}

fn settle_and_check(state: &Path, root: &Path, point: u64) {
    let machine = Machine::open(&machine_options(state, root, true)).unwrap();
    let report = run_once(&machine, RunMode::Apply, RunScope::All).unwrap();
    assert_eq!(report.counts.failed, 0, "point {point}: {report:#?}");
    assert_eq!(read(root, "etc/app.conf"), "port = 80\n", "point {point}");
    assert_eq!(read(root, "etc/app.d.conf"), "extra\n", "point {point}");
    // The handler ran after the last change: it saw the new content.
    assert!(read(root, "reloaded").ends_with("port = 80\n"), "point {point}: the handler is owed still");
    let pending = machine.durable.pending().unwrap();
    assert!(pending.is_empty(), "point {point}: {pending:?}");
    // The ledger knows what was there before Muster, with its bytes.
    let ledger = machine.durable.ledger().unwrap();
    assert_eq!(ledger.entries.len(), 2, "point {point}: {ledger:?}");
    let conf = ledger.entries.values().find(|entry| entry.path == "/etc/app.conf").unwrap();
    let Prior::Path(PathState::File { digest, .. }) = conf.prior else { panic!("point {point}: {conf:?}") };
    assert!(conf.kept, "point {point}");
    assert_eq!(machine.durable.content(&digest).unwrap(), b"as the distribution left it\n", "point {point}");
    // Facts wait in order from 1, and the newest says what the last run came to.
    let facts = machine.durable.facts(100, 1 << 20).unwrap();
    let seqs: Vec<u64> = facts.iter().map(|fact| fact.seq).collect();
    assert_eq!(seqs, (1..=facts.len() as u64).collect::<Vec<_>>(), "point {point}");
    assert!(matches!(facts.last().unwrap().body, FactBody::Run(_)), "point {point}");
    // And a run after that changes nothing.
    let again = run_once(&machine, RunMode::Apply, RunScope::All).unwrap();
    assert_eq!((again.counts.changed, again.counts.failed), (0, 0), "point {point}: {again:#?}");
}

fn read(root: &Path, path: &str) -> String {
    std::fs::read_to_string(root.join(path)).unwrap_or_default()
}
