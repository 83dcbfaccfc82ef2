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
    /// How many of them are pinned.
    #[serde(skip_serializing_if = "is_zero")]
    pub pinned: usize,
    /// How many of them are enrolled.
    pub enrolled: usize,
    /// How many of them are enrolled and not pinned: the wave waits for no other node.
    pub awaited: usize,
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

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl RolloutPlanView {
    /// No node of it is enrolled by now.
    fn is_of_nobody(&self) -> bool {
        self.waves.iter().all(|wave| wave.enrolled == 0)
    }
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
        pinned: wave.pinned,
        enrolled: wave.enrolled,
        awaited: wave.awaited,
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
    text_with(rollouts, true)
}

/// The same where nobody knows how many nodes there are.
pub(super) fn text_without_nodes(rollouts: &[RolloutPlanView]) -> String {
    text_with(rollouts, false)
}

fn text_with(rollouts: &[RolloutPlanView], knows_nodes: bool) -> String {
    let mut out = String::new();
    for rollout in rollouts {
        let id = rollout.id.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
        out.push_str(&format!("rollout{id} in channel {}:\n", rollout.channel));
        let width = rollout.waves.iter().map(|wave| wave.name.len()).max().unwrap_or(0);
        for (index, wave) in rollout.waves.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|before| rollout.waves.get(before));
            let begins = begins(before, wave, rollout);
            let note = if knows_nodes { note(wave, rollout.is_of_nobody()) } else { String::new() };
            let line = match (wave.is_whole_channel, knows_nodes) {
                (true, true) => format!("all nodes ({}), {begins}{note}", wave.nodes),
                (true, false) => format!("all nodes, {begins}"),
                (false, true) => {
                    format!("{:<width$}  {}, {begins}{note}", wave.name, plural(wave.nodes, "node"))
                }
                (false, false) => format!("{:<width$}  {begins}", wave.name),
            };
            out.push_str(&format!("  {line}\n"));
        }
        if knows_nodes && rollout.is_of_nobody() {
            out.push_str(&format!("  {}\n", of_nobody(rollout)));
        }
        let follows = match rollout.on_failure {
            OnFailure::Halt => "it stops by itself",
            OnFailure::Rollback => {
                "it stops by itself, and the nodes that began go back to the release before, if they had one"
            }
        };
        out.push_str(&format!("  when more fail than a gate allows, {follows}\n"));
    }
    out
}

