//! [`StatusBasis`]: by what the control plane judges nodes.

use model::Timestamp;
use plane::Heads;
use plane::renewal::CertificateRecovery;

use crate::state::{ControlPlane, now};

/// By what the states and causes of nodes are judged, the same for each node of one answer.
#[derive(Clone, Copy)]
pub(crate) struct StatusBasis<'a> {
    /// The releases that nodes are pointed to.
    pub(crate) heads: &'a Heads,
    /// How a recovery of a certificate is judged.
    pub(crate) recovery: CertificateRecovery,
    /// By the control plane's clock.
    pub(crate) now: Timestamp,
}

impl ControlPlane {
    /// By what nodes are judged now.
    pub(crate) fn status_basis<'a>(&self, heads: &'a Heads) -> StatusBasis<'a> {
        StatusBasis { heads, recovery: self.certificate_recovery(), now: now() }
    }
}
