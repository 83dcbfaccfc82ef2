//! [`Coverage`]: what the terms of a rollout come to beside the nodes that a release declares: how many each
//! wave, budget and edge has, and what is wrong with that.

use crate::edge_order::EdgeOrder;
use crate::placement::{Placement, PossiblePlaces, RolloutRules, bits};

/// The nodes of each wave, budget and edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    waves: Vec<usize>,
    budgets: Vec<usize>,
    before: Vec<usize>,
    after: Vec<usize>,
    order: EdgeOrder,
    /// Of each edge the earliest wave in which a node waits by it.
    earliest_after: Vec<Option<u16>>,
    /// Of each edge the latest wave in which a node goes first by it.
    latest_before: Vec<Option<u16>>,
    /// Where nodes may come to be that are not named yet.
    possible: PossiblePlaces,
}

/// Something that a publisher should know before the release is signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoverageMistake {
    /// A wave that nobody is in: its rule takes no node, or earlier waves take them all.
    #[error("nobody is in wave `{0}`: its rule takes no node that no earlier wave took")]
    EmptyWave(String),
    /// A budget of no node.
    #[error("the budget of `{0}` takes no node")]
    EmptyBudget(String),
    /// An edge of which one end takes no node.
    #[error("the edge from `{before}` to `{after}` holds nobody: one of them takes no node")]
    EmptyEdge {
        /// What goes first.
        before: String,
        /// What waits.
        after: String,
    },
    /// Edges whose nodes would wait for one another.
    #[error("the edges {} close a cycle over the nodes that they take, so they hold nobody", named(.0))]
    EdgeCycle(Vec<String>),
    /// An edge against the order of the waves.
    #[error(
        "`{before}` goes before `{after}`, but some of it is in a later wave: within the order of waves the edge \
         counts only for nodes of waves that are open"
    )]
    EdgeAgainstWaves {
        /// What goes first.
        before: String,
        /// What waits.
        after: String,
    },
}

fn named(edges: &[String]) -> String {
    edges.join(", ")
}

impl Coverage {
    /// Counts nodes by their placements.
    pub fn of(rules: &RolloutRules, placements: impl IntoIterator<Item = Placement>) -> Coverage {
        let (budgets, edges) = (rules.terms().budgets.len(), rules.terms().edges.len());
        let mut coverage = Coverage {
            waves: vec![0; rules.waves()],
            budgets: vec![0; budgets],
            before: vec![0; edges],
            after: vec![0; edges],
            order: EdgeOrder::default(),
            earliest_after: vec![None; edges],
            latest_before: vec![None; edges],
            possible: PossiblePlaces::default(),
        };
        for placement in placements {
            coverage.add(&placement);
        }
        coverage
    }

    fn add(&mut self, placement: &Placement) {
        let wave = placement.wave;
        let count = |counts: &mut Vec<usize>, mask: u32| {
            bits(mask).filter_map(|bit| counts.get_mut(bit).map(|n| *n += 1)).count()
        };
        if let Some(count) = self.waves.get_mut(usize::from(wave)) {
            *count += 1;
        }
        count(&mut self.budgets, placement.budgets);
        count(&mut self.before, placement.before);
        count(&mut self.after, placement.after);
        for edge in bits(placement.after) {
            if let Some(earliest) = self.earliest_after.get_mut(edge) {
                *earliest = Some(earliest.map_or(wave, |other| other.min(wave)));
            }
        }
        for edge in bits(placement.before) {
            if let Some(latest) = self.latest_before.get_mut(edge) {
                *latest = Some(latest.map_or(wave, |other| other.max(wave)));
            }
        }
        self.order.add(placement);
    }

    /// Nodes may come that are not named yet: where they may be, nobody is missing.
    #[must_use]
    pub fn expecting(mut self, possible: &PossiblePlaces) -> Coverage {
        self.possible.add(possible);
        self
    }

    /// How many nodes a wave has.
    pub fn in_wave(&self, wave: usize) -> usize {
        self.waves.get(wave).copied().unwrap_or(0)
    }

    /// What is wrong. The implied last wave may be empty.
    pub fn mistakes(&self, rules: &RolloutRules) -> Vec<CoverageMistake> {
        let terms = rules.terms();
        let may_fill = |mask: u32, index: usize| bits(mask).any(|bit| bit == index);
        let is_empty =
            |wave: usize| self.in_wave(wave) == 0 && !self.possible.waves.get(wave).copied().unwrap_or(false);
        let empty_waves = terms.waves.iter().enumerate().filter(|(index, _)| is_empty(*index));
        let mut found: Vec<CoverageMistake> =
            empty_waves.map(|(_, wave)| CoverageMistake::EmptyWave(wave.name.clone())).collect();
        let empty_budgets = terms
            .budgets
            .iter()
            .zip(&self.budgets)
            .enumerate()
            .filter(|(index, (_, count))| **count == 0 && !may_fill(self.possible.budgets, *index));
        found.extend(
            empty_budgets.map(|(_, (budget, _))| CoverageMistake::EmptyBudget(budget.of.as_str().to_owned())),
        );
        for (index, edge) in terms.edges.iter().enumerate() {
            let has_none = |counts: &[usize], possible: u32| {
                counts.get(index).copied().unwrap_or(0) == 0 && !may_fill(possible, index)
            };
            let (before, after) = (edge.before.as_str().to_owned(), edge.after.as_str().to_owned());
            let latest = self.latest_before.get(index).copied().flatten();
            let earliest = self.earliest_after.get(index).copied().flatten();
            if has_none(&self.before, self.possible.before) || has_none(&self.after, self.possible.after) {
                found.push(CoverageMistake::EmptyEdge { before, after });
            } else if latest > earliest {
                found.push(CoverageMistake::EdgeAgainstWaves { before, after });
            }
        }
        let void = self.order.void();
        if void != 0 {
            let name = |index: usize| {
                terms.edges.get(index).map(|edge| format!("`{}` before `{}`", edge.before, edge.after))
            };
            found.push(CoverageMistake::EdgeCycle(bits(void).filter_map(name).collect()));
        }
        found
    }
}
