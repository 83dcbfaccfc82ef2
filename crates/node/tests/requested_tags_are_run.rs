//! CFG-7, DLT-5: a run by tag that an operator requests is made at once, confirmed by a run that began after
//! the request came and may change the host, and by a full one too; it delays and replaces no run that was due.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{Bench, Release, START, answer, facts, ids, observed, offering, report, run_of};
use converge::RunScope;
use model::exchange::Answer;
use model::log::FactBody;
use model::policy::Policy;
use model::report::PartialRun;
use model::tags::{MAX_RUN_TAGS, TaggedRun};
use model::{Pause, RunReport};
use node::healing::REST;
use node::{HeldSettings, NodeEffect, NodeInput, Restored, RunOrder, SuspectedDrift};

/// So long that no full run is due by itself, nor by an answer.
const CONVERGE_SECS: u64 = 24 * 3600;

/// A node that holds a release and made its first run.
fn bench() -> Bench {
    let adoption = Bench::holding(&Release::new(1, START, &["a"])).node.adoption().cloned();
    let policy = Policy { converge_secs: CONVERGE_SECS, ..Policy::default() };
    let settings = HeldSettings { policy, only_observes: false };
    let mut bench = Bench::restored(Restored { adoption, settings, ..Restored::default() });
    bench.give(NodeInput::Tick);
    assert!(run_of(&bench.give(observed(&bench.traits.clone()))).is_some());
    bench.give(ran());
    bench.give(NodeInput::Answered(Box::new(answer())));
    bench
}

fn set(tags: &[&str]) -> BTreeSet<String> {
    tags.iter().map(|tag| (*tag).to_owned()).collect()
}

fn requesting(number: u64, tags: &[&str]) -> Answer {
    Answer { tagged_run: Some(TaggedRun { number, tags: set(tags) }), ..answer() }
}

/// What a run of these came to, in which nothing had to be changed.
fn by_tag(tags: &[&str], unknown: &[&str]) -> NodeInput {
    let list = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    let (partial, unknown_tags) = (Some(PartialRun::Tags(list(tags))), list(unknown));
    NodeInput::Ran(Box::new(RunReport { partial, unknown_tags, ..report(0, 1) }))
}

fn ran() -> NodeInput {
    NodeInput::Ran(Box::new(report(0, 1)))
}

/// The order of a run of these tags, requested by an operator.
#[track_caller]
fn is_of_tags(effects: &[NodeEffect], tags: &[&str]) {
    let order = run_of(effects).expect("a run begins");
    let RunOrder { scope, requested_tags, .. } = order;
    assert_eq!((scope, requested_tags), (&RunScope::Tags(set(tags)), &set(tags)));
}

/// What the next check-in confirms: a full run, and one by tag.
fn confirmed(bench: &mut Bench) -> (Option<u64>, Option<u64>) {
    let check_in = bench.check_in();
    (check_in.run_confirmed, check_in.tagged_run_confirmed)
}

#[test]
fn it_is_made_at_once_and_confirmed_until_that_was_heard() {
    let mut bench = bench();
    bench.check_in();
    is_of_tags(&bench.give(NodeInput::Answered(Box::new(requesting(5, &["db", "web"])))), &["db", "web"]);
    // Requested again while the run is under way, it is no second request.
    assert_eq!(bench.exchange(requesting(5, &["db", "web"])), []);
    let effects = bench.give(by_tag(&["db", "web"], &[]));
    assert_eq!(run_of(&effects), None);
    assert!(
        matches!(facts(&effects)[..], [FactBody::Run(run)] if run.counts.ok == 1),
        "who requested it reads what it came to, though all was right: {effects:?}"
    );
    assert!(effects.contains(&NodeEffect::CollectTraits), "the check-in that confirms it begins at once");
    assert_eq!(confirmed(&mut bench), (None, Some(5)));
    // The confirmation was lost: it is said again, and not done again.
    let effects = bench.give(NodeInput::Answered(Box::new(requesting(5, &["db", "web"]))));
    assert_eq!(run_of(&effects), None);
    assert_eq!(confirmed(&mut bench), (None, Some(5)));
    bench.give(NodeInput::Answered(Box::new(answer())));
    assert_eq!(confirmed(&mut bench), (None, None), "taken");
}

