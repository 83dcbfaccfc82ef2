//! [`CertificateValidity`]: when a node's certificate is renewed, and when that is late: one rule for the node,
//! the control plane and whoever shows it (IDN-2).
//!
//! ```text
//! from ------------- half --- + a tenth ------- three quarters ------------- until
//!                     | the node asks  |         | late: it is told           | ended
//! ```

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Digest, Timestamp};

/// From when until when a certificate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateValidity {
    /// From when.
    pub from: Timestamp,
    /// Until when.
    pub until: Timestamp,
}

/// How a certificate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateState {
    /// It counts, and is renewed in time.
    Valid,
    /// Three quarters of its validity are over, and it was not renewed.
    RenewalLate,
    /// It has ended.
    Ended,
}

impl CertificateValidity {
    /// From a time on, for so long.
    pub fn starting(from: Timestamp, span: Duration) -> CertificateValidity {
        CertificateValidity { from, until: from.plus(span) }
    }

    /// How long it counts as a whole.
    pub fn span(&self) -> Duration {
        self.until.since(self.from)
    }

    /// When half of its validity is over.
    pub fn half(&self) -> Timestamp {
        self.from.plus(self.span() / 2)
    }

    /// When a holder of this name asks for the next one: at half of validity, and up to a tenth of it later.
    /// How much later the name says, so that holders certified at one time do not ask at one time.
    pub fn renew_at(&self, name: &str) -> Timestamp {
        let [high, low, ..] = Digest::of(name.as_bytes()).0;
        let share = u32::from(u16::from_be_bytes([high, low]));
        self.half().plus(self.span() / 10 * share / 65_536)
    }

    /// From when a renewal is late.
    fn late_at(&self) -> Timestamp {
        self.from.plus(self.span() / 4 * 3)
    }

    /// How it stands at this time.
    pub fn state(&self, now: Timestamp) -> CertificateState {
        match now {
            now if now >= self.until => CertificateState::Ended,
            now if now >= self.late_at() => CertificateState::RenewalLate,
            _ => CertificateState::Valid,
        }
    }

    /// From when [`CertificateValidity::state`] is another one though nothing happened.
    pub fn state_until(&self, now: Timestamp) -> Option<Timestamp> {
        [self.late_at(), self.until].into_iter().find(|at| *at > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn it_is_renewed_from_half_on_late_at_three_quarters_and_then_ended() {
        let validity = CertificateValidity { from: Timestamp(0), until: Timestamp(0).plus(DAY * 40) };
        let day = |day: u32| Timestamp(0).plus(DAY * day);
        let states = [0, 20, 29, 30, 39, 40, 99].map(|at| validity.state(day(at)));
        use CertificateState::{Ended, RenewalLate, Valid};
        assert_eq!(states, [Valid, Valid, Valid, RenewalLate, RenewalLate, Ended, Ended]);
        let until = [0, 30, 40].map(|at| validity.state_until(day(at)));
        assert_eq!(until, [Some(day(30)), Some(day(40)), None]);
        for name in ["web-1", "web-2", "", "n-0123"] {
            let at = validity.renew_at(name);
            assert!(at >= day(20) && at <= day(24), "{name}: {at}");
            assert_eq!(at, validity.renew_at(name), "a function of the name");
        }
    }

    /// A day of one hundred thousand renewals has no peak.
    #[test]
    fn holders_certified_at_one_time_ask_evenly_spread() {
        let validity = CertificateValidity { from: Timestamp(0), until: Timestamp(0).plus(DAY * 30) };
        let mut hours = [0; 72];
        for node in 0..20_000 {
            let after = validity.renew_at(&format!("node-{node}")).since(validity.half());
            hours[(after.as_secs() / 3600).min(71) as usize] += 1;
        }
        let even = 20_000 / 72;
        assert!(hours.iter().all(|count| *count > even * 2 / 3 && *count < even * 4 / 3), "{hours:?}");
    }
}
