//! [`MemberRecord`]: one node in one rollout, as it is stored.

use std::sync::Arc;
use std::time::Duration;

use model::rollout::RolloutTask;
use model::time::SLACK;
use model::{Hostname, NodeId, Timestamp};
use serde::{Deserialize, Serialize};
use trust::rollout_terms::OnFailure;

use crate::event::{EventCursor, ProbeMode, ProbeOutcome};
use crate::placement::{BeginRefusal, Placement};
use crate::state::NodeRolloutState;

/// How long a node that was asked may take to acknowledge it; then the request is withdrawn.
pub const ASK_LEASE: Duration = Duration::from_secs(600);
/// A node that calls within so long may be asked: half of the time that it has for its answer.
pub const ASK_REACH: Duration = Duration::from_secs(300);
/// How long the activation itself may take, the confirm window aside.
pub const ACTIVATION_LIMIT: Duration = Duration::from_secs(3600);
/// How long after its soak a node is waited for.
pub const SOAK_SILENCE: Duration = Duration::from_secs(3600);
/// How long the boot of a deferred node is waited for: two weeks.
pub const DEFER_LIMIT: Duration = Duration::from_secs(14 * 24 * 3600);
/// For so long a node that waits for its boot holds its slot of a budget: a day. What its release changed is in place
/// by then and disturbs nothing, and when it boots is its owner's and its channel's window's to say.
pub const DEFER_SLOT: Duration = Duration::from_secs(24 * 3600);
/// For so long a node that failed, and whose terms let it stay as it is, holds its slot: it may be on its way back.
/// After that it stays, within what its wave's gate lets fail, or the rollout would be halted.
pub const FAILED_SLOT_LIMIT: Duration = Duration::from_secs(3600);
/// The most requests that a node may refuse or let pass while it is online. Those that it answers by why it does not begin
/// yet do not count.
pub const MAX_ATTEMPTS: u8 = 5;
/// So many times in a row a wave waits for a node that says that its own clock keeps it: about a day, as it is asked again each
/// 16 minutes. Clocks that run differ by less; one that does not run holds up nobody for longer.
pub const MAX_WAITED_TIMES: u8 = 96;
/// After so long a node is asked again that refused or let pass a request; doubled with each time, up to 16 minutes.
pub const RETRY_WAIT: Duration = Duration::from_secs(60);

/// One node in one rollout. What a store keeps; everything else is made of it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberRecord {
    /// The node.
    pub node: NodeId,
    /// Its hostname.
    pub hostname: Hostname,
    /// Where it is in the rollout.
    pub placement: Placement,
    /// Enforcing probes that the release declares of it.
    #[serde(default, skip_serializing_if = "no_probes")]
    pub enforcing: Arc<[String]>,
    /// The release that it had; absent where it had none that it may be pointed to.
    pub before: Option<u64>,
    /// How it stands.
    pub state: NodeRolloutState,
    /// Since when.
    pub since: Timestamp,
    /// Where it is to go.
    #[serde(default, skip_serializing_if = "MemberGoal::is_target")]
    pub goal: MemberGoal,
    /// It was asked, and its acknowledgement was not taken yet.
    pub asked: Option<StartRequest>,
    /// When it was asked the first time; absent where the clock was set back since.
    pub first_asked: Option<Timestamp>,
    /// How many requests it refused or let pass.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u8,
    /// Why it does not begin yet, as it said when it was asked last.
    pub held_off: Option<HeldOff>,
    /// Not to be asked before this.
    pub retry_at: Option<Timestamp>,
    /// Past this it counts as silent.
    pub deadline: Option<Timestamp>,
    /// Past this it holds no slot any more.
    pub slot_until: Option<Timestamp>,
    /// It holds no slot of a budget though it is not through: it failed and stays, or its boot is waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slot_left: bool,
    /// It said something of its activation, so that it began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub started: bool,
    /// The boot in which it activated the release.
    pub boot: Option<String>,
    /// The probes that it declared, with what the enforcing ones found.
    pub probes: Option<Vec<ProbeRecord>>,
    /// Why it failed.
    pub failure: Option<MemberFailure>,
    /// It is back, and says that it holds no release: its host is as it was found.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_found: bool,
    /// An operator let the rollout go on in spite of its failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forgiven: bool,
    /// The operator who took it out of the rollout.
    pub skipped: Option<String>,
    /// It began in a newer rollout, and counts there; or a release came that goes to all at once, and it counts nowhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passed_on: bool,
    /// Up to where its events were taken.
    #[serde(default)]
    pub cursor: EventCursor,
}

fn no_probes(probes: &Arc<[String]>) -> bool {
    probes.is_empty()
}

/// How long after so many requests in vain a node is asked again.
fn retry_wait(times: u8) -> Duration {
    RETRY_WAIT * 2u32.pow(u32::from(times.clamp(1, MAX_ATTEMPTS) - 1))
}

fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// Where a node is to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberGoal {
    /// To the release of the rollout.
    #[default]
    Target,
    /// Back to the one that it had.
    Before,
}

