//! [`RolloutTerms`]: what a release says of how it reaches the nodes of its channel (ROL-1, ROL-2).
//!
//! The terms are rules and not lists of hosts, so they have a few KiB whatever the size of the fleet.
//! Control plane and node evaluate the same rules over what the release declares of a node; nothing that a
//! node observes of itself moves it into another wave. They are part of what is signed, so a control plane
//! can neither widen a budget nor open a wave before its `notBefore` at a node that checks it.
//!
//! [`RolloutTerms::mistakes`] finds everything wrong that the terms alone show. What only shows beside the
//! declared nodes (a wave that nobody is in, edges that close a cycle over their members) is found by the
//! `rollout` crate's coverage.

mod check;
mod cycles;

use std::time::Duration;

use lang::Selector;
use model::share::Share;
use model::window::DeclaredWindow;
use model::{Channel, Hostname, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use check::{TermsEntry, TermsMistake};
pub use cycles::cycles;

/// The most waves of one rollout, the implied last one not counted.
pub const MAX_WAVES: usize = 32;
/// The most budgets of one rollout.
pub const MAX_BUDGETS: usize = 32;
/// The most edges between hosts.
pub const MAX_EDGES: usize = 32;
/// The most channels that a channel goes after.
pub const MAX_AFTER: usize = 16;
/// The most pins.
pub const MAX_PINS: usize = 64;
/// The most nodes of one pin.
pub const MAX_PINNED: usize = 64;
/// The most freeze windows.
pub const MAX_FREEZES: usize = 16;
/// The largest terms, as JSON, in bytes.
pub const MAX_TERMS_BYTES: usize = 16 * 1024;
/// The longest seed and the longest reason, in bytes.
pub const MAX_TERMS_TEXT: usize = 200;
/// The longest soak, in seconds: 30 days.
pub const MAX_SOAK_SECS: u64 = 30 * 24 * 3600;
/// The furthest that a `notBefore` lies after the signature: a year.
pub const MAX_NOT_BEFORE: Duration = Duration::from_secs(366 * 24 * 3600);
/// The shortest and the longest window to confirm in, in seconds.
pub const CONFIRM_WINDOW_SECS: std::ops::RangeInclusive<u64> = 60..=24 * 3600;
/// The most tries to confirm (ROL-7).
pub const MAX_CONFIRM_TRIES: u8 = 5;
/// The name of the wave of all nodes that no other wave takes.
pub const REST: &str = "rest";
/// The soak of a gate that says nothing of it, in seconds.
pub const DEFAULT_SOAK_SECS: u64 = 300;

/// The rollout section of a release header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutTerms {
    /// Waves in their order. A node is in the first whose rule takes it; the nodes that none takes are in
    /// an implied last wave, [`REST`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<WaveTerms>,
    /// How many nodes may be in flight, over all rollouts whose terms have the same budget.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetTerms>,
    /// Which nodes go before which others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<NodeEdge>,
    /// This channel begins after the rollouts of these ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Channel>,
    /// What happens when more nodes failed than a gate allows.
    pub on_failure: OnFailure,
    /// How a node confirms what it activated.
    pub confirm: ConfirmTerms,
    /// What the nodes of percent waves are drawn with; another seed draws other nodes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub seed: String,
    /// Nodes that stay where they are for some time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinTerms>,
    /// Windows in which no node is started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub freeze: Vec<FreezeTerms>,
}

impl RolloutTerms {
    /// The same terms for a later signature: pins that are over by then are left out. A `notBefore` stays, past or not.
    pub fn signed_again(mut self, created: Timestamp) -> RolloutTerms {
        self.pins.retain(|pin| pin.until > created);
        self
    }
}

/// One wave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaveTerms {
    /// Its name, for people and commands: a to z, 0 to 9, `-` and `_`.
    pub name: String,
    /// Which nodes it takes of those that no wave before it took.
    pub members: WaveMembers,
    /// It begins at this time at the earliest; nodes check it too, with 60 s slack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// What must be true of it before the next wave opens.
    #[serde(default)]
    pub gate: GateTerms,
}

/// Which nodes a wave takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WaveMembers {
    /// Those that a selector takes by what is declared of them.
    Where(#[schemars(with = "String")] Selector),
    /// Those whose draw, a number below 10,000 that seed and hostname give, is below a hundred times this.
    /// So the percentages of several waves are of the whole channel, and rise.
    Percent(u8),
    /// All that are left.
    Rest,
}

/// What must be true of a wave before the next one opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateTerms {
    /// Seconds for which a node's probes must pass, from the node's own activation.
    pub soak_secs: u64,
    /// Of a hundred nodes of the wave so many must be confirmed; when more failed, the rollout halts.
    pub success: u8,
}

impl Default for GateTerms {
    fn default() -> GateTerms {
        GateTerms { soak_secs: DEFAULT_SOAK_SECS, success: 100 }
    }
}

/// How many nodes of some may be in flight at a time. Two budgets that are equal are one, whichever
/// rollouts they stand in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetTerms {
    /// Of these nodes.
    #[serde(rename = "where")]
    #[schemars(with = "String")]
    pub of: Selector,
    /// So many; a percentage is of the nodes of the rollouts that have the budget, rounded down, and at
    /// least one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<Share>,
    /// Never more than so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

impl BudgetTerms {
    /// How many may be in flight when it is a budget of so many nodes.
    pub fn limit(&self, population: usize) -> usize {
        let share = self.in_flight.map_or(usize::MAX, |share| share.at_most(population).max(1));
        share.min(self.max.map_or(usize::MAX, |max| max as usize))
    }
}

/// An edge between hosts: while a node of `before` is on its way or may still begin in an open wave, no node
/// of `after` begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeEdge {
    /// These go first.
    #[schemars(with = "String")]
    pub before: Selector,
    /// These wait.
    #[schemars(with = "String")]
    pub after: Selector,
}

/// What happens when more nodes failed than a gate allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// Nothing more is started, in the same wave neither.
    #[default]
    Halt,
    /// That, and every node that was started returns to the release that it had.
    Rollback,
}

/// How a node confirms what it activated (ROL-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfirmTerms {
    /// Seconds in which it must confirm, or it returns by itself.
    pub window_secs: u64,
    /// Tries, spread over the window.
    pub tries: u8,
    /// Whether a node may confirm that does not reach the control plane.
    #[serde(default)]
    pub offline: OfflineConfirm,
}

impl Default for ConfirmTerms {
    fn default() -> ConfirmTerms {
        ConfirmTerms { window_secs: 600, tries: MAX_CONFIRM_TRIES, offline: OfflineConfirm::Return }
    }
}

/// What a node does whose window ends without the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OfflineConfirm {
    /// It returns: the change may be what cut it off.
    #[default]
    Return,
    /// It confirms when all else is well.
    Confirm,
}

/// Nodes that stay where they are for some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinTerms {
    /// The nodes, by hostname.
    pub nodes: Vec<Hostname>,
    /// Until when.
    pub until: Timestamp,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A window in which no node is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FreezeTerms {
    /// Its name in the fleet repo.
    pub name: String,
    /// When it is.
    #[schemars(with = "serde_json::Value")]
    pub window: DeclaredWindow,
}
