//! One node: what its entry and its host file add to what it shares with others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use catalog::module::{ConditionalVars, Declared, Params};
use lang::Value;
use model::canonical::{self, CanonicalError};
use trust::nix::{MAX_SET_PATHS, StorePath, store_paths_in};

use super::NodeSpec;
use super::base::{Base, Memo, ModuleSelection, names, shared_layers};
use super::entry::{ReadConditional, ReadEntry, ReadHost, ReadOverride, lay, report_useless};
use super::grants::Holding;
use crate::check::context::Context;
use crate::check::typed::Layer;
use crate::decl::nodes::Facts;
use crate::judge::JudgedNode;
use crate::sink::Sink;
use crate::yaml::{At, Spanned};

/// What the entry says of a node, with the host file on top; it is granted nothing yet. `whom` is how messages call
/// the node or the pattern. `None` when something is wrong (reported).
pub(crate) fn node(
    context: &Context,
    memo: &mut Memo<'_>,
    entry: &ReadEntry<'_>,
    host: Option<&ReadHost<'_>>,
    whom: SpecializedFor<'_>,
    at: At,
    sink: &mut Sink,
) -> Option<NodeSpec> {
    if !entry.sound || host.is_some_and(|host| !host.sound) {
        return None;
    }
    let blame = host.map_or((&*entry.file, at), |host| (&*host.file, At { line: 1, column: 1, len: 1 }));
    let declared = declared(context, entry, host);
    let chosen = declared.environment.as_deref().and_then(|name| entry.overrides.get(name));
    if declared.channel.is_empty() {
        if !context.fleet_broken {
            sink.error(blame.0, "E043", blame.1, format!("no channel for {whom}"))
                .help("add `channel:`, or `defaults: {channel: stable}` to fleet.yaml");
        }
        return None;
    }
    let wanted = wanted(entry, host, chosen, &declared);
    let base = memo.base(context, &wanted, &declared, blame, sink)?;
    let mut vars = base.vars.clone();
    let has = |module: &str| base.modules.has(module);
    lay(context, &entry.vars, has, &mut vars);
    if let Some(chosen) = chosen {
        lay(context, &chosen.vars, has, &mut vars);
    }
    let host_vars = host.map(|host| host_layer(&base, host, sink)).unwrap_or_default();
    let (conditional, sound) = conditional(&base, entry, sink);
    let sound = required(context, &base, &vars, &host_vars, whom, blame, sink) && sound;
    let observe = context.fleet.observe
        || context.fleet.channels.get(&declared.channel).is_some_and(|channel| channel.observe)
        || base.observe
        || entry.decl.facts.observe
        || host.is_some_and(|host| host.decl.facts.observe);
    let channel = memo.channel(&declared.channel);
    let mut params = Params {
        node: Declared { groups: base.groups.clone(), ..declared },
        modules: base.modules.names.iter().map(|name| name.to_string()).collect(),
        vars: vars.into_iter().map(|(name, value)| (name.to_string(), value)).collect(),
        conditional,
        host_vars,
        observe,
        windows: base.windows.clone(),
    };
    let unknown = |error: CanonicalError, sink: &mut Sink| {
        sink.error(blame.0, "E048", blame.1, format!("the vars of {whom} cannot travel: {error}"));
    };
    let bytes = canonical::to_bytes(&params).map_err(|error| unknown(error, sink)).ok()?;
    // What is missing already would only be told once more, and what is as it was is as right as it was.
    let unwanted = if !sound || memo.was(whom, &bytes) {
        BTreeSet::new()
    } else {
        judge(memo, &params, &Layers { context, base: &base, entry, host, chosen }, whom, blame)
    };
    let grants = memo.grants(context, Holding::default(), sink);
    let (modules, bytes) = if unwanted.is_empty() {
        (base.modules.names.clone(), bytes)
    } else {
        let modules = without(memo, context, &base, &unwanted, &mut params);
        (modules, canonical::to_bytes(&params).map_err(|error| unknown(error, sink)).ok()?)
    };
    if let Some(count) = too_many_store_paths(context, &modules, &bytes) {
        let message = format!(
            "the modules and vars of {whom} name {count} paths of /nix/store; a node may have at most {MAX_SET_PATHS}"
        );
        sink.error(blame.0, "E099", blame.1, message)
            .help("name the path of the system alone: what it needs comes with it");
        return None;
    }
    Some(NodeSpec { channel, modules, params: bytes.into(), grants, secrets: None })
}

