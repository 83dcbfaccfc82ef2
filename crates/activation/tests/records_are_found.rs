//! ROL-7: what a process makes of the record that it finds, and of one that is gone: a host whose trial was under way
//! goes back, and one that is where it is takes what it holds for confirmed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, unused_imports)]
mod simulated;

use activation::{
    ActivationRecord, ActivationStage, ActivationTerms, BootMoment, BootTime, EndedReturn, Generation,
    GenerationReturn, Probation, ProbeTopology, ReturnCause, WatchdogDecision,
};
use simulated::{boot_id, generation};

fn now() -> BootMoment {
    BootMoment { boot: boot_id(3), at: BootTime::BOOT }
}

fn settled_on(number: u8) -> ActivationRecord {
    let from = generation(7);
    let returned = EndedReturn { from, cause: ReturnCause::Halted, at: now() };
    let kept = vec![generation(number)];
    let confirmed = generation(number);
    ActivationRecord { confirmed, kept, returned: Some(returned), ..ActivationRecord::default() }
}

fn returning() -> ActivationRecord {
    let (boot, deadline) = (boot_id(3), BootTime::BOOT);
    let from = generation(2);
    let back = GenerationReturn { from, cause: ReturnCause::NotConfirmed, boot, deadline };
    ActivationRecord { under_way: ActivationStage::Returning(back), ..settled_on(1) }
}

#[test]
fn a_release_that_was_adopted_without_a_trial_is_confirmed() {
    let found = ActivationRecord::found(Some(settled_on(1)), generation(2), &[], &now());
    assert_eq!(found.confirmed, generation(2));
    assert_eq!(found.kept, [generation(1), generation(2)]);
    assert_eq!(found.under_way, ActivationStage::Settled);
    assert_eq!(found.returned, None, "the return was from before it");
    let same = ActivationRecord::found(Some(settled_on(1)), generation(1), &[generation(0)], &now());
    assert_eq!(same, settled_on(1));
}

/// A release was adopted at once over one on probation, and the process ended before that was written down.
#[test]
fn what_is_held_ends_a_probation_that_knows_nothing_of_it() {
    let on_probation = |previous: u8| {
        let (terms, probes) = (ActivationTerms::default(), ProbeTopology::default());
        let probation = Probation { previous: generation(previous), deaths: 0, terms, probes };
        ActivationRecord { under_way: ActivationStage::Probation(probation), ..settled_on(2) }
    };
    // An agent that lives asks no probe of it any more: one that fails would take the host back from what is held.
    assert!(on_probation(1).is_replaced_by(generation(3).id));
    let found = ActivationRecord::found(Some(on_probation(1)), generation(3), &[], &now());
    assert_eq!((found.confirmed, found.under_way), (generation(3), ActivationStage::Settled));
    assert_eq!((found.kept.last(), found.returned), (Some(&generation(3)), None));
    // The host holds what is on probation, or goes back from it.
    for held in [2, 1] {
        assert!(!on_probation(1).is_replaced_by(generation(held).id), "{held}");
        let found = ActivationRecord::found(Some(on_probation(1)), generation(held), &[], &now());
        assert_eq!(found, on_probation(1), "{held}");
    }
}

#[test]
fn what_is_under_way_goes_on_whatever_is_held() {
    let found = ActivationRecord::found(Some(returning()), generation(2), &[], &now());
    assert_eq!(found, returning());
}

#[test]
fn without_a_record_the_host_goes_back_to_the_generation_whose_agent_is_kept() {
    for (held, ways_back) in [(2, vec![1]), (2, vec![2, 1]), (2, vec![1, 2])] {
        let ways_back: Vec<Generation> = ways_back.into_iter().map(generation).collect();
        let found = ActivationRecord::found(None, generation(held), &ways_back, &now());
        assert_eq!(found.confirmed, generation(1));
        assert_eq!(found.kept, [generation(2), generation(1)]);
        let due = BootMoment { boot: boot_id(3), at: BootTime::after_boot(activation::WATCHDOG_SLACK) };
        let decided = found.watchdog(&due);
        assert_eq!(decided, WatchdogDecision::Return(ReturnCause::FoundElsewhere));
    }
    let as_found = ActivationRecord::found(None, generation(2), &[Generation::AS_FOUND], &now());
    assert_eq!(as_found.confirmed, Generation::AS_FOUND);
    assert_eq!(as_found.kept, [generation(2)], "of the host as found nothing is kept");
    for ways_back in [vec![], vec![generation(2)]] {
        let found = ActivationRecord::found(None, generation(2), &ways_back, &now());
        let expected = ActivationRecord { returned: None, ..settled_on(2) };
        assert_eq!(found, expected);
    }
}

#[test]
fn a_trial_begins_where_the_host_leaves_what_is_confirmed() {
    let armed = armed();
    assert!(armed.begins_trial(None));
    assert!(armed.begins_trial(Some(&settled_on(1))));
    assert!(!armed.begins_trial(Some(&armed)), "it began before");
    assert!(!armed.begins_trial(Some(&returning())));
    assert!(!settled_on(1).begins_trial(None));
    assert!(!returning().begins_trial(Some(&settled_on(1))));
}

fn armed() -> ActivationRecord {
    use activation::{Activation, ActivationInput, ActivationOrder, ActivationProcess, FoundHost};
    let found = FoundHost { process: ActivationProcess::Agent, runs: Some(generation(1).id) };
    let (mut host, _) = Activation::start(settled_on(1), simulated::LIMITS, found, &now());
    let (target, terms, probes) = (generation(2), Default::default(), simulated::probes());
    host.handle(ActivationInput::Activate(Box::new(ActivationOrder { target, terms, probes })), now().at);
    host.record().clone()
}
