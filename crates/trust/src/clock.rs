//! The time that trust goes by (IDN-11).

use std::time::Duration;

use model::Timestamp;

/// How far past the host's own time the control plane's clock carries the date of a beacon. A host whose clock
/// stands at 1970 believes beacons for a release of the last year by it; none is believed that is dated for good.
pub const MAX_BEACON_AHEAD: Duration = Duration::from_secs(365 * 86_400);

/// `max(clock, build time, newest verified signature)`: a slow clock locks no node out.
///
/// The control plane's clock helps a slow one out while it is known, and leaves nothing behind: what is
/// remembered as the newest signature is at most the host's own time, or the date of a header, which the release key
/// vouches for. So neither a control plane's clock nor a beacon key moves a node's time.
///
/// The local clock never raises `newest_signature`, so a fast clock does no lasting harm:
/// it makes everything look stale, nothing is adopted, and that is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrustTime {
    /// What the host's clock says.
    pub clock: Timestamp,
    /// What the control plane's clock says, where it is known and later.
    pub control_plane: Timestamp,
    /// When this program was built.
    pub built: Timestamp,
    /// The newest time in any signature verified so far; persisted.
    pub newest_signature: Timestamp,
}

impl TrustTime {
    /// The time to judge by.
    pub fn now(&self) -> Timestamp {
        self.own().max(self.control_plane)
    }

    /// The host's own time, which no control plane moves: what must not come too early is judged by this.
    pub fn own(&self) -> Timestamp {
        self.clock.max(self.built).max(self.newest_signature)
    }

    /// The time that a beacon must not be past.
    pub fn for_beacons(&self) -> Timestamp {
        self.now().min(self.own().plus(MAX_BEACON_AHEAD))
    }

    /// What is to be remembered of the date of a verified signature.
    pub fn remembered(&self, signed_at: Timestamp) -> Timestamp {
        self.newest_signature.max(signed_at.min(self.own()))
    }

    /// The same once a header of this date was verified.
    pub fn after_header(self, created: Timestamp) -> TrustTime {
        TrustTime { newest_signature: self.newest_signature.max(created), ..self }
    }
}
