//! [`Ledger`]: what was made or changed, with the state before (CNV-10).

use std::collections::BTreeMap;

use catalog::module::OnRemove;
use model::{PathState, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ResourceId;

/// The largest file, in bytes, whose bytes are kept before it is changed.
pub const MAX_KEPT: u64 = 64 * 1024 * 1024;

/// Everything that Muster made or changed on this host and still answers for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ledger {
    /// By resource.
    pub entries: BTreeMap<ResourceId, LedgerEntry>,
}

/// One thing that was made or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    /// The resource's type.
    pub kind: String,
    /// The path that it manages.
    pub path: String,
    /// What was there before Muster first changed it.
    pub prior: PathState,
    /// The prior bytes are in the blob store, so it can be restored.
    pub kept: bool,
    /// What happens when the resource leaves the set, as declared last.
    pub on_remove: OnRemove,
    /// When it was first changed.
    pub at: Timestamp,
    /// Its content is shown nowhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
}

impl LedgerEntry {
    /// Why `restore` cannot bring everything back, if so; reported before anything is removed.
    pub fn cannot_restore(&self) -> Option<&'static str> {
        cannot_restore(&self.prior, self.kept)
    }
}

/// Why a prior state cannot be brought back whole, if so.
pub(crate) fn cannot_restore(prior: &PathState, kept: bool) -> Option<&'static str> {
    match prior {
        PathState::File { .. } if !kept => Some("the bytes that were there before were not kept"),
        PathState::Directory { empty: false, .. } => Some("what was inside the directory was not kept"),
        PathState::Other { .. } => Some("what was there before is nothing that Muster can make"),
        PathState::Missing
        | PathState::File { .. }
        | PathState::Directory { .. }
        | PathState::Symlink { .. } => None,
    }
}
