//! ROL-5, ROL-7: another release with the content that the host runs, or that waits for its boot: it takes the place of the one
//! before, and whatever its switch comes to is told.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(dead_code, unused_imports)]
mod simulated;

use std::time::Duration;

use activation::{
    Activation, ActivationEffect, ActivationFact, ActivationInput, ActivationOrder, ActivationProcess,
    ActivationRecord, ActivationRefusal, ActivationStage, ActivationTerms, AfterConfirm, BootMoment,
    BootTime, FoundHost, Generation, GenerationLimits, HealthProbeMode, HealthProbeOutcome,
    HealthProbeResult, PERSIST_RETRY, ProbeTopology, ReturnCause, SwitchEnd,
};
use simulated::{boot_id, generation, id, probe};

fn at(secs: u64) -> BootTime {
    BootTime::after_boot(Duration::from_secs(secs))
}

fn start(record: ActivationRecord, runs: Option<u8>, boot: u32) -> (Activation, Vec<ActivationEffect>) {
    let found = FoundHost { process: ActivationProcess::Agent, runs: runs.map(id) };
    let now = BootMoment { boot: boot_id(boot), at: at(0) };
    Activation::start(record, GenerationLimits::default(), found, &now)
}

/// A host with generation 0 confirmed, as release 0.
fn settled() -> Activation {
    start(ActivationRecord { confirmed: generation(0), ..ActivationRecord::default() }, Some(0), 1).0
}

/// A content, as release `seq`.
fn order(content: u8, seq: u64, terms: ActivationTerms) -> ActivationInput {
    let probes = ProbeTopology::declare(vec![probe("web", HealthProbeMode::Enforce)]).unwrap();
    let target = Generation { seq, ..generation(content) };
    ActivationInput::Activate(Box::new(ActivationOrder { target, terms, probes }))
}

fn switched(content: u8, end: SwitchEnd) -> ActivationInput {
    ActivationInput::Switched { target: id(content), end }
}

fn needs_reboot() -> SwitchEnd {
    SwitchEnd::NeedsReboot { component: "kernel".to_owned() }
}

fn failed() -> SwitchEnd {
    SwitchEnd::Failed { reason: "no room".to_owned() }
}

fn facts(effects: &[ActivationEffect]) -> Vec<ActivationFact> {
    let fact = |effect: &ActivationEffect| match effect {
        ActivationEffect::Report(fact) => Some(fact.clone()),
        _ => None,
    };
    effects.iter().filter_map(fact).collect()
}

fn has_switch(effects: &[ActivationEffect], content: u8, seq: u64) -> bool {
    effects.contains(&ActivationEffect::Switch(Generation { seq, ..generation(content) }))
}

/// Release 1 waits for its boot.
fn deferred() -> Activation {
    let mut host = settled();
    host.handle(order(1, 1, ActivationTerms::default()), at(0));
    host.handle(switched(1, needs_reboot()), at(10));
    host
}

fn waits_as(host: &Activation) -> Option<(u64, ActivationTerms)> {
    match &host.record().under_way {
        ActivationStage::Deferred(trial) => Some((trial.target.seq, trial.terms)),
        _ => None,
    }
}

/// The terms of release 2.
fn later() -> ActivationTerms {
    ActivationTerms { after_confirm: AfterConfirm::Return, boots: 1, ..ActivationTerms::default() }
}

fn took_over() -> Activation {
    let mut host = deferred();
    let effects = host.handle(order(1, 2, later()), at(20));
    assert_eq!(facts(&effects), [ActivationFact::Started { target: id(1) }]);
    assert!(has_switch(&effects, 1, 2), "the host is to hold it: {effects:?}");
    host
}

