//! References between resources: from names to ids, all folded into `depends_on`,
//! `notify` and order.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::module::DeclaredResource;
use lang::nearest;

use super::{BoundModule, BoundResource};

/// The names that others know a resource by: its id, its name as declared, its label.
fn names(resource: &DeclaredResource) -> impl Iterator<Item = String> {
    resource.id.iter().cloned().chain([resource.name.clone(), resource.label()])
}

/// A resource's index while its module is not sorted yet.
type ResourceIndex = (usize, usize);

/// Resolves every reference. One that names nothing fails its resource, one edge that is
/// meant for another resource (`before`, `subscribes`) is written there.
pub(super) fn resolve(modules: &mut [BoundModule], declared: &[Vec<&DeclaredResource>]) {
    let names: Vec<BTreeMap<String, Vec<usize>>> = declared.iter().map(|module| by_name(module)).collect();
    let by_module: BTreeMap<String, usize> =
        modules.iter().enumerate().map(|(m, module)| (module.name.clone(), m)).collect();
    let firsts: Vec<usize> = modules.iter().map(|module| module.resources.len()).collect();
    let find = |m: usize, reference: &str| find(&names, &by_module, m, reference);
    let is_handler = |target: ResourceIndex| target.1 >= firsts[target.0];
    let mut edges: Vec<(Edge, ResourceIndex, ResourceIndex)> = Vec::new();
    for (m, module) in declared.iter().enumerate() {
        // A module that could not be bound has no slots.
        for (slot, links) in module.iter().enumerate().take(slots(&modules[m])) {
            let mut wrong = None;
            let mut add = |edge: Edge, references: &[String], outward: bool| {
                for reference in references {
                    match find(m, reference) {
                        Ok(target) if is_handler(target) && edge != Edge::Notify => {
                            wrong =
                                Some(format!("`{reference}` is a handler, and handlers are only notified"));
                        }
                        Ok(target)
                            if target.0 == m && is_handler((m, slot)) && outward && !is_handler(target) =>
                        {
                            wrong = Some(format!("`{reference}` comes before the handlers of its module"));
                        }
                        Ok(target) if outward => edges.push((edge, (m, slot), target)),
                        Ok(target) => edges.push((edge, target, (m, slot))),
                        Err(error) => wrong = Some(error),
                    }
                }
            };
            add(Edge::DependsOn, &links.depends_on, false);
            add(Edge::Before, &links.before, true);
            add(Edge::Notify, &links.notify, true);
            add(Edge::Notify, &links.subscribes, false);
            if let Some(error) = wrong {
                resource(&mut modules[m], slot).spec = Err(error);
            }
        }
    }
    for (edge, from, to) in edges {
        link(modules, declared, edge, from, to);
    }
    refuse_twice(modules);
}

/// An edge from what comes first to what comes later.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    DependsOn,
    Before,
    Notify,
}

fn link(
    modules: &mut [BoundModule],
    declared: &[Vec<&DeclaredResource>],
    edge: Edge,
    from: ResourceIndex,
    to: ResourceIndex,
) {
    if from.1 >= slots(&modules[from.0]) || to.1 >= slots(&modules[to.0]) {
        return;
    }
    let (first, later) =
        (resource(&mut modules[from.0], from.1).id.clone(), resource(&mut modules[to.0], to.1).id.clone());
    match edge {
        Edge::DependsOn => resource(&mut modules[to.0], to.1).depends_on.push(first),
        Edge::Before => resource(&mut modules[to.0], to.1).after.push(first),
        Edge::Notify => {
            push_new(&mut resource(&mut modules[from.0], from.1).notify, later);
            let notifier = &declared[from.0][from.1];
            let target = resource(&mut modules[to.0], to.1);
            push_new(&mut target.after, first.clone());
            for name in names(notifier) {
                target.notifiers.insert(format!("{}/{name}", first.module()), first.clone());
                target.notifiers.insert(name, first.clone());
            }
        }
    }
    if from.0 != to.0 {
        let name = modules[from.0].name.clone();
        push_new(&mut modules[to.0].after, name);
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

fn slots(module: &BoundModule) -> usize {
    module.resources.len() + module.handlers.len()
}

fn resource(module: &mut BoundModule, slot: usize) -> &mut BoundResource {
    let resources = module.resources.len();
    let shared = match slot.checked_sub(resources) {
        None => &mut module.resources[slot],
        Some(handler) => &mut module.handlers[handler],
    };
    // Nobody else holds it yet, so this copies nothing.
    Arc::make_mut(shared)
}

fn by_name(module: &[&DeclaredResource]) -> BTreeMap<String, Vec<usize>> {
    let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (slot, resource) in module.iter().enumerate() {
        names(resource).for_each(|name| push_new(by_name.entry(name).or_default(), slot));
    }
    // An id counts before any other name.
    for (slot, resource) in module.iter().enumerate() {
        by_name.extend(resource.id.clone().map(|id| (id, vec![slot])));
    }
    by_name
}

/// `id`, `name` or `type:name` of the same module, else `module/` and one of these.
fn find(
    names: &[BTreeMap<String, Vec<usize>>],
    by_module: &BTreeMap<String, usize>,
    m: usize,
    reference: &str,
) -> Result<ResourceIndex, String> {
    let here = names[m].get(reference).map(|slots| (m, slots));
    let elsewhere = || {
        let (module, rest) = reference.split_once('/')?;
        let other = *by_module.get(module)?;
        names[other].get(rest).map(|slots| (other, slots))
    };
    match here.or_else(elsewhere) {
        Some((module, slots)) if slots.len() == 1 => Ok((module, slots[0])),
        Some(_) => {
            Err(format!("`{reference}` names more than one resource; give the one that is meant an id"))
        }
        None => {
            let hint = nearest(reference, names[m].keys().map(String::as_str));
            let hint = hint.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
            Err(format!("`{reference}` names no resource of this node{hint}"))
        }
    }
}

/// Two declarations of one thing in one module: `muster check` refuses them, unless only
/// their evaluated names are equal.
fn refuse_twice(modules: &mut [BoundModule]) {
    for module in modules {
        let mut seen = std::collections::BTreeSet::new();
        for slot in 0..slots(module) {
            let resource = resource(module, slot);
            if !seen.insert(resource.id.clone()) {
                resource.spec = Err(format!("{} is declared twice in its module", resource.id));
            }
        }
    }
}
