//! CNV-7: what happens again and again costs less each time: scans after lost events, looks at what only
//! observes, runs that cannot be made, and facts about who changes a contended resource.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::{Bench, Release, START, facts, report, run_of, warnings};
use converge::{ResourceId, RunScope};
use model::log::FactBody;
use model::report::PartialRun;
use model::{Action, Contention, Culprit, CulpritFinding, ResourceReport, RunCounts, RunReport, Timestamp};
use node::healing::{DEBOUNCE, IMMEDIATE_CORRECTIONS};
use node::repeat_backoff::{FIRST, FORGOTTEN};
use node::reported_contentions::{CULPRIT_REPORTED_EVERY, ReportedContentions};
use node::{NodeEffect, NodeInput, RepeatBackoff, SuspectedDrift};

const STEP: Duration = Duration::from_millis(50);

fn ids(names: &[&str]) -> BTreeSet<ResourceId> {
    names.iter().map(|name| ResourceId::new("m", "file", name)).collect()
}

fn suspected(names: &[&str]) -> NodeInput {
    NodeInput::SuspectedDrift(SuspectedDrift { resources: ids(names), ..SuspectedDrift::default() })
}

fn lost(names: &[&str]) -> NodeInput {
    NodeInput::SuspectedDrift(SuspectedDrift { after_lost_events: ids(names), ..SuspectedDrift::default() })
}

fn by(name: &str, program: &str) -> NodeInput {
    let culprit = Culprit { pid: 7, program: Some(program.to_owned()), unit: None };
    let found = CulpritFinding::Named(culprit);
    let culprits: BTreeMap<_, _> = ids(&[name]).into_iter().map(|id| (id, found.clone())).collect();
    NodeInput::SuspectedDrift(SuspectedDrift { culprits, ..SuspectedDrift::default() })
}

/// What a run over some resources reports when each comes to this.
fn found(looked: &BTreeSet<ResourceId>, action: Action) -> NodeInput {
    let item = |id: &ResourceId| ResourceReport {
        resource: id.to_string(),
        action,
        edit: None,
        reason: None,
        cause: None,
        duration_ms: 0,
    };
    let count = u32::try_from(looked.len()).unwrap();
    let of = |wanted: Action| if action == wanted { count } else { 0 };
    let counts = RunCounts {
        ok: of(Action::Ok),
        changed: of(Action::Changed),
        would_change: of(Action::WouldChange),
        ..RunCounts::default()
    };
    let items = if action == Action::Ok { Vec::new() } else { looked.iter().map(item).collect() };
    let partial = Some(PartialRun::Resources(count));
    NodeInput::Ran(Box::new(RunReport { counts, items, partial, ..report(0, 0) }))
}

fn scope(effects: &[NodeEffect]) -> Option<BTreeSet<ResourceId>> {
    match &run_of(effects)?.scope {
        RunScope::Resources(ids) => Some(ids.clone()),
        RunScope::All | RunScope::Tags(_) => None,
    }
}

fn holding() -> Bench {
    Bench::holding(&Release::new(1, START, &["base"]))
}

/// Time passes, with this input at each such time; what runs over suspects looked at. Each comes to `action`.
fn looks(
    bench: &mut Bench,
    time: Duration,
    every: Duration,
    input: &dyn Fn() -> NodeInput,
    action: Action,
) -> Vec<BTreeSet<ResourceId>> {
    let end = bench.now.plus(time);
    let (mut looks, mut next) = (Vec::new(), bench.now);
    while bench.now < end {
        let mut effects = match bench.now >= next {
            true => {
                next = next.plus(every);
                bench.give(input())
            }
            false => bench.pass(STEP),
        };
        while let Some(order) = run_of(&effects) {
            effects = match &order.scope {
                RunScope::Resources(looked) => {
                    looks.push(looked.clone());
                    bench.give(found(looked, action))
                }
                RunScope::All | RunScope::Tags(_) => bench.give(NodeInput::Ran(Box::new(report(0, 1)))),
            };
        }
    }
    looks
}

