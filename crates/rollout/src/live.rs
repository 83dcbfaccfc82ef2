//! [`LiveRollout`]: a rollout in memory: its members, and what is counted of them so that one event looks at
//! one member (counters of each wave and edge, queues of those that may begin, what is due when).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::Timestamp;

use crate::budget::{BudgetBook, BudgetIndex, HoldChange};
use crate::counts::{DerivedCounts, MemberClass, WaveCount, derive, may_begin};
use crate::edge_order::EdgeOrder;
use crate::id::RolloutKey;
use crate::member::{MemberGoal, MemberRecord};
use crate::nodes::{NodeIndex, NodeTable};
use crate::placement::{RolloutRules, bits, hashed};
use crate::queue::{QueuePlace, ReadyNeeds, ReadyQueues};
use crate::record::{HaltCause, RolloutDocument, StoredRollout};
use crate::state::RolloutState;

/// A member with what is derived of it.
#[derive(Clone, Debug)]
pub(crate) struct LiveMember {
    pub(crate) record: MemberRecord,
    order: u64,
    derived: Option<DerivedCounts>,
}

#[derive(Clone, Debug)]
pub(crate) struct LiveRollout {
    pub(crate) document: RolloutDocument,
    pub(crate) rules: RolloutRules,
    pub(crate) members: BTreeMap<NodeIndex, LiveMember>,
    pub(crate) waves: Vec<WaveCount>,
    /// The members of each wave.
    pub(crate) in_wave: Vec<BTreeSet<NodeIndex>>,
    pub(crate) failed: Vec<BTreeSet<NodeIndex>>,
    /// How many hold back those that wait, of each edge.
    pub(crate) edges: Vec<usize>,
    pub(crate) edge_order: EdgeOrder,
    pub(crate) queues: ReadyQueues,
    pub(crate) timers: BTreeSet<(Timestamp, NodeIndex)>,
    pub(crate) asked: BTreeSet<NodeIndex>,
    pub(crate) to_return: usize,
    pub(crate) in_flight: usize,
    pub(crate) budgets: Vec<BudgetIndex>,
    /// How many members each budget takes.
    pub(crate) populations: Vec<usize>,
    pub(crate) is_populated: bool,
    pub(crate) changed: BTreeSet<NodeIndex>,
    pub(crate) removed: Vec<model::NodeId>,
    pub(crate) is_changed: bool,
    pub(crate) drops_members: bool,
}

/// What a refresh came to.
#[derive(Debug, Default)]
pub(crate) struct MemberRefresh {
    /// Budgets that have room since.
    pub(crate) freed: Vec<BudgetIndex>,
    /// The node's pointer or request changed.
    pub(crate) wakes: bool,
    /// The node holds other slots than before.
    pub(crate) holds_changed: bool,
}

impl LiveRollout {
    pub(crate) fn new(stored: &StoredRollout, book: &mut BudgetBook) -> LiveRollout {
        let rules = RolloutRules::new(Arc::clone(&stored.terms));
        let key = &stored.document.key;
        let budgets: Vec<BudgetIndex> =
            rules.terms().budgets.iter().map(|budget| book.insert(budget, key)).collect();
        LiveRollout {
            document: stored.document.clone(),
            members: BTreeMap::new(),
            waves: vec![WaveCount::default(); rules.waves()],
            in_wave: vec![BTreeSet::new(); rules.waves()],
            failed: vec![BTreeSet::new(); rules.waves()],
            edges: vec![0; rules.terms().edges.len()],
            edge_order: EdgeOrder::default(),
            queues: ReadyQueues::default(),
            timers: BTreeSet::new(),
            asked: BTreeSet::new(),
            to_return: 0,
            in_flight: 0,
            populations: vec![0; budgets.len()],
            budgets,
            is_populated: false,
            changed: BTreeSet::new(),
            removed: Vec::new(),
            is_changed: false,
            drops_members: false,
            rules,
        }
    }

    pub(crate) fn key(&self) -> &RolloutKey {
        &self.document.key
    }

    pub(crate) fn record(&self, node: NodeIndex) -> Option<&MemberRecord> {
        self.members.get(&node).map(|member| &member.record)
    }

    pub(crate) fn state(&self) -> RolloutState {
        self.document.state
    }

    pub(crate) fn enter(&mut self, state: RolloutState, now: Timestamp) {
        debug_assert!(self.document.state.may_become(state), "{} to {state}", self.document.state);
        self.document.was_through = self.document.is_through();
        (self.document.state, self.document.since) = (state, now);
        self.is_changed = true;
    }

