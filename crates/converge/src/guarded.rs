//! What of a run is guarded: it can cut the host off, and is undone where no contact follows (CNV-11).
//!
//! The decisions alone: which resources count ([`reach`]), what identifies a guarded change ([`guarded_digest`]), how each
//! is undone ([`undo_of`]) and what reads it again once it is undone ([`command_after`]).

use catalog::module::CommandLine;
use catalog::reach::{WayIn, loads_files, path_reach, reach_of};
use catalog::types::{FileContent, NotifyAction, RUN_TEXT, Spec};
use model::{Digest, PathState, RunReport};

use crate::kinds::Checked;
use crate::ledger::{LedgerEntry, MAX_KEPT};
use crate::run::{Remembered, Undo, remembered};
use crate::{BoundResource, Desired, Prior, ResourceId};

/// What of the way to the host a resource touches.
pub fn reach(resource: &BoundResource) -> Option<WayIn> {
    reach_of(resource.spec.as_ref().ok()?)
}

/// What of the way to the host a resource touches that left the set.
pub fn reach_of_entry(entry: &LedgerEntry) -> Option<WayIn> {
    entry.path.starts_with('/').then(|| path_reach(&entry.path)).flatten()
}

/// What identifies a change of a host's guarded resources: the set, and what each of them is bound to. A change that the
/// host returned from is held back for as long as this stays.
pub fn guarded_digest(desired: &Desired, root: Digest) -> Digest {
    let mut text = root.to_string();
    for resource in desired.resources().filter(|resource| reach(resource).is_some()) {
        text.push('\n');
        text.push_str(resource.id.as_str());
        match &resource.spec {
            Ok(Spec::File(file)) => {
                text.extend(file.content.as_ref().map(FileContent::digest).map(|digest| digest.to_string()));
            }
            Ok(spec) => {
                for (name, value) in spec.state().map(|state| state.declared()).unwrap_or_default() {
                    text.push_str(&format!("\n {}:{name}={}:{value}", name.len(), value.len()));
                }
            }
            Err(_) => {}
        }
    }
    Digest::of(text.as_bytes())
}

/// How a change of a resource is undone; nothing for a command.
pub fn undo_of(resource: &BoundResource, checked: &Checked) -> Option<Undo> {
    let Remembered { path, undone: true } = remembered(resource)? else { return None };
    Some(Undo {
        path: path.to_owned(),
        prior: checked.prior.clone(),
        kept: matches!(checked.prior, Prior::Path(PathState::File { size, .. }) if size <= MAX_KEPT),
        kind: resource.kind.clone(),
        attributes: resource.kept.clone(),
        made: checked.surroundings.missing.clone(),
    })
}

/// Why a guarded resource is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedCause {
    /// By itself.
    Own,
    /// A guarded resource that changed notified it.
    Notified,
}

/// What makes the host go by a change again once it is undone: the unit is started anew or reloaded, the command that a
/// guarded resource notified runs again, as it makes the host go by the file that was put back. Nothing for what takes
/// effect by itself, for a unit that did not run before, for a command that got something of a secret, and for one that
/// ran by itself or sets the way in by its own words: it would cut the host off once more.
pub fn command_after(
    resource: &BoundResource,
    checked: &Checked,
    cause: GuardedCause,
) -> Option<CommandLine> {
    let systemctl =
        |verb: &str, unit: &str| CommandLine::Argv(["systemctl", verb, unit].map(str::to_owned).to_vec());
    let ran_before = match &checked.prior {
        Prior::State(Some(before)) => {
            !matches!(before.get(RUN_TEXT).map(String::as_str), Some("stopped" | "missing" | "failed"))
        }
        Prior::State(None) | Prior::Path(_) => true,
    };
    match resource.spec.as_ref().ok()? {
        // It would cut the host off again: the firewall that the run started, for one.
        Spec::Unit(_) if !ran_before => None,
        Spec::Unit(unit) => Some(match unit.on_notify {
            NotifyAction::Restart => systemctl("restart", &unit.unit),
            NotifyAction::Reload => systemctl("reload-or-restart", &unit.unit),
        }),
        Spec::Exec(exec) => {
            let goes_by_files = cause == GuardedCause::Notified && loads_files(&exec.command).unwrap_or(true);
            (goes_by_files && !resource.holds_secret).then(|| exec.command.clone())
        }
        _ => None,
    }
}

/// Of resources that a guarded run touched, the first whose failure says at once that the host must go back: a unit that
/// does not come up, a command that fails. What could not be installed or written is no reason: nothing runs by it.
pub fn failed_at_once(
    report: &RunReport,
    desired: &Desired,
    touched: &dyn Fn(&ResourceId) -> bool,
) -> Option<(ResourceId, String)> {
    let failed = |id: &ResourceId| {
        let item = report.items.iter().find(|item| item.resource == id.as_str())?;
        (item.action == model::Action::Failed).then(|| item.reason.clone().unwrap_or_default())
    };
    desired.resources().filter(|resource| touched(&resource.id)).find_map(|resource| match &resource.spec {
        Ok(Spec::Unit(_) | Spec::Exec(_)) => Some((resource.id.clone(), failed(&resource.id)?)),
        _ => None,
    })
}
