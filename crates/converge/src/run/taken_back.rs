//! [`TakeBack`]: what a run puts back as it was, because the host leaves the generation that made it (ROL-7, ROL-10).
//!
//! A release may declare that a resource stays when it leaves the set (`on_remove: keep`). That is meant for people who
//! take it out of their fleet repo, not for a generation that failed its trial: what only that one declared is restored.

use catalog::module::OnRemove;
use model::Digest;

use crate::{Ledger, LedgerEntry};

/// What a run puts back as it was, whatever its `on_remove` says, where it is not declared or only observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakeBack {
    /// Nothing: what leaves the set follows its `on_remove`.
    #[default]
    Nothing,
    /// What runs of the set with this root were the first to make or change.
    MadeIn(Digest),
    /// All of it: the host is to be as it was found.
    Everything,
}

impl TakeBack {
    /// Whether an entry is put back.
    pub fn has(&self, entry: &LedgerEntry) -> bool {
        match self {
            TakeBack::Nothing => false,
            TakeBack::MadeIn(root) => entry.generation == Some(*root),
            TakeBack::Everything => true,
        }
    }

    /// Makes the entries that are put back say so, for this run: what becomes of one that stays declared is as declared.
    pub(super) fn claim(&self, ledger: &mut Ledger) {
        for entry in ledger.entries.values_mut().filter(|entry| self.has(entry)) {
            entry.on_remove = OnRemove::Restore;
        }
    }
}
