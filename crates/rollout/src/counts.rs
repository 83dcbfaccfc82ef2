//! [`DerivedCounts`]: what one member counts as, in its wave, its edges and its budgets; a function of its record, of how
//! it is reached, of its wave and of the time.

use model::Timestamp;
use model::status::Contact;

use crate::member::{MemberGoal, MemberRecord};
use crate::nodes::NodeReach;
use crate::queue::QueuePosition;
use crate::state::NodeRolloutState;

/// What a member counts as in its wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MemberClass {
    /// It may begin or is waited for.
    Open,
    /// It was asked or is on its way.
    Moving,
    /// It waits for its boot.
    Deferred,
    /// It is confirmed.
    Converged,
    /// It failed.
    Failed,
    /// It does not count: offline and not begun, pinned, paused, taken out, forgiven, back.
    Apart,
}

/// How many members of a wave count as what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaveCount {
    pub(crate) open: usize,
    pub(crate) moving: usize,
    pub(crate) deferred: usize,
    pub(crate) converged: usize,
    pub(crate) failed: usize,
    pub(crate) apart: usize,
}

impl WaveCount {
    pub(crate) fn of(&mut self, class: MemberClass) -> &mut usize {
        match class {
            MemberClass::Open => &mut self.open,
            MemberClass::Moving => &mut self.moving,
            MemberClass::Deferred => &mut self.deferred,
            MemberClass::Converged => &mut self.converged,
            MemberClass::Failed => &mut self.failed,
            MemberClass::Apart => &mut self.apart,
        }
    }

    /// How many may fail by a gate that asks for so much success, in percent.
    pub(crate) fn allowed(&self, success: u8) -> usize {
        let counted = self.open + self.moving + self.deferred + self.converged + self.failed;
        counted * usize::from(100 - success.min(100)) / 100
    }

    /// Nobody is waited for any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.open == 0 && self.moving == 0
    }
}

/// What was counted for a member, so that it can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DerivedCounts {
    pub(crate) class: MemberClass,
    /// It holds back those that wait by its edges.
    pub(crate) holds_edges: bool,
    pub(crate) in_flight: bool,
    /// A rollout that goes back is not at its end while it is not at its own.
    pub(crate) is_to_return: bool,
    pub(crate) is_asked: bool,
    pub(crate) timer: Option<Timestamp>,
    pub(crate) queued: Option<QueuePosition>,
    pub(crate) points_to_target: bool,
}

/// Whether a member may be asked now, as far as it and its wave go.
pub(crate) fn may_begin(record: &MemberRecord, reach: NodeReach, is_open: bool, now: Timestamp) -> bool {
    let free = record.asked.is_none()
        && record.skipped.is_none()
        && !record.passed_on
        && record.retry_at.is_none()
        && reach.may_be_asked();
    let is_pinned = record.placement.pinned.is_some_and(|until| until > now);
    free && match (record.state, record.goal) {
        (NodeRolloutState::Pending, MemberGoal::Target) => is_open && !is_pinned,
        (NodeRolloutState::Converged, MemberGoal::Before) => true,
        _ => false,
    }
}

pub(crate) fn derive(
    record: &MemberRecord,
    contact: Option<Contact>,
    is_open: bool,
    now: Timestamp,
) -> DerivedCounts {
    let class = class_of(record, contact, now);
    let in_flight = record.in_flight();
    let stuck = record.state == NodeRolloutState::Failed && in_flight;
    // One that said why it does not begin yet counts apart, and may begin all the same while it is asked again.
    let is_asked =
        record.state == NodeRolloutState::Pending && in_flight && contact != Some(Contact::Offline);
    let may_begin = matches!(class, MemberClass::Open | MemberClass::Moving) || is_asked;
    let holds_edges = is_open && (may_begin || stuck);
    DerivedCounts {
        class,
        holds_edges,
        in_flight,
        is_to_return: is_to_return(record, contact),
        is_asked: record.asked.is_some(),
        timer: record.wake_at(),
        queued: None,
        points_to_target: record.points_to_target(),
    }
}

fn is_to_return(record: &MemberRecord, contact: Option<Contact>) -> bool {
    let counts = record.skipped.is_none() && !record.passed_on && contact != Some(Contact::Offline);
    // Nobody sends back who had no release before. What it is about is its own end, or how it was found.
    if record.has_no_earlier_release() {
        return counts && record.in_flight();
    }
    let is_back = matches!(record.state, NodeRolloutState::Reverted | NodeRolloutState::Pending);
    let was_changed = record.state != NodeRolloutState::Failed || record.has_begun();
    counts && record.goal == MemberGoal::Before && !is_back && was_changed
}

fn class_of(record: &MemberRecord, contact: Option<Contact>, now: Timestamp) -> MemberClass {
    use NodeRolloutState::{Activating, Converged, Deferred, Failed, Pending, Reverted, Soaking};
    if record.skipped.is_some() || record.passed_on {
        return MemberClass::Apart;
    }
    if record.has_failed() {
        return MemberClass::Failed;
    }
    let is_pinned = record.placement.pinned.is_some_and(|until| until > now);
    match record.state {
        // Also while it is asked again: it most likely says the same.
        Pending if record.held_off.is_some_and(|held| !held.is_waited_for()) => MemberClass::Apart,
        // Also who was asked and did not answer before: its slot is its own until the request is over.
        Pending if contact == Some(Contact::Offline) => MemberClass::Apart,
        Pending if record.asked.is_some() => MemberClass::Moving,
        Pending if is_pinned => MemberClass::Apart,
        Pending => MemberClass::Open,
        Activating | Soaking => MemberClass::Moving,
        Deferred => MemberClass::Deferred,
        Converged => MemberClass::Converged,
        Failed | Reverted => MemberClass::Apart,
    }
}