#[test]
fn lost_events_one_after_the_other_lead_to_scans_ever_later() {
    let mut bench = holding();
    let scans = looks(
        &mut bench,
        Duration::from_secs(10),
        Duration::from_secs(1),
        &|| lost(&["a", "b", "c"]),
        Action::Ok,
    );
    assert!((2..=5).contains(&scans.len()), "{} scans in ten seconds", scans.len());
    let waits = usize::try_from(bench.node.scans()).unwrap() - scans.len();
    assert!(waits <= 1, "{waits} scans wait");
}

#[test]
fn a_hand_edit_is_looked_at_at_once_while_a_scan_waits() {
    let mut bench = holding();
    let flood = || lost(&["a", "b", "c"]);
    looks(&mut bench, Duration::from_secs(20), Duration::from_secs(1), &flood, Action::Ok);
    // A scan waits now, for many seconds; and nothing was looked at of late.
    looks(&mut bench, Duration::from_secs(2), Duration::from_secs(60), &flood, Action::Ok);
    let mut effects = bench.give(suspected(&["b"]));
    let began = bench.now;
    while scope(&effects).is_none() {
        assert!(bench.now.since(began) <= DEBOUNCE, "the edit waits for the scan");
        effects = bench.pass(STEP);
    }
    assert_eq!(scope(&effects), Some(ids(&["b"])));
}

#[test]
fn scans_are_quick_again_after_a_quiet_time() {
    let mut bench = holding();
    let flood = || lost(&["a"]);
    looks(&mut bench, Duration::from_secs(30), Duration::from_secs(1), &flood, Action::Ok);
    looks(&mut bench, Duration::from_secs(1300), Duration::from_secs(5000), &|| suspected(&[]), Action::Ok);
    let second = Duration::from_secs(1);
    let scans = looks(&mut bench, second * 4, second, &flood, Action::Ok);
    assert!(scans.len() >= 2, "it waits as if events were still lost: {} scans", scans.len());
}

#[test]
fn what_only_observes_and_is_written_all_the_time_is_looked_at_a_handful_of_times() {
    let mut bench = holding();
    let minute = Duration::from_secs(60);
    let runs =
        looks(&mut bench, minute, Duration::from_millis(100), &|| suspected(&["a"]), Action::WouldChange);
    assert!((3..=8).contains(&runs.len()), "{} runs in a minute", runs.len());
}

#[test]
fn runs_that_cannot_be_made_are_tried_ever_later() {
    let mut bench = holding();
    bench.give(suspected(&["a"]));
    let (mut waits, mut began) = (Vec::new(), bench.now);
    let mut effects = Vec::new();
    while waits.len() < 8 {
        if let Some(order) = run_of(&effects) {
            let healing = matches!(order.scope, RunScope::Resources(_));
            if !healing {
                // The interval's own run looks at everything: the rest would be of another kind.
                break;
            }
            waits.push(bench.now.since(began));
            began = bench.now;
            bench.give(NodeInput::RunFailed(node::RunFailure::other("no memory")));
            // More of the same is no reason to hurry.
            effects = bench.give(suspected(&["a", "b"]));
            continue;
        }
        effects = bench.pass(STEP);
    }
    assert!(waits.len() >= 6, "{waits:?}");
    for (before, next) in waits[1..].iter().zip(&waits[2..]) {
        assert!(*next >= *before * 2 - STEP * 4, "{waits:?}");
    }
}

