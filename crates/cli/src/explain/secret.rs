//! [`SecretVars`]: the vars whose values are not to be shown.

use std::collections::{BTreeMap, BTreeSet};

use catalog::module::{DeclaredResource, Module, ParamType};
use converge::bind::NameUses;
use lang::Value;

use super::uses;
use crate::bound::NodeSet;

/// Vars that a sensitive resource uses, also by way of other vars, and those of type `secret`.
pub(super) struct SecretVars(BTreeSet<String>);

impl SecretVars {
    pub(super) fn of(set: &NodeSet) -> SecretVars {
        let mut found = BTreeSet::new();
        for module in set.modules.values() {
            let secret = |(_, decl): &(&String, &catalog::module::ParamDecl)| decl.kind == ParamType::Secret;
            let declared = module.params.iter().filter(secret);
            found.extend(declared.map(|(param, _)| format!("{}.{param}", module.name)));
            let all = module.resources.iter().chain(&module.handlers);
            for resource in all.filter(|resource| resource.sensitive) {
                found.extend(used(module, resource));
            }
        }
        let mut values: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for module in set.modules.values() {
            for (param, decl) in &module.params {
                values.entry(format!("{}.{param}", module.name)).or_default().extend(&decl.default);
            }
        }
        let layers = set.params.conditional.iter().map(|layer| &layer.vars);
        for layer in [&set.params.vars, &set.params.host_vars].into_iter().chain(layers) {
            for (name, value) in layer {
                values.entry(name.clone()).or_default().push(value);
            }
        }
        // What a hidden var is made of is hidden as well.
        let mut todo: Vec<String> = found.iter().cloned().collect();
        while let Some(name) = todo.pop() {
            let module = name.split('.').next().unwrap_or_default();
            let names = values.get(&name).into_iter().flatten().flat_map(|value| uses::of_value(value));
            let inner: Vec<String> = names.filter_map(|path| uses::var(module, &path)).collect();
            todo.extend(inner.into_iter().filter(|inner| found.insert(inner.clone())));
        }
        SecretVars(found)
    }

    pub(super) fn hides(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

/// All that its declaration reads, its guards and conditions too.
fn used(module: &Module, resource: &DeclaredResource) -> BTreeSet<String> {
    let read = NameUses::of_resource(module, resource);
    read.paths().filter_map(|path| uses::var(&module.name, path)).collect()
}
