//! Rollouts and probes beside the rest of the fleet: channels, windows, pinned nodes, and what the terms themselves find.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::health_probe::ChannelProbe;
use model::time::when;
use model::window::DeclaredWindow;
use model::{Channel, Timestamp};
use trust::RolloutTerms;
use trust::rollout_terms::{FreezeTerms, PinTerms, TermsMistake, WaveTerms, channel_cycle};

use super::context::Context;
use crate::decl::rollouts::{NotBefore, RolloutDecl, StagedDecl, WaveDecl};
use crate::parse::{FileDecl, Files};
use crate::rollouts::RolloutPolicy;
use crate::sink::Sink;
use crate::specialize::{ByName, NodeSpec, PatternSpec};
use crate::yaml::At;

/// The files that declare rollouts and probes.
pub(crate) const FILES: [&str; 2] = ["fleet.yaml", "rollouts.yaml"];

/// A channel's rollout: what is declared, where, and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeclaredRollout {
    pub(crate) file: Arc<str>,
    pub(crate) decl: RolloutDecl,
    pub(crate) policy: RolloutPolicy,
}

/// Probes of the fleet, with their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocatedProbe {
    pub(crate) file: Arc<str>,
    pub(crate) at: At,
    pub(crate) probe: ChannelProbe,
}

/// Reads what the files declare into the context; a channel that has a rollout gets the probes.
pub(super) fn read(files: &Files, context: &mut Context, sink: &mut Sink) {
    for path in FILES {
        let Some(file) = files.get(path) else { continue };
        let staged: &StagedDecl = match &file.content {
            FileDecl::Fleet(fleet) => &fleet.staged,
            FileDecl::Rollouts(staged) => staged,
            _ => continue,
        };
        probes(path, staged, context, sink);
        for decl in &staged.rollouts {
            rollout(path, decl, context, sink);
        }
    }
    for name in context.rollouts.keys() {
        if let Some(channel) = context.fleet.channels.get_mut(name) {
            channel.probes = context.probes.iter().map(|declared| declared.probe.clone()).collect();
        }
    }
    circle_of_channels(context, sink);
}

fn probes(path: &str, staged: &StagedDecl, context: &mut Context, sink: &mut Sink) {
    for decl in &staged.probes {
        let name = &decl.probe.name;
        if let Some(first) = context.probes.iter().find(|known| known.probe.probe.name == *name) {
            sink.error(path, "E008", decl.at, format!("probe `{name}` is declared twice"))
                .help("keep one of the two")
                .label_in(&first.file, first.at, "first here");
            continue;
        }
        let of = decl.nodes.as_ref().map(|selector| selector.as_str().to_owned());
        let probe = ChannelProbe { of, probe: decl.probe.clone() };
        context.probes.push(LocatedProbe { file: path.into(), at: decl.at, probe });
    }
}

fn rollout(path: &str, decl: &RolloutDecl, context: &mut Context, sink: &mut Sink) {
    let name = &decl.channel;
    context.known_channel(path, name, sink);
    for after in &decl.after {
        context.known_channel(path, after, sink);
    }
    if let Some(first) = context.rollouts.get(&name.value) {
        sink.error(
            path,
            "E008",
            name.at,
            format!("the rollout of channel `{}` is declared twice", name.value),
        )
        .help("keep one of the two")
        .label_in(&first.file, first.decl.channel.at, "first here");
        return;
    }
    // What cannot be read says less than was meant.
    let Ok(channel) = name.value.parse::<Channel>() else { return };
    let policy = policy(decl, &channel, &context.fleet.windows);
    let mut found = policy.terms(Timestamp(0)).mistakes(&channel, Timestamp(0));
    found.retain(|mistake| !(is_of_time(mistake) || decl.broken && may_be_of_what_is_lacking(mistake)));
    report(path, decl, &found, sink);
    context
        .rollouts
        .insert(name.value.clone(), DeclaredRollout { file: path.into(), decl: decl.clone(), policy });
}

