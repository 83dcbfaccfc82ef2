//! IDN-8: release and root keys rotate under running agents, by the runbooks of docs/keys.md. A node that slept
//! through five rotations of both walks the chain and adopts the newest release; one whose root was rejected says so
//! on both sides, goes on converging, and comes back by a token. A mistake of an operator changes nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;
use test_support::programs::{Host, Prefix, Server, text, write_repo};
use test_support::wait::until_blocking as until;

struct RotatingFleet {
    temp: tempfile::TempDir,
    server: Server,
    repo: PathBuf,
}

impl RotatingFleet {
    fn new() -> RotatingFleet {
        let temp = tempfile::tempdir().unwrap();
        let server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
        let repo = temp.path().join("repo");
        RotatingFleet { temp, server, repo }
    }

    fn publish(&self, greeting: &str) {
        write_repo(&self.repo, greeting);
        self.server.publish(&self.repo);
    }

    fn host(&self, name: &str) -> Host {
        let host = Host::new(self.temp.path(), name, &Prefix::new());
        self.server.token(name, &host.token_file());
        host
    }

    fn joined(&self, name: &str) -> Host {
        let host = self.host(name);
        host.join();
        host
    }

    fn key(&self, arguments: &[&str]) -> Output {
        self.server.muster(&[&["key"], arguments].concat())
    }

    #[track_caller]
    fn rotate(&self, arguments: &[&str]) -> String {
        self.server.ok(&[&["key", "rotate"], arguments].concat())
    }

    fn version(&self) -> u64 {
        let shown = self.server.json(&["key", "show"]);
        shown["versions"].as_array().unwrap().last().unwrap()["document"]["version"].as_u64().unwrap()
    }

    /// Every node that was heard of holds the newest version.
    fn until_all_hold(&self, version: u64, nodes: u64) {
        until(&format!("{nodes} nodes hold trust document {version}"), || {
            let shown = self.server.json(&["key", "show"]);
            let holding = shown["holding"].as_array().unwrap().clone();
            (holding.len() == 1 && holding[0]["version"] == version && holding[0]["nodes"] == nodes)
                .then_some(())
        });
    }

    fn file(&self, name: &str) -> String {
        self.temp.path().join(name).to_str().unwrap().to_owned()
    }

    fn data(&self, name: &str) -> PathBuf {
        self.server.dir.join(name)
    }
}

