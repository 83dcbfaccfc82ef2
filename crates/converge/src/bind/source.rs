//! The declaration that a bound resource comes from, for those who show it.

use std::collections::BTreeMap;

use catalog::module::DeclaredResource;
use catalog::params::evaluate;
use lang::Value;
use model::collect::CollectInserting;

use crate::condition::ModuleScope;

/// The declaration of a bound resource, for those who show it.
#[derive(Clone, Debug)]
pub struct BoundSource {
    /// The declaration as written, expressions included.
    pub declared: DeclaredResource,
    /// Its position in the module: resources from 0, handlers after them.
    pub slot: usize,
    /// Its attributes, evaluated; those that cannot be evaluated are not here.
    pub attributes: BTreeMap<String, Value>,
    /// `key` and `item` in its expressions, where it has `foreach`.
    pub item: Option<(Value, Value)>,
}

/// Whether bound resources keep their declarations, which takes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sources {
    Keep,
    Drop,
}

/// The declaration with what its attributes come to.
pub(super) fn source(declared: &DeclaredResource, slot: usize, scope: &ModuleScope) -> BoundSource {
    let names = scope.names();
    let evaluated = |(name, value): (&String, &Value)| Some((name.clone(), evaluate(value, &names).ok()?));
    let attributes = declared.attributes.iter().filter_map(evaluated).collect_inserting();
    let item = scope.item.as_ref().map(|item| (item.key.clone(), item.item.clone()));
    BoundSource { declared: declared.clone(), slot, attributes, item }
}