    /// The clock was set back by so much: times that are compared with one another move together.
    pub(crate) fn shift_back(&mut self, by: Duration) {
        let document = &mut self.document;
        let approvals = document.approvals.iter_mut().map(|approval| &mut approval.at);
        let halt = document.halt.iter_mut().map(|halt| &mut halt.at);
        let paused = document.paused.iter_mut().map(|paused| &mut paused.at);
        let noted = [&mut document.since, &mut document.published].into_iter().chain(&mut document.opened);
        noted.chain(approvals).chain(halt).chain(paused).for_each(|at| *at = at.minus(by));
        self.is_changed = true;
    }

    /// It is its channel's current rollout, by its state.
    pub(crate) fn is_current(&self) -> bool {
        self.document.state != RolloutState::Opening && !self.document.state.gave_way()
    }

    /// Nobody is kept of it but members in flight.
    pub(crate) fn has_only_who_is_in_flight(&self) -> bool {
        self.members.len() == self.in_flight
    }

    pub(crate) fn has_somebody_on_its_way(&self) -> bool {
        self.members.values().any(|member| member.record.is_on_its_way())
    }

    /// Some node of it had a release before.
    pub(crate) fn has_where_to_go_back(&self) -> bool {
        self.members.values().any(|member| !member.record.has_no_earlier_release())
    }

    pub(crate) fn is_open(&self, wave: u16) -> bool {
        usize::from(wave) < self.document.opened.len()
    }

    /// A member comes; the caller refreshes it.
    pub(crate) fn add(&mut self, node: NodeIndex, record: MemberRecord) {
        let seed = self.rules.terms().seed.as_bytes();
        let order = hashed([b"muster rollout order\0".as_slice(), seed], &record.hostname);
        let placement = record.placement;
        for (population, _) in
            self.populations.iter_mut().zip(0..32).filter(|(_, bit)| placement.budgets & (1 << bit) != 0)
        {
            *population += 1;
        }
        if let Some(wave) = self.in_wave.get_mut(usize::from(placement.wave)) {
            wave.insert(node);
        }
        self.edge_order.add(&placement);
        self.members.insert(node, LiveMember { record, order, derived: None });
    }

    /// The budgets that a member is in.
    pub(crate) fn budgets_of(&self, record: &MemberRecord) -> Vec<BudgetIndex> {
        bits(record.placement.budgets).filter_map(|bit| self.budgets.get(bit).copied()).collect()
    }

    /// Takes back what was counted for a member, and counts what it is now.
    pub(crate) fn refresh(
        &mut self,
        node: NodeIndex,
        nodes: &mut NodeTable,
        book: &mut BudgetBook,
        now: Timestamp,
    ) -> MemberRefresh {
        let mut refreshed = MemberRefresh::default();
        let Some(member) = self.members.get(&node) else { return refreshed };
        let (before, order) = (member.derived, member.order);
        let reach = nodes.get(node).map(|known| known.reach).unwrap_or_default();
        let mut after =
            derive(&member.record, reach.contact, self.is_open(member.record.placement.wave), now);
        let record = &member.record;
        let placement = record.placement;
        let was_in_flight = before.is_some_and(|before| before.in_flight);
        if was_in_flight != after.in_flight {
            for budget in self.budgets_of(record) {
                let change = match after.in_flight {
                    true => book.hold(budget, node),
                    false => book.release(budget, node),
                };
                let Some(known) = nodes.get_mut(node) else { continue };
                match change {
                    HoldChange::Taken => known.holds.push(budget),
                    HoldChange::Freed => {
                        known.holds.retain(|held| *held != budget);
                        refreshed.freed.push(budget);
                    }
                    HoldChange::Unchanged => {}
                }
                refreshed.holds_changed |= change != HoldChange::Unchanged;
            }
        }
        if may_begin(&member.record, reach, self.is_open(placement.wave), now) {
            let held = nodes.get(node).map(|known| known.holds.as_slice()).unwrap_or_default();
            let budgets = self.budgets_of(&member.record).into_iter();
            let lacks: Vec<BudgetIndex> = budgets.filter(|budget| !held.contains(budget)).collect();
            let waits_for = match member.record.goal {
                MemberGoal::Target => placement.after,
                MemberGoal::Before => 0,
            };
            let needs = ReadyNeeds { goal: member.record.goal, budgets: lacks, waits_for };
            let is_held_off = member.record.held_off.is_some();
            let place = QueuePlace { is_held_off, wave: placement.wave, order };
            after.queued = Some(self.queues.position(needs, place, node));
        }
        refreshed.wakes = before.is_none_or(|before| {
            before.points_to_target != after.points_to_target || before.is_asked != after.is_asked
        });
        self.count(node, before, after);
        if let Some(member) = self.members.get_mut(&node) {
            member.derived = Some(after);
        }
        refreshed
    }

