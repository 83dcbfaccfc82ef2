//! [`ChangeLog`]: when each resource of a run was changed, by a clock that nobody sets, so that what is
//! notified knows whether it was started since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use converge::ResourceId;
use providers::Notification;

/// How many notifiers a report names.
const MAX_NAMED: usize = 3;

/// The changes of one run.
#[derive(Debug)]
pub(crate) struct ChangeLog {
    began: Instant,
    changed: Mutex<BTreeMap<ResourceId, Instant>>,
}

impl ChangeLog {
    /// That of a run that begins now.
    pub(crate) fn begin() -> ChangeLog {
        ChangeLog { began: Instant::now(), changed: Mutex::default() }
    }

    /// A resource was changed just now.
    pub(crate) fn add(&self, id: &ResourceId) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), Instant::now());
    }

    /// What these notifiers come to. One that an earlier run changed, or that only would have, counts
    /// as changed when this run began.
    pub(crate) fn notification(&self, by: &BTreeSet<ResourceId>) -> Option<Notification> {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let last = by.iter().map(|id| changed.get(id).copied().unwrap_or(self.began)).max()?;
        let mut names: Vec<&str> = by.iter().take(MAX_NAMED).map(ResourceId::as_str).collect();
        if by.len() > MAX_NAMED {
            names.push("others");
        }
        Some(Notification { by: names.join(", "), last })
    }
}
