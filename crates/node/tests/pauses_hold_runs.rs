//! CNV-6: while somebody on the host pauses it, runs only observe and say why; check-ins and facts go
//! on; a pause outlives a restart and ends by itself when its time is over; what is made so after it
//! was intended all along.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{Bench, Release, START, facts, report, run_of, warnings};
use model::exchange::Answer;
use model::log::FactBody;
use model::{Pause, RunCounts, RunReport};
use node::{NodeEffect, NodeInput, Restored};

fn pause(bench: &Bench, secs: Option<u64>) -> Pause {
    let until = secs.map(|secs| bench.now.plus(Duration::from_secs(secs)));
    Pause { reason: "debugging".to_owned(), since: bench.now, until }
}

fn saved(effects: &[NodeEffect]) -> Option<Option<Pause>> {
    effects.iter().find_map(|effect| match effect {
        NodeEffect::SavePause(pause) => Some(pause.clone()),
        _ => None,
    })
}

/// What a run under this pause reports.
fn observed(pause: &Pause) -> NodeInput {
    let counts = RunCounts { would_change: 1, ..RunCounts::default() };
    NodeInput::Ran(Box::new(RunReport { paused: Some(pause.clone()), counts, ..report(0, 0) }))
}

#[test]
fn runs_only_observe_until_it_is_resumed() {
    let mut bench = Bench::holding(&Release::new(1, START, &["base"]));
    let pause = pause(&bench, None);
    let effects = bench.give(NodeInput::Pause(pause.clone()));
    assert_eq!(saved(&effects), Some(Some(pause.clone())), "it must be durable");
    let order = run_of(&effects).expect("the control plane hears of it at once");
    assert_eq!(order.pause.as_ref(), Some(&pause));
    let effects = bench.give(observed(&pause));
    assert!(matches!(facts(&effects)[..], [FactBody::Run(run)] if run.paused == Some(pause.clone())));
    // Contacts go on, and every run on the way only observes.
    for _ in 0..3 {
        bench.check_in();
        let effects = bench.give(NodeInput::Answered(Box::new(common::answer())));
        if let Some(order) = run_of(&effects) {
            assert!(order.pause.is_some());
            bench.give(observed(&pause));
        }
    }
    let effects = bench.give(NodeInput::Resume);
    assert_eq!(saved(&effects), Some(None));
    let order = run_of(&effects).expect("the host is made as declared at once");
    assert_eq!(order.pause, None);
    assert_eq!(saved(&bench.give(NodeInput::Resume)), None, "there is nothing to end");
}

#[test]
fn it_ends_by_itself_and_outlives_a_restart() {
    let mut bench = Bench::holding(&Release::new(1, START, &["base"]));
    let pause = pause(&bench, Some(600));
    bench.give(NodeInput::Pause(pause.clone()));
    let adoption = bench.node.adoption().cloned();
    let mut after = Bench::restored(Restored { adoption, pause: Some(pause.clone()), ..Restored::default() });
    after.now = bench.now;
    after.check_in();
    assert_eq!(after.node.pause(), Some(&pause));
    assert!(after.node.next_deadline().is_some_and(|(at, _)| at <= pause.until.unwrap()));
    after.now = pause.until.unwrap();
    let effects = after.give(NodeInput::Tick);
    assert_eq!((after.node.pause(), saved(&effects)), (None, Some(None)));
    assert!(warnings(&effects).iter().any(|text| text.contains("pause ended")), "{effects:?}");
}

#[test]
fn a_clock_set_back_does_not_lengthen_it() {
    let mut bench = Bench::holding(&Release::new(1, START, &["base"]));
    let pause = pause(&bench, Some(600));
    bench.give(NodeInput::Pause(pause));
    bench.now = bench.now.minus(Duration::from_secs(100_000));
    bench.give(NodeInput::Tick);
    let left = bench.node.pause().unwrap().until.unwrap().since(bench.now);
    assert!(left <= Duration::from_secs(600), "{left:?} are left of 600 s");
}

#[test]
fn a_pause_again_keeps_its_beginning() {
    let mut bench = Bench::holding(&Release::new(1, START, &["base"]));
    let first = pause(&bench, None);
    bench.give(NodeInput::Pause(first.clone()));
    bench.pass(Duration::from_secs(10));
    let second = Pause { reason: "still at it".to_owned(), ..pause(&bench, Some(60)) };
    bench.give(NodeInput::Pause(second.clone()));
    assert_eq!(bench.node.pause(), Some(&Pause { since: first.since, ..second }));
}

#[test]
fn what_was_adopted_in_a_pause_is_intended_after_it() {
    let mut bench = Bench::holding(&Release::new(1, START, &["base"]));
    let pause = pause(&bench, None);
    bench.give(NodeInput::Pause(pause.clone()));
    bench.give(observed(&pause));
    // A changed trait binds anew, as a release would; the pause only observes it.
    let effects = bench.give(common::observed(&common::traits("another")));
    assert!(run_of(&effects).is_some_and(|order| order.intended && order.pause.is_some()), "{effects:?}");
    bench.give(observed(&pause));
    let effects = bench.give(NodeInput::Resume);
    let order = run_of(&effects).expect("a run follows");
    assert!(order.intended, "what nobody made so yet was taken for drift");
}

/// What was requested is to be made so; a look at the host is not that.
#[test]
fn a_run_request_waits_for_the_end_of_the_pause() {
    let mut bench = Bench::holding(&Release::new(1, START, &["base"]));
    let pause = pause(&bench, None);
    bench.give(NodeInput::Pause(pause.clone()));
    bench.give(observed(&pause));
    let requested = || Answer { run_request: Some(5), next_checkin_secs: 5, ..common::answer() };
    let mut runs = 0;
    for _ in 0..10 {
        assert_eq!(bench.check_in().run_confirmed, None, "a paused host confirmed a run");
        if run_of(&bench.give(NodeInput::Answered(Box::new(requested())))).is_some() {
            runs += 1;
            bench.give(observed(&pause));
        }
    }
    assert!(runs <= 1, "{runs} runs after 10 answers");
    let order = bench.give(NodeInput::Resume);
    assert!(run_of(&order).is_some_and(|order| order.pause.is_none()));
    bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    assert_eq!(bench.check_in().run_confirmed, Some(5));
}
