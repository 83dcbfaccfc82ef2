//! References between resources: from names to ids, all folded into `depends_on`,
//! `notify` and order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use catalog::module::DeclaredResource;
use lang::nearest;
use model::collect::CollectInserting;

use super::claims::refuse_claimed;
use super::{BindError, BoundModule, BoundResource, MAX_LOOP_PAIRS};

/// The declarations of a module, each with the slots that it stands for: one, or with
/// `foreach` any number.
#[derive(Debug, Default)]
pub(super) struct DeclaredSlots<'m> {
    declared: Vec<(&'m DeclaredResource, Range<usize>)>,
    /// How many of them are resources; the rest are handlers.
    resources: usize,
    /// Slots taken so far.
    slots: usize,
}

impl<'m> DeclaredSlots<'m> {
    /// Takes a declaration and what it stands for in.
    pub(super) fn push(
        &mut self,
        declared: &'m DeclaredResource,
        list: &mut Vec<Arc<BoundResource>>,
        bound: Vec<Arc<BoundResource>>,
    ) {
        let first = self.slots;
        self.slots += bound.len();
        self.declared.push((declared, first..self.slots));
        list.extend(bound);
    }

    /// For each slot, the number of its declaration.
    pub(super) fn declarations(&self) -> Vec<usize> {
        let numbered = self.declared.iter().enumerate();
        numbered.flat_map(|(number, (_, slots))| slots.clone().map(move |_| number)).collect()
    }

    /// What follows are handlers.
    pub(super) fn begin_handlers(&mut self) {
        self.resources = self.declared.len();
    }

    /// Whether any of them refers to another one.
    fn refers(&self) -> bool {
        let lists = |one: &DeclaredResource| {
            [&one.depends_on, &one.before, &one.notify, &one.subscribes].iter().any(|list| !list.is_empty())
        };
        self.declared.iter().any(|(resource, _)| lists(resource))
    }
}

/// The names that others know a resource by: its id, its name as declared, its label.
fn names(resource: &DeclaredResource) -> impl Iterator<Item = String> {
    resource.id.iter().cloned().chain([resource.name.clone(), resource.label()])
}

/// A declaration: its module, and its number in it.
type DeclaredIndex = (usize, usize);

/// Resolves every reference; one to or from a resource with `foreach` means all its items. One
/// that names nothing fails its resource, one edge that is meant for another resource
/// (`before`, `subscribes`) is written there.
pub(super) fn resolve(modules: &mut [BoundModule], declared: &[DeclaredSlots<'_>]) {
    if declared.iter().any(DeclaredSlots::refers) {
        link_all(modules, declared);
    }
    refuse_twice(modules);
    refuse_claimed(modules);
}

fn link_all(modules: &mut [BoundModule], declared: &[DeclaredSlots<'_>]) {
    let names: Vec<DeclaredNames<'_>> = declared.iter().map(DeclaredNames::of).collect();
    let by_module: BTreeMap<String, usize> =
        modules.iter().enumerate().map(|(m, module)| (module.name.clone(), m)).collect_inserting();
    let is_handler = |target: DeclaredIndex| target.1 >= declared[target.0].resources;
    let mut edges = EdgeCollector { declared, edges: Vec::new(), seen: BTreeSet::new(), pairs: 0 };
    for (m, module) in declared.iter().enumerate() {
        for (number, (links, slots)) in module.declared.iter().enumerate() {
            let me = (m, number);
            let mut wrong = None;
            let mut add = |edge: Edge, references: &[String], outward: bool| {
                for reference in references {
                    let added = match find(&names, &by_module, m, reference) {
                        Ok(target) if is_handler(target) && edge != Edge::Notify => {
                            Err(format!("`{reference}` is a handler, and handlers are only notified"))
                        }
                        Ok(target) if target.0 == m && is_handler(me) && outward && !is_handler(target) => {
                            Err(format!("`{reference}` comes before the handlers of its module"))
                        }
                        Ok(target) if outward => edges.add(edge, me, target),
                        Ok(target) => edges.add(edge, target, me),
                        Err(error) => Err(error),
                    };
                    wrong = added.err().or(wrong.take());
                }
            };
            add(Edge::DependsOn, &links.depends_on, false);
            add(Edge::Before, &links.before, true);
            add(Edge::Notify, &links.notify, true);
            add(Edge::Notify, &links.subscribes, false);
            if let Some(error) = wrong {
                for slot in slots.clone() {
                    resource(&mut modules[m], slot).spec = Err(BindError::whole(error.clone()));
                }
            }
        }
    }
    for (edge, from, to) in edges.edges {
        link(modules, declared, edge, from, to);
    }
}

/// An edge from what comes first to what comes later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    DependsOn,
    Before,
    Notify,
}

/// The edges of a node between declarations, each once, within the bound on pairs.
struct EdgeCollector<'d> {
    declared: &'d [DeclaredSlots<'d>],
    edges: Vec<(Edge, DeclaredIndex, DeclaredIndex)>,
    seen: BTreeSet<(Edge, DeclaredIndex, DeclaredIndex)>,
    /// How many pairs those with a loop at either end stand for.
    pairs: usize,
}

impl EdgeCollector<'_> {
    fn add(&mut self, edge: Edge, from: DeclaredIndex, to: DeclaredIndex) -> Result<(), String> {
        if !self.seen.insert((edge, from, to)) {
            return Ok(());
        }
        let count = |at: DeclaredIndex| self.declared[at.0].declared[at.1].1.len();
        let pairs = count(from).saturating_mul(count(to));
        if pairs > 1 {
            self.pairs = self.pairs.saturating_add(pairs);
        }
        if self.pairs > MAX_LOOP_PAIRS {
            return Err(format!(
                "references from and to loops of a node stand for at most {MAX_LOOP_PAIRS} pairs of \
                 resources; refer to the module"
            ));
        }
        self.edges.push((edge, from, to));
        Ok(())
    }
}

