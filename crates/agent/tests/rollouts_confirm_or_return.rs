//! ROL-1, ROL-5, ROL-7, ROL-12: a real agent under a scripted control plane takes part in a rollout. It begins once its
//! acknowledgement was taken, confirms with its probes asked after the switch, or after the boot that the release needs,
//! and goes back by itself otherwise: with a probe that fails, with the control plane gone, with itself killed. SEC-3:
//! what a probe printed stays at the host.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use activation::{ActivationRecord, ActivationStage, BootTime, MAX_BOOTS, Trial};
use agent::generations::GenerationFiles;
use model::Timestamp;
use model::health_probe::{ChannelProbe, HealthProbe, HealthProbeKind, HealthProbeMode};
use model::log::FactBody;
use model::rollout::{ProbeOutcome, RolloutDispatch, RolloutEventBody, RolloutFact, RolloutId, RolloutTask};
use spool::{Disk, PeekedFile, StateFile};
use test_support::agent_state::{machine_options, resource};
use test_support::scripted::key;
use test_support::scripted::stage::{MadeOffer, OfferPlan};
use test_support::scripted::victim::{Victim, delegating};
use test_support::wait::until;
use trust::ProbeEvidence;
use trust::rollout_terms::{ConfirmTerms, GateTerms, OnFailure, RolloutTerms, WaveMembers, WaveTerms};

const WINDOW_SECS: u64 = 60;

fn probe(script: &str) -> ChannelProbe {
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).into();
    let second = Duration::from_secs(1);
    let probe = HealthProbe {
        name: "motd".to_owned(),
        kind: HealthProbeKind::Command { argv },
        mode: HealthProbeMode::Enforce,
        grace: Duration::ZERO,
        sustained: second,
        every: second,
        timeout: second,
    };
    ChannelProbe { of: None, probe }
}

/// Release 6 in one wave, which a probe judges.
pub(crate) fn in_waves(motd: &str, script: &str) -> OfferPlan {
    let wave = WaveTerms {
        name: "all".to_owned(),
        members: WaveMembers::Rest,
        not_before: None,
        gate: GateTerms { soak_secs: 1, success: 100 },
    };
    let confirm = ConfirmTerms { window_secs: WINDOW_SECS, tries: 5, ..ConfirmTerms::default() };
    let rollout = RolloutTerms {
        waves: vec![wave],
        on_failure: OnFailure::Rollback,
        confirm,
        ..RolloutTerms::default()
    };
    let mut plan = delegating(6, motd);
    plan.policy.probes = vec![probe(script)];
    OfferPlan { rollout: Some(rollout), ..plan }
}

/// The control plane points to it, and asks for this from now on.
pub(crate) fn asks(victim: &Victim, made: &MadeOffer, task: RolloutTask) {
    let header = trust::signed::digest(&made.offer.header);
    let rollout = RolloutId::of_release(&"stable".parse().unwrap(), None, &header, |_| false);
    let wave = "all".to_owned();
    let dispatch = RolloutDispatch { rollout, seq: 6, wave, task, soak_secs: 1, through: None };
    let asked = move |answer: &mut model::exchange::Answer| answer.rollout = Some(dispatch.clone());
    victim.control.stage.play().twist = Some(Arc::new(asked));
}

fn acknowledge() -> RolloutTask {
    RolloutTask::Acknowledge { until: Timestamp(test_support::scripted::now().0 + 600_000) }
}

/// What the node said of the rollout so far.
fn said(victim: &Victim) -> Vec<(Timestamp, RolloutFact)> {
    let play = victim.control.stage.play();
    let of_rollouts = play.facts.values().filter_map(|fact| match &fact.body {
        FactBody::Rollout(event) => Some((fact.at, event.clone())),
        _ => None,
    });
    of_rollouts.collect()
}

