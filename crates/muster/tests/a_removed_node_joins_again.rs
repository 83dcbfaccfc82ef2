//! ENR-7, CNV-3: a node is removed under its running daemon, which says so and keeps what it holds; it joins again
//! with a new token, and without a restart it is seen as it is: converged, with its runs, one node.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use test_support::programs::{Host, Prefix, Server, text, write_repo};
use test_support::wait::until_blocking as until;

#[test]
fn under_a_running_daemon_it_is_converged_again() {
    let temp = tempfile::tempdir().unwrap();
    let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
    let repo = temp.path().join("repo");
    let _server = server.start();
    write_repo(&repo, "one");
    server.publish(&repo);
    let host = Host::new(temp.path(), "web-1", &Prefix::new());
    server.token("web-1", &host.token_file());
    host.join();
    let mut agent = host.start();
    server.until_state("web-1", "converged");

    server.ok(&["node", "remove", "web-1", "--yes"]);
    let shown = until("the host says that it is unknown there", || {
        let output = host.run(&["status"]);
        let shown = text(&output.stdout);
        (output.status.code() == Some(5) && shown.contains("unknown-node")).then_some(shown)
    });
    assert!(shown.contains("muster token mint web-1"), "{shown}");
    assert_eq!(server.muster(&["node", "show", "web-1"]).status.code(), Some(1), "it is gone there");
    host.edit("/etc/hello", "by hand\n");
    host.until_read("/etc/hello", "one web-1\n");

    server.token("web-1", &host.token_file());
    host.join();
    server.until_state("web-1", "converged");
    let node = server.node("web-1");
    assert!(node["held"]["seq"] == 1 && node["lastRun"].is_string(), "{node}");
    assert_eq!(server.json(&["status"])["nodes"], 1);
    until("the host says that all is well", || {
        let output = host.run(&["status"]);
        (output.status.code() == Some(0) && !text(&output.stdout).contains("FAILED")).then_some(())
    });

    // What it does from now on is heard there, and what is published arrives.
    host.edit("/etc/hello", "by hand again\n");
    host.until_read("/etc/hello", "one web-1\n");
    until("its correction of drift is a fact", || {
        let facts = server.json(&["node", "facts", "web-1"]);
        facts.to_string().contains("/etc/hello").then_some(())
    });
    write_repo(&repo, "two");
    server.publish(&repo);
    host.until_read("/etc/hello", "two web-1\n");
    server.until_state("web-1", "converged");
    assert_eq!(server.node("web-1")["held"]["seq"], 2);
    assert!(agent.is_there(), "it is the same process all the time: {}", agent.log());
}
