//! CNV-3: green rests on evidence. `converged` is a run that was due, ended on the set that is held and was heard of
//! within interval, jitter, contact and slack; else the word is `stalled`. LIF-1: contact counts by what was promised.
//! Totals that are kept go by `status_until`: before that moment no status changes by itself.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{
    CONTACT_SECS, CREATED, FRESH_SECS, channel, entry, head, heads, held, holding, node, root, selection,
};
use model::exchange::{CheckIn, RunNote};
use model::log::{Cursor, Fact, FactBody};
use model::policy::RunTimes;
use model::report::PartialRun;
use model::status::{LONGEST_RUN, Overall, RunEvidence};
use model::time::SLACK;
use model::unadopted::{UnadoptedCause, UnadoptedRelease};
use model::{Contention, Digest, Pause, RunCounts, RunReport, Timestamp, UnmadeRun, UnmadeRunCause};
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
    runs(node, heads, content, (ran, None), now);
}

/// Calls, having ended a run, and with one under way since.
fn runs(
    node: &mut NodeState,
    heads: &Heads,
    content: Option<&str>,
    (ran, running): (Option<u64>, Option<u64>),
    now: u64,
) {
    let head = &heads.channels[&channel("stable")];
    let mut check_in = holding(content.map(|content| held(head, content)));
    check_in.run = ran.map(|ran| RunNote { at: at(ran), outcome: Digest::of(b"outcome") });
    check_in.running_since = running.map(at);
    node.check_in(check_in, heads, at(now));
}

fn report(content: &str, counts: RunCounts) -> RunReport {
    RunReport {
        started: CREATED,
        duration_ms: 1,
        seq: 1,
        root: root(content),
        intended: true,
        paused: None,
        partial: None,
        unknown_tags: vec![],
        unswitched: Vec::new(),
        counts,
        items: vec![],
    }
}

fn reports(node: &mut NodeState, content: &str, counts: RunCounts) {
    reports_at(node, report(content, counts), 0);
}

