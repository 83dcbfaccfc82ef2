//! [`SecretNeeds`]: which secrets the nodes of a fleet need, found in their expressions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catalog::module::{CommandLine, DeclaredResource, Module, Params};
use catalog::secrets::{lone_param, lone_secret};
use lang::{Expr, InterpolatedText, Template, Value};

use crate::specialize::{NodeSpec, Specialized};

/// What every expression that uses a secret has in its text.
const CALL: &[u8] = b"secret(";

/// How a fleet uses a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeededSecret {
    /// It stands in a text somewhere, and not only as the whole content of a file: it has to be UTF-8.
    pub in_text: bool,
    /// Modules that use it, directly or by a param.
    pub modules: BTreeSet<String>,
}

/// The secrets that a fleet's nodes need.
#[derive(Debug, Default)]
pub struct SecretNeeds {
    /// By name.
    pub secrets: BTreeMap<String, NeededSecret>,
    modules: BTreeMap<String, ModuleUses>,
}

/// What a module uses.
#[derive(Debug, Default)]
struct ModuleUses {
    own: SecretUses,
    /// Of the defaults of params, by full name: they count where nothing sets the param.
    defaults: BTreeMap<String, SecretUses>,
    /// Params that stand as the whole content of files, and nowhere else.
    whole_params: BTreeSet<String>,
    text_params: BTreeSet<String>,
}

/// Secrets by name, with whether they stand in a text.
#[derive(Clone, Debug, Default)]
struct SecretUses(BTreeMap<String, bool>);

impl SecretNeeds {
    /// Those of a fleet.
    pub fn of(fleet: &Specialized) -> SecretNeeds {
        let modules =
            fleet.modules.iter().map(|(name, shared)| (name.clone(), ModuleUses::of(&shared.module)));
        let mut needs = SecretNeeds { modules: modules.collect(), ..SecretNeeds::default() };
        let specs = fleet.exact.values().chain(fleet.patterns.iter().map(|pattern| &pattern.spec));
        let mut seen: BTreeSet<*const [Arc<str>]> = BTreeSet::new();
        for spec in specs {
            // Most nodes have no secret of their own, and share their list of modules.
            if seen.insert(Arc::as_ptr(&spec.modules)) || mentions(&spec.params) {
                needs.add(spec);
            }
        }
        needs
    }

    /// No node needs any.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// The secrets of a node, or of the nodes of a pattern.
    pub fn of_node(&self, spec: &NodeSpec) -> BTreeSet<String> {
        let plain = self.modules_of(spec).all(|(_, uses)| uses.own.0.is_empty() && uses.defaults.is_empty());
        if plain && !mentions(&spec.params) {
            return BTreeSet::new();
        }
        self.uses(spec).into_iter().flat_map(|(_, uses)| uses.0.into_keys()).collect()
    }

    fn add(&mut self, spec: &NodeSpec) {
        for (module, uses) in self.uses(spec) {
            for (name, in_text) in uses.0 {
                let needed = self.secrets.entry(name).or_default();
                needed.in_text |= in_text;
                needed.modules.insert(module.clone());
            }
        }
    }

    fn modules_of<'n>(&'n self, spec: &'n NodeSpec) -> impl Iterator<Item = (&'n Arc<str>, &'n ModuleUses)> {
        spec.modules.iter().filter_map(|name| Some((name, self.modules.get(&**name)?)))
    }

    fn uses(&self, spec: &NodeSpec) -> Vec<(String, SecretUses)> {
        // Whoever wrote the bytes, they are this crate's.
        let params = spec.read_params().unwrap_or_default();
        let mut all = Vec::new();
        for (name, module) in self.modules_of(spec) {
            let mut uses = module.own.clone();
            for (param, of_default) in &module.defaults {
                if !params.vars.contains_key(param) && !params.host_vars.contains_key(param) {
                    uses.add(of_default);
                }
            }
            for (param, value) in own_vars(&params, name) {
                let whole = module.whole_params.contains(param) && !module.text_params.contains(param);
                let mut of_var = SecretUses::default();
                of_var.value(value);
                match lone_secret(value) {
                    Some(secret) if whole => drop(uses.0.entry(secret).or_insert(false)),
                    _ => uses.add(&of_var),
                }
            }
            all.push((name.to_string(), uses));
        }
        all
    }
}

