//! OPS-1: `muster-agent doctor` says of each step to the control plane whether it works, and of what does
//! not what to do; with and without the daemon, on a healthy host and on broken ones.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use model::replication::{Mode, TransportPolicy};
use serde_json::Value;
use test_support::agent_local::{LocalHost, printed};
use test_support::agent_pair::{Pair, says};
use test_support::agent_state::module;
use test_support::wait::until;

fn finding<'a>(diagnosis: &'a Value, subject: &str) -> &'a Value {
    let findings = diagnosis["findings"].as_array().unwrap();
    findings
        .iter()
        .find(|one| one["subject"].as_str().unwrap().starts_with(subject))
        .unwrap_or_else(|| panic!("nothing of {subject}: {diagnosis:#}"))
}

#[test]
fn a_control_plane_that_is_not_there_is_named_with_a_next_step() {
    let mut host = LocalHost::new(vec![module("base")]);
    let (code, text) = printed(&host.agent(&["doctor"]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("FAIL  TCP 127.0.0.1:1") && text.contains("next: nothing listens there"), "{text}");
    let diagnosis = host.json(&["doctor"]);
    assert_eq!(finding(&diagnosis, "daemon")["level"], "warn");
    assert_eq!(finding(&diagnosis, "certificate")["level"], "ok");
    assert_eq!(finding(&diagnosis, "name 127.0.0.1")["level"], "ok");
    for finding in diagnosis["findings"].as_array().unwrap() {
        assert_eq!(finding["level"] != "ok", finding["next"].is_string(), "{finding}");
    }
    host.start();
    let daemon = finding(&host.json(&["doctor"]), "daemon").clone();
    assert!(daemon["evidence"].as_str().unwrap().starts_with("runs since"), "{daemon}");
}

#[test]
fn a_host_that_has_not_joined_is_told_to() {
    let dir = tempfile::tempdir().unwrap();
    let program = test_support::children::program("muster-agent");
    // Nothing starts an agent before: each verb says what does.
    for verb in ["doctor", "status", "plan", "apply"] {
        let mut command = std::process::Command::new(&program);
        let output = command.arg("--state").arg(dir.path().join("none")).arg(verb).output().unwrap();
        let (code, text) = printed(&output);
        let text = text + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(code, Some(1), "{verb}: {text}");
        let next = format!("muster-agent --state {}/none join --token-file FILE", dir.path().display());
        assert!(text.contains(&next), "{verb}: {text}");
        assert!(!text.contains("systemctl start"), "{verb}: {text}");
    }
    assert!(!dir.path().join("none").exists(), "a look makes nothing");
}

/// Paths are of the directory that it was called in; commands to type next are good anywhere.
#[test]
fn paths_may_be_relative() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("host/var/lib/muster")).unwrap();
    std::fs::create_dir(dir.path().join("state")).unwrap();
    let called = |arguments: &[&str]| {
        let mut command = std::process::Command::new(test_support::children::program("muster-agent"));
        let output = command.args(arguments).arg("doctor").current_dir(dir.path()).output().unwrap();
        printed(&output).1
    };
    for (arguments, state, options) in [
        (&["--root", "host"][..], "host/var/lib/muster", "--root {}/host"),
        (&["--root", "./host"], "host/var/lib/muster", "--root {}/host"),
        (&["--state", "state"], "state", "--state {}/state"),
    ] {
        let text = called(arguments);
        let at = dir.path().join(state).display().to_string();
        let disk = text.lines().find(|line| line.contains("MiB free")).unwrap_or_else(|| panic!("{text}"));
        assert!(disk.ends_with(&format!(" at {at}")), "{text}");
        let join = format!("muster-agent {} join", options.replace("{}", &dir.path().display().to_string()));
        assert!(text.contains(&join), "{text}");
    }
    // Where there is none yet, the disk that it will lie on is looked at.
    let text = called(&["--state", "none/yet"]);
    let at = format!(" at {}", dir.path().display());
    assert!(text.lines().any(|line| line.contains("MiB free") && line.ends_with(&at)), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_host_has_no_failures() {
    let pair = Pair::new(&says(Mode::Off, None, TransportPolicy::Auto)).await;
    let daemon = pair.daemon();
    let diagnosis = until("all works", async || {
        let output = tokio::task::block_in_place(|| pair.agent(&["doctor", "--json"]));
        let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
        let answered = diagnosis.to_string().contains("near the control plane");
        (output.status.code() == Some(0) && answered).then_some(diagnosis)
    })
    .await;
    assert_eq!(finding(&diagnosis, "TLS")["level"], "ok", "{diagnosis:#}");
    assert_eq!(finding(&diagnosis, "daemon")["level"], "ok", "{diagnosis:#}");
    assert!(diagnosis.to_string().contains("it is near the control plane's"), "{diagnosis:#}");
    drop(daemon);
}
