//! [`OwnCertificate`]: when the control plane's own certificate is made anew (IDN-2, IDN-8).
//!
//! ```text
//! half of its validity, or a clock that is set back ---+
//! other CAs certify: until one of theirs was made -----+--> due, asked at each look --> made
//! ```

use std::time::Duration;

use model::{CertificateValidity, Timestamp};

/// At the latest after this the control plane looks whether its certificate is due.
const LOOK: Duration = Duration::from_secs(60);
/// And after this part of its validity.
const LOOK_PART: u32 = 16;

/// The certificate that the ports show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnCertificate {
    counts: CertificateValidity,
    /// Other CAs certify since it was made.
    is_of_before: bool,
}

impl OwnCertificate {
    /// One that was just made.
    pub(crate) fn made(counts: CertificateValidity) -> OwnCertificate {
        OwnCertificate { counts, is_of_before: false }
    }

    /// Other CAs certify from now on. What could not be made at once is due at each look: who believes the new ones
    /// alone would not believe this control plane until the next restart.
    pub(crate) fn authorities_changed(&mut self) {
        self.is_of_before = true;
    }

    /// By the clock, which goes on while the machine sleeps; after one that was set back too.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.is_of_before || !(self.counts.from..self.counts.half()).contains(&now)
    }

    /// When to look next, if nothing else is heard.
    pub(crate) fn look_within(&self) -> Duration {
        LOOK.min(self.counts.span() / LOOK_PART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn own() -> OwnCertificate {
        OwnCertificate::made(CertificateValidity { from: START, until: START.plus(90 * DAY) })
    }

    /// IDN-2.
    #[test]
    fn it_is_due_at_half_of_its_validity_and_when_the_clock_was_set_back() {
        let due = |at: Timestamp| own().is_due(at);
        assert!(!due(START) && !due(START.plus(45 * DAY).minus(Duration::from_millis(1))));
        assert!(due(START.plus(45 * DAY)) && due(START.plus(400 * DAY)));
        assert!(due(START.minus(Duration::from_millis(1))));
        assert_eq!(own().look_within(), LOOK);
        let short = OwnCertificate::made(CertificateValidity { from: START, until: START.plus(LOOK) });
        assert_eq!(short.look_within(), LOOK / LOOK_PART);
    }

    /// IDN-8: an attempt that failed, as for want of randomness, is made again at each look.
    #[test]
    fn one_of_other_cas_is_due_until_it_was_made() {
        let mut own = own();
        own.authorities_changed();
        for minutes in 0..3 {
            assert!(own.is_due(START.plus(minutes * LOOK)), "the last attempt failed");
        }
        own = OwnCertificate::made(CertificateValidity { from: START, until: START.plus(90 * DAY) });
        assert!(!own.is_due(START));
    }
}
