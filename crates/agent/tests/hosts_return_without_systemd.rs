//! ROL-7, ROL-12: where systemd does not run, a loop of the kept agent in a session of its own takes a host back whose agent
//! goes on living, or died; and an agent that starts looks first, as nothing else does after a boot.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use activation::{
    ActivationRecord, ActivationStage, ActivationTerms, BootId, BootTime, Generation, GenerationId,
    ProbeTopology, ReturnCause, Trial,
};
use agent::generations::{GenerationFiles, InstalledAgent, ReturnLoop, ReturnWatchdog, boot_moment};
use agent::machine::Machine;
use agent::verbs::run_once;
use catalog::module::{Module, OnRemove};
use converge::{RunMode, RunScope};
use model::Digest;
use node::Adoption;
use spool::{Disk, PeekedFile};
use test_support::agent_local::{LocalHost, printed};
use test_support::agent_state::{file, machine_options, module, release};
use test_support::children::program;
use test_support::wait::until_blocking;

fn of(text: &str) -> Vec<Module> {
    let mut base = module("base");
    let mut motd = file("/etc/motd", text);
    motd.on_remove = Some(OnRemove::Keep);
    base.resources = vec![motd];
    if text == "two\n" {
        let mut extra = file("/etc/extra", text);
        extra.on_remove = Some(OnRemove::Keep);
        base.resources.push(extra);
    }
    vec![base]
}

fn files(host: &LocalHost) -> GenerationFiles {
    let options = machine_options(&host.state(), &host.root(), true);
    let installed =
        InstalledAgent { program: program("muster-agent"), files: Vec::new(), directories: Vec::new() };
    GenerationFiles::with(
        &host.state(),
        &Disk::new(),
        installed,
        ReturnWatchdog::Loop(ReturnLoop::new(&options)),
    )
}

/// A host on its confirmed release, with another one switched to and armed; its record is not written yet.
fn on_trial(host: &LocalHost) -> ActivationRecord {
    let files = files(host);
    let machine = Machine::open(&machine_options(&host.state(), &host.root(), true)).unwrap();
    run_once(&machine, RunMode::Apply, RunScope::All).unwrap();
    let (adoption, contents): (Adoption, _) = release(2, of("two\n"), None);
    for bytes in contents {
        machine.durable.keep(&bytes, Digest::of(&bytes)).unwrap();
    }
    let target = files.keep(&machine.durable, &adoption).unwrap();
    let mut record = files.load(&machine.durable, &boot_moment().unwrap()).unwrap().record;
    record.kept.push(target);
    let confirming = trial(target, boot_moment().unwrap().boot);
    if let ActivationStage::Confirming(trial) = confirming.clone() {
        record.under_way = ActivationStage::Armed(trial);
    }
    files.arm(&machine.durable, &record).unwrap();
    files.leave().unwrap();
    machine.durable.adopt(&adoption).unwrap();
    run_once(&machine, RunMode::Apply, RunScope::All).unwrap();
    files.arrive(target.id).unwrap();
    ActivationRecord { under_way: confirming, ..record }
}

fn trial(target: Generation, boot: BootId) -> ActivationStage {
    ActivationStage::Confirming(Trial {
        target,
        boot,
        deadline: BootTime::BOOT,
        switched: BootTime::BOOT,
        next_try: 0,
        deaths: 0,
        boots_left: 0,
        terms: ActivationTerms::default(),
        probes: ProbeTopology::default(),
    })
}

fn one() -> GenerationId {
    let (adoption, _): (Adoption, _) = release(1, of("one\n"), None);
    GenerationId(adoption.root)
}

#[track_caller]
fn wait_until_back(host: &LocalHost, cause: &ReturnCause) {
    until_blocking("the host is back", || {
        let PeekedFile::Value(record) = files(host).peek().unwrap() else { return None };
        (record.under_way == ActivationStage::Settled).then_some(())
    });
    assert_eq!(host.read("etc/motd").as_deref(), Some("one\n"));
    assert_eq!(host.read("etc/extra"), None);
    let files = files(host);
    assert_eq!(files.running().unwrap(), Some(one()));
    let PeekedFile::Value(record) = files.peek().unwrap() else { panic!() };
    assert_eq!(&record.quarantine.all()[0].cause, cause);
}

#[test]
fn an_agent_that_lives_is_ended_and_one_that_died_is_not_needed() {
    let mut host = LocalHost::new(of("one\n"));
    let record = on_trial(&host);
    assert!(files(&host).watchdog().is_set_up(), "a loop looks");
    // Its time is not over: the agent starts, and goes on with it.
    let mut later = record.clone();
    if let ActivationStage::Confirming(trial) = &mut later.under_way {
        trial.deadline = boot_moment().unwrap().at.plus(Duration::from_secs(3600));
    }
    files(&host).persist(&later).unwrap();
    host.start();
    assert_eq!(host.read("etc/motd").as_deref(), Some("two\n"));
    assert_eq!(printed(&host.agent(&["return", "--if-due"])).0, Some(0));
    files(&host).persist(&record).unwrap();
    wait_until_back(&host, &ReturnCause::NotConfirmed);
    until_blocking("the loop has ended", || (!files(&host).watchdog().is_set_up()).then_some(()));
    // Its supervisor starts the agent again, which goes on with what is confirmed.
    host.kill();
    host.start();
    assert_eq!(host.read("etc/motd").as_deref(), Some("one\n"));
}

#[test]
fn an_agent_that_starts_looks_first() {
    let mut host = LocalHost::new(of("one\n"));
    let mut record = on_trial(&host);
    // The boot ended the loop.
    files(&host).watchdog().take_down().unwrap();
    until_blocking("the loop has ended", || (!files(&host).watchdog().is_set_up()).then_some(()));
    if let ActivationStage::Confirming(trial) = &mut record.under_way {
        (trial.boot, trial.deadline) =
            ("before".parse().unwrap(), BootTime::after_boot(Duration::from_secs(600)));
    }
    files(&host).persist(&record).unwrap();
    host.start();
    wait_until_back(&host, &ReturnCause::Rebooted);
    let status = host.json(&["status"]);
    assert!(status["daemon"].is_object(), "it runs on as the agent: {status}");
}
