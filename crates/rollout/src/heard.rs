//! What is heard of nodes: how they are reached, and their events, with what these mean for their other rollouts.

use std::time::Duration;

use model::NodeId;

use crate::event::{EventAnswer, EventOrder, RolloutEvent, RolloutEventBody};
use crate::id::RolloutKey;
use crate::member::{MemberRecord, MemberTerms};
use crate::nodes::{NodeIndex, NodeReach};
use crate::rollouts::Rollouts;
use crate::state::NodeRolloutState;
use crate::step::RolloutNote;

impl Rollouts {
    pub(crate) fn contact(&mut self, node: &NodeId, reach: NodeReach) {
        // A node may be heard of before the rollout that another control plane put it into.
        let index = self.nodes.insert(node);
        let Some(known) = self.nodes.get_mut(index) else { return };
        if std::mem::replace(&mut known.reach, reach) == reach {
            return;
        }
        for key in known.rollouts.clone() {
            self.refresh(&key, index);
            self.touched.insert(key);
        }
    }

    pub(crate) fn event(&mut self, event: &RolloutEvent) -> EventAnswer {
        let Some(key) = self.by_id.get(&event.rollout).cloned() else { return EventAnswer::UnknownRollout };
        let Some(rollout) = self.rollouts.get(&key) else { return EventAnswer::UnknownRollout };
        let found = self.nodes.find(&event.node).and_then(|node| Some((node, rollout.record(node)?)));
        let Some((node, record)) = found else { return EventAnswer::UnknownNode };
        match record.cursor.order(&event.incarnation, event.seq, event.oldest) {
            EventOrder::Next => {}
            EventOrder::Duplicate | EventOrder::EarlierLog => return EventAnswer::Duplicate,
            EventOrder::Gap { from } => return EventAnswer::ReplayFrom(from),
        }
        let (lost, hostname) = (record.cursor.lost, record.hostname.clone());
        let terms = MemberTerms {
            on_failure: rollout.rules.terms().on_failure,
            target: key.seq,
            soak: Duration::from_secs(rollout.rules.gate(usize::from(record.placement.wave)).soak_secs),
            confirm: Duration::from_secs(rollout.rules.terms().confirm.window_secs),
            now: self.now,
        };
        let (mut result, mut begins) = (Ok(()), false);
        self.update(&key, node, |record| {
            record.cursor.take(&event.incarnation, event.seq);
            result = record.take(&event.body, terms);
            begins = result.is_ok() && is_of_activation(&event.body) && !record.started;
            if begins {
                (record.started, record.held_off) = (true, None);
            }
        });
        if begins {
            self.pass_on(&key, node);
        }
        self.update_later_rollouts(&key, node);
        let now_lost = self.rollouts.get(&key).and_then(|rollout| Some(rollout.record(node)?.cursor.lost));
        if let Some(count) = now_lost.map(|now| now.saturating_sub(lost)).filter(|count| *count > 0) {
            self.note(&key, RolloutNote::EventsLost { hostname, count });
        }
        result.map_or_else(EventAnswer::Refused, |()| EventAnswer::Accepted)
    }

    /// A node that begins here counts here from now on, and no longer where it was on its way before.
    fn pass_on(&mut self, key: &RolloutKey, node: NodeIndex) {
        let rollouts = self.nodes.get(node).map(|known| known.rollouts.clone()).unwrap_or_default();
        for earlier in
            rollouts.iter().filter(|earlier| earlier.channel == key.channel && earlier.seq < key.seq)
        {
            let record = self.rollouts.get(earlier).and_then(|rollout| rollout.record(node));
            if record.is_some_and(MemberRecord::is_on_its_way) {
                self.update(earlier, node, |record| record.passed_on = true);
            }
        }
    }

    /// A node that is confirmed in an earlier rollout has that release from now on; one that went back from it has it no more.
    fn update_later_rollouts(&mut self, key: &RolloutKey, node: NodeIndex) {
        let Some(record) = self.rollouts.get(key).and_then(|rollout| rollout.record(node)) else { return };
        let (state, back_on) = (record.state, record.before);
        let rollouts = self.nodes.get(node).map(|known| known.rollouts.clone()).unwrap_or_default();
        for later in rollouts.iter().filter(|later| later.channel == key.channel && later.seq > key.seq) {
            let known = self.rollouts.get(later).and_then(|rollout| rollout.record(node));
            let Some(known) = known else { continue };
            let before = match state {
                NodeRolloutState::Converged if takes_before(known, key) => Some(key.seq),
                // It was taken for confirmed when that one began, or said so since.
                NodeRolloutState::Reverted if known.before == Some(key.seq) => back_on,
                _ => continue,
            };
            self.update(later, node, |record| record.before = before);
        }
    }
}

/// Who says this has begun. An acknowledgement says that it will, and may be taken back by the reason for which it waits; who
/// was called back before it began, or refused the release, says that too.
fn is_of_activation(event: &RolloutEventBody) -> bool {
    matches!(
        event,
        RolloutEventBody::ActivationStarted
            | RolloutEventBody::ActivationComplete { .. }
            | RolloutEventBody::ActivationDeferred { .. }
    )
}

/// Whether what a node is confirmed on in an earlier rollout is what it had before a later one.
fn takes_before(later: &MemberRecord, earlier: &RolloutKey) -> bool {
    // It told of the release that it has since, which went to all at once, before it told of this one.
    later.before <= Some(earlier.seq)
}