pub(crate) fn kinds(victim: &Victim) -> Vec<&'static str> {
    let kind = |event: &RolloutEventBody| match event {
        RolloutEventBody::DispatchAck => "ack",
        RolloutEventBody::ActivationStarted => "started",
        RolloutEventBody::ActivationDeferred { .. } => "deferred",
        RolloutEventBody::ActivationComplete { .. } => "complete",
        RolloutEventBody::ProbeTopologyDeclared { .. } => "declared",
        RolloutEventBody::ProbeResult { outcome: ProbeOutcome::Pass, .. } => "pass",
        RolloutEventBody::ProbeResult { outcome: ProbeOutcome::Fail, .. } => "fail",
        RolloutEventBody::ProbeFailureFirst { .. } => "first failure",
        RolloutEventBody::Failed { .. } => "failed",
        RolloutEventBody::RollbackComplete { .. } => "back",
        RolloutEventBody::Converged { .. } => "converged",
        _ => "other",
    };
    said(victim).iter().map(|(_, fact)| kind(&fact.event)).collect()
}

pub(crate) async fn says(victim: &Victim, what: &str) {
    until(&format!("it says {what}"), async || kinds(victim).contains(&what).then_some(())).await;
}

/// It acknowledges, and begins.
pub(crate) async fn begins(victim: &Victim, plan: &OfferPlan) {
    let made = victim.offer(plan);
    asks(victim, &made, acknowledge());
    says(victim, "ack").await;
    victim.contacts(2).await;
    assert_eq!(victim.file("/etc/motd"), "five\n", "nothing begins while it is only asked");
    asks(victim, &made, RolloutTask::Proceed);
    until("it is switched", async || (victim.file("/etc/motd") == plan.motd).then_some(())).await;
}

fn record_file(victim: &Victim) -> StateFile<ActivationRecord> {
    let state = victim.root.with_file_name("state");
    StateFile::new(&Disk::new(), state.join("activation.json"), 0o600)
}

pub(crate) fn stage(victim: &Victim) -> ActivationStage {
    match record_file(victim).peek().unwrap() {
        PeekedFile::Value(record) => record.under_way,
        PeekedFile::Absent | PeekedFile::Damaged => ActivationStage::Settled,
    }
}

fn of_another_boot(trial: &mut Trial) {
    trial.boot = "another-boot".parse().unwrap();
}

/// The host is on trial, and its record says something else of that from now on; its agent does not run.
pub(crate) async fn on_trial_with(victim: &mut Victim, change: impl Fn(&mut Trial)) {
    until("it is to be confirmed", async || {
        matches!(stage(victim), ActivationStage::Confirming(_)).then_some(())
    })
    .await;
    victim.kill();
    change_trial(victim, change);
}

fn change_trial(victim: &Victim, change: impl Fn(&mut Trial)) {
    let file = record_file(victim);
    let PeekedFile::Value(mut record) = file.peek().unwrap() else { panic!("there is a record") };
    let (ActivationStage::Confirming(trial) | ActivationStage::Deferred(trial)) = &mut record.under_way
    else {
        panic!("{record:?}")
    };
    change(trial);
    file.store(&record).unwrap();
}

pub(crate) fn failed(victim: &Victim) -> Option<String> {
    said(victim).into_iter().find_map(|(_, fact)| match fact.event {
        RolloutEventBody::Failed { message } => Some(message),
        _ => None,
    })
}

/// What it said of its last failure.
fn failed_last(victim: &Victim) -> Option<String> {
    let of_failures = said(victim).into_iter().rev();
    of_failures.map(|(_, fact)| fact.event).find_map(|event| match event {
        RolloutEventBody::Failed { message } => Some(message),
        _ => None,
    })
}

