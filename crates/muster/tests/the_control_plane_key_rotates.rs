//! IDN-9, IDN-8: the runbook "the control-plane key comes, changes, was stolen" of docs/keys.md, with the real programs:
//! objects reach a running agent before, with and after each key, over streams and polls; a key that is not in its place
//! is told, and nothing unproven is taken meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use test_support::programs::{Host, Prefix, Running, Server, write};
use test_support::wait::until_blocking as until;

const FOLDER: &str = "/srv/manifests";

struct SynchronizedFleet {
    temp: tempfile::TempDir,
    server: Server,
    host: Host,
}

impl SynchronizedFleet {
    fn new(transport: &str) -> (SynchronizedFleet, [Running; 2]) {
        let temp = tempfile::tempdir().unwrap();
        let mut server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
        let running = server.start();
        let repo = temp.path().join("repo");
        write_fleet(&repo, transport);
        server.publish(&repo);
        let host = Host::new(temp.path(), "edge-1", &Prefix::new());
        server.token("edge-1", &host.token_file());
        host.join();
        let agent = host.start();
        (SynchronizedFleet { temp, server, host }, [running, agent])
    }

    fn file(&self, name: &str) -> String {
        self.temp.path().join(name).to_str().unwrap().to_owned()
    }

    fn data(&self, name: &str) -> PathBuf {
        self.server.dir.join(name)
    }

    fn apply(&self, object: &str, text: &str) {
        let manifest = self.temp.path().join("manifest.yaml");
        let content =
            format!("kind: Item\nmetadata: {{namespace: edge-1, name: {object}}}\nspec: {{text: {text}}}\n");
        write(&manifest, &content);
        self.server.ok(&["object", "apply", "-f", manifest.to_str().unwrap()]);
    }

    fn read(&self, object: &str) -> Option<String> {
        std::fs::read_to_string(self.host.path(FOLDER).join(format!("item/edge-1/{object}.yaml"))).ok()
    }

    fn until_there(&self, object: &str, text: &str) {
        until(&format!("{object} says {text} on the node"), || {
            self.read(object)?.contains(text).then_some(())
        });
    }

    /// The node holds this version of the trust document.
    fn until_all_hold(&self, version: u64) {
        until(&format!("the node holds trust document {version}"), || {
            let holding = self.server.json(&["key", "show"])["holding"].clone();
            (holding[0]["version"] == version && holding[0]["nodes"] == 1).then_some(())
        });
    }

    /// What the node's agent says of its link.
    fn status(&self) -> String {
        String::from_utf8(self.host.run(&["status"]).stdout).unwrap()
    }
}

fn write_fleet(repo: &Path, transport: &str) {
    let channel = format!("  edge: {{contact: 1s, jitter: 10%, freshness: 24h, transport: {transport}}}\n");
    let sync = format!("  edge: {{nodes: [\"edge-*\"], mode: managed, kinds: [Item], folder: {FOLDER}}}\n");
    write(&repo.join("fleet.yaml"), &format!("format: 1\nname: e2e\nchannels:\n{channel}sync:\n{sync}"));
    write(&repo.join("nodes.yaml"), "nodes:\n  - {match: [edge-1], channel: edge}\n");
}

#[test]
fn the_planned_rotation_of_the_runbook() {
    for transport in ["auto", "poll"] {
        let (fleet, _running) = SynchronizedFleet::new(transport);
        fleet.apply("before", "unsigned");
        fleet.until_there("before", "unsigned");
        // Its first key: what was given before is signed at once.
        fleet.server.ok(&["key", "rotate", "control-plane"]);
        assert!(fleet.server.ok(&["key", "show"]).contains("control-plane ed25519:"));
        fleet.until_all_hold(2);
        fleet.apply("kept", "one");
        fleet.until_there("kept", "one");
        // Lab posture: the key lies in the directory, and is changed there.
        let old = std::fs::read_to_string(fleet.data("control-plane.key")).unwrap();
        fleet.server.ok(&["key", "rotate", "control-plane"]);
        assert_eq!(std::fs::read_to_string(fleet.data("control-plane.key.previous")).unwrap(), old);
        fleet.apply("second", "two");
        fleet.until_there("second", "two");
        fleet.server.ok(&["key", "retire", "control-plane"]);
        fleet.apply("kept", "three");
        fleet.until_there("kept", "three");
        fleet.until_there("second", "two");
    }
}

#[test]
fn a_stolen_key_counts_no_more_and_one_that_is_not_there_is_told() {
    let (fleet, [running, _agent]) = SynchronizedFleet::new("auto");
    fleet.server.ok(&["key", "rotate", "control-plane"]);
    fleet.until_all_hold(2);
    fleet.apply("kept", "one");
    fleet.until_there("kept", "one");
    let (new, root) = (fleet.file("new.key"), fleet.data("root.key"));
    fleet.server.ok(&["key", "new", &new]);
    let rotate = [
        "key",
        "rotate",
        "control-plane",
        "--to",
        &new,
        "--drop-previous",
        "--root-key",
        root.to_str().unwrap(),
    ];
    let told = fleet.server.ok(&rotate);
    assert!(told.contains("control-plane.key"), "{told}");
    until("the control plane says that its key is not there", || {
        let said = fleet.server.ok(&["status"]);
        said.contains("nodes take no new objects and actions").then_some(())
    });
    assert!(running.log().contains("what nodes are given is not signed as they believe it"));
    fleet.until_all_hold(3);
    fleet.apply("kept", "unproven");
    until("the node says why it takes nothing", || {
        fleet.status().contains("not the control plane's word").then_some(())
    });
    assert!(fleet.read("kept").unwrap().contains("one"));
    std::fs::copy(&new, fleet.data("control-plane.key")).unwrap();
    fleet.until_there("kept", "unproven");
}
