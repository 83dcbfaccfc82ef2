//! OPS-1: what the agent tells people to type acts on the host that they asked about, and is true there:
//! before the host joined, where no entry matches it, where a daemon runs already.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Output;

use test_support::programs::{Host, Prefix, Server, text, write, write_repo};
use test_support::wait::until_blocking as until;

/// How each of these commands has to begin.
fn called(host: &Host) -> String {
    format!("muster-agent --state {0}/state --root {0}/root", host.dir.display())
}

/// What was printed, on either stream.
fn printed(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

/// Runs a verb, which must end with this code; gives what it printed.
#[track_caller]
fn typed(host: &Host, arguments: &[&str], code: i32) -> String {
    let output = host.run(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", printed(&output));
    printed(&output)
}

#[track_caller]
fn has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in: {text}");
}

#[test]
fn a_host_that_has_not_joined_is_told_how() {
    let temp = tempfile::tempdir().unwrap();
    let host = Host::new(temp.path(), "web-1", &Prefix::new());
    let join = format!("{} join --token-file FILE", called(&host));
    has(&typed(&host, &["status"], 1), &format!("hint: join first: {join}"));
    has(&typed(&host, &["daemon"], 1), &format!("hint: join first: {join}"));
    has(&typed(&host, &["doctor"], 1), &format!("next: {join}"));
}

#[test]
fn hosts_that_are_not_named_paused_or_have_a_daemon_are_told_so() {
    let temp = tempfile::tempdir().unwrap();
    let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
    let _control = server.start();
    let host = Host::new(temp.path(), "db-1", &Prefix::new());
    server.token("db-1", &host.token_file());
    host.join();
    has(
        &typed(&host, &["status"], 1),
        &format!("does not run: nothing is kept as declared ({} daemon)", called(&host)),
    );
    has(
        &typed(&host, &["apply"], 1),
        &format!("hint: {0} daemon; for one run without it: {0} apply --once", called(&host)),
    );
    // What is published names others.
    write_repo(&temp.path().join("repo"), "hello");
    server.publish(&temp.path().join("repo"));
    let _daemon = host.start();
    let unassigned = "the control plane answers, and no entry of what is published matches";
    let status = until("it is told that nothing names it", || {
        let status = printed(&host.run(&["status"]));
        status.contains("RELEASE").then_some(status)
    });
    has(&status, &format!("RELEASE        NONE: {unassigned} db-1"));
    has(&status, "next: where the fleet repo is, add an entry for it to nodes.yaml, then muster publish");
    let doctor = printed(&host.run(&["doctor"]));
    has(&doctor, &format!("warn  release          {unassigned} db-1"));
    let log = std::fs::read_to_string(host.dir.join("agent.log")).unwrap();
    assert_eq!(log.matches(unassigned).count(), 1, "{log}");

    // What it holds stays in force when it is named no more, and both sides say so.
    let nodes = temp.path().join("repo/nodes.yaml");
    let others = std::fs::read_to_string(&nodes).unwrap();
    write(&nodes, &format!("{others}  - match: [db-1]\n    modules: [hello]\n"));
    server.publish(&temp.path().join("repo"));
    server.until_state("db-1", "converged");
    write(&nodes, &others);
    server.publish(&temp.path().join("repo"));
    server.until_state("db-1", "unassigned");
    let held = format!("RELEASE        NONE: {unassigned} db-1: release 2, which it holds, stays in force");
    until("it is told that nothing names it any more", || {
        printed(&host.run(&["status"])).contains(&held).then_some(())
    });
    has(
        &server.ok(&["node", "show", "db-1"]),
        "no entry of the fleet repo matches this hostname any more; it keeps converging on release 2, which it holds",
    );

    let second = typed(&host, &["daemon"], 1);
    has(&second, "a daemon runs here already, as process ");
    has(&second, &format!("hint: {} status shows how it does", called(&host)));
    let paused = typed(&host, &["pause", "--reason", "a ticket"], 0);
    has(&paused, &format!("to go on: {} resume", called(&host)));
    has(&typed(&host, &["status"], 0), &format!("to go on: {} resume", called(&host)));
    let bundle = temp.path().join("bundle.tar.gz");
    let wrote = typed(&host, &["bundle", "--output", bundle.to_str().unwrap()], 0);
    has(&wrote, &format!("wrote {}, ", bundle.display()));
    has(&wrote, " KiB: README.txt, versions.txt, status.txt");
}