/// The vars of a module in every layer of a node, with the param's own name.
fn own_vars<'p>(params: &'p Params, module: &'p str) -> impl Iterator<Item = (&'p str, &'p Value)> {
    let layers = params.conditional.iter().map(|layer| &layer.vars);
    let all = [&params.vars, &params.host_vars].into_iter().chain(layers).flatten();
    all.filter_map(move |(name, value)| Some((name.strip_prefix(module)?.strip_prefix('.')?, value)))
}

fn mentions(bytes: &[u8]) -> bool {
    bytes.windows(CALL.len()).any(|part| part == CALL)
}

impl ModuleUses {
    fn of(module: &Module) -> ModuleUses {
        let mut found = ModuleUses::default();
        for resource in module.resources.iter().chain(&module.handlers) {
            found.resource(resource);
        }
        module.verify.iter().for_each(|command| found.own.command(command));
        module.when.iter().for_each(|when| found.own.expr(when));
        for source in module.templates.values() {
            let Ok(template) = Template::parse("", source) else { continue };
            found.own.0.extend(template.secrets().into_iter().filter_map(|used| Some((used.name?, true))));
            found.text_params.extend(template.uses().into_iter().filter_map(|name| param_of(&name.path)));
        }
        for (name, decl) in &module.params {
            let Some(default) = &decl.default else { continue };
            let mut uses = SecretUses::default();
            match lone_secret(default) {
                Some(secret) if found.whole_params.contains(name) && !found.text_params.contains(name) => {
                    uses.0.insert(secret, false);
                }
                _ => uses.value(default),
            }
            if !uses.0.is_empty() {
                found.defaults.insert(format!("{}.{name}", module.name), uses);
            }
        }
        found
    }

    fn resource(&mut self, resource: &DeclaredResource) {
        self.text(&resource.name);
        resource.when.iter().for_each(|when| self.own.expr(when));
        resource.only_if.iter().chain(&resource.not_if).for_each(|command| self.own.command(command));
        resource.foreach.iter().for_each(|over| self.value(over));
        for (name, value) in &resource.attributes {
            let whole = resource.kind == "file" && name == "content";
            match (lone_secret(value), lone_param(value)) {
                (Some(secret), _) if whole => drop(self.own.0.entry(secret).or_insert(false)),
                (None, Some(param)) if whole => drop(self.whole_params.insert(param)),
                _ => self.value(value),
            }
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Str(text) => self.text(text),
            Value::List(items) => items.iter().for_each(|item| self.value(item)),
            Value::Map(map) => map.values().for_each(|item| self.value(item)),
            Value::Bool(_) | Value::Int(_) => {}
        }
    }

    fn text(&mut self, text: &str) {
        self.own.text(text);
        if let Ok(parsed) = InterpolatedText::parse(text) {
            let names = parsed.exprs().flat_map(|(expr, _)| expr.names());
            self.text_params.extend(names.filter_map(|name| param_of(&name.path)));
        }
    }
}

/// The param that a name is about.
fn param_of(path: &[String]) -> Option<String> {
    match path {
        [root, name, ..] if root == "params" => Some(name.clone()),
        _ => None,
    }
}

impl SecretUses {
    fn add(&mut self, other: &SecretUses) {
        for (name, in_text) in &other.0 {
            *self.0.entry(name.clone()).or_default() |= in_text;
        }
    }

    fn names(&mut self, expr: &Expr) {
        for used in expr.secrets() {
            self.0.extend(used.name.map(|name| (name, true)));
        }
    }

    fn expr(&mut self, source: &str) {
        if let Ok(expr) = Expr::parse(source) {
            self.names(&expr);
        }
    }

    fn text(&mut self, text: &str) {
        if InterpolatedText::is_literal(text) {
            return;
        }
        if let Ok(parsed) = InterpolatedText::parse(text) {
            parsed.exprs().for_each(|(expr, _)| self.names(expr));
        }
    }

    fn command(&mut self, command: &CommandLine) {
        match command {
            CommandLine::Shell(text) => self.text(text),
            CommandLine::Argv(argv) => argv.iter().for_each(|text| self.text(text)),
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Str(text) => self.text(text),
            Value::List(items) => items.iter().for_each(|item| self.value(item)),
            Value::Map(map) => map.values().for_each(|item| self.value(item)),
            Value::Bool(_) | Value::Int(_) => {}
        }
    }
}
