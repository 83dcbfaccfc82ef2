//! Rollouts on the operator port (ROL-1): how they stand, why a node has not changed yet, and orders to them.

use std::collections::BTreeMap;

use model::rollout::RolloutId;
use model::{Channel, Hostname, NodeId, Timestamp};
use rollout::{NodeRolloutState, RolloutState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NodeName;
use super::operation::{Limit, Operation, Page};

/// Rollouts, those of the newest releases first.
pub static ROLLOUTS: Operation<RolloutHistory, Vec<RolloutView>> = Operation::get("/v1/rollouts");
/// One rollout.
pub static ROLLOUT: Operation<RolloutName, RolloutView> = Operation::get("/v1/rollouts/{rollout}");
/// The nodes of a rollout by hostname, page by page.
pub static ROLLOUT_NODES: Operation<RolloutNodesQuery, RolloutNodesView> =
    Operation::get("/v1/rollouts/{rollout}/nodes");
/// Why a node has not changed yet; nothing for a node that is in no rollout.
pub static EXPLAIN_ROLLOUT: Operation<NodeName, Option<NodeRolloutView>> =
    Operation::get("/v1/nodes/{node}/rollout").in_scope();
/// Tells a rollout how to go on. It takes effect at once on all that did not begin.
pub static CONTROL_ROLLOUT: Operation<ControlRollout, RolloutView> =
    Operation::post("/v1/rollouts/{rollout}/{turn}").by_operators();

/// The most reasons for which nodes wait that one answer names.
pub const MAX_WAITING: usize = 10;

/// Rollouts, those of the newest releases first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RolloutHistory {
    /// Only those of this channel.
    pub channel: Option<Channel>,
    /// Only those of releases below this number.
    pub before: Option<u64>,
    /// The most in one answer.
    pub limit: Limit,
}

/// One rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RolloutName {
    /// Its id, or the beginning of it with seven digits at least, as `stable@4f1c2a9`; or a channel: the rollout of it that
    /// runs or is halted, else the one that waits, else the last one.
    pub rollout: String,
}

impl From<&str> for RolloutName {
    fn from(rollout: &str) -> RolloutName {
        RolloutName { rollout: rollout.to_owned() }
    }
}

/// The nodes of a rollout.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RolloutNodesQuery {
    /// Its id or channel, as in [`RolloutName`].
    pub rollout: String,
    /// Only those in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeRolloutState>,
    /// From this hostname on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The most in one answer.
    #[serde(default)]
    pub limit: Limit,
}

/// How a rollout stands.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutView {
    /// What the wire calls it.
    pub id: RolloutId,
    /// Its channel.
    pub channel: Channel,
    /// The number of its release.
    pub seq: u64,
    /// When the release was published.
    pub published: Timestamp,
    /// How it stands.
    pub state: RolloutState,
    /// Since when.
    pub since: Timestamp,
    /// The gate of its last wave passed, whatever became of it since: nodes that are confirmed stay, whatever goes back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_through: bool,
    /// Who paused it, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<RolloutPauseView>,
    /// Why it starts nothing any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<RolloutHaltView>,
    /// What it waits for before it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The freeze window that is open, in which it starts no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<RolloutFreezeView>,
    /// The newest release of the channel, where it is a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer: Option<NewerReleaseView>,
    /// Its nodes, by how they stand; nothing once it is pruned.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<NodeRolloutState, usize>,
    /// Its waves, in their order; nothing once it is pruned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<RolloutWaveView>,
    /// Why nodes that did not begin wait, and how nodes failed, the reason of the most first; of one rollout alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<RolloutWaitView>,
}

/// A freeze window that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutFreezeView {
    /// Its name in the fleet repo.
    pub window: String,
    /// When it ends; absent where the clocks were set back since it opened, and nobody can say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A release that came to a channel after the one of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewerReleaseView {
    /// Its number.
    pub seq: u64,
    /// It goes to all nodes of the channel at once, without a rollout.
    pub at_once: bool,
    /// What its rollout is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutId>,
    /// How that stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RolloutState>,
    /// What that waits for before it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

