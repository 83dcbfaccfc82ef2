//! Roles and environments: the layers that node entries name.

use std::collections::BTreeMap;

use super::vars::{self, Var};
use crate::shape::Reading;
use crate::yaml::{Spanned, YamlKind, YamlNode};

/// A role: modules that belong together, and vars for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoleFile {
    pub(crate) modules: Vec<Spanned<String>>,
    pub(crate) vars: Vec<Var>,
}

/// An environment: vars for all its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) vars: Vec<Var>,
}

/// Reads `roles/NAME.yaml`.
pub(crate) fn read_role(reading: &mut Reading<'_>, root: &YamlNode) -> RoleFile {
    let mut keys = reading.keys(root, "a role", "a role");
    let modules = keys.read("modules", |node| reading.texts(node, "modules"));
    let vars = keys.read("vars", |node| vars::read(reading, node, "vars"));
    if let Some((key, _)) = keys.refused("roles") {
        reading
            .error("E024", key.at, "roles that include roles are not available in this version")
            .help("name each role in the node entry");
    }
    keys.end(reading);
    RoleFile { modules, vars }
}

/// Reads `environments/NAME.yaml`, or one value of `environments.yaml`.
pub(crate) fn read_environment(reading: &mut Reading<'_>, root: &YamlNode) -> Environment {
    if root.is_nothing() {
        return Environment::default();
    }
    let mut keys = reading.keys(root, "an environment", "an environment");
    let vars = keys.read("vars", |node| vars::read(reading, node, "vars"));
    keys.end(reading);
    Environment { vars }
}

/// Reads `environments.yaml`.
pub(crate) fn read_environments(
    reading: &mut Reading<'_>,
    root: &YamlNode,
) -> BTreeMap<String, (Environment, crate::yaml::At)> {
    let mut all = BTreeMap::new();
    let mut keys = reading.keys(root, "environments.yaml", "environments.yaml");
    for (name, value) in keys.read("environments", |node| reading.map(node, "environments")) {
        let declared = matches!(value.kind, YamlKind::Map(_)) || value.is_nothing();
        let environment = read_environment(reading, value);
        if reading.name(&name.value, name.at, "an environment") && declared {
            all.insert(name.value.clone(), (environment, name.at));
        }
    }
    keys.end(reading);
    all
}
