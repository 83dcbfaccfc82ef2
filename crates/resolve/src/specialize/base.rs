//! What many nodes share: their modules, and their vars up to the groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catalog::module::{Declared, Merge};
use lang::{EvalError, Names, Value};
use model::window::DeclaredWindow;

use super::entry::lay;
use super::grants::{GrantCache, Grants, Holding};
use super::node::SpecializedFor;
use super::{ByName, NodeSpec};
use crate::check::context::{Context, RoleInfo};
use crate::check::typed::{Layer, Typed};
use crate::judge::FleetJudge;
use crate::sink::Sink;
use crate::yaml::{At, Spanned};

/// A node's modules.
#[derive(Debug)]
pub(crate) struct ModuleSet {
    /// Each after what it depends on.
    pub(crate) names: Arc<[Arc<str>]>,
    members: BTreeSet<Arc<str>>,
    /// Full names of the params that something must set.
    pub(crate) required: Vec<Arc<str>>,
}

impl ModuleSet {
    pub(crate) fn has(&self, module: &str) -> bool {
        self.members.contains(module)
    }
}

/// Modules and vars of all nodes that were declared alike.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) modules: Arc<ModuleSet>,
    pub(crate) vars: BTreeMap<Arc<str>, Value>,
    /// A group says so.
    pub(crate) observe: bool,
    /// Names of the groups that have one.
    pub(crate) groups: BTreeSet<String>,
    /// All groups that it is in, by their numbers in the context.
    pub(crate) group_numbers: Arc<[usize]>,
    /// The windows that expressions of the modules ask for.
    pub(crate) windows: BTreeMap<String, DeclaredWindow>,
}

/// The layers of vars that many nodes share, each over those before it, with the files that set them: the fleet's,
/// those of roles, of the environment and of groups.
pub(crate) fn shared_layers<'c>(
    context: &'c Context,
    roles: &[String],
    environment: Option<&str>,
    groups: &[usize],
) -> Vec<(&'c str, &'c Layer)> {
    let mut layers = vec![("fleet.yaml", &context.vars)];
    let roles = roles.iter().filter_map(|name| context.roles.get(name));
    layers.extend(roles.map(|role| (&*role.file, &role.vars)));
    let environment = environment.and_then(|name| context.environments.get(name));
    layers.extend(environment.map(|environment| (&*environment.file, &environment.vars)));
    let groups = groups.iter().filter_map(|number| context.groups.get(*number));
    layers.extend(groups.map(|group| (&*context.groups_file, &group.vars)));
    layers
}

/// Which modules a node gets: by roles, by name, without the excluded ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ModuleSelection {
    pub(crate) roles: Vec<String>,
    pub(crate) modules: Vec<String>,
    pub(crate) exclude: BTreeSet<String>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct BaseKey {
    wanted: ModuleSelection,
    environment: Option<String>,
    groups: Arc<[usize]>,
}

/// What has been worked out already in one pass over many nodes.
#[derive(Default)]
pub(crate) struct Memo<'j> {
    /// Judges what the nodes get, where there is enough to judge it.
    pub(crate) judge: Option<FleetJudge<'j>>,
    /// What nodes got before, where nothing that they refer to changed.
    pub(crate) before: Option<&'j ByName<Arc<NodeSpec>>>,
    sets: BTreeMap<ModuleSelection, Option<Arc<ModuleSet>>>,
    bases: BTreeMap<BaseKey, Arc<Base>>,
    groups: BTreeMap<Vec<Option<String>>, Arc<[usize]>>,
    channels: BTreeMap<String, Arc<str>>,
    lists: BTreeSet<Arc<[Arc<str>]>>,
    grants: GrantCache,
}

/// Beyond this many different kinds of nodes, what they share is worked out anew.
const MAX_MEMO: usize = 20_000;

