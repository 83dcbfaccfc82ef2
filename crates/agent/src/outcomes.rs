//! [`LastRunView`]: what the last run came to, resource by resource (CNV-2).
//!
//! ```text
//! runner: jobs + report -> RunResources -> LastRunView::after(the one before) -> memory of the daemon
//!                                                                             -> last-outcomes.json
//! ```
//!
//! A report names what was not simply right; this names every resource, with its duration, since
//! when it is so and when it was changed last. It never travels.
//!
//! Invariants: at most [`MAX_RESOURCES`] resources and [`MAX_DETAIL`] bytes of edits are kept, those
//! that are as declared go first; the file need not outlive a crash, and a damaged one is none.

use std::collections::BTreeMap;
use std::path::Path;

use converge::ResourceId;
use model::collect::CollectInserting;
use model::{Action, Digest, Pause, ResourceReport, RunCounts, RunReport, Timestamp};
use serde::{Deserialize, Serialize};
use spool::SpoolError;

use crate::volatile_file::VolatileFile;

const FILE: VolatileFile<LastRunView> = VolatileFile::new("last-outcomes.json", 16 * 1024 * 1024);
/// The most resources that are kept.
pub const MAX_RESOURCES: usize = 20_000;
/// The most bytes of edits that are kept; the reasons stay.
pub const MAX_DETAIL: usize = 256 * 1024;
/// A resource that took longer is one of the slow ones.
pub const SLOW_MS: u64 = 1000;

/// One resource of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceOutcome {
    /// `module/type:name`.
    pub resource: ResourceId,
    /// What was done; absent for a handler that nothing notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// How long check and apply took, in milliseconds.
    pub duration_ms: u64,
    /// Since when runs say so.
    pub since: Timestamp,
    /// When it was changed last, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Timestamp>,
}

/// What the jobs of a run took and found, in the run's order.
#[derive(Clone, Debug, Default)]
pub struct RunResources(pub Vec<(ResourceId, Option<Action>, u64)>);

