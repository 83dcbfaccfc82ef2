//! LIF-10, CNV-3: whatever of the state directory is deleted, cut off or damaged, of a running or of a stopped agent:
//! the agent heals it, or tells what is wrong and what to do. It never ends again and again, and is never `converged`
//! without a run.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use model::Digest;
use model::replication::{Mode, TransportPolicy};
use serde_json::Value;
use server::api::{NodeView, NodesView};
use test_support::agent_pair::{Daemon, Pair, Says, says};
use test_support::agent_state::{file, module};
use test_support::wait::until;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Deleted,
    CutOff,
    Flipped,
}

const DAMAGES: [Damage; 3] = [Damage::Deleted, Damage::CutOff, Damage::Flipped];

impl Damage {
    fn inflict(self, path: &Path) {
        let mut bytes = std::fs::read(path).unwrap();
        match self {
            Damage::Deleted => return std::fs::remove_file(path).unwrap(),
            Damage::CutOff => bytes.truncate(bytes.len() / 2),
            Damage::Flipped => {
                let middle = bytes.len() * 2 / 3;
                bytes[middle] ^= 0x20;
            }
        }
        std::fs::write(path, bytes).unwrap();
    }
}

/// A content that no run reads while the host is right.
const SPARE: &[u8] = b"the content of a file that is right";

/// The host has a file, and runs each second.
fn declared() -> Says {
    let mut base = module("base");
    base.resources = vec![file("/etc/motd", "hello\n")];
    base.blobs.insert(Digest::of(SPARE));
    let mut says = says(Mode::Off, None, TransportPolicy::Auto);
    says.policy.converge_secs = 1;
    says.modules = vec![base];
    says.blobs.push(SPARE.to_vec());
    says
}

/// The files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path => found.push(path),
        }
    }
    found.sort();
    found
}

struct Scene {
    daemon: Option<Daemon>,
    pair: Pair,
}

impl Scene {
    async fn new() -> Scene {
        let pair = Pair::new(&declared()).await;
        let daemon = Some(pair.daemon());
        let mut scene = Scene { daemon, pair };
        scene.converges("the beginning").await;
        scene
    }

    async fn node(&mut self) -> NodeView {
        let page: NodesView = self.pair.operator.get("/v1/nodes").await.unwrap();
        page.nodes.into_iter().next().unwrap()
    }

    async fn stop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.end().await;
        }
    }

    /// The host is changed by hand; a run puts it right, and both sides say so.
    async fn puts_right(&mut self, what: &str) {
        std::fs::remove_file(self.pair.root().join("etc/motd")).unwrap();
        self.converges(what).await;
    }

    /// Runs end from now on over a host that is right, and both sides say so.
    async fn converges(&mut self, what: &str) {
        let motd = self.pair.root().join("etc/motd");
        let mut last = self.node().await.last_run;
        let mut seen = 0;
        until(&format!("{what}: the host is converged again"), async || {
            let node = self.node().await;
            if node.last_run > last {
                (last, seen) = (node.last_run, seen + 1);
            }
            let right = std::fs::read_to_string(&motd).is_ok_and(|text| text == "hello\n");
            (right && seen >= 2 && node.state.to_string() == "converged").then_some(())
        })
        .await;
    }

    fn status(&self) -> Value {
        let output = tokio::task::block_in_place(|| self.pair.agent(&["status", "--json"]));
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }
}

/// What of the state directory is there to be damaged, without what joining made.
fn durable(state: &Path) -> Vec<PathBuf> {
    let joined = ["identity.key", "membership.json"];
    let volatile = ["lock", "status.json", "last-outcomes.json", "agent.sock"];
    let is_durable = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        !joined.contains(&name) && !volatile.contains(&name) && !name.contains("corrupt")
    };
    files(state).into_iter().filter(is_durable).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_stopped_agent_all_heals() {
    let mut scene = Scene::new().await;
    for damage in DAMAGES {
        scene.stop().await;
        let names: Vec<PathBuf> = durable(&scene.pair.state());
        assert!(names.len() > 6, "{names:?}");
        for path in names {
            scene.stop().await;
            if !path.exists() {
                continue;
            }
            let what = format!("{damage:?} {}", path.strip_prefix(scene.pair.state()).unwrap().display());
            eprintln!("{what}");
            damage.inflict(&path);
            scene.daemon = Some(scene.pair.daemon());
            scene.puts_right(&what).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_running_agent_all_heals() {
    let mut scene = Scene::new().await;
    for damage in DAMAGES {
        for path in durable(&scene.pair.state()) {
            if !path.exists() {
                continue;
            }
            let what = format!("{damage:?} {}", path.strip_prefix(scene.pair.state()).unwrap().display());
            eprintln!("{what}");
            damage.inflict(&path);
            scene.converges(&what).await;
        }
    }
}

/// A content is verified before anything needs it: a node that is offline by then could not fetch it.
#[tokio::test(flavor = "multi_thread")]
async fn a_content_that_nothing_needs_yet_is_mended() {
    let mut scene = Scene::new().await;
    let name = Digest::of(SPARE).to_string();
    let path = scene.pair.state().join("content/blobs").join(&name[..2]).join(&name);
    for damage in DAMAGES {
        scene.stop().await;
        damage.inflict(&path);
        scene.daemon = Some(scene.pair.daemon());
        let is_right = async || std::fs::read(&path).is_ok_and(|bytes| bytes == SPARE).then_some(());
        until(&format!("{damage:?}: the content is fetched again"), is_right).await;
    }
}

/// A3: the control plane does not have what is missing, so that the run cannot be made.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_be_made_is_told_on_both_sides() {
    let mut scene = Scene::new().await;
    let bytes = model::canonical::to_bytes(&declared().modules[0]).unwrap();
    let name = Digest::of(&bytes).to_string();
    // A directory in its place: it can neither be read nor be written.
    let path = scene.pair.state().join("content/blobs").join(&name[..2]).join(&name);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let node = until("the control plane says that no run is made", async || {
        let node = scene.node().await;
        (node.state.to_string() == "stalled").then_some(node)
    })
    .await;
    let cause = node.cause.unwrap();
    assert!(cause.starts_with("no successful run since"), "{cause}");
    assert!(cause.contains("content"), "{cause}");
    let unmade = scene.status()["daemon"]["unmadeRun"].clone();
    assert!(unmade["reason"].as_str().is_some_and(|reason| reason.contains("content")), "{unmade}");
    std::fs::remove_dir(&path).unwrap();
    scene.converges("it can be read again").await;
    assert!(scene.status()["daemon"]["unmadeRun"].is_null());
}
