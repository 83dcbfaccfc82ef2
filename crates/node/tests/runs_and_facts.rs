//! CNV-1, CNV-2, DLT-5: which runs are made, and which of them are facts.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{Bench, Release, START, answer, facts, observed, report, run_of};
use model::exchange::{Answer, TraitReport};
use model::log::{Cursor, FactBody};
use model::report::PartialRun;
use model::{Action, RunCounts, RunReport};
use node::{NodeEffect, NodeInput, ObservedTraits, ReadTraits, Restored};

fn bench() -> Bench {
    Bench::holding(&Release::new(1, START, &["a"]))
}

/// The next run that is due by itself ends with a report; what comes of it.
fn run(bench: &mut Bench, report: &RunReport) -> Vec<NodeEffect> {
    if run_of(&bench.exchange(answer())).is_some() {
        return bench.give(NodeInput::Ran(Box::new(report.clone())));
    }
    for _ in 0..50 {
        if run_of(&bench.pass(Duration::from_secs(30))).is_some() {
            return bench.give(NodeInput::Ran(Box::new(report.clone())));
        }
    }
    panic!("no run");
}

#[test]
fn an_unchanged_run_is_no_fact() {
    let mut bench = bench();
    assert_eq!(facts(&run(&mut bench, &report(1, 0))).len(), 1);
    assert_eq!(facts(&run(&mut bench, &report(0, 1))).len(), 1, "the first that changes nothing says so");
    for _ in 0..20 {
        let slower = RunReport { duration_ms: 99, started: bench.now, ..report(0, 1) };
        let effects = run(&mut bench, &slower);
        assert_eq!(facts(&effects), [] as [&FactBody; 0]);
        assert!(
            !effects.iter().any(|effect| matches!(effect, NodeEffect::SaveRun(_))),
            "and no write either"
        );
    }
    let note = bench.check_in().run.unwrap();
    assert!(note.at > START, "the check-in carries its time");
}

/// CNV-3: what the control plane knows follows the report of a partial run, and only a full one says that all
/// of it is as before.
#[test]
fn the_full_run_after_a_report_of_a_partial_one_is_told() {
    let failed = |report: RunReport| RunReport { counts: RunCounts { failed: 1, ..report.counts }, ..report };
    for (what, full, partial) in [
        ("something was changed", report(0, 2), by_tag(1, 0)),
        ("something failed, and somebody mended it", report(0, 2), failed(by_tag(0, 0))),
        ("a failure was mended, and is back", failed(report(0, 1)), by_tag(1, 0)),
    ] {
        let mut bench = bench();
        run(&mut bench, &full);
        let effects = bench.give(NodeInput::Ran(Box::new(partial)));
        assert!(matches!(facts(&effects)[..], [FactBody::Run(report)] if report.partial.is_some()), "{what}");
        assert!(
            matches!(&effects[..], [NodeEffect::SaveRun(last), ..] if last.incarnation.is_none()),
            "a start in between forgets it: {what}"
        );
        assert_eq!(facts(&run(&mut bench, &full)).len(), 1, "{what}");
        assert_eq!(facts(&run(&mut bench, &full)).len(), 0, "{what}");
    }
}

#[test]
fn a_partial_run_that_found_all_right_is_no_fact() {
    let mut bench = bench();
    run(&mut bench, &report(0, 2));
    assert_eq!(facts(&bench.give(NodeInput::Ran(Box::new(by_tag(0, 3))))), [] as [&FactBody; 0]);
    assert_eq!(facts(&run(&mut bench, &report(0, 2))), [] as [&FactBody; 0], "the next is as the one before");
}

fn by_tag(changed: u32, ok: u32) -> RunReport {
    RunReport { partial: Some(PartialRun::Tags(vec!["web".into()])), ..report(changed, ok) }
}

/// A run by tag was asked for, and begins.
fn begin_by_tag(bench: &mut Bench) -> bool {
    let effects = bench.give(NodeInput::RunNow(BTreeSet::from(["web".to_owned()])));
    run_of(&effects).is_some_and(|order| matches!(order.scope, converge::RunScope::Tags(_)))
}

