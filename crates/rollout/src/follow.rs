//! What the heads of the channels mean for rollouts: a release with rollout terms begins one, one without them ends that
//! of its channel, and who is in a channel is in its rollouts. Each answer follows from what the rollouts have, so that a
//! start after a crash between two steps puts right what is missing.

use std::collections::{BTreeMap, BTreeSet};

use model::{Channel, NodeId, Timestamp};
use trust::RolloutTerms;
use trust::rollout_terms::WaveMembers;

use crate::id::RolloutKey;
use crate::record::RolloutDocument;
use crate::rollouts::Rollouts;
use crate::state::RolloutState;

/// What the release that a channel points to is for rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// It goes to the channel's nodes by a rollout.
    InRollout,
    /// It goes to all of them at once.
    AtOnce,
}

/// What follows from the release that a channel points to.
#[derive(Clone, Debug)]
pub enum HeadStep {
    /// Its rollout begins.
    Begin,
    /// The rollouts of before end ([`RolloutInput::AtOnce`](crate::RolloutInput::AtOnce)).
    End,
    /// Nothing: its rollout is known, or none is left that could end.
    Known,
}

/// A release of a channel before the one that goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierRelease {
    /// Its number.
    pub seq: u64,
    /// How it went to the channel's nodes.
    pub kind: HeadKind,
    /// The release that goes out names it as a fallback.
    pub is_fallback: bool,
    /// Until when the newest signature for it is fresh: that of its header, or of a beacon.
    pub fresh_until: Timestamp,
}

/// The search for the release that a node without one is pointed to until its wave opens: the newest before the one that
/// goes out which nothing speaks against. Releases are looked at from the newest on, and what is asked of each has to be
/// read of those alone that are [open](ReleaseBefore::is_open).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReleaseBefore {
    /// The releases that had a rollout here, and whether that is [proven](RolloutDocument::is_proven).
    proven: BTreeMap<u64, bool>,
    found: Option<u64>,
}

impl ReleaseBefore {
    /// `rollouts`: those of the channel that are kept, pruned ones too: that a rollout halted speaks against its release
    /// for good.
    pub fn of<'a>(rollouts: impl IntoIterator<Item = &'a RolloutDocument>) -> ReleaseBefore {
        let proven = rollouts.into_iter().map(|document| (document.key.seq, document.is_proven()));
        ReleaseBefore { proven: proven.collect(), found: None }
    }

    /// Whether this release may be the one.
    pub fn is_open(&self, seq: u64) -> bool {
        self.found.is_none() && self.proven.get(&seq) != Some(&false)
    }

    /// It is the one, where it may be, was tried, and counts still.
    pub fn look_at(&mut self, release: &EarlierRelease, now: Timestamp) {
        // One with rollout terms whose rollout never began was tried by nobody.
        let was_tried = release.kind == HeadKind::AtOnce || self.proven.contains_key(&release.seq);
        let counts = release.is_fallback || now <= release.fresh_until;
        if self.is_open(release.seq) && was_tried && counts {
            self.found = Some(release.seq);
        }
    }

    /// What was found.
    pub fn found(&self) -> Option<u64> {
        self.found
    }
}

impl Rollouts {
    /// What follows from the release that a channel points to now.
    pub fn follow_head(&self, head: &RolloutKey, kind: HeadKind) -> HeadStep {
        match kind {
            HeadKind::AtOnce if self.ended_by(head).is_empty() => HeadStep::Known,
            HeadKind::AtOnce => HeadStep::End,
            HeadKind::InRollout => {
                let of_channel = self.documents().filter(|document| document.key.channel == head.channel);
                match of_channel.map(|document| document.key.seq).max() {
                    Some(newest) if newest >= head.seq => HeadStep::Known,
                    _ => HeadStep::Begin,
                }
            }
        }
    }

    /// The rollouts that end where a channel points to a release that goes to its nodes at once: the current one, the one
    /// that waits, and those that gave way before and in which somebody is on its way yet.
    pub(crate) fn ended_by(&self, head: &RolloutKey) -> Vec<RolloutKey> {
        let earlier =
            self.rollouts.iter().filter(|(key, _)| key.channel == head.channel && key.seq < head.seq);
        let left =
            earlier.filter(|(_, rollout)| !rollout.state().gave_way() || rollout.has_somebody_on_its_way());
        left.map(|(key, _)| key.clone()).collect()
    }

    /// A rollout of the channel that is current, or waits, has no such member: the node comes to it.
    pub fn lacks_member(&self, channel: &Channel, node: &NodeId) -> bool {
        let mut of_channel = self
            .documents()
            .filter(|document| document.key.channel == *channel && !document.state.gave_way());
        of_channel.any(|document| self.member(&document.key, node).is_none())
    }

    /// The channels in whose rollouts a node is and that it is not in, of which it has to leave. `channel`: the one it is
    /// in; nothing for a node that is gone.
    pub fn left_by(&self, node: &NodeId, channel: Option<&Channel>) -> BTreeSet<Channel> {
        let of_node = self.documents().filter(|document| self.member(&document.key, node).is_some());
        let others = of_node.map(|document| &document.key.channel).filter(|of| Some(*of) != channel);
        others.cloned().collect()
    }

    /// The members of a channel's rollouts that are not in the channel any more.
    pub fn strangers(&self, channel: &Channel, there: &BTreeSet<&NodeId>) -> BTreeSet<NodeId> {
        let of_channel = self.documents().filter(|document| document.key.channel == *channel);
        let members = of_channel.flat_map(|document| self.members(&document.key));
        members.map(|member| &member.node).filter(|node| !there.contains(node)).cloned().collect()
    }

    /// The releases that members are on, go to or may go back to.
    pub fn releases_in_use(&self) -> BTreeSet<RolloutKey> {
        let mut in_use = BTreeSet::new();
        for document in self.documents() {
            let key = &document.key;
            in_use.insert(key.clone());
            let before: BTreeSet<u64> = self.members(key).filter_map(|member| member.before).collect();
            in_use.extend(before.into_iter().map(|seq| RolloutKey { channel: key.channel.clone(), seq }));
        }
        in_use
    }
}

impl RolloutDocument {
    /// Its release came to the end of its waves, and was not halted since: nothing says against it.
    pub fn is_proven(&self) -> bool {
        match self.state {
            RolloutState::Terminal => true,
            // One that runs gives way only once it is halted, and one that waits has opened no wave.
            RolloutState::Superseded | RolloutState::Pruned => self.halt.is_none() && !self.opened.is_empty(),
            RolloutState::Opening
            | RolloutState::Active
            | RolloutState::Converging
            | RolloutState::Reverted
            | RolloutState::Failed => false,
        }
    }
}

/// Some selector of the terms reads what is declared of a node.
pub fn reads_declared(terms: &RolloutTerms) -> bool {
    let waves = terms.waves.iter().filter_map(|wave| match &wave.members {
        WaveMembers::Where(selector) => Some(selector),
        WaveMembers::Percent(_) | WaveMembers::Rest => None,
    });
    let edges = terms.edges.iter().flat_map(|edge| [&edge.before, &edge.after]);
    let mut selectors = waves.chain(terms.budgets.iter().map(|budget| &budget.of)).chain(edges);
    selectors.any(|selector| selector.uses_declared())
}
