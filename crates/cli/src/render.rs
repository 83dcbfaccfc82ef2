//! `muster render NODE`: what one node gets, bound as the node binds it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use catalog::{delegation, sync};
use clap::Args;
use converge::{BoundModule, BoundResource, Desired};
use model::canonical::CanonicalError;
use model::replication::{SyncPolicy, TransportPolicy};
use model::work::Delegation;
use model::{Digest, Fields};
use resolve::Specialized;
use serde::Serialize;

use crate::bound::{self, NodeSet};
use crate::check;
use crate::connect::Connect;
use crate::credentials;
use crate::exit::Exit;
use crate::failure::{Failure, UserError};
use crate::folder::RepoFolder;
use crate::observed::{self, Observed, TraitSource};
use crate::operator::Operator;
use crate::screen::{Mark, Screen};

/// How long a control plane is waited for before the built-in sample serves.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);

const AFTER: &str = "\
Traits are those that the node recorded, when the control plane can be asked; else a built-in
sample, which the output names. What is sensitive is not shown.

Examples:
  muster render web-1.example.com
  muster render web-1.example.com --repo fleet --traits traits.json
  muster render web-1.example.com --json | jq '.modules[].resources[].id'";

/// Arguments of `muster render`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct RenderArgs {
    #[command(flatten)]
    connect: Connect,
    /// Its hostname
    node: String,
    /// The fleet repo
    #[arg(long, value_name = "DIR", default_value = ".")]
    repo: PathBuf,
    /// Bind with the traits of this JSON file
    #[arg(long, value_name = "FILE")]
    traits: Option<PathBuf>,
}

/// Why a node cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// Nothing classifies it.
    #[error("no entry of the fleet repo matches {node:?}; nothing would be applied to it")]
    Unassigned {
        /// The node asked for.
        node: String,
        /// A name that is nearly the same.
        near: Option<String>,
    },
    /// Its params cannot be read, or what is granted to it.
    #[error("what is declared of {0} cannot be read")]
    Params(String, #[source] CanonicalError),
}

impl UserError for RenderError {
    fn hint(&self) -> Option<String> {
        match self {
            RenderError::Unassigned { near: Some(near), .. } => Some(format!("did you mean {near}?")),
            RenderError::Unassigned { near: None, .. } => Some("add an entry to nodes.yaml".to_owned()),
            RenderError::Params(..) => None,
        }
    }
}

/// What a node gets.
#[serde_with::skip_serializing_none]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rendered {
    node: String,
    channel: String,
    roles: Vec<String>,
    environment: Option<String>,
    observe: bool,
    transport: TransportPolicy,
    sync: Option<SyncPolicy>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    delegations: BTreeMap<Arc<str>, Delegation>,
    traits: TraitSource,
    modules: Vec<RenderedModule>,
}

#[derive(Serialize)]
struct RenderedModule {
    name: String,
    #[serde(skip_serializing_if = "Fields::is_empty")]
    fields: Fields,
    resources: Vec<RenderedResource>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    handlers: Vec<RenderedResource>,
}

#[derive(Serialize)]
struct RenderedResource {
    id: String,
    fields: Fields,
}

/// Does the verb.
///
/// # Errors
/// When the repo has mistakes, or no entry matches the node.
pub async fn run(args: &RenderArgs, screen: Screen) -> Result<Exit, Failure> {
    let checked = check::read(&mut RepoFolder::open(&args.repo)?)?;
    let fleet = checked.fleet.as_ref().map_err(|diagnostics| checked.broken(diagnostics))?;
    let fleet = fleet.specialize();
    let spec = fleet.node(&args.node).ok_or_else(|| unassigned(fleet, &args.node))?;
    let unreadable = |source| RenderError::Params(args.node.clone(), source);
    let params = spec.read_params().map_err(unreadable)?;
    let set = NodeSet::of(&bound::modules(fleet), params);
    let observed = match &args.traits {
        Some(path) => observed::of_file(path)?,
        None => recorded(&args.connect, &args.node).await.unwrap_or_else(|| observed::sample(&args.node)),
    };
    // Judged by what it observes, what it gets may be wrong where nothing was before.
    let judged = checked.observed(&BTreeMap::from([(args.node.clone(), observed.traits.clone())]));
    let desired = set.bind(&args.node, &observed.traits);
    let rendered = Rendered {
        sync: spec.grants.read_sync().map_err(unreadable)?,
        delegations: spec.grants.read_delegations().map_err(unreadable)?,
        ..rendered(&args.node, &set, &desired, &observed, fleet)
    };
    let exit = screen.result(&rendered, || text(&rendered, screen))?;
    judged.map_err(|diagnostics| checked.broken(&diagnostics))?;
    Ok(exit)
}

