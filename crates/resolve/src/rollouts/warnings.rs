//! What of a rollout is no mistake, and may be a slip of the pen.

use std::collections::{BTreeMap, BTreeSet};

use lang::Selector;
use model::time::when;
use model::{Channel, Timestamp};
use rollout::{CoverageMistake, RolloutRules};
use trust::rollout_terms::NodeEdge;

use super::ChannelNodes;
use crate::check::rollouts::DeclaredRollout;
use crate::yaml::{At, Spanned};

/// Channels that it goes after and that have no rollout to wait for.
pub(super) fn after_nothing(
    declared: &DeclaredRollout,
    channel: &Channel,
    all: &BTreeMap<String, DeclaredRollout>,
) -> Vec<String> {
    let idle = declared.decl.after.iter().filter(|after| !all.contains_key(&after.value));
    let warning = |after: &Spanned<String>| {
        let (file, line) = (&declared.file, after.at.line);
        format!(
            "{file}:{line}: channel {channel} goes after {}, which has no rollout: it waits for nothing",
            after.value
        )
    };
    idle.map(warning).collect()
}

/// Waves of whose nodes nothing asks whether they are well.
pub(super) fn unprobed(
    declared: &DeclaredRollout,
    channel: &Channel,
    rules: &RolloutRules,
    nodes: &ChannelNodes,
) -> Option<String> {
    let filled: BTreeSet<u16> = nodes.placements.iter().map(|placement| placement.wave).collect();
    let names: Vec<&str> =
        filled.difference(&nodes.probed).map(|wave| rules.wave_name(usize::from(*wave))).collect();
    let (file, line) = (&declared.file, declared.decl.channel.at.line);
    (!names.is_empty()).then(|| {
        format!(
            "{file}:{line}: channel {channel}: no enforcing probe is asked of any node of {}: whatever the release does to \
             it, it is confirmed",
            names.join(", ")
        )
    })
}

/// Budgets of the same nodes: the smaller one counts, and the other one does nothing.
pub(super) fn same_budgets(declared: &DeclaredRollout) -> Vec<String> {
    let budgets = &declared.decl.budgets;
    let is_same = |index: usize, of: &Selector| {
        budgets.iter().take(index).any(|other| other.value.of.as_str() == of.as_str())
    };
    let twice = budgets.iter().enumerate().filter(|(index, budget)| is_same(*index, &budget.value.of));
    twice
        .map(|(_, budget)| {
            let (file, line, of) = (&declared.file, budget.at.line, budget.value.of.as_str());
            format!("{file}:{line}: another budget is of the same nodes (`{of}`): both count, so write both limits into one")
        })
        .collect()
}

/// Pins that are over, and count no more.
pub(super) fn over(declared: &DeclaredRollout, created: Timestamp) -> Vec<String> {
    let over = declared.decl.pins.iter().filter(|pin| pin.until.value <= created);
    over.map(|pin| {
        let nodes: Vec<&str> = pin.nodes.iter().map(|node| node.value.as_str()).collect();
        let until = when(pin.until.value, created);
        let (file, line) = (&declared.file, pin.at.line);
        format!("{file}:{line}: the pin of {} is over since {until}, and counts no more", nodes.join(", "))
    })
    .collect()
}

/// Where a mistake stands that shows only beside the nodes.
pub(super) fn place_of(declared: &DeclaredRollout, mistake: &CoverageMistake) -> At {
    let decl = &declared.decl;
    let at = match mistake {
        CoverageMistake::EmptyWave(name) => {
            decl.waves.iter().find(|wave| wave.name.value == *name).map(|wave| wave.name.at)
        }
        CoverageMistake::EmptyBudget(of) => {
            decl.budgets.iter().find(|budget| budget.value.of.as_str() == of).map(|budget| budget.at)
        }
        CoverageMistake::EmptyEdge { before, after }
        | CoverageMistake::EdgeAgainstWaves { before, after } => {
            let is = |edge: &NodeEdge| edge.before.as_str() == before && edge.after.as_str() == after;
            decl.edges.iter().find(|edge| is(&edge.value)).map(|edge| edge.at)
        }
        CoverageMistake::EdgeCycle(edges) => {
            let is = |edge: &NodeEdge| {
                let shown = format!("`{}` before `{}`", edge.before, edge.after);
                edges.last() == Some(&shown)
            };
            decl.edges.iter().rfind(|edge| is(&edge.value)).map(|edge| edge.at)
        }
    };
    at.unwrap_or(decl.channel.at)
}
