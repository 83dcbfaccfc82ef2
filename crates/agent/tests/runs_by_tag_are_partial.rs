//! CFG-5, CNV-3: `muster-agent apply --once --tags` runs what is tagged and what that notifies;
//! it is reported and is not the run that was due. Loops, guards, predicates and retries work on
//! a host as they do in the core.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::Path;

use agent::machine::Machine;
use agent::verbs::run_once;
use catalog::module::{CommandLine, DeclaredResource, Module};
use converge::{RunMode, RunScope};
use lang::Value;
use model::report::PartialRun;
use test_support::agent_state::{adopt, file, join, machine_options, module, resource};

fn tags(names: &[&str]) -> RunScope {
    RunScope::Tags(names.iter().map(|name| (*name).to_owned()).collect())
}

fn machine(dir: &Path, modules: Vec<Module>) -> Machine {
    let (state, root) = (dir.join("state"), dir.join("root"));
    join(&state, &root, true);
    std::fs::create_dir_all(root.join("etc")).unwrap();
    adopt(&state, 1, modules);
    Machine::open(&machine_options(&state, &root, true)).unwrap()
}

fn shell(text: &str) -> Option<CommandLine> {
    Some(CommandLine::Shell(text.to_owned()))
}

fn set() -> Vec<Module> {
    let mut base = module("base");
    let list = Value::from(vec!["a", "b"]);
    base.resources = vec![
        DeclaredResource {
            foreach: Some(list),
            tags: BTreeSet::from(["loops".to_owned()]),
            ..file("/etc/${{ item }}.conf", "${{ key }}\n")
        },
        file("/etc/untagged", "x"),
        DeclaredResource {
            only_if: shell("test -e $MUSTER_ROOT/etc/a.conf"),
            not_if: shell("test -e $MUSTER_ROOT/etc/missing"),
            when: Some("dir_exists(\"/etc\") and not command_succeeds([\"false\"])".to_owned()),
            ..file("/etc/guarded", "x")
        },
    ];
    vec![base]
}

#[test]
fn a_run_by_tag_is_a_fact_and_not_the_last_run() {
    let dir = tempfile::tempdir().unwrap();
    let machine = machine(dir.path(), set());
    let etc = |name: &str| dir.path().join("root/etc").join(name);
    let plan = run_once(&machine, RunMode::Plan, tags(&["loops"])).unwrap();
    assert_eq!((plan.counts.would_change, plan.items.len()), (2, 2), "{plan:#?}");
    let report = run_once(&machine, RunMode::Apply, tags(&["loops"])).unwrap();
    assert_eq!((report.counts.changed, report.items.len()), (2, 2), "{report:#?}");
    assert_eq!(report.partial, Some(PartialRun::Tags(vec!["loops".into()])));
    assert_eq!(std::fs::read_to_string(etc("b.conf")).unwrap(), "1\n");
    assert!(!etc("untagged").exists());
    assert_eq!(machine.durable.facts_waiting(), 1, "what it changed is reported");
    assert!(machine.durable.last_run().unwrap().is_none(), "it is not the run that was due");
    let again = run_once(&machine, RunMode::Apply, tags(&["loops"])).unwrap();
    assert_eq!((again.counts.ok, machine.durable.facts_waiting()), (2, 1), "nothing new is no fact");
    let full = run_once(&machine, RunMode::Apply, RunScope::All).unwrap();
    assert_eq!((full.counts.ok, full.counts.changed, full.partial), (2, 2, None));
    assert!(etc("guarded").exists());
    assert!(machine.durable.last_run().unwrap().is_some());
}

#[test]
fn a_tag_that_nothing_has_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let machine = machine(dir.path(), set());
    let error = run_once(&machine, RunMode::Apply, tags(&["loop"])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no resource of this node has the tag `loop`; did you mean `loops`?; there are loops"
    );
}

#[test]
fn a_failure_that_passes_is_tried_until_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let mut base = module("base");
    // Fails until it has been tried twice.
    let command = "echo x >> $MUSTER_ROOT/tries; test $(wc -l < $MUSTER_ROOT/tries) -ge 3";
    base.resources = vec![DeclaredResource {
        retries: Some(3),
        retry_delay: Some(0),
        ..resource("shell", "slow", &[("command", command.into()), ("always", true.into())])
    }];
    let machine = machine(dir.path(), vec![base]);
    let report = run_once(&machine, RunMode::Apply, RunScope::All).unwrap();
    assert_eq!((report.counts.changed, report.counts.failed), (1, 0), "{report:#?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("root/tries")).unwrap().lines().count(), 3);
}

#[test]
fn a_wait_ends_when_the_agent_stops() {
    let dir = tempfile::tempdir().unwrap();
    let mut base = module("base");
    base.resources = vec![DeclaredResource {
        retries: Some(10),
        retry_delay: Some(600),
        ..resource("shell", "never", &[("command", "false".into()), ("always", true.into())])
    }];
    let machine = machine(dir.path(), vec![base]);
    machine.cancel.cancel();
    let report = run_once(&machine, RunMode::Apply, RunScope::All).unwrap();
    assert_eq!((report.counts.failed, report.items.len()), (1, 1), "{report:#?}");
}
