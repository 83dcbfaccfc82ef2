//! Where the rollouts point a node.

use std::collections::BTreeSet;

use model::NodeId;
use model::rollout::{RolloutDispatch, RolloutId};

use crate::id::RolloutKey;
use crate::live::LiveRollout;
use crate::member::MemberRecord;
use crate::nodes::NodeIndex;
use crate::rollouts::Rollouts;
use crate::state::{NodeRolloutState, RolloutState};
use crate::step::{OffRelease, RolloutPointer};

/// Why a node is not on the release of a rollout, and is not brought there.
fn off_release(rollout: &LiveRollout, record: &MemberRecord) -> Option<OffRelease> {
    let document = &rollout.document;
    let why = || record.failure.as_ref().map(ToString::to_string);
    match record.state {
        NodeRolloutState::Failed => {
            why().map(|why| OffRelease::Failed(format!("failed in rollout {}: {why}", document.id)))
        }
        NodeRolloutState::Reverted => {
            let halt = || document.halt.as_ref().map(|halt| halt.cause.to_string());
            let why = why().or_else(halt).map(|why| format!(": {why}")).unwrap_or_default();
            Some(OffRelease::WentBack(format!("went back from release {}{why}", document.key.seq)))
        }
        NodeRolloutState::Pending => record.skipped.as_ref().map(|by| {
            OffRelease::TakenOut(format!("{by} took it out of the rollout of release {}", document.key.seq))
        }),
        _ => None,
    }
}

impl Rollouts {
    /// Where a node is pointed to, and what it is asked. `None` for a node that is in no rollout. A control
    /// plane that answers a node with it has read at least what was stored when the node was heard last: a
    /// node that acknowledged a request begins, or gives it up, by what this says next.
    pub fn pointer(&self, node: &NodeId) -> Option<RolloutPointer> {
        let index = self.nodes.find(node)?;
        let (rollout, record) = self.pointing_of(index)?;
        let document = &rollout.document;
        let wave = usize::from(record.placement.wave);
        Some(RolloutPointer {
            rollout: document.key.clone(),
            release: if record.points_to_target() { Some(document.key.seq) } else { record.before },
            dispatch: RolloutDispatch {
                rollout: document.id.clone(),
                seq: document.key.seq,
                wave: rollout.rules.wave_name(wave).to_owned(),
                task: record.task(),
                soak_secs: rollout.rules.gate(wave).soak_secs,
                through: self.through_for(index, rollout).cloned(),
            },
            off_release: off_release(rollout, record),
        })
    }

    /// The releases of before that members of a rollout stay on: until their wave opens, or as they went back. Who gets
    /// the rollout's release once it calls does not stay.
    pub fn releases_before(&self, key: &RolloutKey) -> BTreeSet<u64> {
        let is_through = self.document(key).is_some_and(|document| document.state == RolloutState::Terminal);
        let stays = |member: &&MemberRecord| {
            let only_lacks_contact = is_through && member.state == NodeRolloutState::Pending;
            !member.points_to_target() && !only_lacks_contact
        };
        self.members(key).filter(stays).filter_map(|member| member.before).collect()
    }

    /// The rollout that says where a node is pointed to: the current one, or an earlier one in which the node
    /// is on its way, until the current one asks it.
    fn pointing_of(&self, index: NodeIndex) -> Option<(&LiveRollout, &MemberRecord)> {
        let (current, record) = self.current_of(index)?;
        let may_wait = record.state == NodeRolloutState::Pending && record.asked.is_none();
        let mut earlier = self.up_to(index, current).filter(|(rollout, _)| rollout.key() != current.key());
        let on_its_way = earlier.find(|(_, record)| record.is_on_its_way());
        on_its_way.filter(|_| may_wait).or(Some((current, record)))
    }

    /// The newest rollout up to this one in which a node is confirmed for good. One that is on its way may be sent back
    /// still.
    fn through_for(&self, index: NodeIndex, rollout: &LiveRollout) -> Option<&RolloutId> {
        let mut confirmed =
            self.up_to(index, rollout).filter(|(_, record)| record.state == NodeRolloutState::Converged);
        let (newest, _) = confirmed.next()?;
        Some(&newest.document.id).filter(|_| newest.document.is_through())
    }

    /// A node's rollouts of a channel from this one back to the earliest that is kept, with what is kept of it there.
    fn up_to(
        &self,
        index: NodeIndex,
        newest: &LiveRollout,
    ) -> impl Iterator<Item = (&LiveRollout, &MemberRecord)> {
        let key = newest.key().clone();
        let rollouts = self.nodes.get(index).into_iter().flat_map(|known| known.rollouts.iter().rev());
        let earlier = rollouts.filter(move |known| known.channel == key.channel && known.seq <= key.seq);
        earlier.filter_map(move |key| {
            let rollout = self.rollouts.get(key)?;
            Some((rollout, rollout.record(index)?))
        })
    }

    /// The rollout that a node is in now, or that waits, with what is kept of it there. None where all of them gave way to
    /// a release that goes to its nodes at once.
    pub(crate) fn current_of(&self, index: NodeIndex) -> Option<(&LiveRollout, &MemberRecord)> {
        let known = self.nodes.get(index)?;
        let newest = |is_one: fn(&LiveRollout) -> bool| {
            let rollouts = known.rollouts.iter().filter_map(|key| self.rollouts.get(key));
            rollouts.filter(|rollout| is_one(rollout)).max_by_key(|rollout| rollout.key().seq)
        };
        let rollout = newest(LiveRollout::is_current)
            .or_else(|| newest(|rollout| rollout.state() == RolloutState::Opening))?;
        Some((rollout, rollout.record(index)?))
    }
}
