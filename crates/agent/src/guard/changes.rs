//! [`GuardedChanges`]: what a guarded run changed, durably before each change, so that whoever comes can undo it.

use activation::GenerationId;
use catalog::module::CommandLine;
use converge::{ResourceId, Undo};
use model::Digest;
use model::collect::CollectInserting;
use serde::{Deserialize, Serialize};

/// The most changes of one guarded run.
pub const MAX_GUARDED: usize = 10_000;
/// The file of the state directory that holds them while a guard is up.
pub(crate) const CHANGES_FILE: &str = "guarded-changes.json";

/// One change of a guarded run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardedChange {
    /// The resource.
    pub resource: ResourceId,
    /// How it is undone; nothing for a command, and for what was only notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Undo>,
    /// What makes the host go by it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<CommandLine>,
    /// It is of the agent: its program and unit are put back, and a contact counts only of an agent that started anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub agent: bool,
}

/// What a guarded run changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardedChanges {
    /// What identifies the change ([`converge::guarded::guarded_digest`]).
    pub target: Digest,
    /// The release.
    pub seq: u64,
    /// The first change first; at most [`MAX_GUARDED`].
    pub changes: Vec<GuardedChange>,
}

impl GuardedChanges {
    /// None yet.
    pub(super) fn none(target: GenerationId) -> GuardedChanges {
        GuardedChanges { target: target.0, seq: 0, changes: Vec::new() }
    }

    /// Adds a change. The state before the run stays the one that is put back, however often a resource is tried.
    pub(super) fn add(&mut self, mut change: GuardedChange) -> Result<(), String> {
        if self.changes.len() >= MAX_GUARDED {
            return Err(format!("one run changes at most {MAX_GUARDED} resources that are guarded"));
        }
        let is_known = |undo: &Undo| {
            let known = self.changes.iter().filter_map(|known| known.undo.as_ref());
            known.into_iter().any(|known| known.kind == undo.kind && known.path == undo.path)
        };
        if change.undo.as_ref().is_some_and(is_known) {
            change.undo = None;
        }
        self.changes.push(change);
        Ok(())
    }

    /// Whether the agent's own program, unit or settings are among them.
    pub(super) fn touches_agent(&self) -> bool {
        self.changes.iter().any(|change| change.agent)
    }

    /// The resources, each once.
    pub(super) fn resources(&self) -> Vec<ResourceId> {
        let mut resources: Vec<ResourceId> = Vec::new();
        for change in &self.changes {
            if !resources.contains(&change.resource) {
                resources.push(change.resource.clone());
            }
        }
        resources
    }

    /// The contents that undoing them needs.
    pub(crate) fn digests(&self) -> std::collections::BTreeSet<Digest> {
        let undo = self.changes.iter().filter_map(|change| change.undo.as_ref());
        undo.flat_map(|undo| undo.prior.digests()).collect_inserting()
    }
}
