//! `rollouts:` of `fleet.yaml` or `rollouts.yaml`: how a release reaches the nodes of a channel (ROL-1).
//!
//! What is read here keeps its positions; what is wrong beyond one value, the terms themselves find
//! ([`trust::rollout_terms::TermsMistake`]), and `check::rollouts` says where it stands.

use std::time::Duration;

use lang::Selector;
use model::share::Share;
use model::{Hostname, Timestamp};
use trust::rollout_terms::{
    BudgetTerms, ConfirmTerms, GateTerms, NodeEdge, OfflineConfirm, OnFailure, REST, WaveMembers,
};

use super::probes::{self, ProbeDecl};
use super::selection::{self, NodesSaid};
use crate::exprs::WindowName;
use crate::shape::{Keys, Reading};
use crate::yaml::{At, Spanned, YamlKind, YamlNode};

/// The most waves, budgets, edges or pins that are read of one channel: the terms have lower bounds of their own, and name
/// them.
const MAX_READ: usize = 200;

/// `rollouts:` and `probes:` of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StagedDecl {
    pub(crate) rollouts: Vec<RolloutDecl>,
    pub(crate) probes: Vec<ProbeDecl>,
}

/// How a release reaches the nodes of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RolloutDecl {
    pub(crate) channel: Spanned<String>,
    pub(crate) waves: Vec<WaveDecl>,
    pub(crate) budgets: Vec<Spanned<BudgetTerms>>,
    pub(crate) edges: Vec<Spanned<NodeEdge>>,
    pub(crate) after: Vec<Spanned<String>>,
    pub(crate) on_failure: OnFailure,
    pub(crate) confirm: ConfirmTerms,
    pub(crate) confirm_at: At,
    pub(crate) seed: Option<String>,
    pub(crate) freeze: Vec<Spanned<String>>,
    pub(crate) pins: Vec<PinDecl>,
    /// Something of it cannot be read (reported), so what is here says less than what was written.
    pub(crate) broken: bool,
}

/// A wave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaveDecl {
    pub(crate) name: Spanned<String>,
    pub(crate) members: Spanned<WaveMembers>,
    pub(crate) not_before: Option<Spanned<NotBefore>>,
    pub(crate) gate: GateTerms,
}

/// When a wave begins at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBefore {
    /// At this time.
    At(Timestamp),
    /// So long after the signature.
    AfterSignature(Duration),
}

/// Nodes that stay where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PinDecl {
    pub(crate) at: At,
    pub(crate) nodes: Vec<Spanned<Hostname>>,
    pub(crate) until: Spanned<Timestamp>,
    pub(crate) reason: String,
}

/// Reads `rollouts.yaml`.
pub(crate) fn read_file(reading: &mut Reading<'_>, root: &YamlNode) -> StagedDecl {
    let mut keys = reading.keys(root, "rollouts.yaml", "rollouts.yaml");
    let staged = read(reading, &mut keys);
    keys.end(reading);
    staged
}

/// Reads `rollouts` and `probes` of a file.
pub(super) fn read(reading: &mut Reading<'_>, keys: &mut Keys<'_>) -> StagedDecl {
    StagedDecl {
        rollouts: keys.read("rollouts", |node| rollouts(reading, node)),
        probes: keys.read("probes", |node| probes::read(reading, node)),
    }
}

