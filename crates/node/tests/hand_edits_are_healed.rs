//! CNV-7: what is changed out of band is looked at soon after the event, by a partial run of its own that is
//! beside no other; what fights is put right ever less often, and named; nothing that may be damaged is
//! forgotten, whatever happens meanwhile; lost events lead to one scan, which is counted.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::{Bench, Release, START, facts, healed, ids, report, run_of, warnings};
use converge::{ResourceId, RunScope};
use model::log::FactBody;
use model::{Action, Culprit, CulpritFinding, Digest, Pause, RunReport, UnknownCulprit};
use node::healing::{CONTENDED_WAIT, DEBOUNCE, FAILED_WAIT, IMMEDIATE_CORRECTIONS, QUIET, REST};
use node::{NodeEffect, NodeInput, ObservedTraits, ReadTraits, SuspectedDrift};
use proptest::prelude::*;

const INTERVAL: Duration = Duration::from_secs(300);

fn suspected(names: &[&str]) -> NodeInput {
    NodeInput::SuspectedDrift(SuspectedDrift { resources: ids(names), ..SuspectedDrift::default() })
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

/// Touches one file and lets time pass until it is looked at; how long that took.
fn until_looked_at(bench: &mut Bench, name: &str) -> Duration {
    let before = bench.now;
    let mut effects = bench.give(suspected(&[name]));
    for _ in 0..10_000 {
        if let Some(found) = scope(&effects) {
            assert_eq!(found, ids(&[name]));
            return bench.now.since(before);
        }
        if run_of(&effects).is_some() {
            effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
            continue;
        }
        effects = bench.pass(Duration::from_millis(50));
    }
    panic!("{name} was never looked at");
}

#[test]
fn a_hand_edit_is_looked_at_after_a_moment_and_reported_as_drift() {
    let mut bench = holding();
    assert_eq!(scope(&bench.give(suspected(&["a"]))), None, "edits come in several steps");
    assert_eq!(scope(&bench.give(suspected(&["b"]))), None);
    assert!(bench.wait().unwrap() <= DEBOUNCE);
    let effects = bench.pass(DEBOUNCE);
    assert_eq!(scope(&effects), Some(ids(&["a", "b"])), "both in one run");
    let order = run_of(&effects).unwrap();
    assert!(!order.intended, "a correction is drift");
    let effects = bench.give(NodeInput::Ran(Box::new(healed(&[("a", Action::Changed), ("b", Action::Ok)]))));
    assert!(matches!(facts(&effects)[..], [FactBody::Run(run)] if run.counts.changed == 1 && !run.intended));
}

#[test]
fn what_is_as_declared_is_no_fact_and_is_looked_at_seldom() {
    let mut bench = holding();
    assert!(until_looked_at(&mut bench, "a") <= DEBOUNCE);
    let effects = bench.give(NodeInput::Ran(Box::new(healed(&[("a", Action::Ok)]))));
    assert!(facts(&effects).is_empty());
    // A file that is written all the time.
    assert!(until_looked_at(&mut bench, "a") >= REST);
    bench.give(NodeInput::Ran(Box::new(healed(&[("a", Action::Ok)]))));
    assert!(until_looked_at(&mut bench, "b") <= DEBOUNCE, "others do not wait for it");
}

#[test]
fn what_is_only_observed_is_reported_once_until_it_is_right_again() {
    let mut bench = holding();
    let mut look = |action: Action| {
        until_looked_at(&mut bench, "a");
        let effects = bench.give(NodeInput::Ran(Box::new(healed(&[("a", action)]))));
        facts(&effects).len()
    };
    let told = [Action::WouldChange, Action::WouldChange, Action::Ok, Action::WouldChange].map(&mut look);
    assert_eq!(told, [1, 0, 0, 1]);
}

#[test]
fn what_fights_is_backed_off_named_and_forgiven() {
    let mut bench = holding();
    let mut waits = Vec::new();
    let mut told = Vec::new();
    for _ in 0..IMMEDIATE_CORRECTIONS + 8 {
        waits.push(until_looked_at(&mut bench, "a"));
        let effects = bench.give(NodeInput::Ran(Box::new(healed(&[("a", Action::Changed)]))));
        told.push(facts(&effects).iter().any(|fact| matches!(fact, FactBody::Contended { .. })));
    }
    let immediate = usize::try_from(IMMEDIATE_CORRECTIONS).unwrap();
    assert!(
        waits[..immediate].iter().all(|wait| *wait <= REST + DEBOUNCE),
        "the first are made at once: {waits:?}"
    );
    for (times, wait) in waits[immediate..].iter().enumerate() {
        let wanted = (CONTENDED_WAIT * (1 << times)).min(INTERVAL);
        assert!(*wait >= wanted && *wait < wanted + Duration::from_secs(1), "{times}: {waits:?}");
    }
    assert_eq!(told.iter().filter(|told| **told).count(), 1, "it is told once: {told:?}");
    assert!(told[immediate - 1], "with the last that is made at once: {told:?}");
    let contended = bench.node.contentions().to_vec();
    assert_eq!(contended[0].resource, "m/file:a");
    assert_eq!((contended[0].corrections, &contended[0].culprit), (IMMEDIATE_CORRECTIONS + 8, &None));
    let found = |found: CulpritFinding| {
        let culprits: BTreeMap<_, _> = ids(&["a"]).into_iter().map(|id| (id, found.clone())).collect();
        NodeInput::SuspectedDrift(SuspectedDrift { culprits, ..SuspectedDrift::default() })
    };
    // The kernel names nobody; why is news, once.
    let unknown = |why| found(CulpritFinding::Unknown(why));
    let effects = bench.give(unknown(UnknownCulprit::Refused));
    assert!(
        warnings(&effects).iter().any(|text| text.contains("the kernel refuses fanotify")),
        "{effects:?}"
    );
    let [FactBody::Contended { resources, .. }] = facts(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((&resources[0].culprit, resources[0].culprit_unknown), (&None, Some(UnknownCulprit::Refused)));
    assert!(facts(&bench.give(unknown(UnknownCulprit::Refused))).is_empty(), "the same reason is no news");
    // The kernel names who did it.
    let culprit = |pid| Culprit { pid, program: Some("/usr/bin/fighter".to_owned()), unit: None };
    let named = |pid| found(CulpritFinding::Named(culprit(pid)));
    let effects = bench.give(named(7));
    assert!(warnings(&effects).iter().any(|text| text.contains("/usr/bin/fighter (pid 7)")), "{effects:?}");
    let [FactBody::Contended { resources, more: 0 }] = facts(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((&resources[0].culprit, resources[0].culprit_unknown), (&Some(culprit(7)), None));
    assert!(facts(&bench.give(unknown(UnknownCulprit::NotSeen))).is_empty(), "a reason replaces no name");
    assert!(facts(&bench.give(named(8))).is_empty(), "the same program is no news");
    // It stops.
    let mut over = Vec::new();
    for _ in 0..(QUIET * 3).as_secs() / 10 {
        let effects = bench.pass(Duration::from_secs(10));
        over.extend(facts(&effects).into_iter().cloned());
        if run_of(&effects).is_some() {
            bench.give(NodeInput::Ran(Box::new(report(0, 1))));
        }
    }
    assert!(
        over.iter().any(|fact| matches!(fact, FactBody::Contended { resources, .. } if resources.is_empty())),
        "{over:?}"
    );
    assert!(bench.node.contentions().is_empty());
}

#[test]
fn culprits_are_wanted_of_what_is_put_right_twice() {
    let mut bench = holding();
    let mut wanted = Vec::new();
    for _ in 0..2 {
        until_looked_at(&mut bench, "a");
        let effects = bench.give(NodeInput::Ran(Box::new(healed(&[("a", Action::Changed)]))));
        wanted.extend(effects.into_iter().filter_map(|effect| match effect {
            NodeEffect::WatchCulprits(resources) => Some(resources),
            _ => None,
        }));
    }
    assert_eq!(wanted, [ids(&["a"])]);
}

#[test]
fn what_cannot_be_put_right_is_tried_again_ever_later_and_told_once() {
    let mut bench = holding();
    until_looked_at(&mut bench, "a");
    let failed = || NodeInput::Ran(Box::new(healed(&[("a", Action::Failed)])));
    assert_eq!(facts(&bench.give(failed())).len(), 1);
    let mut waits = Vec::new();
    for _ in 0..4 {
        let before = bench.now;
        let mut effects = Vec::new();
        while scope(&effects).is_none() {
            effects = bench.pass(Duration::from_millis(100));
            if run_of(&effects).is_some() && scope(&effects).is_none() {
                bench.give(NodeInput::Ran(Box::new(report(0, 1))));
            }
        }
        waits.push(bench.now.since(before));
        assert!(facts(&bench.give(failed())).is_empty(), "a failure that is as it was is no news");
    }
    for (times, wait) in waits.iter().enumerate() {
        assert!(*wait >= FAILED_WAIT * (1 << times), "{waits:?}");
    }
}

#[test]
fn what_failed_is_tried_again_once_something_else_was_put_right() {
    let mut bench = holding();
    until_looked_at(&mut bench, "a/b");
    bench.give(suspected(&["a"]));
    bench.give(NodeInput::Ran(Box::new(healed(&[("a/b", Action::Failed)]))));
    assert_eq!(scope(&bench.pass(DEBOUNCE)), Some(ids(&["a"])));
    bench.give(NodeInput::Ran(Box::new(healed(&[("a", Action::Changed)]))));
    assert_eq!(scope(&bench.pass(DEBOUNCE)), Some(ids(&["a/b"])), "its directory is there again");
}

#[test]
fn what_a_run_writes_itself_is_looked_at_once_more_and_no_sooner_than_others() {
    let mut bench = holding();
    until_looked_at(&mut bench, "a");
    bench.give(suspected(&["a"]));
    bench.give(NodeInput::Ran(Box::new(healed(&[("a", Action::Changed)]))));
    assert_eq!(scope(&bench.pass(REST - Duration::from_millis(1))), None);
    assert_eq!(scope(&bench.pass(Duration::from_millis(1))), Some(ids(&["a"])));
    let effects = bench.give(NodeInput::Ran(Box::new(healed(&[("a", Action::Ok)]))));
    assert!(facts(&effects).is_empty());
}

#[test]
fn a_run_that_could_not_be_made_leaves_the_damage_to_the_next() {
    let mut bench = holding();
    until_looked_at(&mut bench, "a");
    bench.give(NodeInput::RunFailed(node::RunFailure::other("no memory")));
    let effects = bench.pass(FAILED_WAIT);
    assert_eq!(scope(&effects), Some(ids(&["a"])));
}

#[test]
fn damage_during_a_run_is_looked_at_after_it() {
    let mut bench = holding();
    bench.give(NodeInput::Nudge);
    let effects = bench.give(suspected(&["a"]));
    assert_eq!(scope(&effects), None, "one run at a time");
    assert_eq!(run_of(&bench.pass(Duration::from_secs(5))), None, "one run at a time");
    let effects = bench.give(NodeInput::Ran(Box::new(report(0, 1))));
    assert_eq!(scope(&effects), Some(ids(&["a"])), "the run may have looked before the damage");
    assert_eq!(run_of(&bench.give(NodeInput::Nudge)), None, "nor a full one beside it");
    let effects = bench.give(NodeInput::Ran(Box::new(healed(&[("a", Action::Ok)]))));
    assert_eq!(run_of(&effects).unwrap().scope, RunScope::All);
}

#[test]
fn traits_that_come_during_the_first_run_keep_nothing_from_being_healed() {
    let release = Release::new(1, START, &["base"]);
    let mut bench = Bench::new();
    assert!(run_of(&bench.adopt(&release)).is_some());
    // Which traits the set reads is known once it was bound.
    let root = bench.node.adoption().unwrap().root;
    let read = Some(ReadTraits { root, digest: Digest::of(b"what the set reads") });
    bench.give(NodeInput::Traits(ObservedTraits { report: bench.traits.clone(), read }));
    bench.give(NodeInput::Ran(Box::new(report(1, 1))));
    bench.give(suspected(&["a"]));
    assert_eq!(scope(&bench.pass(DEBOUNCE)), Some(ids(&["a"])));
}

#[test]
fn what_the_first_run_was_over_is_kept_for_the_next_start() {
    let release = Release::new(1, START, &["base"]);
    let mut bench = Bench::new();
    bench.adopt(&release);
    bench.give(NodeInput::Ran(Box::new(report(1, 1))));
    let root = bench.node.adoption().unwrap().root;
    let read = Some(ReadTraits { root, digest: Digest::of(b"what the set reads") });
    let effects = bench.give(NodeInput::Traits(ObservedTraits { report: bench.traits.clone(), read }));
    // Else drift that the next start finds would count as intended.
    assert!(effects.iter().any(|effect| matches!(effect, NodeEffect::SaveRun(_))), "{effects:?}");
}

#[test]
fn nothing_is_healed_on_a_paused_host() {
    let mut bench = holding();
    let pause = Pause { reason: "debugging".to_owned(), since: bench.now, until: None };
    bench.give(NodeInput::Pause(pause.clone()));
    bench.give(NodeInput::Ran(Box::new(RunReport { paused: Some(pause), ..report(0, 1) })));
    bench.give(suspected(&["a"]));
    for _ in 0..100 {
        assert_eq!(scope(&bench.pass(Duration::from_secs(1))), None);
    }
    let effects = bench.give(NodeInput::Resume);
    assert_eq!(run_of(&effects).unwrap().scope, RunScope::All, "the run after it looks at everything");
}

#[test]
fn lost_events_lead_to_one_counted_scan() {
    let mut bench = holding();
    let scan = || SuspectedDrift { after_lost_events: ids(&["a", "b", "c"]), ..SuspectedDrift::default() };
    bench.give(NodeInput::SuspectedDrift(scan()));
    let effects = bench.pass(DEBOUNCE);
    assert_eq!(scope(&effects), Some(ids(&["a", "b", "c"])));
    assert_eq!(bench.node.scans(), 1);
    let effects = bench.give(NodeInput::Ran(Box::new(healed(&[("a", Action::Ok)]))));
    assert_eq!(scope(&effects), None);
    assert_eq!(scope(&bench.pass(Duration::from_secs(10))), None, "one");
}

/// What happens to a node.
#[derive(Clone, Debug)]
enum Happening {
    Touch(u8),
    Pass(u16),
    Ends(Action),
    Fails,
    Nudge,
}

fn happening() -> impl Strategy<Value = Happening> {
    let action = prop::sample::select(vec![Action::Ok, Action::Changed, Action::Failed]);
    prop_oneof![
        4 => (0..3u8).prop_map(Happening::Touch),
        4 => (0..3000u16).prop_map(Happening::Pass),
        4 => action.prop_map(Happening::Ends),
        1 => Just(Happening::Fails),
        1 => Just(Happening::Nudge),
    ]
}

proptest! {
    /// Whatever happens, a resource that was touched is looked at by a run that begins afterwards, within
    /// the interval of full runs, and no run is beside another.
    #[test]
    fn no_damage_is_forgotten(happenings in prop::collection::vec(happening(), 1..80)) {
        let names = ["a", "b", "c"];
        let mut bench = holding();
        let mut running: Option<RunScope> = None;
        let mut unseen: BTreeSet<ResourceId> = BTreeSet::new();
        let quiet = std::iter::repeat_n(Happening::Pass(3000), 2 * INTERVAL.as_secs() as usize / 3);
        for (number, happening) in happenings.iter().cloned().chain(quiet).enumerate() {
            let quiet = number >= happenings.len();
            let effects = match happening {
                Happening::Touch(which) => {
                    let name = names[usize::from(which)];
                    unseen.extend(ids(&[name]));
                    bench.give(suspected(&[name]))
                }
                Happening::Pass(_) if quiet && running.is_some() => {
                    let full = running.take() == Some(RunScope::All);
                    let report = if full { report(0, 1) } else { healed(&[]) };
                    bench.give(NodeInput::Ran(Box::new(report)))
                }
                Happening::Pass(millis) => bench.pass(Duration::from_millis(millis.into())),
                Happening::Ends(action) => match running.take() {
                    None => continue,
                    Some(RunScope::Resources(looked)) => {
                        let found: Vec<(&str, Action)> = names
                            .iter()
                            .filter(|name| looked.contains(&ResourceId::new("m", "file", name)))
                            .map(|name| (*name, action))
                            .collect();
                        if action == Action::Failed {
                            unseen.extend(looked);
                        }
                        bench.give(NodeInput::Ran(Box::new(healed(&found))))
                    }
                    Some(_) => bench.give(NodeInput::Ran(Box::new(report(0, 1)))),
                },
                Happening::Fails => match running.take() {
                    None => continue,
                    Some(scope) => {
                        unseen.extend(match scope {
                            RunScope::Resources(looked) => looked,
                            _ => BTreeSet::new(),
                        });
                        bench.give(NodeInput::RunFailed(node::RunFailure::other("no memory")))
                    }
                },
                Happening::Nudge => bench.give(NodeInput::Nudge),
            };
            let orders = effects.iter().filter(|effect| matches!(effect, NodeEffect::Run(_))).count();
            prop_assert!(orders + usize::from(running.is_some()) <= 1, "two runs at a time");
            if let Some(order) = run_of(&effects) {
                match &order.scope {
                    RunScope::Resources(looked) => unseen.retain(|id| !looked.contains(id)),
                    _ => unseen.clear(),
                }
                running = Some(order.scope.clone());
            }
        }
        prop_assert!(unseen.is_empty(), "never looked at: {unseen:?}");
    }
}
