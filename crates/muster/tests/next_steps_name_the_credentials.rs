//! OPS-1: the next steps that the control plane makes reach it when they are pasted: what the CLI prints of them
//! names the credentials that it was called with. CFG-7: tags that a run was requested for in vain are in them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use test_support::programs::{Host, Prefix, Server, text, write_repo};
use test_support::wait::until_blocking as until;

#[test]
fn a_next_step_of_the_control_plane_works_when_it_is_pasted() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, repo) = (temp.path(), temp.path().join("repo"));
    let mut server = Server::new(dir, &["127.0.0.1"], "127.0.0.1", &Prefix::new());
    let _control = server.start();
    write_repo(&repo, "hello");
    server.publish(&repo);
    let host = Host::new(dir, "web-1", &Prefix::new());
    server.token("web-1", &host.token_file());
    host.join();
    let _daemon = host.start();
    server.until_state("web-1", "converged");
    let operator = dir.join("copy.json");
    std::fs::copy(server.dir.join("operator.json"), &operator).unwrap();
    let operator = operator.to_str().unwrap();

    server.ok(&["node", "run", "web-1", "--tags", "typo"]);
    let cause = "a run was requested, and no resource is tagged typo";
    let shown = until("the status names the tag", || {
        let status = text(&server.muster(&["status", "--operator", operator]).stdout);
        status.contains(cause).then_some(status)
    });
    let command = format!("muster node --operator {operator} show web-1");
    assert!(shown.contains(&format!("{command}; request it anew")), "{shown}");
    let pasted: Vec<&str> = command.split(' ').skip(1).collect();
    let node = server.muster(&pasted);
    assert_eq!(node.status.code(), Some(0), "{node:?}");
    assert!(text(&node.stdout).contains(cause), "{node:?}");

    // A request of tags that are there, or that are not known yet, is another story.
    server.ok(&["node", "run", "web-1", "--tags", "other"]);
    until("it is another's", || {
        let status = text(&server.muster(&["status"]).stdout);
        (status.contains("tagged other") && !status.contains("typo")).then_some(())
    });

    // Errors are told the same way.
    let nobody = server.muster(&["node", "run", "nobody-**", "--yes", "--operator", operator]);
    let hint = format!("`muster node --operator {operator} list` shows all");
    assert!(text(&nobody.stderr).contains(&hint), "{nobody:?}");
}
