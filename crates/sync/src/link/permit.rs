//! The permit for resyncs, which the principal takes for either direction and holds once for both: of the
//! whole fleet so many nodes resync at once (SYN-6). The agent needs none.

use std::time::Duration;

use super::{Cx, Link};

impl Link {
    /// Takes the permit, unless it is held.
    ///
    /// # Errors
    /// How long to wait: too many others resync.
    pub(super) fn take_permit(&mut self, cx: &mut Cx<'_>) -> Result<(), Duration> {
        if let (Some(permits), None) = (cx.permits, self.permit) {
            permits.take()?;
            self.permit = Some(cx.now);
        }
        Ok(())
    }

    /// Gives the permit back once nothing is resynced.
    pub(super) fn return_unused_permit(&mut self, cx: &mut Cx<'_>) {
        let used = !self.closing && (self.resync.is_busy() || self.server.is_serving());
        if !used
            && self.permit.take().is_some()
            && let Some(permits) = cx.permits
        {
            permits.give_back();
        }
    }
}