/// The failure of a verb that names a node which no entry matches.
pub(crate) fn unassigned(fleet: &Specialized, node: &str) -> RenderError {
    let near = lang::nearest(node, fleet.exact.keys().map(|name| &**name)).map(str::to_owned);
    RenderError::Unassigned { node: node.to_owned(), near }
}

async fn recorded(connect: &Connect, node: &str) -> Option<Observed> {
    let (_, credentials) = credentials::operator(connect.operator.as_deref()).ok()?;
    match tokio::time::timeout(PATIENCE, Operator::dial(&credentials)).await {
        Ok(Ok(operator)) => observed::recorded(&operator, node).await,
        Ok(Err(error)) => {
            tracing::debug!(%error, "no control plane to ask for recorded traits");
            None
        }
        Err(_) => None,
    }
}

fn rendered(
    node: &str,
    set: &NodeSet,
    desired: &Desired,
    observed: &Observed,
    fleet: &Specialized,
) -> Rendered {
    let blobs = |digest: &Digest| fleet.blobs.get(digest).cloned();
    let resource = |resource: &Arc<BoundResource>| {
        let mut fields = bound::fields(resource, &blobs);
        if resource.sensitive {
            bound::hide(&mut fields);
        }
        RenderedResource { id: resource.id.to_string(), fields }
    };
    let module = |module: &Arc<BoundModule>| RenderedModule {
        name: module.name.clone(),
        fields: bound::module_fields(module),
        resources: module.resources.iter().map(resource).collect(),
        handlers: module.handlers.iter().map(resource).collect(),
    };
    let declared = &set.params.node;
    Rendered {
        node: node.to_owned(),
        channel: declared.channel.clone(),
        roles: declared.roles.clone(),
        environment: declared.environment.clone(),
        observe: desired.observe,
        transport: fleet.channels.get(&declared.channel).map(|channel| channel.transport).unwrap_or_default(),
        sync: None,
        delegations: BTreeMap::new(),
        traits: observed.source.clone(),
        modules: desired.modules.iter().map(module).collect(),
    }
}

fn text(rendered: &Rendered, screen: Screen) -> String {
    let Rendered { node, channel, roles, environment, observe, traits, modules, .. } = rendered;
    let environment = environment.as_ref().map(|name| format!("  environment {name}")).unwrap_or_default();
    let mut out = format!(
        "{}  channel {channel}  roles {}{environment}\ntraits: {traits}\n",
        screen.mark(Mark::Bold, node),
        roles.join(", "),
    );
    if *observe {
        out.push_str(&screen.mark(Mark::Warn, "observes only: nothing is changed on this node\n"));
    }
    granted(&mut out, rendered, screen);
    for module in modules {
        out.push_str(&format!("\nmodule {}\n", screen.mark(Mark::Bold, &module.name)));
        lines(&mut out, &module.fields, "  ");
        for resource in &module.resources {
            out.push_str(&format!("  {}\n", screen.mark(Mark::Bold, &resource.id)));
            lines(&mut out, &resource.fields, "    ");
        }
        for handler in &module.handlers {
            out.push_str(&format!("  {}  (handler)\n", screen.mark(Mark::Bold, &handler.id)));
            lines(&mut out, &handler.fields, "    ");
        }
    }
    out
}

/// What the node may synchronize, and what it may be asked for.
fn granted(out: &mut String, rendered: &Rendered, screen: Screen) {
    if rendered.transport != TransportPolicy::Auto {
        out.push_str(&format!("transport: {}\n", rendered.transport));
    }
    if let Some(policy) = &rendered.sync {
        out.push_str(&format!("\n{}\n", screen.mark(Mark::Bold, "synchronization")));
        lines(out, &sync::fields(policy), "  ");
    }
    for (name, content) in &rendered.delegations {
        out.push_str(&format!("\ndelegation {}  (the control plane may)\n", screen.mark(Mark::Bold, name)));
        for (item, fields) in delegation::permits(content) {
            out.push_str(&format!("  {item}\n"));
            lines(out, &fields, "    ");
        }
    }
}

fn lines(out: &mut String, fields: &BTreeMap<String, String>, indent: &str) {
    for (name, value) in fields {
        if !value.contains('\n') {
            out.push_str(&format!("{indent}{name}: {value}\n"));
            continue;
        }
        out.push_str(&format!("{indent}{name}:\n"));
        for line in value.lines() {
            out.push_str(format!("{indent}  | {line}").trim_end());
            out.push('\n');
        }
    }
}
