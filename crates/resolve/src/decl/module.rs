//! `modules/NAME/module.yaml`.

use std::collections::BTreeMap;

use catalog::module::{Command, Module, ParamDecl};
use catalog::schema;
use lang::Expr;

use super::params;
use super::resource::{self, Placed};
use crate::exprs::{self, ExprSite};
use crate::shape::Reading;
use crate::yaml::{At, Kind, Node, Spanned};

const KEYS: [&str; 8] =
    ["description", "depends_on", "when", "params", "resources", "handlers", "verify", "observe"];
/// The most resources and handlers of one module.
const MAX_RESOURCES: usize = 10_000;

/// What node entries see of a module; as long as it stays the same they need no new look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) params: BTreeMap<String, ParamDecl>,
    pub(crate) depends_on: Vec<String>,
}

/// A module file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModuleDecl {
    pub(crate) interface: Interface,
    pub(crate) depends_on: Vec<Spanned<String>>,
    pub(crate) when: Option<String>,
    pub(crate) observe: bool,
    pub(crate) verify: Option<Command>,
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
pub(crate) fn read(reading: &mut Reading<'_>, root: &Node) -> ModuleDecl {
    let mut module = ModuleDecl::default();
    let entries = reading.map(root, "a module");
    // First, whatever their order in the file: everything else refers to them.
    if let Some((_, node)) = entries.iter().find(|(key, _)| key.value == "params") {
        module.interface.params = params::read(reading, node);
    }
    for (key, node) in entries {
        key_of_module(reading, key, node, &mut module);
    }
    module.interface.depends_on = module.depends_on.iter().map(|item| item.value.clone()).collect();
    module
}

fn key_of_module(reading: &mut Reading<'_>, key: &Spanned<String>, node: &Node, module: &mut ModuleDecl) {
    match key.value.as_str() {
        "params" => {}
        "description" => {
            reading.text(node, "description");
        }
        "depends_on" => module.depends_on = reading.one_or_more(node, "depends_on"),
        "when" => {
            let params = module.interface.params.clone();
            let expr = exprs::condition(reading, node, ExprSite::Module, Some(&params));
            module.when = expr.as_ref().map(Expr::source).map(str::to_owned);
        }
        "observe" => module.observe = reading.bool(node, "observe").unwrap_or(false),
        "verify" => module.verify = verify(reading, node, &module.interface.params),
        "resources" => module.resources = resources(reading, node, &module.interface.params, false),
        "handlers" => module.handlers = resources(reading, node, &module.interface.params, true),
        _ => reading.unknown_key(key, &KEYS, "a module"),
    }
}

fn verify(reading: &mut Reading<'_>, node: &Node, params: &BTreeMap<String, ParamDecl>) -> Option<Command> {
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
    node: &Node,
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
    let maps = items.iter().filter(|item| !matches!(item.kind, Kind::Bad));
    maps.filter_map(|item| resource::read(reading, item, params, handler)).collect()
}
