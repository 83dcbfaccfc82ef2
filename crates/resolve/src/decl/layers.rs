//! Roles and environments: the layers that node entries name.

use std::collections::BTreeMap;

use super::vars::{self, Var};
use crate::shape::Reading;
use crate::yaml::{Kind, Node, Spanned};

const ROLE_KEYS: [&str; 2] = ["modules", "vars"];
const ENVIRONMENT_KEYS: [&str; 1] = ["vars"];

/// A role: modules that belong together, and vars for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) modules: Vec<Spanned<String>>,
    pub(crate) vars: Vec<Var>,
}

/// An environment: vars for all its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) vars: Vec<Var>,
}

/// Reads `roles/NAME.yaml`.
pub(crate) fn read_role(reading: &mut Reading<'_>, root: &Node) -> Role {
    let mut role = Role::default();
    for (key, value) in reading.map(root, "a role") {
        match key.value.as_str() {
            "modules" => role.modules = reading.texts(value, "modules"),
            "vars" => role.vars = vars::read(reading, value, "vars"),
            "roles" => {
                reading
                    .error("E024", key.at, "roles that include roles are not available in this version")
                    .help("name each role in the node entry");
            }
            _ => reading.unknown_key(key, &ROLE_KEYS, "a role"),
        }
    }
    role
}

/// Reads `environments/NAME.yaml`, or one value of `environments.yaml`.
pub(crate) fn read_environment(reading: &mut Reading<'_>, root: &Node) -> Environment {
    let mut environment = Environment::default();
    if root.is_nothing() {
        return environment;
    }
    for (key, value) in reading.map(root, "an environment") {
        match key.value.as_str() {
            "vars" => environment.vars = vars::read(reading, value, "vars"),
            _ => reading.unknown_key(key, &ENVIRONMENT_KEYS, "an environment"),
        }
    }
    environment
}

/// Reads `environments.yaml`.
pub(crate) fn read_environments(
    reading: &mut Reading<'_>,
    root: &Node,
) -> BTreeMap<String, (Environment, crate::yaml::At)> {
    let mut all = BTreeMap::new();
    for (key, node) in reading.map(root, "environments.yaml") {
        if key.value != "environments" {
            reading.unknown_key(key, &["environments"], "environments.yaml");
            continue;
        }
        for (name, value) in reading.map(node, "environments") {
            let declared = matches!(value.kind, Kind::Map(_)) || value.is_nothing();
            let environment = read_environment(reading, value);
            if reading.name(&name.value, name.at, "an environment") && declared {
                all.insert(name.value.clone(), (environment, name.at));
            }
        }
    }
    all
}