#[test]
fn a_release_that_comes_with_the_request_is_held_first() {
    let mut bench = bench();
    let held = Release::new(1, START, &["a"]);
    let next = Release::new(2, START, &["b"]);
    let both =
        Answer { tagged_run: requesting(5, &["new"]).tagged_run, ..offering(next.offer(Some(&held.set))) };
    assert_eq!(run_of(&bench.exchange(both)), None, "release 1 may know no such tag");
    bench.give(NodeInput::Fetched);
    let effects = bench.give(NodeInput::Adopted(HeldSettings::default()));
    let order = run_of(&effects).expect("a run begins");
    assert_eq!((order.seq, &order.requested_tags), (2, &set(&["new"])));
}

#[test]
fn a_release_that_cannot_be_fetched_does_not_hold_the_request_back() {
    let mut bench = bench();
    let held = Release::new(1, START, &["a"]);
    let next = Release::new(2, START, &["b"]);
    let both =
        Answer { tagged_run: requesting(5, &["web"]).tagged_run, ..offering(next.offer(Some(&held.set))) };
    assert_eq!(run_of(&bench.exchange(both)), None);
    is_of_tags(&bench.give(NodeInput::FetchFailed("cut off".to_owned())), &["web"]);
}

#[test]
fn a_tag_that_no_resource_has_is_a_fact() {
    let mut bench = bench();
    is_of_tags(&bench.exchange(requesting(5, &["nope", "web"])), &["nope", "web"]);
    let effects = bench.give(by_tag(&["nope", "web"], &["nope"]));
    assert!(
        matches!(facts(&effects)[..], [FactBody::Run(run)] if run.unknown_tags == ["nope"]),
        "{effects:?}"
    );
    assert_eq!(confirmed(&mut bench), (None, Some(5)), "and the request is done");
    // A full run that carries a request out says so too, and is no other run for it.
    bench.give(NodeInput::Answered(Box::new(answer())));
    let both = Answer { run_request: Some(6), ..requesting(7, &["nope"]) };
    let effects = bench.exchange(both);
    assert!(run_of(&effects).is_some_and(|order| order.requested_tags == set(&["nope"])), "{effects:?}");
    let unknown = RunReport { unknown_tags: vec!["nope".to_owned()], ..report(0, 1) };
    let effects = bench.give(NodeInput::Ran(Box::new(unknown)));
    assert!(
        matches!(facts(&effects)[..], [FactBody::Run(run)] if run.unknown_tags == ["nope"]),
        "{effects:?}"
    );
    assert_eq!(confirmed(&mut bench), (Some(6), Some(7)));
    bench.give(NodeInput::Answered(Box::new(answer())));
    bench.give(NodeInput::Nudge);
    assert_eq!(facts(&bench.give(ran())), [] as [&FactBody; 0], "the next one came to the same");
}

#[test]
fn a_full_run_carries_out_both_requests_and_one_by_tag_its_own() {
    let mut bench = bench();
    let both = Answer { run_request: Some(9), ..requesting(5, &["web"]) };
    let effects = bench.exchange(both.clone());
    assert!(run_of(&effects).is_some_and(|order| order.scope == RunScope::All), "{effects:?}");
    bench.give(ran());
    assert_eq!(confirmed(&mut bench), (Some(9), Some(5)), "whichever number is higher");
    bench.give(NodeInput::Answered(Box::new(answer())));
    // A full request that comes during a run by tag has a run of its own.
    is_of_tags(&bench.exchange(requesting(11, &["web"])), &["web"]);
    let effects = bench.exchange(Answer { run_request: Some(12), ..requesting(11, &["web"]) });
    assert_eq!(run_of(&effects), None, "one run at a time");
    let effects = bench.give(by_tag(&["web"], &[]));
    assert!(run_of(&effects).is_some_and(|order| order.scope == RunScope::All), "{effects:?}");
    assert_eq!(confirmed(&mut bench), (None, Some(11)));
}

#[test]
fn it_is_confirmed_only_by_a_run_that_began_after_it() {
    let mut bench = bench();
    assert!(run_of(&bench.give(NodeInput::Nudge)).is_some());
    assert_eq!(run_of(&bench.exchange(requesting(5, &["web"]))), None, "the nudge's run is under way");
    is_of_tags(&bench.give(ran()), &["web"]);
    assert_eq!(bench.check_in().tagged_run_confirmed, None, "not before it ended");
    // More tags, requested meanwhile, have a run of their own.
    let effects = bench.give(NodeInput::Answered(Box::new(requesting(6, &["db", "web"]))));
    assert_eq!(run_of(&effects), None);
    is_of_tags(&bench.give(by_tag(&["web"], &[])), &["db", "web"]);
    bench.give(by_tag(&["db", "web"], &[]));
    assert_eq!(confirmed(&mut bench), (None, Some(6)));
}

