//! How rollouts begin and end, and how nodes come to them and go.

use std::collections::BTreeSet;
use std::time::Duration;

use model::{Channel, NodeId};
use trust::rollout_terms::OnFailure;

use crate::budget::PopulationChange;
use crate::event::EventCursor;
use crate::id::RolloutKey;
use crate::live::LiveRollout;
use crate::member::{MemberGoal, MemberRecord};
use crate::nodes::NodeIndex;
use crate::placement::RolloutRules;
use crate::record::{HaltCause, RolloutDocument, StoredRollout};
use crate::rollouts::Rollouts;
use crate::state::{NodeRolloutState, RolloutState};
use crate::step::{JoiningNode, NewRollout, PublishRefusal, RolloutNote};

/// How long a superseded rollout is kept: 30 days; of one in which nodes are in flight yet, these alone after that.
pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// The most superseded rollouts of a channel that are kept with all of their members; of more, the oldest go before their
/// time.
pub const MAX_SUPERSEDED: usize = 8;

impl LiveRollout {
    fn member_of(&self, node: &JoiningNode, now: model::Timestamp) -> MemberRecord {
        MemberRecord {
            node: node.node.clone(),
            hostname: node.hostname.clone(),
            placement: self.rules.place(&node.hostname, &node.declared),
            enforcing: node.enforcing.clone(),
            before: node.before,
            state: NodeRolloutState::Pending,
            since: now,
            goal: MemberGoal::Target,
            asked: None,
            first_asked: None,
            attempts: 0,
            held_off: None,
            retry_at: None,
            deadline: None,
            slot_until: None,
            slot_left: false,
            boot: None,
            probes: None,
            failure: None,
            forgiven: false,
            skipped: None,
            passed_on: false,
            cursor: EventCursor::default(),
        }
    }
}

impl Rollouts {
    /// The number of the channel's current rollout.
    pub(crate) fn current(&self, channel: &Channel) -> Option<RolloutKey> {
        let of = |seq: &u64| RolloutKey { channel: channel.clone(), seq: *seq };
        let keys = self.channels.get(channel)?.iter().rev().map(of);
        keys.into_iter().find(|key| self.rollouts.get(key).is_some_and(LiveRollout::is_current))
    }

    /// The rollout of the channel that waits to begin.
    pub(crate) fn waiting(&self, channel: &Channel) -> Option<RolloutKey> {
        let of = |seq: &u64| RolloutKey { channel: channel.clone(), seq: *seq };
        let is_opening = |key: &RolloutKey| {
            self.rollouts.get(key).is_some_and(|rollout| rollout.state() == RolloutState::Opening)
        };
        self.channels.get(channel)?.iter().rev().map(of).find(is_opening)
    }

    pub(crate) fn publish(&mut self, new: NewRollout) -> Result<(), PublishRefusal> {
        let NewRollout { key, id, header, terms, nodes } = new;
        let known = self.channels.get(&key.channel).and_then(|seqs| seqs.last().copied());
        if let Some(known) = known.filter(|known| *known >= key.seq) {
            return Err(PublishRefusal::NotNewer { channel: key.channel, known, seq: key.seq });
        }
        let mut indexed: Vec<(NodeIndex, &JoiningNode)> =
            nodes.iter().map(|node| (self.nodes.enter(&node.node), node)).collect();
        indexed.sort_by_key(|(index, _)| *index);
        let mut pairs = indexed.iter().zip(indexed.iter().skip(1));
        if let Some(((_, twice), _)) = pairs.find(|((one, _), (other, _))| one == other) {
            let refusal = PublishRefusal::NodeTwice(twice.node.clone());
            indexed.iter().for_each(|(index, _)| self.nodes.forget(*index));
            return Err(refusal);
        }
        let document = RolloutDocument {
            key: key.clone(),
            id,
            version: 0,
            header,
            published: self.now,
            state: RolloutState::Opening,
            since: self.now,
            was_through: false,
            opened: Vec::new(),
            approvals: Vec::new(),
            paused: None,
            halt: None,
            latest: self.now,
        };
        let before = self.waiting(&key.channel);
        self.guard_succession(&key.channel);
        self.enter(StoredRollout { document, terms, members: Vec::new() });
        for (index, node) in indexed {
            self.add_member(&key, index, node);
        }
        if let Some(rollout) = self.rollouts.get_mut(&key) {
            rollout.is_changed = true;
        }
        if let Some(before) = before {
            self.supersede(&before);
        }
        self.touched.insert(key);
        Ok(())
    }

