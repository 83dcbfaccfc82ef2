//! ROL-4, ROL-7, ROL-10, ROL-12: a host whose generation on trial is not confirmed goes back to its confirmed generation, offline,
//! with its agent killed, replaced or gone, its unit files changed, and whatever moment a crash came at: its files, the tree
//! of an image and a pair of commands alike.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use activation::{
    ActivationRecord, ActivationStage, ActivationTerms, AgentDeath, BootTime, Generation, GenerationId,
    ProbeTopology, ReturnCause, Trial,
};
use agent::generations::return_verb::{ReturnLook, look_at};
use agent::generations::{
    GenerationFiles, HostReturn, InstalledAgent, ReturnHostError, ReturnUnits, ReturnWatchdog, boot_moment,
};
use agent::machine::{Machine, MachineOptions};
use agent::runner::Runner;
use agent::state::{StateDir, StateError};
use agent::storage::Storage;
use agent::verbs::run_once;
use catalog::module::{FileRef, Module, OnRemove};
use converge::{RunMode, RunScope};
use model::log::FactBody;
use model::{Digest, Timestamp};
use node::{Adoption, FreshnessRecord};
use spool::{Disk, PeekedFile};
use test_support::agent_state::{adopt, file, join, machine_options, module, release, resource};
use test_support::kills::{doomed, killed_in, step};
use test_support::tar::{member, tar};
use trust::release::Fallback;
use trust::{Floor, Freshness};

/// Far more than a trial or a return has.
const MOST_POINTS: u64 = 1000;
const PROGRAM: &str = "#!/bin/sh\nexit 0\n";
const UNIT: &str = "[Service]\nExecStart=/usr/bin/muster-agent daemon\n";

/// A host with a confirmed release, and another one that is tried.
struct TriedHost {
    dir: PathBuf,
}

impl TriedHost {
    fn at(dir: &Path) -> TriedHost {
        TriedHost { dir: dir.to_owned() }
    }

    /// The host before the trial.
    fn confirmed(dir: &Path) -> TriedHost {
        let host = TriedHost::at(dir);
        join(&host.state(), &host.path("root"), true);
        for (path, text) in [("root/etc/app.conf", "as found\n"), ("root/etc/kept", "as found\n")] {
            host.write(path, text, 0o644);
        }
        std::fs::create_dir_all(host.path("root/opt")).unwrap();
        host.write("agent/muster-agent", PROGRAM, 0o755);
        host.write("units/muster-agent.service", UNIT, 0o644);
        host.write("systemctl", &format!("#!/bin/sh\necho \"$@\" >> {}/asked\n", dir.display()), 0o755);
        host.keep_archive("one");
        adopt(&host.state(), 1, one());
        run_once(&host.machine(), RunMode::Apply, RunScope::All).unwrap();
        host
    }

