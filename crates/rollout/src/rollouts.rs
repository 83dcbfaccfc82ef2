//! [`Rollouts`]: all rollouts of a fleet, and the one step over them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{Channel, NodeId, Timestamp};

use crate::budget::{BudgetBook, BudgetIndex, PopulationChange};
use crate::id::{RolloutId, RolloutKey};
use crate::live::LiveRollout;
use crate::member::{ClockShift, MemberRecord};
use crate::nodes::{NodeIndex, NodeReach, NodeTable};
use crate::record::{BudgetVersions, RolloutChange, RolloutCommit, StoredRollout};
use crate::step::{RolloutAnswer, RolloutEffect, RolloutInput, RolloutNote, RolloutPointer, RolloutStep};

/// A clock that goes back by more was set back.
pub const CLOCK_BACK: Duration = Duration::from_secs(60);
/// After so long without a step nobody could be heard, and nobody counts as silent for it.
pub const STEP_GAP: Duration = Duration::from_secs(120);
/// The most nodes that one step asks; it goes on in the next one at once.
pub const MAX_STARTS: usize = 5_000;

/// All rollouts of a fleet, in memory. Everything of it follows from what is stored and from who is reached.
#[derive(Clone, Debug, Default)]
pub struct Rollouts {
    pub(crate) nodes: NodeTable,
    pub(crate) book: BudgetBook,
    pub(crate) rollouts: BTreeMap<RolloutKey, LiveRollout>,
    pub(crate) by_id: BTreeMap<RolloutId, RolloutKey>,
    pub(crate) channels: BTreeMap<Channel, BTreeSet<u64>>,
    pub(crate) now: Timestamp,
    /// Rollouts to be looked at before the step ends.
    pub(crate) touched: BTreeSet<RolloutKey>,
    pub(crate) effects: Vec<RolloutEffect>,
    pub(crate) wakes: BTreeSet<NodeIndex>,
    pub(crate) starts: usize,
}

impl Rollouts {
    /// Of a fleet that has none yet.
    pub fn new() -> Rollouts {
        Rollouts::default()
    }

    /// Puts rollouts as they are stored in the place of what is held of them; one of `gone` that is not stored
    /// any more is forgotten. After a commit whose guards did not hold this is called with what that commit
    /// was about. Who is reached is kept. At the start all stored rollouts but pruned ones are given, with no
    /// `gone`. The effects wake the nodes whose pointer is another one than was known here.
    pub fn reload(
        &mut self,
        stored: Vec<StoredRollout>,
        gone: &[RolloutKey],
        budgets: BudgetVersions,
    ) -> Vec<RolloutEffect> {
        let keys: Vec<RolloutKey> =
            stored.iter().map(|stored| stored.document.key.clone()).chain(gone.iter().cloned()).collect();
        let concerned = keys.iter().flat_map(|key| self.members(key)).map(|record| record.node.clone());
        let concerned: BTreeSet<NodeId> = concerned.collect();
        let before: BTreeMap<NodeId, Option<RolloutPointer>> =
            concerned.into_iter().map(|node| (node.clone(), self.pointer(&node))).collect();
        self.book.loaded(budgets);
        keys.iter().for_each(|key| self.forget(key));
        for rollout in stored {
            self.now = self.now.max(rollout.document.latest);
            self.insert(rollout);
        }
        self.book.followed();
        self.effects.clear();
        self.wakes.clear();
        self.touched = self.rollouts.keys().cloned().collect();
        let changed = before.into_iter().filter(|(node, pointer)| self.pointer(node) != *pointer);
        changed.map(|(node, _)| RolloutEffect::Wake(node)).collect()
    }

    /// Takes an input in. Nothing of the step counts before its commit is durable. The answer of a step without
    /// a commit follows from what is held: it counts only where that is what is stored; otherwise what is
    /// stored is [loaded](Rollouts::reload) and the input is handed in again. Contact and time ask for no
    /// such care, as they come again. Who joins or is removed is handed in once what is stored was loaded, also where
    /// the step has a commit: a rollout that is not known here has members too, and nothing of it would be guarded.
    pub fn handle(&mut self, input: RolloutInput, now: Timestamp) -> RolloutStep {
        self.keep_time(now);
        self.starts = 0;
        let answer = self.take(input);
        self.due();
        self.settle();
        self.finish(answer)
    }

