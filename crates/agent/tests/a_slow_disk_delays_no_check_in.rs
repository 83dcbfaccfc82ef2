//! CNV-12, LIF-10, OPS-4: durable writes happen on a thread of their own. Facts are acknowledged
//! within two syncs of the disk however many wait, and a disk that takes long, or never answers,
//! delays no check-in.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent::machine::Machine;
use agent::state::StateDir;
use agent::storage::Storage;
use agent::sync::sets::AgentSets;
use model::log::FactBody;
use model::work::{ActionEvent, Delegation, Order, Work};
use model::{Digest, Kind, ObjectKey, Stub};
use sync::{Content, FeedCursor, Write};
use test_support::agent_state::{machine_options, release};
use test_support::scripted::stage::{DAY, Stage, join, make, plan};
use test_support::scripted::{ScriptedControl, now};
use test_support::slow_disk::SlowDisk;
use test_support::wait::{eventually, until};

/// The fewest syncs that are held, one after the other.
const SYNCS: usize = 10;
/// How many facts wait.
const FACTS: usize = 200;

/// How many actions wait for their turn.
const ACTIONS: u64 = 8;

fn fact(number: usize) -> FactBody {
    FactBody::Repaired { message: format!("fact {number}") }
}

#[tokio::test]
async fn facts_are_acknowledged_within_two_syncs_however_many_wait() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SlowDisk::syncs();
    StateDir::create(&dir.path().join("state")).unwrap();
    let state = StateDir::at(&dir.path().join("state"), disk.disk());
    let storage = Storage::start(Arc::new(state.open().unwrap())).unwrap();
    // The file that facts are appended to is there.
    storage.append(fact(0)).await.unwrap();
    let before = disk.begun();
    disk.hold();
    let mut appends: Vec<Pin<Box<dyn Future<Output = _>>>> = Vec::new();
    for number in 1..=FACTS {
        let mut append = Box::pin(storage.append(fact(number)));
        // Asked for, and not done.
        tokio::time::timeout(Duration::ZERO, &mut append).await.unwrap_err();
        appends.push(append);
        if number == 1 {
            until("the first sync is under way", async || (disk.begun() > before).then_some(())).await;
        }
    }
    assert_eq!(storage.facts().facts.len(), 1, "no fact is sent before it is durable");
    disk.release();
    for append in appends {
        append.await.unwrap();
    }
    assert_eq!(disk.begun() - before, 2, "{FACTS} facts, one sync for the first and one for the rest");
    let waiting = storage.facts();
    assert_eq!((waiting.count(), waiting.last), (FACTS as u64 + 1, FACTS as u64 + 1));
}

/// A joined host, and the control plane that it calls each second.
struct Scene {
    stage: Stage,
    disk: Arc<SlowDisk>,
    root: PathBuf,
    _control: ScriptedControl,
    _dir: tempfile::TempDir,
}

impl Scene {
    /// With a daemon in this process, on the state that `prepare` made.
    async fn start(prepare: impl FnOnce(&Path)) -> Scene {
        let stage = Stage::default();
        stage.play().next_checkin_secs = Some(1);
        let answers = stage.clone();
        let control =
            ScriptedControl::start(&["127.0.0.1"], move |parts, body| answers.answer(parts, &body)).await;
        let dir = tempfile::tempdir().unwrap();
        let (state, root) = (dir.path().join("state"), dir.path().join("root"));
        std::fs::create_dir_all(root.join("etc")).unwrap();
        join(&control, &state, &root);
        prepare(&state);
        let disk = SlowDisk::syncs();
        let over = StateDir::at(&state, disk.disk());
        let machine = Machine::open_at(&machine_options(&state, &root, true), &over).unwrap();
        std::thread::spawn(move || agent::daemon::run(machine).unwrap());
        let scene = Scene { stage, disk, root, _control: control, _dir: dir };
        scene.check_ins(1).await;
        scene
    }

    /// So many more check-ins come.
    async fn check_ins(&self, more: usize) {
        let wanted = self.stage.play().check_ins + more;
        until("more check-ins", async || (self.stage.play().check_ins >= wanted).then_some(())).await;
    }

