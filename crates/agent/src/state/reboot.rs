//! What the state directory holds of reboots.

use catalog::module::Params;
use model::{Kind, ObjectKey};
use node::{Adoption, RebootMark};

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

    /// Whether the whole node only observes: it is not rebooted either.
    pub(super) fn only_observes(&self, adoption: &Adoption) -> Result<bool, StateError> {
        let is_params = |key: &ObjectKey| key.section.kind.as_str() == Kind::PARAMS;
        Ok(match adoption.objects.iter().find(|(key, _)| is_params(key)) {
            Some((_, stub)) => self.parsed::<Params>(&stub.digest)?.observe,
            None => false,
        })
    }
}
