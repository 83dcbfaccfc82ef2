//! What binding does with what holds a secret (SEC-1, SEC-3).

use std::collections::BTreeMap;

use catalog::module::DeclaredResource;
use catalog::params::Resolved;
use catalog::secrets::{SecretPaths, lone_param, lone_secret};
use catalog::types::{Ensure, Spec};
use lang::{OpenedSecrets, Template, Value};
use model::collect::CollectInserting;

use super::{BindError, BindMistake, BindPart, BoundModule};
use crate::condition::ModuleScope;

/// The attribute with the bytes of a file.
pub(super) const CONTENT: &str = "content";
/// The mode of a file that holds a secret and declares none.
const SECRET_FILE_MODE: u32 = 0o600;

/// The paths below `vars` that hold a secret.
pub(super) fn paths_of_vars(resolved: &Resolved) -> SecretPaths {
    let mut secret = SecretPaths::default();
    for (module, params) in resolved {
        secret.extend(params.secret.iter().map(|path| format!("vars.{module}.{path}")));
    }
    secret
}

/// Why each secret that something waits for cannot be had.
pub(super) fn blocked(modules: &[BoundModule], secrets: &OpenedSecrets) -> BTreeMap<String, String> {
    let resources = modules.iter().flat_map(|module| module.resources.iter().chain(&module.handlers));
    let errors = resources.filter_map(|resource| resource.spec.as_ref().err());
    let waited = errors.flat_map(|error| &error.unobserved);
    waited
        .filter_map(|part| Some((part.observed.clone(), secrets.why_not(&part.observed)?)))
        .collect_inserting()
}

/// A template of the module, parsed once.
pub(super) struct BoundTemplate {
    pub(super) template: Template,
    /// It is made of a secret, whatever the names of a loop's item hold.
    holds_secret: bool,
    /// What it reads of a loop's item.
    of_item: Vec<Vec<String>>,
}

impl BoundTemplate {
    pub(super) fn of(template: Template, scope: &ModuleScope) -> BoundTemplate {
        let uses = template.uses();
        let of_item = |path: &Vec<String>| path.first().is_some_and(|root| root == "item" || root == "key");
        let touches =
            uses.iter().filter(|name| !of_item(&name.path)).any(|name| scope.touches_secret(&name.path));
        BoundTemplate {
            holds_secret: touches || !template.secrets().is_empty(),
            of_item: uses.into_iter().map(|name| name.path).filter(of_item).collect(),
            template,
        }
    }

    pub(super) fn holds_secret(&self, scope: &ModuleScope) -> bool {
        self.holds_secret || self.of_item.iter().any(|name| scope.touches_secret(name))
    }
}

/// The secret that a file holds and nothing else, whatever its bytes, where it was opened: directly, or by a param
/// that is one. With its bytes where they are no text.
pub(super) fn whole_secret(
    resource: &DeclaredResource,
    scope: &ModuleScope,
) -> Option<(String, Option<Vec<u8>>)> {
    let content = resource.attributes.get(CONTENT).filter(|_| resource.kind == "file")?;
    let name = lone_secret(content).or_else(|| scope.whole_secrets.get(&lone_param(content)?).cloned())?;
    let bytes = scope.shared.secrets.bytes(&name)?;
    let binary = std::str::from_utf8(bytes).is_err().then(|| bytes.to_vec());
    Some((name, binary))
}

/// What holds a secret is its owner's alone unless its mode is declared, and leaves no copy of what it was beside it.
pub(super) fn keep_private(spec: &mut Spec, wrong: &mut BindError) {
    let Spec::File(file) = spec else { return };
    if file.ensure == Ensure::Present {
        file.ownership.mode.get_or_insert(SECRET_FILE_MODE);
    }
    if file.backup {
        let message =
            "a file that holds a secret has no backup: it would be the secret before, in plain".to_owned();
        let part = BindPart::Attribute("backup".to_owned());
        wrong.mistakes.push(BindMistake { part, message, place: None });
    }
}

/// Takes out of what the ledger keeps what is made of a secret.
pub(super) fn forget_secrets(
    kept: &mut BTreeMap<String, Value>,
    declared: &BTreeMap<String, Value>,
    scope: &ModuleScope,
) {
    for (name, value) in kept {
        let Some(declared) = declared.get(name) else { continue };
        match (value, declared) {
            (Value::Map(parts), Value::Map(declared)) => {
                parts
                    .retain(|key, _| !declared.get(key).is_some_and(|value| scope.value_holds_secret(value)));
            }
            (value, declared) if scope.value_holds_secret(declared) => *value = Value::Map(BTreeMap::new()),
            _ => {}
        }
    }
}