pub(crate) async fn is_back(victim: &Victim) {
    says(victim, "back").await;
    until("the host is as it was", async || (victim.file("/etc/motd") == "five\n").then_some(())).await;
    let held = victim.control.stage.play().held.clone().unwrap();
    assert_eq!(held.seq, 5, "it holds what it held before");
    let back = said(victim).into_iter().rev().find_map(|(_, fact)| match fact.event {
        RolloutEventBody::RollbackComplete { release } => Some(release),
        _ => None,
    });
    assert_eq!(back, Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_confirms_with_its_probes_passing() {
    let victim = Victim::start().await;
    begins(&victim, &in_waves("six\n", "grep -q six $MUSTER_ROOT/etc/motd")).await;
    says(&victim, "converged").await;
    let told = kinds(&victim);
    assert_eq!(told, ["ack", "started", "complete", "declared", "pass", "converged"]);
    let said = said(&victim);
    let numbers: Vec<u64> = said.iter().map(|(_, fact)| fact.event_seq).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    // The result is signed by the host's key, and bound to the boot and the event.
    let (at, fact) = said.iter().find(|(_, fact)| fact.signature.is_some()).unwrap();
    let RolloutEventBody::ProbeResult { probe, outcome, boot } = &fact.event else { panic!("{fact:?}") };
    let incarnation = victim.control.stage.play().said.as_ref().unwrap().incarnation.clone();
    let evidence = ProbeEvidence {
        node: key(1).public().node_id(),
        incarnation,
        rollout: fact.rollout.clone(),
        event_seq: fact.event_seq,
        boot: boot.clone(),
        probe: probe.clone(),
        outcome: *outcome,
        at: *at,
    };
    evidence.verify(fact.signature.as_ref(), &key(1).public()).unwrap();
    let forged = ProbeEvidence { event_seq: 99, ..evidence };
    forged.verify(fact.signature.as_ref(), &key(1).public()).unwrap_err();
    assert_eq!(victim.control.stage.play().held.clone().unwrap().seq, 6);
}

/// ROL-10: what is kept of generations is bounded in bytes, the trees that they were unpacked to included.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_measured_once_it_is_switched_to() {
    let victim = Victim::start().await;
    // As an image left it.
    let unpacked = |path: &str, unpacked: serde_json::Value| {
        let directory = victim.root.with_file_name("state").join("unpacked");
        std::fs::create_dir_all(&directory).unwrap();
        let name = format!("{}.json", model::Digest::of(path.as_bytes()));
        let file: StateFile<serde_json::Value> = StateFile::new(&Disk::new(), directory.join(name), 0o600);
        file.store(&serde_json::json!({"path": path, "unpacked": unpacked})).unwrap();
    };
    let tree = format!("sha256:{} 77000000 bytes 0644 root root", model::Digest::ZERO);
    unpacked("/opt/.app.generations", serde_json::json!({"t": "1"}));
    unpacked("/opt/.app.generations/t", serde_json::json!({"archive": "x", "app": tree}));
    begins(&victim, &in_waves("six\n", "true")).await;
    until("it is measured", async || match record_file(&victim).peek().unwrap() {
        PeekedFile::Value(record) => record
            .kept
            .last()
            .is_some_and(|kept| (77_000_001..78_000_000).contains(&kept.bytes))
            .then_some(()),
        PeekedFile::Absent | PeekedFile::Damaged => None,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_back_when_a_probe_fails() {
    let victim = Victim::start().await;
    // It passes until the release is there.
    begins(&victim, &in_waves("six\n", "grep -q five $MUSTER_ROOT/etc/motd")).await;
    is_back(&victim).await;
    let told = kinds(&victim);
    assert_eq!(told[..7], ["ack", "started", "complete", "declared", "fail", "first failure", "failed"]);
    // People at the host see the run of the return, and not that of the release which was left.
    until("its status shows the run of the return", async || {
        (victim.status()["lastRun"]["seq"] == 5).then_some(())
    })
    .await;
}

/// SEC-3: what a probe's command prints, which may be a secret, is in the journal of its host and nowhere else; the
/// control plane and the record have its exit code.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_probe_s_command_prints_stays_in_the_journal() {
    const SECRET: &str = "planted-b81c";
    let victim = Victim::start().await;
    let password = victim.root.join("password");
    std::fs::write(&password, SECRET).unwrap();
    // It passes until the release is there.
    let script = "grep -q five $MUSTER_ROOT/etc/motd || { cat $MUSTER_ROOT/password >&2; exit 7; }";
    begins(&victim, &in_waves("six\n", script)).await;
    is_back(&victim).await;
    let why = "the probe motd failed: it exits with 7";
    assert_eq!(failed(&victim).as_deref(), Some(why));
    until("its status says so", async || {
        victim.status()["daemon"]["activation"]["text"]
            .as_str()
            .is_some_and(|text| text.contains(why))
            .then_some(())
    })
    .await;
    let told = format!("{:?}", victim.control.stage.play().facts);
    assert!(told.contains(why) && !told.contains(SECRET), "{told}");
    let log = String::from_utf8_lossy(&victim.log()).into_owned();
    assert!(log.contains(&format!("printed={SECRET:?}")), "{log}");
    // Nothing else at the host has it either.
    let top = victim.root.parent().unwrap();
    let found = std::process::Command::new("grep").args(["-rlF", SECRET]).arg(top).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let mut found: Vec<&str> = found.lines().collect();
    found.sort_unstable();
    let log = top.join("state.log");
    assert_eq!(found, [password.to_str().unwrap(), log.to_str().unwrap()]);
}

/// Also a command that never ends, and one that prints without end, are failures in their time.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_never_ends_or_prints_without_end_fails() {
    for script in ["sleep 600", "yes"] {
        let victim = Victim::start().await;
        begins(&victim, &in_waves("six\n", script)).await;
        is_back(&victim).await;
        assert!(victim.peak_kib() < 256 * 1024, "{script}: {} KiB", victim.peak_kib());
    }
}

/// ROL-12: the agent dies three times in the release that is tried.
#[tokio::test(flavor = "multi_thread")]
async fn it_goes_back_after_three_deaths() {
    let mut victim = Victim::start().await;
    let mut plan = in_waves("six\n", "false");
    // Its failures do not count yet, and it is not confirmed without its pass.
    plan.policy.probes[0].probe.grace = Duration::from_secs(600);
    begins(&victim, &plan).await;
    for starts in 1..=3 {
        until("the agent asks its probes", async || {
            let asked = kinds(&victim).iter().filter(|kind| **kind == "declared").count();
            (asked >= starts).then_some(())
        })
        .await;
        victim.kill();
        victim.begin();
    }
    is_back(&victim).await;
    let why = failed(&victim);
    assert!(why.as_ref().is_some_and(|why| why.contains("died in it 3 times")), "{why:?}");
}

/// ROL-7: the disk is full while the way back is kept: nothing is switched and nothing stays of it, the rollout hears what
/// the disk says, and the same release goes through once there is room.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_while_it_is_armed_switches_nothing() {
    let can_mount = Command::new("unshare").args(["--mount", "true"]).status();
    if !can_mount.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: mounting needs root");
    }
    let mut victim = Victim::start().await;
    victim.isolate_mounts();
    let state = victim.root.with_file_name("state");
    // Where the agent's program is kept: all that comes before has room.
    let programs = state.join("generations/programs");
    std::fs::create_dir_all(&programs).unwrap();
    // It has file systems of its own by now.
    victim.contacts(1).await;
    victim.mounts(&format!("mount -t tmpfs -o size=64k tmpfs {}", programs.display()));
    let made = victim.offer(&in_waves("six\n", "grep -q six $MUSTER_ROOT/etc/motd"));
    asks(&victim, &made, acknowledge());
    says(&victim, "ack").await;
    asks(&victim, &made, RolloutTask::Proceed);
    says(&victim, "back").await;
    asks(&victim, &made, RolloutTask::Hold);
    victim.contacts(2).await;
    let why = failed(&victim).unwrap();
    let disk = programs.display().to_string();
    assert!(why.contains("nothing was switched") && why.contains("No space left on device"), "{why}");
    assert!(why.contains(&disk), "{why}");
    let told = kinds(&victim);
    assert_eq!(told[..3], ["ack", "failed", "back"]);
    assert!(!told.contains(&"started") && victim.file("/etc/motd") == "five\n", "{told:?}");
    assert_eq!(victim.control.stage.play().held.clone().unwrap().seq, 5);
    // Nothing is under way, looks, or is kept for a way back.
    assert_eq!(stage(&victim), ActivationStage::Settled);
    let options = machine_options(&state, &victim.root, true);
    assert!(!GenerationFiles::of(&options, &Disk::new()).watchdog().is_set_up());
    let kept = std::fs::read_dir(state.join("generations")).unwrap();
    let agents: Vec<_> = kept.map(|kept| kept.unwrap().path().join("agent.json")).collect();
    assert!(agents.iter().all(|agent| !agent.exists()), "{agents:?}");
    victim.mounts(&format!("test -z \"$(find {disk} -type f)\""));

    victim.mounts(&format!("umount {disk}"));
    let acks = || kinds(&victim).iter().filter(|kind| **kind == "ack").count();
    let before = acks();
    asks(&victim, &made, acknowledge());
    until("it says that it will again", async || (acks() > before).then_some(())).await;
    asks(&victim, &made, RolloutTask::Proceed);
    says(&victim, "converged").await;
    assert_eq!(victim.file("/etc/motd"), "six\n");
}

