//! Reboots: in the channel's window, between runs (CNV-12).

use model::Timestamp;
use model::log::FactBody;

use super::{Node, ReleaseChange};
use crate::io::NodeEffect;
use crate::reboot::{MAX_REBOOT_CLOCK_DIFFERENCE, RebootHold, RebootMark, RebootOutlook};

impl Node {
    /// How a reboot stands that something on the host requires.
    pub fn reboot(&self) -> Option<RebootOutlook> {
        self.reboots.outlook(
            self.settings.policy.reboot.as_ref(),
            self.reboot_hold(self.seen_at),
            self.seen_at,
        )
    }

    /// The last reboot that was ordered.
    pub fn last_reboot(&self) -> Option<&RebootMark> {
        self.reboots.last()
    }

    /// What keeps the host up whatever its window.
    fn reboot_hold(&self, now: Timestamp) -> Option<RebootHold> {
        let signed = self.adoption.as_ref().map_or(Timestamp::default(), |held| held.floor.newest_signature);
        let behind = self.identity.built.max(signed).since(now);
        let differs = self.clock_difference.map(|difference| difference.most());
        if self.settings.only_observes {
            Some(RebootHold::OnlyObserves)
        } else if behind.max(differs.unwrap_or_default()) > MAX_REBOOT_CLOCK_DIFFERENCE {
            Some(RebootHold::ClockWrong)
        } else if differs.is_none() {
            Some(RebootHold::ClockNotCompared)
        } else if self.pause.is_some() {
            Some(RebootHold::Paused)
        } else {
            self.awaits_contact.then_some(RebootHold::AwaitsContact)
        }
    }

    /// Whether a contact is to follow a change that can cut the host off (CNV-11).
    pub fn awaits_contact(&self) -> bool {
        self.awaits_contact
    }

    /// Whether one may begin: each of these ends with an input.
    fn may_reboot(&self) -> bool {
        self.reboot_hold(self.seen_at).is_none()
            && self.running.is_none()
            && self.adoption.is_some()
            && !matches!(self.change, ReleaseChange::Adopting(_))
    }

    pub(super) fn reboot_deadline(&self) -> Option<(Timestamp, &'static str)> {
        if let Some(at) = self.reboots.patience_ends() {
            return Some((at, "the host to go down"));
        }
        let due = self.reboots.due(self.settings.policy.reboot.as_ref(), self.seen_at);
        due.filter(|_| self.may_reboot()).map(|at| (at, "the reboot that is required"))
    }

    /// Whether the host goes down: nothing else begins then.
    pub(super) fn reboot_what_is_due(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) -> bool {
        let Some(policy) = self.settings.policy.reboot.as_ref().filter(|_| self.may_reboot()) else {
            return false;
        };
        if self.reboots.due(Some(policy), now).is_none_or(|due| due > now) {
            return false;
        }
        let mark = self.reboots.order(policy, now);
        effects.push(NodeEffect::Warn(format!(
            "the host reboots in the window {}, as required by {}",
            mark.window, mark.reason
        )));
        effects.push(NodeEffect::Reboot(mark));
        true
    }

    /// A host that was told to go down and does not is kept as declared again.
    pub(super) fn end_patience(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        if self.reboots.patience_ends().is_some_and(|at| at <= now) {
            self.on_reboot_failed("the host does not go down", now, effects);
        }
    }

    pub(super) fn on_reboot_failed(&mut self, why: &str, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        let again = self.reboots.failed(now);
        let next = if again { "it is tried again" } else { "not again before the window opens anew" };
        let reason = format!("the host cannot be rebooted: {why}; {next}");
        effects.push(NodeEffect::Warn(reason.clone()));
        // The control plane was told that it goes down.
        self.append(FactBody::NotRebooted { reason }, now, effects);
    }

    /// Says once that a reboot is required, and what becomes of it.
    pub(super) fn tell_reboot(&self, effects: &mut Vec<NodeEffect>) {
        let Some(outlook) = self.reboot() else { return };
        effects
            .push(NodeEffect::Warn(format!("a reboot is required by {}; {}", outlook.reason, outlook.plan)));
    }
}
