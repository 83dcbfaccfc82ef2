//! EXE-2, CNV-6: under `--root` commands and scripts run only when allowed, with
//! MUSTER_ROOT set; else they are skipped with that reason. A plan touches nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use agent::machine::Machine;
use agent::verbs::run_once;
use converge::{RunMode, RunScope};
use model::Action;
use test_support::agent_state::{adopt, file, join, machine_options, module, resource};

fn set() -> Vec<catalog::module::Module> {
    let mut base = module("base");
    base.resources = vec![
        file("/etc/motd", "hello\n"),
        resource(
            "shell",
            "touch",
            &[("command", "touch $MUSTER_ROOT/ran".into()), ("creates", "/ran".into())],
        ),
    ];
    vec![base]
}

#[test]
fn commands_are_skipped_unless_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (dir.path().join("state"), dir.path().join("root"));
    join(&state, &root, false);
    std::fs::create_dir_all(root.join("etc")).unwrap();
    adopt(&state, 1, set());
    let machine = Machine::open(&machine_options(&state, &root, false)).unwrap();
    let report = run_once(&machine, RunMode::Apply, RunScope::All).unwrap();
    assert_eq!((report.counts.changed, report.counts.skipped), (1, 1), "{report:#?}");
    let skipped = report.items.iter().find(|item| item.action == Action::Skipped).unwrap();
    assert_eq!(skipped.reason.as_deref(), Some("confined to a directory (--root)"));
    assert!(!root.join("ran").exists());
}

#[test]
fn allowed_commands_see_the_root() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (dir.path().join("state"), dir.path().join("root"));
    join(&state, &root, true);
    std::fs::create_dir_all(root.join("etc")).unwrap();
    adopt(&state, 1, set());
    let machine = Machine::open(&machine_options(&state, &root, true)).unwrap();
    let report = run_once(&machine, RunMode::Apply, RunScope::All).unwrap();
    assert_eq!((report.counts.changed, report.counts.failed), (2, 0), "{report:#?}");
    assert!(root.join("ran").exists());
    let again = run_once(&machine, RunMode::Apply, RunScope::All).unwrap();
    assert_eq!((again.counts.ok, again.counts.changed), (2, 0), "{again:#?}");
}

#[test]
fn a_plan_predicts_and_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (dir.path().join("state"), dir.path().join("root"));
    join(&state, &root, true);
    std::fs::create_dir_all(root.join("etc")).unwrap();
    adopt(&state, 1, set());
    let machine = Machine::open(&machine_options(&state, &root, true)).unwrap();
    let report = run_once(&machine, RunMode::Plan, RunScope::All).unwrap();
    assert_eq!((report.counts.would_change, report.counts.changed), (2, 0), "{report:#?}");
    assert!(!root.join("etc/motd").exists() && !root.join("ran").exists());
    assert_eq!(machine.durable.facts_waiting(), 0, "a plan is no fact");
    assert!(machine.durable.ledger().unwrap().entries.is_empty());
}

#[test]
fn two_agents_cannot_share_a_state_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (dir.path().join("state"), dir.path().join("root"));
    join(&state, &root, false);
    let _first = Machine::open(&machine_options(&state, &root, false)).unwrap();
    let second = Machine::open(&machine_options(&state, &root, false)).err().unwrap();
    let text = agent::render::chain(&second);
    assert!(text.contains(&std::process::id().to_string()), "names the process that has it: {text}");
}
