//! CNV-3: green rests on evidence. `converged` is a run that was due, ended on the set that is held and was heard of
//! within interval, jitter, contact and slack; else the word is `stalled`. LIF-1: contact counts by what was promised.
//! Totals that are kept go by `status_until`: before that moment no status changes by itself.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{CREATED, channel, entry, head, heads, held, holding, node, root, selection};
use model::exchange::RunNote;
use model::log::{Cursor, Fact, FactBody};
use model::status::Overall;
use model::{Digest, RunCounts, RunReport, Timestamp};
use plane::{Heads, NodeState};
use proptest::prelude::*;

/// Interval 300 s, contact 120 s, jitter 20 % of both, slack 60 s.
const OVERDUE: Duration = Duration::from_secs(300 + 120 + 84 + 60);

fn at(secs: u64) -> Timestamp {
    CREATED.plus(Duration::from_secs(secs))
}

fn published(content: &str) -> Heads {
    let selection = selection(&[("web-1", entry("stable", content))], vec![]);
    heads(1, vec![head(1, "stable", &selection)])
}

fn calls(node: &mut NodeState, heads: &Heads, content: Option<&str>, ran: Option<u64>, now: u64) {
    let head = &heads.channels[&channel("stable")];
    let mut check_in = holding(content.map(|content| held(head, content)));
    check_in.run = ran.map(|ran| RunNote { at: at(ran), outcome: Digest::of(b"outcome") });
    node.check_in(check_in, heads, at(now));
}

fn reports(node: &mut NodeState, content: &str, counts: RunCounts) {
    let report = RunReport {
        started: CREATED,
        duration_ms: 1,
        seq: 1,
        root: root(content),
        intended: true,
        paused: None,
        partial: None,
        unknown_tags: vec![],
        counts,
        items: vec![],
    };
    let fact = Fact { seq: 1, at: CREATED, body: FactBody::Run(report) };
    node.accepted(Cursor { incarnation: "i1".parse().unwrap(), seq: 1 }, &[fact]);
}

const WELL: RunCounts = RunCounts { modules: 1, ok: 3, changed: 0, failed: 0, skipped: 0, would_change: 0 };

fn word(node: &mut NodeState, heads: &Heads, now: Timestamp) -> Overall {
    node.status(heads, now).overall()
}

/// Contact is kept all the while.
#[test]
fn a_node_that_calls_and_does_not_run_is_stalled() {
    let heads = published("set");
    let mut node = node("web-1");
    calls(&mut node, &heads, Some("set"), Some(0), 0);
    reports(&mut node, "set", WELL);
    assert_eq!(word(&mut node, &heads, at(0)), Overall::Converged);
    for now in [120, 240, 360, 480] {
        calls(&mut node, &heads, Some("set"), Some(0), now);
    }
    let overdue = at(0).plus(OVERDUE);
    assert_eq!(word(&mut node, &heads, Timestamp(overdue.0 - 1)), Overall::Converged);
    assert_eq!(word(&mut node, &heads, overdue), Overall::Stalled);
    assert_eq!(node.no_run_since(), Some(at(0)));
    calls(&mut node, &heads, Some("set"), Some(599), 600);
    assert_eq!(word(&mut node, &heads, at(600)), Overall::Converged);
}

#[test]
fn a_run_on_another_set_is_none_on_the_set_that_is_held() {
    let (old, new) = (published("old"), published("new"));
    let mut node = node("web-1");
    calls(&mut node, &old, Some("old"), Some(0), 0);
    reports(&mut node, "old", WELL);
    let new = Heads { version: 2, ..new };
    calls(&mut node, &new, Some("new"), Some(0), 100);
    assert_eq!(word(&mut node, &new, at(100)), Overall::Changing);
    for now in [220, 340, 460, 580] {
        calls(&mut node, &new, Some("new"), Some(0), now);
    }
    assert_eq!(word(&mut node, &new, at(100).plus(OVERDUE)), Overall::Stalled);
    calls(&mut node, &new, Some("new"), Some(690), 700);
    reports(&mut node, "new", WELL);
    assert_eq!(word(&mut node, &new, at(700)), Overall::Converged);
}

#[test]
fn a_node_that_holds_a_release_and_never_runs_is_stalled() {
    let heads = published("set");
    let mut node = node("web-1");
    calls(&mut node, &heads, None, None, 0);
    assert_eq!(word(&mut node, &heads, at(0)), Overall::Changing);
    for now in [120, 240, 360, 480, 600] {
        calls(&mut node, &heads, Some("set"), None, now);
        assert_eq!(word(&mut node, &heads, at(now)), Overall::New, "{now}");
    }
    assert_eq!(word(&mut node, &heads, at(120).plus(OVERDUE)), Overall::Stalled);
}