/// ROL-7: the control plane took the acknowledgement, and no answer came since.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_starts_anew_acknowledges_again() {
    let mut victim = Victim::start().await;
    let plan = in_waves("six\n", "grep -q six $MUSTER_ROOT/etc/motd");
    let made = victim.offer(&plan);
    asks(&victim, &made, acknowledge());
    says(&victim, "ack").await;
    victim.kill();
    asks(&victim, &made, RolloutTask::Proceed);
    victim.begin();
    says(&victim, "converged").await;
    assert_eq!(kinds(&victim)[..3], ["ack", "ack", "started"]);
}

/// ROL-7: its probes pass, and no try to confirm is answered until the window ends: it returns with the control plane
/// gone, and says so later.
#[tokio::test(flavor = "multi_thread")]
async fn it_goes_back_when_the_control_plane_is_gone_for_the_window() {
    let mut victim = Victim::start().await;
    let mut plan = in_waves("six\n", "test -e $MUSTER_ROOT/ready");
    plan.policy.probes[0].probe.grace = Duration::from_secs(600);
    begins(&victim, &plan).await;
    until("it is to be confirmed", async || {
        matches!(stage(&victim), ActivationStage::Confirming(_)).then_some(())
    })
    .await;
    victim.control.stage.play().gone = true;
    std::fs::write(victim.root.join("ready"), "").unwrap();
    until("a try to confirm fails", async || {
        String::from_utf8_lossy(&victim.log()).contains("a try to confirm failed").then_some(())
    })
    .await;
    assert_eq!(victim.file("/etc/motd"), "six\n", "a try that failed ends no window");
    // The rest of the window goes by.
    on_trial_with(&mut victim, |trial| trial.deadline = BootTime::BOOT).await;
    victim.begin();
    until("it returns offline", async || (victim.file("/etc/motd") == "five\n").then_some(())).await;
    assert!(!kinds(&victim).contains(&"back"));
    victim.control.stage.play().gone = false;
    is_back(&victim).await;
    let why = failed(&victim);
    assert!(why.as_ref().is_some_and(|why| why.contains("nothing confirmed it")), "{why:?}");
}

