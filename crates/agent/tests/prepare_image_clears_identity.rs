//! IDN-10: `muster-agent prepare-image` clears what makes a host one node, and nothing of the host; not while the agent
//! runs, and not by accident. A clone of the disk then has a key of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::Output;

use agent::prepare::{PrepareImageError, prepare_image};
use test_support::agent_state::{adopt, join, module};

use crate::stops_in_order::{certify, start, wait_for, wait_for_end};

fn run(state: &Path, root: &Path, arguments: &[&str]) -> Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_muster-agent"));
    command.arg("--state").arg(state).arg("--root").arg(root).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_prepared_host_is_nobody_and_keeps_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (dir.path().join("state"), dir.path().join("root"));
    join(&state, &root, true);
    certify(&state, &root);
    adopt(&state, 1, vec![module("m")]);
    std::fs::create_dir_all(root.join("etc/default")).unwrap();
    std::fs::write(root.join("etc/default/muster-agent"), "MUSTER_LOG=debug\n").unwrap();
    let fingerprint = |out: Output| text(&out.stdout);
    let before = fingerprint(run(&state, &root, &["fingerprint"]));

    // While the agent runs nothing is touched.
    let mut agent = start(&state, &root).spawn().unwrap();
    wait_for("the agent has its directory", &mut agent, || state.join("instance.json").exists());
    let refused = run(&state, &root, &["prepare-image", "--yes"]);
    assert!(!refused.status.success());
    let said = text(&refused.stderr);
    assert!(said.contains(&format!("process {}", agent.id())) && said.contains("stop it first"), "{said}");
    assert!(state.join("identity.key").exists());
    std::process::Command::new("kill").arg(agent.id().to_string()).status().unwrap();
    wait_for_end(&mut agent);

    // Not by accident either.
    let asked = run(&state, &root, &["prepare-image"]);
    assert!(!asked.status.success() && text(&asked.stderr).contains("prepare-image --yes"), "{asked:?}");
    assert!(state.join("identity.key").exists());

    let done = run(&state, &root, &["prepare-image", "--yes"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let said = text(&done.stdout);
    for name in
        ["identity.key", "membership.json", "adoption.json", "log", "ledger", "content", "instance.json"]
    {
        assert!(said.contains(name), "{name}: {said}");
    }
    let left: Vec<_> = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"], "nothing of it is left");
    assert_eq!(std::fs::read_to_string(root.join("etc/default/muster-agent")).unwrap(), "MUSTER_LOG=debug\n");
    let not_joined = run(&state, &root, &["status"]);
    assert!(!not_joined.status.success());
    assert_ne!(fingerprint(run(&state, &root, &["fingerprint"])), before, "a clone has a key of its own");
}

#[test]
fn there_may_be_nothing_to_clear() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = prepare_image(&dir.path().join("none"), true).unwrap();
    assert_eq!((nowhere.removed.len(), nowhere.ssh_host_key), (0, false));
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    assert_eq!(prepare_image(&state, false).unwrap().removed, Vec::<String>::new());
    std::fs::write(state.join("pause.json"), "damaged").unwrap();
    let error = prepare_image(&state, false).unwrap_err();
    assert!(matches!(error, PrepareImageError::Unconfirmed { count: 1, .. }), "{error}");
    assert_eq!(prepare_image(&state, true).unwrap().removed, ["pause.json"]);
}
