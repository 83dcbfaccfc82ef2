//! [`NodeRolloutState`] and [`RolloutState`]: how a node and a rollout stand, and what may follow what.
//!
//! A node in a rollout:
//!
//! | from | to | when |
//! | --- | --- | --- |
//! | Pending | Activating | the node acknowledged that it was asked, and the acknowledgement was taken |
//! | Pending | Failed | it refused or let pass too many requests; it changed nothing |
//! | Activating | Pending | it did not begin, and says why: its own clock or its administrator keeps it |
//! | Activating | Soaking | it runs the release and says so, with its boot |
//! | Activating | Deferred | the release is in place and takes effect at the next boot |
//! | Activating | Failed | the activation failed, or the node fell silent in it |
//! | Activating | Reverted | it returned: by itself, or because the rollout goes back |
//! | Deferred | Soaking | it booted into the release |
//! | Deferred | Failed | it was not heard of for too long |
//! | Deferred | Reverted | it returned before or at the boot |
//! | Soaking | Converged | every declared enforcing probe passed after the activation, and the soak is over |
//! | Soaking | Failed | its probes failed for long enough, or it fell silent |
//! | Soaking | Reverted | it returned |
//! | Converged | Activating | the rollout goes back and was never through, and the node acknowledged that it was asked to |
//! | Converged | Failed | it says that it goes back by itself, or that its probes fail; or it refused or let pass too many requests to go back |
//! | Converged | Reverted | it returned by itself, before it heard that the rollout was through |
//! | Failed | Reverted | it is on the release that it had before |
//! | Failed | Activating | it had fallen silent while it activated, and is heard of again |
//! | Failed | Deferred | it had fallen silent before its boot, and is heard of again |
//! | Failed | Soaking | it had fallen silent while it soaked, and is heard of again |
//!
//! How the host stands by its own record (`activation::ActivationStage`) meanwhile, side by side:
//!
//! | here | on the host | what it said last |
//! | --- | --- | --- |
//! | Pending | `Settled`, or on probation of a release before | nothing, or why it does not begin |
//! | Activating | `Armed`: it switches | `DispatchAck`, `ActivationStarted` |
//! | Deferred | `Deferred` | `ActivationDeferred` |
//! | Soaking | `Confirming`, then `Probation` while the soak goes on | `ActivationComplete`, probes |
//! | Converged | `Probation` until it hears `through`, then `Settled` | `Converged` |
//! | Failed | `Returning`; where its terms say `halt`, `Probation` | `Failed` |
//! | Reverted | `Settled` | `RollbackComplete` |
//!
//! "Confirmed" is two moments. The host confirms for itself, by a contact and its probes, in the middle of `Soaking`: from
//! then on it is where a return leads. The fleet counts a node as confirmed once it converged, after its soak. `Converged`,
//! and of rollouts `Opening`, `Converging` and `Terminal`, are the words of the source document; people read
//! [`NodeRolloutState::words`] and [`RolloutState::words`].
//!
//! A rollout:
//!
//! | from | to | when |
//! | --- | --- | --- |
//! | Opening | Active | no other rollout of the channel runs, and the channels before it are through |
//! | Opening | Superseded | a newer release waits in its place, or an operator aborted it while another one is the channel's current |
//! | Opening | Failed | an operator aborted it, and the channel has no other one: it says where its nodes stay |
//! | Active | Converging | its last wave is open |
//! | Active | Failed | more nodes failed than a gate allows, or an operator aborted it |
//! | Converging | Terminal | the gate of its last wave passed |
//! | Converging | Failed | more nodes failed than a gate allows, or an operator aborted it |
//! | Terminal | Failed | late nodes failed beyond a gate; those that are confirmed stay |
//! | Terminal | Superseded | a newer release of the channel began |
//! | Failed | Active | an operator resumed it |
//! | Failed | Reverted | every node that is to go back and can be reached is back |
//! | Failed | Superseded | a newer release of the channel began |
//! | Reverted | Superseded | a newer release of the channel began |
//! | Superseded | Pruned | it was kept for its time, and no node is on its way in it |
//!
//! `Terminal` and `Reverted` are of the rollout, not the end of its work: a node that comes back later is
//! taken along under the same budgets. A release of the channel that goes to its nodes at once takes the place of a
//! rollout as one that begins does; one that runs is aborted by it first. Of a superseded rollout that is past its time, and
//! in which nodes are on their way yet, these alone are kept. A test holds both tables.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a node stands in a rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum NodeRolloutState {
    /// It is on the release that it had; it may have been asked to begin.
    #[default]
    Pending,
    /// It began.
    Activating,
    /// It is activated, and its probes are watched.
    Soaking,
    /// It is confirmed.
    Converged,
    /// It is activated at its next boot.
    Deferred,
    /// It failed, or fell silent.
    Failed,
    /// It is back on the release that it had.
    Reverted,
}

