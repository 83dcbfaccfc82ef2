//! OPS-2: work that is asked right after the publish that allows it is done: the node adopts that release
//! before it refuses. What no release allows is refused with the release that was held.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use test_support::programs::{Host, Prefix, Server, text, write};

/// A fleet whose nodes call every five seconds, and which delegates these commands.
fn write_fleet(repo: &Path, commands: &str) {
    let fleet = format!(
        "format: 1\nname: e2e\nchannels:\n  slow: {{contact: 5s, jitter: 10%, freshness: 24h}}\n\
         defaults: {{channel: slow}}\ndelegations:\n  ops:\n    nodes: [\"web-*\"]\n    commands: [{commands}]\n"
    );
    write(&repo.join("fleet.yaml"), &fleet);
    write(&repo.join("nodes.yaml"), "nodes:\n  - {match: [\"web-*\"]}\n");
}

#[test]
fn what_was_published_a_moment_ago_counts() {
    let temp = tempfile::tempdir().unwrap();
    let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
    let _control = server.start();
    let repo = temp.path().join("repo");
    write_fleet(&repo, "/bin/false");
    server.publish(&repo);
    let host = Host::new(temp.path(), "web-1", &Prefix::new()).with_commands();
    server.token("web-1", &host.token_file());
    host.join();
    let _daemon = host.start();
    server.until_state("web-1", "converged");
    for (round, (commands, argv)) in
        [("/bin/true", "/bin/true"), ("/bin/echo", "/bin/echo"), ("/bin/true", "/bin/true")]
            .iter()
            .enumerate()
    {
        write_fleet(&repo, commands);
        server.publish(&repo);
        let output = server.muster(&["task", "run", "web-1", "--", argv]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "round {round}: {said}");
    }
}
