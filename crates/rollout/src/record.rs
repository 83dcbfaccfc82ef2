//! [`RolloutDocument`] and what a store keeps of rollouts: the state from which everything in memory can be
//! made again.
//!
//! The forms are kept: fields are only added, and what an earlier version wrote is read (a golden test).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use model::{Digest, Hostname, NodeId, Timestamp};
use serde::{Deserialize, Serialize};
use trust::RolloutTerms;

use crate::id::{RolloutId, RolloutKey};
use crate::member::MemberRecord;
use crate::state::RolloutState;

/// A rollout, its members aside.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutDocument {
    /// The release of which channel it is of.
    #[serde(flatten)]
    pub key: RolloutKey,
    /// What the wire calls it.
    pub id: RolloutId,
    /// Raised with every change; a decision counts only where it is the one that the decision was made by.
    pub version: u64,
    /// The digest of the release's header, which has the terms.
    pub header: Digest,
    /// When the release was published here.
    pub published: Timestamp,
    /// How it stands.
    pub state: RolloutState,
    /// Since when.
    pub since: Timestamp,
    /// It was [through](RolloutDocument::is_through) before it came to stand as it does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_through: bool,
    /// When each open wave was opened, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened: Vec<Timestamp>,
    /// Gates that operators passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<GateApproval>,
    /// An operator paused it.
    pub paused: Option<PausedRollout>,
    /// Why it does not go on.
    pub halt: Option<Halt>,
    /// The latest time at which something of it was decided.
    pub latest: Timestamp,
}

impl RolloutDocument {
    /// The gate of its last wave passed, whatever became of it since: nodes that are confirmed in it gave up the release of
    /// before, so that none of them is sent back any more.
    pub fn is_through(&self) -> bool {
        self.was_through || self.state == RolloutState::Terminal
    }
}

/// An operator's word that a wave's gate counts as passed; for a rollout that did not begin, that it may.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateApproval {
    /// The wave whose gate it is; absent: the rollout's beginning.
    pub wave: Option<u16>,
    /// The operator.
    pub by: String,
    /// When the operator said so.
    pub at: Timestamp,
}

/// That a rollout is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PausedRollout {
    /// The operator.
    pub by: String,
    /// Since when.
    pub at: Timestamp,
}

/// That a rollout starts nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Halt {
    /// When it was halted.
    pub at: Timestamp,
    /// What halted it.
    pub cause: HaltCause,
    /// What was started goes back.
    pub goes_back: bool,
}

/// Why a rollout starts nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "cause")]
pub enum HaltCause {
    /// More nodes of a wave failed than its gate allows.
    Gate {
        /// The wave.
        wave: String,
        /// How many failed.
        failed: u64,
        /// How many may.
        allowed: u64,
        /// One of them.
        example: Hostname,
    },
    /// An operator ended it.
    Aborted {
        /// The operator.
        by: String,
    },
    /// An operator called it back.
    RolledBack {
        /// The operator.
        by: String,
    },
    /// A release of its channel that goes to its nodes at once took its place.
    ReplacedAtOnce {
        /// Its number.
        seq: u64,
    },
}

impl HaltCause {
    /// It ends the rollout for good: nothing failed, and nothing newer waits for an operator because of it.
    pub fn is_final(&self) -> bool {
        matches!(self, HaltCause::Aborted { .. } | HaltCause::ReplacedAtOnce { .. })
    }
}

impl fmt::Display for HaltCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HaltCause::Gate { wave, failed, allowed, example } => {
                write!(f, "{failed} of the nodes in wave {wave} failed, {allowed} may; one is {example}")
            }
            HaltCause::Aborted { by } => write!(f, "{by} aborted it"),
            HaltCause::RolledBack { by } => write!(f, "{by} rolled it back"),
            HaltCause::ReplacedAtOnce { seq } => {
                write!(f, "release {seq}, which goes to all nodes at once, took its place")
            }
        }
    }
}

/// What a step wants to have stored, all of it or nothing: only if every guard holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutCommit {
    /// The changed rollouts.
    pub rollouts: Vec<RolloutChange>,
    /// The budgets of which slots were taken, or whose limit changed; and, like a budget, that a channel had no
    /// rollout.
    pub budgets: Vec<DecisionGuard>,
}

/// What changes of one rollout. It counts only if the stored version is the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutChange {
    /// The version that the decision was made by; 0: the rollout must not be there yet.
    pub expected: u64,
    /// The document, with its new version.
    pub document: RolloutDocument,
    /// Members that are new or changed.
    pub members: Vec<MemberRecord>,
    /// Members that go.
    pub removed: Vec<NodeId>,
    /// All members go.
    pub drops_members: bool,
}

/// What a decision rests on beside rollouts, by a version of it: the slots of a budget, or that a channel had no rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionGuard {
    /// The budget's identity, or the channel in words that no budget has.
    pub budget: String,
    /// The version that the decision was made by; 0: none is stored.
    pub expected: u64,
    /// The version to be stored.
    pub next: u64,
}

/// One rollout as it is stored, with the terms of its header.
#[derive(Clone, Debug)]
pub struct StoredRollout {
    /// The document.
    pub document: RolloutDocument,
    /// The terms.
    pub terms: Arc<RolloutTerms>,
    /// All members.
    pub members: Vec<MemberRecord>,
}

/// The stored versions of budgets, by their identity.
pub type BudgetVersions = BTreeMap<String, u64>;