    fn keep_archive(&self, version: &str) {
        let bytes = archive(version);
        let durable = StateDir::create(&self.state()).unwrap().open().unwrap();
        durable.keep(&bytes, Digest::of(&bytes)).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    fn state(&self) -> PathBuf {
        self.path("state")
    }

    fn write(&self, path: &str, text: &str, mode: u32) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.path(path)).ok()
    }

    fn options(&self) -> MachineOptions {
        machine_options(&self.state(), &self.path("root"), true)
    }

    fn machine(&self) -> Machine {
        Machine::open(&self.options()).unwrap()
    }

    fn files(&self, disk: &Disk) -> GenerationFiles {
        let units = self.path("units");
        let installed = InstalledAgent {
            program: self.path("agent/muster-agent"),
            files: vec![units.join("muster-agent.service"), units.join("wants/muster-agent.service")],
            directories: vec![units.join("muster-agent.service.d")],
        };
        let watchdog = ReturnWatchdog::Units(ReturnUnits::at(&units, &self.path("systemctl"), disk));
        GenerationFiles::with(&self.state(), disk, installed, watchdog)
    }

    fn record(&self) -> ActivationRecord {
        match self.files(&Disk::new()).peek().unwrap() {
            PeekedFile::Value(record) => record,
            other => panic!("{other:?}"),
        }
    }

    /// What the daemon does of a trial up to the end of its switch, through a disk. The record says that it was armed in
    /// another boot: what looks next finds a host that went down.
    fn try_two(&self, disk: &Disk) {
        self.try_release(disk, release(2, two(), None));
    }

    fn try_release(&self, disk: &Disk, (adoption, contents): (Adoption, Vec<Vec<u8>>)) {
        let files = self.files(disk);
        let machine = Machine::open_at(&self.options(), &StateDir::at(&self.state(), disk.clone())).unwrap();
        let durable = &machine.durable;
        for bytes in contents.into_iter().chain([archive("two")]) {
            durable.keep(&bytes, Digest::of(&bytes)).unwrap();
        }
        let target = files.keep(durable, &adoption).unwrap();
        let before = files.load(durable, &boot_moment().unwrap()).unwrap();
        assert_eq!(before.repair, None);
        let armed = armed(before.record, target);
        files.arm(durable, &armed).unwrap();
        files.persist(&armed).unwrap();
        files.leave().unwrap();
        durable.adopt(&adoption).unwrap();
        run_once(&machine, RunMode::Apply, RunScope::All).unwrap();
        files.arrive(target.id).unwrap();
    }

    /// The agent of the release on trial makes itself impossible.
    fn break_the_agent(&self) {
        self.write("agent/muster-agent", "#!/bin/false\n", 0o755);
        std::fs::remove_file(self.path("units/muster-agent.service")).unwrap();
        self.write("units/muster-agent.service.d/broken.conf", "[Service]\nExecStartPre=/bin/false\n", 0o644);
        std::os::unix::fs::symlink("/dev/null", self.path("units/wants/muster-agent.service"))
            .or_else(|_| {
                std::fs::create_dir_all(self.path("units/wants"))?;
                std::os::unix::fs::symlink("/dev/null", self.path("units/wants/muster-agent.service"))
            })
            .unwrap();
    }

    fn look(&self) -> ReturnLook {
        look_at(&self.options(), &self.files(&Disk::new())).unwrap()
    }

    /// The host is as the confirmed generation has it, and all that looked is gone.
    #[track_caller]
    fn assert_is_back(&self, when: &str) {
        assert_eq!(self.read("root/etc/app.conf").as_deref(), Some("one\n"), "{when}");
        assert_eq!(self.read("root/etc/kept").as_deref(), Some("as found\n"), "{when}");
        assert_eq!(self.read("root/etc/made"), None, "{when}");
        assert_eq!(self.read("root/opt/app/bin/app").as_deref(), Some("one"), "{when}");
        assert_eq!(self.read("root/slot").as_deref(), Some("one\n"), "{when}");
        assert_eq!(self.read("agent/muster-agent").as_deref(), Some(PROGRAM), "{when}");
        assert_eq!(self.read("units/muster-agent.service").as_deref(), Some(UNIT), "{when}");
        assert_eq!(self.read("units/muster-agent.service.d/broken.conf"), None, "{when}");
        assert!(self.path("units/wants/muster-agent.service").symlink_metadata().is_err(), "{when}");
        let files = self.files(&Disk::new());
        assert!(!files.watchdog().is_set_up(), "{when}");
        let machine = self.machine();
        let held = machine.durable.adoption().unwrap().unwrap();
        assert_eq!(GenerationId(held.root), one_generation().id, "{when}");
        let found = files.load(&machine.durable, &boot_moment().unwrap()).unwrap();
        assert_eq!(found.repair, None, "{when}");
        assert_eq!(found.record.under_way, ActivationStage::Settled, "{when}");
        assert_eq!(found.record.confirmed.id, one_generation().id, "{when}");
    }
}

fn kept(path: &str, content: &str) -> catalog::module::DeclaredResource {
    let mut kept = file(path, content);
    kept.on_remove = Some(OnRemove::Keep);
    kept
}

/// An archive with one file.
fn archive(version: &str) -> Vec<u8> {
    tar(&[member("bin/app", b'0', "", 0o755, version.as_bytes())])
}

