//! ROL-7, ROL-12: each decision of the step by itself, with what is told of it: found by mutants that the histories of
//! `hosts_return_by_themselves.rs` let live, as a host comes home without a word as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, unused_imports)]
mod simulated;

use std::time::Duration;

use activation::{
    Activation, ActivationDeadline, ActivationEffect, ActivationFact, ActivationInput, ActivationOrder,
    ActivationProcess, ActivationRecord, ActivationRefusal, ActivationStage, ActivationTerms, BootMoment,
    BootTime, FoundHost, Generation, GenerationId, GenerationLimits, HealthProbeMode, HealthProbeOutcome,
    HealthProbeResult, MAX_SWITCH, ProbeTopology, RETURN_LIMIT, RETURN_RETRY, ReturnCause, SwitchEnd,
    WATCHDOG_SLACK, WatchdogAlarm, WatchdogDecision,
};
use simulated::{boot_id, generation, id, probe};

use ActivationProcess::{Agent, AgentAfterDeath, Watchdog};

fn at(secs: u64) -> BootTime {
    BootTime::after_boot(Duration::from_secs(secs))
}

fn moment(boot: u32, secs: u64) -> BootMoment {
    BootMoment { boot: boot_id(boot), at: at(secs) }
}

fn record() -> ActivationRecord {
    ActivationRecord { confirmed: generation(0), kept: vec![generation(0)], ..ActivationRecord::default() }
}

/// A host that goes on with a record.
fn go_on(
    record: &ActivationRecord,
    process: ActivationProcess,
    runs: Option<u8>,
    now: &BootMoment,
) -> (Activation, Vec<ActivationEffect>) {
    let found = FoundHost { process, runs: runs.map(id) };
    Activation::start(record.clone(), GenerationLimits::default(), found, now)
}

fn order(number: u8, terms: ActivationTerms) -> ActivationInput {
    // Grace 5 s, sustained 10 s.
    let probes = ProbeTopology::declare(vec![probe("web", HealthProbeMode::Enforce)]).unwrap();
    ActivationInput::Activate(Box::new(ActivationOrder { target: generation(number), terms, probes }))
}

fn armed() -> Activation {
    let mut host = go_on(&record(), Agent, Some(0), &moment(1, 0)).0;
    host.handle(order(1, ActivationTerms::default()), at(0));
    host
}

fn switched(end: SwitchEnd) -> ActivationInput {
    ActivationInput::Switched { target: id(1), end }
}

/// Switched to at 100 s.
fn confirming() -> Activation {
    let mut host = armed();
    host.handle(switched(SwitchEnd::Done), at(100));
    host
}

fn deferred() -> Activation {
    let mut host = armed();
    host.handle(switched(SwitchEnd::NeedsReboot { component: "kernel".to_owned() }), at(100));
    host
}

fn probation() -> Activation {
    let mut host = confirming();
    host.handle(probed(1, HealthProbeOutcome::Passed, 101), at(101));
    host.handle(answered(1, 1), at(102));
    host
}

fn returning() -> Activation {
    let mut host = armed();
    host.handle(switched(SwitchEnd::Failed { reason: "no".to_owned() }), at(100));
    host
}

fn probed(generation: u8, outcome: HealthProbeOutcome, began: u64) -> ActivationInput {
    let (probe, generation, boot) = ("web".to_owned(), id(generation), boot_id(1));
    ActivationInput::Probe(HealthProbeResult { probe, generation, boot, began: at(began), outcome })
}

fn answered(generation: u8, boot: u32) -> ActivationInput {
    ActivationInput::ConfirmAnswered { generation: id(generation), boot: boot_id(boot) }
}

fn facts(effects: &[ActivationEffect]) -> Vec<ActivationFact> {
    let fact = |effect: &ActivationEffect| match effect {
        ActivationEffect::Report(fact) => Some(fact.clone()),
        _ => None,
    };
    effects.iter().filter_map(fact).collect()
}

