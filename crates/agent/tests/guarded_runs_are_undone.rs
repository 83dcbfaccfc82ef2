//! CNV-11: a run that changes what can cut its host off is followed by a contact, or exactly those changes are undone, with
//! the agent gone and offline; the same change is held back then, and tried again a few times after a contact. Any other
//! run arms nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use activation::guarded::ContactAnswer;
use activation::{ActivationProcess, ActivationRecord, ActivationStage, BootTime, ReturnCause};
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
use test_support::agent_state::{adopt, file, handler, join, machine_options, module, resource};

pub(crate) const RULES: &str = "root/etc/nftables.conf";

/// A host whose runs are guarded.
pub(crate) struct Host {
    pub(crate) dir: PathBuf,
}

impl Host {
    pub(crate) fn at(dir: &Path) -> Host {
        Host { dir: dir.to_owned() }
    }

    /// A host with rules, and release 2 that changes them and something else.
    pub(crate) fn new(dir: &Path) -> Host {
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

    pub(crate) fn declare(&self, seq: u64, text: &str) {
        let mut all = module("all");
        all.resources = vec![file("/etc/motd", text), file("/etc/nftables.conf", text)];
        adopt(&self.path("state"), seq, vec![all]);
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    pub(crate) fn options(&self) -> MachineOptions {
        machine_options(&self.path("state"), &self.path("root"), true)
    }

    pub(crate) fn files(&self, disk: &Disk) -> GenerationFiles {
        let units = self.path("units");
        let installed = InstalledAgent {
            program: self.path("agent/muster-agent"),
            files: vec![units.join("muster-agent.service")],
            directories: Vec::new(),
        };
        let watchdog = ReturnWatchdog::Units(ReturnUnits::at(&units, &self.path("systemctl"), disk));
        GenerationFiles::with(&self.path("state"), disk, installed, watchdog)
    }

    pub(crate) fn record(&self) -> Option<ActivationRecord> {
        match self.files(&Disk::new()).guards().peek().unwrap() {
            PeekedFile::Value(record) => Some(record),
            PeekedFile::Absent => None,
            PeekedFile::Damaged => panic!("damaged"),
        }
    }

    /// A guarded run of an agent; what it came to, and its guard.
    pub(crate) fn run(&self) -> (RunReport, Arc<RunGuard>) {
        self.run_after(&Disk::new(), |_| {})
    }

    /// The guard of an agent that begins, with its machine.
    pub(crate) fn guard(&self, disk: &Disk) -> (Machine, Storage, Arc<RunGuard>) {
        let state = StateDir::at(&self.path("state"), disk.clone());
        let machine = Machine::open_at(&self.options(), &state).unwrap();
        let storage = Storage::start(machine.durable.clone()).unwrap();
        let guard = RunGuard::new(self.files(disk), storage.clone(), machine.kinds.clone(), true);
        (machine, storage, Arc::new(guard))
    }

    /// A guarded run through a disk, of an agent to which something happened before.
    pub(crate) fn run_after(&self, disk: &Disk, before: impl Fn(&RunGuard)) -> (RunReport, Arc<RunGuard>) {
        let (machine, storage, guard) = self.guard(disk);
        before(&guard);
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

    /// What a daemon does of a guarded change that a contact follows, through a disk.
    pub(crate) fn run_and_confirm(&self, disk: &Disk) {
        let (_, guard) = self.run_after(disk, |_| {});
        guard.tick();
        // Of a change that is made already there is none.
        if let Some(number) = guard.number() {
            guard.confirm_tried(number, Ok(()));
        }
    }

    /// The window ends without a contact, and the watchdog looks.
    pub(crate) fn window_ends(&self) -> ReturnLook {
        let files = self.files(&Disk::new());
        let mut record = self.record().unwrap();
        let ActivationStage::Confirming(trial) = &mut record.under_way else {
            panic!("{:?}", record.under_way)
        };
        trial.deadline = BootTime::BOOT;
        files.guards().persist(&record).unwrap();
        look_at(&self.options(), &files).unwrap()
    }

    /// The host goes down before a contact followed.
    pub(crate) fn goes_down(&self) {
        let Some(mut record) = self.record() else { return };
        let another = "another-boot".parse().unwrap();
        match &mut record.under_way {
            ActivationStage::Armed(trial) | ActivationStage::Confirming(trial) => trial.boot = another,
            ActivationStage::Returning(back) => back.boot = another,
            ActivationStage::Settled | ActivationStage::Probation(_) => return,
            other @ ActivationStage::Deferred(_) => panic!("{other:?}"),
        }
        self.files(&Disk::new()).guards().persist(&record).unwrap();
    }

    /// The host goes down before a contact followed, and the watchdog looks.
    pub(crate) fn boots(&self) -> ReturnLook {
        self.goes_down();
        look_at(&self.options(), &self.files(&Disk::new())).unwrap()
    }

    pub(crate) fn told(&self) -> Vec<String> {
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

/// Whatever of the way to a host a run changes, it is guarded; and what is not of that way is not.
#[test]
fn each_way_to_the_host_is_guarded() {
    for (path, is_guarded) in [
        ("/etc/systemd/network/10-lan.network", true),
        ("/etc/network/interfaces", true),
        ("/etc/nftables.conf", true),
        ("/etc/resolv.conf", true),
        ("/etc/ssh/sshd_config", true),
        ("/etc/ssh/sshd_config.d/10-keys.conf", true),
        ("/etc/default/muster-agent", true),
        ("/etc/systemd/system/muster-agent.service.d/10-limits.conf", true),
        ("/etc/systemd/system/web.service", false),
        ("/etc/issue", false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        let found = format!("root{path}");
        std::fs::create_dir_all(host.path(&found).parent().unwrap()).unwrap();
        std::fs::write(host.path(&found), "as found").unwrap();
        let mut all = module("all");
        all.resources = vec![file("/etc/motd", "three"), file(path, "three")];
        adopt(&host.path("state"), 3, vec![all]);
        let (report, guard) = host.run();
        assert_eq!((report.counts.failed, guard.is_up()), (0, is_guarded), "{path}: {report:?}");
        assert_eq!(host.read(&found), "three", "{path}");
        drop(guard);
        let Some(record) = host.record() else {
            assert!(!is_guarded, "{path}");
            continue;
        };
        assert!(
            is_guarded && matches!(record.under_way, ActivationStage::Confirming(_)),
            "{path}: {record:?}"
        );
        assert!(matches!(host.window_ends(), ReturnLook::Done { .. }), "{path}");
        assert_eq!(host.read(&found), "as found", "{path}");
        assert_eq!(host.read("root/etc/motd"), "three", "{path}: what cuts nothing off stays");
    }
}

#[test]
fn a_contact_after_the_run_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let (_, guard) = host.run();
    assert!(host.path("units/muster-return.service").exists(), "the watchdog looks");
    assert!(guard.tick(), "a try is due");
    guard.confirm_tried(guard.number().unwrap(), Err("no route".to_owned()));
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
    guard.confirm_tried(guard.number().unwrap(), Ok(()));
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

#[test]
fn what_no_contact_followed_in_time_is_tried_again_after_one() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let (_, guard) = host.run();
    let waiting = guard.view().waiting.unwrap();
    assert_eq!(waiting.resources.len(), 1, "{waiting:?}");
    assert!(waiting.text.contains("unless the control plane is reached within"), "{waiting:?}");
    let line = "GUARDED        all/file:/etc/nftables.conf of release 2: is undone unless";
    assert!(guard.view().to_string().starts_with(line), "{}", guard.view());
    drop(guard);
    // Also where no daemon answers.
    let doctor = agent::doctor::diagnose(&host.options()).to_string();
    assert!(doctor.contains("warn  guard            all/file:/etc/nftables.conf of release 2"), "{doctor}");
    assert!(matches!(host.window_ends(), ReturnLook::Done { .. }));
    assert_eq!(host.read(RULES), "as found");
    assert_eq!(host.record().unwrap().quarantine.all()[0].cause, ReturnCause::NotConfirmed);
    let doctor = agent::doctor::diagnose(&host.options()).to_string();
    assert!(doctor.contains("what release 2 changed: this host undid just this change"), "{doctor}");
    // The control plane was not heard of since.
    let (report, guard) = host.run();
    let item = report.items.iter().find(|item| item.action == Action::Failed).unwrap();
    assert!(item.reason.as_ref().unwrap().contains("once the control plane has answered"), "{item:?}");
    let held = guard.view().held_back.unwrap();
    assert_eq!(held.resources[0].as_str(), "all/file:/etc/nftables.conf");
    assert!(held.text.contains("once the control plane has answered (1 of 3 tries were made)"), "{held:?}");
    drop(guard);
    // It was away, and is back.
    let (report, guard) = host.run_after(&Disk::new(), |guard| guard.note_contact(ContactAnswer::Answered));
    assert_eq!((report.counts.failed, guard.is_up()), (0, true), "{report:?}");
    assert_eq!(host.read(RULES), "two");
    drop(guard);
    host.window_ends();
    assert_eq!(host.read(RULES), "as found");
    // The second time it is left alone for longer.
    let (report, guard) = host.run_after(&Disk::new(), |guard| guard.note_contact(ContactAnswer::Answered));
    let item = report.items.iter().find(|item| item.action == Action::Failed).unwrap();
    assert!(item.reason.as_ref().unwrap().contains("min, after a contact (2 of 3"), "{item:?}");
    assert!(!guard.is_up());
}

#[test]
fn what_cannot_be_undone_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    drop(host.run());
    std::fs::remove_file(host.path(RULES)).unwrap();
    std::fs::create_dir_all(host.path(RULES).join("in-the-way")).unwrap();
    let mut record = host.record().unwrap();
    let ActivationStage::Confirming(trial) = &mut record.under_way else { panic!("not confirming") };
    trial.deadline = BootTime::BOOT;
    host.files(&Disk::new()).guards().persist(&record).unwrap();
    let (_machine, _storage, guard) = host.guard(&Disk::new());
    assert!(guard.resume(ActivationProcess::Agent).unwrap());
    assert!(guard.tick(), "it is not over");
    assert!(guard.view().waiting.unwrap().text.contains("is being undone"), "{:?}", guard.view());
    drop((guard, _machine, _storage));
    std::fs::remove_dir_all(host.path(RULES)).unwrap();
    let (_machine, _storage, guard) = host.guard(&Disk::new());
    assert!(!guard.resume(ActivationProcess::Agent).unwrap());
    assert_eq!(host.read(RULES), "as found");
}

/// A command that cut the host off does not run again as its change is undone; one that makes the host go by a file that is
/// put back does.
#[test]
fn commands_run_again_only_where_they_go_by_files() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let script = |name: &str, rest: &str| format!("echo {name} >> $MUSTER_ROOT/ran; : || {rest}");
    let mut all = module("all");
    let alone = [("command", script("alone", "ip link set eth0 down").into()), ("always", true.into())];
    let mut rules = file("/etc/nftables.conf", "three");
    rules.notify = vec!["loads".to_owned(), "sets".to_owned()];
    all.resources = vec![resource("shell", "alone", &alone), rules];
    all.handlers = vec![
        handler("loads", &script("loads", "nft -f /etc/nftables.conf")),
        handler("sets", &script("sets", "iptables -P INPUT DROP")),
    ];
    adopt(&host.path("state"), 3, vec![all]);
    let (report, guard) = host.run();
    assert_eq!(report.counts.failed, 0, "{report:?}");
    drop(guard);
    let ran = |name: &str| host.read("root/ran").lines().filter(|line| *line == name).count();
    assert_eq!((ran("alone"), ran("loads"), ran("sets")), (1, 1, 1));
    host.boots();
    assert_eq!(host.read(RULES), "as found");
    assert_eq!((ran("alone"), ran("loads"), ran("sets")), (1, 2, 1));
}
