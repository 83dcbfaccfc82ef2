//! [`CertificateSettings`]: how long certificates count, and who gets one for a key alone (IDN-2).

use std::time::Duration;

use net::issue::{NODE_LIFE, OWN_LIFE};
use plane::renewal::CertificateRecovery;

use crate::posture::Posture;

/// In lab posture a key is enough for this long after the end of a certificate, unless set otherwise.
pub const LAB_RECOVERY: Duration = Duration::from_secs(90 * 24 * 3600);

/// How the control plane certifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateSettings {
    /// How long nodes' certificates count.
    pub node_validity: Duration,
    /// How long the control plane's own certificate counts; it is made anew at half of that.
    pub own_validity: Duration,
    /// Whether a node whose certificate has ended gets another one for its key alone; `None`: within
    /// [`LAB_RECOVERY`] in lab posture, and else not.
    pub recovery: Option<CertificateRecovery>,
}

impl Default for CertificateSettings {
    fn default() -> CertificateSettings {
        CertificateSettings { node_validity: NODE_LIFE, own_validity: OWN_LIFE, recovery: None }
    }
}

impl CertificateSettings {
    /// The shortest validity of nodes' certificates that can be set.
    pub const MIN_NODE_VALIDITY: Duration = Duration::from_secs(10);
    /// The longest.
    pub const MAX_NODE_VALIDITY: Duration = Duration::from_secs(366 * 24 * 3600);

    pub(crate) fn recovery_in(&self, posture: Posture) -> CertificateRecovery {
        self.recovery.unwrap_or(match posture {
            Posture::Lab => CertificateRecovery::Within(LAB_RECOVERY),
            Posture::Sealed => CertificateRecovery::Off,
        })
    }
}
