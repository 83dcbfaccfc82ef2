//! [`StatusBasis`]: by what the control plane judges nodes.

use model::Timestamp;
use plane::Heads;
use plane::renewal::CertificateRecovery;

use crate::authority::CountingIssuers;
use crate::state::{ControlPlane, now};

/// By what the states and causes of nodes are judged, the same for each node of one answer.
#[derive(Clone, Copy)]
pub(crate) struct StatusBasis<'a> {
    /// The releases that nodes are pointed to.
    pub(crate) heads: &'a Heads,
    /// How a recovery of a certificate is judged.
    pub(crate) recovery: CertificateRecovery,
    /// Whose certificates count.
    pub(crate) issuers: CountingIssuers,
    /// By the control plane's clock.
    pub(crate) now: Timestamp,
}

impl ControlPlane {
    /// By what nodes are judged now.
    pub(crate) fn status_basis<'a>(&self, heads: &'a Heads) -> StatusBasis<'a> {
        let issuers = self.authorities.set().counting();
        StatusBasis { heads, recovery: self.certificate_recovery(), issuers, now: now() }
    }
}
