//! [`NodeNames`]: the names that a node's modules see in their expressions.
//!
//! ```text
//! node, traits, vars as declared -> conditional layers -> params of each module -> vars as they are
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::module::{ConditionalVars, Module, Params};
use catalog::params::{LayerState, ParamError, Resolved, ResolvedParams};
use catalog::secrets::SecretPaths;
use lang::{EvalError, Expr, Unobserved, Value};
use model::collect::CollectInserting;

use super::foreach::LoopBudget;
use super::links::DeclaredSlots;
use super::source::Sources;
use super::{
    BindError, BindMistake, BindPart, BoundAlone, BoundModule, HOSTNAME, Inputs, bind_module, secrets,
};
use crate::condition::SharedScope;

/// The names that a node's modules see, to bind them one by one: what is judged before it is signed is
/// bound by the same code as on the node.
#[derive(Debug)]
pub struct NodeNames {
    shared: Arc<SharedScope>,
    resolved: Resolved,
    broken: BTreeMap<String, BindError>,
}

impl NodeNames {
    /// Conditional layers and vars of all modules.
    pub fn of(inputs: &Inputs<'_>) -> NodeNames {
        let shared = shared_names(inputs);
        let (holds, broken) = conditional_layers(inputs.params, &shared);
        let resolved = catalog::params::resolve(inputs.modules, inputs.params, &holds, &shared.names());
        let mut unobserved = shared.unobserved;
        for (module, params) in &resolved {
            let below = params.unobserved.iter();
            unobserved
                .extend(below.map(|(param, observed)| (format!("vars.{module}.{param}"), observed.clone())));
        }
        let secret = secrets::paths_of_vars(&resolved);
        let shared = SharedScope { vars: nested(&resolved), unobserved, secret, ..shared };
        NodeNames { shared: Arc::new(shared), resolved, broken }
    }

    /// A module as it is before its references lead anywhere.
    pub fn bind_alone(&self, module: &Module) -> BoundAlone {
        let (module, slots) = self.bind(module, false, &mut LoopBudget::default(), Sources::Drop);
        BoundAlone { module, declared: slots.declarations() }
    }

    /// What modules find at a path (`vars.web.port`, `node.labels.region`); where that is not observed, what
    /// it depends on. Params are each module's own.
    pub fn value(&self, path: &[String]) -> Option<Result<Value, String>> {
        let (root, below) = path.split_first()?;
        if let Some(observed) = self.shared.unobserved.get(&path.join(".")) {
            return Some(Err(observed.clone()));
        }
        let found = match root.as_str() {
            "vars" => at(&self.shared.vars, below),
            "node" => at(&self.shared.node, below),
            "traits" => at(self.shared.traits.as_ref()?, below),
            _ => None,
        };
        found.cloned().map(Ok)
    }

    /// Why the conditional vars of a module cannot be decided.
    pub fn broken(&self, module: &str) -> Option<&BindError> {
        self.broken.get(module)
    }

    /// The module's params, evaluated and read by type.
    pub fn params(&self, module: &str) -> Option<&ResolvedParams> {
        self.resolved.get(module)
    }

    pub(super) fn bind<'m>(
        &self,
        module: &'m Module,
        observe: bool,
        budget: &mut LoopBudget,
        sources: Sources,
    ) -> (BoundModule, DeclaredSlots<'m>) {
        let params = self.resolved.get(&module.name).cloned().unwrap_or_default();
        let error = match self.broken.get(&module.name) {
            Some(error) => Some(error.clone()),
            None if params.wrong.is_empty() => None,
            None => {
                let mut error = BindError::default();
                for ParamError { name, why } in &params.wrong {
                    let (part, message) = (BindPart::Param(name.clone()), why.clone());
                    error.mistakes.push(BindMistake { part, message, place: None });
                }
                Some(error)
            }
        };
        let vars = error.map_or(Ok(params), Err);
        bind_module(module, vars, &self.shared, observe, budget, sources)
    }
}

