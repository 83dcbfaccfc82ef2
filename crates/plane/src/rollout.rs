//! [`PointedRollout`]: where a rollout points a node, as the answer to its check-in has it (ROL-5).
//!
//! The owner of all rollouts puts it here once what it follows from is durable, so that a check-in looks nothing up and
//! waits for nobody.

use std::time::Duration;

use model::Timestamp;
use model::rollout::{RolloutDispatch, RolloutTask};
use model::status::Contact;
use rollout::cadence::{self, ContactNeed};
use rollout::{NextCall, OffRelease, RolloutPointer};

use crate::node::NodeState;

/// Where a rollout points a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointedRollout {
    /// The pointer.
    pub pointer: RolloutPointer,
    /// An answer said so.
    told: bool,
    /// How the node is reached, as the rollouts were told last.
    contact: Option<ContactNews>,
}

/// How a node is reached, for the rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContactNews {
    /// How it is reached.
    pub contact: Contact,
    /// How soon it hears what it is asked.
    pub next_call: NextCall,
}

/// What another pointer means for who polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerChange {
    /// It says the same.
    Same,
    /// It says something that waits until the node calls.
    Quiet,
    /// The node is pointed to another release, or asked for something else: its poll is answered.
    Wakes,
}

impl NodeState {
    /// Where a rollout points the node; `None` while it is in none.
    pub fn rollout(&self) -> Option<&RolloutPointer> {
        self.rollout.as_ref().map(|rollout| &rollout.pointer)
    }

    /// Why the node failed in its rollout, for people; `None` of one that did not, or is back.
    pub fn rollout_failure(&self) -> Option<&str> {
        match self.rollout()?.off_release.as_ref()? {
            OffRelease::Failed(failure) => Some(failure),
            OffRelease::WentBack(_) | OffRelease::TakenOut(_) => None,
        }
    }

    /// Points the node by a rollout from now on, or by none.
    pub fn set_rollout(&mut self, pointer: Option<RolloutPointer>) -> PointerChange {
        let before = self.rollout.take();
        let contact = before.as_ref().and_then(|before| before.contact);
        let change = match (before.as_ref().map(|before| &before.pointer), &pointer) {
            (None, None) => PointerChange::Same,
            (Some(before), Some(now)) if before == now => PointerChange::Same,
            (Some(before), Some(now)) if asks_the_same(before, now) => PointerChange::Quiet,
            _ => PointerChange::Wakes,
        };
        let told = change == PointerChange::Same && before.is_some_and(|before| before.told);
        self.rollout = pointer.map(|pointer| Box::new(PointedRollout { pointer, told, contact }));
        if change != PointerChange::Same {
            self.pointed_anew();
        }
        change
    }

    /// How the node is reached, where the rollouts do not know that yet; they count as told from now on.
    pub fn contact_untold(&mut self, contact: Contact) -> Option<ContactNews> {
        // A node that follows no rollouts goes on calling as its channel says.
        let next_call = if self.follows_rollout { NextCall::within(self.promised) } else { NextCall::Soon };
        let news = ContactNews { contact, next_call };
        let rollout = self.rollout.as_mut()?;
        (rollout.contact.replace(news) != Some(news)).then_some(news)
    }

    /// What the answer says of the rollout; it counts as told from now on.
    pub fn tell_rollout(&mut self) -> Option<RolloutDispatch> {
        let follows = self.follows_rollout;
        let rollout = self.rollout.as_mut().filter(|_| follows)?;
        rollout.told = true;
        Some(rollout.pointer.dispatch.clone())
    }

    /// The rollout says something that no answer said yet.
    pub(crate) fn has_untold_rollout(&self) -> bool {
        self.follows_rollout && self.rollout.as_ref().is_some_and(|rollout| !rollout.told)
    }

    /// A rollout is to change the node, or watches it.
    pub(crate) fn is_in_rollout(&self) -> bool {
        let rollout = self.rollout.as_ref().filter(|_| self.follows_rollout);
        rollout.is_some_and(|rollout| {
            let dispatch = &rollout.pointer.dispatch;
            !(dispatch.is_through() && dispatch.task == RolloutTask::Proceed)
        })
    }

    /// How often the node calls, and how long it is to wait now, by the slot that its hostname gives it (ROL-8). `None`
    /// where no rollout is followed: then it waits as its channel says.
    pub(crate) fn rollout_cadence(&self, idle_secs: u64, now: Timestamp) -> Option<(Duration, u64)> {
        self.rollout.as_ref().filter(|_| self.follows_rollout)?;
        let need = match self.is_in_rollout() {
            true => ContactNeed::Rollout(idle_secs),
            false => ContactNeed::Idle(idle_secs),
        };
        let next = cadence::next_checkin_secs(&self.hostname, need, now);
        Some((Duration::from_secs(need.interval_secs()), next))
    }
}

/// What the two pointers want of the node is the same.
fn asks_the_same(before: &RolloutPointer, now: &RolloutPointer) -> bool {
    let task = |pointer: &RolloutPointer| (pointer.rollout.clone(), pointer.release, pointer.dispatch.task);
    task(before) == task(now)
}