impl<'j> Memo<'j> {
    /// A memo of a pass in which what nodes get is judged.
    pub(crate) fn judged_by(judge: Option<FleetJudge<'j>>) -> Memo<'j> {
        Memo { judge, ..Memo::default() }
    }

    /// A node was right before with the same params, and had all of its modules.
    pub(crate) fn was(&self, whom: SpecializedFor<'_>, params: &[u8]) -> bool {
        let SpecializedFor::Node(name) = whom else { return false };
        let before = self.before.and_then(|before| before.get(name));
        before.is_some_and(|before| *before.params == *params)
    }
}

impl Memo<'_> {
    /// One copy of a channel's name.
    pub(crate) fn channel(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.channels.get(name) {
            return known.clone();
        }
        let shared: Arc<str> = name.into();
        self.channels.insert(name.to_owned(), shared.clone());
        shared
    }

    /// One copy of a list of modules.
    pub(crate) fn list(&mut self, names: Arc<[Arc<str>]>) -> Arc<[Arc<str>]> {
        if let Some(known) = self.lists.get(&names) {
            return known.clone();
        }
        if self.lists.len() < MAX_MEMO {
            self.lists.insert(names.clone());
        }
        names
    }

    /// The grants of nodes for which the same holds.
    pub(crate) fn grants(&mut self, context: &Context, holding: Holding, sink: &mut Sink) -> Arc<Grants> {
        self.grants.grants(context, holding, sink)
    }

    /// The modules that are wanted and what they need; `None` when that cannot be (reported).
    pub(crate) fn modules(
        &mut self,
        context: &Context,
        wanted: &ModuleSelection,
        blame: (&str, At),
        sink: &mut Sink,
    ) -> Option<Arc<ModuleSet>> {
        if let Some(Some(set)) = self.sets.get(wanted) {
            return Some(set.clone());
        }
        let set = module_set(context, wanted, blame, sink).map(Arc::new);
        if self.sets.len() < MAX_MEMO {
            self.sets.insert(wanted.clone(), set.clone());
        }
        set
    }

    /// Modules and vars up to the groups.
    pub(crate) fn base(
        &mut self,
        context: &Context,
        wanted: &ModuleSelection,
        declared: &Declared,
        blame: (&str, At),
        sink: &mut Sink,
    ) -> Option<Arc<Base>> {
        let modules = self.modules(context, wanted, blame, sink)?;
        let groups = self.groups_of(context, declared, sink);
        let environment = declared.environment.clone();
        let key = BaseKey { wanted: wanted.clone(), environment, groups };
        if let Some(base) = self.bases.get(&key) {
            return Some(base.clone());
        }
        let base = Arc::new(make_base(context, modules, &key, sink));
        if self.bases.len() < MAX_MEMO {
            self.bases.insert(key, base.clone());
        }
        Some(base)
    }

    /// The groups that a node is in, by what their conditions look at.
    fn groups_of(&mut self, context: &Context, declared: &Declared, sink: &mut Sink) -> Arc<[usize]> {
        if context.groups.is_empty() {
            return Arc::new([]);
        }
        let mut key =
            vec![declared.owner.clone(), declared.environment.clone(), Some(declared.channel.clone())];
        key.extend(declared.roles.iter().cloned().map(Some));
        key.push(None);
        let looked_at = context.groups.iter().flat_map(|group| &group.decl.labels);
        key.extend(looked_at.map(|label| declared.labels.get(label).cloned()));
        if let Some(known) = self.groups.get(&key) {
            return known.clone();
        }
        let groups: Arc<[usize]> = groups_of(context, declared, sink).into();
        if self.groups.len() < MAX_MEMO {
            self.groups.insert(key, groups.clone());
        }
        groups
    }
}

