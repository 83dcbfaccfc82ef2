//! [`RolloutWatch`]: what is seen of a rollout while it is played. It reads what is decided, and decides nothing.

use std::collections::BTreeMap;

use model::{NodeId, Timestamp};
use rollout::{
    HaltCause, MemberGoal, MemberRecord, NodeRolloutState, RolloutCommit, RolloutNote, RolloutState,
};
use trust::RolloutTerms;

/// What was seen of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenNode {
    pub(crate) state: NodeRolloutState,
    pub(crate) asked: Option<Timestamp>,
    pub(crate) began: Option<Timestamp>,
    pub(crate) switched: Option<Timestamp>,
    pub(crate) confirmed: Option<Timestamp>,
    pub(crate) failed: Option<Timestamp>,
    /// When it was confirmed, failed, or was back: the last of these.
    pub(crate) ended: Option<Timestamp>,
    wave: u16,
    is_in_flight: bool,
}

/// The most nodes at a time, and when there were so many the first time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    now: usize,
    pub(crate) most: usize,
    pub(crate) at: Option<Timestamp>,
}

impl Peak {
    fn count(&mut self, comes: bool, now: Timestamp) {
        self.now = if comes { self.now + 1 } else { self.now.saturating_sub(1) };
        if self.now > self.most {
            (self.most, self.at) = (self.now, Some(now));
        }
    }
}

/// That the rollout stopped.
#[derive(Clone, Debug)]
pub(crate) struct SeenStop {
    pub(crate) at: Timestamp,
    pub(crate) cause: HaltCause,
    /// How many nodes had begun.
    pub(crate) begun: usize,
}

pub(crate) struct RolloutWatch {
    pub(crate) nodes: Vec<SeenNode>,
    /// When each wave opened, in their order.
    pub(crate) opened: Vec<Timestamp>,
    /// When the last node of each wave ended.
    pub(crate) wave_ended: BTreeMap<u16, Timestamp>,
    pub(crate) in_flight: Peak,
    pub(crate) budgets: Vec<Peak>,
    pub(crate) stop: Option<SeenStop>,
    pub(crate) through: Option<Timestamp>,
    pub(crate) last: Option<Timestamp>,
    begun: usize,
}

impl RolloutWatch {
    pub(crate) fn new(terms: &RolloutTerms, nodes: usize) -> RolloutWatch {
        RolloutWatch {
            nodes: vec![SeenNode::default(); nodes],
            opened: Vec::new(),
            wave_ended: BTreeMap::new(),
            in_flight: Peak::default(),
            budgets: vec![Peak::default(); terms.budgets.len()],
            stop: None,
            through: None,
            last: None,
            begun: 0,
        }
    }

    /// How many nodes are in flight now.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.now
    }

    pub(crate) fn commit(&mut self, commit: &RolloutCommit, by_id: &BTreeMap<NodeId, usize>, now: Timestamp) {
        // Slots that become free in a step are free for those who are asked in it.
        let members = || commit.rollouts.iter().flat_map(|change| &change.members);
        let (coming, going): (Vec<&MemberRecord>, Vec<&MemberRecord>) =
            members().partition(|record| record.in_flight());
        for record in going.into_iter().chain(coming) {
            if let Some(index) = by_id.get(&record.node).copied() {
                self.see(index, record, now);
            }
        }
    }

    fn see(&mut self, index: usize, record: &MemberRecord, now: Timestamp) {
        use NodeRolloutState::{Activating, Converged, Failed, Reverted, Soaking};
        let Some(node) = self.nodes.get_mut(index) else { return };
        let (was, was_in_flight) = (node.state, node.is_in_flight);
        (node.state, node.is_in_flight) = (record.state, record.in_flight());
        node.wave = record.placement.wave;
        node.asked = node.asked.or(record.first_asked);
        if was != record.state {
            self.last = Some(now);
            match record.state {
                Activating if record.goal == MemberGoal::Target && node.began.is_none() => {
                    node.began = Some(now);
                    self.begun += 1;
                }
                Soaking => node.switched = node.switched.or(Some(now)),
                Converged | Failed | Reverted => {
                    node.ended = Some(now);
                    match record.state {
                        Converged => node.confirmed = node.confirmed.or(Some(now)),
                        Failed => node.failed = node.failed.or(Some(now)),
                        _ => {}
                    }
                    self.wave_ended.insert(node.wave, now);
                }
                _ => {}
            }
        }
        if was_in_flight != record.in_flight() {
            self.in_flight.count(record.in_flight(), now);
            let budgets = record.placement.budgets;
            let held = self.budgets.iter_mut().zip(0..32).filter(|(_, bit)| budgets & (1 << bit) != 0);
            held.for_each(|(budget, _)| budget.count(record.in_flight(), now));
        }
    }

    pub(crate) fn note(&mut self, note: &RolloutNote, now: Timestamp) {
        match note {
            RolloutNote::WaveOpened { .. } => self.opened.push(now),
            RolloutNote::Halted(cause) if self.stop.is_none() => {
                self.stop = Some(SeenStop { at: now, cause: cause.clone(), begun: self.begun });
            }
            RolloutNote::Entered(RolloutState::Terminal | RolloutState::Reverted) => self.through = Some(now),
            _ => {}
        }
    }
}
