//! [`ClosureOrder`]: which paths of a closure are still asked for, and in which order they are imported.

use std::collections::{BTreeMap, BTreeSet};

use super::{NarInfo, StorePath};

/// The most paths of one closure that are fetched.
pub const MAX_CLOSURE_PATHS: usize = 50_000;

/// A walk over the references of a closure. Its owner asks a cache for each path of [`ClosureOrder::next_asked`], says what it
/// has been told with [`ClosureOrder::found`] or that the path is there already with [`ClosureOrder::is_there`], and
/// imports what [`ClosureOrder::finish`] gives.
#[derive(Debug)]
pub struct ClosureOrder {
    asked: BTreeSet<StorePath>,
    waiting: Vec<StorePath>,
    found: BTreeMap<StorePath, NarInfo>,
}

/// Why a closure cannot be put into an order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClosureOrderError {
    /// It has too many paths.
    #[error("the closure has more than {MAX_CLOSURE_PATHS} paths")]
    TooMany,
    /// A path needs itself by way of others.
    #[error("{0} needs itself by way of what it needs")]
    Cycle(StorePath),
    /// A path that others need was not told of.
    #[error("{0} is needed, and nothing is known of it")]
    Lacking(StorePath),
}

impl ClosureOrder {
    /// The walk that begins at a path.
    pub fn of(top: StorePath) -> ClosureOrder {
        ClosureOrder { asked: BTreeSet::from([top.clone()]), waiting: vec![top], found: BTreeMap::new() }
    }

    /// The paths that nothing is known of yet, all of them; each is given once.
    pub fn next_asked(&mut self) -> Vec<StorePath> {
        std::mem::take(&mut self.waiting)
    }

    /// What is known of a path: what it needs is asked for as well.
    ///
    /// # Errors
    /// [`ClosureOrderError::TooMany`].
    pub fn found(&mut self, info: NarInfo) -> Result<(), ClosureOrderError> {
        for needed in info.needs() {
            if self.asked.insert(needed.clone()) {
                self.waiting.push(needed.clone());
            }
        }
        if self.asked.len() > MAX_CLOSURE_PATHS {
            return Err(ClosureOrderError::TooMany);
        }
        self.found.insert(info.path.clone(), info);
        Ok(())
    }

    /// What is to be imported, each path after all that it needs. `is_there` says of a path that was not found whether
    /// the store has it, with all that it needs.
    ///
    /// # Errors
    /// [`ClosureOrderError`]: nothing may be imported then.
    pub fn finish(self, is_there: impl Fn(&StorePath) -> bool) -> Result<Vec<NarInfo>, ClosureOrderError> {
        let mut lacks: BTreeMap<&StorePath, usize> = BTreeMap::new();
        let mut needed_by: BTreeMap<&StorePath, Vec<&StorePath>> = BTreeMap::new();
        for info in self.found.values() {
            let mut count = 0;
            for needed in info.needs() {
                if self.found.contains_key(needed) {
                    needed_by.entry(needed).or_default().push(&info.path);
                    count += 1;
                } else if !is_there(needed) {
                    return Err(ClosureOrderError::Lacking(needed.clone()));
                }
            }
            lacks.insert(&info.path, count);
        }
        let mut ready: Vec<&StorePath> =
            lacks.iter().filter(|(_, count)| **count == 0).map(|(path, _)| *path).collect();
        let mut order = Vec::with_capacity(lacks.len());
        while let Some(path) = ready.pop() {
            order.push(path.clone());
            for above in needed_by.get(path).into_iter().flatten() {
                if let Some(count) = lacks.get_mut(above) {
                    *count -= 1;
                    if *count == 0 {
                        ready.push(above);
                    }
                }
            }
        }
        if let Some((path, _)) = lacks.iter().find(|(_, count)| **count > 0) {
            return Err(ClosureOrderError::Cycle((*path).clone()));
        }
        let mut found = self.found;
        Ok(order.iter().filter_map(|path| found.remove(path)).collect())
    }
}