    /// What comes to a channel changes the version of its newest rollout and of its current one, whatever
    /// becomes of them: who does not know the newcomer yet loses what he decides over the channel meanwhile
    /// (a release published besides, a node that joins or leaves).
    fn guard_succession(&mut self, channel: &Channel) {
        let newest = self.channels.get(channel).and_then(|seqs| seqs.last().copied());
        if newest.is_none() {
            self.book.first_of(channel);
        }
        let newest = newest.map(|seq| RolloutKey { channel: channel.clone(), seq });
        for key in newest.into_iter().chain(self.current(channel)) {
            if let Some(rollout) = self.rollouts.get_mut(&key) {
                rollout.is_changed = true;
            }
        }
    }

    pub(crate) fn join(&mut self, channel: &Channel, node: &JoiningNode) {
        for key in self.current(channel).into_iter().chain(self.waiting(channel)) {
            let index = self.nodes.enter(&node.node);
            self.add_member(&key, index, node);
            self.touched.insert(key);
        }
    }

    pub(crate) fn remove(&mut self, channel: &Channel, node: &NodeId) {
        let Some(index) = self.nodes.find(node) else { return };
        let rollouts = self.nodes.get(index).map(|known| known.rollouts.clone()).unwrap_or_default();
        for key in rollouts.iter().filter(|key| key.channel == *channel) {
            let Some(rollout) = self.rollouts.get_mut(key) else { continue };
            let budgets = rollout.record(index).map(|record| rollout.budgets_of(record)).unwrap_or_default();
            let is_populated = rollout.is_populated;
            let freed = rollout.remove(index, &mut self.nodes, &mut self.book);
            rollout.removed.push(node.clone());
            for budget in budgets.into_iter().filter(|_| is_populated) {
                self.book.populate(budget, PopulationChange::Less(1));
            }
            self.freed(&freed);
            if !freed.is_empty() {
                self.requeue(index);
            }
            self.touched.insert(key.clone());
        }
        self.wakes.remove(&index);
        self.nodes.forget(index);
    }

    fn add_member(&mut self, key: &RolloutKey, index: NodeIndex, node: &JoiningNode) {
        let Some(rollout) = self.rollouts.get_mut(key) else { return };
        if rollout.members.contains_key(&index) {
            return;
        }
        let record = rollout.member_of(node, self.now);
        rollout.add(index, record);
        rollout.changed.insert(index);
        if rollout.is_populated {
            let budgets = rollout.record(index).map(|record| rollout.budgets_of(record));
            for budget in budgets.into_iter().flatten() {
                self.book.populate(budget, PopulationChange::More(1));
            }
        }
        if let Some(known) = self.nodes.get_mut(index)
            && !known.rollouts.contains(key)
        {
            known.rollouts.push(key.clone());
            known.rollouts.sort();
        }
        self.refresh(key, index);
    }

    /// Why a rollout that waits does not begin; `None` where it may.
    pub fn waits_to_begin(&self, key: &RolloutKey) -> Option<BeginWait> {
        let rollout = self.rollouts.get(key)?;
        if let Some(current) = self.current(&key.channel).and_then(|key| self.rollouts.get(&key)) {
            if current.state().is_running() {
                return Some(BeginWait::Running(current.key().seq));
            }
            let halt = current.document.halt.as_ref().filter(|_| current.state() == RolloutState::Failed);
            if let Some(halt) = halt {
                let approved = rollout.document.approvals.iter().any(|approval| approval.wave.is_none());
                if !halt.cause.is_final() && !approved && rollout.document.published <= halt.at {
                    return Some(BeginWait::Halted(current.key().seq));
                }
            }
        }
        let waits = rollout.rules.terms().after.iter().find(|before| self.holds(before, &key.channel));
        waits.map(|before| BeginWait::Channel(before.clone()))
    }