/// ROL-7: what was tried in another boot is not confirmed in this one.
#[tokio::test(flavor = "multi_thread")]
async fn it_goes_back_when_the_boot_is_another_one() {
    let mut victim = Victim::start().await;
    let mut plan = in_waves("six\n", "test -e $MUSTER_ROOT/ready");
    plan.policy.probes[0].probe.grace = Duration::from_secs(600);
    begins(&victim, &plan).await;
    on_trial_with(&mut victim, of_another_boot).await;
    // Its probes pass now.
    std::fs::write(victim.root.join("ready"), "").unwrap();
    victim.begin();
    is_back(&victim).await;
    let why = failed(&victim);
    assert!(why.as_ref().is_some_and(|why| why.contains("went down before")), "{why:?}");
}

/// Release 6, whose run asks for a boot, as the package of a kernel does.
fn with_kernel(script: &str) -> OfferPlan {
    let install = "mkdir -p $MUSTER_ROOT/run && echo linux-image > $MUSTER_ROOT/run/reboot-required.pkgs && \
                   touch $MUSTER_ROOT/run/reboot-required $MUSTER_ROOT/etc/kernel";
    let kernel = [("command", install.into()), ("creates", "/etc/kernel".into())];
    OfferPlan { resources: vec![resource("shell", "kernel", &kernel)], ..in_waves("six\n", script) }
}

