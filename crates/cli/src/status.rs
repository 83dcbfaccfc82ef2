//! `muster status`: how the fleet does, and what is not green.

use std::collections::BTreeMap;

use clap::Args;
use model::Timestamp;
use model::condition::SyncState;
use model::status::Overall;
use rollout::RolloutState;
use serde::Serialize;
use server::Posture;
use server::api::objects::SYNC;
use server::api::operation::Empty;
use server::api::rollouts::NextRolloutView;
use server::api::{
    self, CauseView, ChannelRolloutView, ChannelView, EarlierReleaseView, Matching, StatusView, TrustHolders,
};

use crate::clock::{ago, now, short};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::next_step::{muster, with_credentials};
use crate::object::{counted, known};
use crate::operator::{Operator, OperatorCallError};
use crate::screen::{Mark, Screen};
use crate::table::table;
use crate::whom::nodes;

const AFTER: &str = "\
Ends with 3 when nodes failed, are degraded or stalled, or keep drifting; with 4 when the control
plane does not answer.

Examples:
  muster status
  muster status --json | jq .states";

/// Arguments of `muster status`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct StatusArgs {
    #[command(flatten)]
    connect: Connect,
}

/// Does the verb.
///
/// # Errors
/// When the control plane cannot be asked.
pub async fn run(args: &StatusArgs, screen: Screen) -> Result<Exit, Failure> {
    let operator = args.connect.dial().await?;
    let whole =
        FleetReport { status: operator.call(&api::STATUS, Empty {}).await?, sync: sync(&operator).await? };
    screen.result(&whole, || format!("{}{}", text(&whole.status, screen), sync_text(&whole.sync, screen)))?;
    Ok(exit(&whole.status))
}

/// All of it, for programs.
#[derive(Serialize)]
struct FleetReport {
    #[serde(flatten)]
    status: StatusView,
    /// How many nodes are in each state of synchronization.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    sync: BTreeMap<SyncState, usize>,
}

/// How many nodes are in each state of synchronization; those that do not synchronize are
/// left out.
async fn sync(operator: &Operator) -> Result<BTreeMap<SyncState, usize>, OperatorCallError> {
    let view = known(operator.call(&SYNC, Matching { limit: 1.into(), ..Matching::default() }).await)?;
    let mut states = view.map(|view| view.states).unwrap_or_default();
    states.remove(&SyncState::Off);
    Ok(states)
}

/// How synchronization fares, in one line; nothing where nothing synchronizes.
pub fn sync_text(states: &BTreeMap<SyncState, usize>, screen: Screen) -> String {
    let Some(text) = counted(states, screen) else { return String::new() };
    let well = states.keys().all(|state| *state == SyncState::InSync);
    let next = if well { String::new() } else { format!("  ({})", muster("object status --wrong")) };
    format!("\nsynchronization: {text}{next}\n")
}

/// What the fleet's state means for scripts.
pub fn exit(view: &StatusView) -> Exit {
    if view.states.keys().copied().any(is_failed) { Exit::SomeFailed } else { Exit::Ok }
}

/// Whether a node's word says that its host is not as declared, or that nobody knows.
pub fn is_failed(state: Overall) -> bool {
    matches!(state, Overall::Stalled | Overall::Failed | Overall::Degraded | Overall::Diverged)
}