    /// Whether a channel keeps the one waiting that goes after it: its newest rollout is not through. Channels
    /// that wait for one another in a circle keep nobody waiting.
    fn holds(&self, before: &Channel, after: &Channel) -> bool {
        let current = self.current(before).and_then(|key| self.rollouts.get(&key));
        let is_through = current.is_none_or(|current| {
            let deferred = current.waves.iter().any(|wave| wave.deferred > 0);
            current.state() == RolloutState::Terminal && !deferred
        });
        if is_through && self.waiting(before).is_none() {
            return false;
        }
        !self.leads_back(before, after)
    }

    /// Whether what waits in a channel waits, over any number of channels, for another one.
    fn leads_back(&self, from: &Channel, to: &Channel) -> bool {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(channel) = next.pop() {
            let waiting = self.waiting(&channel).and_then(|key| self.rollouts.get(&key));
            for before in waiting.into_iter().flat_map(|rollout| &rollout.rules.terms().after) {
                if before == to {
                    return true;
                }
                if seen.insert(before.clone()) {
                    next.push(before.clone());
                }
            }
        }
        false
    }

    /// A rollout begins: what its channel had before is superseded, and each member's release of before is
    /// what became of it there.
    pub(crate) fn begin(&mut self, key: &RolloutKey) {
        let earlier = self.current(&key.channel);
        if let Some(earlier) = &earlier {
            let members: Vec<NodeIndex> = match self.rollouts.get(key) {
                Some(rollout) => rollout.members.keys().copied().collect(),
                None => return,
            };
            for node in members {
                let record = self.rollouts.get(earlier).and_then(|rollout| rollout.record(node));
                if let Some(held) = record.map(|record| record.held(earlier.seq)) {
                    self.update(key, node, |record| record.before = held);
                }
            }
            self.supersede(earlier);
        }
        if let Some(rollout) = self.rollouts.get_mut(key) {
            rollout.enter(RolloutState::Active, self.now);
        }
        self.populate(key);
        self.note(key, RolloutNote::Began);
        self.touch_waiting();
    }

    /// The channel points to a release that goes to its nodes at once: what it has of earlier rollouts ends for good. Who
    /// is on its way in one goes by that release from now on: it holds no slot and nobody by an edge, and what a later
    /// rollout takes for its release of before is what it says that it holds then.
    pub(crate) fn end_before(&mut self, head: &RolloutKey) {
        for key in self.ended_by(head) {
            if self.rollouts.get(&key).is_some_and(|rollout| rollout.state().is_running()) {
                self.halt(&key, HaltCause::ReplacedAtOnce { seq: head.seq }, OnFailure::Halt);
            }
            let Some(rollout) = self.rollouts.get(&key) else { continue };
            self.wakes.extend(rollout.members.keys());
            let on_their_way = rollout.members.iter().filter(|(_, member)| member.record.is_on_its_way());
            for node in on_their_way.map(|(node, _)| *node).collect::<Vec<_>>() {
                self.update(&key, node, |record| (record.passed_on, record.asked) = (true, None));
            }
            if self.rollouts.get(&key).is_some_and(|rollout| !rollout.state().gave_way()) {
                self.supersede(&key);
            }
        }
    }

