//! ENR-9, ENR-5, CFG-8, IDN-10: the real programs. Hosts join without a token, by a group token and by a declared key; an
//! operator approves and denies them; a cloned disk is noticed, and decided of; an agent that is too old is told so.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::Output;

use test_support::programs::{Host, Prefix, Server, text, write, write_repo};
use test_support::wait::until_blocking as until;

/// The arguments of a join without a token, as an operator's machine prints them.
fn address(server: &Server) -> Vec<String> {
    let data = server.dir.to_str().unwrap();
    let printed = server.ok(&["token", "address", "--data", data]);
    let command = printed.trim().strip_prefix("muster-agent ").unwrap().to_owned();
    command.split(' ').map(str::to_owned).collect()
}

fn ask(host: &Host, address: &[String], more: &[&str]) -> Output {
    let mut arguments: Vec<&str> = address.iter().map(String::as_str).collect();
    arguments.extend(["--hostname", &host.name]);
    arguments.extend(more);
    host.run(&arguments)
}

fn fingerprint(host: &Host) -> String {
    text(&host.run(&["fingerprint"]).stdout).trim().to_owned()
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

#[test]
fn operators_decide_who_joins_and_which_copy_counts() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, repo) = (temp.path(), temp.path().join("repo"));
    let mut server = Server::new(dir, &["127.0.0.1"], "127.0.0.1", &Prefix::new());
    let _control = server.start();
    write_repo(&repo, "hello");
    let address = address(&server);

    // Without a token: it waits, is shown with its key, and is let in.
    let one = Host::new(dir, "web-1", &Prefix::new());
    let early = ask(&one, &address, &["--wait", "0s"]);
    assert_eq!(early.status.code(), Some(5), "{}", text(&early.stderr));
    assert!(text(&early.stderr).contains("join-pending"), "{}", text(&early.stderr));
    assert!(!one.dir.join("state/membership.json").exists());
    let pending = server.ok(&["node", "list", "--pending"]);
    assert!(pending.contains("web-1") && pending.contains(&fingerprint(&one)), "{pending}");
    let unasked = server.muster(&["node", "approve", "web-1"]);
    assert!(!unasked.status.success(), "nobody can be asked here");
    server.ok(&["node", "approve", "web-1", "--yes"]);
    let joined = ask(&one, &address, &[]);
    assert!(joined.status.success(), "{}", text(&joined.stderr));
    server.publish(&repo);
    let running = one.start();
    one.until_read("etc/hello", "hello web-1\n");
    server.until_state("web-1", "converged");
    let node = server.node("web-1");
    assert_eq!(node["keyConfirmation"], "operator");
    assert_eq!(node["capabilities"]["checksum"].as_str().unwrap().len(), 64, "{node}");
    let shown = server.ok(&["node", "show", "web-1"]);
    assert!(shown.contains("sha256 ") && shown.contains("an operator's approval"), "{shown}");

    // By a group token, that names no host: two wait, one is denied.
    let data = server.dir.to_str().unwrap();
    let mint = ["token", "mint", "--group", "web-*", "--uses", "2", "--label", "pool=web", "--data", data];
    let token = server.ok(&mint).trim().to_owned();
    let (two, three) = (Host::new(dir, "web-2", &Prefix::new()), Host::new(dir, "web-3", &Prefix::new()));
    let by_token =
        |host: &Host| host.run(&["join", "--token", &token, "--hostname", &host.name, "--wait", "0s"]);
    for host in [&two, &three] {
        let output = by_token(host);
        assert!(text(&output.stderr).contains("join-pending"), "{}", text(&output.stderr));
    }
    server.ok(&["node", "approve", "web-2", "--yes"]);
    server.ok(&["node", "deny", "web-3", "--yes"]);
    assert!(by_token(&two).status.success());
    let denied = by_token(&three);
    assert!(text(&denied.stderr).contains("join-denied"), "{}", text(&denied.stderr));
    assert_eq!(server.node("web-2")["joinLabels"]["pool"], "web");
    server.ok(&["node", "deny", "web-3", "--forget", "--yes"]);
    let bad = server
        .muster(&["token", "mint", "--group", "web-*", "--uses", "2", "--label", "pool", "--data", data]);
    assert!(text(&bad.stderr).contains("NAME=VALUE"), "{}", text(&bad.stderr));

    // By a key that the fleet repo declares: nobody approves it, and no other gets in.
    let db = Host::new(dir, "web-9", &Prefix::new());
    let nodes = format!(
        "nodes:\n  - match: [web-9]\n    modules: [hello]\n    key: {}\n  - match: [\"web-*\"]\n    modules: [hello]\n",
        fingerprint(&db)
    );
    write(&repo.join("nodes.yaml"), &nodes);
    server.publish(&repo);
    let thief = Host::new(&dir.join("elsewhere"), "web-9", &Prefix::new());
    let refused = ask(&thief, &address, &["--wait", "0s"]);
    assert!(text(&refused.stderr).contains("key-not-declared"), "{}", text(&refused.stderr));
    let declared = ask(&db, &address, &["--wait", "0s"]);
    assert!(declared.status.success(), "{}", text(&declared.stderr));
    assert_eq!(server.node("web-9")["keyConfirmation"], "declared");

    // A cloned disk: noticed, told on both sides, decided.
    let clone = Host::new(&dir.join("clone"), "web-1", &Prefix::new());
    copy(&one.dir.join("state"), &clone.dir.join("state"));
    let copied = clone.start();
    until("the copy is noticed", || server.node("web-1")["copiedSince"].is_string().then_some(()));
    write_repo(&repo, "later");
    write(&repo.join("nodes.yaml"), &nodes);
    server.publish(&repo);
    until("the host says so", || text(&one.run(&["status"]).stdout).contains("COPIED").then_some(()));
    assert_eq!(one.read("etc/hello"), "hello web-1\n", "it keeps what it holds, and gets no release");
    drop(copied);
    let prepared = clone.run(&["prepare-image", "--yes"]);
    assert!(prepared.status.success(), "{}", text(&prepared.stderr));
    server.ok(&["node", "approve", "web-1", "--copy-resolved", "--yes"]);
    one.until_read("etc/hello", "later web-1\n");
    drop(running);

    // The fleet takes no agent as old as this.
    let fleet = std::fs::read_to_string(repo.join("fleet.yaml")).unwrap();
    write(&repo.join("fleet.yaml"), &format!("{fleet}minimum_agent: 99.0.0\n"));
    server.publish(&repo);
    let _running = one.start();
    until("the operator sees it", || {
        server.ok(&["node", "show", "web-1"]).contains("older than fleet.yaml takes").then_some(())
    });
    let status = text(&one.run(&["status"]).stdout);
    assert!(status.contains("install muster-agent 99.0.0"), "{status}");
}
