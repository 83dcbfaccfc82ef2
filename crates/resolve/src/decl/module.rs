//! `modules/NAME/module.yaml`.

use std::collections::{BTreeMap, BTreeSet};

use catalog::module::{CommandLine, Module, ParamDecl};
use catalog::schema;

use super::params;
use super::resource::{self, Placed};
use crate::exprs::{self, ExprSite};
use crate::shape::Reading;
use crate::yaml::{At, Spanned, YamlKind, YamlNode};

/// The most resources and handlers of one module.
const MAX_RESOURCES: usize = 10_000;

/// What node entries see of a module; as long as it stays the same they need no new look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) params: BTreeMap<String, ParamDecl>,
    pub(crate) depends_on: Vec<String>,
    /// Windows that its conditions ask for.
    pub(crate) windows: BTreeSet<String>,
}

/// A module file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModuleDecl {
    pub(crate) interface: Interface,
    pub(crate) depends_on: Vec<Spanned<String>>,
    pub(crate) when: Option<String>,
    pub(crate) when_at: At,
    pub(crate) observe: bool,
    pub(crate) verify: Option<CommandLine>,
    pub(crate) verify_at: At,
    pub(crate) resources: Vec<Placed>,
    pub(crate) handlers: Vec<Placed>,
    /// The file has a mistake, so what is missing here may be there.
    pub(crate) broken: bool,
}

impl ModuleDecl {
    /// The module in the form in which it travels, without its files.
    pub(crate) fn to_module(&self, name: &str) -> Module {
        Module {
            name: name.to_owned(),
            depends_on: self.depends_on.iter().map(|item| item.value.clone()).collect(),
            when: self.when.clone(),
            params: self.interface.params.clone(),
            resources: self.resources.iter().map(|placed| placed.resource.clone()).collect(),
            handlers: self.handlers.iter().map(|placed| placed.resource.clone()).collect(),
            verify: self.verify.clone(),
            observe: self.observe,
            ..Module::default()
        }
    }
}

/// Reads a module file.
pub(crate) fn read(reading: &mut Reading<'_>, root: &YamlNode) -> ModuleDecl {
    let mut module = ModuleDecl::default();
    let mut keys = reading.keys(root, "a module", "a module");
    keys.read("description", |node| reading.text(node, "description"));
    module.depends_on = keys.read("depends_on", |node| reading.one_or_more(node, "depends_on"));
    let when = keys.get("when");
    module.when_at = when.map(|node| node.at).unwrap_or_default();
    let params = keys.read("params", |node| params::read(reading, node));
    let when = when.and_then(|node| exprs::condition(reading, node, ExprSite::Module, Some(&params)));
    module.when = when.map(|expr| expr.source().to_owned());
    module.resources = keys.read("resources", |node| resources(reading, node, &params, false));
    module.handlers = keys.read("handlers", |node| resources(reading, node, &params, true));
    module.verify = keys.read("verify", |node| {
        module.verify_at = node.at;
        verify(reading, node, &params)
    });
    module.observe = keys.read("observe", |node| reading.bool(node, "observe")).unwrap_or(false);
    keys.end(reading);
    let depends_on = module.depends_on.iter().map(|item| item.value.clone()).collect();
    let windows = reading.uses.windows.iter().map(|used| used.window.clone()).collect();
    module.interface = Interface { params, depends_on, windows };
    module
}

fn verify(
    reading: &mut Reading<'_>,
    node: &YamlNode,
    params: &BTreeMap<String, ParamDecl>,
) -> Option<CommandLine> {
    exprs::texts(reading, node, ExprSite::Attribute, Some(params));
    let value = reading.value(node)?;
    match schema::command(&value) {
        Ok(command) => Some(command),
        Err(why) => {
            reading.error("E072", node.at, format!("verify: {why}"));
            None
        }
    }
}

fn resources(
    reading: &mut Reading<'_>,
    node: &YamlNode,
    params: &BTreeMap<String, ParamDecl>,
    handler: bool,
) -> Vec<Placed> {
    let what = if handler { "handlers" } else { "resources" };
    let items = reading.list(node, what);
    if items.len() > MAX_RESOURCES {
        let at: At = node.at;
        reading
            .error("E099", at, format!("more than {MAX_RESOURCES} {what} in one module"))
            .help("split the module");
        return Vec::new();
    }
    let maps = items.iter().filter(|item| !matches!(item.kind, YamlKind::Bad));
    maps.filter_map(|item| resource::read(reading, item, params, handler)).collect()
}
