//! The time that trust goes by (IDN-11).

use model::Timestamp;

/// `max(clock, build time, newest verified signature)`: a slow clock locks no node out.
///
/// The local clock never raises `newest_signature`, so a fast clock does no lasting harm:
/// it makes everything look stale, nothing is adopted, and that is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrustTime {
    /// What the host's clock says, or the control plane's when that is later. The control
    /// plane can only make things look older by it, never fresher.
    pub clock: Timestamp,
    /// When this program was built.
    pub built: Timestamp,
    /// The newest time in any signature verified so far; persisted.
    pub newest_signature: Timestamp,
}

impl TrustTime {
    /// The time to judge by.
    pub fn now(&self) -> Timestamp {
        self.clock.max(self.built).max(self.newest_signature)
    }
}
