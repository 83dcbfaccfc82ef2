//! What of the held set is read to bind it.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::module::{Module, Params};
use model::Kind;
use node::Adoption;
use serde::de::DeserializeOwned;

use super::RunnerError;
use crate::state::Durable;

/// The documents of the held set that binding needs, as they were signed.
pub(super) struct HeldDocuments {
    modules: Vec<HeldDocument>,
    params: Option<HeldDocument>,
}

struct HeldDocument {
    /// As the set names it.
    name: String,
    bytes: Vec<u8>,
}

/// What they say.
pub(super) struct HeldSet {
    pub(super) modules: BTreeMap<String, Arc<Module>>,
    pub(super) params: Params,
}

impl HeldDocuments {
    /// Reads them. A content that is not what its digest says is not found, so each run notices that one is lost.
    pub(super) fn read(adoption: &Adoption, durable: &Durable) -> Result<HeldDocuments, RunnerError> {
        let mut held = HeldDocuments { modules: Vec::new(), params: None };
        for (key, stub) in &adoption.objects {
            let kind = key.section.kind.as_str();
            if kind != Kind::MODULE && kind != Kind::PARAMS {
                continue;
            }
            let document = HeldDocument { name: key.to_string(), bytes: durable.content(&stub.digest)? };
            match kind {
                Kind::PARAMS => held.params = Some(document),
                _ => held.modules.push(document),
            }
        }
        Ok(held)
    }

    /// Parses them; `again` where this process has read those of this release before, and they were found to be as
    /// documents must be.
    pub(super) fn parse(self, again: bool) -> Result<HeldSet, RunnerError> {
        let mut held = HeldSet { modules: BTreeMap::new(), params: Params::default() };
        if let Some(params) = self.params {
            held.params = params.parse(again)?;
        }
        for document in self.modules {
            let mut module: Module = document.parse(again)?;
            // Parsing leaves room for up to as many again, at the moment that takes most memory.
            module.resources.shrink_to_fit();
            held.modules.insert(module.name.clone(), Arc::new(module));
        }
        Ok(held)
    }
}

impl HeldDocument {
    /// Its bytes are given up with it: not all of them are in memory beside what they say.
    fn parse<T: DeserializeOwned>(self, again: bool) -> Result<T, RunnerError> {
        let parsed = match again {
            true => model::canonical::parse_again(&self.bytes),
            false => model::canonical::parse(&self.bytes),
        };
        parsed.map_err(|error| RunnerError::ReadSet(format!("{}: {error}", self.name)))
    }
}