/// How a rollout stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RolloutState {
    /// It waits to begin.
    #[default]
    Opening,
    /// Waves are to be opened yet.
    Active,
    /// All waves are open.
    Converging,
    /// All gates passed.
    Terminal,
    /// It went back.
    Reverted,
    /// It is halted or aborted; it starts nothing.
    Failed,
    /// A newer one took its place.
    Superseded,
    /// Only its document is left.
    Pruned,
}

impl NodeRolloutState {
    /// All of them.
    pub const ALL: [NodeRolloutState; 7] = [
        NodeRolloutState::Pending,
        NodeRolloutState::Activating,
        NodeRolloutState::Soaking,
        NodeRolloutState::Converged,
        NodeRolloutState::Deferred,
        NodeRolloutState::Failed,
        NodeRolloutState::Reverted,
    ];

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            NodeRolloutState::Pending => "pending",
            NodeRolloutState::Activating => "activating",
            NodeRolloutState::Soaking => "soaking",
            NodeRolloutState::Converged => "confirmed",
            NodeRolloutState::Deferred => "deferred to its boot",
            NodeRolloutState::Failed => "failed",
            NodeRolloutState::Reverted => "back",
        }
    }

    /// Whether another state may follow.
    pub fn may_become(self, next: NodeRolloutState) -> bool {
        use NodeRolloutState::{Activating, Converged, Deferred, Failed, Pending, Reverted, Soaking};
        match self {
            Pending => matches!(next, Activating | Failed),
            Activating => matches!(next, Pending | Soaking | Deferred | Failed | Reverted),
            Deferred => matches!(next, Soaking | Failed | Reverted),
            Soaking => matches!(next, Converged | Failed | Reverted),
            Converged => matches!(next, Activating | Failed | Reverted),
            Failed => matches!(next, Reverted | Activating | Deferred | Soaking),
            Reverted => false,
        }
    }
}

impl RolloutState {
    /// All of them.
    pub const ALL: [RolloutState; 8] = [
        RolloutState::Opening,
        RolloutState::Active,
        RolloutState::Converging,
        RolloutState::Terminal,
        RolloutState::Reverted,
        RolloutState::Failed,
        RolloutState::Superseded,
        RolloutState::Pruned,
    ];

    /// Whether another state may follow.
    pub fn may_become(self, next: RolloutState) -> bool {
        use RolloutState::{Active, Converging, Failed, Opening, Pruned, Reverted, Superseded, Terminal};
        match self {
            Opening => matches!(next, Active | Superseded | Failed),
            Active => matches!(next, Converging | Failed),
            Converging => matches!(next, Terminal | Failed),
            Terminal => matches!(next, Failed | Superseded),
            Failed => matches!(next, Active | Reverted | Superseded),
            Reverted => matches!(next, Superseded),
            Superseded => matches!(next, Pruned),
            Pruned => false,
        }
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            RolloutState::Opening => "waiting to begin",
            RolloutState::Active => "under way",
            RolloutState::Converging => "in its last wave",
            RolloutState::Terminal => "through",
            RolloutState::Reverted => "back",
            RolloutState::Failed => "halted",
            RolloutState::Superseded => "superseded",
            RolloutState::Pruned => "kept as a document",
        }
    }

    /// It takes nodes to its release.
    pub fn starts_nodes(self) -> bool {
        matches!(self, RolloutState::Active | RolloutState::Converging | RolloutState::Terminal)
    }

    /// Another release of the channel took its place.
    pub fn gave_way(self) -> bool {
        matches!(self, RolloutState::Superseded | RolloutState::Pruned)
    }

    /// It keeps the channel's next rollout waiting.
    pub fn is_running(self) -> bool {
        matches!(self, RolloutState::Active | RolloutState::Converging)
    }
}

impl fmt::Display for NodeRolloutState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl fmt::Display for RolloutState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
