//! What a held release settles of how the node works.

use activation::ReturnCause;
use catalog::module::{Declared, Params};
use lang::Value;
use model::policy::Policy;
use model::{Kind, ObjectKey};
use node::{Adoption, HeldSettings, PreparedRelease};

use super::{Durable, StateError};

impl Durable {
    /// What a held release settles.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn settings(&self, adoption: &Adoption) -> Result<HeldSettings, StateError> {
        let policy = self.policy(adoption)?;
        let is_params = |key: &ObjectKey| key.section.kind.as_str() == Kind::PARAMS;
        let only_observes = match adoption.objects.iter().find(|(key, _)| is_params(key)) {
            // Params that cannot be read fail every run; until they can be, nothing is rebooted either.
            Some((_, stub)) => self.parsed::<Params>(&stub.digest).map_or(true, |params| params.observe),
            None => false,
        };
        Ok(HeldSettings { policy, only_observes })
    }

    /// The channel's settings in a held release.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn policy(&self, adoption: &Adoption) -> Result<Policy, StateError> {
        match adoption.objects.get(&ObjectKey::of(Kind::POLICY, "channel")) {
            Some(stub) => self.parsed(&stub.digest),
            None => Ok(Policy::default()),
        }
    }

    /// What of a release decides when and how it is activated, whose contents are here (ROL-1).
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn prepared(
        &self,
        adoption: &Adoption,
        quarantined: Option<ReturnCause>,
    ) -> Result<PreparedRelease, StateError> {
        let HeldSettings { policy, .. } = self.settings(adoption)?;
        let is_params = |key: &ObjectKey| key.section.kind.as_str() == Kind::PARAMS;
        let declared = match adoption.objects.iter().find(|(key, _)| is_params(key)) {
            Some((_, stub)) => self.parsed::<Params>(&stub.digest)?.node,
            None => Declared::default(),
        };
        let groups = declared.groups.into_iter().map(Value::Str).collect();
        let labels = declared.labels.into_iter().map(|(name, value)| (name, Value::Str(value))).collect();
        let declared =
            [("groups".to_owned(), Value::List(groups)), ("labels".to_owned(), Value::Map(labels))];
        Ok(PreparedRelease { policy, declared: Value::Map(declared.into()), quarantined })
    }
}