/// A run and every resource of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastRunView {
    /// When it began.
    pub started: Timestamp,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The release that was bound.
    pub seq: u64,
    /// The root of the set that was bound.
    pub root: Digest,
    /// The set was adopted since the last run.
    pub intended: bool,
    /// The host was paused: it only observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// When the last full run began that changed the host as declared, and in which nothing failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<Timestamp>,
    /// Totals.
    pub counts: RunCounts,
    /// Every resource, in the run's order.
    pub resources: Vec<ResourceOutcome>,
    /// Resources that are left out, as there are too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// What the report says of those that were not simply right.
    pub items: Vec<ResourceReport>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl LastRunView {
    /// The view of a run, after the one before it.
    pub fn after(before: Option<&LastRunView>, report: &RunReport, ran: RunResources) -> LastRunView {
        let known: BTreeMap<&ResourceId, &ResourceOutcome> = before
            .iter()
            .flat_map(|view| &view.resources)
            .map(|known| (&known.resource, known))
            .collect_inserting();
        let mut resources: Vec<ResourceOutcome> = ran
            .0
            .into_iter()
            .map(|(resource, action, duration_ms)| {
                let before = known.get(&resource);
                let since = before.filter(|before| same(before.action, action)).map(|before| before.since);
                let changed = match action {
                    Some(Action::Changed | Action::Deleted | Action::Restored) => Some(report.started),
                    _ => before.and_then(|before| before.changed),
                };
                let since = since.unwrap_or(report.started);
                ResourceOutcome { resource, action, duration_ms, since, changed }
            })
            .collect();
        if let Some(before) = before.filter(|_| report.partial.is_some()) {
            return before.with_part(resources, report);
        }
        let left_out = resources.len().saturating_sub(MAX_RESOURCES);
        if left_out > 0 {
            let mut surplus = left_out;
            resources.retain(|outcome| {
                let goes = surplus > 0 && matches!(outcome.action, None | Some(Action::Ok));
                surplus -= usize::from(goes);
                !goes
            });
            resources.truncate(MAX_RESOURCES);
        }
        let is_success = report.counts.failed == 0 && report.paused.is_none();
        let succeeded =
            if is_success { Some(report.started) } else { before.and_then(|last| last.succeeded) };
        LastRunView {
            succeeded,
            started: report.started,
            duration_ms: report.duration_ms,
            seq: report.seq,
            root: report.root,
            intended: report.intended,
            paused: report.paused.clone(),
            counts: report.counts,
            resources,
            left_out,
            items: bounded(&report.items),
        }
    }

    /// This view with what a partial run looked at: of all else what was known stays.
    fn with_part(&self, part: Vec<ResourceOutcome>, report: &RunReport) -> LastRunView {
        let mut view = self.clone();
        let looked_at: BTreeMap<&str, &ResourceOutcome> = part
            .iter()
            .filter(|new| new.action.is_some())
            .map(|new| (new.resource.as_str(), new))
            .collect_inserting();
        for known in &mut view.resources {
            if let Some(new) = looked_at.get(known.resource.as_str()) {
                // The counts are of what is so now: a failure that was put right is none any more.
                view.counts.recount(known.action, new.action);
                known.clone_from(new);
            }
        }
        view.items.retain(|item| !looked_at.contains_key(item.resource.as_str()));
        view.items.extend(report.items.iter().cloned());
        view.items = bounded(&view.items);
        view
    }

    /// What the report says of a resource.
    pub fn item(&self, resource: &str) -> Option<&ResourceReport> {
        self.items.iter().find(|item| item.resource == resource)
    }

    /// Whether both tell people the same of every resource: how long looks took is another each time.
    pub fn tells_the_same(&self, other: &LastRunView) -> bool {
        let outcome = |outcome: &ResourceOutcome| (outcome.action, outcome.since, outcome.changed);
        let outcomes = |(mine, others): (&ResourceOutcome, &ResourceOutcome)| {
            mine.resource == others.resource && outcome(mine) == outcome(others)
        };
        let item = |item: &ResourceReport| ResourceReport { duration_ms: 0, ..item.clone() };
        self.started == other.started
            && self.resources.len() == other.resources.len()
            && self.resources.iter().zip(&other.resources).all(outcomes)
            && self.items.len() == other.items.len()
            && self.items.iter().zip(&other.items).all(|(mine, others)| item(mine) == item(others))
    }

    /// Without what was read from the host or written to it.
    pub fn without_edits(mut self) -> LastRunView {
        for item in &mut self.items {
            item.edit = None;
        }
        self
    }

    /// The resources that somebody who looks should see first, in the run's order: all that are not as
    /// declared, and those that took longer than [`SLOW_MS`].
    pub fn notable(&self) -> impl Iterator<Item = &ResourceOutcome> {
        self.resources.iter().filter(|outcome| {
            !matches!(outcome.action, None | Some(Action::Ok)) || outcome.duration_ms > SLOW_MS
        })
    }

    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, state: &Path) -> Result<(), SpoolError> {
        FILE.write(state, self)
    }

    /// What the last run wrote; `None` when none did.
    pub fn read(state: &Path) -> Option<LastRunView> {
        FILE.read(state)
    }
}

/// Whether two outcomes say the same of how the resource is: right after a change is right.
fn same(before: Option<Action>, now: Option<Action>) -> bool {
    let state = |action| match action {
        Some(Action::Changed | Action::Ok) => Some(Action::Ok),
        other => other,
    };
    state(before) == state(now)
}