/// It is switched, says what asks for a boot, and asks no probe; nor does an agent that starts anew in the same boot.
async fn waits_for_boot(victim: &mut Victim) {
    says(victim, "deferred").await;
    for starts_anew in [false, true] {
        if starts_anew {
            victim.kill();
            victim.begin();
        }
        victim.contacts(2).await;
        assert_eq!(kinds(victim), ["ack", "started", "deferred"]);
        assert!(matches!(stage(victim), ActivationStage::Deferred(_)), "{:?}", stage(victim));
        assert_eq!(victim.status()["daemon"]["activation"]["text"], "takes effect at the next boot");
    }
    let (_, last) = said(victim).pop().unwrap();
    assert_eq!(last.event, RolloutEventBody::ActivationDeferred { component: "linux-image".to_owned() });
    assert_eq!(victim.file("/etc/motd"), "six\n");
}

/// The host goes down and comes up: of another boot is what the agent wrote, and gone what lies below `/run`.
fn boots(victim: &mut Victim) {
    victim.kill();
    change_trial(victim, of_another_boot);
    let _ = std::fs::remove_file(victim.root.with_file_name("state").join("process.json"));
    let _ = std::fs::remove_dir_all(victim.root.join("run"));
    victim.begin();
}

/// ROL-7: a release that takes effect at a boot waits for it, and is confirmed by what its probes say after it.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_needs_a_boot_is_confirmed_after_it() {
    let mut victim = Victim::start().await;
    begins(&victim, &with_kernel("grep -q six $MUSTER_ROOT/etc/motd")).await;
    waits_for_boot(&mut victim).await;
    boots(&mut victim);
    says(&victim, "converged").await;
    assert_eq!(kinds(&victim)[3..], ["complete", "declared", "pass", "converged"]);
    assert_eq!(victim.control.stage.play().held.clone().unwrap().seq, 6);
}

/// ROL-7: what fails since the boot takes the host back, as it would without one.
#[tokio::test(flavor = "multi_thread")]
async fn it_goes_back_when_the_boot_broke_it() {
    let mut victim = Victim::start().await;
    begins(&victim, &with_kernel("test -e $MUSTER_ROOT/run/linux")).await;
    waits_for_boot(&mut victim).await;
    std::fs::write(victim.root.join("run/linux"), "").unwrap();
    boots(&mut victim);
    is_back(&victim).await;
    assert_eq!(kinds(&victim)[3..8], ["complete", "declared", "fail", "first failure", "failed"]);
    let why = failed(&victim);
    assert!(why.as_ref().is_some_and(|why| why.contains("motd")), "{why:?}");
}

/// ROL-7: a host that goes down in it again and again, before anything can confirm it, boots so often and no more.
#[tokio::test(flavor = "multi_thread")]
async fn it_goes_back_when_it_boots_again_and_again() {
    let mut victim = Victim::start().await;
    let mut plan = with_kernel("false");
    plan.policy.probes[0].probe.grace = Duration::from_secs(600);
    begins(&victim, &plan).await;
    waits_for_boot(&mut victim).await;
    for booted in 1..=usize::from(MAX_BOOTS) {
        boots(&mut victim);
        until("its probes are asked", async || {
            let asked = kinds(&victim).iter().filter(|kind| **kind == "declared").count();
            (asked >= booted).then_some(())
        })
        .await;
        assert_eq!(victim.file("/etc/motd"), "six\n", "boot {booted}");
    }
    boots(&mut victim);
    is_back(&victim).await;
    let why = failed(&victim);
    assert!(why.as_ref().is_some_and(|why| why.contains("went down before")), "{why:?}");
}

