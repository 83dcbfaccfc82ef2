//! [`RunScope`]: which resources a run is about.
//!
//! ```text
//! full run      every resource, then what left the set
//! partial run   those in scope, and what they notify; nothing is removed
//! ```
//!
//! What is out of scope is neither checked nor reported nor counted; a notification that it is
//! owed stays owed, and `depends_on` it counts as met. So a partial run never does less to a
//! resource than a full one would, it only looks at fewer, and it says nothing about whether
//! the node is as declared.

use std::collections::BTreeSet;

use lang::nearest;
use model::collect::CollectInserting;
use model::report::PartialRun;

use super::module::SlotState;
use super::{Run, RunMode};
use crate::{BoundResource, Desired, ResourceId, RunPurpose};

/// The most tags that an error lists.
const MAX_LISTED: usize = 20;

/// Which resources a run is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RunScope {
    /// All of them, and what left the set.
    #[default]
    All,
    /// Those that have one of these tags.
    Tags(BTreeSet<String>),
    /// Exactly these: what was perhaps changed out of band.
    Resources(BTreeSet<ResourceId>),
}

/// A tag that no resource of the node has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no resource of this node has the tag `{tag}`{}{}", hint(.near), listed(.known))]
pub struct UnknownTag {
    /// The tag.
    pub tag: String,
    /// One that is nearly the same.
    pub near: Option<String>,
    /// All that there are.
    pub known: BTreeSet<String>,
}

fn hint(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

/// The tags that there are, at most [`MAX_LISTED`] of them.
fn listed(known: &BTreeSet<String>) -> String {
    let first: Vec<&str> = known.iter().take(MAX_LISTED).map(String::as_str).collect();
    match known.len().saturating_sub(MAX_LISTED) {
        0 if known.is_empty() => "; none has a tag".to_owned(),
        0 => format!("; there are {}", first.join(", ")),
        more => format!("; there are {} and {more} more", first.join(", ")),
    }
}

impl RunScope {
    /// Whether a resource is in scope by itself.
    pub fn contains(&self, resource: &BoundResource) -> bool {
        match self {
            RunScope::All => true,
            RunScope::Tags(tags) => resource.tags.iter().any(|tag| tags.contains(tag)),
            RunScope::Resources(ids) => ids.contains(&resource.id),
        }
    }

    /// Refuses a tag that means nothing, so that a slip of the pen is no run over nothing.
    ///
    /// # Errors
    /// The first tag that no resource has.
    pub fn check(&self, desired: &Desired) -> Result<(), UnknownTag> {
        let RunScope::Tags(tags) = self else { return Ok(()) };
        let known = desired.tags();
        match tags.iter().find(|tag| !known.contains(tag.as_str())) {
            None => Ok(()),
            Some(tag) => {
                let near = nearest(tag, known.iter().copied()).map(str::to_owned);
                let known = known.into_iter().map(str::to_owned).collect_inserting();
                Err(UnknownTag { tag: tag.clone(), near, known })
            }
        }
    }

    /// What a run with this scope is for.
    pub fn purpose(&self) -> RunPurpose {
        match self {
            RunScope::All | RunScope::Tags(_) => RunPurpose::Converge,
            RunScope::Resources(_) => RunPurpose::Repair,
        }
    }

    /// How a report names it; `None` for a full run.
    pub fn partial(&self) -> Option<PartialRun> {
        match self {
            RunScope::All => None,
            RunScope::Tags(tags) => Some(PartialRun::Tags(tags.iter().cloned().collect())),
            RunScope::Resources(ids) => {
                Some(PartialRun::Resources(u32::try_from(ids.len()).unwrap_or(u32::MAX)))
            }
        }
    }
}

impl Run {
    /// Whether a resource is in scope: by itself, or because something that is has notified it.
    pub(super) fn in_scope(&self, resource: &BoundResource) -> bool {
        self.scope().contains(resource) || self.is_notified_in_scope(resource)
    }

    /// Whether this run is about anything in a module.
    pub(super) fn module_in_scope(&self, m: usize) -> bool {
        let module = &self.desired.modules[m];
        *self.scope() == RunScope::All
            || module.resources.iter().chain(&module.handlers).any(|resource| self.in_scope(resource))
    }

    /// Whether this run looked at any resource of a module, handlers aside.
    pub(super) fn looked_at(&self, m: usize) -> bool {
        let resources = self.desired.modules[m].resources.len();
        let states = self.modules[m].states.iter().take(resources);
        *self.scope() == RunScope::All || states.into_iter().any(|state| *state != SlotState::OutOfScope)
    }

    fn is_notified_in_scope(&self, resource: &BoundResource) -> bool {
        let ran = |notifier: &ResourceId| {
            self.desired.index.get(notifier).is_some_and(|(m, slot)| {
                !matches!(self.modules[*m].states[*slot], SlotState::Waiting | SlotState::OutOfScope)
            })
        };
        let would = (self.mode == RunMode::Plan || self.observes(resource))
            .then(|| self.prediction.notified.get(&resource.id))
            .flatten();
        let owed = self.pending.notified.get(&resource.id);
        owed.into_iter().chain(would).flatten().any(ran)
    }
}