#[test]
fn a_run_by_tag_ends_and_the_run_that_was_due_follows() {
    let mut bench = bench();
    run(&mut bench, &report(0, 2));
    bench.check_in();
    let due = bench.node.next_deadline();
    assert!(begin_by_tag(&mut bench));
    bench.give(NodeInput::Ran(Box::new(by_tag(0, 1))));
    assert_eq!(bench.node.next_deadline(), due, "it is due when it was");
    bench.now = due.expect("a run is due").0;
    let order = bench.give(NodeInput::Tick);
    assert!(
        run_of(&order).is_some_and(|order| order.scope == converge::RunScope::All),
        "nothing runs any more"
    );
    // A partial report is not the end of it.
    bench.give(NodeInput::Ran(Box::new(by_tag(0, 1))));
    assert_eq!(run_of(&bench.give(NodeInput::Nudge)), None, "two runs at a time");
    assert!(run_of(&bench.give(NodeInput::Ran(Box::new(report(0, 2))))).is_some());
}

#[test]
fn a_run_by_tag_that_could_not_be_made_delays_no_run() {
    let mut bench = bench();
    bench.check_in();
    let due = bench.node.next_deadline();
    bench.now = bench.now.plus(Duration::from_secs(1));
    assert!(begin_by_tag(&mut bench));
    let effects = bench.give(NodeInput::RunFailed(node::RunFailure::other("no memory")));
    assert_eq!(run_of(&effects), None, "it is not tried again by itself");
    assert_eq!(bench.node.next_deadline(), due);
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
    let append = effects.iter().position(|effect| matches!(effect, NodeEffect::Append(_))).unwrap();
    let save = effects.iter().position(|effect| matches!(effect, NodeEffect::SaveRun(_))).unwrap();
    assert!(append < save);
}

#[test]
fn only_the_first_run_on_new_inputs_is_intended() {
    let (one, two) = (Release::new(1, START, &["a"]), Release::new(2, START, &["b"]));
    let mut bench = Bench::new();
    assert!(run_of(&bench.adopt(&one)).unwrap().intended);
    let effects = bench.give(NodeInput::Ran(Box::new(report(1, 1))));
    let last = effects.iter().find_map(|effect| match effect {
        NodeEffect::SaveRun(last) => Some(last.clone()),
        _ => None,
    });
    let (last, adoption) = (last.unwrap(), bench.node.adoption().cloned());
    bench.give(NodeInput::Nudge);
    bench.give(NodeInput::Ran(Box::new(report(0, 2))));
    assert!(run_of(&bench.adopt(&two)).unwrap().intended);
    // A restart in between does not turn drift into intended change.
    let mut bench = Bench::restored(Restored { adoption, last_run: Some(last), ..Restored::default() });
    bench.give(NodeInput::Tick);
    let traits = bench.traits.clone();
    assert!(!run_of(&bench.give(observed(&traits))).unwrap().intended);
}

#[test]
fn a_trait_that_the_set_does_not_read_neither_leads_to_a_run_nor_makes_it_intended() {
    let first = Release::new(1, START, &["a"]);
    let mut bench = Bench::new();
    bench.adopt(&first);
    bench.give(NodeInput::Ran(Box::new(report(1, 1))));
    let root = bench.node.adoption().unwrap().root;
    let mut seen = |text: &str, read: &str| {
        let report = common::traits(text);
        let read = Some(ReadTraits { root, digest: model::Digest::of(read.as_bytes()) });
        run_of(&bench.give(NodeInput::Traits(ObservedTraits { report, read }))).cloned()
    };
    // Until now all counted; which ones do is known from here on, and nothing changed by that.
    assert_eq!(seen("debian", "a"), None);
    assert_eq!(seen("debian, 3 listeners", "a"), None);
    assert!(seen("debian, 3 listeners", "b").unwrap().intended);
    bench.give(NodeInput::Ran(Box::new(report(1, 1))));
    let report_of = common::traits("debian, 4 listeners");
    let read = Some(ReadTraits { root, digest: model::Digest::of(b"b") });
    bench.give(NodeInput::Traits(ObservedTraits { report: report_of, read }));
    let effects = bench.give(NodeInput::Nudge);
    assert!(!run_of(&effects).expect("the nudge asks for a run").intended, "drift, not an intended change");
}

