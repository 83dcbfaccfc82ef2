//! How rollouts give way to others, and what is kept of those.

use std::time::Duration;

use model::Channel;
use trust::rollout_terms::OnFailure;

use crate::id::RolloutKey;
use crate::live::LiveRollout;
use crate::member::MemberRecord;
use crate::nodes::NodeIndex;
use crate::record::HaltCause;
use crate::rollouts::Rollouts;
use crate::state::RolloutState;
use crate::step::RolloutNote;

/// How long a superseded rollout is kept: 30 days; of one in which nodes are in flight yet, these alone after that.
pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// The most superseded rollouts of a channel that are kept with all of their members; of more, those without members go
/// before their time, and then the oldest.
pub const MAX_SUPERSEDED: usize = 8;

impl Rollouts {
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
        let superseded = self.rollouts.values().filter(|rollout| {
            rollout.key().channel == *channel && rollout.state() == RolloutState::Superseded
        });
        // What a node was told of one that it is confirmed in rests on its members.
        let mut superseded: Vec<(bool, RolloutKey)> =
            superseded.map(|rollout| (!rollout.members.is_empty(), rollout.key().clone())).collect();
        superseded.sort();
        let over = superseded.len().saturating_sub(MAX_SUPERSEDED);
        superseded.into_iter().take(over).for_each(|(_, key)| self.prune(&key));
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
}