impl MemberGoal {
    fn is_target(&self) -> bool {
        *self == MemberGoal::Target
    }
}

/// That a node was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartRequest {
    /// When.
    pub at: Timestamp,
    /// Until when it may acknowledge.
    pub until: Timestamp,
}

/// That a node was asked and does not begin yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldOff {
    /// Why.
    pub why: BeginRefusal,
    /// How many requests in a row it answered so.
    pub times: u8,
}

impl HeldOff {
    /// Its wave waits for it still.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.why.is_waited_for() && self.times < MAX_WAITED_TIMES
    }
}

/// A declared probe, and whether it passed since the activation.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeRecord {
    /// Its name.
    pub name: String,
    /// Whether it counts.
    pub mode: ProbeMode,
    /// What it found last.
    pub outcome: Option<ProbeOutcome>,
}

/// Why a node failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "cause")]
pub enum MemberFailure {
    /// It said so.
    Reported {
        /// Its words.
        message: String,
    },
    /// It was not heard of in time.
    Silent {
        /// How it stood.
        was: NodeRolloutState,
    },
    /// It returned by itself.
    Returned,
    /// It refused what it was asked.
    Refused {
        /// Its code.
        code: String,
    },
    /// It let requests pass while it was online.
    Unanswered,
}

/// How the times of waits are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockShift {
    /// The clock was set back by so much: everything noted is earlier by that.
    Back(Duration),
    /// For so long nobody could be heard here, so nobody was silent.
    Silence(Duration),
}

/// What of the rollout an event is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberTerms {
    pub(crate) on_failure: OnFailure,
    pub(crate) target: u64,
    pub(crate) soak: Duration,
    pub(crate) confirm: Duration,
    pub(crate) now: Timestamp,
}

impl MemberRecord {
    /// It counts as in flight: it is [on its way](MemberRecord::is_on_its_way), and did not leave its slot.
    pub fn in_flight(&self) -> bool {
        self.is_on_its_way() && !self.slot_left
    }

    /// It was asked, activates, soaks, is deferred, or failed and is not back. What an operator took out, and what a
    /// newer rollout had begin, is not.
    pub(crate) fn is_on_its_way(&self) -> bool {
        use NodeRolloutState::{Activating, Converged, Deferred, Failed, Pending, Reverted, Soaking};
        let counts = self.skipped.is_none() && !self.passed_on;
        counts
            && match self.state {
                Pending | Converged => self.asked.is_some(),
                Activating | Soaking | Deferred => true,
                Failed => self.has_begun(),
                Reverted => false,
            }
    }

    /// A node that had no release. It waits for its wave as any other and is pointed to nothing until then. Nobody sends it back,
    /// as there is no release to point it to: where it fails its host goes back by itself, to how it was found.
    pub fn has_no_earlier_release(&self) -> bool {
        self.before.is_none()
    }

    /// The release that it holds by all that is known of it, in the rollout of this one.
    pub(crate) fn held(&self, target: u64) -> Option<u64> {
        // Who was confirmed and would not go back is where it was.
        let stays = self.state == NodeRolloutState::Failed && !self.has_begun() && self.boot.is_some();
        match self.state == NodeRolloutState::Converged || stays {
            true => Some(target),
            false => self.before,
        }
    }