#[test]
fn only_trait_groups_that_changed_travel() {
    let mut bench = bench();
    let whole = |text: &str| {
        let values = serde_json::json!({"os": {"family": "debian"}, "network": {"hostname": text}});
        TraitReport::whole(model::Digest::of(text.as_bytes()), values)
    };
    bench.traits = whole("a");
    bench.check_in();
    bench.give(NodeInput::Answered(Box::new(answer())));
    bench.traits = whole("b");
    let changed = bench.check_in().traits.unwrap();
    assert_eq!((changed.base, changed.digest), (Some(whole("a").digest), whole("b").digest));
    assert_eq!(changed.values, serde_json::json!({"network": {"hostname": "b"}}));
    // The control plane does not have what they differ from.
    bench.give(NodeInput::Answered(Box::new(Answer { want_traits: true, ..answer() })));
    assert_eq!(bench.check_in().traits, Some(whole("b")));
}

#[test]
fn a_no_change_answer_leads_to_a_run_unless_one_was_just_made() {
    for (waited, want) in [(10, false), (100, false), (250, true)] {
        let mut bench = bench();
        bench.exchange(answer());
        bench.now = bench.now.plus(Duration::from_secs(waited));
        bench.give(NodeInput::FactsWait);
        let mut effects = bench.give(observed(&bench.traits));
        effects.extend(bench.give(NodeInput::Answered(Box::new(answer()))));
        assert_eq!(run_of(&effects).is_some(), want, "{waited} s after the last");
    }
}

#[test]
fn a_nudge_during_a_check_in_leads_to_another() {
    let mut bench = bench();
    bench.exchange(answer());
    bench.give(NodeInput::FactsWait);
    bench.give(observed(&bench.traits));
    bench.give(NodeInput::Nudge);
    bench.give(NodeInput::Answered(Box::new(answer())));
    let soon = Duration::from_secs(2);
    assert!(bench.wait().is_some_and(|wait| wait <= soon), "{:?}", bench.wait());
}

#[test]
fn a_run_request_is_carried_out_and_confirmed() {
    let mut bench = bench();
    let requesting = Answer { run_request: Some(5), ..answer() };
    let effects = bench.exchange(requesting.clone());
    assert!(run_of(&effects).is_some(), "at once, whenever the next run was due");
    // Requested again while the run is under way, it is no second request.
    assert_eq!(bench.exchange(requesting.clone()), []);
    let effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    assert_eq!(run_of(&effects), None);
    assert!(effects.contains(&NodeEffect::CollectTraits), "the check-in that confirms it begins at once");
    assert_eq!(bench.check_in().run_confirmed, Some(5));
    // The confirmation was lost: it is said again, and not done again.
    let effects = bench.give(NodeInput::Answered(Box::new(requesting)));
    assert_eq!(run_of(&effects), None);
    assert_eq!(bench.check_in().run_confirmed, Some(5));
    bench.give(NodeInput::Answered(Box::new(answer())));
    assert_eq!(bench.check_in().run_confirmed, None, "taken");
}

#[test]
fn a_run_request_is_confirmed_only_by_a_run_that_began_after_it() {
    let mut bench = bench();
    assert!(run_of(&bench.give(NodeInput::Nudge)).is_some());
    let effects = bench.exchange(Answer { run_request: Some(5), ..answer() });
    assert_eq!(run_of(&effects), None, "the nudge's run is under way");
    let effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    assert!(run_of(&effects).is_some(), "a run of the request's own");
    assert_eq!(bench.check_in().run_confirmed, None, "not before it ended");
    bench.give(NodeInput::Answered(Box::new(answer())));
    bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    assert_eq!(bench.check_in().run_confirmed, Some(5));
}

#[test]
fn a_run_that_could_not_be_made_confirms_no_request() {
    let mut bench = bench();
    bench.exchange(Answer { run_request: Some(5), ..answer() });
    let effects = bench.give(NodeInput::RunFailed(node::RunFailure::other("no memory")));
    assert_eq!(common::warnings(&effects), ["the run could not be made: no memory"]);
    assert_eq!(bench.check_in().run_confirmed, None);
    bench.give(NodeInput::Answered(Box::new(Answer { run_request: Some(5), ..answer() })));
    bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    assert_eq!(bench.check_in().run_confirmed, Some(5), "the next that is made does");
}

