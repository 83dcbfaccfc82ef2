//! CNV-3, CNV-7, CFG-7: what is known of a node's last full run follows the partial runs after it, as the host's
//! own status does: a failure that was put right is none, a new one is told, and what only observes and drifted
//! shows. Tags that a run was requested for in vain are kept until another request, or another set.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{CREATED, heads, node};
use model::log::{Cursor, Fact, FactBody};
use model::report::PartialRun;
use model::status::{RunResult, Status};
use model::{Action, Digest, ResourceReport, RunCounts, RunReport, Timestamp};
use plane::NodeState;

fn item(resource: &str, action: Action) -> ResourceReport {
    let reason = (action == Action::Failed).then(|| format!("{resource} is wrong"));
    ResourceReport { resource: resource.to_owned(), action, edit: None, reason, cause: None, duration_ms: 1 }
}

fn report(started: i64, items: &[(&str, Action)]) -> RunReport {
    let items: Vec<_> = items.iter().map(|(resource, action)| item(resource, *action)).collect();
    let mut counts = RunCounts { modules: 1, ok: 10, ..RunCounts::default() };
    items.iter().for_each(|item| counts.recount(Some(Action::Ok), Some(item.action)));
    RunReport {
        started: Timestamp(started),
        duration_ms: 1,
        seq: 1,
        root: Digest::ZERO,
        intended: false,
        paused: None,
        partial: None,
        unknown_tags: vec![],
        unswitched: Vec::new(),
        counts,
        items,
    }
}

/// Put right between two full runs.
fn healing(started: i64, items: &[(&str, Action)]) -> RunReport {
    RunReport { partial: Some(PartialRun::Resources(1)), ..report(started, items) }
}

fn requested(tags: &[&str], unknown: &[&str], partial: bool) -> RunReport {
    let list = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    let partial = partial.then(|| PartialRun::Tags(list(tags)));
    RunReport { partial, unknown_tags: list(unknown), ..report(9, &[]) }
}

fn reports(node: &mut NodeState, report: RunReport) -> Status {
    let cursor = Cursor { incarnation: "i1".parse().unwrap(), seq: 1 };
    node.accepted(cursor, &[Fact { seq: 1, at: CREATED, body: FactBody::Run(report) }]);
    node.status(&heads(1, vec![]), CREATED)
}

fn failing(node: &NodeState) -> Vec<&str> {
    node.summary.failures.iter().map(|note| note.resource.as_str()).collect()
}

#[test]
fn a_failure_that_was_put_right_is_none_and_a_new_one_is_told() {
    let mut node = node("web-1");
    let full = report(1, &[("m/file:/a", Action::Failed), ("m/file:/b", Action::Failed)]);
    assert_eq!(reports(&mut node, full.clone()).result, RunResult::Degraded);

    let one = reports(&mut node, healing(2, &[("m/file:/a", Action::Changed)]));
    assert_eq!((one.result, failing(&node)), (RunResult::Degraded, vec!["m/file:/b"]));
    let both = reports(&mut node, healing(3, &[("m/file:/b", Action::Changed)]));
    assert_eq!((both.result, failing(&node)), (RunResult::Ok, vec![]));
    assert_eq!(node.summary.counts, Some(RunCounts { failed: 0, changed: 2, ..full.counts }));
    assert_eq!(node.summary.since, Some(Timestamp(3)));
    assert_eq!(node.summary.streak, 0, "a partial run is not the run that was due");

    let again = reports(&mut node, healing(4, &[("m/file:/c", Action::Failed)]));
    assert_eq!((again.result, failing(&node)), (RunResult::Degraded, vec!["m/file:/c"]));
    let same = reports(&mut node, healing(5, &[("m/file:/c", Action::Failed)]));
    assert_eq!((same.result, node.summary.counts.unwrap().failed), (RunResult::Degraded, 1));
    assert_eq!(node.summary.since, Some(Timestamp(4)));
}

#[test]
fn failures_without_a_name_count_until_the_next_full_run() {
    let mut node = node("web-1");
    let names: Vec<String> = (0..6).map(|n| format!("m/file:/{n}")).collect();
    let failed: Vec<_> = names.iter().map(|name| (name.as_str(), Action::Failed)).collect();
    let changed: Vec<_> = names.iter().map(|name| (name.as_str(), Action::Changed)).collect();
    reports(&mut node, report(1, &failed));
    assert_eq!(reports(&mut node, healing(2, &changed)).result, RunResult::Degraded);
    assert_eq!((node.summary.counts.unwrap().failed, failing(&node)), (2, vec![]));
    // It may be one of those, or not.
    reports(&mut node, healing(3, &failed[..1]));
    assert_eq!(node.summary.counts.unwrap().failed, 2);
    assert_eq!(reports(&mut node, report(4, &[])).result, RunResult::Ok);
}

#[test]
fn what_only_observes_and_drifted_shows() {
    let mut node = node("web-1");
    reports(&mut node, report(1, &[]));
    for _ in 0..2 {
        let status = reports(&mut node, healing(2, &[("m/file:/a", Action::WouldChange)]));
        assert_eq!((status.would_change, node.summary.would_change.as_deref()), (1, Some("m/file:/a")));
    }
    let before_any = &mut common::node("web-2");
    assert_eq!(reports(before_any, healing(1, &[("m/file:/a", Action::Failed)])).result, RunResult::None);
}

#[test]
fn tags_that_nothing_has_are_kept_until_another_names_some_or_another_set() {
    let mut node = node("web-1");
    let mut unknown = |report: RunReport| {
        reports(&mut node, report);
        node.summary.unknown_tags.to_vec()
    };
    assert_eq!(unknown(report(1, &[])), [""; 0]);
    assert_eq!(unknown(requested(&["web", "typo"], &["typo"], true)), ["typo"]);
    assert_eq!(unknown(healing(2, &[("m/file:/a", Action::Changed)])), ["typo"]);
    assert_eq!(unknown(report(3, &[])), ["typo"], "a full run that nobody requested says nothing of tags");
    assert_eq!(unknown(requested(&["web"], &[], true)), ["typo"], "somebody at the host runs by tag too");
    assert_eq!(unknown(requested(&[], &["nope"], false)), ["nope"], "a full run that carried it out");
    assert_eq!(unknown(RunReport { intended: true, ..report(4, &[]) }), [""; 0], "another set");
    let long = "x".repeat(1000);
    let many: Vec<&str> = std::iter::repeat_n("t", 100).chain([long.as_str()]).collect();
    assert_eq!(unknown(requested(&[], &many, true)).len(), 32);
}
