//! LIF-10, IDN-1, SEC-1, CNV-3: the state directory of a running agent is emptied, removed, replaced, made unreadable or
//! read-only. What the agent holds in memory is written back, so that it stays the node that it was and runs nothing
//! twice; where nothing can be kept, no run is made and both sides say why. Once the directory is right again the
//! agent goes on by itself.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use model::replication::{Mode, TransportPolicy};
use serde_json::Value;
use server::api::{NodeView, NodesView};
use test_support::agent_pair::{Daemon, Pair, Says, says};
use test_support::agent_state::{file, module};
use test_support::wait::until;

const HELLO: &str = "hello\n";

/// The host has a file that says this, and runs each second.
fn declared(text: &str) -> Says {
    let mut base = module("base");
    base.resources = vec![file("/etc/motd", text)];
    let mut says = says(Mode::Managed, None, TransportPolicy::Auto).delegating(&[&["/bin/sh", "-c", "**"]]);
    says.policy.converge_secs = 1;
    says.modules = vec![base];
    says
}

struct Scene {
    daemon: Option<Daemon>,
    pair: Pair,
    identity: [Vec<u8>; 3],
}

impl Scene {
    async fn new() -> Scene {
        Scene::of(Pair::new(&declared(HELLO)).await).await
    }

    async fn of(pair: Pair) -> Scene {
        let daemon = Some(pair.daemon());
        let mut scene = Scene { daemon, pair, identity: Default::default() };
        scene.converges("the beginning", HELLO).await;
        scene.identity = identity(&scene.pair.state());
        assert!(scene.identity.iter().all(|file| !file.is_empty()));
        scene
    }

    async fn node(&mut self) -> NodeView {
        let page: NodesView = self.pair.operator.get("/v1/nodes").await.unwrap();
        assert_eq!(page.nodes.len(), 1, "it did not become another node");
        page.nodes.into_iter().next().unwrap()
    }

    fn log(&self) -> String {
        self.daemon.as_ref().unwrap().log()
    }

    /// Runs end from now on over a host that is right, and both sides say so.
    async fn converges(&mut self, what: &str, text: &str) {
        let motd = self.pair.root().join("etc/motd");
        let mut last = self.node().await.last_run;
        let mut seen = 0;
        until(&format!("{what}: the host is converged"), async || {
            let node = self.node().await;
            if node.last_run > last {
                (last, seen) = (node.last_run, seen + 1);
            }
            let right = std::fs::read_to_string(&motd).is_ok_and(|found| found == text);
            (right && seen >= 2 && node.state.to_string() == "converged").then_some(())
        })
        .await;
    }

    /// The agent is the node that it was, on the disk too: a start from there goes on.
    async fn is_whole(&mut self, what: &str, text: &str) {
        std::fs::remove_file(self.pair.root().join("etc/motd")).unwrap();
        self.converges(what, text).await;
        assert!(identity(&self.pair.state()) == self.identity, "{what}: it is another node");
        self.daemon.take().unwrap().end().await;
        std::fs::remove_file(self.pair.root().join("etc/motd")).unwrap();
        self.daemon = Some(self.pair.daemon());
        self.converges(&format!("{what}, and a start after it"), text).await;
        assert!(identity(&self.pair.state()) == self.identity, "{what}: it is another node");
    }

    /// No run is made, and the control plane says why.
    async fn stalls(&mut self, why: &str) -> String {
        until(&format!("the control plane says {why:?}"), async || {
            let node = self.node().await;
            let cause = node.cause.unwrap_or_default();
            let told = cause.starts_with("no successful run since") && cause.contains(why);
            (node.state.to_string() == "stalled" && told).then_some(cause)
        })
        .await
    }

    fn unmade(&self) -> String {
        let output = tokio::task::block_in_place(|| self.pair.agent(&["status", "--json"]));
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        status["daemon"]["unmadeRun"]["reason"].as_str().unwrap_or_default().to_owned()
    }

    async fn repair_is_told(&mut self, what: &str) {
        until(&format!("the control plane hears {what:?}"), async || {
            let facts: Value = self.pair.operator.get("/v1/nodes/web-1/facts?limit=1000").await.ok()?;
            facts.to_string().contains(what).then_some(())
        })
        .await;
    }
}

/// Keys and membership, byte by byte.
fn identity(state: &Path) -> [Vec<u8>; 3] {
    ["identity.key", "sealing.key", "membership.json"]
        .map(|name| std::fs::read(state.join(name)).unwrap_or_default())
}

fn empty(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            // The agent may be about to rename it.
            false => drop(std::fs::remove_file(path)),
        }
    }
}

