//! CNV-7: how long each resource waits for a look: a series of edits puts none off, one that is due takes
//! none forward that rests or fights, a clock that is set back lengthens none; what counts as a correction,
//! a failure and news, and for how long.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::{START, healed, ids};
use converge::ResourceId;
use model::contention::MAX_CONTENTIONS;
use model::{Action, Contention, Culprit, CulpritFinding, Pause, RunReport, Timestamp, UnknownCulprit};
use node::SuspectedDrift;
use node::healing::{
    CONTENDED_WAIT, DEBOUNCE, FAILED_WAIT, Healing, IMMEDIATE_CORRECTIONS, QUIET, REST, ReportDecision,
};

/// So many corrections make no contention yet.
const FREE: u32 = IMMEDIATE_CORRECTIONS - 1;
const INTERVAL: Duration = Duration::from_secs(3600);
const HOUR: Duration = Duration::from_secs(3600);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What heals, and the time.
struct Patient {
    healing: Healing,
    now: Timestamp,
}

impl Patient {
    fn new() -> Patient {
        Patient { healing: Healing::default(), now: START }
    }

    fn touch(&mut self, names: &[&str]) {
        let drift = SuspectedDrift { resources: ids(names), ..SuspectedDrift::default() };
        self.healing.suspect(drift, self.now, INTERVAL);
    }

    /// Waits until something is due, and begins a run over it.
    fn look(&mut self) -> BTreeSet<ResourceId> {
        self.now = self.now.max(self.healing.next_due().unwrap());
        self.healing.begin(self.now)
    }

    fn ended(&mut self, report: &RunReport) -> ReportDecision {
        self.healing.ended(report, self.now, INTERVAL)
    }

    /// A resource is suspected, looked at, and found so.
    fn found(&mut self, name: &str, action: Action) -> ReportDecision {
        self.touch(&[name]);
        assert_eq!(self.look(), ids(&[name]));
        self.ended(&healed(&[(name, action)]))
    }

    /// It is put right so often, each time as soon as it may be.
    fn corrected(&mut self, name: &str, times: u32) {
        for _ in 0..times {
            self.found(name, Action::Changed);
        }
    }

    fn contentions(&mut self) -> Vec<Contention> {
        self.healing.contentions(self.now, INTERVAL)
    }

    fn due_in(&self) -> Duration {
        self.healing.next_due().unwrap().since(self.now)
    }
}

#[test]
fn edits_in_a_row_put_no_look_off() {
    let mut patient = Patient::new();
    for _ in 0..4 {
        patient.touch(&["a"]);
        patient.now = patient.now.plus(ms(30));
    }
    assert_eq!(patient.healing.next_due(), Some(START.plus(DEBOUNCE)));
}

#[test]
fn what_is_suspected_in_one_moment_is_checked_in_one_run_unless_it_rests_or_is_contended() {
    let mut patient = Patient::new();
    patient.touch(&["a"]);
    patient.now = patient.now.plus(ms(100));
    patient.touch(&["b"]);
    assert_eq!(patient.look(), ids(&["a", "b"]));
    patient.ended(&healed(&[("a", Action::Ok), ("b", Action::Ok)]));
    // It rests: what is due a moment before does not take it along.
    patient.touch(&["a"]);
    patient.now = patient.now.plus(REST - DEBOUNCE - ms(50));
    patient.touch(&["c"]);
    assert_eq!(patient.look(), ids(&["c"]));
    patient.ended(&healed(&[("c", Action::Ok)]));
    assert_eq!(patient.look(), ids(&["a"]));

    let mut patient = Patient::new();
    patient.corrected("a", FREE + 3);
    let last = patient.now;
    patient.touch(&["a"]);
    patient.now = last.plus(REST * 2);
    // The look at another forgets who rested.
    patient.found("b", Action::Ok);
    patient.now = last.plus(CONTENDED_WAIT * 4 - DEBOUNCE - ms(50));
    patient.touch(&["c"]);
    assert_eq!(patient.look(), ids(&["c"]), "it is not due for another moment");
    patient.ended(&healed(&[("c", Action::Ok)]));
    assert_eq!(patient.look(), ids(&["a"]));
    assert_eq!(patient.now, last.plus(CONTENDED_WAIT * 4));
}

#[test]
fn a_look_at_one_lets_no_other_rest_less() {
    let mut patient = Patient::new();
    patient.found("a", Action::Ok);
    let looked = patient.now;
    patient.found("b", Action::Ok);
    patient.touch(&["a"]);
    assert_eq!(patient.healing.next_due(), Some(looked.plus(REST)));
}