/// The fleet's state for people.
pub fn text(view: &StatusView, screen: Screen) -> String {
    let mut out = String::new();
    let states: Vec<String> = view
        .states
        .iter()
        .map(|(state, count)| screen.mark(mark(*state), &format!("{count} {state}")))
        .collect();
    let nodes = nodes(view.nodes);
    let states = if states.is_empty() { "none enrolled yet".to_owned() } else { states.join(", ") };
    out.push_str(&format!("{nodes}: {states}\n"));
    let posture = match view.posture {
        Posture::Lab => "lab (the keys lie beside the control plane; `muster help posture`)",
        Posture::Sealed => "sealed",
    };
    out.push_str(&format!("fleet {}  posture: {posture}\n", view.fleet));
    if let Some(reason) = &view.not_ready {
        out.push_str(&screen.mark(Mark::Bad, &format!("check-ins are refused: {reason}\n")));
    }
    if let Some(why) = &view.trust_unusable {
        let line = format!("the trust documents cannot be used, and those before count on: {why}\n");
        out.push_str(&screen.mark(Mark::Bad, &line));
    }
    if let Some(why) = &view.control_plane_key_unusable {
        let line = format!(
            "nodes take no new objects and actions, because they are not signed as nodes believe it: {why}\n"
        );
        out.push_str(&screen.mark(Mark::Bad, &line));
    }
    for line in view.certificates.iter().flat_map(crate::key::show::of_before) {
        out.push_str(&screen.mark(Mark::Bad, &line));
    }
    if let Some(seq) = view.overtaken_by {
        let line = format!(
            "nodes hold release {seq}, which is not in the control plane's data: it went back to what it was \
             before; `{}` goes on above that number\n",
            muster("publish --repo DIR")
        );
        out.push_str(&screen.mark(Mark::Bad, &line));
    }
    if let Some(holders) = &view.trust_overtaken {
        out.push_str(&screen.mark(Mark::Bad, &format!("{}\n", trust_overtaken(*holders))));
    }
    if !view.store.writable {
        let why = view.store.last_error.as_deref().unwrap_or("unknown");
        out.push_str(&screen.mark(Mark::Bad, &format!("the database cannot be written: {why}\n")));
    }
    out.push('\n');
    out.push_str(&channels(view));
    out.push_str(&rollouts(view, screen));
    out.push_str(&signers_retired(view, screen));
    out.push_str(&signatures_due(view, now(), screen));
    out.push_str(&earlier_due(view, now(), screen));
    if !view.causes.is_empty() {
        out.push('\n');
        out.push_str(&causes(view, screen));
    }
    out
}

/// That the control plane's trust documents went back, and what to do.
pub(crate) fn trust_overtaken(holders: TrustHolders) -> String {
    let TrustHolders { version, nodes } = holders;
    format!(
        "{} trust document {version}, which is not in the control plane's data. If so, it went back to what it was \
         before, and they follow no rotation of its keys: put trust-links.json of a newer backup, or of the directory that a \
         restore moved aside, into the control plane's directory",
        if nodes == 1 {
            "1 node says that it holds".to_owned()
        } else {
            format!("{nodes} nodes say that they hold")
        }
    )
}

/// Channels that point to a release of a key that counts no more.
fn signers_retired(view: &StatusView, screen: Screen) -> String {
    let line = |channel: &ChannelView| {
        let text = format!(
            "channel {}: what signed release {} is not enough any more (a key was retired, or the channel asks for \
             more signers), so nodes that do not hold it take it no more; run `{}`\n",
            channel.channel,
            channel.seq,
            muster("publish --repo DIR")
        );
        screen.mark(Mark::Bad, &text)
    };
    view.channels.iter().filter(|channel| channel.signer_retired).map(line).collect()
}

/// Channels whose last signature is three quarters through its freshness, or past it.
fn signatures_due(view: &StatusView, now: Timestamp, screen: Screen) -> String {
    let due = |channel: &&ChannelView| channel.warns_at.is_some_and(|at| now > at);
    let line = |channel: &ChannelView| {
        let (name, signed, until) = (&channel.channel, channel.signed_at, channel.fresh_until);
        let (stop, mark) = match now > until {
            true => ("nodes take no actions since", Mark::Bad),
            false => ("nodes stop taking actions at", Mark::Warn),
        };
        let (publish, beacon) = (muster("publish --repo DIR"), muster("beacon"));
        let text = format!(
            "channel {name}: no signature since {signed}, {stop} {until}; run `{publish}` or `{beacon}`\n"
        );
        screen.mark(mark, &text)
    };
    view.channels.iter().filter(due).map(line).collect()
}

/// Earlier releases that rollouts have nodes on, whose last signature is three quarters through its freshness, or past it.
fn earlier_due(view: &StatusView, now: Timestamp, screen: Screen) -> String {
    let line = |channel: &ChannelView, earlier: &EarlierReleaseView| {
        let EarlierReleaseView { seq, signed_at, fresh_until } = earlier;
        let (stop, mark) = match now > *fresh_until {
            true => ("take no actions since", Mark::Bad),
            false => ("stop taking actions at", Mark::Warn),
        };
        let name = &channel.channel;
        let beacon = muster(&format!("beacon --channel {name} --release {seq}"));
        let text = format!(
            "channel {name}: no signature since {signed_at} for release {seq}, and its nodes that wait for the newest \
             {stop} {fresh_until}; run `{beacon}`\n"
        );
        screen.mark(mark, &text)
    };
    let of_channel = |channel: &ChannelView| {
        channel.earlier_due.iter().map(|earlier| line(channel, earlier)).collect::<String>()
    };
    view.channels.iter().map(of_channel).collect()
}