/// Whether each layer of `conditional_vars` holds, or why that cannot be said; in their order.
pub fn conditions(inputs: &Inputs<'_>) -> Vec<Result<bool, String>> {
    let shared = shared_names(inputs);
    let held = |layer: &ConditionalVars| layer_holds(layer, &shared).map_err(|error| error.to_string());
    inputs.params.conditional.iter().map(held).collect()
}

/// The value at a path below another one.
fn at<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, name| match value {
        Value::Map(map) => map.get(name),
        Value::Bool(_) | Value::Int(_) | Value::Str(_) | Value::List(_) => None,
    })
}

/// The names that do not depend on a module. `vars` are still those of the release.
fn shared_names(inputs: &Inputs<'_>) -> SharedScope {
    let declared = &inputs.params.node;
    let texts = |list: &[String]| Value::List(list.iter().map(|text| Value::from(text.as_str())).collect());
    let labels = declared.labels.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str())));
    let mut node = BTreeMap::from([
        ("channel".to_owned(), Value::from(declared.channel.as_str())),
        ("roles".to_owned(), texts(&declared.roles)),
        ("labels".to_owned(), Value::Map(labels.collect_inserting())),
    ]);
    let mut unobserved = Unobserved::new();
    let hostname = inputs.hostname.map(str::to_owned);
    if hostname.is_none() {
        unobserved.insert(HOSTNAME.to_owned(), HOSTNAME.to_owned());
    }
    if inputs.traits.is_none() {
        unobserved.insert("traits".to_owned(), "traits".to_owned());
    }
    let optional =
        [("hostname", &hostname), ("environment", &declared.environment), ("owner", &declared.owner)];
    for (name, value) in optional {
        if let Some(value) = value {
            node.insert(name.to_owned(), Value::from(value.as_str()));
        }
    }
    let mut vars = BTreeMap::new();
    for (module, decls) in inputs.modules.iter().map(|(name, module)| (name, &module.params)) {
        for (param, decl) in decls {
            let value = inputs.params.vars.get(&format!("{module}.{param}")).or(decl.default.as_ref());
            if let Some(value) = value {
                vars.entry(module.clone()).or_insert_with(BTreeMap::new).insert(param.clone(), value.clone());
            }
        }
    }
    let vars =
        Value::Map(vars.into_iter().map(|(module, params)| (module, Value::Map(params))).collect_inserting());
    SharedScope {
        vars,
        traits: inputs.traits.cloned(),
        node: Value::Map(node),
        unobserved,
        secret: SecretPaths::default(),
        secrets: inputs.secrets.clone(),
        own_paths: inputs.own_paths.into(),
    }
}

/// Which conditional layers hold; and, by module, why one that sets its vars cannot be decided.
fn conditional_layers(
    params: &Params,
    scope: &SharedScope,
) -> (Vec<LayerState>, BTreeMap<String, BindError>) {
    let mut broken = BTreeMap::new();
    let mut holds = Vec::new();
    for layer in &params.conditional {
        holds.push(match layer_holds(layer, scope) {
            Ok(true) => LayerState::Holds,
            Ok(false) => LayerState::Left,
            Err(EvalError::Unobserved(observed)) => LayerState::Unobserved(observed),
            Err(error) => {
                for (module, _) in layer.vars.keys().filter_map(|name| name.split_once('.')) {
                    let error = BindError::whole(format!("conditional vars `{}`: {error}", layer.when));
                    broken.insert(module.to_owned(), error);
                }
                LayerState::Left
            }
        });
    }
    (holds, broken)
}

fn layer_holds(layer: &ConditionalVars, scope: &SharedScope) -> Result<bool, EvalError> {
    Expr::parse(&layer.when).map_err(EvalError::from)?.eval_bool(&scope.names())
}

fn nested(resolved: &Resolved) -> Value {
    let known = resolved
        .iter()
        .filter(|(_, params)| params.wrong.is_empty())
        .map(|(name, params)| (name.clone(), Value::Map(params.values.clone())));
    Value::Map(known.collect_inserting())
}
