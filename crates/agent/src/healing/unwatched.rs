//! [`UnwatchedDirectories`]: what is healed by full runs alone, and why.

use std::collections::BTreeSet;

use host::PathWatchError;

use crate::render::chain;

/// Directories of the plan that are there and not watched, and why.
#[derive(Default)]
pub(super) struct UnwatchedDirectories {
    pub(super) paths: BTreeSet<String>,
    /// The kernel parameter whose limit is reached.
    pub(super) limit: Option<String>,
    pub(super) problem: Option<String>,
}

impl UnwatchedDirectories {
    pub(super) fn add(&mut self, path: &str) {
        self.paths.insert(path.to_owned());
    }

    pub(super) fn add_for(&mut self, path: &str, why: String) {
        self.problem = Some(why);
        self.add(path);
    }

    pub(super) fn explain(&mut self, error: &PathWatchError) {
        match error {
            PathWatchError::Limit(limit) => self.limit = Some(limit.parameter().to_owned()),
            other => self.problem = Some(chain(other)),
        }
    }

    /// It is watched, or not there.
    pub(super) fn remove(&mut self, path: &str) {
        if self.paths.remove(path) && self.paths.is_empty() {
            (self.limit, self.problem) = (None, None);
        }
    }
}