/// The items with at most [`MAX_DETAIL`] bytes of edits: those of failures stay first.
pub(crate) fn bounded(items: &[ResourceReport]) -> Vec<ResourceReport> {
    let mut items = items.to_vec();
    let mut room = MAX_DETAIL;
    for failures in [true, false] {
        for item in &mut items {
            let failed = matches!(item.action, Action::Failed | Action::Ignored);
            if failed != failures {
                continue;
            }
            let size = |fields: Option<&model::Fields>| {
                fields.map_or(0, |fields| fields.iter().map(|(name, text)| name.len() + text.len()).sum())
            };
            let bytes: usize = item.edit.as_ref().map_or(0, |edit| size(edit.from()) + size(edit.to()));
            match room.checked_sub(bytes) {
                Some(left) => room = left,
                None => item.edit = None,
            }
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(started: i64, counts: RunCounts) -> RunReport {
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
            items: Vec::new(),
        }
    }

    fn ran(action: Action) -> RunResources {
        RunResources(vec![(ResourceId::from("a/file:/x"), Some(action), 1)])
    }

    #[test]
    fn since_and_changed_are_kept_over_runs() {
        let mut view = None;
        let mut seen = Vec::new();
        for (at, action) in
            [(1, Action::Changed), (2, Action::Ok), (3, Action::Failed), (4, Action::Failed), (5, Action::Ok)]
        {
            let next = LastRunView::after(view.as_ref(), &report(at, RunCounts::default()), ran(action));
            seen.push((next.resources[0].since.0, next.resources[0].changed.map(|at| at.0)));
            view = Some(next);
        }
        assert_eq!(seen, [(1, Some(1)), (1, Some(1)), (3, Some(1)), (3, Some(1)), (5, Some(1))]);
    }

    #[test]
    fn a_failure_that_was_put_right_is_not_counted() {
        let failing = RunCounts { modules: 1, ok: 4, failed: 1, ..RunCounts::default() };
        let full = LastRunView::after(None, &report(1, failing), ran(Action::Failed));
        let partial = RunReport {
            partial: Some(model::report::PartialRun::Resources(1)),
            ..report(2, RunCounts { changed: 1, ..RunCounts::default() })
        };
        let healed = LastRunView::after(Some(&full), &partial, ran(Action::Changed));
        assert_eq!(healed.counts, RunCounts { changed: 1, failed: 0, ..failing });
        let broken = LastRunView::after(Some(&healed), &partial, ran(Action::Failed));
        assert_eq!(broken.counts, failing);
    }

    #[test]
    fn a_look_that_finds_what_was_known_tells_the_same() {
        let full = LastRunView::after(None, &report(1, RunCounts::default()), ran(Action::Ok));
        let look = |before: &LastRunView, at: i64, action: Action| {
            let partial = RunReport {
                partial: Some(model::report::PartialRun::Resources(1)),
                ..report(at, RunCounts::default())
            };
            LastRunView::after(Some(before), &partial, ran(action))
        };
        let drifted = look(&full, 2, Action::WouldChange);
        assert!(!full.tells_the_same(&drifted));
        assert!(drifted.tells_the_same(&look(&drifted, 3, Action::WouldChange)));
        let right = look(&drifted, 4, Action::Ok);
        assert!(!drifted.tells_the_same(&right));
        assert!(!right.tells_the_same(&look(&right, 5, Action::Changed)), "when it was changed is another");
    }

    #[test]
    fn a_view_is_bounded_and_failures_stay() {
        let many = (0..MAX_RESOURCES + 10).map(|n| {
            let action = if n % 2 == 0 { Action::Ok } else { Action::Failed };
            (ResourceId::new("m", "file", &n.to_string()), Some(action), 0)
        });
        let mut full = report(1, RunCounts::default());
        let big: model::Fields = [("content".to_owned(), "x".repeat(200 * 1024))].into();
        for action in [Action::Changed, Action::Failed] {
            full.items.push(ResourceReport {
                resource: "m/file:1".to_owned(),
                action,
                edit: Some(model::Edit::Add { to: big.clone() }),
                reason: Some("because".to_owned()),
                cause: None,
                duration_ms: 0,
            });
        }
        let view = LastRunView::after(None, &full, RunResources(many.collect()));
        assert_eq!((view.resources.len(), view.left_out), (MAX_RESOURCES, 10));
        let failed = view.resources.iter().filter(|outcome| outcome.action == Some(Action::Failed)).count();
        assert_eq!(failed, MAX_RESOURCES / 2 + 5, "a failure was left out");
        assert_eq!([view.items[0].edit.is_some(), view.items[1].edit.is_some()], [false, true]);
    }
}