#[test]
fn what_somebody_at_the_host_asks_for_is_a_run_of_its_own() {
    let mut bench = bench();
    assert!(run_of(&bench.give(NodeInput::Nudge)).is_some());
    bench.give(NodeInput::RunNow(set(&["local"])));
    bench.exchange(requesting(5, &["web"]));
    let effects = bench.give(ran());
    let order = run_of(&effects).expect("the one of the host first");
    assert_eq!((&order.scope, &order.requested_tags), (&RunScope::Tags(set(&["local"])), &set(&[])));
    is_of_tags(&bench.give(by_tag(&["local"], &[])), &["web"]);
    bench.give(by_tag(&["web"], &[]));
    assert_eq!(confirmed(&mut bench), (None, Some(5)));
}

#[test]
fn one_that_could_not_be_made_waits_for_the_next_answer() {
    let mut bench = bench();
    is_of_tags(&bench.exchange(requesting(5, &["web"])), &["web"]);
    let effects = bench.give(NodeInput::RunFailed(node::RunFailure::other("no memory")));
    assert_eq!(run_of(&effects), None, "it is not tried again by itself");
    assert_eq!(bench.check_in().tagged_run_confirmed, None);
    is_of_tags(&bench.give(NodeInput::Answered(Box::new(requesting(5, &["web"])))), &["web"]);
    bench.give(by_tag(&["web"], &[]));
    assert_eq!(confirmed(&mut bench), (None, Some(5)));
}

#[test]
fn one_that_could_not_be_made_holds_no_healing_up() {
    let mut bench = bench();
    for _ in 0..5 {
        is_of_tags(&bench.exchange(requesting(5, &["web"])), &["web"]);
        bench.give(NodeInput::RunFailed(node::RunFailure::other("no memory")));
    }
    let drift = SuspectedDrift { resources: ids(&["a"]), ..SuspectedDrift::default() };
    bench.give(NodeInput::SuspectedDrift(drift));
    let effects = bench.pass(REST);
    let order = run_of(&effects).expect("what was changed by hand is checked at once");
    assert_eq!(order.scope, RunScope::Resources(ids(&["a"])));
}

#[test]
fn it_waits_for_the_end_of_a_pause() {
    let mut bench = bench();
    let pause = Pause { reason: "debugging".to_owned(), since: bench.now, until: None };
    let observed = || NodeInput::Ran(Box::new(RunReport { paused: Some(pause.clone()), ..report(0, 1) }));
    bench.give(NodeInput::Pause(pause.clone()));
    bench.give(observed());
    for _ in 0..5 {
        assert_eq!(confirmed(&mut bench), (None, None), "a paused host confirmed a run");
        if run_of(&bench.give(NodeInput::Answered(Box::new(requesting(5, &["web"]))))).is_some() {
            bench.give(observed());
        }
    }
    let effects = bench.give(NodeInput::Resume);
    assert!(run_of(&effects).is_some_and(|order| order.pause.is_none()), "{effects:?}");
    bench.give(ran());
    assert_eq!(confirmed(&mut bench), (None, Some(5)), "the run after the pause carries it out");
}

#[test]
fn what_no_operator_can_request_is_not_carried_out() {
    let mut bench = bench();
    let many: Vec<String> = (0..=MAX_RUN_TAGS).map(|n| format!("t{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for wrong in [&[][..], &["no tag"], &many] {
        assert_eq!(run_of(&bench.exchange(requesting(5, wrong))), None, "{wrong:?}");
        assert_eq!(confirmed(&mut bench), (None, None));
        bench.give(NodeInput::Answered(Box::new(answer())));
    }
}

#[test]
fn requests_by_tag_do_not_make_it_spin_nor_put_the_full_run_off() {
    let mut bench = bench();
    bench.check_in();
    let (began, mut full) = (bench.now, 0);
    for number in 0..200 {
        let mut effects = bench.give(NodeInput::Answered(Box::new(requesting(number + 1, &["web"]))));
        while let Some(order) = run_of(&effects) {
            let ended = if order.scope == RunScope::All { ran() } else { by_tag(&["web"], &[]) };
            full += u32::from(order.scope == RunScope::All);
            effects = bench.give(ended);
        }
        bench.now = bench.now.plus(Duration::from_secs(10));
        bench.check_in();
    }
    let passed = bench.now.since(began).as_secs();
    assert!(passed >= 199, "{passed} s");
    assert!(full <= 1, "{full} full runs in {passed} s");
}
