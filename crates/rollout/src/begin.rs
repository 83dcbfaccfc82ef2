//! How rollouts are published and begin, and what they wait for before that.

use std::collections::BTreeSet;

use model::Channel;

use crate::id::RolloutKey;
use crate::live::LiveRollout;
use crate::nodes::NodeIndex;
use crate::placement::RolloutRules;
use crate::record::{RolloutDocument, StoredRollout};
use crate::rollouts::Rollouts;
use crate::state::RolloutState;
use crate::step::{JoiningNode, NewRollout, PublishRefusal, RolloutNote};

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
            nodes.iter().map(|node| (self.nodes.insert(&node.node), node)).collect();
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
        self.insert(StoredRollout { document, terms, members: Vec::new() });
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

    /// Why a rollout that waits does not begin; `None` where it may.
    pub fn waits_to_begin(&self, key: &RolloutKey) -> Option<BeginWait> {
        let rollout = self.rollouts.get(key)?;
        if let Some(current) = self.current(&key.channel).and_then(|key| self.rollouts.get(&key)) {
            if current.state().is_running() {
                return Some(BeginWait::Running(current.key().seq));
            }
            // One that went back after its halt is no better a reason to go on than one that stands.
            let is_halted = matches!(current.state(), RolloutState::Failed | RolloutState::Reverted);
            if let Some(halt) = current.document.halt.as_ref().filter(|_| is_halted) {
                // What was approved after an earlier halt was not after this one.
                let mut approvals = rollout.document.approvals.iter();
                let approved = approvals.any(|approval| approval.wave.is_none() && approval.at >= halt.at);
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