/// The groups that a node is in, by their numbers.
pub(crate) fn groups_of(context: &Context, declared: &Declared, sink: &mut Sink) -> Vec<usize> {
    let mut found = Vec::new();
    for (index, group) in context.groups.iter().enumerate() {
        let mut labels: BTreeMap<String, Value> =
            declared.labels.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
        for assumed in &group.decl.assumed {
            labels.entry(assumed.clone()).or_insert_with(|| Value::from(""));
        }
        let text = |text: &Option<String>| Value::from(text.as_deref().unwrap_or_default());
        let scope = Names::new()
            .with("labels", Value::Map(labels))
            .with("owner", text(&declared.owner))
            .with("environment", text(&declared.environment))
            .with("channel", Value::from(declared.channel.as_str()))
            .with("roles", Value::from(declared.roles.clone()));
        match group.decl.condition.eval_bool(&scope) {
            Ok(true) => found.push(index),
            Ok(false) => {}
            Err(error) => bad_group(context, index, &error, sink),
        }
    }
    found
}

fn bad_group(context: &Context, index: usize, error: &EvalError, sink: &mut Sink) {
    let at = context.groups.get(index).map(|group| group.decl.at).unwrap_or_default();
    sink.error(&context.groups_file, "E064", at, error.to_string())
        .help("owner, environment and labels that a node lacks are empty texts here");
}

/// Walks what modules depend on, each after its dependencies.
struct Closure<'c> {
    context: &'c Context,
    exclude: &'c BTreeSet<String>,
    order: Vec<Arc<str>>,
    members: BTreeSet<Arc<str>>,
    /// An excluded module and who needs it.
    needed: Option<(String, String)>,
}

impl Closure<'_> {
    fn add(&mut self, name: &str) {
        // A stack of its own: a chain may be as long as the fleet has modules.
        let mut stack: Vec<(&str, usize)> = vec![(name, 0)];
        while let Some((module, next)) = stack.pop() {
            let Some(info) = self.context.modules.get(module) else { continue };
            if next == 0 && (self.members.contains(module) || !self.members.insert(info.name.clone())) {
                continue;
            }
            match info.depends_on.get(next) {
                None => self.order.push(info.name.clone()),
                Some(dependency) => {
                    stack.push((module, next + 1));
                    if self.exclude.contains(&**dependency) {
                        self.needed.get_or_insert_with(|| (dependency.to_string(), module.to_owned()));
                    } else {
                        let found = self.context.modules.get(&**dependency);
                        if let Some(found) = found.filter(|found| !self.members.contains(&found.name)) {
                            stack.push((&found.name, 0));
                        }
                    }
                }
            }
        }
    }
}

fn module_set(
    context: &Context,
    wanted: &ModuleSelection,
    blame: (&str, At),
    sink: &mut Sink,
) -> Option<ModuleSet> {
    let exclude = &wanted.exclude;
    let mut closure = Closure { context, exclude, order: Vec::new(), members: BTreeSet::new(), needed: None };
    let roles = wanted.roles.iter().filter_map(|role| context.roles.get(role));
    let named: Vec<&str> = roles
        .flat_map(|role| role.modules.iter().map(|module| &**module))
        .chain(wanted.modules.iter().map(String::as_str))
        .filter(|module| !exclude.contains(*module))
        .collect();
    for module in named {
        closure.add(module);
    }
    let (file, at) = blame;
    if let Some((module, by)) = closure.needed {
        sink.error(file, "E051", at, format!("module `{module}` is excluded, and `{by}` depends on it"))
            .help(format!("exclude `{by}` too, or keep `{module}`"));
        return None;
    }
    let members = closure.members;
    let mut clashed = false;
    for reach in context.reaches.iter().filter(|r| members.contains(&*r.from) && !members.contains(&*r.to)) {
        clashed = true;
        let (from, to) = (&reach.from, &reach.to);
        sink.error(
            &crate::check::modules::module_file(from),
            "E088",
            reach.at,
            format!("a node has `{from}` without `{to}`, which this refers to"),
        )
        .help(format!("give the node `{to}`, or drop the reference"))
        .label_in(file, at, "this one");
    }
    for clash in
        context.clashes.iter().filter(|c| members.contains(&*c.first) && members.contains(&*c.second))
    {
        clashed = true;
        let path = |module: &str| crate::check::modules::module_file(module);
        sink.error(&path(&clash.second), "E084", clash.second_at, clash.message.clone())
            .help(clash.help.clone())
            .label_in(&path(&clash.first), clash.first_at, "declared here")
            .label_in(file, at, "a node that has both");
    }
    if clashed {
        return None;
    }
    let params = closure.order.iter().filter_map(|module| context.modules.get(&**module));
    let required = params.flat_map(|info| {
        let required = info.params.iter().filter(|(_, decl)| decl.required);
        required.map(|(name, _)| format!("{}.{name}", info.name).into())
    });
    Some(ModuleSet { required: required.collect(), names: closure.order.into(), members })
}

