//! Rollouts for people.

use std::collections::BTreeMap;

use model::Timestamp;
use rollout::{NodeRolloutState, RolloutState};
use server::api::NodeView;
use server::api::rollouts::{
    NewerReleaseView, NodeRolloutView, RolloutFreezeView, RolloutPauseView, RolloutTurn, RolloutView,
    RolloutWaveView,
};

use crate::clock::{ago, now};
use crate::next_step::muster;
use crate::screen::{Mark, Screen};
use crate::table::table;

/// Rollouts as a table.
pub fn list(rollouts: &[RolloutView], screen: Screen) -> String {
    let now = now();
    let row = |view: &RolloutView| {
        [
            view.id.to_string(),
            view.seq.to_string(),
            screen.mark(mark(view.state), words_of(view)),
            format!("{} ago", ago(since(view), now)),
            counts(&view.nodes),
            why(view).unwrap_or_default(),
        ]
    };
    table(&["ROLLOUT", "RELEASE", "STATE", "SINCE", "NODES", "WHY"], rollouts.iter().map(row))
}

/// A rollout: how it stands, its waves, why nodes wait, and what to do.
pub fn show(view: &RolloutView, screen: Screen) -> String {
    let now = now();
    let mut out = format!(
        "rollout {}  release {} of channel {}, published {} ago\nit is {} since {}\n",
        screen.mark(Mark::Bold, view.id.as_str()),
        view.seq,
        view.channel,
        ago(view.published, now),
        screen.mark(mark(view.state), words_of(view)),
        ago(since(view), now),
    );
    if let Some(why) = why(view) {
        out.push_str(&format!("because {why}\n"));
    }
    if let Some(frozen) = &view.frozen {
        out.push_str(&format!("no node begins: {}\n", freeze(frozen)));
    }
    if let Some(newer) = view.newer.as_ref().and_then(newer) {
        out.push_str(&format!("{newer}\n"));
    }
    if let Some(next) = next(view) {
        out.push_str(&format!("next: {next}\n"));
    }
    if !view.waves.is_empty() {
        let rows = view.waves.iter().map(|wave| wave_row(wave, now));
        out.push_str(&format!("\n{}", table(&["WAVE", "OPEN", "SOAK", "NODES"], rows)));
    }
    if !view.waiting.is_empty() {
        let rows = view.waiting.iter().map(|wait| [wait.nodes.to_string(), wait.cause.clone()]);
        out.push_str(&format!("\n{}", table(&["WAIT", "BECAUSE"], rows)));
    }
    out
}

fn wave_row(wave: &RolloutWaveView, now: Timestamp) -> [String; 4] {
    let open = match (wave.opened, wave.not_before) {
        (Some(at), _) => format!("{} ago", ago(at, now)),
        (None, Some(at)) if at > now => format!("not before {at}"),
        (None, _) => "closed".to_owned(),
    };
    [wave.name.clone(), open, format!("{} s", wave.soak_secs), counts(&wave.nodes)]
}

/// Why a node has not changed yet, as a sentence; and what waits behind its rollout.
pub fn explained(view: &NodeRolloutView) -> String {
    let newer = view.newer.as_ref().and_then(newer).map(|newer| format!("{newer}\n"));
    node_stands(view) + &newer.unwrap_or_default()
}

/// How a node stands in its rollout, and what keeps it.
pub(super) fn node_stands(view: &NodeRolloutView) -> String {
    let NodeRolloutView { hostname, rollout, wave, .. } = view;
    let since = ago(view.since, now());
    match &view.cause {
        None => {
            let evidence = evidence(view);
            format!("{hostname} is confirmed on {rollout} (wave {wave}), since {since}{evidence}\n")
        }
        Some(cause) => {
            let state = view.state.words();
            // One that did not begin has it as its cause.
            let silent = view.silent_since.filter(|_| view.state != NodeRolloutState::Pending);
            let silent = silent.map(|at| format!("; nothing is heard of its host since {}", ago(at, now())));
            let silent = silent.unwrap_or_default();
            format!("{hostname} is {state} in {rollout} (wave {wave}) since {since}: {cause}{silent}\n")
        }
    }
}

/// What says that a confirmed node is well.
fn evidence(view: &NodeRolloutView) -> String {
    let probes = match view.passed.as_slice() {
        [] => "no enforcing probe is declared of it".to_owned(),
        [one] => format!("its probe {one} passes"),
        several => format!("its probes {} pass", several.join(", ")),
    };
    match &view.boot {
        Some(boot) => format!(": {probes}, in boot {boot}"),
        None => String::new(),
    }
}

/// How a node stands that is in no rollout.
pub fn idle(view: &NodeView) -> String {
    let NodeView { hostname, held, pointed_seq, channel, .. } = view;
    let stands = match (held, pointed_seq, channel) {
        (_, None, _) | (_, _, None) => "nothing is published for it".to_owned(),
        (None, Some(pointed), Some(channel)) => {
            format!("it holds no release, and is pointed to release {pointed} of channel {channel}")
        }
        (Some(held), Some(pointed), Some(channel)) if held.seq == *pointed && held.channel == *channel => {
            format!("it has the current release {pointed} of channel {channel}")
        }
        (Some(held), Some(pointed), Some(channel)) => format!(
            "it holds release {} of channel {}, and is pointed to release {pointed} of channel {channel}",
            held.seq, held.channel
        ),
    };
    let run = match view.successful_run {
        Some(at) => format!("its last full run in which nothing failed ended {} ago", ago(at, now())),
        None => "no full run is known in which nothing failed".to_owned(),
    };
    let cause = view.cause.as_ref().map(|cause| format!("; {cause}")).unwrap_or_default();
    format!("{hostname} is in no rollout: {stands}; {run}{cause}\n")
}