/// What becomes of a rollout that has no node by now.
fn of_nobody(rollout: &RolloutPlanView) -> String {
    let waits = !rollout.after.is_empty() || rollout.waves.iter().any(|wave| wave.not_before.is_some());
    let when = if waits { "as soon as its last wave may begin" } else { "at once" };
    format!(
        "none of its nodes is enrolled by now: it is through {when}, and a host that joins later takes the release at \
         once, whatever its wave"
    )
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

/// Whom the wave does not wait for, and whom no wave takes. Where nobody is enrolled that is said of the whole rollout.
fn note(wave: &WavePlanView, is_of_nobody: bool) -> String {
    if wave.nodes == 0 {
        return "; nobody is in it by now, so it holds nothing up".to_owned();
    }
    let names = wave.taken_by_no_wave.join(", ");
    let taken = match wave.nodes.checked_sub(wave.taken_by_no_wave.len()) {
        _ if wave.taken_by_no_wave.is_empty() => String::new(),
        Some(more) if more > 0 => format!("; no wave takes {names} and {more} more"),
        _ => format!("; no wave takes {names}"),
    };
    let waits = not_awaited(wave).filter(|_| !is_of_nobody || wave.pinned == wave.nodes);
    waits.map(|waits| format!("; {waits}")).unwrap_or_default() + &taken
}

/// Why a wave does not wait for some of its nodes; nothing where it waits for all of them.
fn not_awaited(wave: &WavePlanView) -> Option<String> {
    let others = wave.nodes.saturating_sub(wave.awaited);
    let why = match (wave.pinned, wave.enrolled) {
        (pinned, _) if pinned == wave.nodes => "pinned",
        (0, _) | (_, 0) => "not enrolled by now",
        (_, enrolled) if enrolled == wave.nodes => "pinned",
        _ => "pinned or not enrolled by now",
    };
    match (wave.awaited, others) {
        (_, 0) => None,
        (0, 1) => Some(format!("its node is {why}, so it holds nothing up")),
        (0, _) => Some(format!("its nodes are {why}, so it holds nothing up")),
        (awaited, 1) => Some(format!("it waits for {awaited} of them, the other one is {why}")),
        (awaited, _) => Some(format!("it waits for {awaited} of them, the others are {why}")),
    }
}

#[cfg(test)]
mod tests {
    use model::window::DeclaredWindow;
    use trust::rollout_terms::FreezeTerms;

    use super::*;

    fn wave(name: &str, nodes: usize) -> WavePlanView {
        WavePlanView {
            name: name.to_owned(),
            not_before: None,
            nodes,
            pinned: 0,
            enrolled: nodes,
            awaited: nodes,
            soak_secs: 300,
            success: 100,
            taken_by_no_wave: Vec::new(),
            is_whole_channel: false,
        }
    }

    fn plan(waves: Vec<WavePlanView>) -> Result<RolloutPlanView, Box<dyn std::error::Error>> {
        let channel = "stable".parse()?;
        let on_failure = OnFailure::Halt;
        Ok(RolloutPlanView { channel, id: None, waves, on_failure, after: Vec::new(), frozen: None })
    }

    /// ROL-1: a publish says which wave waits for none of its nodes, or not for all, and why.
    #[test]
    fn who_is_not_waited_for_is_told() -> Result<(), Box<dyn std::error::Error>> {
        for (nodes, pinned, enrolled, awaited, said) in [
            (2, 0, 2, 2, ""),
            (1, 1, 1, 0, "; its node is pinned, so it holds nothing up"),
            (2, 2, 1, 0, "; its nodes are pinned, so it holds nothing up"),
            (2, 0, 0, 0, "; its nodes are not enrolled by now, so it holds nothing up"),
            (3, 1, 2, 0, "; its nodes are pinned or not enrolled by now, so it holds nothing up"),
            (3, 1, 0, 0, "; its nodes are not enrolled by now, so it holds nothing up"),
            (3, 1, 3, 2, "; it waits for 2 of them, the other one is pinned"),
            (3, 0, 1, 1, "; it waits for 1 of them, the others are not enrolled by now"),
            (5, 1, 3, 2, "; it waits for 2 of them, the others are pinned or not enrolled by now"),
        ] {
            let canary = WavePlanView { pinned, enrolled, awaited, ..wave("canary", nodes) };
            let text = text(&[plan(vec![canary, wave("rest", 1)])?]);
            let want = format!("  canary  {}, at once{said}\n", plural(nodes, "node"));
            assert!(text.contains(&want), "{want:?} is not in\n{text}");
            assert!(!text.contains("none of its nodes"), "{text}");
        }
        let whole = WavePlanView { pinned: 1, awaited: 2, is_whole_channel: true, ..wave("rest", 3) };
        let text = text(&[plan(vec![whole])?]);
        let want = "  all nodes (3), at once; it waits for 2 of them, the other one is pinned\n";
        assert!(text.contains(want), "{text}");
        Ok(())
    }

    /// ROL-1: a publish says so where no node of a rollout is enrolled: it is through at once, and its waves hold back nobody
    /// who joins later.
    #[test]
    fn a_rollout_of_nobody_is_told() -> Result<(), Box<dyn std::error::Error>> {
        let canary = WavePlanView { enrolled: 0, awaited: 0, ..wave("canary", 2) };
        let of = |waves: &[WavePlanView]| Ok::<_, Box<dyn std::error::Error>>(text(&[plan(waves.to_vec())?]));
        let want = "  canary  2 nodes, at once\n  none of its nodes is enrolled by now: it is through at once, and a host that \
                    joins later takes the release at once, whatever its wave\n";
        let said = of(std::slice::from_ref(&canary))?;
        assert!(said.contains(want), "{said}");
        assert!(of(&[])?.contains("none of its nodes is enrolled by now"), "a channel of patterns alone");
        let later = WavePlanView { not_before: Some("2027-01-31T12:00:00Z".parse()?), ..canary.clone() };
        let said = of(&[canary, later])?;
        assert!(said.contains("it is through as soon as its last wave may begin"), "{said}");
        let unknown = text_without_nodes(&[plan(vec![WavePlanView { enrolled: 0, ..wave("canary", 0) }])?]);
        assert!(unknown.contains("  canary  at once\n") && !unknown.contains("enrolled"), "{unknown}");
        Ok(())
    }

    /// ROL-1: a rollout that is published in a freeze window says until when it begins nothing.
    #[test]
    fn a_freeze_that_is_open_is_told() -> Result<(), Box<dyn std::error::Error>> {
        let window: DeclaredWindow =
            serde_json::from_value(serde_json::json!({"from": "22:00", "to": "04:00", "zone": "UTC"}))?;
        let freeze = vec![FreezeTerms { name: "nights".to_owned(), window }];
        let terms = RolloutTerms { freeze, ..RolloutTerms::default() };
        assert_eq!(frozen(&terms, "2027-01-31T12:00:00Z".parse()?), None);
        let frozen = frozen(&terms, "2027-01-31T23:00:00Z".parse()?);
        let plan = RolloutPlanView { frozen, ..plan(vec![wave("canary", 0)])? };
        let said = text(&[plan]);
        let want = "  canary  0 nodes, not while the freeze window nights is open (until 2027-02-01T04:00:00Z); nobody is in it \
                    by now, so it holds nothing up\n";
        assert!(said.contains(want), "{said}");
        Ok(())
    }
}
