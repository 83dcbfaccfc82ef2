//! ROL-4, SEC-4: `muster prove` leads from the bytes at a path of a host to the fleet's root, and `muster verify` checks
//! that with the trust document or the root key alone, while nothing of the fleet runs. A control plane that holds the
//! release key and tells two hosts two stories is shown by what each of them exports.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use test_support::programs::{Host, Prefix, Server, muster, text, write, write_repo};
use test_support::wait::until_blocking as until;

struct ProvingFleet {
    temp: tempfile::TempDir,
    server: Server,
    repo: PathBuf,
}

impl ProvingFleet {
    fn new() -> ProvingFleet {
        let temp = tempfile::tempdir().unwrap();
        let server = Server::new(temp.path(), &["127.0.0.1"], "127.0.0.1", &Prefix::new());
        let repo = temp.path().join("repo");
        ProvingFleet { temp, server, repo }
    }

    /// `/etc/hello` depends on the node, `/etc/motd` on nothing of it.
    fn publish(&self, greeting: &str) -> u64 {
        write_repo(&self.repo, greeting);
        let motd = "resources:\n  - file: /etc/motd\n    source: motd\n  - file: /etc/secret\n    sensitive: true\n    \
                    content: hidden\n";
        write(&self.repo.join("modules/motd/module.yaml"), motd);
        write(&self.repo.join("modules/motd/files/motd"), "welcome\n");
        write(&self.repo.join("nodes.yaml"), "nodes:\n  - match: [\"web-*\"]\n    modules: [hello, motd]\n");
        let published = self.server.json(&["publish", "--repo", self.repo.to_str().unwrap(), "--yes"]);
        published["seq"].as_u64().unwrap()
    }

    fn joined(&self, name: &str) -> Host {
        let host = Host::new(self.temp.path(), name, &Prefix::new());
        self.server.token(name, &host.token_file());
        host.join();
        host
    }

    fn file(&self, name: &str) -> String {
        self.temp.path().join(name).to_str().unwrap().to_owned()
    }

    fn prove(&self, path: &str, out: &str) -> String {
        let out = self.file(out);
        self.server.ok(&["prove", "web-1", path, "--out", &out]);
        out
    }

    fn trust(&self) -> String {
        self.server.dir.join("trust.json").to_str().unwrap().to_owned()
    }
}

/// Without credentials, and nobody to ask.
fn verify(arguments: &[&str]) -> Output {
    Command::new(muster()).arg("verify").args(arguments).current_dir("/").env_clear().output().unwrap()
}