fn reports_at(node: &mut NodeState, report: RunReport, ended: u64) {
    let fact = Fact { seq: 1, at: at(ended), body: FactBody::Run(report) };
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

/// LIF-10: a release over the set that is held is not held before it is adopted, and its node says why it is not.
#[test]
fn a_release_over_the_same_set_that_cannot_be_kept_is_not_converged() {
    let selection = selection(&[("web-1", entry("stable", "set"))], vec![]);
    let (old, new) = (head(1, "stable", &selection), head(2, "stable", &selection));
    let heads = heads(2, vec![new.clone()]);
    let mut node = node("web-1");
    let mut says = |held_head, unadopted: Option<UnadoptedCause>| {
        let unadopted = unadopted.map(|cause| UnadoptedRelease::new(at(0), cause, "no space"));
        let mut check_in = CheckIn { unadopted, ..holding(Some(held(held_head, "set"))) };
        check_in.run = Some(RunNote { at: at(0), outcome: Digest::of(b"outcome") });
        node.check_in(check_in, &heads, at(0));
        reports(&mut node, "set", WELL);
        word(&mut node, &heads, at(0))
    };
    assert_eq!(says(&old, None), Overall::Converged, "the next check-in adopts it");
    assert_eq!(says(&old, Some(UnadoptedCause::Keep)), Overall::Changing);
    assert_eq!(says(&new, None), Overall::Converged);
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

/// A node that refuses the header of the set that it holds takes nothing more from this control plane: that is not green.
#[test]
fn a_refused_header_of_the_same_set_is_not_converged() {
    let heads = published("set");
    let mut node = node("web-1");
    calls(&mut node, &heads, Some("set"), Some(0), 0);
    reports(&mut node, "set", WELL);
    assert_eq!(word(&mut node, &heads, at(10)), Overall::Converged);
    node.keep_refusal("release-signature", "no trusted key signed it");
    assert_eq!(word(&mut node, &heads, at(10)), Overall::Changing);
}

/// A run that takes longer than the interval, contact and a minute is under way, and not missing: the word is not green,
/// as the run that is due has not ended.
#[test]
fn a_run_under_way_is_no_reason_to_be_stalled() {
    let heads = published("set");
    let mut node = node("web-1");
    calls(&mut node, &heads, Some("set"), Some(0), 0);
    reports(&mut node, "set", WELL);
    let (began, longest) = (290, LONGEST_RUN.as_secs());
    let mut now = 300;
    while now < 300 + longest {
        runs(&mut node, &heads, Some("set"), (Some(0), Some(began)), now);
        let expected = if at(now) < at(0).plus(OVERDUE) { Overall::Converged } else { Overall::Changing };
        assert_eq!(word(&mut node, &heads, at(now)), expected, "{now}");
        now += CONTACT_SECS;
    }
    // It was heard of first at 300.
    runs(&mut node, &heads, Some("set"), (Some(0), Some(began)), 300 + longest);
    assert_eq!(word(&mut node, &heads, Timestamp(at(300 + longest).0 - 1)), Overall::Changing);
    assert_eq!(word(&mut node, &heads, at(300 + longest)), Overall::Stalled, "it does not end");
    assert_eq!(node.runs.under_way.map(|run| run.since), Some(at(began)), "what the cause says");
    // Another one has its own time, and one that ends is green.
    runs(&mut node, &heads, Some("set"), (Some(0), Some(4000)), 4010);
    assert_eq!(word(&mut node, &heads, at(4010)), Overall::Changing);
    calls(&mut node, &heads, Some("set"), Some(4100), 4110);
    assert_eq!((word(&mut node, &heads, at(4110)), node.runs.under_way), (Overall::Converged, None));
}

/// It is heard of no more: contact comes first, and one that ended without a trace is missing.
#[test]
fn a_run_under_way_counts_while_it_is_heard_of() {
    let heads = published("set");
    let mut node = node("web-1");
    calls(&mut node, &heads, Some("set"), Some(0), 0);
    reports(&mut node, "set", WELL);
    runs(&mut node, &heads, Some("set"), (Some(0), Some(10)), 500);
    let late = at(500).plus(Duration::from_secs(3 * CONTACT_SECS + 60));
    assert_eq!(word(&mut node, &heads, late), Overall::Unreachable);
    calls(&mut node, &heads, Some("set"), Some(0), 700);
    assert_eq!(word(&mut node, &heads, at(700)), Overall::Stalled);
    // The node's own word that it can make none counts more.
    let head = &heads.channels[&channel("stable")];
    let mut check_in = holding(Some(held(head, "set")));
    check_in.unmade_run = Some(UnmadeRun::new(at(1), UnmadeRunCause::State, "the disk is gone"));
    check_in.running_since = Some(at(720));
    node.check_in(check_in, &heads, at(720));
    assert_eq!(word(&mut node, &heads, at(720)), Overall::Stalled);
}

/// A publisher of before says nothing of how often nodes run: they run as often as those that nothing is declared of.
#[test]
fn a_release_without_an_interval_has_the_default() {
    let mut heads = published("set");
    let mut head = (*heads.channels[&channel("stable")]).clone();
    head.runs = None;
    heads.channels.insert(channel("stable"), head.into());
    let mut node = node("web-1");
    calls(&mut node, &heads, Some("set"), Some(0), 0);
    reports(&mut node, "set", WELL);
    let RunTimes { converge_secs, jitter_percent } = RunTimes::default();
    let both = u64::from(converge_secs) + CONTACT_SECS;
    let overdue = at(both + both * u64::from(jitter_percent) / 100 + 60);
    let mut now = 0;
    while at(now) < overdue {
        calls(&mut node, &heads, Some("set"), Some(0), now);
        now += CONTACT_SECS;
    }
    assert_eq!(word(&mut node, &heads, Timestamp(overdue.0 - 1)), Overall::Converged);
    assert_eq!(word(&mut node, &heads, overdue), Overall::Stalled);
}

/// The last run in which nothing failed: its report, or a note of one that came to the same.
#[test]
fn the_last_successful_run_is_known() {
    let heads = published("set");
    let mut node = node("web-1");
    let notes = |node: &mut NodeState, ran: u64, report: &RunReport| {
        let head = &heads.channels[&channel("stable")];
        let mut check_in = holding(Some(held(head, "set")));
        check_in.run = Some(RunNote { at: at(ran), outcome: report.outcome() });
        node.check_in(check_in, &heads, at(ran));
    };
    let successful = |node: &NodeState| node.runs.successful.map(|run| run.at);
    let (well, badly) = (report("set", WELL), report("set", RunCounts { failed: 1, ..WELL }));
    notes(&mut node, 100, &well);
    assert_eq!(successful(&node), None, "its report is not here");
    reports_at(&mut node, well.clone(), 50);
    assert_eq!(successful(&node), Some(at(100)), "the run that is noted came to the same");
    notes(&mut node, 200, &well);
    assert_eq!(successful(&node), Some(at(200)));
    notes(&mut node, 150, &well);
    assert_eq!(successful(&node), Some(at(200)), "an agent that begins repeats an older one");
    notes(&mut node, 300, &badly);
    reports_at(&mut node, badly, 300);
    for not_it in [
        RunReport { partial: Some(PartialRun::Resources(1)), ..well.clone() },
        RunReport { paused: Some(Pause { reason: "r".into(), since: at(0), until: None }), ..well.clone() },
    ] {
        reports_at(&mut node, not_it, 400);
    }
    assert_eq!(successful(&node), Some(at(200)));
    reports_at(&mut node, well, 500);
    assert_eq!(successful(&node), Some(at(500)));
}

/// Each axis comes from what was heard of that axis.
#[test]
fn each_axis_has_its_own_evidence() {
    let heads = published("set");
    let well = |node: &mut NodeState| {
        calls(node, &heads, Some("set"), Some(0), 0);
        reports(node, "set", WELL);
    };
    let corrects = |node: &mut NodeState, times: usize| {
        for _ in 0..times {
            let corrective = RunCounts { changed: 1, ..WELL };
            reports_at(node, RunReport { intended: false, ..report("set", corrective) }, 0);
        }
    };
    let contends = |node: &mut NodeState| {
        let one = Contention {
            resource: "m/file:/a".to_owned(),
            since: at(0),
            corrections: 4,
            wait_secs: 1,
            culprit: None,
            culprit_unknown: None,
        };
        node.keep_contended(&[one]);
    };
    let pauses = |node: &mut NodeState| {
        let paused = Some(Pause { reason: "r".to_owned(), since: at(0), until: None });
        reports_at(node, RunReport { paused, ..report("set", WELL) }, 0);
    };
    for (name, hear, expected) in [
        ("nothing more", &(|_: &mut NodeState| ()) as &dyn Fn(&mut NodeState), Overall::Converged),
        ("one correction", &|node: &mut NodeState| corrects(node, 1), Overall::Converged),
        ("two corrections", &|node: &mut NodeState| corrects(node, 2), Overall::Relapsed),
        ("three corrections", &|node: &mut NodeState| corrects(node, 3), Overall::Diverged),
        ("something contends", &contends, Overall::Diverged),
        ("a pause", &pauses, Overall::Paused),
    ] {
        let mut node = node("web-1");
        well(&mut node);
        hear(&mut node);
        assert_eq!(word(&mut node, &heads, at(1)), expected, "{name}");
    }
    // A version before did not keep of which set the last run was.
    let mut node = node("web-1");
    well(&mut node);
    node.summary.root = None;
    assert_eq!(word(&mut node, &heads, at(1)), Overall::Converged);
}

/// Who holds nothing has no run to make, whatever it ran before.
#[test]
fn a_node_that_holds_nothing_is_not_stalled() {
    let heads = published("set");
    let mut node = node("web-1");
    for now in [0, 120, 240, 360, 480, 600] {
        calls(&mut node, &heads, None, Some(0), now);
    }
    let status = node.status(&heads, at(650));
    assert_eq!((status.evidence, status.overall()), (RunEvidence::Current, Overall::Changing));
}

/// Since when there is no run: what is known of it, and no more.
#[test]
fn since_when_there_is_no_run() {
    let heads = published("set");
    let mut node = node("web-1");
    calls(&mut node, &heads, Some("set"), None, 50);
    reports(&mut node, "set", WELL);
    assert_eq!(node.no_run_since(), Some(at(50)), "its report is here, and no note of it: since it holds it");
    let mut other = common::node("web-1");
    calls(&mut other, &heads, Some("set"), None, 50);
    calls(&mut other, &heads, Some("set"), Some(60), 70);
    assert_eq!(other.no_run_since(), Some(at(70)), "it ran, and what that came to is not here");
}

/// The interval is that of the release that is held, from the moment when it is said anew.
#[test]
fn a_run_is_due_by_the_release_that_is_held() {
    let daily = |version, content| {
        let mut heads = Heads { version, ..published(content) };
        let mut head = (*heads.channels[&channel("stable")]).clone();
        head.runs = Some(RunTimes { converge_secs: 86_400, ..RunTimes::default() });
        heads.channels.insert(channel("stable"), head.into());
        heads
    };
    let (old, other, same) = (published("old"), daily(2, "new"), daily(2, "old"));
    let mut node = node("web-1");
    calls(&mut node, &old, Some("old"), Some(0), 0);
    reports(&mut node, "old", WELL);
    assert!(node.holds_pointed(&old) && !node.holds_pointed(&other));
    let mut same_node = node.clone();
    for now in [120, 240, 360, 480] {
        let head = &old.channels[&channel("stable")];
        let mut check_in = holding(Some(held(head, "old")));
        check_in.run = Some(RunNote { at: at(0), outcome: Digest::of(b"outcome") });
        node.check_in(check_in.clone(), &other, at(now));
        same_node.check_in(check_in, &old, at(now));
    }
    let overdue = at(0).plus(OVERDUE);
    assert_eq!(
        word(&mut node, &other, overdue),
        Overall::Stalled,
        "it does not hold the one that runs daily"
    );
    assert_eq!(word(&mut same_node, &same, overdue), Overall::Converged, "it holds what says daily now");
}

/// A release is stale past its freshness, and not at it.
#[test]
fn a_release_is_stale_past_its_freshness() {
    let heads = published("set");
    let mut node = node("web-1");
    calls(&mut node, &heads, None, None, FRESH_SECS - 1);
    // With the slack by which nodes go, so that both say so at one moment.
    let at_its_end = at(FRESH_SECS).plus(SLACK);
    assert_eq!(word(&mut node, &heads, at_its_end), Overall::Changing);
    assert_eq!(word(&mut node, &heads, Timestamp(at_its_end.0 + 1)), Overall::NotFresh);
}

/// What is heard of a node.
#[derive(Clone, Debug)]
enum Heard {
    CheckIn { content: Option<&'static str>, ran: Option<u64>, running: Option<u64> },
    Report { content: &'static str, failed: u32, changed: u32 },
}

fn heard() -> impl Strategy<Value = Heard> {
    let content = prop::sample::select(vec!["set", "other"]);
    let time = || prop::option::of(0..5000_u64);
    let call = (prop::option::of(content.clone()), time(), time())
        .prop_map(|(content, ran, running)| Heard::CheckIn { content, ran, running });
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
                Heard::CheckIn { content, ran, running } => {
                    let head = &holds.channels[&channel("stable")];
                    let mut check_in = holding(content.map(|content| held(head, content)));
                    check_in.run = ran.map(|ran| RunNote { at: at(ran), outcome: Digest::of(b"o") });
                    check_in.running_since = running.map(at);
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