/// A rollout in one line.
pub fn line(view: &RolloutView) -> String {
    let why = why(view).or_else(|| view.frozen.as_ref().map(freeze));
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    format!("rollout {} is {}{why}; {}", view.id, words_of(view), counts(&view.nodes))
}

/// What holds a rollout, or a node of it, still after an order that was taken; nothing where the order did all that it is for.
pub fn still_held(view: &RolloutView, turn: RolloutTurn, now: Timestamp) -> Option<String> {
    if turn != RolloutTurn::Approve {
        return None;
    }
    let id = &view.id;
    let later = |wave: &&RolloutWaveView| wave.opened.is_none() && wave.not_before.is_some_and(|at| at > now);
    let held = match (&view.waits, &view.frozen, view.waves.iter().find(|wave| wave.opened.is_none())) {
        (Some(waits), ..) => waits.clone(),
        _ if view.paused.is_some() => {
            format!("{id} is paused; {}", muster(&format!("rollout resume {id}")))
        }
        (None, Some(frozen), _) => freeze(frozen),
        (None, None, closed) => {
            let wave = closed.filter(later)?;
            format!("wave {} begins at {}", wave.name, wave.not_before?)
        }
    };
    Some(format!("approved; what it waits for is not lifted by that: {held}"))
}

fn freeze(frozen: &RolloutFreezeView) -> String {
    let until = frozen.until.map(|until| format!(" until {until}")).unwrap_or_default();
    format!("the freeze window {} is open{until}", frozen.window)
}

/// What a later release of the channel says about a rollout.
fn newer(newer: &NewerReleaseView) -> Option<String> {
    let NewerReleaseView { seq, at_once, rollout, state, waits } = newer;
    match (rollout, state) {
        _ if *at_once => Some(format!(
            "release {seq}, the newest of the channel, goes to all its nodes at once, without a rollout"
        )),
        (Some(id), Some(RolloutState::Opening)) => {
            let waits = waits.as_ref().map(|waits| format!(": {waits}")).unwrap_or_default();
            Some(format!("release {seq} ({id}) waits to begin{waits}"))
        }
        // Nothing newer is there that could have taken its place.
        (Some(id), Some(state)) if state.gave_way() => Some(format!("release {seq} ({id}) was aborted")),
        (Some(id), Some(state)) => Some(format!("release {seq} ({id}) is {}", state.words())),
        _ => None,
    }
}

fn counts(nodes: &BTreeMap<NodeRolloutState, usize>) -> String {
    let counted = nodes.iter().map(|(state, count)| format!("{count} {}", state.words()));
    counted.collect::<Vec<_>>().join(", ")
}

fn why(view: &RolloutView) -> Option<String> {
    let paused = view.paused.as_ref().map(|paused| format!("{} paused it", paused.by));
    let halted = view.halt.as_ref().map(|halt| halt.cause.clone());
    halted.or(paused).or_else(|| view.waits.clone())
}

/// What is to be done where a rollout does not go on by itself.
fn next(view: &RolloutView) -> Option<String> {
    let id = &view.id;
    match view.state {
        RolloutState::Failed if view.halt.as_ref().is_some_and(|halt| !halt.goes_back && !halt.is_final) => {
            Some(format!("{}, or publish a release that mends it", muster(&format!("rollout resume {id}"))))
        }
        // Who is offline and is back later, or was found with it, is counted by how it stands.
        RolloutState::Reverted if !view.was_through && !still_away(view).is_empty() => Some(format!(
            "{}: they go back by themselves, or once they are heard of; `muster rollout explain NODE` says more",
            still_away(view)
        )),
        RolloutState::Failed | RolloutState::Reverted if view.was_through => {
            let back = muster("release rollback NUMBER");
            Some(format!("who is confirmed stays; {back} takes all back, or publish a release that mends it"))
        }
        RolloutState::Active | RolloutState::Converging if view.paused.is_some() => {
            Some(muster(&format!("rollout resume {id}")))
        }
        _ => None,
    }
}

/// The nodes of a rollout that is back which are not, by how they stand; nothing where all are.
fn still_away(view: &RolloutView) -> String {
    use NodeRolloutState::{Activating, Deferred, Failed, Soaking};
    let away = |state: &NodeRolloutState| matches!(state, Activating | Deferred | Failed | Soaking);
    let nodes = view.nodes.iter().filter(|(state, _)| away(state));
    counts(&nodes.map(|(state, count)| (*state, *count)).collect())
}

/// How a rollout stands, as people say it.
pub(crate) fn words(state: RolloutState, paused: Option<&RolloutPauseView>) -> &'static str {
    if state.is_running() && paused.is_some() { "paused" } else { state.words() }
}

/// The same of a rollout whose channel is known: what gave way to nothing newer was aborted before it began.
fn words_of(view: &RolloutView) -> &'static str {
    match view.state.gave_way() && view.newer.is_none() {
        true => "aborted",
        false => words(view.state, view.paused.as_ref()),
    }
}

/// Since when it stands so.
fn since(view: &RolloutView) -> Timestamp {
    standing_since(view.state, view.since, view.paused.as_ref())
}

/// Since when a rollout stands as [`words`] say.
pub(crate) fn standing_since(
    state: RolloutState,
    since: Timestamp,
    paused: Option<&RolloutPauseView>,
) -> Timestamp {
    paused.filter(|_| state.is_running()).map_or(since, |paused| paused.at)
}

fn mark(state: RolloutState) -> Mark {
    match state {
        RolloutState::Terminal => Mark::Good,
        RolloutState::Failed | RolloutState::Reverted => Mark::Bad,
        _ => Mark::Bold,
    }
}
