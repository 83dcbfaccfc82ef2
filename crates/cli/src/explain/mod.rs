//! `muster explain NODE [VALUE]`: which layer set what, where it stands, who won and why (CFG-6).

mod resource;
mod secret;
mod text;
mod uses;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use catalog::module::Module;
use clap::Args;
use converge::bind::{self, Inputs, NodeNames};
use converge::{Desired, When};
use lang::Value;
use model::Digest;
use resolve::Resolver;
use resolve::explain::{ExplainedNode, ExplainedValue, Explainer};
use serde::Serialize;

use crate::bound;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::folder::RepoFolder;
use crate::observed::{self, Observed, TraitSource};
use crate::publish::PublishError;
use crate::render;
use crate::screen::Screen;

use resource::ExplainedResource;
use secret::SecretVars;

const AFTER: &str = "\
Works offline, from the fleet repo. Without a second argument it says how the node was classified
and what that gave it; with one, every layer that sets the value, lowest first, and who wins.
Conditions over traits are decided with those of --traits, else with a built-in sample that the
output names. What is sensitive is not shown.

Examples:
  muster explain web-1.example.com
  muster explain web-1.example.com nginx.port
  muster explain web-1.example.com labels.region
  muster explain web-1.example.com file:/etc/motd
  muster explain web-1.example.com file:/etc/motd.mode --repo fleet --traits traits.json";

/// Arguments of `muster explain`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct ExplainArgs {
    /// Its hostname
    node: String,
    /// A var (nginx.port), what is declared (channel, labels.region), or a resource
    /// (file:/etc/motd, module/id), also with an attribute (file:/etc/motd.mode)
    #[arg(value_name = "VAR|RESOURCE[.ATTR]")]
    value: Option<String>,
    /// The fleet repo
    #[arg(long, value_name = "DIR", default_value = ".")]
    repo: PathBuf,
    /// Decide conditions with the traits of this JSON file
    #[arg(long, value_name = "FILE")]
    traits: Option<PathBuf>,
}

/// Why nothing is explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The node has nothing of that name.
    #[error("{node} has no var and no resource {asked:?}")]
    Unknown {
        /// The node.
        node: String,
        /// What was asked for.
        asked: String,
        /// A name that is nearly the same.
        near: Option<String>,
    },
    /// Several resources have that name.
    #[error("{asked:?} may be {}", .candidates.join(" or "))]
    Ambiguous {
        /// What was asked for.
        asked: String,
        /// The resources.
        candidates: Vec<String>,
    },
}

impl UserError for ExplainError {
    fn hint(&self) -> Option<String> {
        match self {
            ExplainError::Unknown { near: Some(near), .. } => Some(format!("did you mean {near}?")),
            ExplainError::Unknown { node, near: None, .. } => {
                Some(format!("`muster explain {node}` names its vars, `muster render {node}` its resources"))
            }
            ExplainError::Ambiguous { candidates, .. } => {
                Some(format!("name one of them whole, as in {}", candidates.first()?))
            }
        }
    }
}

/// What is explained.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    node: String,
    /// Where the traits are from that conditions are decided with.
    traits: TraitSource,
    #[serde(flatten)]
    subject: ExplainedSubject,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum ExplainedSubject {
    Classified(Box<ClassifiedNode>),
    Value(ValueExplanation),
    Resource(Box<ExplainedResource>),
}

/// A node as a whole.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClassifiedNode {
    #[serde(flatten)]
    node: ExplainedNode,
    /// The modules of which the condition is false here, or asked on the node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    conditions: BTreeMap<String, String>,
    /// The vars that something sets, beside the modules' defaults.
    vars: Vec<ValueExplanation>,
}

/// A value, every layer of it, and what it comes to.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct ValueExplanation {
    #[serde(flatten)]
    explained: ExplainedValue,
    /// What it comes to on the node, merged and evaluated; absent where nothing sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    /// Why it comes to nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Does the verb.
///
/// # Errors
/// When the repo has mistakes, no entry matches the node, or it has nothing of that name.
pub fn run(args: &ExplainArgs, screen: Screen) -> Result<Exit, Failure> {
    let mut resolver = Resolver::new();
    let changes = RepoFolder::open(&args.repo)?.scan()?;
    let fleet = match resolver.update(changes) {
        Ok((fleet, _)) => fleet,
        Err(diagnostics) => return Err(PublishError::broken(&diagnostics, &resolver.tree()).into()),
    };
    let observed = match &args.traits {
        Some(path) => observed::of_file(path)?,
        None => observed::sample(&args.node),
    };
    let Some(explainer) = resolver.explainer(&args.node) else {
        return Err(render::unassigned(fleet.specialize(), &args.node).into());
    };
    let modules = bound::modules(fleet.specialize());
    let blobs = |digest: &Digest| fleet.specialize().blobs.get(digest).cloned();
    let mut node = NodeInQuestion::new(&args.node, explainer, &modules, observed, &blobs);
    let subject = match &args.value {
        None => ExplainedSubject::Classified(Box::new(node.classified())),
        Some(asked) => node.subject(asked)?,
    };
    let explained = Explained { node: args.node.clone(), traits: node.observed.source.clone(), subject };
    Ok(screen.result(&explained, || text::text(&explained, screen))?)
}

