//! What the state directory holds of reboots.

use node::RebootMark;

use super::{Durable, StateError, spool};

impl Durable {
    /// The last reboot that was ordered.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn last_reboot(&self) -> Result<Option<RebootMark>, StateError> {
        self.load(&self.last_reboot, "read the last reboot")
    }

    /// Records a reboot that is ordered, before the host goes down.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_reboot(&self, mark: &RebootMark) -> Result<(), StateError> {
        self.last_reboot.store(mark).map_err(spool("record the reboot"))
    }
}
