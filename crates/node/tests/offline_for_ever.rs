//! CNV-4, CNV-5, DLT-4: without a control plane a node converges on what it holds, for ever.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{Bench, Release, START, answer, facts, observed, report, run_of, sent, traits, warnings};
use model::log::FactBody;
use node::{NodeEffect, NodeInput};

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn it_runs_on_and_warns_once() {
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    let (mut runs, mut tries, mut warned) = (0, 0, vec![]);
    while bench.now < START.plus(DAY * 30) {
        let (at, _) = bench.node.next_deadline().expect("something is due for ever");
        bench.now = bench.now.max(at);
        let mut effects = bench.give(NodeInput::Tick);
        if effects.contains(&NodeEffect::CollectTraits) {
            effects.extend(bench.give(observed(&bench.traits)));
            assert!(sent(&effects).is_some());
            tries += 1;
            effects.extend(bench.give(NodeInput::Unreachable("no route".to_owned())));
        }
        if run_of(&effects).is_some() {
            runs += 1;
            effects.extend(bench.give(NodeInput::Ran(Box::new(report(0, 2)))));
        }
        let of_contact = |text: &&&str| text.starts_with("no contact");
        warned
            .extend(warnings(&effects).iter().filter(of_contact).map(|text| (bench.now, (*text).to_owned())));
        assert!(
            !effects.iter().any(|effect| matches!(effect, NodeEffect::Adopt(_) | NodeEffect::Fetch { .. }))
        );
    }
    let expected = 30 * 86_400 / 300;
    assert!((expected - expected / 10..=expected + expected / 10).contains(&runs), "{runs} runs in 30 days");
    assert!(tries > expected / 2, "{tries} tries in 30 days");
    let [(when, text)] = &warned[..] else { panic!("{warned:?}") };
    assert!(*when > START.plus(DAY * 7) && *when < START.plus(DAY * 7 + Duration::from_secs(3600)), "{when}");
    assert_eq!(
        text,
        "no contact with the control plane for more than 604800 s (no route); converging on what is held"
    );
    assert_eq!(bench.node.adoption().unwrap().seq, 1);
}

#[test]
fn contact_again_arms_the_warning_again() {
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    for _ in 0..2 {
        bench.now = bench.now.plus(DAY * 8);
        for want in [1, 0, 0] {
            bench.check_in();
            let effects = bench.give(NodeInput::Unreachable("no route".to_owned()));
            assert_eq!(warnings(&effects).len(), want);
        }
        bench.exchange(answer());
    }
}

#[test]
fn past_its_age_the_set_is_stale_and_asked_for_whole() {
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    assert!(!bench.check_in().full);
    bench.give(NodeInput::Unreachable(String::new()));
    assert!(!bench.node.is_stale(bench.now));
    bench.now = bench.now.plus(DAY * 2);
    assert!(bench.node.is_stale(bench.now));
    assert!(bench.check_in().full);
    bench.give(NodeInput::Answered(Box::new(answer())));
    assert!(bench.node.is_stale(bench.now), "an answer that brings nothing confirms nothing");
    assert!(!bench.check_in().full, "and is not asked for again at once");
    bench.give(NodeInput::Answered(Box::new(answer())));
    bench.adopt(&Release::new(2, bench.now, &["a"]));
    assert!(!bench.node.is_stale(bench.now));
    assert!(!bench.check_in().full);
}

#[test]
fn a_changed_trait_binds_anew_at_once_and_offline() {
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    bench.check_in();
    bench.give(NodeInput::Unreachable(String::new()));
    assert_eq!(run_of(&bench.give(observed(&bench.traits))), None, "the same traits are no reason");
    let effects = bench.give(observed(&traits("alpine")));
    let order = run_of(&effects).expect("a run at once");
    assert!(order.intended, "what a new trait changes is no drift");
    bench.give(NodeInput::Ran(Box::new(report(1, 1))));
    bench.traits = traits("alpine");
    let again = bench.check_in();
    let whole = again.traits.and_then(|changed| changed.over(Some(traits("debian"))));
    assert_eq!(whole, Some(traits("alpine")), "unacknowledged traits are sent until they are taken");
    bench.give(NodeInput::Answered(Box::new(answer())));
    assert_eq!(bench.check_in().traits, None);
}

#[test]
fn a_trait_that_changes_while_a_run_is_under_way_leads_to_another() {
    let mut bench = Bench::new();
    bench.adopt(&Release::new(1, START, &["a"]));
    assert_eq!(run_of(&bench.give(observed(&traits("alpine")))), None, "one run at a time");
    let effects = bench.give(NodeInput::Ran(Box::new(report(1, 1))));
    assert!(run_of(&effects).is_some());
}

#[test]
fn a_restart_without_network_goes_on() {
    let release = Release::new(1, START, &["a"]);
    let before = Bench::holding(&release);
    let adoption = before.node.adoption().cloned();
    let restored = node::Restored { adoption, ..node::Restored::default() };
    let mut bench = Bench::restored(restored);
    let first = bench.give(NodeInput::Tick);
    assert_eq!(first, [NodeEffect::CollectTraits], "nothing is bound without traits");
    let effects = bench.give(observed(&bench.traits));
    assert!(run_of(&effects).is_some(), "and no network is needed for the rest");
}

#[test]
fn facts_wait_for_the_next_contact() {
    let mut bench = Bench::holding(&Release::new(1, START, &["a"]));
    bench.check_in();
    bench.give(NodeInput::Unreachable(String::new()));
    bench.now = bench.now.plus(Duration::from_secs(3600));
    while run_of(&bench.give(NodeInput::Tick)).is_none() {
        bench.now = bench.now.plus(Duration::from_secs(60));
        bench.give(NodeInput::Unreachable(String::new()));
    }
    let effects = bench.give(NodeInput::Ran(Box::new(report(1, 1))));
    assert!(matches!(facts(&effects)[..], [FactBody::Run(_)]), "appended to the log, to be sent later");
}