/// The policy that is declared. Its percent waves draw by the channel's name where it has no seed of its own, so that the
/// same nodes go first each time.
fn policy(
    decl: &RolloutDecl,
    channel: &Channel,
    windows: &BTreeMap<String, DeclaredWindow>,
) -> RolloutPolicy {
    let wave = |wave: &WaveDecl| WaveTerms {
        name: wave.name.value.clone(),
        members: wave.members.value.clone(),
        not_before: None,
        gate: wave.gate,
    };
    let freeze = decl.freeze.iter().filter_map(|name| {
        let window = windows.get(&name.value)?.clone();
        Some(FreezeTerms { name: name.value.clone(), window })
    });
    let pins = decl.pins.iter().map(|pin| PinTerms {
        nodes: pin.nodes.iter().map(|node| node.value.clone()).collect(),
        until: pin.until.value,
        reason: pin.reason.clone(),
    });
    RolloutPolicy {
        terms: RolloutTerms {
            waves: decl.waves.iter().map(wave).collect(),
            budgets: decl.budgets.iter().map(|budget| budget.value.clone()).collect(),
            edges: decl.edges.iter().map(|edge| edge.value.clone()).collect(),
            after: decl.after.iter().filter_map(|after| after.value.parse().ok()).collect(),
            on_failure: decl.on_failure,
            confirm: decl.confirm,
            seed: decl.seed.clone().unwrap_or_else(|| channel.to_string()),
            pins: pins.collect(),
            freeze: freeze.collect(),
        },
        not_before: decl.waves.iter().map(|wave| wave.not_before.as_ref().map(|at| at.value)).collect(),
    }
}

/// It shows only beside the time of the signature.
pub(crate) fn is_of_time(mistake: &TermsMistake) -> bool {
    matches!(
        mistake,
        TermsMistake::NotBeforeFalls { .. }
            | TermsMistake::NotBeforeTooFar { .. }
            | TermsMistake::PinOver { .. }
    )
}

/// It may show only because something beside it cannot be read, or was said where it is read.
fn may_be_of_what_is_lacking(mistake: &TermsMistake) -> bool {
    matches!(mistake, TermsMistake::Observed { .. } | TermsMistake::PinOfNobody(_))
}

/// What is wrong with the times of rollouts that are signed at a time, beside whatever else is wrong with their files.
pub(crate) fn times(files: &Files, created: Timestamp, sink: &mut Sink) {
    for path in FILES {
        let staged = match files.get(path).map(|file| &file.content) {
            Some(FileDecl::Fleet(fleet)) => &fleet.staged,
            Some(FileDecl::Rollouts(staged)) => staged,
            _ => continue,
        };
        for decl in &staged.rollouts {
            let Ok(channel) = decl.channel.value.parse::<Channel>() else { continue };
            let policy = policy(decl, &channel, &BTreeMap::new());
            let mut found = policy.terms(created).mistakes(&channel, created);
            found.retain(is_of_time);
            report(path, decl, &found, sink);
            past(path, decl, created, sink);
        }
    }
}

/// Waves whose day is over: who wrote it down meant another one.
pub(crate) fn past(path: &str, decl: &RolloutDecl, created: Timestamp, sink: &mut Sink) {
    for wave in &decl.waves {
        let Some(time) = &wave.not_before else { continue };
        if let NotBefore::At(at) = time.value
            && at < created
        {
            let message =
                format!("wave `{}` begins at {}, which is past", wave.name.value, when(at, created));
            sink.error(path, "E112", time.at, message)
                .help("drop `notBefore`, give it a later time, or count from the signature, as in `+24h`");
        }
    }
}

/// Reports what is wrong with terms where it stands.
pub(crate) fn report(path: &str, decl: &RolloutDecl, found: &[TermsMistake], sink: &mut Sink) {
    for mistake in found {
        let place = place(mistake, decl);
        sink.error(path, place.code, place.at, mistake.to_string()).maybe_help(place.help.map(str::to_owned));
    }
}

/// Where a mistake of terms stands, and how it is called.
struct MistakePlace {
    code: &'static str,
    at: At,
    help: Option<&'static str>,
}