    /// A newer rollout, or a release that goes to its nodes at once, takes the place of one that does not run.
    pub(crate) fn supersede(&mut self, key: &RolloutKey) {
        let now = self.now;
        let Some(rollout) = self.rollouts.get_mut(key) else { return };
        let has_begun = rollout.state() != RolloutState::Opening;
        rollout.enter(RolloutState::Superseded, now);
        self.note(key, RolloutNote::Entered(RolloutState::Superseded));
        self.populate(key);
        if has_begun {
            self.withdraw(key);
        } else {
            self.drop_members(key);
        }
        self.prune_over(&key.channel);
        self.touched.insert(key.clone());
        self.touch_waiting();
    }

    /// The members of a rollout go, but for those that are in flight.
    fn drop_members(&mut self, key: &RolloutKey) {
        let Some(rollout) = self.rollouts.get_mut(key) else { return };
        let (stay, go): (Vec<NodeIndex>, Vec<NodeIndex>) = rollout
            .members
            .keys()
            .partition(|node| rollout.record(**node).is_some_and(MemberRecord::in_flight));
        if go.is_empty() {
            return;
        }
        // Those that stay are stored anew, as there may be very many that go.
        rollout.drops_members = true;
        rollout.is_changed = true;
        rollout.changed.extend(stay);
        // No slot becomes free, as none of them is in flight. One that left its slot may have been pointed by this.
        for node in go {
            if rollout.record(node).is_some_and(MemberRecord::is_on_its_way) {
                self.wakes.insert(node);
            }
            rollout.remove(node, &mut self.nodes, &mut self.book);
        }
    }

    fn prune_over(&mut self, channel: &Channel) {
        let superseded: Vec<RolloutKey> = self
            .rollouts
            .values()
            .filter(|rollout| {
                rollout.key().channel == *channel && rollout.state() == RolloutState::Superseded
            })
            .map(|rollout| rollout.key().clone())
            .collect();
        let over = superseded.len().saturating_sub(MAX_SUPERSEDED);
        superseded.into_iter().take(over).for_each(|key| self.prune(&key));
    }

    /// A superseded rollout is kept no longer: its document alone is left. Where members are in flight they stay, and
    /// nobody else: each holds its slot, and is pointed by it until a newer rollout asks it. The document of the channel's
    /// newest stays known here too: its release may be the one that the channel points to, and would begin a rollout anew.
    pub(crate) fn prune(&mut self, key: &RolloutKey) {
        let (now, is_newest) = (self.now, self.is_newest(key));
        let Some(rollout) = self.rollouts.get_mut(key) else { return };
        if rollout.in_flight == 0 && !is_newest {
            rollout.enter(RolloutState::Pruned, now);
            self.note(key, RolloutNote::Entered(RolloutState::Pruned));
        }
        self.drop_members(key);
    }

    /// Something of a superseded rollout goes once its time is over.
    pub(crate) fn has_more_than_is_kept(&self, rollout: &LiveRollout) -> bool {
        let goes_itself = rollout.in_flight == 0 && !self.is_newest(rollout.key());
        goes_itself || !rollout.has_only_who_is_in_flight()
    }

    fn is_newest(&self, key: &RolloutKey) -> bool {
        self.channels.get(&key.channel).and_then(|seqs| seqs.last()) == Some(&key.seq)
    }

    /// All that waits to begin is looked at again: what a channel waits for may stand, over circles of
    /// channels, in any other one.
    pub(crate) fn touch_waiting(&mut self) {
        let waiting = self.rollouts.values().filter(|rollout| rollout.state() == RolloutState::Opening);
        let keys: Vec<RolloutKey> = waiting.map(|rollout| rollout.key().clone()).collect();
        self.touched.extend(keys);
    }

    /// The rules of a rollout, for what asks about a node's place in it.
    pub fn rules(&self, key: &RolloutKey) -> Option<&RolloutRules> {
        self.rollouts.get(key).map(|rollout| &rollout.rules)
    }
}

/// What a rollout waits for before it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeginWait {
    /// The rollout of this release runs in the channel.
    Running(u64),
    /// The rollout of this release halted after this one was published.
    Halted(u64),
    /// A channel before it is not through.
    Channel(Channel),
}