/// A module with what is switched as a whole, at a version.
fn app(version: &str) -> Module {
    let mut app = module("app");
    let bytes = archive(version);
    let archive = FileRef { digest: Digest::of(&bytes), size: bytes.len() as u64, executable: false };
    app.files.insert("files/app.tar".to_owned(), archive);
    app.blobs.insert(archive.digest);
    let run = format!("echo {version} > $MUSTER_ROOT/slot");
    app.resources = vec![
        resource("image", "/opt/app", &[("source", "app.tar".into())]),
        resource(
            "switch",
            "slot",
            &[("to", version.into()), ("run", run.into()), ("back", "echo one > $MUSTER_ROOT/slot".into())],
        ),
    ];
    app
}

fn one() -> Vec<Module> {
    let mut app = app("one");
    app.resources.push(file("/etc/app.conf", "one\n"));
    vec![app]
}

fn two() -> Vec<Module> {
    let mut app = app("two");
    app.resources.extend([
        kept("/etc/app.conf", "two\n"),
        kept("/etc/kept", "two\n"),
        kept("/etc/made", "two\n"),
    ]);
    vec![app]
}

fn one_generation() -> Generation {
    let (adoption, _): (Adoption, _) = release(1, one(), None);
    Generation { id: GenerationId(adoption.root), seq: 1, bytes: 0 }
}

fn armed(mut record: ActivationRecord, target: Generation) -> ActivationRecord {
    record.kept.push(target);
    record.under_way = ActivationStage::Armed(Trial {
        target,
        boot: "another-boot".parse().unwrap(),
        deadline: BootTime::after_boot(Duration::from_secs(3600)),
        switched: BootTime::BOOT,
        next_try: 0,
        deaths: 0,
        boots_left: 0,
        terms: ActivationTerms::default(),
        probes: ProbeTopology::default(),
    });
    record
}

#[test]
fn with_its_agent_replaced_its_unit_deleted_and_a_drop_in_that_breaks_it() {
    let dir = tempfile::tempdir().unwrap();
    let host = TriedHost::confirmed(dir.path());
    host.try_two(&Disk::new());
    assert_eq!(host.read("root/etc/kept").as_deref(), Some("two\n"));
    let service = host.read("units/muster-return.service").unwrap();
    assert!(
        service.contains("generations/programs/blobs/") && service.contains(" return --if-due\n"),
        "{service}"
    );
    assert!(host.path("units/timers.target.wants/muster-return.timer").exists());
    assert!(host.path("units/multi-user.target.wants/muster-return.service").exists());
    host.break_the_agent();
    let program = host.path("agent/muster-agent");
    assert_eq!(host.look(), ReturnLook::Done { replaced: Some(program) });
    host.assert_is_back("after a return");
    // What was returned from is known, and told once there is a network again.
    let record = host.record();
    let returned_from = record.quarantine.all();
    assert_eq!((returned_from.len(), &returned_from[0].cause), (1, &ReturnCause::Rebooted));
    let facts = host.machine().durable.facts(100, 1 << 20).unwrap();
    let told = |fact: &model::log::Fact| matches!(&fact.body, FactBody::Repaired { message } if message.contains("took this host from generation"));
    assert!(facts.iter().any(told), "{facts:?}");
    // The floor of releases stays: the release that failed is not forgotten.
    assert_eq!(host.machine().durable.adoption().unwrap().unwrap().floor.seq, 2);
    let asked = host.read("asked").unwrap();
    assert!(asked.contains("stop muster-agent.service\n"), "{asked}");
    assert!(asked.ends_with("daemon-reload\nstart --no-block muster-agent.service\n"), "{asked}");
    // Nothing is left of the trial but what the record says.
    assert_eq!(
        std::fs::read_dir(host.path("state/generations/programs/blobs"))
            .unwrap()
            .flatten()
            .map(|of| { std::fs::read_dir(of.path()).unwrap().count() })
            .sum::<usize>(),
        0
    );
    assert_eq!(host.look(), ReturnLook::Over);
}

