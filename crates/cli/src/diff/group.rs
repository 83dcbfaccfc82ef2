//! Nodes whose difference is the same, put together.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::delta::{Delta, render};
use serde::Serialize;

use super::compare::{NodeChange, Population};
use super::one::{GroupError, NewRelease, NodeDifference, PublishedReader};
use super::rollouts::RolloutDelta;
use crate::operator::Operator;

/// Hostnames that a group names.
pub const NAMED: usize = 20;
/// Groups that are shown; the rest are counted.
pub const MAX_SHOWN: usize = 100;
/// Up to this many nodes are each bound, and grouped by what that does to their resources.
/// More are grouped by what differs in their sets, and one of each group is bound.
pub const MAX_BOUND: usize = 2000;

/// What would change, fleet-wide.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Compared {
    /// The release that is published now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Nodes that were compared.
    pub nodes: usize,
    /// Those that get what they have.
    pub same: usize,
    /// Those that get something else.
    pub change: usize,
    /// Of these, those that only observe it.
    pub observe: usize,
    /// Patterns that get something else and classify no enrolled node.
    pub patterns: usize,
    /// Features that agents must have to take the new release.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// What differs in how releases reach their nodes.
    #[serde(skip_serializing_if = "Delta::is_empty")]
    pub rollouts: RolloutDelta,
    /// The biggest first.
    pub groups: Vec<DiffGroup>,
}

impl Compared {
    /// Nothing differs.
    pub fn is_same(&self) -> bool {
        self.change == 0 && self.patterns == 0 && self.rollouts.is_empty()
    }
}

/// Nodes whose difference is the same.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffGroup {
    /// How many.
    pub count: usize,
    /// The first of them, by name.
    pub nodes: Vec<Arc<str>>,
    /// These stand for a pattern without enrolled nodes.
    pub pattern: bool,
    /// They gain their first set, or lose it.
    pub assigned: Assigned,
    /// From one channel to another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<(String, String)>,
    /// What differs for the first of them.
    #[serde(flatten)]
    pub first: NodeDifference,
}

/// Whether a node keeps having a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Assigned {
    /// It had one and gets another.
    Kept,
    /// It had none.
    New,
    /// It gets none; what was made stays as it is.
    Lost,
}

/// What makes nodes of one group alike.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    pattern: bool,
    assigned: Assigned,
    channel: Option<(String, String)>,
    observe: bool,
    difference: String,
}

/// Puts nodes that change alike together.
///
/// # Errors
/// When a published set cannot be read.
pub async fn group(
    operator: &Operator,
    new: NewRelease<'_>,
    from: Option<u64>,
    population: Population,
) -> Result<Compared, GroupError> {
    let mut reader = PublishedReader::new(operator, &new);
    reader.load(&population.changed).await?;
    let groups = if population.changed.len() <= MAX_BOUND {
        by_resources(&mut reader, &population.changed).await?
    } else {
        by_sets(&mut reader, &population.changed).await?
    };
    let nodes = population.nodes;
    let change = population.changed.iter().filter(|change| !change.is_pattern).count();
    let patterns = population.changed.len() - change;
    let observing = groups.iter().filter(|group| group.first.observe && !group.pattern);
    let observe = observing.map(|group| group.count).sum();
    let (same, requires) = (nodes.saturating_sub(change), new.requires());
    let rollouts = RolloutDelta::default();
    Ok(Compared { from, nodes, same, change, observe, patterns, requires, rollouts, groups })
}

/// Binds every node; those are alike whose differences read alike.
async fn by_resources(
    reader: &mut PublishedReader<'_>,
    changed: &[NodeChange],
) -> Result<Vec<DiffGroup>, GroupError> {
    let mut groups: BTreeMap<Alike, DiffGroup> = BTreeMap::new();
    for change in changed {
        let one = reader.bound(change).await?;
        let own = if one.resources.is_empty() { render(&one.params) } else { render(&one.resources) };
        let ends = if one.observe_ends { "observe ends\n" } else { "" };
        let difference = format!("{}{own}{ends}", render(&one.granted));
        let group =
            groups.entry(alike(change, one.observe, difference)).or_insert_with(|| begun(change, one));
        join(group, change);
    }
    Ok(biggest(groups.into_values().collect()))
}

/// Compares the sets of every node; binds the first of those that are alike.
async fn by_sets(
    reader: &mut PublishedReader<'_>,
    changed: &[NodeChange],
) -> Result<Vec<DiffGroup>, GroupError> {
    let mut members: BTreeMap<Alike, Vec<&NodeChange>> = BTreeMap::new();
    for change in changed {
        let (observe, difference) = reader.sets(change)?;
        members.entry(alike(change, observe, difference)).or_default().push(change);
    }
    let mut members: Vec<Vec<&NodeChange>> = members.into_values().collect();
    members.sort_by_key(|members| std::cmp::Reverse(members.len()));
    let mut groups = Vec::new();
    for members in members.into_iter().take(MAX_SHOWN) {
        let Some(leader) = members.first() else { continue };
        let mut group = begun(leader, reader.bound(leader).await?);
        members.iter().for_each(|member| join(&mut group, member));
        groups.push(group);
    }
    Ok(groups)
}

fn alike(change: &NodeChange, observe: bool, difference: String) -> Alike {
    let (assigned, channel) = (assigned(change), channel(change));
    Alike { pattern: change.is_pattern, assigned, channel, observe, difference }
}

fn begun(change: &NodeChange, first: NodeDifference) -> DiffGroup {
    let (assigned, channel) = (assigned(change), channel(change));
    DiffGroup { count: 0, nodes: Vec::new(), pattern: change.is_pattern, assigned, channel, first }
}

fn join(group: &mut DiffGroup, change: &NodeChange) {
    group.count += 1;
    if group.nodes.len() < NAMED {
        group.nodes.push(change.shown());
    }
}

fn biggest(mut groups: Vec<DiffGroup>) -> Vec<DiffGroup> {
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups.truncate(MAX_SHOWN);
    groups
}

fn assigned(change: &NodeChange) -> Assigned {
    match (&change.old, &change.new) {
        (None, _) => Assigned::New,
        (_, None) => Assigned::Lost,
        (Some(_), Some(_)) => Assigned::Kept,
    }
}

fn channel(change: &NodeChange) -> Option<(String, String)> {
    let (old, new) = (change.old.as_ref()?, change.new.as_ref()?);
    (old.channel != new.channel).then(|| (old.channel.to_string(), new.channel.to_string()))
}
