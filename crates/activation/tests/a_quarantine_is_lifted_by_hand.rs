//! ROL-12: the administrator of a host lets a content be tried again that the host returned from: durably, once, and
//! nothing else with it.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code, unused_imports)]
mod simulated;

use std::time::Duration;

use activation::{
    Activation, ActivationEffect, ActivationFact, ActivationInput, ActivationOrder, ActivationProcess,
    ActivationRecord, ActivationRefusal, ActivationStage, ActivationTerms, AgentDeath, BootMoment, BootTime,
    FoundHost, Generation, GenerationLimits, MAX_DEATHS, ReturnCause, SwitchEnd,
};
use simulated::{boot_id, generation, id, probes};

use ActivationProcess::{Agent, AgentAfterDeath};

const DIED: ReturnCause = ReturnCause::AgentDied { how: AgentDeath::Counted };

fn at(secs: u64) -> BootTime {
    BootTime::after_boot(Duration::from_secs(secs))
}

fn go_on(record: &ActivationRecord, process: ActivationProcess, boot: u32) -> Activation {
    let found = FoundHost { process, runs: Some(id(0)) };
    let now = BootMoment { boot: boot_id(boot), at: at(0) };
    Activation::start(record.clone(), GenerationLimits::default(), found, &now).0
}

/// The number of the release of a generation.
fn release(number: u8) -> u64 {
    generation(number).seq
}

fn order(target: Generation) -> ActivationInput {
    let (terms, probes) = (ActivationTerms::default(), probes());
    ActivationInput::Activate(Box::new(ActivationOrder { target, terms, probes }))
}

/// The agent dies in a release three times, as one whose host loses its power.
fn dies_three_times(record: &ActivationRecord) -> ActivationRecord {
    let mut host = go_on(record, Agent, 1);
    host.handle(order(generation(1)), at(1));
    assert!(matches!(host.record().under_way, ActivationStage::Armed(_)), "it begins");
    for _ in 0..MAX_DEATHS {
        host = go_on(host.record(), AgentAfterDeath, 1);
    }
    host.handle(ActivationInput::Returned, at(50));
    assert_eq!(host.record().under_way, ActivationStage::Settled);
    host.record().clone()
}

fn settled() -> ActivationRecord {
    ActivationRecord { confirmed: generation(0), kept: vec![generation(0)], ..ActivationRecord::default() }
}

fn refusal(effects: &[ActivationEffect]) -> Option<&ActivationRefusal> {
    effects.iter().find_map(|effect| match effect {
        ActivationEffect::Report(ActivationFact::Refused { refusal, .. }) => Some(refusal),
        _ => None,
    })
}

#[test]
fn it_is_tried_again_and_held_back_again_where_it_fails_again() {
    let record = dies_three_times(&settled());
    let mut host = go_on(&record, Agent, 2);
    let refused = host.handle(order(generation(1)), at(1));
    assert_eq!(refusal(&refused), Some(&ActivationRefusal::Quarantined { cause: DIED }));
    let effects = host.handle(ActivationInput::LiftQuarantine(release(1)), at(2));
    let lifted = ActivationRecord { quarantine: Default::default(), ..record };
    assert_eq!(effects, [ActivationEffect::Persist(Box::new(lifted.clone()))]);
    assert_eq!(host.record(), &lifted, "that it was returned from is still said");
    // Once: the next process knows of no leave that would outlive another return.
    assert_eq!(host.handle(ActivationInput::LiftQuarantine(release(1)), at(3)), []);
    let record = dies_three_times(host.record());
    let known = record.quarantine.of(id(1)).unwrap();
    assert_eq!((known.returns, &known.cause), (1, &DIED));
}

#[test]
fn where_that_cannot_be_made_durable_it_is_held_back_as_before() {
    let record = dies_three_times(&settled());
    let mut host = go_on(&record, Agent, 2);
    host.handle(ActivationInput::LiftQuarantine(release(1)), at(2));
    host.handle(ActivationInput::NotPersisted { reason: "the disk is full".to_owned() }, at(2));
    assert_eq!(host.record(), &record);
    // The disk may have either: it gets what counts.
    let (again, _) = host.next_deadline().unwrap();
    assert_eq!(host.handle(ActivationInput::Tick, again), [ActivationEffect::Persist(Box::new(record))]);
}

#[test]
fn nothing_else_is_lifted_and_what_is_under_way_goes_on() {
    let quarantined = dies_three_times(&settled()).quarantine;
    let stages: [fn(&mut Activation); 5] = [
        |_| {},
        |host| drop(host.handle(order(generation(2)), at(10))),
        |host| {
            host.handle(order(generation(2)), at(10));
            host.handle(ActivationInput::Switched { target: id(2), end: SwitchEnd::Done }, at(20));
        },
        |host| {
            host.handle(order(generation(2)), at(10));
            let end = SwitchEnd::NeedsReboot { component: "kernel".to_owned() };
            host.handle(ActivationInput::Switched { target: id(2), end }, at(20));
        },
        |host| {
            host.handle(order(generation(2)), at(10));
            let end = SwitchEnd::Failed { reason: "no".to_owned() };
            host.handle(ActivationInput::Switched { target: id(2), end }, at(20));
        },
    ];
    for begins in stages {
        let mut host = go_on(&ActivationRecord { quarantine: quarantined.clone(), ..settled() }, Agent, 1);
        begins(&mut host);
        let before = host.record().clone();
        for other in [0, 2, 3] {
            assert_eq!(host.handle(ActivationInput::LiftQuarantine(release(other)), at(30)), [], "{other}");
        }
        host.handle(ActivationInput::LiftQuarantine(release(1)), at(30));
        assert_eq!(host.record(), &ActivationRecord { quarantine: Default::default(), ..before });
    }
}

#[test]
fn a_content_that_may_be_tried_anyway_keeps_its_count() {
    let mut host = go_on(&settled(), Agent, 1);
    host.handle(order(generation(1)), at(1));
    let mut host = go_on(host.record(), Agent, 2);
    host.handle(ActivationInput::Returned, at(50));
    assert_eq!(host.record().quarantine.all()[0].cause, ReturnCause::Rebooted);
    assert_eq!(host.record().quarantine.held().count(), 0);
    assert_eq!(host.handle(ActivationInput::LiftQuarantine(release(1)), at(60)), []);
    assert_eq!(host.record().quarantine.all().len(), 1);
}
