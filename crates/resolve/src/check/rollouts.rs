//! Rollouts and probes beside the rest of the fleet: channels, windows, pinned nodes, and what the terms themselves find.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::health_probe::ChannelProbe;
use model::time::when;
use model::window::DeclaredWindow;
use model::{Channel, Timestamp};
use trust::RolloutTerms;
use trust::rollout_terms::{FreezeTerms, PinTerms, TermsEntry, TermsMistake, WaveTerms, cycles};

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
    circles_of_channels(context, sink);
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
    for (index, mistake) in found.iter().enumerate() {
        let same = found.iter().take(index).filter(|other| *other == mistake).count();
        let place = place(mistake, same, decl);
        sink.error(path, place.code, place.at, mistake.to_string()).maybe_help(place.help.map(str::to_owned));
    }
}

/// Where a mistake of terms stands, and how it is called.
struct MistakePlace {
    code: &'static str,
    at: At,
    help: Option<&'static str>,
}

/// The place of a mistake, before which so many were the same.
fn place(mistake: &TermsMistake, same: usize, decl: &RolloutDecl) -> MistakePlace {
    let whole = decl.channel.at;
    // The terms have the entries of the declaration, in its order.
    let wave = |entry: &TermsEntry| decl.waves.get(entry.index);
    let name_of = |entry: &TermsEntry| wave(entry).map_or(whole, |wave| wave.name.at);
    let members_of = |entry: &TermsEntry| wave(entry).map_or(whole, |wave| wave.members.at);
    let time_of = |entry: &TermsEntry| {
        wave(entry).and_then(|wave| wave.not_before.as_ref()).map_or(whole, |time| time.at)
    };
    let budget_of = |entry: &TermsEntry| decl.budgets.get(entry.index).map_or(whole, |budget| budget.at);
    let after_of = |channel: &Channel, skipped: usize| {
        let mut named = decl.after.iter().filter(|after| after.value == channel.as_str());
        named.nth(skipped).map_or(whole, |after| after.at)
    };
    let (code, at, help) = match mistake {
        TermsMistake::TooMany { .. } => ("E099", whole, None),
        TermsMistake::TooLarge(_) => ("E099", whole, Some("groups and labels say the same in fewer bytes")),
        TermsMistake::WaveName(wave) => ("E023", name_of(wave), None),
        TermsMistake::WaveTwice(wave) => ("E008", name_of(wave), Some("name one of them otherwise")),
        TermsMistake::RestNotLast(wave) => ("E111", name_of(wave), Some("move it to the end, or drop it")),
        TermsMistake::Percent { wave, .. } | TermsMistake::PercentFalls { wave, .. } => {
            ("E111", members_of(wave), Some("as in 1, 10, 50"))
        }
        TermsMistake::NoSeed(wave) => ("E111", members_of(wave), None),
        TermsMistake::NotBeforeFalls { wave, .. } => (
            "E112",
            time_of(wave),
            Some("give it a later time, or none: it begins after the waves before it in any case"),
        ),
        TermsMistake::NotBeforeTooFar { wave, .. } => {
            ("E112", time_of(wave), Some("give it a time within a year of the signature, such as `+30d`"))
        }
        TermsMistake::Soak(wave) | TermsMistake::Success { wave, .. } => ("E017", name_of(wave), None),
        TermsMistake::Observed { .. } => ("E063", whole, None),
        TermsMistake::BudgetOfNothing(budget) => {
            ("E113", budget_of(budget), Some("a budget is at least 1, or 1%"))
        }
        TermsMistake::BudgetWithoutLimit(budget) => ("E113", budget_of(budget), None),
        TermsMistake::BudgetTwice(budget) => ("E113", budget_of(budget), Some("drop one of the two")),
        TermsMistake::EdgeCycle { edge, .. } => {
            ("E114", decl.edges.get(*edge).map_or(whole, |edge| edge.at), Some("drop one of these edges"))
        }
        TermsMistake::AfterItself(channel) => ("E114", after_of(channel, same), Some("drop it")),
        TermsMistake::AfterTwice(channel) => {
            ("E008", after_of(channel, same + 1), Some("drop one of the two"))
        }
        TermsMistake::ConfirmWindow(_) | TermsMistake::ConfirmTries(_) => ("E017", decl.confirm_at, None),
        TermsMistake::TextTooLong { .. } => ("E017", whole, None),
        TermsMistake::PinOfNobody(until) | TermsMistake::PinOver { until, .. } => {
            let pin = decl.pins.iter().find(|pin| pin.until.value == *until);
            ("E115", pin.map_or(whole, |pin| pin.until.at), Some("drop the pin, or give it a later day"))
        }
        TermsMistake::PinTwice(node) => {
            let mut named = decl.pins.iter().flat_map(|pin| &pin.nodes).filter(|named| named.value == *node);
            ("E115", named.nth(same + 1).map_or(whole, |named| named.at), Some("drop one of the two"))
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

/// Channels that go after one another in a circle: none of them would ever begin. One that goes after itself is a mistake
/// of its terms.
fn circles_of_channels(context: &Context, sink: &mut Sink) {
    let mut edges = Vec::new();
    let mut places = Vec::new();
    for (name, declared) in &context.rollouts {
        let mut seen = BTreeSet::from([name.as_str()]);
        for after in declared.decl.after.iter().filter(|after| seen.insert(&after.value)) {
            edges.push((after.value.as_str(), name.as_str()));
            places.push((&declared.file, after.at));
        }
    }
    for (edge, circle) in cycles(&edges) {
        let Some((file, at)) = places.get(edge) else { continue };
        let message = format!("the channels go after one another in a circle: {}", circle.join(" before "));
        sink.error(file, "E114", *at, message).help("let one of them go without `after`");
    }
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
