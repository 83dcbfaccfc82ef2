//! How synchronization of a node stands, from what its summary knows and from what is around it.
//!
//! ```text
//! two agents? --> last comparison out of sync? --> node reports a problem of its backend?
//!   --> link compares? --> node rejects objects? --> changes of objects wait?
//!   --> release synchronizes nothing? --> link in sync?
//!   --> last comparison: with this instance of the control plane, and the node not late?
//! ```
//!
//! Invariant: in sync is only what a link of this instance of the control plane compared (CNV-3).

use model::Timestamp;
use model::condition::{Delivery, Difference, Direction, SyncCause, SyncCondition};
use model::replication::Mode;
use plane::work::Reach;

use super::SyncSummary;

/// What a node's condition depends on besides its summary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConditionContext<'a> {
    /// The mode of the release that the node is pointed to.
    pub(crate) mode: Mode,
    /// How the node can be reached now.
    pub(crate) reach: Reach,
    /// This instance of the control plane.
    pub(crate) instance: &'a str,
    /// When it was started.
    pub(crate) started: Timestamp,
}

impl ConditionContext<'_> {
    fn is_late(&self) -> bool {
        matches!(self.reach, Reach::Unreachable | Reach::Offline | Reach::Removed)
    }
}

impl SyncSummary {
    /// How synchronization of the node stands.
    pub(crate) fn condition(&self, around: ConditionContext<'_>) -> SyncCondition {
        let link = self.link.as_ref().map(|link| (link.report().cause.clone(), link.since));
        if self.is_duplicate() {
            return SyncCondition::new(SyncCause::DuplicateIdentity, None);
        }
        if let Some(mut out_of_sync) = self.out_of_sync(link.as_ref().map(|(cause, _)| cause)) {
            if let SyncCause::OutOfSync { difference: Difference::HeldOtherwise { .. }, .. } =
                out_of_sync.cause
                && let Some(rejected) = self.first_rejected()
            {
                out_of_sync.cause = rejected;
            }
            return out_of_sync;
        }
        if let Some(problem) = self.node_problem.as_ref().filter(|_| around.mode != Mode::Off) {
            return SyncCondition::new(SyncCause::AtNode { problem: problem.clone() }, None);
        }
        if let Some((SyncCause::Comparing, since)) = link {
            return SyncCondition::new(SyncCause::Comparing, Some(since));
        }
        if let Some(rejected) = self.first_rejected() {
            return SyncCondition::new(rejected, None);
        }
        if let Some(behind) = self.behind_cause(link.as_ref().map(|(cause, _)| cause), around) {
            return SyncCondition::new(behind, self.behind_since);
        }
        // Nothing to be equal about; actions alone come and go.
        if around.mode == Mode::Off {
            return SyncCondition::new(SyncCause::Off, None);
        }
        match link {
            // Of actions alone; objects are as they were when they were compared.
            Some((SyncCause::InSync(_) | SyncCause::Behind { .. }, since)) => {
                self.rests_on_comparison(around, Some(since))
            }
            Some((_, since)) => SyncCondition::new(SyncCause::Connecting, Some(since)),
            None => self.rests_on_comparison(around, None),
        }
    }

    /// The sets differ, and that is not under way to be put right.
    fn out_of_sync(&self, link: Option<&SyncCause>) -> Option<SyncCondition> {
        let under_way = match link {
            None | Some(SyncCause::OutOfSync { .. } | SyncCause::Connecting) => false,
            Some(cause @ SyncCause::Behind { .. }) => self.moves_objects(cause),
            Some(_) => true,
        };
        let concluded = self.concluded.as_ref().filter(|it| matches!(it.cause, SyncCause::OutOfSync { .. }));
        concluded.filter(|_| !under_way).cloned()
    }

    /// The node does not take an object of ours.
    fn first_rejected(&self) -> Option<SyncCause> {
        let (object, rejection) = self.rejected.first_key_value()?;
        let (object, rejection) = (object.clone(), rejection.clone());
        let others = self.rejected.len() as u64 - 1;
        let difference = Difference::Rejected { object, rejection, others };
        Some(SyncCause::OutOfSync { direction: Direction::Down, difference })
    }

    fn behind_cause(&self, link: Option<&SyncCause>, around: ConditionContext<'_>) -> Option<SyncCause> {
        let (down, up) = match link {
            Some(SyncCause::Behind { down, up, .. }) => (down.saturating_sub(self.actions_behind()), *up),
            _ => (0, 0),
        };
        let down = down.max(self.objects_behind());
        let delivery = match around.reach {
            Reach::Online => Delivery::UnderWay,
            Reach::Promotable { .. } => Delivery::NextContact,
            Reach::Unreachable | Reach::Offline | Reach::Removed => Delivery::NodeLate,
        };
        (down > 0 || up > 0).then_some(SyncCause::Behind { down, up, delivery })
    }

    /// Nothing waits: what the last comparison came to, if it counts.
    fn rests_on_comparison(&self, around: ConditionContext<'_>, linked: Option<Timestamp>) -> SyncCondition {
        let Some(SyncCondition { cause, since }) = self.concluded.clone() else {
            let cause = if linked.is_some() { SyncCause::Connecting } else { SyncCause::NeverCompared };
            return SyncCondition::new(cause, linked);
        };
        match cause {
            SyncCause::InSync(last) if last.instance != around.instance => match linked {
                Some(_) => SyncCondition::new(SyncCause::Connecting, linked),
                None => SyncCondition::new(SyncCause::NotComparedSinceRestart { last }, Some(around.started)),
            },
            SyncCause::InSync(last) if linked.is_none() && around.is_late() => {
                SyncCondition::new(SyncCause::NodeLate { last }, None)
            }
            cause => SyncCondition::new(cause, since),
        }
    }
}
