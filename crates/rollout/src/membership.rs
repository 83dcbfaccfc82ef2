//! How nodes come to rollouts, and go.

use model::{Channel, NodeId};

use crate::budget::PopulationChange;
use crate::event::EventCursor;
use crate::id::RolloutKey;
use crate::live::LiveRollout;
use crate::member::{MemberGoal, MemberRecord};
use crate::nodes::NodeIndex;
use crate::rollouts::Rollouts;
use crate::state::NodeRolloutState;
use crate::step::JoiningNode;

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
            started: false,
            boot: None,
            probes: None,
            failure: None,
            as_found: false,
            forgiven: false,
            skipped: None,
            passed_on: false,
            cursor: EventCursor::default(),
        }
    }
}

impl Rollouts {
    pub(crate) fn join(&mut self, channel: &Channel, node: &JoiningNode) {
        for key in self.current(channel).into_iter().chain(self.waiting(channel)) {
            let index = self.nodes.insert(&node.node);
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

    pub(crate) fn add_member(&mut self, key: &RolloutKey, index: NodeIndex, node: &JoiningNode) {
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
}