fn rollouts(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<RolloutDecl> {
    let channels = reading.map(node, "rollouts");
    channels.iter().map(|(channel, value)| rollout(reading, channel, value)).collect()
}

fn rollout(reading: &mut Reading<'_>, channel: &Spanned<String>, node: &YamlNode) -> RolloutDecl {
    let before = reading.sink.count();
    let mut keys = reading.keys(node, "a rollout", "a rollout");
    let confirm_node = keys.get("confirm");
    let failures = [("halt", OnFailure::Halt), ("rollback", OnFailure::Rollback)];
    let mut decl = RolloutDecl {
        channel: channel.clone(),
        waves: keys.read("waves", |node| items(reading, node, "waves", wave)),
        budgets: keys.read("budgets", |node| items(reading, node, "budgets", budget)),
        edges: keys.read("edges", |node| items(reading, node, "edges", edge)),
        after: keys.read("after", |node| reading.one_or_more(node, "after")),
        on_failure: keys
            .read("onFailure", |node| reading.word(node, "onFailure", &failures))
            .unwrap_or_default(),
        confirm: confirm_node.map(|node| confirm(reading, node)).unwrap_or_default(),
        confirm_at: confirm_node.map_or(channel.at, |node| At { len: 1, ..node.at }),
        seed: keys.read("seed", |node| reading.text(node, "seed")).map(|seed| seed.value),
        freeze: keys.read("freeze", |node| reading.one_or_more(node, "freeze")),
        pins: keys.read("pins", |node| items(reading, node, "pins", pin)),
        broken: false,
    };
    keys.end(reading);
    for window in &decl.freeze {
        reading.uses.windows.push(WindowName { window: window.value.clone(), at: window.at });
    }
    decl.broken = reading.sink.count() != before;
    decl
}

fn items<T>(
    reading: &mut Reading<'_>,
    node: &YamlNode,
    what: &'static str,
    read: impl Fn(&mut Reading<'_>, &YamlNode) -> Option<T>,
) -> Vec<T> {
    let items = reading.list(node, what);
    if let Some(over) = items.get(MAX_READ) {
        reading.error("E099", over.at, format!("more than {MAX_READ} {what}")).help("join some");
    }
    items.iter().take(MAX_READ).filter_map(|item| read(reading, item)).collect()
}

fn wave(reading: &mut Reading<'_>, node: &YamlNode) -> Option<WaveDecl> {
    let at = At { len: 1, ..node.at };
    let mut keys = reading.keys(node, "a wave", "a wave");
    let name = keys.needed(reading, "name", (at, "a wave"), "name it, as in `name: canary`");
    let name = name.and_then(|node| reading.text(node, "a wave's name"));
    let name = name.filter(|name| reading.name(&name.value, name.at, "a wave"));
    let said = selection::read(reading, &mut keys);
    let percent_node = keys.get("percent");
    let percent = percent_node.and_then(|node| percent(reading, node, "percent", 0, 255));
    let not_before = keys.get("notBefore").and_then(|node| not_before(reading, node));
    let gate = keys.get("gate").map_or_else(GateTerms::default, |node| gate(reading, node));
    keys.end(reading);
    let name = name?;
    let members = match (said, percent_node, percent) {
        (NodesSaid::Nothing, Some(node), Some(percent)) => {
            Spanned { value: WaveMembers::Percent(percent), at: node.at }
        }
        (NodesSaid::These(selector), None, _) => Spanned { value: WaveMembers::Where(selector), at: name.at },
        (NodesSaid::Nothing, None, _) if name.value == REST => {
            Spanned { value: WaveMembers::Rest, at: name.at }
        }
        (NodesSaid::Nothing, None, _) => {
            let message = format!("wave `{}` says no nodes", name.value);
            reading.error("E111", name.at, message).help(format!(
                "add `where:`, `nodes:` or `percent:`; only the last wave, called `{REST}`, takes what is left"
            ));
            return None;
        }
        (NodesSaid::These(_), Some(node), _) => {
            reading
                .error("E111", node.at, "a wave has `percent` or a selector, and not both")
                .help("draw from the whole channel, or name the nodes");
            return None;
        }
        _ => return None,
    };
    Some(WaveDecl { name, members, not_before, gate })
}

fn gate(reading: &mut Reading<'_>, node: &YamlNode) -> GateTerms {
    let mut gate = GateTerms::default();
    let mut keys = reading.keys(node, "gate", "a gate");
    keys.set("soak", &mut gate.soak_secs, |node| reading.duration(node, "soak").map(u64::from));
    keys.set("success", &mut gate.success, |node| percent(reading, node, "success", 1, 100));
    keys.end(reading);
    gate
}

/// A percentage, with `%` or without.
fn percent(reading: &mut Reading<'_>, node: &YamlNode, what: &str, least: u8, most: u8) -> Option<u8> {
    let text = reading.text(node, what)?;
    let digits = text.value.strip_suffix('%').unwrap_or(&text.value);
    let number = catalog::params::plain_int(digits).and_then(|number| u8::try_from(number).ok());
    let good = number.filter(|number| (least..=most).contains(number));
    if good.is_none() {
        let message = format!("{what} is a share of the nodes, and this is `{}`", text.value);
        reading.error("E017", text.at, message).help("write one from 1% to 100%, as in 10%");
    }
    good
}

/// A time, or `+` and a duration.
fn not_before(reading: &mut Reading<'_>, node: &YamlNode) -> Option<Spanned<NotBefore>> {
    let text = reading.text(node, "notBefore")?;
    let value = match text.value.strip_prefix('+') {
        Some(after) => match catalog::duration::parse(after) {
            Ok(secs) => Some(NotBefore::AfterSignature(Duration::from_secs(secs.into()))),
            Err(why) => {
                reading.error("E017", text.at, format!("notBefore: {why}"));
                return None;
            }
        },
        None => instant(&text.value).map(NotBefore::At),
    };
    if value.is_none() {
        reading.error("E017", text.at, format!("notBefore is a time, and this is `{}`", text.value)).help(
            "write `+24h` (after the signature), \"2027-01-31T12:00:00Z\", or a day such as 2027-01-31",
        );
    }
    Some(Spanned { value: value?, at: text.at })
}

/// An instant, or a day, which begins at midnight UTC.
fn instant(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| format!("{text}T00:00:00Z").parse().ok())
}

fn budget(reading: &mut Reading<'_>, node: &YamlNode) -> Option<Spanned<BudgetTerms>> {
    let before = reading.sink.count();
    let at = At { len: 1, ..node.at };
    let mut keys = reading.keys(node, "a budget", "a budget");
    let said = selection::read(reading, &mut keys);
    let in_flight = keys.read("inFlight", |node| share(reading, node));
    let max = keys.read("max", |node| reading.int(node, "max", 0, u32::MAX.into()));
    keys.end(reading);
    if reading.sink.count() != before {
        // Without a limit that cannot be read it would seem to have none.
        return None;
    }
    let of = match said {
        NodesSaid::Nothing => Selector::parse("*").ok(),
        said => said.selector(),
    };
    let max = max.and_then(|max| u32::try_from(max).ok());
    Some(Spanned { value: BudgetTerms { of: of?, in_flight, max }, at })
}

fn share(reading: &mut Reading<'_>, node: &YamlNode) -> Option<Share> {
    let text = reading.text(node, "inFlight")?;
    let share = text.value.parse();
    if share.is_err() {
        reading
            .error(
                "E017",
                text.at,
                format!("inFlight is a number of nodes or a share, and this is `{}`", text.value),
            )
            .help("write  10  or  5%");
    }
    share.ok()
}

fn edge(reading: &mut Reading<'_>, node: &YamlNode) -> Option<Spanned<NodeEdge>> {
    let at = At { len: 1, ..node.at };
    let mut keys = reading.keys(node, "an edge", "an edge");
    let help = "say who goes first and who waits, as in `before: labels.tier == \"db\"`";
    let before = keys.needed(reading, "before", (at, "an edge"), help);
    let before = before.and_then(|node| selection::read_end(reading, node, "before"));
    let after = keys.needed(reading, "after", (at, "an edge"), help);
    let after = after.and_then(|node| selection::read_end(reading, node, "after"));
    keys.end(reading);
    Some(Spanned { value: NodeEdge { before: before?, after: after? }, at })
}

fn confirm(reading: &mut Reading<'_>, node: &YamlNode) -> ConfirmTerms {
    let mut confirm = ConfirmTerms::default();
    let mut keys = reading.keys(node, "confirm", "confirm");
    let offline = [("return", OfflineConfirm::Return), ("confirm", OfflineConfirm::Confirm)];
    keys.set("window", &mut confirm.window_secs, |node| reading.duration(node, "window").map(u64::from));
    keys.set("tries", &mut confirm.tries, |node| {
        reading.int(node, "tries", 0, 255).and_then(|tries| u8::try_from(tries).ok())
    });
    keys.set("offline", &mut confirm.offline, |node| reading.word(node, "offline", &offline));
    keys.end(reading);
    confirm
}

fn pin(reading: &mut Reading<'_>, node: &YamlNode) -> Option<PinDecl> {
    let at = At { len: 1, ..node.at };
    let mut keys = reading.keys(node, "a pin", "a pin");
    let nodes = keys.needed(reading, "nodes", (at, "a pin"), "name them, as in `nodes: [web-7.example.com]`");
    let nodes = nodes.map(|node| hostnames(reading, node)).unwrap_or_default();
    let until = keys.needed(reading, "until", (at, "a pin"), "say until when, as in `until: 2027-01-31`");
    let until = until.and_then(|node| day(reading, node, "until"));
    let reason = keys.read("reason", |node| reading.text(node, "reason"));
    if let Some((key, _)) = keys.refused("ref") {
        reading
            .error("E024", key.at, "a pin names no `ref`: it keeps nodes on the release that they have")
            .help("drop it; what a node is on, `muster node show` says");
    }
    keys.end(reading);
    let reason = reason.map(|reason| reason.value).unwrap_or_default();
    Some(PinDecl { at, nodes, until: until?, reason })
}

fn hostnames(reading: &mut Reading<'_>, node: &YamlNode) -> Vec<Spanned<Hostname>> {
    let mut names = Vec::new();
    for text in reading.one_or_more(node, "nodes") {
        match text.value.parse() {
            Ok(value) => names.push(Spanned { value, at: text.at }),
            Err(_) => {
                reading
                    .error("E034", text.at, format!("`{}` is not a hostname", text.value))
                    .help("a pin names each node by its whole name");
            }
        }
    }
    if matches!(&node.kind, YamlKind::List(items) if items.is_empty()) {
        reading.error("E115", node.at, "a pin names no node").help("name one, or drop the pin");
    }
    names
}

fn day(reading: &mut Reading<'_>, node: &YamlNode, what: &str) -> Option<Spanned<Timestamp>> {
    let text = reading.text(node, what)?;
    let value = instant(&text.value);
    if value.is_none() {
        reading
            .error("E017", text.at, format!("{what} is a time, and this is `{}`", text.value))
            .help("write a day such as 2027-01-31, or a time in UTC such as \"2027-01-31T12:00:00Z\"");
    }
    Some(Spanned { value: value?, at: text.at })
}