#[test]
fn a_full_run_looks_at_every_suspect() {
    let mut patient = Patient::new();
    patient.touch(&["a"]);
    patient.healing.full_run_begins();
    assert_eq!(patient.healing.next_due(), None, "not once more");
    patient.healing.failed(patient.now, INTERVAL);
    assert_eq!(patient.due_in(), FAILED_WAIT, "it was not made");
}

#[test]
fn what_a_release_changes_is_no_correction() {
    let mut patient = Patient::new();
    for _ in 0..FREE + 2 {
        patient.touch(&["a"]);
        patient.look();
        let intended = RunReport { intended: true, ..healed(&[("a", Action::Changed)]) };
        patient.ended(&intended);
    }
    assert!(patient.contentions().is_empty());
    assert!(patient.healing.culprits_to_find().is_empty());
}

#[test]
fn what_a_pause_left_is_news_when_it_is_over() {
    let mut patient = Patient::new();
    patient.touch(&["a"]);
    patient.look();
    let pause = Pause { reason: "debugging".to_owned(), since: START, until: None };
    let paused = RunReport { paused: Some(pause), ..healed(&[("a", Action::WouldChange)]) };
    assert_eq!(patient.ended(&paused), ReportDecision::Skip);
    assert_eq!(patient.found("a", Action::WouldChange), ReportDecision::Report);
}

#[test]
fn a_failure_is_news_again_once_it_was_right_or_put_right() {
    for (between, news) in [(Action::Ok, ReportDecision::Skip), (Action::Changed, ReportDecision::Report)] {
        let mut patient = Patient::new();
        let told = [Action::Failed, Action::Failed, between, Action::Failed];
        let told = told.map(|action| patient.found("a", action));
        let (first, again) = (ReportDecision::Report, ReportDecision::Skip);
        assert_eq!(told, [first, again, news, first], "{between:?}");
    }
}

#[test]
fn what_was_notified_is_news_unless_it_is_right() {
    for (action, news) in [
        (Action::Failed, ReportDecision::Report),
        (Action::Skipped, ReportDecision::Skip),
        (Action::Ok, ReportDecision::Skip),
    ] {
        let mut patient = Patient::new();
        patient.touch(&["a"]);
        patient.look();
        let mut report = healed(&[("handler", Action::Failed)]);
        report.items[0].action = action;
        assert_eq!(patient.ended(&report), news, "{action:?}");
    }
}

#[test]
fn what_fights_waits_although_something_else_was_put_right() {
    let mut patient = Patient::new();
    patient.corrected("a", FREE + 4);
    patient.touch(&["a"]);
    let due = patient.healing.next_due().unwrap();
    patient.touch(&["b"]);
    assert_eq!(patient.look(), ids(&["b"]));
    patient.ended(&healed(&[("b", Action::Changed)]));
    assert_eq!(patient.healing.next_due(), Some(due));
}

#[test]
fn contentions_are_told_newest_first_with_their_waits() {
    let mut patient = Patient::new();
    patient.corrected("a", FREE + 3);
    patient.corrected("b", FREE + 1);
    let told: Vec<_> =
        patient.contentions().into_iter().map(|it| (it.resource, it.corrections, it.wait_secs)).collect();
    let (a, b) = ("m/file:a".to_owned(), "m/file:b".to_owned());
    assert_eq!(told, [(b, FREE + 1, 1), (a, FREE + 3, 4)]);
}

#[test]
fn what_waited_long_is_forgotten_later() {
    let mut patient = Patient::new();
    patient.corrected("a", FREE + 11);
    let wait = CONTENDED_WAIT * 1024;
    let over = patient.now.plus(wait * 2);
    assert_eq!(patient.healing.next_end(INTERVAL), Some(over));
    patient.now = patient.now.plus(QUIET + ms(1));
    assert_eq!(patient.contentions().len(), 1, "its next look is not even due");
    patient.now = over;
    assert_eq!(patient.contentions().len(), 1);
    patient.now = over.plus(ms(1));
    assert!(patient.contentions().is_empty());
    // One that was put right a few times ends no contention.
    patient.corrected("b", FREE);
    assert_eq!(patient.healing.next_end(INTERVAL), None);
}

#[test]
fn corrections_long_ago_do_not_count() {
    let mut patient = Patient::new();
    patient.corrected("a", FREE);
    patient.now = patient.now.plus(QUIET + ms(1));
    patient.corrected("a", FREE);
    assert!(patient.contentions().is_empty());
    patient.corrected("a", 1);
    assert_eq!(patient.contentions()[0].corrections, FREE + 1);
}