fn has(effects: &[ActivationEffect], is_it: fn(&ActivationEffect) -> bool) -> bool {
    effects.iter().any(is_it)
}

fn starts_probes(effects: &[ActivationEffect]) -> bool {
    has(effects, |effect| matches!(effect, ActivationEffect::StartProbes { .. }))
}

fn returns(effects: &[ActivationEffect]) -> bool {
    has(effects, |effect| matches!(effect, ActivationEffect::Return { .. }))
}

fn switches(effects: &[ActivationEffect]) -> bool {
    has(effects, |effect| matches!(effect, ActivationEffect::Switch(_)))
}

fn forgotten(effects: &[ActivationEffect]) -> Vec<GenerationId> {
    let forget = |effect: &ActivationEffect| match effect {
        ActivationEffect::Forget(ids) => Some(ids.clone()),
        _ => None,
    };
    effects.iter().filter_map(forget).flatten().collect()
}

#[test]
fn what_fits_exactly_is_kept() {
    let two = ActivationRecord { kept: vec![generation(5), generation(0)], ..record() };
    let activate = |limits| {
        let found = FoundHost { process: Agent, runs: Some(id(0)) };
        let mut host = Activation::start(two.clone(), limits, found, &moment(1, 0)).0;
        let effects = host.handle(order(1, ActivationTerms::default()), at(0));
        (switches(&effects), forgotten(&effects))
    };
    // Each is 100 bytes.
    assert_eq!(activate(GenerationLimits { count: 3, bytes: 300 }), (true, vec![]));
    assert_eq!(activate(GenerationLimits { count: 2, bytes: 300 }), (true, vec![id(5)]));
    assert_eq!(activate(GenerationLimits { count: 3, bytes: 299 }), (true, vec![id(5)]));
    assert_eq!(activate(GenerationLimits { count: 3, bytes: 200 }), (true, vec![id(5)]));
    assert_eq!(activate(GenerationLimits { count: 3, bytes: 199 }), (false, vec![]));
    let mut back = armed();
    back.handle(switched(SwitchEnd::Failed { reason: "no".to_owned() }), at(1));
    assert_eq!(forgotten(&back.handle(ActivationInput::Returned, at(2))), [id(1)]);
    assert_eq!(back.record().kept, [generation(0)], "what was confirmed is kept");
    let longest = ActivationTerms { switch: MAX_SWITCH, ..ActivationTerms::default() };
    assert_eq!(longest.check(), Ok(()));
}

#[test]
fn a_probe_is_told_of_once_and_fails_from_its_first_failure_out_of_grace() {
    let failed = |began| probed(1, HealthProbeOutcome::TimedOut, began);
    let passed = |began| probed(1, HealthProbeOutcome::Passed, began);
    let mut host = confirming();
    assert_eq!(facts(&host.handle(failed(101), at(101))).len(), 1, "it says something the first time");
    assert_eq!(host.handle(failed(102), at(102)), [], "and the same again");
    assert_eq!(facts(&host.handle(passed(103), at(103))).len(), 1, "and something else");
    assert_eq!(host.handle(passed(104), at(104)), []);
    // Its grace is over.
    let told = facts(&host.handle(failed(110), at(110)));
    assert!(
        matches!(told[1], ActivationFact::ProbeFailureFirst { since_millis, .. } if since_millis == at(110))
    );
    assert_eq!(host.next_deadline(), Some((at(120), ActivationDeadline::ProbeFailed)));
    host.handle(passed(115), at(115));
    assert!(!returns(&host.handle(ActivationInput::Tick, at(121))), "it passed meanwhile");
    host.handle(failed(122), at(122));
    host.handle(failed(130), at(130));
    assert!(!returns(&host.handle(ActivationInput::Tick, at(131))));
    assert!(returns(&host.handle(ActivationInput::Tick, at(132))), "since its first failure");
}

