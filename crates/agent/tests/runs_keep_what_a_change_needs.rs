//! DLT-4, LIF-10: a run removes contents that nothing needs, and none of a release that is fetched or
//! adopted meanwhile: whoever holds a release has all of it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::fetch;
use agent::machine::Machine;
use agent::runner::{GARBAGE_GROWTH, Runner};
use agent::state::{Durable, StateDir};
use agent::storage::Storage;
use converge::{RunMode, RunScope};
use lang::Value;
use model::Digest;
use node::{Adoption, RunOrder};
use spool::DiskOp;
use test_support::agent_links::session;
use test_support::agent_state::{adopt, file, join, machine_options, module, release};
use test_support::scripted::ScriptedControl;
use test_support::scripted::stage::Stage;
use test_support::slow_disk::SlowDisk;
use test_support::wait::{eventually, soon};
use tokio::task::{JoinHandle, spawn_blocking};

/// The bytes of what nothing needs.
const GARBAGE: &[u8] = b"of a release long ago";

/// A host that holds release 1, and release 2 with its contents.
struct Host {
    durable: Arc<Durable>,
    storage: Storage,
    runner: Arc<Runner>,
    held: Adoption,
    next: Adoption,
    contents: Vec<Vec<u8>>,
}

impl Host {
    fn open(dir: &Path, disk: spool::Disk) -> Host {
        let (state, root) = (dir.join("state"), dir.join("root"));
        join(&state, &root, false);
        let of = |text: &str| {
            let mut motd = module("motd");
            motd.resources = vec![file("/etc/motd", text)];
            vec![motd]
        };
        adopt(&state, 1, of("one"));
        let machine =
            Machine::open_at(&machine_options(&state, &root, false), &StateDir::at(&state, disk)).unwrap();
        let durable = machine.durable.clone();
        durable.keep(GARBAGE, Digest::of(GARBAGE)).unwrap();
        let storage = Storage::start(durable.clone()).unwrap();
        let runner = Arc::new(Runner::new(machine.kinds.clone(), storage.clone(), "host.test".to_owned()));
        let held = durable.adoption().unwrap().unwrap();
        let (next, contents) = release(2, of("two"), None);
        Host { durable, storage, runner, held, next, contents }
    }

    /// Fetches release 2, of which nothing is sent with the offer.
    async fn fetch(&self) {
        let stage = Stage::default();
        let named = self.contents.iter().map(|bytes| (Digest::of(bytes), bytes.clone()));
        stage.play().contents.extend(named);
        let control =
            ScriptedControl::start(&["127.0.0.1"], move |parts, body| stage.answer(parts, &body)).await;
        let wanted = self.contents.iter().map(|bytes| Digest::of(bytes)).collect();
        let session = session(&control);
        fetch::all(&self.storage, &session, wanted, Vec::new()).await.unwrap();
    }

    async fn adopt(&self) {
        let next = self.next.clone();
        self.storage.run(move |durable| durable.adopt(&next)).await.unwrap();
    }

    /// Binds a release, as every look at it does.
    fn bind(&self, adoption: &Adoption) -> JoinHandle<()> {
        let (runner, adoption) = (self.runner.clone(), adoption.clone());
        spawn_blocking(move || drop(runner.desired(&adoption, &Value::Map(Default::default())).unwrap()))
    }

    /// Begins a run that changes the host, on a release that it read.
    fn begin(&self, adoption: &Adoption) -> JoinHandle<()> {
        let (runner, adoption) = (self.runner.clone(), adoption.clone());
        spawn_blocking(move || {
            drop(runner.desired(&adoption, &Value::Map(Default::default())).unwrap());
            runner.collect_garbage_when_due(&adoption);
        })
    }

    /// A run on what is held.
    async fn run(&self, mode: RunMode) {
        let held = self.durable.adoption().unwrap().unwrap();
        let (seq, root, scope) = (held.seq, held.root, RunScope::All);
        let requested_tags = Default::default();
        let order =
            RunOrder { seq, root, intended: true, unfinished: vec![], pause: None, scope, requested_tags };
        let runner = self.runner.clone();
        let run = move || runner.run(&order, &Value::Map(Default::default()), mode);
        spawn_blocking(run).await.unwrap().unwrap();
    }

    fn has(&self, adoption: &Adoption) -> bool {
        adoption.objects.values().all(|stub| self.durable.content(&stub.digest).is_ok())
    }

    fn has_garbage(&self) -> bool {
        self.durable.contents().has(&Digest::of(GARBAGE))
    }
}

/// A run keeps what it replaces before it records that: what looks at a release beside it takes nothing.
#[tokio::test]
async fn what_a_run_is_about_to_record() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::open(dir.path(), spool::Disk::new());
    host.fetch().await;
    host.adopt().await;
    host.bind(&host.next).await.unwrap();
    host.run(RunMode::Plan).await;
    assert!(host.has_garbage() && host.has(&host.held), "a look took away what a run may be about to need");
    host.run(RunMode::Apply).await;
    assert!(host.has(&host.next) && !host.has(&host.held) && !host.has_garbage());
    host.durable.keep(GARBAGE, Digest::of(GARBAGE)).unwrap();
    host.run(RunMode::Apply).await;
    assert!(host.has_garbage(), "once for each release");
    let much = vec![0; usize::try_from(GARBAGE_GROWTH).unwrap()];
    host.durable.keep(&much, Digest::of(&much)).unwrap();
    host.run(RunMode::Apply).await;
    assert!(!host.has_garbage() && host.has(&host.next), "and again when much was kept since");
}

#[tokio::test]
async fn what_is_fetched_and_not_adopted_yet() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::open(dir.path(), spool::Disk::new());
    host.fetch().await;
    host.begin(&host.held).await.unwrap();
    assert!(!host.has_garbage(), "what nothing needs is gone");
    host.adopt().await;
    assert!(host.has(&host.next) && host.has(&host.held));
}

/// The run read which release is held, and another one was adopted before it removed anything.
#[tokio::test]
async fn what_was_adopted_since_the_run_began() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::open(dir.path(), spool::Disk::new());
    host.fetch().await;
    host.adopt().await;
    host.begin(&host.held).await.unwrap();
    assert!(host.has(&host.next), "the release that is held");
    assert!(host.has(&host.held), "the release that the run binds");
    host.begin(&host.next).await.unwrap();
    assert!(host.has(&host.next) && !host.has(&host.held) && !host.has_garbage());
}

/// The run removes contents at the very moment at which a release is adopted.
#[tokio::test]
async fn what_is_adopted_while_the_run_removes_contents() {
    let dir = tempfile::tempdir().unwrap();
    let slow = SlowDisk::when(|point| {
        point.op == DiskOp::Unlink && point.path.components().any(|part| part.as_os_str() == "blobs")
    });
    let host = Host::open(dir.path(), slow.disk());
    host.fetch().await;
    slow.hold();
    let bound = host.begin(&host.held);
    eventually("the run removes something", || slow.begun() > 0).await;
    let mut adopted = Box::pin(host.adopt());
    // It may be adopted now, or once contents are removed.
    let at_once = tokio::time::timeout(Duration::from_millis(500), &mut adopted).await.is_ok();
    slow.release();
    soon(bound).await.unwrap();
    if !at_once {
        soon(adopted).await;
    }
    assert!(host.has(&host.next));
}
