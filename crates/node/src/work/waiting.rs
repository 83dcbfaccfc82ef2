//! [`WaitingAction`]: an order that is not begun yet, and what it waits for.

use model::work::{ActionOutcome, ActionRefusal, Order};

/// An order that is not begun yet.
#[derive(Debug)]
pub(super) struct WaitingAction {
    pub(super) order: Order,
    pub(super) waits_for: ActionWait,
}

/// What an action waits for.
#[derive(Debug)]
pub(super) enum ActionWait {
    /// For those before it in the queue.
    Queued(u64),
    /// For the release that its order names: the one held refuses it.
    Release(ActionRefusal),
}

impl WaitingAction {
    /// What is said once the order expired.
    pub(super) fn expired(&self) -> ActionOutcome {
        match (&self.waits_for, self.order.release) {
            (ActionWait::Release(ActionRefusal { code, message }), Some(needed)) => ActionOutcome::Refused {
                code: *code,
                message: format!("{message}; it was to adopt release {needed} first, and did not in time"),
            },
            (ActionWait::Queued(_) | ActionWait::Release(_), _) => ActionOutcome::Expired,
        }
    }
}