#[track_caller]
fn refused(output: &Output, why: &str, next: &str) {
    let said = text(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{said}");
    assert!(said.contains(why) && said.contains(next), "{said}");
}

fn status(host: &Host) -> String {
    text(&host.run(&["status"]).stdout)
}

#[test]
fn a_node_that_slept_through_five_rotations_of_both_walks_the_chain() {
    let mut fleet = RotatingFleet::new();
    let running = fleet.server.start();
    fleet.publish("one");
    let host = fleet.joined("web-1");
    let agent = host.start();
    host.until_read("/etc/hello", "one web-1\n");
    fleet.server.until_state("web-1", "converged");
    fleet.until_all_hold(1, 1);
    agent.kill();
    // It names the first document, and is used after that is no longer the newest.
    let late = fleet.host("web-2");
    fleet.rotate(&["root"]);
    late.join();
    for step in 0..4 {
        fleet.rotate(if step % 2 == 0 { &["release"] } else { &["release", "--drop-previous"] });
        fleet.rotate(if step % 2 == 0 { &["root", "--drop-previous"] } else { &["root"] });
    }
    let told = fleet.rotate(&["release", "--drop-previous"]);
    assert!(
        told.contains("trust document 11: release key ") && told.contains("next: muster publish"),
        "{told}"
    );
    fleet.publish("two");
    assert_eq!(fleet.version(), 11);

    // The sleeper walks from the first, the one that joined late too; one that joins now begins at the newest.
    let _agent = host.start();
    host.until_read("/etc/hello", "two web-1\n");
    let late_agent = late.start();
    late.until_read("/etc/hello", "two web-2\n");
    let new = fleet.joined("web-3");
    let _new = new.start();
    new.until_read("/etc/hello", "two web-3\n");
    fleet.until_all_hold(11, 3);
    assert!(status(&host).contains("trust          document 11"), "{}", status(&host));
    assert!(status(&new).contains("trust          document 11"), "{}", status(&new));

    // Both sides keep it over a start, and a running agent follows without one.
    late_agent.kill();
    assert!(status(&late).contains("trust          document 11"), "{}", status(&late));
    running.kill();
    let _running = fleet.server.start();
    assert_eq!(fleet.version(), 11);
    let _late = late.start();
    fleet.rotate(&["release"]);
    fleet.until_all_hold(12, 3);
    fleet.publish("three");
    late.until_read("/etc/hello", "three web-2\n");
    host.until_read("/etc/hello", "three web-1\n");
}

/// Runbooks "rotate the release key" and "rotate the root key", in lab posture and with the keys elsewhere.
#[test]
fn the_planned_rotations_of_the_runbooks() {
    let mut fleet = RotatingFleet::new();
    let _running = fleet.server.start();
    fleet.publish("one");
    let host = fleet.joined("web-1");
    let _agent = host.start();
    host.until_read("/etc/hello", "one web-1\n");

    // Lab posture: the keys lie in the directory.
    let old = std::fs::read_to_string(fleet.data("release.key")).unwrap();
    fleet.rotate(&["release"]);
    assert_eq!(std::fs::read_to_string(fleet.data("release.key.previous")).unwrap(), old);
    fleet.until_all_hold(2, 1);
    refused(&fleet.key(&["retire", "release"]), "whose key would count no more", "muster publish");
    // A publisher that still has the key before is warned, and its release counts.
    let before = fleet.data("release.key.previous");
    let repo = fleet.repo.to_str().unwrap();
    write_repo(&fleet.repo, "by the previous key");
    let signed = ["publish", "--repo", repo, "--yes", "--key", before.to_str().unwrap()];
    let output = fleet.server.muster(&signed);
    assert!(output.status.success() && text(&output.stderr).contains("is the previous one"), "{output:?}");
    host.until_read("/etc/hello", "by the previous key web-1\n");
    // The same content again is signed anew with the current one.
    fleet.server.publish(&fleet.repo);
    fleet.server.ok(&["key", "retire", "release"]);
    fleet.until_all_hold(3, 1);
    refused(&fleet.server.muster(&signed), "do not believe the release key", "muster key show");
    fleet.publish("two");
    host.until_read("/etc/hello", "two web-1\n");

    // The keys lie elsewhere: a new one is made there and named.
    let elsewhere = |name: &str| {
        let to = fleet.file(name);
        std::fs::rename(fleet.data(name), &to).unwrap();
        to
    };
    let (root, _release) = (elsewhere("root.key"), elsewhere("release.key"));
    refused(&fleet.key(&["rotate", "release"]), "there is no root key", "--root-key FILE");
    let rotate = ["rotate", "release", "--root-key", &root];
    refused(&fleet.key(&rotate), "no new release key is named", "muster key new");
    let (new, public) = (fleet.file("release-2.key"), fleet.file("release-2.pub"));
    let printed = fleet.server.ok(&["key", "new", &new, "--algorithm", "ecdsa-p256"]);
    assert!(printed.starts_with("ecdsa-p256:"), "{printed}");
    std::fs::write(&public, &printed).unwrap();
    refused(&fleet.key(&["new", &new]), "there is a file", "name another file");
    // Its public half is enough.
    fleet.server.ok(&[&["key"], &rotate[..], &["--to", &public]].concat());
    write_repo(&fleet.repo, "three");
    fleet.server.ok(&["publish", "--repo", repo, "--yes", "--key", &new]);
    host.until_read("/etc/hello", "three web-1\n");
    let second = fleet.file("root-2.key");
    fleet.server.ok(&["key", "new", &second]);
    fleet.server.ok(&["key", "rotate", "root", "--root-key", &root, "--to", &second]);
    fleet.server.ok(&["key", "retire", "root", "--root-key", &second]);
    refused(&fleet.key(&["retire", "release", "--root-key", &root]), "is no root key", "muster key show");
    fleet.server.ok(&["key", "retire", "release", "--root-key", &second]);
    fleet.until_all_hold(7, 1);
    // Tokens are minted with the new root.
    let late = Host::new(fleet.temp.path(), "web-2", &Prefix::new());
    let enroll = fleet.data("enroll.json");
    let mint = |root: &str| {
        let enroll = enroll.to_str().unwrap();
        let token = ["token", "mint", "web-2", "--root-key", root, "--enroll", enroll, "--repo", repo];
        let token = fleet.server.json(&token);
        std::fs::write(late.token_file(), token["token"].as_str().unwrap()).unwrap();
    };
    mint(&root);
    let output = late.run(&["join", "--token-file", late.token_file().to_str().unwrap()]);
    refused(&output, "not signed by this fleet's root key", "");
    mint(&second);
    // Where the keys lie elsewhere nobody joins by a token that was not published.
    let output = late.run(&["join", "--token-file", late.token_file().to_str().unwrap()]);
    refused(&output, "no allowlist is published", "muster publish");
    fleet.server.ok(&["publish", "--repo", repo, "--yes", "--key", &new]);
    late.join();
}

/// Runbook "a release key was stolen".
#[test]
fn a_stolen_release_key_counts_no_more_at_once() {
    let mut fleet = RotatingFleet::new();
    let _running = fleet.server.start();
    fleet.publish("one");
    let host = fleet.joined("web-1");
    let _agent = host.start();
    host.until_read("/etc/hello", "one web-1\n");
    let stolen = fleet.file("stolen.key");
    std::fs::copy(fleet.data("release.key"), &stolen).unwrap();
    fleet.rotate(&["release", "--drop-previous"]);
    let repo = fleet.repo.to_str().unwrap();
    let thief = fleet.server.muster(&["publish", "--repo", repo, "--yes", "--key", &stolen]);
    refused(&thief, "do not believe the release key", "muster key show");
    // What is pointed to stays so until the next publish, and the control plane starts with it.
    fleet.until_all_hold(2, 1);
    assert_eq!(fleet.server.node("web-1")["held"]["seq"], 1);
    fleet.server.publish(&fleet.repo);
    until("the same content, signed anew", || (fleet.server.node("web-1")["held"]["seq"] == 2).then_some(()));
    fleet.server.until_state("web-1", "converged");
}

/// Runbook "the root key is lost or stolen".
#[test]
fn one_whose_root_was_rejected_says_so_and_comes_back_by_a_token() {
    let mut fleet = RotatingFleet::new();
    let running = fleet.server.start();
    fleet.publish("one");
    let host = fleet.joined("web-1");
    let _agent = host.start();
    host.until_read("/etc/hello", "one web-1\n");
    fleet.server.until_state("web-1", "converged");
    std::fs::remove_file(fleet.data("root.key")).unwrap();
    refused(&fleet.key(&["rotate", "root"]), "there is no root key", "--root-key FILE");
    refused(&fleet.key(&["rotate", "root", "--new-chain"]), "1 node will take", "--yes");
    assert_eq!(fleet.version(), 1, "nothing was changed");
    let told = fleet.rotate(&["root", "--new-chain", "--yes"]);
    assert!(told.contains("next: for each node: muster token mint"), "{told}");
    fleet.rotate(&["release", "--drop-previous"]);
    fleet.publish("two");

    until("the agent says so", || {
        let said = status(&host);
        (said.contains("newer ones are not followed: what follows trust document 1 is not signed")
            && said.contains("muster token mint web-1"))
        .then_some(())
    });
    until("the control plane says so", || {
        let status: Value = fleet.server.json(&["status"]);
        let causes = status["causes"].as_array().unwrap();
        causes
            .iter()
            .any(|cause| {
                cause["cause"].as_str().unwrap().contains("does not follow newer ones (trust-forged)")
                    && cause["next"].as_str().unwrap().contains("muster token mint web-1")
            })
            .then_some(())
    });
    assert_eq!(fleet.server.node("web-1")["refusedTrust"], "trust-forged");
    // It goes on converging on what it holds.
    host.edit("/etc/hello", "by hand");
    host.until_read("/etc/hello", "one web-1\n");
    // A token, while the agent runs.
    fleet.server.token("web-1", &host.token_file());
    host.join();
    host.until_read("/etc/hello", "two web-1\n");
    fleet.until_all_hold(3, 1);
    fleet.server.until_state("web-1", "converged");
    assert!(!status(&host).contains("not followed"), "{}", status(&host));
    // A backup carries the chain.
    let backup = fleet.file("fleet.backup");
    let data = fleet.server.dir.to_str().unwrap().to_owned();
    fleet.server.ok(&["backup", "--data", &data, &backup]);
    running.kill();
    fleet.server.ok(&["restore", &backup, "--data", &data, "--replace"]);
    let _running = fleet.server.start();
    assert_eq!(fleet.version(), 3);
}

#[test]
fn mistakes_change_nothing() {
    let mut fleet = RotatingFleet::new();
    let running = fleet.server.start();
    fleet.rotate(&["release"]);
    let (release, root) = (fleet.data("release.key"), fleet.data("root.key"));
    let [release, root] = [&release, &root].map(|path| path.to_str().unwrap());
    let links = std::fs::read(fleet.data("trust-links.json")).unwrap();
    let no_key = fleet.file("no.key");
    std::fs::write(&no_key, "hello\n").unwrap();
    for (arguments, why, next) in [
        (&["rotate", "release", "--to", release][..], "is the current one already", "muster key new"),
        (&["rotate", "release", "--to", root], "one key has one use", "muster key new"),
        (&["rotate", "root", "--root-key", release], "is no root key of trust document 2", "muster key show"),
        (&["rotate", "release", "--to", &no_key], "is no key file", "muster key new"),
        (&["retire", "root"], "there is no previous root key", ""),
        (&["rotate", "release", "--new-chain"], "only for the root key", ""),
        (&["rotate", "release", "--reject-before", "2999-01-01T00:00:00Z"], "that is in the future", ""),
        (&["rotate", "release", "--reject-before", "tomorrow"], "--reject-before", ""),
    ] {
        let output = fleet.key(arguments);
        let said = text(&output.stderr);
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        assert!(said.contains(why) && said.contains(next), "{arguments:?}: {said}");
    }
    assert_eq!(fleet.version(), 2);
    assert_eq!(std::fs::read(fleet.data("trust-links.json")).unwrap(), links);
    // A file that is half written changes nothing while the control plane runs, and it says so when it starts.
    std::fs::write(fleet.data("trust-links.json"), &links[..links.len() / 2]).unwrap();
    until("the log says so", || running.log().contains("the trust documents cannot be read").then_some(()));
    assert_eq!(fleet.version(), 2);
    refused(&fleet.key(&["rotate", "root"]), "trust-links.json", "");
    std::fs::write(fleet.data("trust-links.json"), &links).unwrap();
    fleet.rotate(&["root"]);
    assert_eq!(fleet.version(), 3);
}

/// What a beacon key signs reaches a host for as long as the key counts, and not a moment longer.
#[test]
fn a_beacon_key_comes_changes_and_is_dropped() {
    let mut fleet = RotatingFleet::new();
    let _running = fleet.server.start();
    fleet.publish("one");
    let host = fleet.joined("web-1");
    let agent = host.start();
    host.until_read("/etc/hello", "one web-1\n");
    let signed_at = || {
        let status: Value = serde_json::from_slice(&host.run(&["status", "--json"]).stdout).unwrap();
        status["release"]["signedAt"].as_str().unwrap().to_owned()
    };
    let kept = |name: &str| {
        let to = fleet.file(name);
        std::fs::copy(fleet.data("beacon.key"), &to).unwrap();
        to
    };
    let signs = |key: &str| fleet.server.muster(&["beacon", "--key", key]);
    let reaches = |key: &str| {
        let before = signed_at();
        let output = signs(key);
        assert!(output.status.success(), "{}", text(&output.stderr));
        until("the host has the newer beacon", || (signed_at() > before).then_some(()));
    };
    let by_nobody = |key: &str| refused(&signs(key), "believe no beacon of the key", "--key FILE");

    fleet.rotate(&["beacon"]);
    fleet.until_all_hold(2, 1);
    let first = kept("beacon-1.key");
    reaches(&first);
    fleet.rotate(&["beacon"]);
    fleet.until_all_hold(3, 1);
    let second = kept("beacon-2.key");
    reaches(&second);
    reaches(&first);
    fleet.server.ok(&["key", "retire", "beacon"]);
    fleet.until_all_hold(4, 1);
    by_nobody(&first);
    reaches(&second);
    // Stolen: what it signed before counts no more either, also where that is what is handed out.
    let limit = test_support::tls_server::now().to_string();
    fleet.rotate(&["beacon", "--drop-previous", "--reject-before", &limit]);
    fleet.until_all_hold(5, 1);
    by_nobody(&second);
    let before = signed_at();
    fleet.server.ok(&["beacon"]);
    until("the host has the newer beacon", || (signed_at() > before).then_some(()));
    fleet.server.until_state("web-1", "converged");
    assert!(!agent.log().contains("beacon-"), "none was refused: {}", agent.log());
}
