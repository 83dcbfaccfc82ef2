//! ROL-1, ROL-5, ROL-7, ROL-12: a real agent under a scripted control plane takes part in a rollout. It begins once its
//! acknowledgement was taken, confirms with its probes asked after the switch, and goes back by itself otherwise: with a
//! probe that fails, with the control plane gone, with itself killed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use model::Timestamp;
use model::health_probe::{ChannelProbe, HealthProbe, HealthProbeKind, HealthProbeMode};
use model::log::FactBody;
use model::rollout::{ProbeOutcome, RolloutDispatch, RolloutEventBody, RolloutFact, RolloutId, RolloutTask};
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
fn in_waves(motd: &str, script: &str) -> OfferPlan {
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
fn asks(victim: &Victim, made: &MadeOffer, task: RolloutTask) {
    let header = trust::signed::digest(&made.offer.header);
    let rollout = RolloutId::of_release(&"stable".parse().unwrap(), None, &header, |_| false);
    let wave = "all".to_owned();
    let dispatch = RolloutDispatch { rollout, seq: 6, wave, task, soak_secs: 1, ended: false };
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

fn kinds(victim: &Victim) -> Vec<&'static str> {
    let kind = |event: &RolloutEventBody| match event {
        RolloutEventBody::DispatchAck => "ack",
        RolloutEventBody::ActivationStarted => "started",
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

async fn says(victim: &Victim, what: &str) {
    until(&format!("it says {what}"), async || kinds(victim).contains(&what).then_some(())).await;
}

/// It acknowledges, and begins.
async fn begins(victim: &Victim, plan: &OfferPlan) {
    let made = victim.offer(plan);
    asks(victim, &made, acknowledge());
    says(victim, "ack").await;
    victim.contacts(2).await;
    assert_eq!(victim.file("/etc/motd"), "five\n", "nothing begins while it is only asked");
    asks(victim, &made, RolloutTask::Proceed);
    until("it is switched", async || (victim.file("/etc/motd") == plan.motd).then_some(())).await;
}

async fn is_back(victim: &Victim) {
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
    let why = said(&victim).into_iter().find_map(|(_, fact)| match fact.event {
        RolloutEventBody::Failed { message } => Some(message),
        _ => None,
    });
    assert!(why.as_ref().is_some_and(|why| why.contains("died in it 3 times")), "{why:?}");
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