/// Who paused a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RolloutPauseView {
    /// The operator.
    pub by: String,
    /// Since when.
    pub at: Timestamp,
}

/// Why a rollout starts nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutHaltView {
    /// When.
    pub at: Timestamp,
    /// Why, for people.
    pub cause: String,
    /// What was started goes back.
    pub goes_back: bool,
    /// An operator ended it, so that it is not resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
}

/// One wave of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutWaveView {
    /// Its name.
    pub name: String,
    /// When it opened; absent while it is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<Timestamp>,
    /// It begins then at the earliest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Seconds for which a node's probes must pass.
    pub soak_secs: u64,
    /// Its nodes, by how they stand.
    pub nodes: BTreeMap<NodeRolloutState, usize>,
}

/// A reason for which nodes wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RolloutWaitView {
    /// The reason, for people.
    pub cause: String,
    /// How many nodes.
    pub nodes: usize,
}

/// Nodes of a rollout, in the order of hostnames.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RolloutNodesView {
    /// The nodes.
    pub nodes: Vec<NodeRolloutView>,
    /// The hostname with which the next page begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Hostname>,
}

impl Page for RolloutNodesView {
    type Item = NodeRolloutView;

    fn next_page(&self) -> Option<String> {
        self.next.as_ref().map(Hostname::to_string)
    }

    fn items(self) -> Vec<NodeRolloutView> {
        self.nodes
    }
}

/// How a node stands in its rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRolloutView {
    /// The node.
    pub node: NodeId,
    /// Its hostname.
    pub hostname: Hostname,
    /// The rollout.
    pub rollout: RolloutId,
    /// How the rollout stands.
    pub rollout_state: RolloutState,
    /// The node's wave.
    pub wave: String,
    /// How the node stands.
    pub state: NodeRolloutState,
    /// Since when.
    pub since: Timestamp,
    /// The release that it had before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// What keeps it from the release, for people; absent where it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Since when nothing is heard of its host, where that is for longer than it was to call; of one node alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
    /// The boot of its host in which it activated the release; of a node that is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// Its enforcing probes that passed since; of a node that is confirmed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
    /// The newest release of the rollout's channel, where that is a later one; of one node alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer: Option<NewerReleaseView>,
}

/// What a rollout is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RolloutTurn {
    /// The gate of the newest open wave counts as passed; one that waits after a halt may begin.
    Approve,
    /// No node is started until it is resumed.
    Pause,
    /// It goes on: after a pause, or after a halt in spite of what failed.
    Resume,
    /// It ends where it is.
    Abort,
    /// What was started goes back, where the signed terms allow that; refused once the rollout was through.
    Rollback,
    /// A node is taken out of it: it holds no slot and no wave.
    Skip,
}

impl std::fmt::Display for RolloutTurn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// An order to a rollout; its body may be left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlRollout {
    /// Its id or channel, as in [`RolloutName`].
    pub rollout: String,
    /// What to do.
    pub turn: RolloutTurn,
    /// The node that is taken out, by hostname or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The wave whose gate is approved: refused where another one is the newest by then. Absent: whichever is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<String>,
}

/// How the rollout of a channel's release stands, as the fleet's status has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelRolloutView {
    /// What the wire calls it.
    pub id: RolloutId,
    /// The number of its release.
    pub seq: u64,
    /// How it stands.
    pub state: RolloutState,
    /// Since when.
    pub since: Timestamp,
    /// Who paused it, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<RolloutPauseView>,
    /// How many nodes are confirmed.
    pub confirmed: usize,
    /// How many nodes it has.
    pub nodes: usize,
    /// What it waits for, who paused it, or what halted it; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The rollout of a newer release, which waits behind this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextRolloutView>,
}

/// The rollout of a channel's newest release while an earlier one runs or is halted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextRolloutView {
    /// What the wire calls it.
    pub id: RolloutId,
    /// The number of its release.
    pub seq: u64,
    /// Since when it waits.
    pub since: Timestamp,
    /// What for; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}