/// ROL-4: at once as fresh as the header that names it as a fallback, with the beacons of that one; where none names it, by
/// its own header and the beacons that came while the host held it.
#[test]
fn as_fresh_as_what_was_signed_for_it() {
    let day = Duration::from_secs(86_400);
    for is_named in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let host = TriedHost::confirmed(dir.path());
        let held = host.machine().durable.adoption().unwrap().unwrap();
        let own = held.freshness.unwrap();
        let beacon = |of: &Adoption, at: Timestamp| {
            let freshness = Freshness { signed_at: at, ..of.freshness.unwrap() };
            let record = FreshnessRecord { freshness, newest_signature: at, ..FreshnessRecord::of(of) };
            host.machine().durable.save_freshness(&record).unwrap();
        };
        let [of_own, of_next, latest] = [1, 2, 3].map(|days| own.signed_at.plus(day * days));
        beacon(&held, of_own);
        let (mut next, contents) = release(2, two(), None);
        let of_header = Freshness { signed_at: of_next, window_secs: 30 * day.as_secs() };
        next.freshness = Some(of_header);
        let fallbacks = match is_named {
            true => vec![Fallback { seq: held.seq, header: held.digest }],
            false => Vec::new(),
        };
        next.floor = Floor {
            seq: next.seq,
            header: Some(next.digest),
            fallbacks,
            newest_signature: of_next,
            freshness_secs: Some(of_header.window_secs),
        };
        host.try_release(&Disk::new(), (next.clone(), contents));
        beacon(&next, latest);
        host.look();
        host.assert_is_back("after a return");
        let machine = host.machine();
        let back = machine.durable.adoption().unwrap().unwrap();
        let record = machine.durable.freshness(&back).unwrap();
        let wanted = match is_named {
            true => Freshness { signed_at: latest, ..of_header },
            false => Freshness { signed_at: of_own, ..own },
        };
        assert_eq!((record.header, record.freshness), (held.digest, wanted), "named: {is_named}");
        assert_eq!((record.newest_signature, back.floor.seq), (latest, 2), "named: {is_named}");
    }
}

#[test]
fn to_the_host_as_it_was_found() {
    let dir = tempfile::tempdir().unwrap();
    let host = TriedHost::confirmed(dir.path());
    // The first release of this host is the one on trial.
    let state = host.state();
    let files = host.files(&Disk::new());
    {
        let machine = host.machine();
        let target = files.keep(&machine.durable, &machine.durable.adoption().unwrap().unwrap()).unwrap();
        let armed = armed(ActivationRecord::default(), target);
        files.arm(&machine.durable, &armed).unwrap();
        files.persist(&armed).unwrap();
    }
    host.look();
    assert_eq!(host.read("root/etc/app.conf").as_deref(), Some("as found\n"));
    let machine = Machine::open(&machine_options(&state, &host.path("root"), true)).unwrap();
    assert!(machine.durable.ledger().unwrap().entries.is_empty());
    let held = machine.durable.adoption().unwrap().unwrap();
    assert!(held.objects.is_empty() && held.floor.seq == 1, "{held:?}");
    assert_eq!(files.running().unwrap(), Some(GenerationId::AS_FOUND));
    drop(machine);
    assert_eq!(host.record().confirmed.id, GenerationId::AS_FOUND);
    assert_eq!(host.record().under_way, ActivationStage::Settled);
}

#[test]
fn nothing_is_done_before_it_is_due() {
    let dir = tempfile::tempdir().unwrap();
    let host = TriedHost::confirmed(dir.path());
    host.try_two(&Disk::new());
    let mut record = host.record();
    let now = boot_moment().unwrap();
    if let ActivationStage::Armed(trial) = &mut record.under_way {
        trial.boot = now.boot.clone();
        trial.deadline = now.at.plus(Duration::from_secs(3600));
    }
    let files = host.files(&Disk::new());
    files.persist(&record).unwrap();
    assert_eq!(host.look(), ReturnLook::NotDue);
    assert_eq!(host.read("root/etc/kept").as_deref(), Some("two\n"));
    // Its time is over, and so is the patience with an agent that lives.
    if let ActivationStage::Armed(trial) = &mut record.under_way {
        trial.deadline = BootTime::BOOT;
    }
    files.persist(&record).unwrap();
    assert!(matches!(host.look(), ReturnLook::Done { .. }));
    host.assert_is_back("in the boot of the trial");
    assert_eq!(host.record().quarantine.all()[0].cause, ReturnCause::SwitchTooLong);
}