#[test]
fn who_fights_is_told_seldom_however_many_they_are() {
    let mut bench = holding();
    looks(&mut bench, Duration::from_secs(20), STEP * 2, &|| suspected(&["a"]), Action::Changed);
    assert!(bench.node.contentions()[0].corrections >= IMMEDIATE_CORRECTIONS);
    let (mut told, mut warned) = (0, 0);
    for number in 0..100 {
        let program = if number % 2 == 0 { "/usr/bin/one" } else { "/usr/bin/other" };
        let mut effects = bench.give(by("a", program));
        effects.extend(bench.pass(Duration::from_millis(550)));
        told += facts(&effects).iter().filter(|fact| matches!(fact, FactBody::Contended { .. })).count();
        warned += warnings(&effects).iter().filter(|text| text.contains("again and again")).count();
    }
    assert!((1..=2).contains(&told) && warned <= 2, "{told} facts and {warned} warnings in a minute");
    let shown = bench.node.contentions()[0].culprit.clone().unwrap();
    assert_eq!(shown.program.as_deref(), Some("/usr/bin/other"), "status shows the newest all the same");
}

fn contention(resource: &str, corrections: u32, program: Option<&str>) -> Contention {
    let culprit = |program: &str| Culprit { pid: corrections, program: Some(program.to_owned()), unit: None };
    Contention {
        resource: resource.to_owned(),
        since: Timestamp(0),
        corrections,
        wait_secs: u64::from(corrections),
        culprit: program.map(culprit),
        culprit_unknown: None,
    }
}

#[test]
fn a_new_contention_is_reported_alone_a_first_name_at_once_and_another_later() {
    let mut reported = ReportedContentions::default();
    assert_eq!(reported.news(&[], Timestamp(0)), None);
    let a = contention("a", 4, None);
    assert_eq!(reported.news(std::slice::from_ref(&a), Timestamp(0)), Some(vec![&a]));
    reported.reported(&[a], Timestamp(0));
    let both = [contention("a", 5, None), contention("b", 4, Some("x"))];
    assert_eq!(reported.news(&both, Timestamp(1)), Some(vec![&both[1]]), "counters are no news");
    reported.reported(&both, Timestamp(1));
    let named = [contention("a", 6, Some("x")), contention("b", 5, Some("x"))];
    assert_eq!(reported.news(&named, Timestamp(2)), Some(vec![&named[0]]));
    reported.reported(&named, Timestamp(2));
    let other = [contention("a", 7, Some("y")), contention("b", 6, Some("x"))];
    assert_eq!(reported.news(&other, Timestamp(3)), None);
    let later = Timestamp(2).plus(CULPRIT_REPORTED_EVERY);
    assert_eq!(reported.news(&other, later), Some(vec![&other[0]]));
    assert_eq!(reported.news(&other[1..], Timestamp(3)), Some(Vec::new()), "one has ended");
}

const LONGEST: Duration = Duration::from_secs(30);

fn at(millis: i64) -> Timestamp {
    Timestamp(millis)
}

#[test]
fn a_hundred_requests_in_a_second_are_done_once_or_twice_and_none_is_forgotten() {
    let mut backoff = RepeatBackoff::default();
    let (mut done, mut asked_last, mut done_last) = (0, 0, 0);
    for millis in 0..60_000 {
        if millis % 10 == 0 && millis < 1000 {
            backoff.request(at(millis), LONGEST);
            asked_last = millis;
        }
        if backoff.due().is_some_and(|due| due <= at(millis)) {
            backoff.done();
            (done, done_last) = (done + 1, millis);
        }
    }
    assert!((2..=3).contains(&done), "{done}");
    assert!(done_last > asked_last, "the last request was forgotten");
}

#[test]
fn waits_double_up_to_the_longest_and_are_forgotten_after_a_quiet_time() {
    let mut backoff = RepeatBackoff::default();
    let mut now = at(0);
    let mut waits = Vec::new();
    for _ in 0..8 {
        let due = backoff.request(now, LONGEST);
        waits.push(due.since(now).as_secs());
        now = due;
        backoff.done();
    }
    assert_eq!(waits, [0, 1, 2, 4, 8, 16, 30, 30]);
    now = now.plus(FORGOTTEN + Duration::from_secs(1));
    assert_eq!(backoff.request(now, LONGEST), now);
    backoff.done();
    assert_eq!(backoff.request(now, LONGEST).since(now), FIRST);
}
