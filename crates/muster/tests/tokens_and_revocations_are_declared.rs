//! ENR-3, IDN-6, IDN-10, with the real programs: tokens and revocations are declared in the fleet repo, signed by
//! whoever publishes, and in force at the control plane; a revoked host is cut off, says so itself, keeps what it holds,
//! and returns by a token that is minted afterwards; a reinstalled one by a token that names its predecessor.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use serde_json::Value;
use test_support::programs::{Host, Prefix, Server, text, write, write_repo};
use test_support::wait::until_blocking as until;

/// A token for a host, in its file; `more` is typed too.
fn minted(server: &Server, host: &Host, more: &[&str]) -> Value {
    let token = ["token", "mint", &host.name, "--data", server.dir.to_str().unwrap()];
    let minted = server.json(&[&token[..], more].concat());
    write(&host.token_file(), minted["token"].as_str().unwrap());
    minted
}

fn refused(host: &Host, code: &str) {
    let output = host.run(&["join", "--token-file", host.token_file().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(text(&output.stderr).contains(code), "{}", text(&output.stderr));
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn who_may_join_is_declared_and_who_may_not_is_seen() {
    let temp = tempfile::tempdir().unwrap();
    let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
    let repo = temp.path().join("repo");
    let folder = repo.to_str().unwrap();
    let _server = server.start();
    write_repo(&repo, "one");
    let host = Host::new(temp.path(), "web-1", &Prefix::new());
    let minted_one = minted(&server, &host, &["--repo", folder]);
    let declared = read(&repo.join("tokens.yaml"));
    assert!(declared.starts_with("tokens:\n  - nonce: \""), "{declared}");
    assert!(declared.contains(minted_one["nonce"].as_str().unwrap()) && declared.contains("hostname: web-1"));
    // Nobody asks for a list before one was published.
    let dry = server.muster(&["publish", "--repo", folder, "--dry-run"]);
    assert_eq!(dry.status.code(), Some(2));
    assert!(text(&dry.stdout).contains("the first allowlist, of 1 token"), "{}", text(&dry.stdout));
    let published = server.json(&["publish", "--repo", folder, "--yes"]);
    assert!(published["lists"][0].as_str().unwrap().contains("first allowlist"), "{published}");
    host.join();

    let other = Host::new(temp.path(), "web-2", &Prefix::new());
    minted(&server, &other, &[]);
    refused(&other, "token-not-listed");
    let failed = server.json(&["node", "list", "--failed-joins"]);
    assert_eq!(
        (failed[0]["hostname"].as_str(), failed[0]["code"].as_str()),
        (Some("web-2"), Some("token-not-listed"))
    );
    let shown = server.ok(&["node", "list", "--failed-joins"]);
    assert!(shown.contains("enrollment failed") && shown.contains("web-2"), "{shown}");
    minted(&server, &other, &["--repo", folder]);
    refused(&other, "token-not-listed");
    let published = server.ok(&["publish", "--repo", folder, "--yes"]);
    assert!(published.contains("allowlist of 2 tokens: 1 new, 0 gone"), "{published}");
    other.join();
    // What is over stays declared, and is signed no more.
    let over = "  - nonce: \"over\"\n    expires_at: \"2020-01-01T00:00:00Z\"\n";
    write(&repo.join("tokens.yaml"), &(read(&repo.join("tokens.yaml")) + over));
    let published = server.ok(&["publish", "--repo", folder]);
    assert!(published.contains("nothing was published"), "{published}");
}

#[test]
fn a_revoked_host_is_cut_off_and_says_so() {
    let temp = tempfile::tempdir().unwrap();
    let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
    let repo = temp.path().join("repo");
    let folder = repo.to_str().unwrap();
    let _server = server.start();
    write_repo(&repo, "one");
    server.publish(&repo);
    let [host, other] = ["web-1", "web-2"].map(|name| Host::new(temp.path(), name, &Prefix::new()));
    let _agents = [&host, &other].map(|host| {
        minted(&server, host, &[]);
        host.join();
        let agent = host.start();
        server.until_state(&host.name, "converged");
        agent
    });

    let unasked = server.muster(&["node", "revoke", "web-1", "--repo", folder]);
    assert_eq!(unasked.status.code(), Some(5), "{}", text(&unasked.stderr));
    assert!(!repo.join("revocations.yaml").exists());
    let revoked =
        server.ok(&["node", "revoke", "web-1", "--repo", folder, "--why", "it is: \"gone\"", "--yes"]);
    assert!(revoked.contains("web-1 is revoked from") && revoked.contains("1 node cut off"), "{revoked}");
    let declared = read(&repo.join("revocations.yaml"));
    assert!(declared.contains("- host: web-1\n") && declared.contains("not_before: \""), "{declared}");
    assert!(server.ok(&["check", folder]).contains("is right"));

    let node = server.node("web-1");
    assert_eq!(node["state"], "revoked");
    assert!(node["cause"].as_str().unwrap().contains("counts no more: it is: \"gone\""), "{node}");
    let status = server.ok(&["status"]);
    assert!(status.contains("1 revoked"), "{status}");
    let shown = until("the host says that it is revoked", || {
        let output = host.run(&["status"]);
        let shown = text(&output.stdout);
        (output.status.code() == Some(5) && shown.contains("revoked")).then_some(shown)
    });
    assert!(shown.contains("muster token mint web-1"), "{shown}");
    // It keeps what it holds, and gets nothing new.
    host.edit("/etc/hello", "by hand\n");
    host.until_read("/etc/hello", "one web-1\n");
    write_repo(&repo, "two");
    let published = server.ok(&["publish", "--repo", folder, "--yes"]);
    assert!(!published.contains("revoked"), "it is declared as it is: {published}");
    other.until_read("/etc/hello", "two web-2\n");
    assert_eq!(host.read("/etc/hello"), "one web-1\n");

    minted(&server, &host, &[]);
    host.join();
    host.until_read("/etc/hello", "two web-1\n");
    server.until_state("web-1", "converged");

    // One that is declared nowhere may be revoked beforehand; check names it.
    server.ok(&["node", "revoke", "db-9", "--repo", folder, "--yes"]);
    let checked = server.ok(&["check", folder]);
    assert!(
        checked.contains("warning: revocations.yaml:") && checked.contains("db-9 is revoked"),
        "{checked}"
    );
    // A set of another key is refused, and nothing is changed.
    let key = temp.path().join("other.key");
    server.ok(&["key", "new", key.to_str().unwrap()]);
    let of_another = ["node", "revoke", "web-2", "--repo", folder, "--key", key.to_str().unwrap(), "--yes"];
    let output = server.muster(&of_another);
    assert!(text(&output.stderr).contains("list-signature"), "{}", text(&output.stderr));
    server.until_state("web-2", "converged");
    // What is taken out of the file is revoked no more.
    std::fs::write(repo.join("revocations.yaml"), "revocations: []\n").unwrap();
    let dry = server.muster(&["publish", "--repo", folder, "--dry-run"]);
    assert!(text(&dry.stdout).contains("revoked no more: db-9, web-1"), "{}", text(&dry.stdout));
}

#[test]
fn a_reinstalled_host_returns_by_a_token_that_names_it() {
    let temp = tempfile::tempdir().unwrap();
    let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
    let repo = temp.path().join("repo");
    let _server = server.start();
    write_repo(&repo, "one");
    server.publish(&repo);
    let host = Host::new(temp.path(), "web-1", &Prefix::new());
    minted(&server, &host, &[]);
    host.join();
    let before = server.node("web-1")["id"].clone();
    std::fs::remove_dir_all(host.dir.join("state")).unwrap();
    minted(&server, &host, &[]);
    refused(&host, "hostname-taken");
    let minted = server.json(&["node", "replace", "web-1"]);
    assert_eq!(minted["replaces"], before);
    write(&host.token_file(), minted["token"].as_str().unwrap());
    host.join();
    let _agent = host.start();
    server.until_state("web-1", "converged");
    assert_ne!(server.node("web-1")["id"], before);
    assert_eq!(server.json(&["status"])["nodes"], 1);
}