#[test]
fn what_waits_for_its_boot_takes_the_number_of_the_next_release() {
    for (end, component) in [
        (needs_reboot(), "kernel"),
        (SwitchEnd::Done, "the release before, which has the same content"),
        (SwitchEnd::NeedsNewAgent, "the release before, which has the same content"),
    ] {
        let mut host = took_over();
        let told = facts(&host.handle(switched(1, end.clone()), at(30)));
        let component = component.to_owned();
        assert_eq!(told, [ActivationFact::Deferred { target: id(1), component }], "{end:?}");
        assert_eq!(host.handle(switched(1, end.clone()), at(31)), [], "once");
        assert_eq!(waits_as(&host), Some((2, later())), "{end:?}");
        // After the boot it is on trial as that release.
        let (booted, effects) = start(host.record().clone(), Some(1), 2);
        assert_eq!(facts(&effects)[0], ActivationFact::Completed { target: id(1) }, "{end:?}");
        let ActivationStage::Confirming(trial) = &booted.record().under_way else {
            unreachable!("{:?}", booted.record())
        };
        assert_eq!((trial.target.seq, trial.boots_left), (2, 0), "{end:?}");
    }
}

/// What cannot be made so is told as of any trial: the host goes back.
#[test]
fn what_waits_for_its_boot_is_left_where_the_next_switch_fails() {
    let mut host = took_over();
    let told = facts(&host.handle(switched(1, failed()), at(30)));
    let cause = ReturnCause::SwitchFailed { reason: "no room".to_owned() };
    assert_eq!(told, [ActivationFact::Returning { from: id(1), to: id(0), cause }]);
}

#[test]
fn a_switch_that_nobody_ended_is_made_again() {
    // Its process ended in the middle of it, or with it made.
    for (runs, again) in [(None, true), (Some(1), false)] {
        let (mut host, effects) = start(took_over().record().clone(), runs, 1);
        assert_eq!(has_switch(&effects, 1, 2), again, "{runs:?} {effects:?}");
        let told = facts(&host.handle(switched(1, needs_reboot()), at(30)));
        assert_eq!(told.len(), usize::from(again), "{runs:?} {told:?}");
    }
}

/// The boot that is waited for comes in the middle of that switch: the host goes back, and tries the content once more.
#[test]
fn a_boot_in_the_middle_of_that_switch_is_no_word_against_the_content() {
    let (booted, _) = start(took_over().record().clone(), None, 2);
    let ActivationStage::Returning(back) = &booted.record().under_way else {
        unreachable!("{:?}", booted.record())
    };
    assert_eq!(back.cause, ReturnCause::Rebooted);
    assert_eq!(booted.record().quarantine.of(id(1)), None);
    // Where something else is found than what it waits with, somebody was at it.
    let (booted, _) = start(took_over().record().clone(), Some(7), 2);
    let ActivationStage::Returning(back) = &booted.record().under_way else {
        unreachable!("{:?}", booted.record())
    };
    assert_eq!(back.cause, ReturnCause::FoundElsewhere);
}

/// A release that could not be made durable is not tried again once a newer one was taken.
#[test]
fn what_is_tried_again_is_no_older_release() {
    let mut host = deferred();
    host.handle(order(1, 2, later()), at(20));
    host.handle(ActivationInput::NotPersisted { reason: "no room".to_owned() }, at(20));
    host.handle(order(1, 3, later()), at(21));
    assert_eq!(waits_as(&host).map(|(seq, _)| seq), Some(3));
    host.handle(ActivationInput::Tick, at(20).plus(PERSIST_RETRY * 2));
    assert_eq!(waits_as(&host).map(|(seq, _)| seq), Some(3));
}

/// Nothing is switched that is not durable: it is tried until it is.
#[test]
fn a_full_disk_does_not_silence_it() {
    let full = || ActivationInput::NotPersisted { reason: "no room".to_owned() };
    for (mut host, content) in [(deferred(), 1), (settled(), 0)] {
        let before = host.record().clone();
        host.handle(order(content, 2, later()), at(20));
        assert!(!has_switch(&host.handle(full(), at(20)), content, 2), "{content}");
        assert_eq!(host.record(), &before, "{content}");
        assert!(!host.is_at_rest(), "{content}: it is to be tried again");
        let effects = host.handle(ActivationInput::Tick, at(20).plus(PERSIST_RETRY));
        assert!(has_switch(&effects, content, 2), "{content}: {effects:?}");
    }
}

