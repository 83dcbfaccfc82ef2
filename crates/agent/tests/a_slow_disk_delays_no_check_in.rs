//! CNV-12, LIF-10, OPS-4: durable writes happen on a thread of their own. Facts are acknowledged
//! within two syncs of the disk however many wait, and a disk that takes long, or never answers,
//! delays no check-in.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use agent::machine::Machine;
use agent::state::{Durable, StateDir};
use agent::storage::Storage;
use model::log::FactBody;
use spool::{Disk, DiskOp, FaultAction, Faults, Point};
use test_support::agent_state::machine_options;
use test_support::scripted::stage::{Stage, join, make, plan};
use test_support::scripted::{ScriptedControl, now};
use test_support::wait::until;

/// How long each sync of the slow disk takes.
const SYNC: Duration = Duration::from_millis(500);
/// How soon a check-in goes.
const CHECK_IN: Duration = Duration::from_millis(100);
/// How many facts wait.
const FACTS: usize = 200;

/// A disk whose syncs take long, or wait until they are let through.
#[derive(Default)]
struct SlowDisk {
    state: Mutex<Syncs>,
    changed: Condvar,
}

#[derive(Default)]
struct Syncs {
    /// How long each takes.
    takes: Duration,
    /// None ends any more.
    held: bool,
    /// Begun so far.
    begun: usize,
}

impl SlowDisk {
    fn set(&self, change: impl FnOnce(&mut Syncs)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn begun(&self) -> usize {
        self.state.lock().unwrap().begun
    }
}

impl Faults for SlowDisk {
    fn before(&self, point: Point<'_>) -> FaultAction {
        if matches!(point.op, DiskOp::Sync | DiskOp::SyncDir) {
            let mut state = self.state.lock().unwrap();
            state.begun += 1;
            // Longer than a test may take, so that a failed one ends.
            let longest = Duration::from_secs(40);
            let (state, _) = self.changed.wait_timeout_while(state, longest, |state| state.held).unwrap();
            let takes = state.takes;
            drop(state);
            std::thread::sleep(takes);
        }
        FaultAction::Go
    }
}

fn fact(number: usize) -> FactBody {
    FactBody::Repaired { message: format!("fact {number}") }
}

#[tokio::test]
async fn facts_are_acknowledged_within_two_syncs_however_many_wait() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(SlowDisk::default());
    StateDir::create(&dir.path().join("state")).unwrap();
    let state = StateDir::at(&dir.path().join("state"), Disk::with_faults(disk.clone()));
    let storage = Storage::start(Arc::new(state.open().unwrap())).unwrap();
    // The file that facts are appended to is there.
    storage.append(fact(0)).await.unwrap();
    let before = disk.begun();
    disk.set(|syncs| syncs.held = true);
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
    disk.set(|syncs| syncs.held = false);
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
    /// For writing beside the daemon.
    durable: Arc<Durable>,
    _control: ScriptedControl,
    _dir: tempfile::TempDir,
}

impl Scene {
    /// With a daemon in this process.
    async fn start() -> Scene {
        let stage = Stage::default();
        stage.play().next_checkin_secs = Some(1);
        let answers = stage.clone();
        let control =
            ScriptedControl::start(&["127.0.0.1"], move |parts, body| answers.answer(parts, &body)).await;
        let dir = tempfile::tempdir().unwrap();
        let (state, root) = (dir.path().join("state"), dir.path().join("root"));
        std::fs::create_dir_all(root.join("etc")).unwrap();
        join(&control, &state, &root);
        let disk = Arc::new(SlowDisk::default());
        let over = StateDir::at(&state, Disk::with_faults(disk.clone()));
        let machine = Machine::open_at(&machine_options(&state, &root, false), &over).unwrap();
        let durable = machine.durable.clone();
        std::thread::spawn(move || agent::daemon::run(machine).unwrap());
        let scene = Scene { stage, disk, root, durable, _control: control, _dir: dir };
        scene.check_ins(1).await;
        scene
    }

    /// So many more check-ins come.
    async fn check_ins(&self, more: usize) {
        let wanted = self.stage.play().check_ins + more;
        until("more check-ins", async || (self.stage.play().check_ins >= wanted).then_some(())).await;
    }

    fn motd(&self) -> String {
        std::fs::read_to_string(self.root.join("etc/motd")).unwrap_or_default()
    }
}

/// Whatever the node wants to make durable waits for ever, an adoption too: check-ins go on, and
/// say what is durable; once the disk answers, all of it is done.
#[tokio::test]
async fn a_disk_that_never_answers_stops_no_check_in() {
    let scene = Scene::start().await;
    scene.disk.set(|syncs| syncs.held = true);
    let made = make(&plan(1, "one\n"));
    scene.stage.play().contents.extend(made.contents);
    scene.stage.play().offer = Some(made.offer);
    let before = scene.disk.begun();
    until("the release is being kept", async || (scene.disk.begun() > before).then_some(())).await;
    scene.check_ins(3).await;
    assert_eq!(scene.stage.play().held, None, "what is not durable is not held");
    assert_eq!(scene.motd(), "", "and not bound");
    scene.disk.set(|syncs| syncs.held = false);
    until("the release is adopted and converged on", async || {
        (scene.stage.play().held.is_some() && scene.motd() == "one\n").then_some(())
    })
    .await;
}

/// The disk is never idle, and each of its syncs takes half a second.
#[tokio::test]
async fn check_ins_go_at_once_while_each_sync_takes_half_a_second() {
    let scene = Scene::start().await;
    scene.disk.set(|syncs| syncs.takes = SYNC);
    let (durable, stop) = (scene.durable.clone(), Arc::new(AtomicBool::new(false)));
    let stopped = stop.clone();
    let writer = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            durable.append_all(vec![fact(0)], now()).unwrap();
        }
    });
    let before = scene.disk.begun();
    until("the disk is busy", async || (scene.disk.begun() > before).then_some(())).await;
    // The fastest counts: other programs share this machine, and a thread that waits for the disk
    // would wait at each.
    let mut fastest = Duration::MAX;
    for _ in 0..10 {
        let (begun, check_ins) = (Instant::now(), scene.stage.play().check_ins);
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::HUP).unwrap();
        until("a check-in", async || (scene.stage.play().check_ins > check_ins).then_some(())).await;
        fastest = fastest.min(begun.elapsed());
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert!(fastest < CHECK_IN, "the fastest of ten check-ins took {} ms", fastest.as_millis());
}