#[test]
fn the_watchdog_goes_by_boot_and_deadline() {
    let decides = |host: &Activation, boot, secs| host.record().watchdog(&moment(boot, secs));
    let switch = 3600 + WATCHDOG_SLACK.as_secs();
    assert_eq!(decides(&armed(), 1, 0), WatchdogDecision::Wait(at(switch)));
    assert_eq!(decides(&armed(), 1, switch - 1), WatchdogDecision::Wait(at(switch)));
    assert_eq!(decides(&armed(), 1, switch), WatchdogDecision::Return(ReturnCause::SwitchTooLong));
    assert_eq!(decides(&armed(), 2, 0), WatchdogDecision::Return(ReturnCause::Rebooted));
    let window = 700 + WATCHDOG_SLACK.as_secs();
    assert_eq!(decides(&confirming(), 1, window - 1), WatchdogDecision::Wait(at(window)));
    assert_eq!(decides(&confirming(), 1, window), WatchdogDecision::Return(ReturnCause::NotConfirmed));
    assert_eq!(decides(&confirming(), 2, 0), WatchdogDecision::Return(ReturnCause::Rebooted));
    assert_eq!(decides(&deferred(), 1, 100_000), WatchdogDecision::WaitForBoot);
    assert_eq!(decides(&deferred(), 2, 0), WatchdogDecision::CountBoot);
    assert_eq!(decides(&probation(), 2, 0), WatchdogDecision::Nothing);
    let cause = || ReturnCause::SwitchFailed { reason: "no".to_owned() };
    assert_eq!(decides(&returning(), 2, 0), WatchdogDecision::Return(cause()));
    let needed = |host: Activation| host.record().needed();
    assert_eq!(needed(armed()), [id(0), id(1)]);
    assert_eq!(needed(probation()), [id(1), id(0)]);
    assert_eq!(needed(returning()), [id(0), id(1)]);
    assert_eq!(record().needed(), [id(0)]);
}

#[test]
fn an_agent_goes_on_where_the_one_before_ended() {
    let (host, effects) = go_on(armed().record(), Agent, None, &moment(1, 10));
    let alarm = ActivationEffect::ArmWatchdog(WatchdogAlarm::At(at(3600 + WATCHDOG_SLACK.as_secs())));
    assert_eq!(effects, [alarm, ActivationEffect::Switch(generation(1))]);
    drop(host);
    let (_, effects) = go_on(armed().record(), AgentAfterDeath, None, &moment(1, 10));
    assert!(switches(&effects) && has(&effects, |effect| matches!(effect, ActivationEffect::Persist(_))));
    let (_, effects) = go_on(confirming().record(), Agent, Some(1), &moment(1, 110));
    assert!(starts_probes(&effects));
    assert!(matches!(facts(&effects)[0], ActivationFact::ProbesDeclared { .. }));
    let (_, effects) = go_on(deferred().record(), Agent, Some(1), &moment(1, 110));
    assert_eq!(effects, [ActivationEffect::ArmWatchdog(WatchdogAlarm::AtBoot)]);
    assert!(starts_probes(&go_on(probation().record(), Agent, Some(1), &moment(1, 110)).1));
    assert!(returns(&go_on(returning().record(), Agent, None, &moment(1, 110)).1));
    // What may have been begun is not gone on with unguarded; what is tried was guarded before.
    let unguarded = || ActivationInput::NotArmed { reason: "no bus".to_owned() };
    for (record, runs, goes_back) in [(armed().record(), None, true), (confirming().record(), Some(1), false)]
    {
        for process in [Agent, AgentAfterDeath] {
            let mut host = go_on(record, process, runs, &moment(1, 110)).0;
            assert_eq!(returns(&host.handle(unguarded(), at(110))), goes_back);
        }
    }
}