fn channels(view: &StatusView) -> String {
    if view.channels.is_empty() {
        return format!("nothing is published yet: {}\n", muster("publish --repo DIR"));
    }
    let now = now();
    let row = |channel: &ChannelView| {
        let fresh = if channel.fresh_until > now {
            format!("for {}", short(channel.fresh_until.since(now)))
        } else {
            format!("no, since {}", ago(channel.fresh_until, now))
        };
        [
            channel.channel.to_string(),
            channel.seq.to_string(),
            channel.label.clone().unwrap_or_default(),
            format!("{} ago", ago(channel.signed_at, now)),
            fresh,
            short(std::time::Duration::from_secs(channel.contact_secs)),
            channel.by.clone().unwrap_or_default(),
        ]
    };
    table(&["CHANNEL", "RELEASE", "REF", "SIGNED", "FRESH", "CONTACT", "BY"], view.channels.iter().map(row))
}

/// How releases reach their nodes that do so by a rollout, with a line of the one that waits behind; nothing where all have one.
fn rollouts(view: &StatusView, screen: Screen) -> String {
    view.channels.iter().map(|channel| rollout_lines(channel, now(), screen)).collect()
}

fn rollout_lines(channel: &ChannelView, now: Timestamp, screen: Screen) -> String {
    let Some(rollout) = &channel.rollout else { return String::new() };
    let ChannelRolloutView { id, state, since, confirmed, nodes, paused, cause, next, .. } = rollout;
    let show = |name: &str| muster(&format!("rollout show {name}"));
    let mut out = String::new();
    if *state != RolloutState::Terminal || confirmed != nodes {
        let cause = cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
        let word = crate::rollout::words(*state, paused.as_ref());
        let since = ago(crate::rollout::standing_since(*state, *since, paused.as_ref()), now);
        let show = show(channel.channel.as_str());
        let text = format!(
            "rollout {id}: {word} since {since}, {confirmed} of {nodes} confirmed{cause}  ({show})\n"
        );
        let halted = matches!(state, RolloutState::Failed | RolloutState::Reverted);
        out.push_str(&if halted { screen.mark(Mark::Bad, &text) } else { text });
    }
    if let Some(NextRolloutView { id, since, waits, .. }) = next {
        let waits = waits.as_ref().map(|waits| format!(": {waits}")).unwrap_or_default();
        let (word, since, show) = (RolloutState::Opening.words(), ago(*since, now), show(id.as_str()));
        out.push_str(&format!("rollout {id}: {word} since {since}{waits}  ({show})\n"));
    }
    out
}

fn causes(view: &StatusView, screen: Screen) -> String {
    let now = now();
    let row = |cause: &CauseView| {
        [
            format!("{}x", cause.count),
            screen.mark(mark(cause.state), &states(cause)),
            cause.since.map(|since| ago(since, now)).unwrap_or_default(),
            who(cause),
            cause.cause.clone(),
            with_credentials(&cause.next).into_owned(),
        ]
    };
    table(&["", "STATE", "SINCE", "NODES", "CAUSE", "NEXT"], view.causes.iter().map(row))
}

/// The state of the nodes of a row; how many are in each where they are not all in one.
fn states(cause: &CauseView) -> String {
    match cause.states.len() {
        0 | 1 => cause.state.to_string(),
        _ => {
            let each = cause.states.iter().map(|(state, nodes)| format!("{nodes} {state}"));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

fn who(cause: &CauseView) -> String {
    let first = cause.nodes.first().map(ToString::to_string).unwrap_or_default();
    match cause.count {
        0 | 1 => first,
        count => format!("{first} +{}", count - 1),
    }
}

/// How a node's word is marked.
pub fn mark(state: Overall) -> Mark {
    match state {
        Overall::Revoked
        | Overall::Stalled
        | Overall::Failed
        | Overall::Degraded
        | Overall::Paused
        | Overall::Diverged
        | Overall::Offline => Mark::Bad,
        Overall::Relapsed
        | Overall::Unreachable
        | Overall::NotFresh
        | Overall::Changing
        | Overall::WouldChange => Mark::Warn,
        Overall::Converged => Mark::Good,
        Overall::Unassigned | Overall::New => Mark::Dim,
    }
}