fn make(directory: &Path) {
    std::fs::create_dir(directory).unwrap();
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn emptied_it_is_written_back() {
    let mut scene = Scene::new().await;
    let state = scene.pair.state();
    empty(&state);
    scene.repair_is_told("was emptied or replaced while the agent ran").await;
    assert!(scene.log().contains("the state directory was emptied or replaced"), "{}", scene.log());
    // As the same process, it began anew from `/proc/self/exe`.
    let name =
        std::fs::read_to_string(format!("/proc/{}/comm", scene.daemon.as_ref().unwrap().pid())).unwrap();
    assert_eq!(name, "muster-agent\n");
    scene.is_whole("it was emptied", HELLO).await;

    std::fs::remove_dir_all(&state).unwrap();
    scene.is_whole("it was removed", HELLO).await;
    assert_eq!(std::fs::metadata(&state).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_that_is_gone_comes_back() {
    let mut scene = Scene::new().await;
    for part in ["log", "content", "ledger", "objects", "actions"] {
        std::fs::remove_dir_all(scene.pair.state().join(part)).unwrap();
        std::fs::remove_file(scene.pair.root().join("etc/motd")).unwrap();
        scene.converges(part, HELLO).await;
    }
    for name in ["identity.key", "sealing.key", "membership.json", "lock"] {
        std::fs::remove_file(scene.pair.state().join(name)).unwrap();
        let path = scene.pair.state().join(name);
        until(&format!("{name} is there again"), async || path.exists().then_some(())).await;
        scene.converges(name, HELLO).await;
    }
    scene.is_whole("parts were gone", HELLO).await;
}

/// What runs while the directory is emptied is reported, and never runs again.
#[tokio::test(flavor = "multi_thread")]
async fn an_action_under_way_runs_once() {
    let mut scene = Scene::new().await;
    let (ran, go) = (scene.pair.dir.join("ran"), scene.pair.dir.join("go"));
    let script =
        format!("echo once >> {}; while [ ! -e {} ]; do /bin/sleep 0.1; done", ran.display(), go.display());
    let task = scene.pair.begin(&["/bin/sh", "-c", &script]).await;
    until("the command runs", async || ran.exists().then_some(())).await;
    empty(&scene.pair.state());
    let key = scene.pair.state().join("identity.key");
    until("the identity is there again", async || key.exists().then_some(())).await;
    std::fs::write(&go, "").unwrap();
    scene.pair.task_over(&task.id.to_string()).await;
    assert_eq!(scene.pair.outcome(&task.id.to_string()).await["code"], 0);
    scene.is_whole("an action was under way", HELLO).await;
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "once\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_by_an_empty_one_and_put_back_it_falls_behind_nothing() {
    let mut scene = Scene::new().await;
    let (state, aside) = (scene.pair.state(), scene.pair.dir.join("aside"));
    std::fs::rename(&state, &aside).unwrap();
    make(&state);
    scene.is_whole("it was replaced", HELLO).await;
    scene.pair.publish(&declared("good day\n")).await;
    scene.converges("the next release", "good day\n").await;
    // A copy of an earlier time, as from a backup of the host.
    std::fs::rename(&state, scene.pair.dir.join("later")).unwrap();
    std::fs::rename(&aside, &state).unwrap();
    scene.is_whole("an earlier copy was put there", "good day\n").await;
    assert_eq!(scene.node().await.held.unwrap().seq, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_s_is_left_alone_and_told() {
    let mut scene = Scene::new().await;
    let other = Pair::new(&declared("other\n")).await;
    let (state, aside) = (scene.pair.state(), scene.pair.dir.join("aside"));
    std::fs::rename(&state, &aside).unwrap();
    make(&state);
    for name in ["identity.key", "membership.json"] {
        std::fs::copy(other.state().join(name), state.join(name)).unwrap();
    }
    let before = identity(&state);
    let cause = scene.stalls("holds the membership of node").await;
    assert!(cause.contains("put this node's directory back"), "{cause}");
    assert!(identity(&state) == before, "the other node's identity stays");
    until("the journal says so", async || scene.log().contains("holds the membership of node").then_some(()))
        .await;
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::rename(&aside, &state).unwrap();
    scene.converges("it was put back", HELLO).await;
    scene.is_whole("it was put back", HELLO).await;
}

/// Runs as a user whom permissions bind: root is stopped by a mount alone.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_it_is_told_until_it_is_not() {
    let mut pair = Pair::new(&declared(HELLO)).await;
    pair.give_up_root();
    let mut scene = Scene::of(pair).await;
    let state = scene.pair.state();
    let set_mode = |mode| std::fs::set_permissions(&state, std::fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o000, 0o500] {
        set_mode(mode);
        let cause = scene.stalls("Permission denied").await;
        assert!(cause.contains("the state directory cannot be"), "{cause}");
        assert!(scene.log().contains("Permission denied"), "{}", scene.log());
        if mode == 0o500 {
            assert!(scene.unmade().contains("Permission denied"), "{}", scene.unmade());
        }
        set_mode(0o700);
        std::fs::remove_file(scene.pair.root().join("etc/motd")).unwrap();
        scene.converges("it may be written again", HELLO).await;
        assert!(scene.unmade().is_empty());
    }
    scene.is_whole("it could not be read", HELLO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_it_is_told_until_it_is_not() {
    let can_mount = Command::new("unshare").args(["--mount", "true"]).status();
    if !can_mount.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: mounting needs root");
    }
    let mut pair = Pair::new(&declared(HELLO)).await;
    pair.isolate_mounts();
    let mut scene = Scene::of(pair).await;
    let (state, pid) = (scene.pair.state().display().to_string(), scene.daemon.as_ref().unwrap().pid());
    let sh = |script: String| {
        let target = ["--target", &pid.to_string(), "--mount", "sh", "-ec", &script].map(str::to_owned);
        assert!(Command::new("nsenter").args(target).status().unwrap().success(), "{script}");
    };
    sh(format!("mount --bind {state} {state}; mount -o remount,bind,ro {state}"));
    let cause = scene.stalls("Read-only file system").await;
    assert!(cause.contains("the state directory cannot be written"), "{cause}");
    assert!(scene.unmade().contains("Read-only file system"), "{}", scene.unmade());
    assert!(scene.log().contains("Read-only file system"), "{}", scene.log());
    sh(format!("umount {state}"));
    scene.converges("it can be written again", HELLO).await;
    assert!(scene.unmade().is_empty());
    scene.is_whole("it was read-only", HELLO).await;
}
