//! [`SecretNeeds`]: which secrets the nodes of a fleet need, found in their expressions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catalog::module::{DeclaredResource, Module, Params};
use catalog::secrets::{lone_param, lone_secret};
use catalog::visit::ExpressionVisitor;
use lang::{Expr, SecretUse, Template, Value};

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
    /// Its params that stand as the whole content of a file.
    whole_params: BTreeSet<String>,
    /// Its params that stand elsewhere.
    text_params: BTreeSet<String>,
    /// Params of any module, by full name, that it reads as vars.
    text_vars: BTreeSet<String>,
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
            let is_new = seen.insert(Arc::as_ptr(&spec.modules));
            if is_new || mentions(&spec.params) || !needs.has_defaults_of(spec) {
                needs.add(spec);
            }
        }
        needs
    }

    /// Whether all secrets are known that its modules name as defaults. A node of the same modules, which was seen
    /// before, may have set the params that this one does not.
    fn has_defaults_of(&self, spec: &NodeSpec) -> bool {
        let is_known = |module: &str, name: &String, in_text: bool| {
            let known = self.secrets.get(name);
            known.is_some_and(|known| known.modules.contains(module) && (known.in_text || !in_text))
        };
        self.modules_of(spec).all(|(module, uses)| {
            let mut named = uses.defaults.values().flat_map(|uses| &uses.0);
            named.all(|(name, in_text)| is_known(module, name, *in_text))
        })
    }

    /// Those of these names, wherever they stand.
    pub fn of_names(names: impl IntoIterator<Item = String>) -> SecretNeeds {
        let secrets = names.into_iter().map(|name| (name, NeededSecret::default())).collect();
        SecretNeeds { secrets, ..SecretNeeds::default() }
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
        // What another module reads of it stands in a text there.
        let read_elsewhere =
            |full: &str| self.modules_of(spec).any(|(_, uses)| uses.text_vars.contains(full));
        for (name, module) in self.modules_of(spec) {
            let mut uses = module.own.clone();
            for (full, of_default) in &module.defaults {
                if !params.vars.contains_key(full) && !params.host_vars.contains_key(full) {
                    uses.add(of_default);
                    if read_elsewhere(full) {
                        uses.0.extend(of_default.0.keys().map(|secret| (secret.clone(), true)));
                    }
                }
            }
            for (param, value) in own_vars(&params, name) {
                let is_whole = || module.is_whole(param) && !read_elsewhere(&format!("{name}.{param}"));
                match lone_secret(value) {
                    Some(secret) if is_whole() => uses.whole(secret),
                    _ => uses.value(value),
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
        found.module(module);
        for (name, decl) in &module.params {
            let Some(default) = &decl.default else { continue };
            let mut uses = SecretUses::default();
            match lone_secret(default) {
                Some(secret) if found.is_whole(name) => uses.whole(secret),
                _ => uses.value(default),
            }
            if !uses.0.is_empty() {
                found.defaults.insert(format!("{}.{name}", module.name), uses);
            }
        }
        found
    }

    /// Whether a param stands as the whole content of files, and nowhere else in its module.
    fn is_whole(&self, param: &str) -> bool {
        self.whole_params.contains(param) && !self.text_params.contains(param)
    }

    fn names(&mut self, paths: impl Iterator<Item = Vec<String>>) {
        for path in paths {
            match path.as_slice() {
                [root, param, ..] if root == "params" => drop(self.text_params.insert(param.clone())),
                [root, module, param, ..] if root == "vars" => {
                    self.text_vars.insert(format!("{module}.{param}"));
                }
                _ => {}
            }
        }
    }
}

impl ExpressionVisitor for ModuleUses {
    fn expr(&mut self, expr: &Expr) {
        self.own.expr(expr);
        self.names(expr.names().into_iter().map(|name| name.path));
    }

    fn template(&mut self, template: &Template) {
        self.own.template(template);
        self.names(template.uses().into_iter().map(|name| name.path));
    }

    fn attribute(&mut self, resource: &DeclaredResource, name: &str, value: &Value) {
        let whole = resource.kind == "file" && name == "content";
        match (lone_secret(value), lone_param(value)) {
            (Some(secret), _) if whole => self.own.whole(secret),
            (None, Some(param)) if whole => drop(self.whole_params.insert(param)),
            _ => self.value(value),
        }
    }

    /// Nothing yet: it counts where nothing sets the param.
    fn default_of(&mut self, _param: &str, _value: &Value) {}
}

impl SecretUses {
    fn add(&mut self, other: &SecretUses) {
        for (name, in_text) in &other.0 {
            *self.0.entry(name.clone()).or_default() |= in_text;
        }
    }

    /// The secret is all of a file.
    fn whole(&mut self, secret: String) {
        self.0.entry(secret).or_insert(false);
    }

    fn in_text(&mut self, used: Vec<SecretUse>) {
        self.0.extend(used.into_iter().filter_map(|used| Some((used.name?, true))));
    }
}

impl ExpressionVisitor for SecretUses {
    fn expr(&mut self, expr: &Expr) {
        self.in_text(expr.secrets());
    }

    fn template(&mut self, template: &Template) {
        self.in_text(template.secrets());
    }
}
