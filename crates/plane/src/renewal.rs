//! What a node's certificate is renewed by: [`RenewalAllowance`], [`CertificateRecovery`] (IDN-2).

use std::time::Duration;

use model::{CertificateValidity, Digest, Timestamp};
use trust::PublicKey;

/// Certificates that a node may get at once: each lost reply costs one.
const BURST: u8 = 8;
/// One more each time this part of the validity has passed.
const PART: u32 = 64;
/// But not later than after this.
const LONGEST: Duration = Duration::from_secs(3600);

/// How many certificates a node may get now: a node that asks again and again keeps nobody else from the signer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenewalAllowance {
    taken: u8,
    at: Timestamp,
}

impl RenewalAllowance {
    /// Takes one of certificates that count for so long; `false` when there is none left.
    pub fn take(&mut self, validity: Duration, now: Timestamp) -> bool {
        let every = (validity / PART).clamp(Duration::from_secs(1), LONGEST);
        let given_back = now.since(self.at).as_millis() / every.as_millis();
        if given_back > 0 {
            self.taken = self.taken.saturating_sub(u8::try_from(given_back).unwrap_or(u8::MAX));
            self.at = now;
        }
        let may = self.taken < BURST;
        self.taken += u8::from(may);
        may
    }
}

/// The CA that issued a node's certificate: by its key's id, as [`PublicKey::id`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CertificateIssuer([u8; 8]);

impl CertificateIssuer {
    /// The CA with this key.
    pub fn of(key: &PublicKey) -> CertificateIssuer {
        let mut id = [0; 8];
        id.copy_from_slice(&Digest::of(&key.raw()).0[..8]);
        CertificateIssuer(id)
    }

    /// The CA whose key has this id; `None` where that is none.
    pub fn named(id: &str) -> Option<CertificateIssuer> {
        let bytes: Option<Vec<u8>> =
            (0..16).step_by(2).map(|at| u8::from_str_radix(id.get(at..at + 2)?, 16).ok()).collect();
        bytes.filter(|_| id.len() == 16)?.try_into().ok().map(CertificateIssuer)
    }
}

/// Whether a node whose certificate has ended gets another one for its key alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateRecovery {
    /// It has to join again.
    Off,
    /// While its certificate ended no longer ago than this.
    Within(Duration),
}

/// Why a node does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// It is off.
    #[error("nodes whose certificates have ended have to join again here")]
    Off,
    /// It ended too long ago.
    #[error("the certificate ended at {ended}, and only within {} days of that a key is enough", within.as_secs() / 86_400)]
    Late {
        /// When it ended.
        ended: Timestamp,
        /// Within what time of that.
        within: Duration,
    },
}

impl CertificateRecovery {
    /// From when a certificate of this validity is not recovered any more; `None` where none is.
    pub fn ends_for(self, certificate: CertificateValidity) -> Option<Timestamp> {
        match self {
            CertificateRecovery::Off => None,
            CertificateRecovery::Within(within) => {
                Some(Timestamp(certificate.until.plus(within).0.saturating_add(1)))
            }
        }
    }

    /// Judges a node that proved its key. A certificate that has not ended is no hindrance: the node's clock may
    /// be wrong, or its copy lost.
    ///
    /// # Errors
    /// Why it has to join again.
    pub fn judge(self, certificate: CertificateValidity, now: Timestamp) -> Result<(), RecoveryError> {
        match self {
            CertificateRecovery::Off => Err(RecoveryError::Off),
            CertificateRecovery::Within(within) if now > certificate.until.plus(within) => {
                Err(RecoveryError::Late { ended: certificate.until, within })
            }
            CertificateRecovery::Within(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    /// WIR-6: a lost reply is no reason to refuse, and a node that asks for ever gets a bounded number.
    #[test]
    fn certificates_of_one_node_are_bounded() {
        let mut allowance = RenewalAllowance::default();
        let now = Timestamp::from_secs(1_800_000_000);
        let got = (0..100).filter(|_| allowance.take(DAY * 30, now)).count();
        assert_eq!(got, usize::from(BURST));
        let mut hours = 0;
        for second in 0..36_000 {
            hours += u32::from(allowance.take(DAY * 30, now.plus(Duration::from_secs(second))));
        }
        assert_eq!(hours, 9, "one an hour");
        assert!(allowance.take(DAY * 30, now.plus(DAY * 30)), "and a quiet node has all of them again");
        // Short certificates are renewed more often, and more of them may get lost.
        let hour = Duration::from_secs(3600);
        let mut short = RenewalAllowance::default();
        let got = |short: &mut RenewalAllowance, now| (0..100).filter(|_| short.take(hour, now)).count();
        assert_eq!(got(&mut short, now), usize::from(BURST));
        assert_eq!(got(&mut short, now.plus(hour / PART)), 1, "one each part of the validity");
    }

    #[test]
    fn a_key_is_enough_for_as_long_as_the_operator_says() {
        let ended = Timestamp::from_secs(1_800_000_000);
        let certificate = CertificateValidity { from: ended.minus(DAY * 30), until: ended };
        let within = CertificateRecovery::Within(DAY * 90);
        for (recovery, at, want) in [
            (within, ended.minus(DAY), Ok(())),
            (within, ended.plus(DAY * 90), Ok(())),
            (within, ended.plus(DAY * 91), Err(RecoveryError::Late { ended, within: DAY * 90 })),
            (CertificateRecovery::Off, ended, Err(RecoveryError::Off)),
        ] {
            assert_eq!(recovery.judge(certificate, at), want, "{recovery:?} at {at}");
        }
        // What is said of it changes at the first moment at which it is judged otherwise.
        let ends = within.ends_for(certificate).unwrap();
        assert!(within.judge(certificate, ends).is_err());
        assert!(within.judge(certificate, ends.minus(Duration::from_millis(1))).is_ok());
        assert_eq!(CertificateRecovery::Off.ends_for(certificate), None);
    }
}