/// A release that ends its agent in the middle of the switch does not wait until the switch has no more time.
#[test]
fn minutes_after_its_agent_ended_in_the_middle_of_the_switch() {
    let dir = tempfile::tempdir().unwrap();
    let host = TriedHost::confirmed(dir.path());
    host.try_two(&Disk::new());
    let (mut record, now) = (host.record(), boot_moment().unwrap());
    if let ActivationStage::Armed(trial) = &mut record.under_way {
        trial.boot = now.boot.clone();
        trial.deadline = now.at.plus(Duration::from_secs(3600));
    }
    host.files(&Disk::new()).persist(&record).unwrap();
    // What earlier looks saw: so many times in a row nobody, since this boot's beginning.
    let seen = |missed: u32, process: Option<u32>| {
        let mut seen = serde_json::json!({"boot": now.boot, "livedMillis": 0, "missed": missed});
        if let Some(process) = process {
            seen["process"] = process.into();
        }
        std::fs::write(host.path("state/watched-agent.json"), seen.to_string()).unwrap();
    };
    seen(2, None);
    assert_eq!(host.look(), ReturnLook::NotDue, "it has not looked often enough");
    // An agent that lives goes on with it, however long that takes.
    seen(50, Some(std::process::id()));
    {
        let _agent = host.machine();
        assert_eq!(host.look(), ReturnLook::NotDue);
    }
    assert_eq!(host.look(), ReturnLook::NotDue, "it was there a moment ago");
    assert_eq!(host.read("root/etc/kept").as_deref(), Some("two\n"));
    seen(50, None);
    assert!(matches!(host.look(), ReturnLook::Done { .. }));
    host.assert_is_back("whose agent is gone");
    let cause = ReturnCause::AgentDied { how: AgentDeath::Gone };
    assert_eq!(host.record().quarantine.all()[0].cause, cause);
    let facts = format!("{:?}", host.machine().durable.facts(100, 1 << 20).unwrap());
    assert!(facts.contains("none went on with it"), "{facts}");
}

#[test]
fn an_agent_that_lives_ends_its_watch_itself() {
    let dir = tempfile::tempdir().unwrap();
    let host = TriedHost::confirmed(dir.path());
    let files = host.files(&Disk::new());
    let machine = host.machine();
    let (adoption, contents) = release(2, two(), None);
    for bytes in contents.into_iter().chain([archive("two")]) {
        machine.durable.keep(&bytes, Digest::of(&bytes)).unwrap();
    }
    let target = files.keep(&machine.durable, &adoption).unwrap();
    let record = files.load(&machine.durable, &boot_moment().unwrap()).unwrap().record;
    files.arm(&machine.durable, &armed(record, target)).unwrap();
    // It is about to write its record: the watchdog must not go away in between.
    assert_eq!(host.look(), ReturnLook::NotDue);
    assert!(files.watchdog().is_set_up());
    drop(machine);
    assert_eq!(host.look(), ReturnLook::Over, "it died before, and nothing is under way");
    assert!(!files.watchdog().is_set_up());
}

#[test]
fn a_damaged_record_means_the_way_back_where_there_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let host = TriedHost::confirmed(dir.path());
    host.try_two(&Disk::new());
    std::fs::write(host.path("state/activation.json"), "no record").unwrap();
    assert!(matches!(host.look(), ReturnLook::Done { .. }));
    host.assert_is_back("with a damaged record");
    let facts = host.machine().durable.facts(100, 1 << 20).unwrap();
    assert!(
        format!("{facts:?}").contains("the record of activations was damaged, so the host goes back"),
        "{facts:?}"
    );
    // Where no trial was under way, what it holds is what is confirmed.
    std::fs::write(host.path("state/activation.json"), "no record").unwrap();
    host.look();
    host.assert_is_back("with a damaged record and no trial");
}