    /// The control plane has heard of an action's begin.
    fn an_action_began(&self) -> bool {
        let is_begin =
            |body: &FactBody| matches!(body, FactBody::Action(fact) if fact.event == ActionEvent::Started);
        self.stage.play().facts.values().any(|fact| is_begin(&fact.body))
    }

    fn motd(&self) -> String {
        std::fs::read_to_string(self.root.join("etc/motd")).unwrap_or_default()
    }
}

/// Whatever the node wants to make durable waits for ever, an adoption too: check-ins go on, and
/// say what is durable; once the disk answers, all of it is done.
#[tokio::test]
async fn a_disk_that_never_answers_stops_no_check_in() {
    let scene = Scene::start(|_| {}).await;
    scene.disk.hold();
    let made = make(&plan(1, "one\n"));
    scene.stage.play().contents.extend(made.contents);
    scene.stage.play().offer = Some(made.offer);
    let before = scene.disk.begun();
    until("the release is being kept", async || (scene.disk.begun() > before).then_some(())).await;
    scene.check_ins(3).await;
    assert_eq!(scene.stage.play().held, None, "what is not durable is not held");
    assert_eq!(scene.motd(), "", "and not bound");
    scene.disk.release();
    until("the release is adopted and converged on", async || {
        (scene.stage.play().held.is_some() && scene.motd() == "one\n").then_some(())
    })
    .await;
}

/// A node that holds a release, and orders of actions that it delegates.
fn with_orders(state: &Path) {
    let command = vec!["/bin/true".to_owned()];
    let delegation = Delegation { commands: vec![command.clone()], ..Delegation::default() };
    let (adoption, contents) = release(1, Vec::new(), Some(&delegation));
    let durable = Arc::new(StateDir::create(state).unwrap().open().unwrap());
    for bytes in contents {
        durable.keep(&bytes, Digest::of(&bytes)).unwrap();
    }
    durable.adopt(&adoption).unwrap();
    let order = |number: u64| {
        let (task, work) = ("t".to_owned(), Work::Command { argv: command.clone() });
        let order =
            Order { task, work, timeout_secs: 60, expires: now().plus(DAY), cancel: false, release: None };
        let (name, bytes) = (format!("t.{number}"), serde_json::to_vec(&order).unwrap());
        let content = Content { bytes: bytes.into(), trace: None, at: 0 };
        let stub = Stub { uid: name.as_str().into(), ..Stub::of(&content.bytes) };
        (ObjectKey::of(Kind::ACTION, &name), Some((stub, number, content)))
    };
    let cursor = Some(FeedCursor::at("source".parse().unwrap(), ACTIONS));
    let write = Write { replica: (1..=ACTIONS).map(order).collect(), cursor, ..Write::default() };
    AgentSets::open(&durable).unwrap().write(write).unwrap();
}

/// Actions begin and a release is adopted, each in several syncs: while any of those waits for the
/// disk, a check-in goes.
#[tokio::test]
async fn check_ins_go_while_actions_begin_and_a_release_is_adopted() {
    let scene = Scene::start(with_orders).await;
    scene.disk.hold();
    let made = make(&plan(2, "two\n"));
    scene.stage.play().contents.extend(made.contents);
    scene.stage.play().offer = Some(made.offer);
    let adopted = || scene.stage.play().held.as_ref().is_some_and(|held| held.seq == 2);
    let mut syncs = 0;
    while !adopted() || !scene.an_action_began() || syncs < SYNCS {
        eventually("a sync waits for the disk", || scene.disk.holds_one()).await;
        let check_ins = scene.stage.play().check_ins;
        until("a check-in while the disk does not answer", async || {
            // One that comes between a check-in and its answer asks for none.
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::HUP).unwrap();
            (scene.stage.play().check_ins > check_ins).then_some(())
        })
        .await;
        scene.disk.let_one_through();
        syncs += 1;
        assert!(syncs < 20 * SYNCS, "the release is not adopted, or no action began");
    }
    scene.disk.release();
}