#[test]
fn whoever_finds_the_host_elsewhere_or_too_late_goes_back() {
    let found = |record: &ActivationRecord, process, runs, boot, secs| {
        returns(&go_on(record, process, runs, &moment(boot, secs)).1)
    };
    assert!(!found(armed().record(), Agent, None, 1, 3599));
    assert!(found(armed().record(), Agent, None, 1, 3600), "its time is over");
    assert!(!found(armed().record(), Watchdog, None, 1, 3600), "the agent may act still");
    assert!(found(confirming().record(), Agent, Some(0), 1, 110));
    assert!(!found(confirming().record(), Agent, Some(1), 1, 110));
    assert!(!found(confirming().record(), Watchdog, Some(0), 1, 110));
    assert!(found(deferred().record(), Agent, Some(0), 2, 5), "the boot loader fell back");
    assert!(!found(deferred().record(), Agent, Some(1), 2, 5));
    assert!(starts_probes(&go_on(deferred().record(), Agent, Some(1), &moment(2, 5)).1));
    assert!(!starts_probes(&go_on(deferred().record(), Watchdog, Some(1), &moment(2, 5)).1));
}

#[test]
fn what_cannot_be_written_is_told_once_until_something_could_be() {
    let full = || ActivationInput::NotPersisted { reason: "no room".to_owned() };
    let told = |effects: &[ActivationEffect]| {
        facts(effects).iter().any(|fact| matches!(fact, ActivationFact::NotPersisted { .. }))
    };
    let mut host = probation();
    host.handle(ActivationInput::RolloutEnded(id(1)), at(110));
    assert!(told(&host.handle(full(), at(110))));
    host.handle(ActivationInput::RolloutEnded(id(1)), at(111));
    assert!(!told(&host.handle(full(), at(111))), "it was told");
    host.handle(ActivationInput::Tick, at(116));
    // It was durable, as nothing else was said of it.
    host.handle(ActivationInput::RolloutEnded(id(1)), at(117));
    assert!(told(&host.handle(full(), at(117))));
    let mut other = probation();
    other.handle(ActivationInput::RolloutEnded(id(1)), at(110));
    other.handle(full(), at(110));
    other.handle(ActivationInput::RolloutEnded(id(1)), at(111));
    let unsynced = ActivationInput::NotPersisted { reason: "it cannot be synced".to_owned() };
    assert!(told(&other.handle(unsynced, at(111))), "for another reason");
}

#[test]
fn a_return_is_begun_anew_when_it_fails_or_takes_too_long() {
    let mut host = returning();
    let deadline = at(100).plus(RETURN_LIMIT);
    assert!(!returns(&host.handle(ActivationInput::Tick, at(3699))));
    assert!(returns(&host.handle(ActivationInput::Tick, deadline)));
    let mut host = returning();
    let failed = |reason: &str| ActivationInput::ReturnFailed { reason: reason.to_owned() };
    assert_eq!(facts(&host.handle(failed("busy"), at(110))).len(), 1);
    assert!(!returns(&host.handle(ActivationInput::Tick, at(139))));
    assert!(returns(&host.handle(ActivationInput::Tick, at(110).plus(RETURN_RETRY))));
    assert_eq!(facts(&host.handle(failed("busy"), at(141))), [], "it was told");
    assert_eq!(facts(&host.handle(failed("no room"), at(142))).len(), 1);
}

#[test]
fn another_release_with_the_confirmed_content_is_run_and_probed() {
    let mut host = go_on(&record(), Agent, Some(0), &moment(1, 0)).0;
    let newer = Generation { seq: 9, ..generation(0) };
    let probes = ProbeTopology::declare(vec![probe("web", HealthProbeMode::Enforce)]).unwrap();
    let order = ActivationOrder { target: newer, terms: ActivationTerms::default(), probes };
    let effects = host.handle(ActivationInput::Activate(Box::new(order)), at(1));
    assert_eq!(facts(&effects), [ActivationFact::Started { target: id(0) }]);
    assert!(effects.contains(&ActivationEffect::Switch(newer)));
    let other = ActivationInput::Switched { target: id(2), end: SwitchEnd::Done };
    assert_eq!(host.handle(other, at(2)), [], "a switch of another generation");
    let done = || ActivationInput::Switched { target: id(0), end: SwitchEnd::Done };
    let effects = host.handle(done(), at(3));
    assert_eq!(facts(&effects)[0], ActivationFact::Completed { target: id(0) });
    assert!(starts_probes(&effects));
    assert_eq!(host.handle(done(), at(4)), [], "once");
    // There is nothing to go back to.
    host.handle(probed(0, HealthProbeOutcome::TimedOut, 10), at(10));
    let told = facts(&host.handle(ActivationInput::Tick, at(20)));
    assert!(matches!(told[0], ActivationFact::FailedAfterConfirm { .. }));
    assert_eq!(host.handle(ActivationInput::Tick, at(30)), [], "it was told");
    assert_eq!(host.next_deadline(), None);
}

