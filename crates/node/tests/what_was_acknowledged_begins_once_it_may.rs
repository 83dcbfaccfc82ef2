//! ROL-1, ROL-5, ROL-7, CNV-6, CNV-11: a release that was acknowledged does not begin where it would be refused, were it
//! asked for now: the node says so, and begins once it was asked anew. For the end of a return, and for a contact, it waits, and
//! begins as the control plane says it again.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::rollouts::{MINUTE, acknowledge, begun, in_waves, of_groups, prepare, proceeds, said, terms};
use common::{Bench, Release, START, adoption_of, report, run_of};
use model::rollout::RolloutEventBody;
use model::window::DeclaredWindow;
use model::{Pause, RunReport, Timestamp};
use node::{HeldSettings, NodeEffect, NodeInput, ReturnedRelease, TrialStage};
use trust::rollout_terms::{FreezeTerms, OnFailure, RolloutTerms};

const HOUR: Duration = Duration::from_secs(3600);

/// A release that no node begins from two until three hours after the start.
fn frozen_later(seq: u64) -> Release {
    let of_day = |at: Timestamp| at.to_string().chars().skip(11).take(5).collect::<String>();
    let window = DeclaredWindow {
        days: Vec::new(),
        from: of_day(START.plus(2 * HOUR)),
        to: of_day(START.plus(3 * HOUR)),
        zone: "UTC".to_owned(),
        rules: None,
    };
    let freeze = vec![FreezeTerms { name: "quiet".to_owned(), window }];
    let mut release = in_waves(seq, &["b"], OnFailure::Rollback);
    release.header.rollout = Some(Arc::new(RolloutTerms { freeze, ..terms(OnFailure::Rollback) }));
    release
}

fn pause(bench: &Bench) -> Pause {
    Pause { reason: "by hand".to_owned(), since: bench.now, until: None }
}

/// What comes between the acknowledgement and `proceed`, what is said of it, and how it goes again.
type Obstacle = (&'static str, Option<&'static str>, fn(&mut Bench), fn(&mut Bench));

/// The two hours between both: a laptop acknowledged, and slept until its freeze.
#[test]
fn it_waits_for_what_would_have_it_refused() {
    let obstacles: [Obstacle; 3] = [
        (
            "a freeze",
            Some("frozen"),
            |bench| bench.now = START.plus(2 * HOUR + 5 * MINUTE),
            |bench| bench.now = START.plus(3 * HOUR + 2 * MINUTE),
        ),
        (
            "a pause",
            Some("paused"),
            |bench| drop(bench.give(NodeInput::Pause(pause(bench)))),
            |bench| drop(bench.give(NodeInput::Resume)),
        ),
        (
            // The changes of a guarded run would be undone in the middle of the trial.
            "a contact that is to follow a guarded change",
            None,
            |bench| drop(bench.give(NodeInput::AwaitsContact(true))),
            |bench| drop(bench.give(NodeInput::AwaitsContact(false))),
        ),
    ];
    for (what, code, comes, goes) in obstacles {
        let (held, next) = (Release::new(1, START, &["a"]), frozen_later(2));
        let mut bench = Bench::holding(&held);
        prepare(&mut bench, &next, &["canary"]);
        acknowledge(&mut bench, &next, 7);
        comes(&mut bench);
        let refused = code.map(|code| RolloutEventBody::DispatchReject { code: code.to_owned() });
        for wanted in [refused.iter().collect(), Vec::new()] {
            let effects = proceeds(&mut bench, &next, Some(7));
            assert_eq!((begun(&effects), said(&effects)), (None, wanted), "{what}");
        }
        goes(&mut bench);
        let fact = if code.is_some() { 9 } else { 7 };
        if code.is_some() {
            acknowledge(&mut bench, &next, fact);
        }
        assert!(begun(&proceeds(&mut bench, &next, Some(fact))).is_some(), "{what} is over");
    }
}

/// ROL-7, CNV-6: one that waited for the end of a pause would be left as a switch that takes too long, which counts against
/// its release.
#[test]
fn a_switch_that_began_is_not_held_up_by_a_pause() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Rollback));
    let mut bench = Bench::holding(&held);
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 7);
    let request = begun(&proceeds(&mut bench, &next, Some(7))).unwrap().clone();
    // Whatever runs already ends first.
    bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    let pause = pause(&bench);
    let observes = bench.give(NodeInput::Pause(pause.clone()));
    assert!(run_of(&observes).unwrap().pause.is_some(), "{observes:?}");
    let effects = bench.give(NodeInput::Switch(Box::new(request.adoption)));
    assert_eq!(adoption_of(&effects), None, "a run is under way: {effects:?}");
    let observed = RunReport { paused: Some(pause), ..report(0, 1) };
    let effects = bench.give(NodeInput::Ran(Box::new(observed)));
    assert_eq!(adoption_of(&effects).unwrap().seq, 2);
    let effects = bench.give(NodeInput::Adopted(HeldSettings::default()));
    assert_eq!(run_of(&effects).unwrap().pause, None, "the switch is made");
    let effects = bench.give(NodeInput::Ran(Box::new(report(1, 0))));
    assert!(effects.contains(&NodeEffect::Switched(Ok(()))), "{effects:?}");
    let effects = bench.give(NodeInput::RunNow(Default::default()));
    assert!(run_of(&effects).unwrap().pause.is_some(), "the host is paused still: {effects:?}");
}

/// ROL-7: the host goes back from the release before by itself, after the next one was acknowledged. Were that begun, a run
/// would be made beside that of the return, and nobody would be told of it.
#[test]
fn nothing_else_begins_while_the_host_goes_back() {
    let (held, next) = (Release::new(1, START, &["a"]), in_waves(2, &["b"], OnFailure::Rollback));
    let third = in_waves(3, &["c"], OnFailure::Rollback);
    let mut bench = Bench::holding(&held);
    let before = bench.node.adoption().cloned();
    prepare(&mut bench, &next, &["canary"]);
    acknowledge(&mut bench, &next, 7);
    let request = begun(&proceeds(&mut bench, &next, Some(7))).unwrap().clone();
    bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    bench.give(NodeInput::Switch(Box::new(request.adoption)));
    bench.give(NodeInput::Adopted(HeldSettings::default()));
    bench.give(NodeInput::Ran(Box::new(report(1, 0))));
    bench.trial(TrialStage::OnProbation);
    prepare(&mut bench, &third, &["canary"]);
    acknowledge(&mut bench, &third, 8);
    bench.trial(TrialStage::Returning);
    let effects = proceeds(&mut bench, &third, Some(8));
    assert_eq!(begun(&effects), None);
    assert_eq!(run_of(&effects), None, "the return makes its own");
    assert_eq!(bench.node.rollout_part().map(|part| part.seq), Some(2), "what it says is of that one");
    let returned = ReturnedRelease { adoption: before, settings: HeldSettings::default(), last_run: None };
    bench.give(NodeInput::Returned(Box::new(returned)));
    bench.trial(TrialStage::Settled);
    proceeds(&mut bench, &third, Some(8));
    bench.give(NodeInput::Fetched);
    bench.give(of_groups(&["canary"]));
    assert_eq!(begun(&proceeds(&mut bench, &third, Some(8))).unwrap().part.seq, 3, "it is back");
}