    /// Takes a member out; its holds are freed.
    pub(crate) fn remove(
        &mut self,
        node: NodeIndex,
        nodes: &mut NodeTable,
        book: &mut BudgetBook,
    ) -> Vec<BudgetIndex> {
        let Some(member) = self.members.remove(&node) else { return Vec::new() };
        let placement = member.record.placement;
        let mut freed = Vec::new();
        if let Some(derived) = member.derived {
            self.uncount(node, placement.wave, placement.before, derived);
            if derived.in_flight {
                for budget in self.budgets_of(&member.record) {
                    if book.release(budget, node) == HoldChange::Freed {
                        freed.push(budget);
                        if let Some(known) = nodes.get_mut(node) {
                            known.holds.retain(|held| *held != budget);
                        }
                    }
                }
            }
        }
        for bit in bits(placement.budgets) {
            if let Some(population) = self.populations.get_mut(bit) {
                *population = population.saturating_sub(1);
            }
        }
        if let Some(wave) = self.in_wave.get_mut(usize::from(placement.wave)) {
            wave.remove(&node);
        }
        self.edge_order.remove(&placement);
        self.changed.remove(&node);
        if let Some(known) = nodes.get_mut(node) {
            let key = self.document.key.clone();
            known.rollouts.retain(|rollout| *rollout != key);
        }
        freed
    }

    fn count(&mut self, node: NodeIndex, before: Option<DerivedCounts>, after: DerivedCounts) {
        let Some(member) = self.members.get(&node) else { return };
        let placement = member.record.placement;
        if let Some(before) = before {
            self.uncount(node, placement.wave, placement.before, before);
        }
        let wave = usize::from(placement.wave);
        if let Some(count) = self.waves.get_mut(wave) {
            *count.of(after.class) += 1;
        }
        if after.class == MemberClass::Failed
            && let Some(failed) = self.failed.get_mut(wave)
        {
            failed.insert(node);
        }
        if after.holds_edges {
            bits(placement.before)
                .for_each(|bit| self.edges.iter_mut().skip(bit).take(1).for_each(|n| *n += 1));
        }
        self.in_flight += usize::from(after.in_flight);
        self.to_return += usize::from(after.is_to_return);
        if after.is_asked {
            self.asked.insert(node);
        }
        self.timers.extend(after.timer.map(|at| (at, node)));
        if let Some(queued) = after.queued {
            self.queues.insert(queued);
        }
    }

    fn uncount(&mut self, node: NodeIndex, wave: u16, edges: u32, before: DerivedCounts) {
        let wave = usize::from(wave);
        if let Some(count) = self.waves.get_mut(wave) {
            *count.of(before.class) -= 1;
        }
        if let Some(failed) = self.failed.get_mut(wave) {
            failed.remove(&node);
        }
        if before.holds_edges {
            bits(edges).for_each(|bit| self.edges.iter_mut().skip(bit).take(1).for_each(|n| *n -= 1));
        }
        self.in_flight -= usize::from(before.in_flight);
        self.to_return -= usize::from(before.is_to_return);
        self.asked.remove(&node);
        if let Some(at) = before.timer {
            self.timers.remove(&(at, node));
        }
        if let Some(queued) = before.queued {
            self.queues.remove(queued);
        }
    }

    /// The edges that hold somebody back now.
    pub(crate) fn holding_edges(&self) -> u32 {
        let held = self.edges.iter().zip(0..32).filter(|(count, _)| **count > 0);
        held.fold(0, |mask, (_, bit)| mask | 1 << bit) & !self.edge_order.void()
    }

    /// A wave with more failures than its gate allows, as what halts the rollout.
    pub(crate) fn broken_gate(&self) -> Option<HaltCause> {
        self.waves.iter().enumerate().find_map(|(wave, count)| {
            let allowed = count.allowed(self.rules.gate(wave).success);
            let example = self.failed.get(wave)?.first().filter(|_| count.failed > allowed)?;
            Some(HaltCause::Gate {
                wave: self.rules.wave_name(wave).to_owned(),
                failed: count.failed as u64,
                allowed: allowed as u64,
                example: self.record(*example)?.hostname.clone(),
            })
        })
    }
}
