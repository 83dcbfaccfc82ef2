//! Rollouts for people.

use std::collections::BTreeMap;

use rollout::{NodeRolloutState, RolloutState};
use server::api::rollouts::{NodeRolloutView, RolloutPauseView, RolloutView, RolloutWaveView};

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
            screen.mark(mark(view.state), words(view.state, view.paused.as_ref())),
            format!("{} ago", ago(view.since, now)),
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
        screen.mark(mark(view.state), words(view.state, view.paused.as_ref())),
        ago(view.since, now),
    );
    if let Some(why) = why(view) {
        out.push_str(&format!("because {why}\n"));
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

fn wave_row(wave: &RolloutWaveView, now: model::Timestamp) -> [String; 4] {
    let open = match (wave.opened, wave.not_before) {
        (Some(at), _) => format!("{} ago", ago(at, now)),
        (None, Some(at)) if at > now => format!("not before {at}"),
        (None, _) => "closed".to_owned(),
    };
    [wave.name.clone(), open, format!("{} s", wave.soak_secs), counts(&wave.nodes)]
}

/// Why a node has not changed yet, as a sentence.
pub fn explained(name: &str, view: Option<&NodeRolloutView>) -> String {
    let Some(view) = view else { return format!("{name} is in no rollout\n") };
    let NodeRolloutView { hostname, rollout, wave, .. } = view;
    let since = ago(view.since, now());
    match &view.cause {
        None => format!("{hostname} is confirmed on {rollout} (wave {wave}), since {since}\n"),
        Some(cause) => {
            let state = view.state.words();
            format!("{hostname} is {state} in {rollout} (wave {wave}) since {since}: {cause}\n")
        }
    }
}

/// A rollout in one line.
pub fn line(view: &RolloutView) -> String {
    let why = why(view).map(|why| format!(": {why}")).unwrap_or_default();
    format!(
        "rollout {} is {}{why}; {}",
        view.id,
        words(view.state, view.paused.as_ref()),
        counts(&view.nodes)
    )
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
        RolloutState::Failed if view.halt.as_ref().is_some_and(|halt| !halt.goes_back) => {
            Some(format!("{}, or publish a release that mends it", muster(&format!("rollout resume {id}"))))
        }
        RolloutState::Active | RolloutState::Converging if view.paused.is_some() => {
            Some(muster(&format!("rollout resume {id}")))
        }
        _ => None,
    }
}

/// How a rollout stands, as people say it.
pub(crate) fn words(state: RolloutState, paused: Option<&RolloutPauseView>) -> &'static str {
    if state.is_running() && paused.is_some() { "paused" } else { state.words() }
}

fn mark(state: RolloutState) -> Mark {
    match state {
        RolloutState::Terminal => Mark::Good,
        RolloutState::Failed | RolloutState::Reverted => Mark::Bad,
        _ => Mark::Bold,
    }
}
