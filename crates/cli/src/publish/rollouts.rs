//! What a publish says of its rollouts: which wave begins when, and with how many nodes.

use std::collections::BTreeMap;

use model::rollout::RolloutId;
use model::{Channel, Timestamp};
use resolve::rollouts::{ChannelRollout, PlannedWave};
use serde::Serialize;
use trust::rollout_terms::OnFailure;

use crate::screen::{aside, plural};

/// The rollout of one channel, for people and as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutPlanView {
    /// The channel.
    pub channel: Channel,
    /// What the wire calls it; nothing before it is published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<RolloutId>,
    /// Its waves, in order.
    pub waves: Vec<WavePlanView>,
    /// What follows when more nodes failed than a gate allows.
    pub on_failure: OnFailure,
    /// Channels whose rollouts end before this one begins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Channel>,
}

/// One wave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WavePlanView {
    /// Its name.
    pub name: String,
    /// It begins then at the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// How many nodes are in it.
    pub nodes: usize,
    /// Seconds for which each of them must be well.
    pub soak_secs: u64,
    /// Of a hundred of them so many must be confirmed before the next one opens.
    pub success: u8,
    /// Nodes that no declared wave takes, the first of them by name; only of the implied last wave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taken_by_no_wave: Vec<String>,
}

/// The rollouts as they are shown; with their ids once they are published.
pub(super) fn views(
    rollouts: &[ChannelRollout],
    ids: Option<&BTreeMap<Channel, RolloutId>>,
) -> Vec<RolloutPlanView> {
    let wave = |wave: &PlannedWave| WavePlanView {
        name: wave.name.clone(),
        not_before: wave.not_before,
        nodes: wave.nodes,
        soak_secs: wave.gate.soak_secs,
        success: wave.gate.success,
        taken_by_no_wave: wave.first.iter().map(ToString::to_string).collect(),
    };
    let view = |rollout: &ChannelRollout| RolloutPlanView {
        channel: rollout.channel.clone(),
        id: ids.and_then(|ids| ids.get(&rollout.channel)).cloned(),
        waves: rollout.waves.iter().map(wave).collect(),
        on_failure: rollout.terms.on_failure,
        after: rollout.terms.after.clone(),
    };
    rollouts.iter().map(view).collect()
}

/// Names what is no mistake in them, and may be a slip of the pen.
pub(super) fn warn(rollouts: &[ChannelRollout]) {
    for warning in rollouts.iter().flat_map(|rollout| &rollout.warnings) {
        aside(&format!("warning: {warning}"));
    }
}

/// The channels whose policy changes, in words; nothing where none does.
pub(super) fn changed(channels: &[Channel]) -> String {
    let names: Vec<String> = channels.iter().map(ToString::to_string).collect();
    match names.len() {
        0 => String::new(),
        1 => format!("the rollout of channel {} is another one", names.join(", ")),
        _ => format!("the rollouts of channels {} are other ones", names.join(", ")),
    }
}

/// Which wave begins when, channel by channel.
pub(super) fn text(rollouts: &[RolloutPlanView]) -> String {
    let mut out = String::new();
    for rollout in rollouts {
        let id = rollout.id.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
        out.push_str(&format!("rollout{id} in channel {}:\n", rollout.channel));
        let width = rollout.waves.iter().map(|wave| wave.name.len()).max().unwrap_or(0);
        for (index, wave) in rollout.waves.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|before| rollout.waves.get(before));
            let begins = begins(before, wave, rollout);
            let nodes = plural(wave.nodes, "node");
            let untaken = untaken(wave);
            out.push_str(&format!("  {:<width$}  {nodes}, {begins}{untaken}\n", wave.name));
        }
        let follows = match rollout.on_failure {
            OnFailure::Halt => "it stops by itself",
            OnFailure::Rollback => "it stops by itself, and the nodes that began go back",
        };
        out.push_str(&format!("  when more fail than a gate allows, {follows}\n"));
    }
    out
}

fn begins(before: Option<&WavePlanView>, wave: &WavePlanView, rollout: &RolloutPlanView) -> String {
    let mut conditions = Vec::new();
    match before {
        Some(before) => conditions.push(format!(
            "after {} % of {} confirmed it and soaked {}",
            before.success,
            before.name,
            soak(before.soak_secs)
        )),
        None if rollout.after.is_empty() => {}
        None => {
            let names: Vec<&str> = rollout.after.iter().map(Channel::as_str).collect();
            conditions.push(format!("after the rollouts of {}", names.join(", ")));
        }
    }
    conditions.extend(wave.not_before.map(|at| format!("not before {at}")));
    if conditions.is_empty() { "at once".to_owned() } else { conditions.join(", ") }
}

fn soak(secs: u64) -> String {
    catalog::duration::show(u32::try_from(secs).unwrap_or(u32::MAX))
}

fn untaken(wave: &WavePlanView) -> String {
    let names = wave.taken_by_no_wave.join(", ");
    match wave.nodes.checked_sub(wave.taken_by_no_wave.len()) {
        _ if wave.taken_by_no_wave.is_empty() => String::new(),
        Some(more) if more > 0 => format!("; no wave takes {names} and {more} more"),
        _ => format!("; no wave takes {names}"),
    }
}
