//! CNV-11: a run that changes what can cut its host off is followed by a contact, or exactly those changes are undone, with
//! the agent gone and offline; the same change is held back then. Any other run arms nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use activation::{ActivationRecord, ActivationStage};
use agent::generations::return_verb::{ReturnLook, look_at};
use agent::generations::{GenerationFiles, InstalledAgent, ReturnUnits, ReturnWatchdog};
use agent::guard::RunGuard;
use agent::machine::{Machine, MachineOptions};
use agent::runner::Runner;
use agent::state::StateDir;
use agent::storage::Storage;
use converge::{RunMode, RunScope};
use lang::Value;
use model::log::FactBody;
use model::{Action, RunReport};
use node::RunOrder;
use spool::{Disk, PeekedFile};
use test_support::agent_state::{adopt, file, join, machine_options, module};

const RULES: &str = "root/etc/nftables.conf";

struct Host {
    dir: PathBuf,
}

impl Host {
    /// A host with rules, and release 2 that changes them and something else.
    fn new(dir: &Path) -> Host {
        let host = Host { dir: dir.to_owned() };
        join(&host.path("state"), &host.path("root"), true);
        for (path, mode) in [("agent/muster-agent", 0o755), ("systemctl", 0o755)] {
            let path = host.path(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "#!/bin/sh\nexit 0\n").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        std::fs::create_dir_all(host.path("units")).unwrap();
        std::fs::create_dir_all(host.path("root/etc")).unwrap();
        std::fs::write(host.path(RULES), "as found").unwrap();
        host.declare(2, "two");
        host
    }

    fn declare(&self, seq: u64, text: &str) {
        let mut all = module("all");
        all.resources = vec![file("/etc/motd", text), file("/etc/nftables.conf", text)];
        adopt(&self.path("state"), seq, vec![all]);
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    fn options(&self) -> MachineOptions {
        machine_options(&self.path("state"), &self.path("root"), true)
    }

    fn files(&self, disk: &Disk) -> GenerationFiles {
        let units = self.path("units");
        let installed = InstalledAgent {
            program: self.path("agent/muster-agent"),
            files: vec![units.join("muster-agent.service")],
            directories: Vec::new(),
        };
        let watchdog = ReturnWatchdog::Units(ReturnUnits::at(&units, &self.path("systemctl"), disk));
        GenerationFiles::with(&self.path("state"), disk, installed, watchdog)
    }

    fn record(&self) -> Option<ActivationRecord> {
        match self.files(&Disk::new()).guards().peek().unwrap() {
            PeekedFile::Value(record) => Some(record),
            PeekedFile::Absent => None,
            PeekedFile::Damaged => panic!("damaged"),
        }
    }

    /// A guarded run of an agent; what it came to, and its guard.
    fn run(&self) -> (RunReport, Arc<RunGuard>) {
        let disk = Disk::new();
        let machine =
            Machine::open_at(&self.options(), &StateDir::at(&self.path("state"), disk.clone())).unwrap();
        let storage = Storage::start(machine.durable.clone()).unwrap();
        let guard = Arc::new(RunGuard::new(self.files(&disk), storage.clone(), machine.kinds.clone(), true));
        let runner =
            Runner::new(machine.kinds.clone(), storage, "host.test".to_owned()).guarded(guard.clone());
        let held = machine.durable.adoption().unwrap().unwrap();
        let (seq, root, scope) = (held.seq, held.root, RunScope::All);
        let requested_tags = Default::default();
        let order =
            RunOrder { seq, root, intended: true, unfinished: vec![], pause: None, scope, requested_tags };
        let run = runner.run(&order, &Value::Map(Default::default()), RunMode::Apply).unwrap();
        (run.report, guard)
    }

    /// The host goes down before a contact followed, and the watchdog looks.
    fn boots(&self) -> ReturnLook {
        let files = self.files(&Disk::new());
        let mut record = self.record().unwrap();
        match &mut record.under_way {
            ActivationStage::Armed(trial) | ActivationStage::Confirming(trial) => {
                trial.boot = "another-boot".parse().unwrap();
            }
            other => panic!("{other:?}"),
        }
        files.guards().persist(&record).unwrap();
        look_at(&self.options(), &files).unwrap()
    }

    fn told(&self) -> Vec<String> {
        let machine = Machine::open(&self.options()).unwrap();
        let facts = machine.durable.facts(usize::MAX, usize::MAX).unwrap();
        let told = facts.into_iter().filter_map(|fact| match fact.body {
            FactBody::Repaired { message } => Some(message),
            _ => None,
        });
        told.collect()
    }
}

#[test]
fn what_no_contact_follows_is_undone_and_held_back() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    // Twice: a host that goes down for a reason of its own tries once more.
    for _ in 0..2 {
        let (report, guard) = host.run();
        assert_eq!(report.counts.failed, 0, "{report:?}");
        assert!(guard.is_up());
        assert_eq!(host.read(RULES), "two");
        drop(guard);
        assert!(matches!(host.boots(), ReturnLook::Done { .. }));
        assert_eq!(host.read(RULES), "as found");
        assert_eq!(host.read("root/etc/motd"), "two", "what cuts nothing off stays");
    }
    let told = host.told();
    assert!(told.iter().any(|told| told.contains("all/file:/etc/nftables.conf: undone")), "{told:?}");
    let (report, guard) = host.run();
    let item = report.items.iter().find(|item| item.action == Action::Failed).unwrap();
    assert_eq!(item.resource, "all/file:/etc/nftables.conf");
    assert!(item.reason.as_ref().unwrap().contains("held back"), "{item:?}");
    assert!(!guard.is_up());
    assert_eq!(host.read(RULES), "as found");
    drop(guard);
    // Another release is tried.
    host.declare(3, "three");
    let (report, guard) = host.run();
    assert_eq!((report.counts.failed, guard.is_up()), (0, true), "{report:?}");
    assert_eq!(host.read(RULES), "three");
}

#[test]
fn a_contact_after_the_run_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let (_, guard) = host.run();
    assert!(host.path("units/muster-return.service").exists(), "the watchdog looks");
    assert!(guard.tick(), "a try is due");
    guard.confirm_tried(Err("no route".to_owned()));
    assert!(guard.is_up(), "a try that failed ends no window");
    drop(guard);
    assert!(matches!(look_at(&host.options(), &host.files(&Disk::new())).unwrap(), ReturnLook::NotDue));
    let (_, guard) = host.run();
    drop(guard);
    assert_eq!(host.read(RULES), "two");
}

#[test]
fn an_answer_disarms_and_the_next_run_arms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let (_, guard) = host.run();
    assert!(guard.tick());
    guard.confirm_tried(Ok(()));
    assert!(!guard.is_up());
    assert!(!host.path("units/muster-return.service").exists());
    assert!(!host.path("state/guarded-changes.json").exists());
    assert_eq!(host.record().unwrap().under_way, ActivationStage::Settled);
    drop(guard);
    std::fs::remove_file(host.path("state/guarded.json")).unwrap();
    let (report, guard) = host.run();
    assert_eq!((report.counts.changed, guard.is_up()), (0, false));
    drop(guard);
    // A run that changes something else writes nothing either.
    std::fs::remove_file(host.path("root/etc/motd")).unwrap();
    let (report, guard) = host.run();
    assert_eq!((report.counts.changed, guard.is_up()), (1, false));
    assert_eq!(host.record(), None);
}