fn make_base(context: &Context, modules: Arc<ModuleSet>, key: &BaseKey, sink: &mut Sink) -> Base {
    let mut vars = BTreeMap::new();
    let has = |module: &str| modules.has(module);
    let roles: Vec<(&str, &RoleInfo)> = key
        .wanted
        .roles
        .iter()
        .filter_map(|name| context.roles.get(name).map(|role| (name.as_str(), role)))
        .collect();
    conflicts(context, &roles, sink);
    let layers = shared_layers(context, &key.wanted.roles, key.environment.as_deref(), &key.groups);
    for (_, layer) in layers {
        lay(context, layer, has, &mut vars);
    }
    let groups: Vec<_> = key.groups.iter().filter_map(|index| context.groups.get(*index)).collect();
    let named = groups.iter().filter_map(|group| Some(group.decl.name.as_ref()?.value.clone()));
    let asked = modules.names.iter().filter_map(|name| context.modules.get(&**name));
    let asked = asked.flat_map(|module| &module.windows);
    let windows = asked.filter_map(|name| Some((name.clone(), context.fleet.windows.get(name)?.clone())));
    Base {
        vars,
        observe: groups.iter().any(|group| group.decl.observe),
        groups: named.collect(),
        group_numbers: Arc::clone(&key.groups),
        windows: windows.collect(),
        modules,
    }
}

/// Two roles of one node that set the same var differently, or the same key of a map that merges.
fn conflicts(context: &Context, roles: &[(&str, &RoleInfo)], sink: &mut Sink) {
    let mut set: BTreeMap<&str, Vec<(&str, &RoleInfo, &Typed)>> = BTreeMap::new();
    for (name, role) in roles {
        for var in &role.vars {
            let merge = context.param(&var.name).map(|decl| decl.merge);
            let earlier = set.entry(&*var.name).or_default();
            let differing = earlier.iter().find_map(|(first, info, other)| {
                let key = match merge {
                    Some(Merge::Replace) => (other.value != var.value).then(String::new),
                    Some(Merge::Deep) => differing_key(&other.value, &var.value),
                    Some(Merge::Append | Merge::Unique) | None => None,
                };
                Some((first, info, other, key?))
            });
            if let Some((first, info, other, key)) = differing {
                let what = match key.as_str() {
                    "" => format!("`{}`", var.name),
                    key => format!("the key `{key}` of `{}`", var.name),
                };
                let message = format!("role `{name}` sets {what} and role `{first}` sets it differently");
                sink.error(&role.file, "E046", var.at, message)
                    .help("set it in one role, or in the node entry")
                    .label_in(&info.file, other.at, format!("role `{first}` here"));
            }
            earlier.push((name, role, var));
        }
    }
}

/// The first key at which two maps have different values that do not merge.
fn differing_key(a: &Value, b: &Value) -> Option<String> {
    let (Value::Map(a), Value::Map(b)) = (a, b) else { return None };
    b.iter().find_map(|(key, later)| match (a.get(key)?, later) {
        (first @ Value::Map(_), Value::Map(_)) => Some(format!("{key}.{}", differing_key(first, later)?)),
        (first, later) => (first != later).then(|| key.clone()),
    })
}

/// The names of a list.
pub(crate) fn names(list: &[Spanned<String>]) -> impl Iterator<Item = String> {
    list.iter().map(|item| item.value.clone())
}
