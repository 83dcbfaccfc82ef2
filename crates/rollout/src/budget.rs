//! [`BudgetBook`]: who holds a slot of which budget, over all rollouts (ROL-1).

use std::collections::{BTreeMap, BTreeSet};

use model::Channel;
use trust::rollout_terms::BudgetTerms;

use crate::id::RolloutKey;
use crate::nodes::NodeIndex;
use crate::record::{BudgetVersions, DecisionGuard};

/// A budget's number in memory; never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BudgetIndex(u32);

/// One budget, whichever rollouts it stands in.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    identity: String,
    terms: BudgetTerms,
    /// The nodes that it takes, of the rollouts that are their channels' current ones.
    population: usize,
    /// Who holds a slot, and in how many rollouts.
    holders: BTreeMap<NodeIndex, u8>,
    /// The rollouts that have it.
    rollouts: BTreeSet<RolloutKey>,
    version: u64,
    is_changed: bool,
}

impl Budget {
    pub(crate) fn limit(&self) -> usize {
        self.terms.limit(self.population)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.holders.len()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.in_flight() < self.limit()
    }

    pub(crate) fn selector(&self) -> &str {
        self.terms.of.as_str()
    }

    pub(crate) fn rollouts(&self) -> impl Iterator<Item = &RolloutKey> {
        self.rollouts.iter()
    }
}

/// What becomes of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldChange {
    /// The node holds a slot since now.
    Taken,
    /// The node holds none any more.
    Freed,
    /// Nothing changed for the budget.
    Unchanged,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct BudgetBook {
    by_identity: BTreeMap<String, BudgetIndex>,
    budgets: Vec<Budget>,
    /// Versions of budgets that no rollout in memory has yet.
    stored: BudgetVersions,
    /// Channels that get their first rollout in this step.
    first: Vec<Channel>,
}

/// A budget's identity: its selector and its limits.
pub(crate) fn identity(terms: &BudgetTerms) -> String {
    let share = terms.in_flight.map(|share| share.to_string()).unwrap_or_default();
    let max = terms.max.map(|max| max.to_string()).unwrap_or_default();
    format!("inFlight={share} max={max} where {}", terms.of)
}

impl BudgetBook {
    pub(crate) fn get(&self, budget: BudgetIndex) -> Option<&Budget> {
        self.budgets.get(budget.0 as usize)
    }

    fn get_mut(&mut self, budget: BudgetIndex) -> Option<&mut Budget> {
        self.budgets.get_mut(budget.0 as usize)
    }

    /// The budget of these terms, which a rollout has.
    pub(crate) fn insert(&mut self, terms: &BudgetTerms, rollout: &RolloutKey) -> BudgetIndex {
        let identity = identity(terms);
        let known = self.by_identity.get(&identity).copied();
        let index = known.unwrap_or_else(|| {
            let index = BudgetIndex(u32::try_from(self.budgets.len()).unwrap_or(u32::MAX));
            self.budgets.push(Budget {
                identity: identity.clone(),
                terms: terms.clone(),
                population: 0,
                holders: BTreeMap::new(),
                rollouts: BTreeSet::new(),
                version: self.stored.get(&identity).copied().unwrap_or(0),
                is_changed: false,
            });
            self.by_identity.insert(identity, index);
            index
        });
        if let Some(budget) = self.get_mut(index) {
            budget.rollouts.insert(rollout.clone());
        }
        index
    }

    /// A rollout that had the budget goes.
    pub(crate) fn leave(&mut self, budget: BudgetIndex, rollout: &RolloutKey) {
        if let Some(budget) = self.get_mut(budget) {
            budget.rollouts.remove(rollout);
        }
    }

    /// So many nodes more, or less.
    pub(crate) fn populate(&mut self, budget: BudgetIndex, by: PopulationChange) {
        if let Some(budget) = self.get_mut(budget) {
            budget.population = match by {
                PopulationChange::More(nodes) => budget.population.saturating_add(nodes),
                PopulationChange::Less(nodes) => budget.population.saturating_sub(nodes),
            };
            // Another limit is another ground for decisions, as a taken slot is.
            budget.is_changed = true;
        }
    }

    /// A node is in flight in one rollout more.
    pub(crate) fn hold(&mut self, budget: BudgetIndex, node: NodeIndex) -> HoldChange {
        let Some(budget) = self.get_mut(budget) else { return HoldChange::Unchanged };
        let count = budget.holders.entry(node).or_insert(0);
        *count = count.saturating_add(1);
        if *count > 1 {
            return HoldChange::Unchanged;
        }
        budget.is_changed = true;
        HoldChange::Taken
    }

    /// A node is in flight in one rollout less.
    pub(crate) fn release(&mut self, budget: BudgetIndex, node: NodeIndex) -> HoldChange {
        let Some(budget) = self.get_mut(budget) else { return HoldChange::Unchanged };
        let Some(count) = budget.holders.get_mut(&node) else { return HoldChange::Unchanged };
        *count -= 1;
        if *count > 0 {
            return HoldChange::Unchanged;
        }
        budget.holders.remove(&node);
        HoldChange::Freed
    }

    /// The guards of the budgets of which slots were taken, or the limit changed, since this was asked last.
    pub(crate) fn guards(&mut self) -> Vec<DecisionGuard> {
        let taken = self.budgets.iter_mut().filter(|budget| budget.is_changed);
        let taken = taken.map(|budget| {
            budget.is_changed = false;
            let expected = budget.version;
            budget.version += 1;
            DecisionGuard { budget: budget.identity.clone(), expected, next: budget.version }
        });
        let stored = &mut self.stored;
        let first = self.first.drain(..).map(|channel| {
            let identity = format!("first rollout of channel {channel}");
            let version = stored.entry(identity.clone()).or_insert(0);
            *version += 1;
            DecisionGuard { budget: identity, expected: *version - 1, next: *version }
        });
        taken.chain(first).collect()
    }

    /// A channel of which no rollout is known gets one.
    pub(crate) fn first_of(&mut self, channel: &Channel) {
        self.first.push(channel.clone());
    }

    /// What was taken is as it is stored.
    pub(crate) fn loaded(&mut self, versions: BudgetVersions) {
        for budget in &mut self.budgets {
            budget.is_changed = false;
            budget.version = versions.get(&budget.identity).copied().unwrap_or(0);
        }
        self.stored = versions;
        self.first.clear();
    }

    /// What was held and counted just now follows from what is stored.
    pub(crate) fn followed(&mut self) {
        self.budgets.iter_mut().for_each(|budget| budget.is_changed = false);
    }
}

/// Nodes that come to a budget, or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PopulationChange {
    /// So many come.
    More(usize),
    /// So many go.
    Less(usize),
}
