//! Delivery: facts, and what else is a cause for it, bring the next contact forward.

use std::time::Duration;

use model::Timestamp;
use model::log::FactBody;

use super::{MIN_CONTACT, Node};
use crate::io::NodeEffect;

/// How soon after new facts the node calls to deliver them, at the most.
const DELIVER_WITHIN: Duration = Duration::from_secs(2);

impl Node {
    pub(super) fn append(&mut self, body: FactBody, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        effects.push(NodeEffect::Append(body));
        self.contact_pending = true;
        if self.failures == 0 {
            self.deliver_soon(now);
        }
    }

    pub(super) fn deliver_soon(&mut self, now: Timestamp) {
        let soon = now.plus(self.spread.up_to(DELIVER_WITHIN.min(self.settings.policy.contact())));
        self.next_contact = self.next_contact.min(soon);
    }

    /// The next contact is due now; but a control plane that gives cause for this every time
    /// (another request, an acknowledgement of nothing) does not make the node spin.
    pub(super) fn hurry(&mut self, now: Timestamp) {
        let soonest = self.hurried.map_or(now, |at| now.max(at.plus(MIN_CONTACT)));
        self.hurried = Some(soonest);
        self.next_contact = self.next_contact.min(soonest);
    }
}
