//! An entry or a host file with its vars read by type and its names checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use lang::Value;

use crate::check::context::Context;
use crate::check::typed::{Layer, layer};
use crate::decl::nodes::{Conditional, Facts, HostFile, NodesEntry};
use crate::sink::Sink;
use crate::yaml::{At, Spanned};

/// An entry, ready to be specialized for each node that it classifies.
#[derive(Debug)]
pub(crate) struct ReadEntry<'e> {
    pub(crate) file: Arc<str>,
    pub(crate) decl: &'e NodesEntry,
    pub(crate) vars: Layer,
    pub(crate) overrides: BTreeMap<&'e str, ReadOverride<'e>>,
    pub(crate) conditional: Vec<ReadConditional<'e>>,
    /// Every role and module it names exists; otherwise nothing more can be said of its nodes.
    pub(crate) sound: bool,
}

/// What holds in one environment.
#[derive(Debug)]
pub(crate) struct ReadOverride<'e> {
    pub(crate) modules: &'e [Spanned<String>],
    pub(crate) exclude: &'e [Spanned<String>],
    pub(crate) vars: Layer,
}

/// Vars that observed traits may switch on.
#[derive(Debug)]
pub(crate) struct ReadConditional<'e> {
    pub(crate) decl: &'e Conditional,
    pub(crate) vars: Layer,
    /// Modules whose vars the condition needs.
    pub(crate) needs: Vec<String>,
}

/// A host file, ready to be laid over the entry that classifies its node.
#[derive(Debug)]
pub(crate) struct ReadHost<'e> {
    pub(crate) file: Arc<str>,
    pub(crate) decl: &'e HostFile,
    pub(crate) vars: Layer,
    /// Every role and module it names exists.
    pub(crate) sound: bool,
}

/// Reads and checks an entry.
pub(crate) fn read_entry<'e>(
    context: &Context,
    file: &Arc<str>,
    decl: &'e NodesEntry,
    sink: &mut Sink,
) -> ReadEntry<'e> {
    let mut sound = facts(context, file, &decl.facts, sink);
    let mut overrides = BTreeMap::new();
    for one in &decl.overrides {
        context.known_environment(file, &one.environment, sink);
        for module in one.modules.iter().chain(&one.exclude) {
            sound &= context.known_module(file, module, sink);
        }
        let vars = layer(context, file, &one.vars, sink);
        let read = ReadOverride { modules: &one.modules, exclude: &one.exclude, vars };
        overrides.insert(one.environment.value.as_str(), read);
    }
    let conditional = decl.conditional.iter().map(|one| conditional(context, file, one, sink)).collect();
    let vars = layer(context, file, &decl.facts.vars, sink);
    let read = ReadEntry { file: file.clone(), decl, vars, overrides, conditional, sound };
    if sound {
        useless_vars(context, &read, sink);
    }
    read
}

/// Reads and checks a host file.
pub(crate) fn read_host<'e>(
    context: &Context,
    file: &Arc<str>,
    decl: &'e HostFile,
    sink: &mut Sink,
) -> ReadHost<'e> {
    let mut sound = facts(context, file, &decl.facts, sink);
    for module in &decl.exclude {
        sound &= context.known_module(file, module, sink);
    }
    let vars = layer(context, file, &decl.facts.vars, sink);
    ReadHost { file: file.clone(), decl, vars, sound }
}

/// Checks the names; false when a role or a module does not exist, or a role cannot be read.
fn facts(context: &Context, file: &str, facts: &Facts, sink: &mut Sink) -> bool {
    if let Some(environment) = &facts.environment {
        context.known_environment(file, environment, sink);
    }
    if let Some(channel) = &facts.channel {
        context.known_channel(file, channel, sink);
    }
    let mut sound = true;
    for role in facts.roles.iter().flatten() {
        sound &= context.known_role(file, role, sink);
        // What its nodes have is told of once it can be read.
        sound &= !context.roles.get(&role.value).is_some_and(|role| role.broken);
    }
    for module in &facts.modules {
        sound &= context.known_module(file, module, sink);
    }
    sound
}

fn conditional<'e>(
    context: &Context,
    file: &str,
    decl: &'e Conditional,
    sink: &mut Sink,
) -> ReadConditional<'e> {
    let used = decl.when.names();
    let needs = used
        .iter()
        .filter(|name| !name.guarded && name.path.first().is_some_and(|root| root == "vars"))
        .filter_map(|name| name.path.get(1).cloned())
        .collect();
    ReadConditional { decl, vars: layer(context, file, &decl.vars, sink), needs }
}

/// Vars of the entry for modules that its nodes have in no environment.
fn useless_vars(context: &Context, entry: &ReadEntry<'_>, sink: &mut Sink) {
    let facts = &entry.decl.facts;
    let layers =
        entry.conditional.iter().map(|one| &one.vars).chain(entry.overrides.values().map(|one| &one.vars));
    let all: Vec<(&str, At)> =
        std::iter::once(&entry.vars).chain(layers).flatten().map(|var| (var.module(), var.at)).collect();
    if all.is_empty() {
        return;
    }
    let named = facts.modules.iter().chain(entry.overrides.values().flat_map(|one| one.modules));
    let roles = facts.roles.iter().flatten().filter_map(|role| context.roles.get(&role.value));
    let direct: Vec<&str> = roles
        .flat_map(|role| role.modules.iter().map(|module| &**module))
        .chain(named.map(|module| module.value.as_str()))
        .collect();
    if direct.iter().any(|name| context.modules.get(*name).is_some_and(|info| info.broken)) {
        return;
    }
    for (module, at) in all {
        let has =
            direct.iter().any(|name| *name == module || crate::check::context::needs(context, name, module));
        if !has {
            report_useless(&entry.file, module, at, sink);
        }
    }
}

/// Reports a var of a module that the node does not have.
pub(crate) fn report_useless(file: &str, module: &str, at: At, sink: &mut Sink) {
    sink.error(file, "E045", at, format!("a var of `{module}`, which these nodes do not have"))
        .help(format!("give them a role that has `{module}`, or drop the var"));
}

/// Puts the vars of a layer that belong to a node's modules on what earlier layers gave.
pub(crate) fn lay(
    context: &Context,
    layer: &Layer,
    has: impl Fn(&str) -> bool,
    vars: &mut BTreeMap<Arc<str>, Value>,
) {
    for var in layer.iter().filter(|var| has(var.module())) {
        if let Some(decl) = context.param(&var.name) {
            let value = catalog::params::layer(decl, vars.get(&var.name), &var.value);
            vars.insert(var.name.clone(), value);
        }
    }
}