/// ROL-7: the agent is killed at what each effect leaves behind: what is asked for again is whole in the end, and the
/// host is on the one release or the other.
#[tokio::test(flavor = "multi_thread")]
async fn it_ends_well_wherever_it_is_killed() {
    type Reached = fn(&Victim) -> bool;
    let is_under_way = |victim: &Victim| !matches!(stage(victim), ActivationStage::Settled);
    let moments: [(&str, Reached); 6] = [
        ("its part is recorded", |victim| {
            let part = std::fs::read(victim.root.with_file_name("state").join("rollout.json"));
            part.is_ok_and(|part| String::from_utf8_lossy(&part).contains("stable@"))
        }),
        ("it is armed", is_under_way),
        ("the mark is gone", |victim| {
            let mark = victim.root.with_file_name("state").join("running.json");
            !matches!(stage(victim), ActivationStage::Settled) && !mark.exists()
                || matches!(stage(victim), ActivationStage::Confirming(_) | ActivationStage::Probation(_))
        }),
        ("it is switched", |victim| victim.file("/etc/motd") == "six\n"),
        ("it is to be confirmed", |victim| {
            matches!(stage(victim), ActivationStage::Confirming(_) | ActivationStage::Probation(_))
        }),
        ("it is confirmed", |victim| matches!(stage(victim), ActivationStage::Probation(_))),
    ];
    for (moment, is_reached) in moments {
        let mut victim = Victim::start().await;
        let made = victim.offer(&in_waves("six\n", "grep -q six $MUSTER_ROOT/etc/motd"));
        asks(&victim, &made, acknowledge());
        says(&victim, "ack").await;
        asks(&victim, &made, RolloutTask::Proceed);
        until(moment, async || is_reached(&victim).then_some(())).await;
        victim.kill();
        let motd = victim.file("/etc/motd");
        assert!(motd == "five\n" || motd == "six\n", "{moment}: {motd}");
        victim.begin();
        says(&victim, "converged").await;
        assert_eq!(victim.file("/etc/motd"), "six\n", "{moment}");
        assert_eq!(victim.control.stage.play().held.clone().unwrap().seq, 6, "{moment}");
        let mut numbers: Vec<u64> = said(&victim).iter().map(|(_, fact)| fact.event_seq).collect();
        assert!(numbers.is_sorted(), "{moment}: {numbers:?}");
        numbers.dedup();
        assert_eq!(numbers.len(), said(&victim).len(), "{moment}: no number twice");
    }
}

/// ROL-12: content that was not to blame is held back all the same; who is root at the host lets it be tried again, and the
/// same release goes through.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_lifted_at_the_host_is_tried_again() {
    let mut victim = Victim::start().await;
    let script = "test -e $MUSTER_ROOT/ready || grep -q five $MUSTER_ROOT/etc/motd";
    let plan = in_waves("six\n", script);
    begins(&victim, &plan).await;
    is_back(&victim).await;
    std::fs::write(victim.root.join("ready"), "").unwrap();
    let made = victim.offer(&plan);
    let acks = |victim: &Victim| kinds(victim).iter().filter(|kind| **kind == "ack").count();
    asks(&victim, &made, acknowledge());
    until("it says that it will", async || (acks(&victim) == 2).then_some(())).await;
    asks(&victim, &made, RolloutTask::Proceed);
    until("it is refused", async || {
        failed_last(&victim).is_some_and(|why| why.contains("returned from it")).then_some(())
    })
    .await;
    asks(&victim, &made, RolloutTask::Hold);
    let lifted = victim.agent(&["quarantine", "lift", "6"]);
    assert!(lifted.status.success(), "{lifted:?}");
    // It is durable: the next agent knows of nothing that is held back.
    victim.kill();
    victim.begin();
    asks(&victim, &made, acknowledge());
    until("it says once more that it will", async || (acks(&victim) > 2).then_some(())).await;
    asks(&victim, &made, RolloutTask::Proceed);
    says(&victim, "converged").await;
    assert_eq!(victim.file("/etc/motd"), "six\n");
}