    /// When [`RolloutInput::Tick`] is due at the latest.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let of = |rollout: &LiveRollout| {
            let timer = rollout.timers.first().map(|(at, _)| *at);
            timer.into_iter().chain(self.waits_until(rollout)).min()
        };
        self.rollouts.values().filter_map(of).min()
    }

    /// What is kept of a rollout.
    pub fn document(&self, key: &RolloutKey) -> Option<&crate::RolloutDocument> {
        self.rollouts.get(key).map(|rollout| &rollout.document)
    }

    /// The rollouts there are, in the order of channels and numbers.
    pub fn documents(&self) -> impl Iterator<Item = &crate::RolloutDocument> {
        self.rollouts.values().map(|rollout| &rollout.document)
    }

    /// The members of a rollout.
    pub fn members(&self, key: &RolloutKey) -> impl Iterator<Item = &MemberRecord> {
        self.rollouts.get(key).into_iter().flat_map(|rollout| rollout.members.values().map(|m| &m.record))
    }

    /// One rollout's part for a node.
    pub fn member(&self, key: &RolloutKey, node: &NodeId) -> Option<&MemberRecord> {
        self.rollouts.get(key)?.record(self.nodes.find(node)?)
    }

    fn take(&mut self, input: RolloutInput) -> RolloutAnswer {
        match input {
            RolloutInput::Published(new) => {
                let published: Vec<_> = new.into_iter().map(|new| self.publish(new)).collect();
                RolloutAnswer::Published(published.into_iter().collect())
            }
            RolloutInput::AtOnce { head } => {
                self.end_before(&head);
                RolloutAnswer::None
            }
            RolloutInput::Joined { channel, node } => {
                self.join(&channel, &node);
                RolloutAnswer::None
            }
            RolloutInput::Removed { channel, node } => {
                self.remove(&channel, &node);
                RolloutAnswer::None
            }
            RolloutInput::Contact { node, contact, next_call } => {
                self.contact(&node, NodeReach { contact: Some(contact), next_call });
                RolloutAnswer::None
            }
            RolloutInput::Event(event) => RolloutAnswer::Event(self.event(&event)),
            RolloutInput::Command { rollout, by, command } => {
                RolloutAnswer::Command(self.command(&rollout, &by, command))
            }
            RolloutInput::Tick => RolloutAnswer::None,
        }
    }

    /// A clock that was set back moves everything noted back with it, so that no wait is longer than its
    /// length: by what each channel noted last, so that it is moved once, whoever sees it first, and what came after what
    /// in the channel stays so. Time in which no step was made is no node's silence.
    fn keep_time(&mut self, now: Timestamp) {
        let (gap, before) = (now.since(self.now), self.now);
        let was_heard = self.now != Timestamp::default();
        let is_back = self.now.since(now) > CLOCK_BACK;
        self.now = if is_back { now } else { self.now.max(now) };
        let mut ahead: BTreeMap<&Channel, Timestamp> = BTreeMap::new();
        for (key, rollout) in &self.rollouts {
            let latest = rollout.document.latest;
            if latest.since(now) > CLOCK_BACK {
                let newest = ahead.entry(&key.channel).or_insert(before);
                *newest = latest.max(*newest);
            }
        }
        let mut shifts: Vec<(RolloutKey, ClockShift)> = Vec::new();
        for key in self.rollouts.keys() {
            if let Some(latest) = ahead.get(&key.channel) {
                shifts.push((key.clone(), ClockShift::Back(latest.since(now))));
            } else if gap > STEP_GAP && was_heard {
                shifts.push((key.clone(), ClockShift::Silence(gap)));
            }
        }
        for (key, shift) in shifts {
            self.shift(&key, shift);
        }
    }

    fn shift(&mut self, key: &RolloutKey, shift: ClockShift) {
        let Some(rollout) = self.rollouts.get_mut(key) else { return };
        if let ClockShift::Back(by) = shift {
            rollout.shift_back(by);
        }
        let waiting = rollout.members.iter().filter(|(_, member)| member.record.waits());
        let waiting: Vec<NodeIndex> = waiting.map(|(node, _)| *node).collect();
        for node in waiting {
            self.update(key, node, |record| record.shift(shift));
        }
    }

    /// Changes a member: the only way in which one changes.
    pub(crate) fn update(
        &mut self,
        key: &RolloutKey,
        node: NodeIndex,
        change: impl FnOnce(&mut MemberRecord),
    ) {
        let Some(rollout) = self.rollouts.get_mut(key) else { return };
        let Some(member) = rollout.members.get_mut(&node) else { return };
        change(&mut member.record);
        rollout.changed.insert(node);
        self.touched.insert(key.clone());
        self.refresh(key, node);
    }

    /// Counts a member anew, with all that follows for budgets and for its other rollouts.
    pub(crate) fn refresh(&mut self, key: &RolloutKey, node: NodeIndex) {
        let Some(rollout) = self.rollouts.get_mut(key) else { return };
        let refreshed = rollout.refresh(node, &mut self.nodes, &mut self.book, self.now);
        if refreshed.wakes {
            self.wakes.insert(node);
        }
        self.freed(&refreshed.freed);
        if refreshed.holds_changed {
            self.requeue(node);
        }
    }

    /// Slots became free: who waits for them is looked at again.
    pub(crate) fn freed(&mut self, budgets: &[BudgetIndex]) {
        for budget in budgets {
            let rollouts = self.book.get(*budget).into_iter().flat_map(|budget| budget.rollouts());
            self.touched.extend(rollouts.cloned());
        }
    }

    /// A node holds other slots than before: in which queue it stands follows from the slots that it lacks,
    /// in each of its rollouts.
    pub(crate) fn requeue(&mut self, node: NodeIndex) {
        let rollouts = self.nodes.get(node).map(|known| known.rollouts.clone()).unwrap_or_default();
        for key in rollouts {
            if let Some(rollout) = self.rollouts.get_mut(&key) {
                rollout.refresh(node, &mut self.nodes, &mut self.book, self.now);
            }
        }
    }

    /// A rollout comes into memory with its members.
    pub(crate) fn insert(&mut self, stored: StoredRollout) {
        let key = stored.document.key.clone();
        let mut rollout = LiveRollout::new(&stored, &mut self.book);
        let mut indexes = Vec::with_capacity(stored.members.len());
        for record in stored.members {
            let node = self.nodes.insert(&record.node);
            if let Some(known) = self.nodes.get_mut(node)
                && !known.rollouts.contains(&key)
            {
                known.rollouts.push(key.clone());
                known.rollouts.sort();
            }
            rollout.add(node, record);
            indexes.push(node);
        }
        self.by_id.insert(rollout.document.id.clone(), key.clone());
        self.channels.entry(key.channel.clone()).or_default().insert(key.seq);
        self.rollouts.insert(key.clone(), rollout);
        self.populate(&key);
        for node in indexes {
            self.refresh(&key, node);
        }
    }

    /// A rollout goes from memory.
    pub(crate) fn forget(&mut self, key: &RolloutKey) {
        let Some(mut rollout) = self.rollouts.remove(key) else { return };
        if rollout.is_populated {
            for (budget, population) in rollout.budgets.iter().zip(&rollout.populations) {
                self.book.populate(*budget, PopulationChange::Less(*population));
            }
        }
        let members: Vec<NodeIndex> = rollout.members.keys().copied().collect();
        for node in members {
            let freed = rollout.remove(node, &mut self.nodes, &mut self.book);
            if !freed.is_empty() {
                self.requeue(node);
            }
        }
        for budget in &rollout.budgets {
            self.book.leave(*budget, key);
        }
        self.by_id.remove(&rollout.document.id);
        if let Some(of_channel) = self.channels.get_mut(&key.channel) {
            of_channel.remove(&key.seq);
        }
    }

    /// Counts the members of a rollout to its budgets exactly while it is its channel's current one.
    pub(crate) fn populate(&mut self, key: &RolloutKey) {
        let Some(rollout) = self.rollouts.get_mut(key) else { return };
        let is_current = rollout.is_current();
        if rollout.is_populated == is_current {
            return;
        }
        rollout.is_populated = is_current;
        for (budget, population) in rollout.budgets.iter().zip(&rollout.populations) {
            let by = if is_current {
                PopulationChange::More(*population)
            } else {
                PopulationChange::Less(*population)
            };
            self.book.populate(*budget, by);
            let others = self.book.get(*budget).into_iter().flat_map(|budget| budget.rollouts());
            self.touched.extend(others.cloned());
        }
    }

    pub(crate) fn note(&mut self, key: &RolloutKey, note: RolloutNote) {
        self.effects.push(RolloutEffect::Note { rollout: key.clone(), note });
    }

    fn finish(&mut self, answer: RolloutAnswer) -> RolloutStep {
        let mut commit = RolloutCommit::default();
        let mut pruned = Vec::new();
        for (key, rollout) in &mut self.rollouts {
            if let Some(change) = changes(rollout, self.now) {
                commit.rollouts.push(change);
            }
            if rollout.document.state == crate::RolloutState::Pruned {
                pruned.push(key.clone());
            }
        }
        pruned.iter().for_each(|key| self.forget(key));
        let wakes = std::mem::take(&mut self.wakes);
        let woken = wakes.into_iter().filter_map(|node| Some(self.nodes.get(node)?.id.clone()));
        let mut effects = std::mem::take(&mut self.effects);
        effects.extend(woken.map(RolloutEffect::Wake));
        // A budget's limit changes only with a rollout of which something is stored.
        commit.budgets = self.book.guards();
        let commit = Some(commit).filter(|commit| !commit.rollouts.is_empty());
        RolloutStep { commit, answer, effects }
    }
}

/// What changed of a rollout since this was asked last.
fn changes(rollout: &mut LiveRollout, now: Timestamp) -> Option<RolloutChange> {
    let is_changed = rollout.is_changed || !rollout.changed.is_empty() || !rollout.removed.is_empty();
    if !is_changed {
        return None;
    }
    let changed = std::mem::take(&mut rollout.changed);
    let members = changed.into_iter().filter_map(|node| rollout.record(node).cloned()).collect();
    let removed = std::mem::take(&mut rollout.removed);
    let expected = rollout.document.version;
    rollout.document.version += 1;
    rollout.document.latest = now;
    rollout.is_changed = false;
    let drops_members = std::mem::take(&mut rollout.drops_members);
    Some(RolloutChange { expected, document: rollout.document.clone(), members, removed, drops_members })
}
