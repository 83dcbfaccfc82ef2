//! [`Context`]: everything that a node entry can refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catalog::module::ParamDecl;
use trust::nix::{StorePath, store_paths_in};

use super::graph::leads;
use super::identity::Clash;
use super::modules::{Modules, module_path};
use super::references::CrossReference;
use super::rollouts::{self, DeclaredRollout, LocatedProbe};
use super::typed::{Layer, layer};
use crate::decl::fleet::FleetDecl;
use crate::decl::groups::Group;
use crate::decl::layers::Environment;
use crate::decl::module::Interface;
use crate::parse::{FileDecl, Files};
use crate::shape::near_or_all;
use crate::sink::Sink;
use crate::tree::{self, FileKind};
use crate::yaml::{At, Spanned};

/// The most groups.
const MAX_GROUPS: usize = 1000;

/// A role with its vars read by type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleInfo {
    pub(crate) file: Arc<str>,
    pub(crate) modules: Vec<Arc<str>>,
    pub(crate) vars: Layer,
    /// Its file has mistakes, so nobody knows what its nodes have.
    pub(crate) broken: bool,
}

/// An environment with its vars read by type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnvironmentInfo {
    /// The file that declares it.
    pub(crate) file: Arc<str>,
    pub(crate) at: At,
    pub(crate) vars: Layer,
}

/// A group with its vars read by type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupInfo {
    pub(crate) decl: Group,
    pub(crate) vars: Layer,
}

/// A module as node entries see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModuleInfo {
    pub(crate) name: Arc<str>,
    pub(crate) params: BTreeMap<String, Arc<ParamDecl>>,
    pub(crate) depends_on: Vec<Arc<str>>,
    /// Windows that its conditions ask for.
    pub(crate) windows: BTreeSet<String>,
    /// Paths of the Nix store that its text names.
    pub(crate) store_paths: BTreeSet<StorePath>,
    /// Its file has mistakes: a param that is not here may be declared there.
    pub(crate) broken: bool,
}

/// Everything that node entries refer to, checked. Entries need a new look only when two
/// of these differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) fleet: FleetDecl,
    pub(crate) vars: Layer,
    /// `fleet.yaml` has mistakes, so a default that is not here may be meant there.
    pub(crate) fleet_broken: bool,
    pub(crate) modules: BTreeMap<String, ModuleInfo>,
    pub(crate) roles: BTreeMap<String, RoleInfo>,
    pub(crate) environments: BTreeMap<String, EnvironmentInfo>,
    /// `environments.yaml` has mistakes.
    pub(crate) environments_broken: bool,
    pub(crate) groups: Vec<GroupInfo>,
    pub(crate) groups_file: Arc<str>,
    /// Labels that some node declares.
    pub(crate) labels: BTreeSet<String>,
    /// Some file of nodes or hosts may declare labels that could not be read.
    pub(crate) labels_hidden: bool,
    /// Pairs of modules that no node may have together.
    pub(crate) clashes: Vec<Clash>,
    /// The rollouts of channels, by channel.
    pub(crate) rollouts: BTreeMap<String, DeclaredRollout>,
    /// The probes, of every channel that has a rollout.
    pub(crate) probes: Vec<LocatedProbe>,
    /// Modules that need another one on the same node, for a notification.
    pub(crate) reaches: Vec<CrossReference>,
}

impl Context {
    /// Builds and checks it. `others` are all files but those of nodes and hosts.
    pub(crate) fn build(
        files: &Files,
        modules: &Modules,
        labels: BTreeSet<String>,
        sink: &mut Sink,
    ) -> Context {
        let (clashes, reaches) = (modules.clashes.clone(), modules.reaches.clone());
        let mut context = Context { labels, clashes, reaches, ..Context::default() };
        context.labels_hidden = files
            .values()
            .any(|file| matches!(file.content, FileDecl::Nodes(_) | FileDecl::Host(_)) && file.found.hides());
        for (name, decl) in &modules.decls {
            let mut info = module_info(name, &decl.interface, decl.broken);
            let shared = modules.shared.get(name);
            info.store_paths = shared.map(|module| store_paths_in(&module.bytes)).unwrap_or_default();
            context.modules.insert(name.clone(), info);
        }
        read_environments(files, &mut context, sink);
        read_fleet(files, &mut context, sink);
        read_roles(files, &mut context, sink);
        read_groups(files, &mut context, sink);
        rollouts::read(files, &mut context, sink);
        check_uses(files, modules, &context, sink);
        context
    }