/// How many paths of the Nix store a node's set would name, where that is more than it may: the control plane looks through
/// the closure of each (ROL-9).
fn too_many_store_paths(context: &Context, modules: &[Arc<str>], params: &[u8]) -> Option<usize> {
    let own = store_paths_in(params);
    let of_modules = modules.iter().filter_map(|module| context.modules.get(&**module));
    let named: BTreeSet<&StorePath> = of_modules.flat_map(|module| &module.store_paths).chain(&own).collect();
    Some(named.len()).filter(|count| *count > MAX_SET_PATHS)
}

/// SpecializedFor an entry is specialized for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SpecializedFor<'n> {
    /// The node of this name.
    Node(&'n str),
    /// All nodes of this pattern that no other entry takes.
    Pattern(&'n str),
}

impl fmt::Display for SpecializedFor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecializedFor::Node(name) => f.write_str(name),
            SpecializedFor::Pattern(pattern) => write!(f, "the nodes of `{pattern}`"),
        }
    }
}

/// The layers of a node's vars.
struct Layers<'l> {
    context: &'l Context,
    base: &'l Base,
    entry: &'l ReadEntry<'l>,
    host: Option<&'l ReadHost<'l>>,
    chosen: Option<&'l ReadOverride<'l>>,
}

impl Layers<'_> {
    /// Where the layer that wins sets a var; `None` where it is the module's default.
    fn place(&self, var: &str, params: &Params) -> Option<(Arc<str>, At)> {
        let entry = self.entry;
        let found =
            |layer: &Layer| layer.iter().rev().find(|typed| &*typed.name == var).map(|typed| typed.at);
        let of_entry = |layer: &Layer| found(layer).map(|at| (entry.file.clone(), at));
        let own = self.host.and_then(|host| Some((host.file.clone(), found(&host.vars)?)));
        let own = own.or_else(|| entry.conditional.iter().rev().find_map(|one| of_entry(&one.vars)));
        let own = own.or_else(|| of_entry(&self.chosen?.vars)).or_else(|| of_entry(&entry.vars));
        own.or_else(|| {
            let (node, groups) = (&params.node, &self.base.group_numbers);
            let shared = shared_layers(self.context, &node.roles, node.environment.as_deref(), groups);
            shared.into_iter().rev().find_map(|(file, layer)| Some((file.into(), found(layer)?)))
        })
    }
}

/// Judges what the node gets; gives the modules that it does not want, whatever it observes.
fn judge(
    memo: &mut Memo<'_>,
    params: &Params,
    layers: &Layers<'_>,
    whom: SpecializedFor<'_>,
    blame: (&str, At),
) -> BTreeSet<String> {
    let Some(judge) = &mut memo.judge else { return BTreeSet::new() };
    let hostname = match whom {
        SpecializedFor::Node(name) => Some(name),
        SpecializedFor::Pattern(_) => None,
    };
    let node = JudgedNode { hostname, whom, blame, params };
    judge.node(&node, &|var, params| layers.place(var, params))
}

/// The modules of a node without those that it does not want. One that another module of the node refers to
/// stays: the node passes it over.
fn without(
    memo: &mut Memo<'_>,
    context: &Context,
    base: &Base,
    unwanted: &BTreeSet<String>,
    params: &mut Params,
) -> Arc<[Arc<str>]> {
    // Each comes after what it depends on: from the last on, who needs a module is known before it.
    let mut kept: Vec<Arc<str>> = Vec::new();
    for name in base.modules.names.iter().rev() {
        let needs = |module: &Arc<str>| {
            let info = context.modules.get(&**module);
            info.is_some_and(|info| info.depends_on.contains(name))
                || context.reaches.iter().any(|reach| reach.from == **module && reach.to == **name)
        };
        if !unwanted.contains(&**name) || kept.iter().any(needs) {
            kept.push(name.clone());
        }
    }
    kept.reverse();
    let stays = |name: &str| kept.iter().any(|kept| **kept == *name);
    let of_kept = |var: &String, _: &mut Value| var.split_once('.').is_some_and(|(module, _)| stays(module));
    params.modules.retain(|name| stays(name));
    params.vars.retain(of_kept);
    params.host_vars.retain(of_kept);
    memo.list(kept.into())
}

