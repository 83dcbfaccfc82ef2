//! CNV-2, OPS-1: the totals of a run and the resources that it lists agree; what is listed and not counted, and
//! what is counted and not listed, is said.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use cli::run::{outcome, show};
use cli::screen::Screen;
use model::report::PartialRun;
use model::{Action, Digest, ResourceReport, RunCounts, RunReport, Timestamp};
use store::RunRecord;

fn item(name: &str, action: Action) -> ResourceReport {
    ResourceReport {
        resource: format!("m/file:/{name}"),
        action,
        edit: None,
        reason: None,
        cause: None,
        duration_ms: 0,
    }
}

fn report(counts: RunCounts, items: Vec<ResourceReport>) -> RunReport {
    RunReport {
        started: Timestamp(0),
        duration_ms: 1,
        seq: 1,
        root: Digest::ZERO,
        intended: true,
        paused: None,
        partial: None,
        unknown_tags: vec![],
        unswitched: Vec::new(),
        counts,
        items,
    }
}

fn shown(report: RunReport) -> String {
    let at = Timestamp(0);
    let run = RunRecord {
        id: 1,
        node: "n-00000000000000000000000000000000".parse().unwrap(),
        incarnation: "00000000000000000000000000000000".parse().unwrap(),
        seq: 1,
        at,
        received: at,
        report,
    };
    show(&run, "web-1.test", None, Screen::of_process(false))
}

#[test]
fn what_is_listed_and_not_counted_is_said() {
    let items = vec![item("a", Action::Changed), item("b", Action::Ignored), item("c", Action::Ignored)];
    let text = shown(report(RunCounts { changed: 1, ..RunCounts::default() }, items));
    assert!(text.contains("1 changed, 2 failed and ignored;"), "{text}");
    assert!(!text.contains("more"), "{text}");
}

#[test]
fn what_is_counted_and_not_listed_is_said() {
    let items = vec![item("a", Action::Changed), item("b", Action::Ignored)];
    let text = shown(report(RunCounts { changed: 3, ..RunCounts::default() }, items));
    assert!(text.contains("... and 2 more that are not listed"), "{text}");
}

/// Six changed, and five were meant: the sixth is a handler.
#[test]
fn a_handler_beside_the_resources_of_a_partial_run_is_no_contradiction() {
    let mut partial = report(RunCounts { changed: 6, ..RunCounts::default() }, vec![]);
    partial.partial = Some(PartialRun::Resources(5));
    assert_eq!(outcome(&partial), "6 changed (only 5 resources and what they notify)");
}