#[test]
fn a_confirmed_generation_that_fails_and_stays_is_told_of_once() {
    let mut host = probation();
    host.handle(probed(1, HealthProbeOutcome::TimedOut, 110), at(110));
    let told = facts(&host.handle(ActivationInput::Tick, at(120)));
    assert!(matches!(told[0], ActivationFact::FailedAfterConfirm { .. }));
    assert_eq!(host.handle(ActivationInput::Tick, at(130)), []);
}

#[test]
fn what_does_not_concern_the_trial_changes_nothing() {
    let other = ActivationInput::Switched { target: id(2), end: SwitchEnd::Done };
    let mut host = armed();
    assert_eq!(host.handle(other, at(1)), []);
    assert!(matches!(host.record().under_way, ActivationStage::Armed(_)));
    let again = host.handle(order(1, ActivationTerms::default()), at(101));
    let refusal = ActivationRefusal::UnderWay;
    assert_eq!(facts(&again), [ActivationFact::Refused { target: id(1), refusal }]);
    let terms =
        ActivationTerms { after_confirm: activation::AfterConfirm::Return, ..ActivationTerms::default() };
    let mut confirmed = go_on(&record(), Agent, Some(0), &moment(1, 0)).0;
    confirmed.handle(order(1, terms), at(0));
    confirmed.handle(switched(SwitchEnd::Done), at(100));
    confirmed.handle(probed(1, HealthProbeOutcome::Passed, 101), at(101));
    confirmed.handle(answered(1, 1), at(102));
    assert_eq!(confirmed.handle(ActivationInput::Halted(id(0)), at(103)), [], "another generation's rollout");
    assert!(returns(&confirmed.handle(ActivationInput::Halted(id(1)), at(103))));
}

#[test]
fn tries_and_answers_count_within_the_window_alone() {
    let mut host = confirming();
    host.handle(probed(1, HealthProbeOutcome::Passed, 101), at(101));
    let mut tries = 0;
    for secs in 101..700 {
        let effects = host.handle(ActivationInput::Tick, at(secs));
        tries += usize::from(has(&effects, |effect| matches!(effect, ActivationEffect::TryConfirm { .. })));
    }
    assert_eq!(tries, 5);
    assert_eq!(host.next_deadline(), Some((at(700), ActivationDeadline::Overdue)), "no try is left");
    let failed =
        facts(&host.handle(ActivationInput::TryFailed { reason: "unreachable".to_owned() }, at(699)));
    assert_eq!(failed, [ActivationFact::TryFailed { target: id(1), reason: "unreachable".to_owned() }]);
    let refused =
        |generation, boot| ActivationFact::ConfirmRefused { generation: id(generation), boot: boot_id(boot) };
    assert_eq!(facts(&host.handle(answered(1, 1), at(700))), [refused(1, 1)], "it came too late");
    let mut confirmed = probation();
    assert_eq!(confirmed.handle(answered(1, 1), at(103)), [], "it is confirmed already");
    assert_eq!(facts(&confirmed.handle(answered(1, 2), at(103))), [refused(1, 2)]);
    assert_eq!(facts(&confirmed.handle(answered(0, 1), at(103))), [refused(0, 1)]);
}
