//! What a held release settles of how the node works.

use catalog::module::Params;
use model::policy::Policy;
use model::{Kind, ObjectKey};
use node::{Adoption, HeldSettings};

use super::{Durable, StateError};

impl Durable {
    /// What a held release settles.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn settings(&self, adoption: &Adoption) -> Result<HeldSettings, StateError> {
        let policy = match adoption.objects.get(&ObjectKey::of(Kind::POLICY, "channel")) {
            Some(stub) => self.parsed(&stub.digest)?,
            None => Policy::default(),
        };
        let is_params = |key: &ObjectKey| key.section.kind.as_str() == Kind::PARAMS;
        let only_observes = match adoption.objects.iter().find(|(key, _)| is_params(key)) {
            // Params that cannot be read fail every run; until they can be, nothing is rebooted either.
            Some((_, stub)) => self.parsed::<Params>(&stub.digest).map_or(true, |params| params.observe),
            None => false,
        };
        Ok(HeldSettings { policy, only_observes })
    }
}