/// One that is given up, which could not be made durable yet, takes no other release.
#[test]
fn what_is_to_be_left_takes_no_other_number() {
    let mut host = deferred();
    host.handle(order(2, 2, later()), at(20));
    host.handle(ActivationInput::NotPersisted { reason: "no room".to_owned() }, at(20));
    let refused = ActivationFact::Refused { target: id(1), refusal: ActivationRefusal::UnderWay };
    assert_eq!(facts(&host.handle(order(1, 3, later()), at(21))), [refused]);
    assert_eq!(waits_as(&host), Some((1, ActivationTerms::default())));
}

/// The host runs the content: what the switch comes to is told, with its reason.
#[test]
fn each_end_of_a_switch_to_what_is_confirmed_is_told() {
    for end in [SwitchEnd::Done, SwitchEnd::NeedsNewAgent, needs_reboot(), failed()] {
        for (mut host, content) in [(settled(), 0), (confirmed(), 1)] {
            let (target, stage) = (id(content), std::mem::discriminant(&host.record().under_way));
            host.handle(order(content, 2, later()), at(200));
            let told = match end.clone() {
                SwitchEnd::Done | SwitchEnd::NeedsNewAgent => ActivationFact::Completed { target },
                SwitchEnd::NeedsReboot { component } => ActivationFact::Deferred { target, component },
                SwitchEnd::Failed { reason } => ActivationFact::SwitchFailed { target, reason },
            };
            let effects = host.handle(switched(content, end.clone()), at(201));
            assert_eq!(facts(&effects)[0], told, "{end:?}");
            let is_left = std::mem::discriminant(&host.record().under_way) != stage;
            assert!(!is_left, "{end:?}: there is nothing to go back to");
            assert_eq!(host.handle(switched(content, end.clone()), at(202)), [], "{end:?}: once");
        }
    }
}

/// Generation 1 is confirmed, and its rollout goes on.
fn confirmed() -> Activation {
    let mut host = settled();
    host.handle(order(1, 1, later()), at(0));
    host.handle(switched(1, SwitchEnd::Done), at(100));
    let (probe, generation, boot) = ("web".to_owned(), id(1), boot_id(1));
    let outcome = HealthProbeOutcome::Passed;
    let result = HealthProbeResult { probe, generation, boot: boot.clone(), began: at(101), outcome };
    host.handle(ActivationInput::Probe(result), at(101));
    host.handle(ActivationInput::ConfirmAnswered { generation, boot }, at(102));
    host
}

/// ROL-12: a control plane that lost how far its rollout was calls back who gave up the way.
#[test]
fn who_has_no_way_back_says_so() {
    let halted = |host: &mut Activation| facts(&host.handle(ActivationInput::Halted(id(1)), at(300)));
    let mut has_one = confirmed();
    assert!(matches!(halted(&mut has_one)[..], [ActivationFact::Returning { .. }]));
    let mut ended = confirmed();
    ended.handle(ActivationInput::RolloutEnded(id(1)), at(200));
    assert_eq!(halted(&mut ended), [ActivationFact::NoWayBack { generation: id(1) }]);
    assert_eq!(ended.record().under_way, ActivationStage::Settled);
    assert_eq!(halted(&mut settled()), [], "it runs another one");
}

/// What is said again is what is known.
#[test]
fn the_last_outcomes_of_probes_are_known() {
    let outcomes = |host: &Activation| -> Vec<(String, HealthProbeOutcome)> {
        host.probe_outcomes().map(|(probe, outcome)| (probe.to_owned(), outcome.clone())).collect()
    };
    assert_eq!(outcomes(&settled()), []);
    let mut host = confirmed();
    assert_eq!(outcomes(&host), [("web".to_owned(), HealthProbeOutcome::Passed)]);
    let (probe, generation, boot) = ("web".to_owned(), id(1), boot_id(1));
    let outcome = HealthProbeOutcome::TimedOut;
    let result = HealthProbeResult { probe, generation, boot, began: at(110), outcome };
    host.handle(ActivationInput::Probe(result), at(110));
    assert_eq!(outcomes(&host), [("web".to_owned(), HealthProbeOutcome::TimedOut)]);
    assert_eq!(host.told_failure(at(900)), None, "nobody was told, and the host goes back");
}