#[test]
fn a_culprit_with_a_name_counts_more_than_one_without() {
    let mut patient = Patient::new();
    patient.corrected("a", FREE + 1);
    let culprit =
        |pid, program: Option<&str>| Culprit { pid, program: program.map(str::to_owned), unit: None };
    let mut seen = |culprit: Culprit| {
        let found = CulpritFinding::Named(culprit);
        let culprits: BTreeMap<_, _> =
            ids(&["a", "unknown"]).into_iter().map(|id| (id, found.clone())).collect();
        patient.healing.suspect(
            SuspectedDrift { culprits, ..SuspectedDrift::default() },
            patient.now,
            INTERVAL,
        );
        patient.contentions()[0].culprit.clone().unwrap().pid
    };
    let told = [
        culprit(1, None),
        culprit(2, None),
        culprit(3, Some("/usr/bin/puppet")),
        culprit(4, None),
        culprit(5, Some("/usr/bin/cat")),
    ];
    assert_eq!(told.map(&mut seen), [1, 1, 3, 3, 5]);
}

#[test]
fn those_whose_culprits_are_wanted_are_bounded() {
    let mut patient = Patient::new();
    let names: Vec<String> = (0..MAX_CONTENTIONS + 5).map(|number| format!("{number:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for _ in 0..2 {
        patient.touch(&names);
        patient.look();
        let found: Vec<(&str, Action)> = names.iter().map(|name| (*name, Action::Changed)).collect();
        patient.ended(&healed(&found));
    }
    assert_eq!(patient.healing.culprits_to_find(), ids(&names[..MAX_CONTENTIONS]));
}

#[test]
fn a_clock_that_is_set_back_lengthens_no_wait() {
    let mut patient = Patient::new();
    patient.corrected("fights", FREE + 3);
    patient.found("rests", Action::Ok);
    let contended = patient.contentions()[0].since;
    patient.touch(&["a"]);
    patient.healing.set_back(HOUR);
    patient.now = patient.now.minus(HOUR);
    assert_eq!(patient.due_in(), DEBOUNCE);
    assert_eq!(patient.look(), ids(&["a"]));
    patient.ended(&healed(&[("a", Action::Ok)]));
    patient.touch(&["rests"]);
    assert!(patient.due_in() <= REST, "{:?}", patient.due_in());
    patient.look();
    patient.ended(&healed(&[("rests", Action::Ok)]));
    patient.touch(&["fights"]);
    assert!(patient.due_in() <= CONTENDED_WAIT * 4, "{:?}", patient.due_in());
    assert_eq!(patient.contentions()[0].since, contended.minus(HOUR));
}

#[test]
fn lost_events_alone_are_counted() {
    let mut patient = Patient::new();
    patient.touch(&["a"]);
    assert_eq!(patient.healing.scans(), 0);
    let lost = |patient: &mut Patient| {
        let drift = SuspectedDrift { after_lost_events: ids(&["a"]), ..SuspectedDrift::default() };
        patient.healing.suspect(drift, patient.now, INTERVAL);
        patient.healing.scans()
    };
    assert_eq!([lost(&mut patient), lost(&mut patient)], [1, 1], "one scan is of both");
    while patient.healing.next_due().is_some() {
        patient.look();
        patient.ended(&healed(&[("a", Action::Ok)]));
    }
    assert_eq!(lost(&mut patient), 2);
}

#[test]
fn contentions_tell_the_same_whatever_changes_by_itself() {
    let culprit = |pid, program: &str| Culprit { pid, program: Some(program.to_owned()), unit: None };
    let first = Contention {
        resource: "m/file:a".to_owned(),
        since: START,
        corrections: 4,
        wait_secs: 1,
        culprit: Some(culprit(7, "/usr/bin/puppet")),
        culprit_unknown: None,
    };
    let same = Contention {
        corrections: 9,
        wait_secs: 32,
        culprit: Some(culprit(8, "/usr/bin/puppet")),
        ..first.clone()
    };
    assert!(first.tells_the_same(&same));
    for other in [
        Contention { resource: "m/file:b".to_owned(), ..first.clone() },
        Contention { since: START.plus(ms(1)), ..first.clone() },
        Contention { culprit: None, ..first.clone() },
        Contention { culprit: Some(culprit(7, "/usr/bin/cat")), ..first.clone() },
    ] {
        assert!(!first.tells_the_same(&other) && !other.tells_the_same(&first), "{other:?}");
    }
    let unknown = |why| Contention { culprit: None, culprit_unknown: Some(why), ..first.clone() };
    let (refused, limit) = (unknown(UnknownCulprit::Refused), unknown(UnknownCulprit::Limit));
    assert!(refused.tells_the_same(&refused.clone()) && !refused.tells_the_same(&limit));
}