#[test]
fn a_return_that_fails_in_its_middle_leaves_no_mark() {
    let dir = tempfile::tempdir().unwrap();
    let host = TriedHost::confirmed(dir.path());
    host.try_two(&Disk::new());
    let (files, machine) = (host.files(&Disk::new()), host.machine());
    let target = one_generation();
    assert!(files.running().unwrap().is_some());
    let storage = Storage::start(machine.durable.clone()).unwrap();
    let runner = Runner::new(machine.kinds.clone(), storage, "host.test".to_owned());
    let refused = |_: &Adoption| Err(StateError::StorageEnded);
    let traits = lang::Value::Map(Default::default());
    let back = HostReturn { files: &files, runner: &runner, traits: &traits, adopt: &refused };
    let two = GenerationId(release(2, two(), None).0.root);
    assert!(matches!(back.carry_out(two, &target), Err(ReturnHostError::State(_))));
    assert_eq!(files.running().unwrap(), None, "nobody knows what it runs");
    // What is not kept is not returned to, and a set that is kept is.
    let unknown = Generation { id: GenerationId(Digest::of(b"unknown")), seq: 9, bytes: 0 };
    assert!(matches!(back.carry_out(two, &unknown), Err(ReturnHostError::NotKept(_))));
    let durable = machine.durable.clone();
    let adopt = move |adoption: &Adoption| durable.adopt(adoption).map(drop);
    let back = HostReturn { files: &files, runner: &runner, traits: &traits, adopt: &adopt };
    assert_eq!(back.carry_out(two, &target).unwrap().run.unwrap().0.report.counts.failed, 0);
    assert_eq!(files.running().unwrap(), Some(target.id));
}

#[test]
fn a_trial_that_is_not_guarded_does_not_begin() {
    let dir = tempfile::tempdir().unwrap();
    let host = TriedHost::confirmed(dir.path());
    let begin = || {
        let files = host.files(&Disk::new());
        let machine = host.machine();
        let (adoption, contents) = release(2, two(), None);
        for bytes in contents.into_iter().chain([archive("two")]) {
            machine.durable.keep(&bytes, Digest::of(&bytes)).unwrap();
        }
        let target = files.keep(&machine.durable, &adoption).unwrap();
        let record = files.load(&machine.durable, &boot_moment().unwrap()).unwrap().record;
        let refused = files.arm(&machine.durable, &armed(record, target)).unwrap_err();
        agent::render::chain(&refused)
    };
    host.write("systemctl", "#!/bin/sh\ntest \"$1\" != daemon-reload\n", 0o755);
    assert!(begin().contains("systemctl daemon-reload"), "{}", begin());
    host.write("agent/muster-agent", "#!/bin/false\n", 0o755);
    assert!(begin().contains("cannot be run"), "{}", begin());
    std::fs::remove_dir_all(host.path("units")).unwrap();
    std::fs::write(host.path("units"), "").unwrap();
    host.write("agent/muster-agent", PROGRAM, 0o755);
    assert!(begin().contains("cannot write the watchdog's units"), "{}", begin());
}

/// What the parents start this test binary for; a plain test run finds nothing to do.
#[test]
fn child() {
    let Some((disk, dir)) = doomed() else { return };
    let host = TriedHost::at(&dir);
    match step().as_str() {
        "try" => host.try_two(&disk),
        _ => drop(look_at(&host.options(), &host.files(&disk)).unwrap()),
    }
}

fn at_every_point(step: &str, prepare: impl Fn(&TriedHost)) {
    let mut killed_at = 0;
    for point in 0..MOST_POINTS {
        let dir = tempfile::tempdir().unwrap();
        let host = TriedHost::confirmed(dir.path());
        prepare(&host);
        let was_killed = killed_in(&host.dir, step, point);
        killed_at += u64::from(was_killed);
        let when = format!("{step}, killed at point {point}");
        // The host boots, and what comes before the agent looks; once more after that.
        look_at(&host.options(), &host.files(&Disk::new()))
            .unwrap_or_else(|error| panic!("{when}: {error:?}"));
        host.assert_is_back(&when);
        assert!(matches!(host.look(), ReturnLook::Over), "{when}");
        if !was_killed {
            println!("{step}: killed at {killed_at} points");
            assert!(killed_at > 20, "only {killed_at} points: the faults do not reach what they should");
            return;
        }
    }
    panic!("more than {MOST_POINTS} persistence points");
}

#[test]
fn whatever_moment_of_the_trial_it_went_down_at() {
    at_every_point("try", |_| {});
}

#[test]
fn whatever_moment_of_the_return_it_went_down_at() {
    at_every_point("return", |host| {
        host.try_two(&Disk::new());
        host.break_the_agent();
    });
}