/// The node that is asked about, with all that answers come from.
struct NodeInQuestion<'r> {
    hostname: &'r str,
    explainer: Explainer<'r>,
    observed: Observed,
    /// Whether each of `conditional_vars` holds.
    holds: Vec<Result<bool, String>>,
    names: NodeNames,
    desired: Desired,
    modules: &'r BTreeMap<String, Arc<Module>>,
    secrets: SecretVars,
    blobs: bound::BlobLookup<'r>,
}

impl<'r> NodeInQuestion<'r> {
    fn new(
        hostname: &'r str,
        explainer: Explainer<'r>,
        modules: &'r BTreeMap<String, Arc<Module>>,
        observed: Observed,
        blobs: bound::BlobLookup<'r>,
    ) -> NodeInQuestion<'r> {
        let set = bound::NodeSet::of(modules, explainer.params().clone());
        let traits = &observed.traits;
        let inputs = Inputs {
            modules: &set.modules,
            params: &set.params,
            hostname: Some(hostname),
            traits: Some(traits),
            own_paths: &[],
            secrets: lang::OpenedSecrets::HIDDEN,
        };
        let (holds, names) = (bind::conditions(&inputs), NodeNames::of(&inputs));
        let desired = bind::bind_with_sources(&inputs);
        let secrets = SecretVars::of(&set);
        NodeInQuestion { hostname, explainer, observed, holds, names, desired, modules, secrets, blobs }
    }

    fn classified(&mut self) -> ClassifiedNode {
        let condition = |when: &When| match when {
            When::Always => None,
            When::Never(source) => Some(format!("when {source}: false here, so nothing of it is done")),
            When::Ask(condition) => Some(format!("when {}: asked on the node", condition.source())),
            When::Failed(why) => Some(why.to_string()),
        };
        let modules = self.desired.modules.iter();
        let conditions = modules.filter_map(|module| Some((module.name.clone(), condition(&module.when)?)));
        let conditions = conditions.collect();
        let names = self.explainer.var_names();
        let vars = names.iter().filter_map(|name| self.var(name));
        let beside_default = |var: &ValueExplanation| var.explained.layers.iter().any(is_beside_default);
        let vars = vars.filter(beside_default).collect();
        ClassifiedNode { node: self.explainer.node(), conditions, vars }
    }

    /// What a text names.
    fn subject(&mut self, asked: &str) -> Result<ExplainedSubject, ExplainError> {
        if let Some(var) = self.var(asked) {
            return Ok(ExplainedSubject::Value(var));
        }
        let declared = self.explainer.node().declared;
        if let Some(explained) = declared.iter().find(|value| value.name == asked) {
            let value = explained.winner().map(|winner| winner.value.clone());
            return Ok(ExplainedSubject::Value(ValueExplanation {
                explained: explained.clone(),
                value,
                error: None,
            }));
        }
        match self.resource(asked)? {
            Some(resource) => Ok(ExplainedSubject::Resource(Box::new(resource))),
            None => {
                let names = self.explainer.var_names();
                let declared = declared.iter().map(|value| value.name.as_str());
                let resources = self.desired.resources().map(|resource| resource.id.as_str());
                let known = names.iter().map(String::as_str).chain(declared);
                let short = |id: &'_ str| id.split_once('/').map_or(id, |(_, label)| label).to_owned();
                let labels: Vec<String> = resources.map(short).collect();
                let near = lang::nearest(asked, known.chain(labels.iter().map(String::as_str)));
                Err(ExplainError::Unknown {
                    node: self.hostname.to_owned(),
                    asked: asked.to_owned(),
                    near: near.map(str::to_owned),
                })
            }
        }
    }

    /// A var by its full name.
    fn var(&mut self, name: &str) -> Option<ValueExplanation> {
        let mut explained = self.explainer.var(name, &self.holds)?;
        let (module, param) = name.split_once('.')?;
        let params = self.names.params(module);
        let mut value = params.and_then(|params| params.values.get(param).cloned());
        let wrong = params.and_then(|params| params.wrong.iter().find(|wrong| wrong.name == name));
        let error = match self.names.broken(module) {
            Some(error) => Some(error.to_string()),
            None => wrong.map(|wrong| wrong.why.clone()),
        };
        if self.secrets.hides(name) {
            value = value.map(hidden);
            for layer in &mut explained.layers {
                layer.value = hidden(std::mem::replace(&mut layer.value, Value::Bool(false)));
            }
        }
        Some(ValueExplanation { explained, value, error })
    }
}

fn is_beside_default(layer: &resolve::explain::ExplainedLayer) -> bool {
    layer.layer != resolve::explain::LayerKind::ModuleDefault
}

/// A value that a sensitive resource uses: numbers and switches are no secrets.
fn hidden(value: Value) -> Value {
    match value {
        Value::Int(_) | Value::Bool(_) => value,
        Value::Str(_) | Value::List(_) | Value::Map(_) => Value::from(bound::HIDDEN),
    }
}