    /// The declaration of a var by its full name.
    pub(crate) fn param(&self, name: &str) -> Option<&Arc<ParamDecl>> {
        let (module, param) = name.split_once('.')?;
        self.modules.get(module)?.params.get(param)
    }

    /// Reports a module that does not exist.
    pub(crate) fn known_module(&self, file: &str, name: &Spanned<String>, sink: &mut Sink) -> bool {
        let known = self.modules.contains_key(&name.value);
        if !known {
            let help = near_or_all(&name.value, self.modules.keys().map(String::as_str));
            sink.error(file, "E041", name.at, format!("there is no module `{}`", name.value)).help(help);
        }
        known
    }

    /// Reports an environment that does not exist.
    pub(crate) fn known_environment(&self, file: &str, name: &Spanned<String>, sink: &mut Sink) {
        if self.environments.contains_key(&name.value) || self.environments_broken {
            return;
        }
        let help = if self.environments.is_empty() {
            "declare it in environments.yaml: `environments: {NAME: {vars: {}}}`".to_owned()
        } else {
            near_or_all(&name.value, self.environments.keys().map(String::as_str))
        };
        sink.error(file, "E042", name.at, format!("there is no environment `{}`", name.value)).help(help);
    }

    /// Reports a channel that does not exist.
    pub(crate) fn known_channel(&self, file: &str, name: &Spanned<String>, sink: &mut Sink) {
        if self.fleet.channels.contains_key(&name.value) || self.fleet.hidden {
            return;
        }
        let help = near_or_all(&name.value, self.fleet.channels.keys().map(String::as_str));
        sink.error(file, "E043", name.at, format!("there is no channel `{}`", name.value)).help(help);
    }

    /// Reports a role that does not exist.
    pub(crate) fn known_role(&self, file: &str, name: &Spanned<String>, sink: &mut Sink) -> bool {
        let known = self.roles.contains_key(&name.value);
        if !known {
            let help = near_or_all(&name.value, self.roles.keys().map(String::as_str));
            sink.error(file, "E040", name.at, format!("there is no role `{}`", name.value)).help(help);
        }
        known
    }
}

fn module_info(name: &str, interface: &Interface, broken: bool) -> ModuleInfo {
    ModuleInfo {
        name: name.into(),
        params: interface.params.iter().map(|(name, decl)| (name.clone(), Arc::new(decl.clone()))).collect(),
        depends_on: interface.depends_on.iter().map(|name| name.as_str().into()).collect(),
        windows: interface.windows.clone(),
        store_paths: BTreeSet::new(),
        broken,
    }
}

fn read_fleet(files: &Files, context: &mut Context, sink: &mut Sink) {
    let path = "fleet.yaml";
    let Some(file) = files.get(path) else {
        sink.general("E020", "there is no fleet.yaml", "begin with `format: 1`, a `name` and `channels`");
        (context.fleet_broken, context.fleet.hidden) = (true, true);
        return;
    };
    context.fleet_broken = !file.found.is_empty();
    if let FileDecl::Fleet(fleet) = &file.content {
        context.fleet = (**fleet).clone();
        context.vars = layer(context, path, &fleet.vars, sink);
        if let Some(channel) = &fleet.channel {
            context.known_channel(path, channel, sink);
        }
        if let Some(environment) = &fleet.environment {
            context.known_environment(path, environment, sink);
        }
    }
}

fn read_environments(files: &Files, context: &mut Context, sink: &mut Sink) {
    for (path, file) in files {
        let found: Vec<(String, &Environment, At)> = match &file.content {
            FileDecl::Environments(all) => {
                all.iter().map(|(name, (environment, at))| (name.clone(), environment, *at)).collect()
            }
            FileDecl::Environment(environment) => match tree::kind(path) {
                FileKind::Environment(name) => vec![(name.to_owned(), &**environment, At::default())],
                _ => Vec::new(),
            },
            _ => continue,
        };
        context.environments_broken |= file.found.hides();
        for (name, environment, at) in found {
            if let Some(EnvironmentInfo { file: first, at: first_at, .. }) = context.environments.get(&name) {
                sink.error(path, "E008", at, format!("environment `{name}` is declared twice"))
                    .help("keep one of the two")
                    .label_in(first, *first_at, "first here");
                continue;
            }
            let vars = layer(context, path, &environment.vars, sink);
            context.environments.insert(name, EnvironmentInfo { file: path.as_str().into(), at, vars });
        }
    }
}