#[test]
fn facts_are_delivered_soon_also_those_that_came_during_a_check_in() {
    let soon = Duration::from_secs(2);
    let mut bench = bench();
    assert!(bench.wait().unwrap() <= soon, "the first run was a fact");
    bench.check_in();
    let cursor = Cursor { incarnation: "i1".parse().unwrap(), seq: 2 };
    bench.give(NodeInput::Answered(Box::new(Answer { acked: Some(cursor), ..answer() })));
    assert!(bench.wait().unwrap() > soon, "all is said");
    assert!(run_of(&bench.give(NodeInput::Nudge)).is_some());
    bench.check_in();
    // The check-in is on its way when the run ends.
    assert_eq!(facts(&bench.give(NodeInput::Ran(Box::new(report(1, 1))))).len(), 1);
    bench.give(NodeInput::Answered(Box::new(answer())));
    assert!(bench.wait().unwrap() <= soon, "{:?}", bench.wait());
}

#[test]
fn a_report_that_is_not_in_the_log_is_given_again() {
    let mut bench = bench();
    run(&mut bench, &report(1, 0));
    assert_eq!(facts(&run(&mut bench, &report(0, 1))).len(), 1);
    let effects = bench.give(NodeInput::NotAppended);
    assert!(matches!(&effects[..], [NodeEffect::SaveRun(last)] if last.incarnation.is_none()), "{effects:?}");
    assert_eq!(facts(&run(&mut bench, &report(0, 1))).len(), 1);
    assert_eq!(facts(&run(&mut bench, &report(0, 1))).len(), 0);
}

/// A crash may have lost the note that a partial run said something else, or the log that had the report.
#[test]
fn after_a_start_the_first_run_is_told() {
    let mut before = bench();
    run(&mut before, &report(1, 0));
    let effects = run(&mut before, &report(0, 1));
    let saved = effects.iter().find_map(|effect| match effect {
        NodeEffect::SaveRun(last) => Some(last.clone()),
        _ => None,
    });
    let adoption = before.node.adoption().cloned();
    let mut bench = Bench::restored(Restored { adoption, last_run: saved, ..Restored::default() });
    bench.give(NodeInput::Tick);
    let order = bench.give(observed(&bench.traits));
    assert!(!run_of(&order).unwrap().intended, "what is bound is the same");
    assert_eq!(facts(&bench.give(NodeInput::Ran(Box::new(report(0, 1))))).len(), 1);
    bench.give(NodeInput::Answered(Box::new(answer())));
    assert_eq!(facts(&run(&mut bench, &report(0, 1))).len(), 0);
}

#[test]
fn the_cursor_reaches_the_log() {
    let mut bench = bench();
    let cursor = Cursor { incarnation: "i1".parse().unwrap(), seq: 7 };
    let effects = bench.exchange(Answer { acked: Some(cursor.clone()), ..answer() });
    assert!(effects.contains(&NodeEffect::Ack(cursor)));
}

/// A node that was removed and joined again under a running agent, or whose control plane was restored.
#[test]
fn a_control_plane_that_lacks_the_report_gets_the_next_one() {
    let mut bench = bench();
    run(&mut bench, &report(0, 1));
    assert_eq!(facts(&run(&mut bench, &report(0, 1))), [] as [&FactBody; 0], "it says nothing new");
    let effects = bench.exchange(Answer { want_run: true, ..answer() });
    assert!(effects.iter().any(|effect| matches!(effect, NodeEffect::SaveRun(_))), "a restart loses it");
    bench.give(NodeInput::RunNow(Default::default()));
    let effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    assert!(matches!(facts(&effects)[..], [FactBody::Run(_)]));
}

/// What is put right once its failure is over is no drift; what is found changed meanwhile is.
#[test]
fn what_a_failed_run_left_is_finished() {
    let mut bench = bench();
    let named = |name: &str, action| RunReport { partial: None, ..common::healed(&[(name, action)]) };
    bench.check_in();
    bench.give(NodeInput::RunNow(Default::default()));
    bench.give(NodeInput::Ran(Box::new(named("a", Action::Failed))));
    let order = run_of(&bench.give(NodeInput::RunNow(Default::default()))).cloned();
    let order = order.expect("a run");
    assert!(!order.intended);
    assert!(order.intends(&named("a", Action::Changed)));
    assert!(!order.intends(&named("b", Action::Changed)));
    assert!(!order.intends(&named("a", Action::Ok)));
}
