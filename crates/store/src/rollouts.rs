//! Rollouts as they are kept: documents, members and versions of budgets, changed by compare-and-set together with the
//! facts that changed them (ROL-5).

use model::log::Fact;
use model::{Incarnation, NodeId};
use rollout::{MemberRecord, RolloutCommit, RolloutDocument, RolloutKey};

use crate::error::StoreError;

/// The most documents of pruned rollouts that are kept in the whole fleet, the newest. Their ids are given to no other
/// rollout while they are.
pub const MAX_PRUNED_ROLLOUTS: usize = 1_000;

/// Facts of one node, to be made durable with what follows from them.
#[derive(Clone, Debug)]
pub struct FactBatch {
    /// The node.
    pub node: NodeId,
    /// Its log.
    pub incarnation: Incarnation,
    /// The facts; at most [`model::log::MAX_FACTS`].
    pub facts: Vec<Fact>,
}

/// What is stored in one transaction, all of it or nothing.
#[derive(Clone, Debug, Default)]
pub struct RolloutWrite {
    /// Facts, as [`crate::Store::append_facts`] takes them.
    pub facts: Vec<FactBatch>,
    /// What a step of [`rollout::Rollouts`] decided. Several steps may be one after the other in it: each change of a
    /// rollout expects the version that the one before stored.
    pub commits: Vec<RolloutCommit>,
}

/// Why rollouts were not changed. Nothing of the write is stored then.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitRolloutsError {
    /// Another version is stored than the one that this was decided by.
    #[error("other rollouts are stored than those that this was decided by")]
    Outdated,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A rollout as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRollout {
    /// The document.
    pub document: RolloutDocument,
    /// All members.
    pub members: Vec<MemberRecord>,
}

/// Which rollouts are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredMembers {
    /// All that are not pruned.
    OfLive,
    /// These, where they are stored and not pruned.
    Of(Vec<RolloutKey>),
}