fn read_roles(files: &Files, context: &mut Context, sink: &mut Sink) {
    for (path, file) in files {
        let (FileDecl::Role(role), FileKind::Role(name)) = (&file.content, tree::kind(path)) else {
            continue;
        };
        let modules = role
            .modules
            .iter()
            .filter(|module| context.known_module(path, module, sink))
            .map(|m| m.value.as_str().into());
        let modules = modules.collect();
        let broken = !file.found.is_empty();
        let vars = layer(context, path, &role.vars, sink);
        context.roles.insert(name.to_owned(), RoleInfo { file: path.as_str().into(), modules, vars, broken });
    }
}

fn read_groups(files: &Files, context: &mut Context, sink: &mut Sink) {
    let path = "groups.yaml";
    context.groups_file = path.into();
    let Some(FileDecl::Groups(groups)) = files.get(path).map(|file| &file.content) else { return };
    if let Some(over) = groups.get(MAX_GROUPS) {
        sink.error(path, "E099", over.at, format!("more than {MAX_GROUPS} groups")).help("join some");
    }
    for group in groups {
        let vars = layer(context, path, &group.vars, sink);
        context.groups.push(GroupInfo { decl: group.clone(), vars });
    }
}

/// Labels and other modules' vars that expressions name.
fn check_uses(files: &Files, modules: &Modules, context: &Context, sink: &mut Sink) {
    let groups_broken = files.get("groups.yaml").is_some_and(|file| !file.found.is_empty());
    let of_files = files.iter().map(|(path, file)| (path, &file.uses));
    for (path, uses) in of_files.chain(&modules.uses) {
        for used in &uses.labels {
            if !context.labels.contains(&used.label) && !context.labels_hidden {
                let help = near_or_all(&used.label, context.labels.iter().map(String::as_str));
                let message = format!("no node declares the label `{}`", used.label);
                sink.error(path, "E061", used.at, message).help(help);
            }
        }
        for used in &uses.vars {
            check_var_use(path, used, context, sink);
        }
        for used in uses.groups.iter().filter(|_| !groups_broken) {
            let named = || context.groups.iter().filter_map(|group| group.decl.name.as_ref());
            if !named().any(|name| name.value == used.group) {
                let names: Vec<&str> = named().map(|name| name.value.as_str()).collect();
                let message = format!("there is no group `{}`", used.group);
                sink.error(path, "E061", used.at, message).help(near_or_all(&used.group, names.into_iter()));
            }
        }
        for used in &uses.windows {
            if !context.fleet.windows.contains_key(&used.window) && !context.fleet_broken {
                let help = match context.fleet.windows.is_empty() {
                    true => "declare it in fleet.yaml, under `windows:`".to_owned(),
                    false => near_or_all(&used.window, context.fleet.windows.keys().map(String::as_str)),
                };
                let message = format!("there is no window `{}`", used.window);
                sink.error(path, "E065", used.at, message).help(help);
            }
        }
    }
}

/// One use of `vars.MODULE.PARAM`.
pub(crate) fn check_var_use(path: &str, used: &crate::exprs::VarUse, context: &Context, sink: &mut Sink) {
    let Some(module) = context.modules.get(&used.module) else {
        let help = near_or_all(&used.module, context.modules.keys().map(String::as_str));
        let message = format!("there is no module `{}`", used.module);
        sink.error(path, "E061", used.at, message).help(help);
        return;
    };
    if let Some(param) =
        used.param.as_ref().filter(|param| !module.params.contains_key(*param) && !module.broken)
    {
        let help = near_or_all(param, module.params.keys().map(String::as_str));
        let message = format!("module `{}` has no param `{param}`", used.module);
        sink.error(path, "E061", used.at, message).help(help);
        return;
    }
    let Some(own) = module_path(path) else { return };
    if used.guarded || own == used.module || needs(context, own, &used.module) {
        return;
    }
    let message = format!("module `{own}` uses a var of `{}` and does not depend on it", used.module);
    let help =
        format!("add `{}` to its depends_on, or write `vars.{}... | default(...)`", used.module, used.module);
    sink.error(path, "E061", used.at, message).help(help);
}

/// Whether `module` depends on `other`, at any distance.
pub(crate) fn needs<'c>(context: &'c Context, module: &'c str, other: &str) -> bool {
    leads(module, other, |name| {
        context.modules.get(name).into_iter().flat_map(|info| info.depends_on.iter().map(|name| &**name))
    })
}