    /// It began, so that a failure leaves it changed until it is back; or it goes back by itself.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.failure, Some(MemberFailure::Refused { .. } | MemberFailure::Unanswered))
    }

    /// It failed, and no operator let that pass.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some() && !self.forgiven
    }

    /// Where it is pointed to: the rollout's release, or the one that it had.
    pub(crate) fn points_to_target(&self) -> bool {
        use NodeRolloutState::{Activating, Converged, Deferred, Failed, Pending, Reverted, Soaking};
        match (self.goal, self.state) {
            (MemberGoal::Target, Pending) => self.asked.is_some(),
            (MemberGoal::Target, Activating | Soaking | Converged | Deferred) => true,
            // One that fell silent may still be at it.
            (MemberGoal::Target, Failed) => matches!(self.failure, Some(MemberFailure::Silent { .. })),
            (MemberGoal::Before, Converged) => self.asked.is_none(),
            (MemberGoal::Target, Reverted) | (MemberGoal::Before, _) => false,
        }
    }

    /// What the wire asks it for.
    pub(crate) fn task(&self) -> RolloutTask {
        use NodeRolloutState::{Activating, Deferred, Failed, Soaking};
        match (self.asked, self.goal) {
            (Some(asked), _) => RolloutTask::Acknowledge { until: asked.until },
            _ if self.points_to_target() => RolloutTask::Proceed,
            // One that holds no slot, as it would not go back or never began, is not to go now.
            (None, MemberGoal::Before) if self.state == Failed && !self.has_begun() => RolloutTask::Hold,
            (None, MemberGoal::Before) if matches!(self.state, Activating | Soaking | Deferred | Failed) => {
                RolloutTask::GoBack
            }
            _ => RolloutTask::Hold,
        }
    }

    /// When it is to be looked at again. A pin that is over is taken off then, so that a clock that is set back
    /// does not bring it again.
    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        let asked = self.asked.map(|asked| asked.until);
        [asked, self.deadline, self.slot_until, self.retry_at, self.placement.pinned]
            .into_iter()
            .flatten()
            .min()
    }

    /// The clock here was set back, or nothing was heard here of anybody.
    pub(crate) fn shift(&mut self, shift: ClockShift) {
        let until = self.asked.as_mut().map(|asked| &mut asked.until);
        let waits = until.into_iter().chain(self.deadline.as_mut()).chain(self.slot_until.as_mut());
        match shift {
            ClockShift::Silence(by) => waits.for_each(|at| *at = at.plus(by)),
            ClockShift::Back(by) => {
                waits.for_each(|at| *at = at.minus(by));
                let asked = self.asked.as_mut().map(|asked| &mut asked.at);
                let times = asked.into_iter().chain(self.retry_at.as_mut());
                times.chain([&mut self.since]).for_each(|at| *at = at.minus(by));
                // By how much is not known exactly: a soak that is over would be taken for one that is not, and a node
                // says once that it converged.
                self.first_asked = None;
            }
        }
    }

    /// Whether it waits for something that a shift moves.
    pub(crate) fn waits(&self) -> bool {
        self.asked.is_some()
            || self.deadline.is_some()
            || self.slot_until.is_some()
            || self.retry_at.is_some()
    }

    pub(crate) fn enter(&mut self, state: NodeRolloutState, now: Timestamp) {
        debug_assert!(self.state.may_become(state), "{} to {state}", self.state);
        (self.state, self.since) = (state, now);
        (self.deadline, self.slot_until) = (None, None);
    }

    /// It is asked, and takes a slot.
    pub(crate) fn ask(&mut self, now: Timestamp) {
        self.slot_left = false;
        self.asked = Some(StartRequest { at: now, until: now.plus(ASK_LEASE) });
        self.first_asked = self.first_asked.or(Some(now));
        self.retry_at = None;
    }

    /// It may say why it does not begin yet: it is asked whether it will, or said so and began nothing.
    pub(crate) fn may_hold_off(&self) -> bool {
        match self.state {
            NodeRolloutState::Pending => self.asked.is_some(),
            NodeRolloutState::Activating => self.goal == MemberGoal::Target && !self.started,
            _ => false,
        }
    }

    /// It says why it does not begin yet. However often it does, that is no failure; what it acknowledged counts no more.
    pub(crate) fn hold_off(&mut self, why: BeginRefusal, now: Timestamp) {
        if self.state == NodeRolloutState::Activating {
            self.enter(NodeRolloutState::Pending, now);
        }
        self.asked = None;
        let times = self.held_off.map_or(0, |held| held.times).saturating_add(1);
        self.held_off = Some(HeldOff { why, times });
        self.retry_at = Some(now.plus(retry_wait(times)));
    }

    /// A request was refused or let pass. The last one is a failure; of one that is confirmed and was asked to go back too,
    /// so that nobody waits for it without end.
    pub(crate) fn put_off(&mut self, failure: MemberFailure, now: Timestamp) {
        (self.asked, self.held_off) = (None, None);
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts >= MAX_ATTEMPTS {
            self.fail(failure, now);
            return;
        }
        self.retry_at = Some(now.plus(retry_wait(self.attempts)));
    }

    pub(crate) fn fail(&mut self, failure: MemberFailure, now: Timestamp) {
        self.enter(NodeRolloutState::Failed, now);
        self.asked = None;
        self.failure = Some(failure);
    }

    /// It says that it failed. Where its terms let it stay as it is, it is waited for a while whether it goes back.
    pub(crate) fn report_failure(&mut self, message: String, terms: MemberTerms) {
        self.fail(MemberFailure::Reported { message }, terms.now);
        self.slot_until = match terms.on_failure {
            OnFailure::Halt => Some(terms.now.plus(FAILED_SLOT_LIMIT)),
            OnFailure::Rollback => None,
        };
    }

    /// A node that had fallen silent is heard of: it is as it was.
    pub(crate) fn heard(&mut self, terms: MemberTerms) {
        if let Some(MemberFailure::Silent { was }) = self.failure.clone() {
            self.failure = None;
            self.go_on(was, terms);
        }
    }

    /// How long it may stay as it is without a word.
    fn limit(&self, terms: MemberTerms) -> Option<Duration> {
        match self.state {
            NodeRolloutState::Activating => Some(ACTIVATION_LIMIT + terms.confirm + SLACK),
            NodeRolloutState::Soaking => Some(terms.soak + SOAK_SILENCE),
            NodeRolloutState::Deferred => Some(DEFER_LIMIT),
            _ => None,
        }
    }

    pub(crate) fn go_on(&mut self, state: NodeRolloutState, terms: MemberTerms) {
        self.enter(state, terms.now);
        self.deadline = self.limit(terms).map(|limit| terms.now.plus(limit));
        let waits_for_boot = state == NodeRolloutState::Deferred && !self.slot_left;
        self.slot_until = waits_for_boot.then(|| terms.now.plus(DEFER_SLOT));
    }
}
