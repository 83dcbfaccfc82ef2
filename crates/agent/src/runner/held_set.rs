//! What of the held set is read to bind it.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::module::{Module, Params};
use model::Kind;
use model::canonical::CanonicalError;
use node::Adoption;
use serde::de::DeserializeOwned;

use super::RunnerError;
use crate::state::Durable;

/// The contents of the held set that binding needs.
pub(super) struct HeldSet {
    pub(super) modules: BTreeMap<String, Arc<Module>>,
    pub(super) params: Params,
}

impl HeldSet {
    /// Reads them; `again` where this process has read those of this release before, and they were found to be as
    /// documents must be.
    pub(super) fn read(adoption: &Adoption, durable: &Durable, again: bool) -> Result<HeldSet, RunnerError> {
        let mut held = HeldSet { modules: BTreeMap::new(), params: Params::default() };
        for (key, stub) in &adoption.objects {
            let kind = key.section.kind.as_str();
            if kind != Kind::MODULE && kind != Kind::PARAMS {
                continue;
            }
            let bytes = durable.content(&stub.digest)?;
            let broken = |error| RunnerError::ReadSet(format!("{key}: {error}"));
            if kind == Kind::PARAMS {
                held.params = parsed(&bytes, again).map_err(broken)?;
            } else {
                let mut module: Module = parsed(&bytes, again).map_err(broken)?;
                // Parsing leaves room for up to as many again, at the moment that takes most memory.
                module.resources.shrink_to_fit();
                held.modules.insert(module.name.clone(), Arc::new(module));
            }
        }
        Ok(held)
    }
}

fn parsed<T: DeserializeOwned>(bytes: &[u8], again: bool) -> Result<T, CanonicalError> {
    if again { model::canonical::parse_again(bytes) } else { model::canonical::parse(bytes) }
}