/// An agent that begins says again what it remembers of its last run.
#[test]
fn a_run_that_is_said_again_is_no_news() {
    let heads = published("set");
    let mut node = node("web-1");
    calls(&mut node, &heads, Some("set"), Some(100), 100);
    reports(&mut node, "set", WELL);
    for (ran, now) in [(50, 200), (50, 320), (50, 440), (50, 560)] {
        calls(&mut node, &heads, Some("set"), Some(ran), now);
    }
    assert_eq!(word(&mut node, &heads, at(100).plus(OVERDUE)), Overall::Stalled);
    // A clock that was set back: the next run is newer than the last that was said.
    calls(&mut node, &heads, Some("set"), Some(60), 680);
    assert_eq!(word(&mut node, &heads, at(680)), Overall::Converged);
}

/// CNV-2: a node that was removed and joins again under a running agent says again what it said before.
#[test]
fn a_report_that_is_not_here_is_asked_for() {
    let heads = published("set");
    let mut node = node("web-1");
    let asks = |node: &mut NodeState, content, ran: Option<u64>, now| {
        let head = &heads.channels[&channel("stable")];
        let mut check_in = holding(Some(held(head, content)));
        check_in.run = ran.map(|ran| RunNote { at: at(ran), outcome: Digest::of(b"outcome") });
        node.check_in(check_in, &heads, at(now)).answer.want_run
    };
    assert!(!asks(&mut node, "set", None, 0), "it has not run yet");
    assert!(asks(&mut node, "set", Some(100), 100));
    reports(&mut node, "set", WELL);
    assert!(!asks(&mut node, "set", Some(200), 200));
    assert!(asks(&mut node, "other", Some(200), 300), "that report was of another set");
}

/// What is heard of a node.
#[derive(Clone, Debug)]
enum Heard {
    CheckIn { content: Option<&'static str>, ran: Option<u64> },
    Report { content: &'static str, failed: u32, changed: u32 },
}

fn heard() -> impl Strategy<Value = Heard> {
    let content = prop::sample::select(vec!["set", "other"]);
    let call = (prop::option::of(content.clone()), prop::option::of(0..5000_u64))
        .prop_map(|(content, ran)| Heard::CheckIn { content, ran });
    let report = (content, 0..2_u32, 0..2_u32).prop_map(|(content, failed, changed)| Heard::Report {
        content,
        failed,
        changed,
    });
    prop_oneof![3 => call, 1 => report]
}

proptest! {
    #[test]
    fn no_status_changes_before_it_is_said_to(
        history in prop::collection::vec((heard(), 0..2000_u64), 0..8),
        assigned in any::<bool>(),
        later in prop::collection::vec(0.0..1.0_f64, 8),
    ) {
        let heads = if assigned { published("set") } else { Heads::default() };
        let holds = published("set");
        let mut node = node("web-1");
        let mut now = 0;
        for (heard, wait) in history {
            match heard {
                Heard::CheckIn { content, ran } => {
                    let head = &holds.channels[&channel("stable")];
                    let mut check_in = holding(content.map(|content| held(head, content)));
                    check_in.run = ran.map(|ran| RunNote { at: at(ran), outcome: Digest::of(b"o") });
                    node.check_in(check_in, &heads, at(now));
                }
                Heard::Report { content, failed, changed } => {
                    reports(&mut node, content, RunCounts { failed, changed, ..WELL });
                }
            }
            now += wait;
        }
        let mut now = at(now);
        // Through each moment that is named, to the last.
        for _ in 0..8 {
            let status = node.status(&heads, now);
            let Some(until) = node.status_until(&heads, now) else {
                prop_assert_eq!(node.status(&heads, now.plus(Duration::from_secs(1 << 33))), status);
                return Ok(());
            };
            prop_assert!(until > now);
            for share in &later {
                #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
                let between = Timestamp(now.0 + ((until.0 - 1 - now.0) as f64 * share) as i64);
                prop_assert_eq!(node.status(&heads, between), status.clone(), "{} of {}..{}", between, now, until);
            }
            prop_assert_eq!(node.status(&heads, Timestamp(until.0 - 1)), status);
            now = until;
        }
        prop_assert!(false, "there are only so many moments");
    }
}
