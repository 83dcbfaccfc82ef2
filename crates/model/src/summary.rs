//! [`RunsSummary`]: what is known of a node's runs. A control plane's memory and its store make it by the same
//! fold over the reports, so that both say the same after a restart.

use crate::report::{MAX_NOTED_FAILURES, Pause};
use crate::status::streak_after;
use crate::tags::{MAX_RUN_TAGS, MAX_TAG};
use crate::{Action, Digest, FailureNote, RunCounts, RunReport, Timestamp};

/// The longest [`RunsSummary::would_change`], in bytes.
pub const MAX_WOULD_CHANGE: usize = 240;

/// What is known of a node's last full run, with what partial runs after it came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunsSummary {
    /// Totals; `None` before the first full run.
    pub counts: Option<RunCounts>,
    /// The root of the set that the last full run was over; an earlier version did not keep it.
    pub root: Option<Digest>,
    /// Corrective runs in a row (CNV-3).
    pub streak: u32,
    /// What failed; at most [`MAX_NOTED_FAILURES`].
    pub failures: Box<[FailureNote]>,
    /// The first thing that would change, in at most [`MAX_WOULD_CHANGE`] bytes.
    pub would_change: Option<Box<str>>,
    /// Since when the outcome has been what it is.
    pub since: Option<Timestamp>,
    /// Somebody on the host paused it.
    pub paused: Option<Box<Pause>>,
    /// Tags that an operator requested a run for, which no resource of the node has (CFG-7); at most
    /// [`MAX_RUN_TAGS`]. A new request forgets them.
    pub unknown_tags: Box<[String]>,
}

impl RunsSummary {
    /// The summary after one more report.
    pub fn after(&self, report: &RunReport) -> RunsSummary {
        let unknown_tags = self.unknown_tags_after(report);
        if report.partial.is_some() {
            return RunsSummary { unknown_tags, ..self.with_part(report) };
        }
        RunsSummary {
            counts: Some(report.counts),
            root: Some(report.root),
            streak: streak_after(self.streak, report),
            failures: failure_notes(report),
            would_change: first_that_would_change(report),
            since: self.since_after(report, report.counts),
            paused: report.paused.clone().map(Box::new),
            unknown_tags,
        }
    }

    /// The summary after a partial run: it is not the run that was due, and of what it did not look at it says
    /// nothing.
    fn with_part(&self, report: &RunReport) -> RunsSummary {
        let Some(mut counts) = self.counts else { return self.clone() };
        let mut failures = self.failures.to_vec();
        take_part(report, &mut counts, &mut failures);
        let would_change = self.would_change.clone().or_else(|| first_that_would_change(report));
        RunsSummary {
            counts: Some(counts),
            failures: failures.into(),
            would_change: would_change.filter(|_| counts.would_change > 0),
            since: self.since_after(report, counts),
            ..self.clone()
        }
    }

    /// Since when the outcome is what it is, where a report makes the totals these.
    fn since_after(&self, report: &RunReport, counts: RunCounts) -> Option<Timestamp> {
        let outcome = |counts: &RunCounts| (counts.failed, counts.would_change);
        let same = self.counts.is_some_and(|old| outcome(&old) == outcome(&counts));
        self.since.filter(|_| same).or(Some(report.started))
    }

    /// The tags that operators requested in vain, after this run too. A run that names none says nothing of
    /// them: it may be one that somebody at the host asked for, by tags of theirs. A new set may have them.
    fn unknown_tags_after(&self, report: &RunReport) -> Box<[String]> {
        let new_set = report.partial.is_none() && report.intended;
        if !new_set && report.unknown_tags.is_empty() {
            return self.unknown_tags.clone();
        }
        // What a node sends is as long as its report may be.
        let tags = report.unknown_tags.iter().filter(|tag| tag.len() <= MAX_TAG);
        tags.take(MAX_RUN_TAGS).cloned().collect()
    }
}

/// The first failures in short.
fn failure_notes(report: &RunReport) -> Box<[FailureNote]> {
    let failed = report.items.iter().filter(|item| item.action == Action::Failed);
    failed.take(MAX_NOTED_FAILURES).map(FailureNote::of).collect()
}

/// Takes a partial run into what is known of the full run before it: its totals and first failures. A
/// failure that was put right is none any more, and one that is new is counted. Of more than
/// [`MAX_NOTED_FAILURES`] failures the rest has no names: they count until the next full run, as does a
/// resource that is right and that a report therefore does not name.
fn take_part(report: &RunReport, counts: &mut RunCounts, failures: &mut Vec<FailureNote>) {
    let observed_before = counts.would_change > 0;
    for item in &report.items {
        let note = FailureNote::of(item);
        let known = failures.iter().position(|known| known.resource == note.resource);
        let all_are_known = usize::try_from(counts.failed).is_ok_and(|failed| failed == failures.len());
        match (item.action, known) {
            (Action::Failed, Some(known)) => failures[known] = note,
            (Action::Failed, None) if all_are_known => {
                counts.recount(Some(Action::Ok), Some(Action::Failed));
                if failures.len() < MAX_NOTED_FAILURES {
                    failures.push(note);
                }
            }
            (action, Some(known)) => {
                counts.recount(Some(Action::Failed), Some(action));
                failures.remove(known);
            }
            // A full run may have counted it already.
            (Action::WouldChange | Action::Unknown, None) if !observed_before => {
                counts.recount(Some(Action::Ok), Some(item.action));
            }
            (_, None) => {}
        }
    }
}

fn first_that_would_change(report: &RunReport) -> Option<Box<str>> {
    let item = report.items.iter().find(|item| item.action == Action::WouldChange)?;
    let text = match &item.reason {
        Some(reason) => format!("{}: {reason}", item.resource),
        None => item.resource.clone(),
    };
    Some(text[..text.floor_char_boundary(MAX_WOULD_CHANGE)].into())
}
