//! What a publish says of its rollouts: which wave begins when, and with how many nodes.

use std::collections::BTreeMap;

use model::rollout::RolloutId;
use model::window::TimeWindow;
use model::{Channel, Timestamp};
use resolve::rollouts::{ChannelRollout, PlannedWave};
use serde::Serialize;
use server::api::rollouts::RolloutFreezeView;
use trust::RolloutTerms;
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
    /// The freeze window that is open as it is published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<RolloutFreezeView>,
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
    /// No wave is declared: all nodes of the channel are in this one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_whole_channel: bool,
}

/// The rollouts as they are shown at a time; with their ids once they are published.
pub(super) fn views(
    rollouts: &[ChannelRollout],
    ids: Option<&BTreeMap<Channel, RolloutId>>,
    now: Timestamp,
) -> Vec<RolloutPlanView> {
    let wave = |wave: &PlannedWave| WavePlanView {
        name: wave.name.clone(),
        not_before: wave.not_before,
        nodes: wave.nodes,
        soak_secs: wave.gate.soak_secs,
        success: wave.gate.success,
        taken_by_no_wave: wave.first.iter().map(ToString::to_string).collect(),
        is_whole_channel: false,
    };
    let waves = |rollout: &ChannelRollout| -> Vec<WavePlanView> {
        match rollout.waves.as_slice() {
            [only] if only.is_implied => {
                vec![WavePlanView { taken_by_no_wave: Vec::new(), is_whole_channel: true, ..wave(only) }]
            }
            waves => waves.iter().map(wave).collect(),
        }
    };
    let view = |rollout: &ChannelRollout| RolloutPlanView {
        channel: rollout.channel.clone(),
        id: ids.and_then(|ids| ids.get(&rollout.channel)).cloned(),
        waves: waves(rollout),
        on_failure: rollout.terms.on_failure,
        after: rollout.terms.after.clone(),
        frozen: frozen(&rollout.terms, now),
    };
    rollouts.iter().map(view).collect()
}

/// Names what is no mistake in them, and may be a slip of the pen.
pub(super) fn warn(rollouts: &[ChannelRollout]) {
    for warning in rollouts.iter().flat_map(|rollout| &rollout.warnings) {
        aside(&format!("warning: {warning}"));
    }
}

/// The freeze window that is open at a time.
pub(super) fn frozen(terms: &RolloutTerms, now: Timestamp) -> Option<RolloutFreezeView> {
    terms.freeze.iter().find_map(|freeze| {
        let window = TimeWindow::read(&freeze.window).ok().filter(|window| window.contains(now))?;
        let until = window.opened(now).map(|opened| opened.plus(window.length()));
        Some(RolloutFreezeView { window: freeze.name.clone(), until })
    })
}

/// The channels whose policy changes, in words; nothing where none does. `has_rollout` says of which a release still
/// goes out in waves.
pub(super) fn changed(channels: &[Channel], has_rollout: impl Fn(&Channel) -> bool) -> String {
    let (staged, at_once): (Vec<&Channel>, Vec<&Channel>) =
        channels.iter().partition(|channel| has_rollout(channel));
    let names: Vec<&str> = staged.iter().map(|channel| channel.as_str()).collect();
    let staged = match names.len() {
        0 => None,
        1 => Some(format!("the rollout of channel {} is another one", names.join(", "))),
        _ => Some(format!("the rollouts of channels {} are other ones", names.join(", "))),
    };
    let at_once = at_once.into_iter().map(goes_at_once);
    staged.into_iter().chain(at_once).collect::<Vec<_>>().join("; ")
}

/// What becomes of a channel whose rollout is declared no more.
pub(super) fn goes_at_once(channel: &Channel) -> String {
    format!(
        "channel {channel} declares no rollout any more: this release goes to all its nodes at once, and ends what \
         is under way there"
    )
}

/// Which wave begins when, channel by channel.
pub(super) fn text(rollouts: &[RolloutPlanView]) -> String {
    text_with(rollouts, |wave| match wave.is_whole_channel {
        true => (format!(" ({})", wave.nodes), String::new()),
        false => (format!("{}, ", plural(wave.nodes, "node")), note(wave)),
    })
}

