//! ROL-7, ROL-12: a host whose agent a release ended in the middle of its switch is back within minutes, by the watchdog
//! alone; an agent that is restarted goes on with the switch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, unused_imports)]
mod simulated;

use activation::{
    AGENT_LOOKS, AGENT_PATIENCE, Activation, ActivationEffect, ActivationInput, ActivationOrder,
    ActivationProcess, ActivationRecord, ActivationStage, ActivationTerms, AgentDeath, AgentWatch,
    BootMoment, BootTime, FoundHost, GenerationLimits, ReturnCause, StateHolder,
};
use simulated::{SECOND, boot_id, generation, probes};
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(15);
const AGENT: StateHolder = StateHolder::Process(40);

fn moment(at: BootTime) -> BootMoment {
    BootMoment { boot: boot_id(1), at }
}

/// A switch that was begun at a time.
fn armed(at: BootTime) -> ActivationRecord {
    let record = ActivationRecord { confirmed: generation(0), ..ActivationRecord::default() };
    let found = FoundHost { process: ActivationProcess::Agent, runs: None };
    let (mut host, _) = Activation::start(record, GenerationLimits::default(), found, &moment(at));
    let (target, terms) = (generation(1), ActivationTerms::default());
    host.handle(ActivationInput::Activate(Box::new(ActivationOrder { target, terms, probes: probes() })), at);
    host.record().clone()
}

/// Looks from a time on; when the switch is taken for abandoned, within an hour.
fn abandoned_after(
    record: &ActivationRecord,
    mut watch: Option<AgentWatch>,
    from: BootTime,
    holder: impl Fn(u32) -> StateHolder,
) -> Option<Duration> {
    let looks = u32::try_from(3600 / EVERY.as_secs()).unwrap();
    (1..looks).find_map(|look| {
        let now = moment(from.plus(EVERY * look));
        let seen = AgentWatch::look(watch.take(), holder(look), &now);
        let abandoned = record.is_abandoned(&seen, &now);
        // What the next process finds has been written and read.
        watch = Some(serde_json::from_slice(&serde_json::to_vec(&seen).unwrap()).unwrap());
        abandoned.then(|| now.at.since(from))
    })
}

#[test]
fn only_where_nobody_goes_on_with_it() {
    let began = BootTime::after_boot(1000 * SECOND);
    let record = armed(began);
    let cases: [(&str, &dyn Fn(u32) -> StateHolder, Option<u64>); 7] = [
        ("an agent that lives", &|_| AGENT, None),
        ("one that did not say its number", &|_| StateHolder::Unnamed, None),
        ("none from the beginning", &|_| StateHolder::Nobody, Some(315)),
        (
            "one that ends after a minute",
            &|look| if look <= 4 { AGENT } else { StateHolder::Nobody },
            Some(360),
        ),
        ("one that is another one at each look", &StateHolder::Process, Some(315)),
        (
            "one that is there at every other look",
            &|look| if look % 2 == 0 { AGENT } else { StateHolder::Nobody },
            Some(315),
        ),
        (
            "one that a package restarts after four minutes",
            &|look| match look {
                0..=4 => AGENT,
                5..=20 => StateHolder::Nobody,
                _ => StateHolder::Process(41),
            },
            None,
        ),
    ];
    for (what, holder, expected) in cases {
        let found = abandoned_after(&record, None, began, holder);
        assert_eq!(found.map(|found| found.as_secs()), expected, "{what}");
    }
}

#[test]
fn not_by_what_was_seen_of_a_trial_a_boot_or_a_night_before() {
    let began = BootTime::after_boot(100_000 * SECOND);
    let record = armed(began);
    // The last trial of this boot ended with its agent gone; this one has another.
    let old = (1..100).fold(None, |watch, look| {
        Some(AgentWatch::look(watch, StateHolder::Nobody, &moment(BootTime::after_boot(EVERY * look))))
    });
    assert_eq!(abandoned_after(&record, old.clone(), began, |_| AGENT), None);
    let gone = abandoned_after(&record, old.clone(), began, |_| StateHolder::Nobody);
    assert_eq!(gone, Some(AGENT_PATIENCE), "never sooner");
    // The host slept for eight hours, and its agent was restarted just then.
    let before = began.plus(15 * SECOND);
    let seen = AgentWatch::look(None, AGENT, &moment(before));
    let woke = before.plus(8 * 3600 * SECOND);
    let restarted = AgentWatch::look(Some(seen), StateHolder::Process(41), &moment(woke));
    assert!(!record.is_abandoned(&restarted, &moment(woke)), "one look is not {AGENT_LOOKS}");
    // Another boot: that is a return in any case.
    let other = BootMoment { boot: boot_id(2), at: began.plus(3000 * SECOND) };
    let seen = AgentWatch::look(old, StateHolder::Nobody, &other);
    assert!(!record.is_abandoned(&seen, &other));
}

#[test]
fn the_host_goes_back_and_the_release_stays_in_quarantine() {
    let began = BootTime::after_boot(1000 * SECOND);
    let found = FoundHost { process: ActivationProcess::WatchdogAlone, runs: None };
    let now = moment(began.plus(AGENT_PATIENCE));
    let (mut host, effects) = Activation::start(armed(began), GenerationLimits::default(), found, &now);
    assert!(effects.iter().any(|effect| matches!(effect, ActivationEffect::Return { .. })), "{effects:?}");
    host.handle(ActivationInput::Returned, now.at);
    let cause = ReturnCause::AgentDied { how: AgentDeath::Gone };
    assert_eq!(host.record().quarantine.all()[0].cause, cause);
    assert!(cause.to_string().contains("5 minutes"), "{cause}");
    assert_eq!(host.record().under_way, ActivationStage::Settled);
    // In every other stage it is a watchdog like any other.
    let mut confirming = armed(began);
    if let ActivationStage::Armed(trial) = confirming.under_way {
        confirming.under_way = ActivationStage::Confirming(trial);
    }
    let (host, _) = Activation::start(confirming, GenerationLimits::default(), found, &now);
    assert!(matches!(host.record().under_way, ActivationStage::Confirming(_)));
}
