//! CNV-1, CNV-2, DLT-5: which runs are made, and which of them are facts.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{Bench, Release, START, answer, facts, report, run_of};
use model::RunReport;
use model::exchange::Answer;
use model::log::{Cursor, FactBody};
use node::{Effect, Input, Restored};

fn bench() -> Bench {
    Bench::holding(&Release::new(1, START, &["a"]))
}

/// Ends the next run with a report; what comes of it.
fn run(bench: &mut Bench, report: &RunReport) -> Vec<Effect> {
    for _ in 0..50 {
        let (at, _) = bench.node.next_deadline().unwrap();
        bench.now = bench.now.max(at);
        let effects = bench.give(Input::Tick);
        if run_of(&effects).is_some() {
            return bench.give(Input::Ran(Box::new(report.clone())));
        }
        if effects.contains(&Effect::CollectTraits) {
            let effects = bench.give(Input::Traits(bench.traits.clone()));
            if run_of(&effects).is_some() {
                bench.give(Input::Answered(Box::new(answer())));
                return bench.give(Input::Ran(Box::new(report.clone())));
            }
            let effects = bench.give(Input::Answered(Box::new(answer())));
            if run_of(&effects).is_some() {
                return bench.give(Input::Ran(Box::new(report.clone())));
            }
        }
    }
    panic!("no run");
}

#[test]
fn an_unchanged_run_is_no_fact() {
    let mut bench = bench();
    assert_eq!(facts(&run(&mut bench, &report(0, 2))).len(), 1, "the first that changes nothing says so");
    for _ in 0..20 {
        let slower = RunReport { duration_ms: 99, started: bench.now, ..report(0, 2) };
        let effects = run(&mut bench, &slower);
        assert_eq!(facts(&effects), [] as [&FactBody; 0]);
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::SaveRun(_))), "and no write either");
    }
    let note = bench.check_in().run.unwrap();
    assert!(note.at > START, "the check-in carries its time");
}

#[test]
fn every_corrective_run_is_a_fact() {
    let mut bench = bench();
    run(&mut bench, &report(0, 2));
    for _ in 0..3 {
        let effects = run(&mut bench, &report(1, 1));
        assert!(matches!(facts(&effects)[..], [FactBody::Run(report)] if report.counts.changed == 1));
    }
}

#[test]
fn the_fact_is_appended_before_what_hides_it() {
    let mut bench = bench();
    let effects = run(&mut bench, &report(0, 2));
    let append = effects.iter().position(|effect| matches!(effect, Effect::Append(_))).unwrap();
    let save = effects.iter().position(|effect| matches!(effect, Effect::SaveRun(_))).unwrap();
    assert!(append < save);
}

#[test]
fn only_the_first_run_on_new_inputs_is_intended() {
    let (one, two) = (Release::new(1, START, &["a"]), Release::new(2, START, &["b"]));
    let mut bench = Bench::new();
    assert!(run_of(&bench.adopt(&one)).unwrap().intended);
    let effects = bench.give(Input::Ran(Box::new(report(1, 1))));
    let Some(Effect::SaveRun(last)) = effects.last() else { panic!("{effects:?}") };
    let (last, adoption) = (last.clone(), bench.node.adoption().cloned());
    bench.give(Input::Nudge);
    bench.give(Input::Ran(Box::new(report(1, 1))));
    assert!(run_of(&bench.adopt(&two)).unwrap().intended);
    // A restart in between does not turn drift into intended change.
    let mut bench = Bench::restored(Restored { adoption, last_run: Some(last), ..Restored::default() });
    bench.give(Input::Tick);
    let traits = bench.traits.clone();
    assert!(!run_of(&bench.give(Input::Traits(traits))).unwrap().intended);
}

#[test]
fn a_no_change_answer_leads_to_a_run_when_one_is_near() {
    let mut bench = bench();
    bench.now = bench.now.plus(Duration::from_secs(200));
    bench.give(Input::Nudge);
    bench.give(Input::Ran(Box::new(report(0, 1))));
    bench.give(Input::Traits(bench.traits.clone()));
    let effects = bench.give(Input::Answered(Box::new(answer())));
    assert_eq!(run_of(&effects), None, "one was just made");
}

