//! Collecting a run's report within its bounds (CNV-2).

use catalog::schema::{self, Manages};
use catalog::types::Spec;
use model::collect::CollectInserting;
use model::delta::{Edit, Fields};
use model::report::{MAX_ITEMS, MAX_TEXT};
use model::sort::SortCompactly;
use model::{Action, FailureCode, ResourceReport, RunCounts};

use super::JobFailure;
use crate::{BoundResource, LedgerEntry, ResourceId};

/// Where an item stands in the report: module, then slot.
pub(super) type ItemPosition = (usize, usize);

/// Everything that was not simply right.
#[derive(Debug, Default)]
pub(super) struct ItemCollector {
    pub(super) counts: RunCounts,
    items: Vec<(ItemPosition, ResourceReport)>,
}

impl ItemCollector {
    /// Counts an action and keeps its item.
    pub(super) fn add(&mut self, position: ItemPosition, item: ResourceReport) {
        self.counts.recount(None, Some(item.action));
        self.items.push((position, item));
    }

    /// A change did not last: what became of it stands, and counts, in its place.
    pub(super) fn replace_change(&mut self, position: ItemPosition, item: ResourceReport) {
        let changed = |(at, item): &&mut (ItemPosition, ResourceReport)| {
            *at == position && item.action == Action::Changed
        };
        match self.items.iter_mut().find(changed) {
            Some((_, change)) => {
                self.counts.recount(Some(Action::Changed), Some(item.action));
                let edit = change.edit.take();
                *change = ResourceReport { edit, duration_ms: change.duration_ms, ..item };
            }
            None => self.add(position, item),
        }
    }

    /// The items in order of modules and resources, at most [`MAX_ITEMS`]: when there are
    /// more, failures stay.
    pub(super) fn finish(self) -> (RunCounts, Vec<ResourceReport>) {
        let mut items = self.items;
        if items.len() > MAX_ITEMS {
            items.sort_compactly_by_key(|(position, item)| (item.action != Action::Failed, *position));
            items.truncate(MAX_ITEMS);
        }
        items.sort_compactly_by_key(|(position, _)| *position);
        (self.counts, items.into_iter().map(|(_, item)| item).collect())
    }
}

/// An item about a resource; hides what is sensitive.
pub(super) fn item(
    resource: &BoundResource,
    action: Action,
    edit: Option<&Edit<Fields>>,
    reason: Option<String>,
    duration_ms: u64,
) -> ResourceReport {
    let edit = edit.filter(|_| !resource.sensitive).map(|edit| edit.map(clipped));
    ResourceReport { edit, duration_ms, ..bare(resource.id.as_str(), action, reason) }
}

/// An item about a resource that failed; hides what is sensitive.
pub(super) fn failed_item(
    resource: &BoundResource,
    action: Action,
    edit: Option<&Edit<Fields>>,
    failure: JobFailure,
    duration_ms: u64,
) -> ResourceReport {
    // Why a secret cannot be opened names it and no more.
    let blocked = failure.cause.as_ref().is_some_and(|cause| cause.code == FailureCode::Blocked);
    let JobFailure { message, cause } = match resource.sensitive && may_quote(resource) && !blocked {
        true => hidden(),
        false => failure,
    };
    ResourceReport { cause, ..item(resource, action, edit, Some(message), duration_ms) }
}

/// An item about a removal that failed; hides what is sensitive.
pub(super) fn failed_removal(id: &ResourceId, entry: &LedgerEntry, failure: JobFailure) -> ResourceReport {
    let failure = if entry.sensitive && removal_may_quote(&entry.kind) { hidden() } else { failure };
    failed(id.as_str(), failure)
}

/// What is said of a failure instead of its message: what a command prints may repeat what it was given.
pub(super) fn hidden() -> JobFailure {
    "it failed; what it said is hidden, because the resource is sensitive".into()
}

/// An item without an edit, of what failed.
pub(super) fn failed(name: &str, failure: JobFailure) -> ResourceReport {
    let JobFailure { message, cause } = failure;
    ResourceReport { cause, ..bare(name, Action::Failed, Some(message)) }
}

/// An item without an edit.
pub(super) fn bare(name: &str, action: Action, reason: Option<String>) -> ResourceReport {
    let reason = reason.map(|text| clip(&text));
    ResourceReport { resource: name.to_owned(), action, edit: None, reason, cause: None, duration_ms: 0 }
}

/// The message of its failure may quote what a command printed.
fn may_quote(resource: &BoundResource) -> bool {
    match &resource.spec {
        _ if !resource.guards.is_empty() => true,
        Ok(Spec::File(spec)) => spec.validate.is_some(),
        Ok(Spec::Line(spec)) => spec.validate.is_some(),
        Ok(Spec::Directory(_) | Spec::Symlink(_)) => false,
        // Commands say what they like, and the message of a failed evaluation may quote a value.
        Ok(_) | Err(_) => true,
    }
}

/// The message of a failed removal of this type, or of a failed undo, may quote what a command printed.
pub(super) fn removal_may_quote(kind: &str) -> bool {
    let manages = schema::find(kind).map(|kind| kind.manages);
    !matches!(manages, Some(Manages::Path | Manages::Part))
}

fn clipped(fields: &Fields) -> Fields {
    fields.iter().map(|(name, text)| (name.clone(), clip(text))).collect_inserting()
}

fn clip(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let end = (0..=MAX_TEXT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}\n... ({} bytes)", &text[..end], text.len())
}