#[track_caller]
fn holds(arguments: &[&str]) -> String {
    let output = verify(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn fails(arguments: &[&str], why: &str) -> String {
    let output = verify(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(why), "{said}");
    text(&output.stdout)
}

fn edit(file: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut proof: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    change(&mut proof);
    let edited = format!("{file}.edited");
    std::fs::write(&edited, proof.to_string()).unwrap();
    edited
}

#[test]
fn from_bytes_on_disk_to_the_root_and_back() {
    use std::os::unix::fs::PermissionsExt;

    let mut fleet = ProvingFleet::new();
    let running = fleet.server.start();
    assert_eq!(fleet.publish("hello"), 1);
    let host = fleet.joined("web-1");
    let agent = host.start();
    host.until_read("/etc/motd", "welcome\n");
    host.until_read("/etc/hello", "hello web-1\n");
    fleet.server.until_state("web-1", "converged");
    let shown = fleet.server.ok(&["prove", "web-1", "/etc/motd"]);
    let steps: Vec<&str> = shown.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(steps, ["resource", "set", "selection", "release", "trust", "reported"], "{shown}");
    assert!(shown.contains("motd/file:/etc/motd of module motd declares it"), "{shown}");
    assert!(shown.contains("the node says that it holds this set, of release 1"), "{shown}");
    let (motd, hello) = (fleet.prove("/etc/motd", "motd.json"), fleet.prove("/etc/hello", "hello.json"));
    assert_eq!(std::fs::metadata(&motd).unwrap().permissions().mode() & 0o777, 0o600);
    let root_key = std::fs::read_to_string(fleet.trust()).unwrap();
    let root_key: Value = serde_json::from_str(&root_key).unwrap();
    let root_key = root_key["root"]["current"].as_str().unwrap().to_owned();
    let refused = fleet.server.muster(&["prove", "web-1", "/etc/secret"]);
    assert!(text(&refused.stderr).contains("is sensitive"), "{}", text(&refused.stderr));
    let refused = fleet.server.muster(&["prove", "web-1", "/etc/none"]);
    assert!(text(&refused.stderr).contains("nothing that the node gets declares /etc/none"));
    // From here on nothing of the fleet is asked.
    drop((agent, running));

    let on_disk = host.path("/etc/motd").to_str().unwrap().to_owned();
    let trust = fleet.trust();
    let said = holds(&[&motd, "--trust", &trust, "--bytes", &on_disk]);
    let steps: Vec<&str> = said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(steps, ["trust", "release", "selection", "set", "resource", "bytes"], "{said}");
    holds(&[&motd, "--root-key", &root_key]);
    holds(&[&hello, "--trust", &trust, "--bytes", host.path("/etc/hello").to_str().unwrap()]);
    // What depends on nothing of the node brings nothing of the node along.
    assert!(!std::fs::read_to_string(&motd).unwrap().contains("Params/"));
    assert!(std::fs::read_to_string(&hello).unwrap().contains("Params/"));

    host.edit("/etc/motd", "changed\n");
    let said = fails(&[&motd, "--trust", &trust, "--bytes", &on_disk], "bytes does not hold");
    assert!(said.contains("ok  resource") && !said.contains("ok  bytes"), "{said}");
    let forged = edit(&motd, |proof| {
        let content = proof["objects"][0]["content"].as_str().unwrap().replace("/etc/motd", "/etc/else");
        proof["objects"][0]["content"] = content.into();
    });
    fails(&[&forged, "--trust", &trust], "set does not hold");
    // Params that are left out where the content depends on them.
    let left_out = edit(&hello, |proof| {
        proof["objects"]
            .as_array_mut()
            .unwrap()
            .retain(|object| !object["key"].as_str().unwrap().starts_with("Params"));
    });
    fails(&[&left_out, "--trust", &trust], "depends on the node's params");
    let other = edit(&motd, |proof| proof["hostname"] = "web-2".into());
    holds(&[&other, "--trust", &trust]);
    let other = edit(&motd, |proof| proof["hostname"] = "db-2".into());
    fails(&[&other, "--trust", &trust], "selection does not hold");
    let newer = edit(&motd, |proof| proof["format"] = 2.into());
    fails(&[&newer, "--trust", &trust], "it has format 2");
    fails(
        &[&motd, "--root-key", "ed25519:6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw="],
        "trust does not hold",
    );
    fails(&[&trust, "--trust", &trust], "does not hold a proof");
    fails(&["/nonexistent", "--trust", &trust], "cannot read");
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// Whoever holds all keys of a control plane, the release key among them, publishes one release to one host, and
/// another one of the same number to the other.
#[test]
fn a_control_plane_that_tells_two_stories_is_shown_by_two_hosts() {
    let mut fleet = ProvingFleet::new();
    let running = fleet.server.start();
    assert_eq!(fleet.publish("one"), 1);
    let hosts = ["web-1", "web-2"].map(|name| fleet.joined(name));
    for host in &hosts {
        let agent = host.start();
        let name = if std::ptr::eq(host, &hosts[0]) { "web-1" } else { "web-2" };
        host.until_read("/etc/hello", &format!("one {name}\n"));
        drop(agent);
    }
    let at = fleet.temp.path().to_owned();
    let seen = |name: &str| {
        let out = at.join(format!("{name}.json")).to_str().unwrap().to_owned();
        let host = if name.starts_with("web-1") { &hosts[0] } else { &hosts[1] };
        let output = host.run(&["seen", "--out", &out]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        out
    };
    let honest = [seen("web-1-before"), seen("web-2-before")];
    running.end();
    let dir = fleet.server.dir.clone();
    let (before, after) = (fleet.temp.path().join("before"), fleet.temp.path().join("after"));
    copy(&dir, &before);
    std::fs::rename(&dir, &after).unwrap();
    // A copy of the directory again: each goes on by the same number.
    copy(&after, &dir);
    let running = fleet.server.start();
    let number = fleet.publish("two");
    let agent = hosts[0].start();
    hosts[0].until_read("/etc/hello", "two web-1\n");
    // Over the socket of the daemon, too.
    let story = seen("web-1");
    drop(agent);
    running.end();

    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::rename(&before, &dir).unwrap();
    let _running = fleet.server.start();
    assert_eq!(fleet.publish("another two"), number);
    let agent = hosts[1].start();
    hosts[1].until_read("/etc/hello", "another two web-2\n");
    until("the control plane hears of it", || {
        (fleet.server.node("web-2")["held"]["seq"] == number).then_some(())
    });
    drop(agent);
    let other = seen("web-2");

    let trust = fleet.trust();
    let said = holds(&["--equivocation", &honest[0], &honest[1], "--trust", &trust]);
    assert!(said.contains("no contradiction"), "{said}");
    let shown = verify(&["--equivocation", &story, &other, "--trust", &trust]);
    let said = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(2), "{said}{}", text(&shown.stderr));
    assert!(
        said.contains(&format!("CONTRADICTION: release {number} of channel fast has two headers")),
        "{said}"
    );
    // What an operator is given now against what web-1 was told.
    let given = fleet.file("given.json");
    fleet.server.ok(&["prove", "web-2", "/etc/motd", "--out", &given]);
    assert_eq!(verify(&["--equivocation", &story, &given, "--trust", &trust]).status.code(), Some(2));
    // Words of a host that another one's key signed count for nothing.
    let key: Value = serde_json::from_str(&std::fs::read_to_string(&other).unwrap()).unwrap();
    let forged = edit(&story, |record| record["key"] = key["key"].clone());
    fails(&["--equivocation", &forged, &other, "--trust", &trust], "says nothing");
}