#[test]
fn a_push_is_carried_out_and_confirmed() {
    let mut bench = bench();
    let pushing = Answer { push: Some(5), ..answer() };
    let effects = bench.exchange(pushing.clone());
    assert!(run_of(&effects).is_some(), "at once, whenever the next run was due");
    // Told again while the run is under way, it is no second push.
    bench.give(Input::FactsWait);
    bench.give(Input::Traits(bench.traits.clone()));
    bench.give(Input::Answered(Box::new(pushing.clone())));
    let effects = bench.give(Input::Ran(Box::new(report(0, 1))));
    assert_eq!(run_of(&effects), None);
    let confirm = bench.check_in();
    assert_eq!(confirm.pushed, Some(5));
    // The confirmation was lost: it is said again, and not done again.
    let effects = bench.give(Input::Answered(Box::new(pushing)));
    assert_eq!(run_of(&effects), None);
    assert_eq!(bench.check_in().pushed, Some(5));
    bench.give(Input::Answered(Box::new(answer())));
    assert_eq!(bench.check_in().pushed, None, "taken");
}

#[test]
fn a_push_is_confirmed_only_by_a_run_that_began_after_it() {
    let mut bench = bench();
    bench.give(Input::Nudge);
    let mut effects = bench.give(Input::Traits(bench.traits.clone()));
    effects.extend(bench.give(Input::Answered(Box::new(Answer { push: Some(5), ..answer() }))));
    assert_eq!(run_of(&effects), None, "the nudge's run is under way");
    let effects = bench.give(Input::Ran(Box::new(report(0, 1))));
    assert!(run_of(&effects).is_some(), "a run of the push's own");
    bench.now = bench.now.plus(Duration::from_secs(600));
    bench.give(Input::Tick);
    let check_in = bench.give(Input::Traits(bench.traits.clone()));
    assert_eq!(common::sent(&check_in).unwrap().pushed, None, "not before it ended");
    bench.give(Input::Answered(Box::new(answer())));
    bench.give(Input::Ran(Box::new(report(0, 1))));
    assert_eq!(bench.check_in().pushed, Some(5));
}

#[test]
fn a_run_that_could_not_be_made_confirms_no_push() {
    let mut bench = bench();
    bench.exchange(Answer { push: Some(5), ..answer() });
    let effects = bench.give(Input::RunFailed("no memory".to_owned()));
    assert_eq!(common::warnings(&effects), ["the run could not be made: no memory"]);
    // The next that is made does.
    while run_of(&bench.pass(Duration::from_secs(60))).is_none() {}
    bench.give(Input::Ran(Box::new(report(0, 1))));
    bench.give(Input::Traits(bench.traits.clone()));
    bench.give(Input::Answered(Box::new(answer())));
    assert_eq!(bench.check_in().pushed, Some(5));
}

#[test]
fn facts_are_delivered_soon_also_those_that_came_during_a_check_in() {
    let soon = Duration::from_secs(2);
    let mut bench = bench();
    assert!(bench.wait().unwrap() <= soon, "the first run was a fact");
    bench.check_in();
    let cursor = Cursor { incarnation: "i1".parse().unwrap(), seq: 2 };
    bench.give(Input::Answered(Box::new(Answer { acked: Some(cursor), ..answer() })));
    assert!(bench.wait().unwrap() > soon, "all is said");
    bench.give(Input::Nudge);
    bench.give(Input::Traits(bench.traits.clone()));
    // The check-in is on its way when the run ends.
    assert_eq!(facts(&bench.give(Input::Ran(Box::new(report(1, 1))))).len(), 1);
    bench.give(Input::Answered(Box::new(answer())));
    assert!(bench.wait().unwrap() <= soon, "{:?}", bench.wait());
}

#[test]
fn the_cursor_reaches_the_log() {
    let mut bench = bench();
    let cursor = Cursor { incarnation: "i1".parse().unwrap(), seq: 7 };
    let effects = bench.exchange(Answer { acked: Some(cursor.clone()), ..answer() });
    assert!(effects.contains(&Effect::Ack(cursor)));
}