/// The same where nobody knows how many nodes there are.
pub(super) fn text_without_nodes(rollouts: &[RolloutPlanView]) -> String {
    text_with(rollouts, |_| (String::new(), String::new()))
}

/// With what is said of a wave's nodes, before and behind the time at which it begins.
fn text_with(rollouts: &[RolloutPlanView], nodes: impl Fn(&WavePlanView) -> (String, String)) -> String {
    let mut out = String::new();
    for rollout in rollouts {
        let id = rollout.id.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
        out.push_str(&format!("rollout{id} in channel {}:\n", rollout.channel));
        let width = rollout.waves.iter().map(|wave| wave.name.len()).max().unwrap_or(0);
        for (index, wave) in rollout.waves.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|before| rollout.waves.get(before));
            let begins = begins(before, wave, rollout);
            let (nodes, note) = nodes(wave);
            match wave.is_whole_channel {
                true => out.push_str(&format!("  all nodes{nodes}, {begins}\n")),
                false => out.push_str(&format!("  {:<width$}  {nodes}{begins}{note}\n", wave.name)),
            }
        }
        let follows = match rollout.on_failure {
            OnFailure::Halt => "it stops by itself",
            OnFailure::Rollback => {
                "it stops by itself, and the nodes that began go back to the release before"
            }
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
    if let (None, Some(RolloutFreezeView { window, until })) = (before, &rollout.frozen) {
        let until = until.map_or_else(|| "once that ends".to_owned(), |at| format!("until {at}"));
        conditions.push(format!("not while the freeze window {window} is open ({until})"));
    }
    if conditions.is_empty() { "at once".to_owned() } else { conditions.join(", ") }
}

fn soak(secs: u64) -> String {
    catalog::duration::show(u32::try_from(secs).unwrap_or(u32::MAX))
}

fn note(wave: &WavePlanView) -> String {
    if wave.nodes == 0 {
        return "; nobody is in it by now, so it holds nothing up".to_owned();
    }
    let names = wave.taken_by_no_wave.join(", ");
    match wave.nodes.checked_sub(wave.taken_by_no_wave.len()) {
        _ if wave.taken_by_no_wave.is_empty() => String::new(),
        Some(more) if more > 0 => format!("; no wave takes {names} and {more} more"),
        _ => format!("; no wave takes {names}"),
    }
}

#[cfg(test)]
mod tests {
    use model::window::DeclaredWindow;
    use trust::rollout_terms::FreezeTerms;

    use super::*;

    /// ROL-1: a rollout that is published in a freeze window says until when it begins nothing.
    #[test]
    fn a_freeze_that_is_open_is_told() -> Result<(), Box<dyn std::error::Error>> {
        let window: DeclaredWindow =
            serde_json::from_value(serde_json::json!({"from": "22:00", "to": "04:00", "zone": "UTC"}))?;
        let freeze = vec![FreezeTerms { name: "nights".to_owned(), window }];
        let terms = RolloutTerms { freeze, ..RolloutTerms::default() };
        assert_eq!(frozen(&terms, "2027-01-31T12:00:00Z".parse()?), None);
        let wave = WavePlanView {
            name: "canary".to_owned(),
            not_before: None,
            nodes: 0,
            soak_secs: 300,
            success: 100,
            taken_by_no_wave: Vec::new(),
            is_whole_channel: false,
        };
        let plan = RolloutPlanView {
            channel: "stable".parse()?,
            id: None,
            waves: vec![wave],
            on_failure: OnFailure::Halt,
            after: Vec::new(),
            frozen: frozen(&terms, "2027-01-31T23:00:00Z".parse()?),
        };
        let said = text(&[plan]);
        let want = "  canary  0 nodes, not while the freeze window nights is open (until 2027-02-01T04:00:00Z); nobody is in it \
                    by now, so it holds nothing up\n";
        assert!(said.contains(want), "{said}");
        Ok(())
    }
}