fn place(mistake: &TermsMistake, decl: &RolloutDecl) -> MistakePlace {
    let whole = decl.channel.at;
    let wave = |name: &String| decl.waves.iter().rfind(|wave| wave.name.value == *name);
    let name_of = |name: &String| wave(name).map_or(whole, |wave| wave.name.at);
    let members_of = |name: &String| wave(name).map_or(whole, |wave| wave.members.at);
    let budget_of = |of: &String| {
        decl.budgets.iter().rfind(|budget| budget.value.of.as_str() == of).map_or(whole, |budget| budget.at)
    };
    let time_of =
        |name: &String| wave(name).and_then(|wave| wave.not_before.as_ref()).map_or(whole, |time| time.at);
    let after_of = |channel: &Channel| {
        decl.after.iter().rfind(|after| after.value == channel.as_str()).map_or(whole, |after| after.at)
    };
    let (code, at, help) = match mistake {
        TermsMistake::TooMany { .. } => ("E099", whole, None),
        TermsMistake::TooLarge(_) => ("E099", whole, Some("groups and labels say the same in fewer bytes")),
        TermsMistake::WaveName(name) => ("E023", name_of(name), None),
        TermsMistake::WaveTwice(name) => ("E008", name_of(name), Some("name one of them otherwise")),
        TermsMistake::RestNotLast(name) => ("E111", name_of(name), Some("move it to the end, or drop it")),
        TermsMistake::Percent { wave, .. } | TermsMistake::PercentFalls { wave, .. } => {
            ("E111", members_of(wave), Some("as in 1, 10, 50"))
        }
        TermsMistake::NoSeed(name) => ("E111", members_of(name), None),
        TermsMistake::NotBeforeFalls { wave, .. } | TermsMistake::NotBeforeTooFar { wave, .. } => {
            ("E112", time_of(wave), Some("`+24h` is counted from the signature, and never lies in the past"))
        }
        TermsMistake::Soak(name) | TermsMistake::Success { wave: name, .. } => ("E017", name_of(name), None),
        TermsMistake::Observed { .. } => ("E063", whole, None),
        TermsMistake::BudgetOfNothing(of) => ("E113", budget_of(of), Some("a budget is at least 1, or 1%")),
        TermsMistake::BudgetWithoutLimit(of) => ("E113", budget_of(of), None),
        TermsMistake::BudgetTwice(of) => ("E113", budget_of(of), Some("drop one of the two")),
        TermsMistake::EdgeCycle(_) => {
            ("E114", decl.edges.last().map_or(whole, |edge| edge.at), Some("drop one of these edges"))
        }
        TermsMistake::AfterItself(channel) => ("E114", after_of(channel), Some("drop it")),
        TermsMistake::AfterTwice(channel) => ("E008", after_of(channel), Some("drop one of the two")),
        TermsMistake::ConfirmWindow(_) | TermsMistake::ConfirmTries(_) => ("E017", decl.confirm_at, None),
        TermsMistake::TextTooLong { .. } => ("E017", whole, None),
        TermsMistake::PinOfNobody(until) | TermsMistake::PinOver { until, .. } => {
            let pin = decl.pins.iter().find(|pin| pin.until.value == *until);
            ("E115", pin.map_or(whole, |pin| pin.until.at), Some("drop the pin, or give it a later day"))
        }
        TermsMistake::PinTwice(node) => {
            let named = decl.pins.iter().flat_map(|pin| &pin.nodes).rfind(|named| named.value == *node);
            ("E115", named.map_or(whole, |named| named.at), Some("drop one of the two"))
        }
        TermsMistake::Freeze { name, .. } => {
            let window = decl.freeze.iter().find(|window| window.value == *name);
            ("E065", window.map_or(whole, |window| window.at), None)
        }
        TermsMistake::AlwaysFrozen => (
            "E116",
            decl.freeze.first().map_or(whole, |window| window.at),
            Some("leave some time of the week out"),
        ),
    };
    MistakePlace { code, at, help }
}

/// Channels that go after one another in a circle: none of them would ever begin.
fn circle_of_channels(context: &Context, sink: &mut Sink) {
    let parsed: BTreeMap<Channel, &DeclaredRollout> = context
        .rollouts
        .iter()
        .filter_map(|(name, declared)| Some((name.parse().ok()?, declared)))
        .filter(|(channel, declared)| !declared.policy.terms.after.contains(channel))
        .collect();
    let after = parsed.iter().map(|(channel, declared)| (channel, declared.policy.terms.after.as_slice()));
    let Some(circle) = channel_cycle(after) else { return };
    let Some(declared) = circle.last().and_then(|name| context.rollouts.get(*name)) else { return };
    let at = declared.decl.after.first().map_or(declared.decl.channel.at, |after| after.at);
    let message = format!("the channels go after one another in a circle: {}", circle.join(" before "));
    sink.error(&declared.file, "E114", at, message).help("let one of them go without `after`");
}

/// Pinned nodes that no entry of nodes matches, or that are in another channel.
pub(crate) fn pins(
    context: &Context,
    exact: &ByName<Arc<NodeSpec>>,
    patterns: &[PatternSpec],
    sink: &mut Sink,
) {
    for (channel, declared) in &context.rollouts {
        for node in declared.decl.pins.iter().flat_map(|pin| &pin.nodes) {
            let name = node.value.as_str();
            let rules = || patterns.iter().map(|spec| (&spec.pattern, &spec.except[..]));
            let by_pattern =
                || patterns.get(lang::pattern::first_match(rules(), name)?).map(|spec| &spec.spec);
            let message = match exact.get(name).or_else(by_pattern) {
                None => format!("there is no node `{name}`, which is pinned"),
                Some(spec) if *spec.channel != **channel => {
                    format!("`{name}` is pinned in channel `{channel}`, and is in channel `{}`", spec.channel)
                }
                Some(_) => continue,
            };
            let help = match lang::nearest(name, exact.keys().map(|name| &**name)) {
                Some(near) if near != name => format!("did you mean `{near}`?"),
                _ => "drop it, or pin it in its own channel".to_owned(),
            };
            sink.error(&declared.file, "E115", node.at, message).help(help);
        }
    }
}
