//! Certificates: when the node asks for the next one (IDN-2); [`crate::renewal`] decides.

use model::time::SLACK;
use model::{CertificateValidity, Timestamp};
use trust::clock::TrustTime;

use super::Node;
use crate::io::NodeEffect;
use crate::renewal::RenewalProof;

impl Node {
    /// Why the certificate could not be renewed, while that is so.
    pub fn renewal_failure(&self) -> Option<&str> {
        self.renewal.failure()
    }

    /// The time by which a certificate is judged: the control plane's where it is known; a slow clock locks no node
    /// out (IDN-11).
    fn certificate_time(&self, now: Timestamp) -> Timestamp {
        let clock = self.clock_difference.map_or(now, |difference| difference.at_server(now));
        TrustTime { clock, control_plane: clock, ..self.trust_time(now) }.now()
    }

    fn renewal_due(&self, now: Timestamp) -> Option<(Timestamp, RenewalProof)> {
        self.renewal.due(&self.identity.hostname, now, self.certificate_time(now))
    }

    pub(super) fn renewal_deadline(&self) -> Option<(Timestamp, &'static str)> {
        // What was due and was not begun waits for the contact that goes first.
        let due = self.renewal_due(self.seen_at).filter(|(at, _)| *at > self.seen_at);
        due.map(|(at, _)| (at, "the next certificate"))
    }

    pub(super) fn renew_what_is_due(&mut self, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        let Some((_, proof)) = self.renewal_due(now).filter(|(at, _)| *at <= now) else { return };
        if proof == RenewalProof::Certificate && !self.time_is_compared(now) {
            // An answer compares the clocks anew.
            self.next_contact = now;
            return;
        }
        if proof == RenewalProof::Key && self.renewal.failure().is_none() {
            let why = self.renewal.why_by_key();
            let warning = format!("{why}: another one is requested by the node's key");
            effects.push(NodeEffect::Warn(warning));
        }
        self.renewal.begins();
        effects.push(NodeEffect::Renew(proof));
    }

    /// The clocks were compared just now. A clock that jumped ahead since the last answer would else renew a certificate
    /// that is good (IDN-11).
    fn time_is_compared(&self, now: Timestamp) -> bool {
        self.answered_at.is_some_and(|at| now.since(at) <= SLACK)
    }

    pub(super) fn on_renewed(&mut self, validity: CertificateValidity, now: Timestamp) {
        let was_told = self.failures > 0 || self.renewal.failure().is_some();
        self.renewal.renewed(validity, now);
        if was_told {
            // A contact that failed for it is made again, and the control plane hears that nothing fails any more.
            self.deliver_soon(now);
        }
    }

    pub(super) fn on_renewal_failed(&mut self, why: String, now: Timestamp, effects: &mut Vec<NodeEffect>) {
        let warning = format!("the certificate could not be renewed, and it is tried again: {why}");
        if self.renewal.failed(why, now, &mut self.spread) {
            effects.push(NodeEffect::Warn(warning));
        }
    }
}
