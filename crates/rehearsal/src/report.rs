//! [`RehearsalReport`]: what a rehearsal came to.
//!
//! Times are seconds since the release was published.

use model::{Channel, Hostname, Timestamp};
use rollout::NodeRolloutState;
use serde::Serialize;

use crate::faults::{FaultShares, NodeFault};

/// What a rehearsal came to.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RehearsalReport {
    /// The channel.
    pub channel: Channel,
    /// What drew the faults; with it, the same fleet, shares and begin the report is the same.
    pub seed: u64,
    /// When the release was published, in the rehearsal.
    pub begins: Timestamp,
    /// The shares of faults that were asked for.
    pub shares: FaultShares,
    /// How many nodes these came to.
    pub faults: FaultCounts,
    /// How the rollout ended.
    pub outcome: RehearsalOutcome,
    /// When the last node changed, or the rollout ended if that was later.
    pub lasts_secs: u64,
    /// What stopped it; absent where nothing did.
    pub stop: Option<StopReport>,
    /// The most nodes in flight at a time.
    pub in_flight: InFlightPeak,
    /// The waves in their order, the implied last one included where it has nodes.
    pub waves: Vec<WaveReport>,
    /// The budgets.
    pub budgets: Vec<BudgetReport>,
    /// Nodes that are not on the release at the end and did not fail, by what they wait for; the most first.
    pub waiting: Vec<WaitingNodes>,
    /// The nodes, by hostname.
    pub nodes: Vec<NodeForecast>,
}

/// How a rollout ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RehearsalOutcome {
    /// Every gate passed.
    Through,
    /// It stopped; what was changed stays changed, but for nodes that returned by themselves.
    Halted,
    /// It stopped, and what was changed went back.
    WentBack,
    /// It stopped, and is not back.
    GoingBack,
    /// It is not through after 400 days.
    Unfinished,
}

/// How many nodes had which fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultCounts {
    /// Their probes fail.
    pub fail: usize,
    /// Of these, nodes without an enforcing probe: nothing sees that they are not well.
    pub unseen: usize,
    /// They are not reached.
    pub offline: usize,
    /// They are slow.
    pub slow: usize,
    /// They call seldom.
    pub seldom: usize,
    /// The release takes the network from them.
    pub cut_off: usize,
}

/// What stopped a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StopReport {
    /// When.
    pub at_secs: u64,
    /// What, as a sentence.
    pub cause: String,
    /// The wave whose gate it was.
    pub wave: String,
    /// How many of it failed.
    pub failed: u64,
    /// How many may.
    pub allowed: u64,
    /// One of them.
    pub example: Hostname,
    /// How many nodes had begun until then.
    pub begun: usize,
}

/// The most nodes in flight at a time: asked, on their way, or failed and not back.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InFlightPeak {
    /// How many.
    pub most: usize,
    /// When there were so many the first time; absent where there were none.
    pub at_secs: Option<u64>,
}

/// What became of a wave.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaveReport {
    /// Its name.
    pub name: String,
    /// How many nodes it has.
    pub nodes: usize,
    /// When it may begin at the earliest, if the terms say so.
    pub not_before: Option<Timestamp>,
    /// How long each of its nodes soaks.
    pub soak_secs: u64,
    /// Of a hundred of its nodes so many must be confirmed.
    pub success: u8,
    /// So many failures stop the rollout; absent where nothing does.
    pub stops_at: Option<usize>,
    /// When it opened; absent where it did not.
    pub opened_secs: Option<u64>,
    /// When the last of its nodes was confirmed, failed or was back.
    pub ended_secs: Option<u64>,
    /// How many are confirmed.
    pub confirmed: usize,
    /// How many failed and are on the release still.
    pub failed: usize,
    /// How many are back on the release of before.
    pub returned: usize,
    /// How many are not reached.
    pub offline: usize,
    /// How many others are not on the release.
    pub waiting: usize,
}

/// How full a budget was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetReport {
    /// Its nodes.
    #[serde(rename = "where")]
    pub of: String,
    /// How many these are.
    pub nodes: usize,
    /// How many of them may be in flight.
    pub limit: usize,
    /// The most that were.
    #[serde(flatten)]
    pub peak: InFlightPeak,
}

/// Nodes that wait for the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingNodes {
    /// How many.
    pub count: usize,
    /// What for, as a sentence.
    pub cause: String,
    /// The first of them.
    pub example: Hostname,
}

/// What became of a node.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeForecast {
    /// Its hostname.
    pub hostname: Hostname,
    /// Its wave.
    pub wave: String,
    /// What went wrong with it.
    pub fault: Option<NodeFault>,
    /// All takes it longer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub slow: bool,
    /// It calls seldom.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub seldom: bool,
    /// How it stands at the end.
    pub state: NodeRolloutState,
    /// When it was asked.
    pub asked_secs: Option<u64>,
    /// When it began.
    pub began_secs: Option<u64>,
    /// When it was switched, by what the control plane heard.
    pub switched_secs: Option<u64>,
    /// When it was confirmed, whatever became of it later.
    pub confirmed_secs: Option<u64>,
    /// When it failed, whatever became of it later.
    pub failed_secs: Option<u64>,
    /// When it was confirmed, failed or was back: the last of these.
    pub ended_secs: Option<u64>,
    /// What keeps it from the release; absent where it is confirmed.
    pub cause: Option<String>,
}