fn link(
    modules: &mut [BoundModule],
    declared: &[DeclaredSlots<'_>],
    edge: Edge,
    from: DeclaredIndex,
    to: DeclaredIndex,
) {
    let (notifier, firsts) = &declared[from.0].declared[from.1];
    let (_, laters) = &declared[to.0].declared[to.1];
    let module = modules[from.0].name.clone();
    let first_ids: Vec<_> =
        firsts.clone().map(|slot| resource(&mut modules[from.0], slot).id.clone()).collect();
    for later in laters.clone() {
        let target = resource(&mut modules[to.0], later);
        match edge {
            Edge::DependsOn => target.depends_on.extend(first_ids.iter().cloned()),
            Edge::Before => target.after.extend(first_ids.iter().cloned()),
            Edge::Notify => {
                target.after.extend(first_ids.iter().cloned());
                for name in names(notifier) {
                    for name in [format!("{module}/{name}"), name] {
                        let known = target.notifiers.entry(name).or_default();
                        known.extend(first_ids.iter().cloned());
                    }
                }
            }
        }
    }
    if edge == Edge::Notify {
        let later_ids: Vec<_> =
            laters.clone().map(|slot| resource(&mut modules[to.0], slot).id.clone()).collect();
        for first in firsts.clone() {
            resource(&mut modules[from.0], first).notify.extend(later_ids.iter().cloned());
        }
    }
    let stand = !firsts.is_empty() && !laters.is_empty();
    if from.0 != to.0 && stand {
        push_new(&mut modules[to.0].after, module);
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

pub(super) fn resource(module: &mut BoundModule, slot: usize) -> &mut BoundResource {
    let resources = module.resources.len();
    let shared = match slot.checked_sub(resources) {
        None => &mut module.resources[slot],
        Some(handler) => &mut module.handlers[handler],
    };
    // Nobody else holds it yet, so this copies nothing.
    Arc::make_mut(shared)
}

/// The declarations of a module by the names that others know them by ([`names`]), none of which is copied.
struct DeclaredNames<'m> {
    slots: &'m DeclaredSlots<'m>,
    ids: BTreeMap<&'m str, usize>,
    /// Names as they are declared, each with the number of its declaration.
    named: BTreeSet<(&'m str, usize)>,
}

impl<'m> DeclaredNames<'m> {
    fn of(slots: &'m DeclaredSlots<'m>) -> DeclaredNames<'m> {
        let numbered = || slots.declared.iter().enumerate();
        let ids = numbered().filter_map(|(number, (resource, _))| Some((resource.id.as_deref()?, number)));
        let named = numbered().map(|(number, (resource, _))| (resource.name.as_str(), number));
        DeclaredNames { slots, ids: ids.collect_inserting(), named: named.collect_inserting() }
    }

    /// The numbers of those that a reference means, each once. An id counts before any other name.
    fn find(&self, reference: &str) -> BTreeSet<usize> {
        if let Some(number) = self.ids.get(reference) {
            return BTreeSet::from([*number]);
        }
        let named = |name| self.named.range((name, 0)..=(name, usize::MAX)).map(|(_, number)| *number);
        let label = reference.split_once(':');
        let labelled = label.into_iter().flat_map(|(kind, name)| {
            named(name).filter(move |number| self.slots.declared[*number].0.kind == kind)
        });
        named(reference).chain(labelled).collect_inserting()
    }

    /// The name that is nearly a reference.
    fn nearest(&self, reference: &str) -> Option<String> {
        let all: BTreeSet<String> =
            self.slots.declared.iter().flat_map(|(resource, _)| names(resource)).collect_inserting();
        nearest(reference, all.iter().map(String::as_str)).map(str::to_owned)
    }
}

/// `id`, `name` or `type:name` of the same module, else `module/` and one of these.
fn find(
    names: &[DeclaredNames<'_>],
    by_module: &BTreeMap<String, usize>,
    m: usize,
    reference: &str,
) -> Result<DeclaredIndex, String> {
    let found = |module: usize, name: &str| {
        let numbers = names[module].find(name);
        (!numbers.is_empty()).then_some((module, numbers))
    };
    let elsewhere = || {
        let (module, rest) = reference.split_once('/')?;
        found(*by_module.get(module)?, rest)
    };
    match found(m, reference).or_else(elsewhere) {
        Some((module, numbers)) => match numbers.first().filter(|_| numbers.len() == 1) {
            Some(number) => Ok((module, *number)),
            None => {
                Err(format!("`{reference}` names more than one resource; give the one that is meant an id"))
            }
        },
        None => {
            let hint = names[m].nearest(reference);
            let hint = hint.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
            Err(format!("`{reference}` names no resource of this node{hint}"))
        }
    }
}

/// Two declarations of one thing in one module: `muster check` refuses them, unless only
/// their evaluated names are equal.
fn refuse_twice(modules: &mut [BoundModule]) {
    for module in modules {
        let mut refused = Vec::new();
        let mut seen = BTreeMap::new();
        for (slot, resource) in module.resources.iter().chain(&module.handlers).enumerate() {
            let Some(first) = seen.insert(&resource.id, &resource.item) else { continue };
            refused.push((
                slot,
                match (first, &resource.item) {
                    (Some(first), Some(second)) => format!(
                        "items {first} and {second} of `foreach` are both {}; each needs a name of its own",
                        resource.id
                    ),
                    _ => format!("{} is declared twice in its module", resource.id),
                },
            ));
        }
        for (slot, reason) in refused {
            resource(module, slot).spec = Err(BindError::whole(reason));
        }
    }
}