/// What is declared, host file first, then entry, then the fleet's defaults.
fn declared(context: &Context, entry: &ReadEntry<'_>, host: Option<&ReadHost<'_>>) -> Declared {
    let (own, over, fleet) = (&entry.decl.facts, host.map(|host| &host.decl.facts), &context.fleet);
    let pick = |of: fn(&Facts) -> &Option<Spanned<String>>, fleet: &Option<Spanned<String>>| {
        let set = over.and_then(|facts| of(facts).as_ref()).or(of(own).as_ref()).or(fleet.as_ref());
        set.map(|text| text.value.clone())
    };
    let roles = over.and_then(|facts| facts.roles.as_ref()).or(own.roles.as_ref());
    let mut seen = BTreeSet::new();
    let roles = roles.into_iter().flatten().filter(|role| seen.insert(&role.value));
    Declared {
        owner: pick(|facts| &facts.owner, &fleet.owner),
        environment: pick(|facts| &facts.environment, &fleet.environment),
        channel: pick(|facts| &facts.channel, &fleet.channel).unwrap_or_default(),
        roles: roles.map(|role| role.value.clone()).collect(),
        labels: own.labels.iter().chain(over.into_iter().flat_map(|facts| &facts.labels)).cloned().collect(),
        // What a group's condition says is known only when all of this is.
        groups: BTreeSet::new(),
        key: pick(|facts| &facts.key, &None),
    }
}

fn wanted(
    entry: &ReadEntry<'_>,
    host: Option<&ReadHost<'_>>,
    chosen: Option<&ReadOverride<'_>>,
    declared: &Declared,
) -> ModuleSelection {
    let mut modules: Vec<String> = names(&entry.decl.facts.modules).collect();
    let mut exclude = BTreeSet::new();
    if let Some(chosen) = chosen {
        modules.extend(names(chosen.modules));
        exclude.extend(names(chosen.exclude));
    }
    if let Some(host) = host {
        // What the host file adds comes back even where the environment excludes it.
        let added: Vec<String> = names(&host.decl.facts.modules).collect();
        exclude.retain(|module| !added.contains(module));
        modules.extend(added);
        exclude.extend(names(&host.decl.exclude));
    }
    ModuleSelection { roles: declared.roles.clone(), modules, exclude }
}

fn host_layer(base: &Base, host: &ReadHost<'_>, sink: &mut Sink) -> BTreeMap<String, Value> {
    let mut vars = BTreeMap::new();
    for var in &host.vars {
        if base.modules.has(var.module()) {
            vars.insert(var.name.to_string(), var.value.clone());
        } else {
            report_useless(&host.file, var.module(), var.at, sink);
        }
    }
    vars
}

/// The conditional layers; and whether the node has all modules that their conditions need.
fn conditional(base: &Base, entry: &ReadEntry<'_>, sink: &mut Sink) -> (Vec<ConditionalVars>, bool) {
    let (mut found, mut sound) = (Vec::new(), true);
    for one in &entry.conditional {
        let vars = of_modules(base, &one.vars);
        if vars.is_empty() {
            continue;
        }
        sound &= !missing_modules(base, entry, one, sink);
        found.push(ConditionalVars { when: one.decl.when.source().trim().to_owned(), vars });
    }
    (found, sound)
}

fn of_modules(base: &Base, layer: &Layer) -> BTreeMap<String, Value> {
    let own = layer.iter().filter(|var| base.modules.has(var.module()));
    own.map(|var| (var.name.to_string(), var.value.clone())).collect()
}

/// Reports modules that a condition needs and the nodes do not have; says whether there are any.
fn missing_modules(base: &Base, entry: &ReadEntry<'_>, one: &ReadConditional<'_>, sink: &mut Sink) -> bool {
    let mut missing = false;
    for module in one.needs.iter().filter(|module| !base.modules.has(module)) {
        let message = format!("the condition needs vars of `{module}`, which these nodes do not have");
        sink.error(&entry.file, "E045", one.decl.at, message)
            .help(format!("write `vars.{module}... | default(...)`, or give them the module"));
        missing = true;
    }
    missing
}

/// Reports params that something must set and nothing does; says whether there are none.
fn required(
    context: &Context,
    base: &Base,
    vars: &BTreeMap<Arc<str>, Value>,
    host_vars: &BTreeMap<String, Value>,
    whom: SpecializedFor<'_>,
    blame: (&str, At),
    sink: &mut Sink,
) -> bool {
    let mut sound = true;
    for name in base.modules.required.iter().filter(|name| !vars.contains_key(&***name)) {
        if host_vars.contains_key(&**name) {
            continue;
        }
        let secret = context.param(name).is_some_and(|decl| decl.kind == catalog::module::ParamType::Secret);
        let help = if secret {
            format!("add  {name}: secret:team/name  to its vars")
        } else {
            format!("add  {name}: ...  to its vars")
        };
        sink.error(blame.0, "E047", blame.1, format!("`{name}` is required and nothing sets it for {whom}"))
            .help(help);
        sound = false;
    }
    sound
}
