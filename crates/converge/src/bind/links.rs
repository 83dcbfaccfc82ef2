//! References between resources: from names to ids, all folded into `depends_on`,
//! `notify` and order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use catalog::module::DeclaredResource;
use catalog::types::{PathClaim, Spec};
use lang::nearest;
use model::collect::CollectInserting;

use super::{BindError, BoundModule, BoundResource, MAX_LOOP_PAIRS};
use crate::{ResourceId, When};

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
    let names: Vec<BTreeMap<String, Vec<usize>>> = declared.iter().map(by_name).collect();
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
    refuse_twice(modules);
    refuse_claimed(modules);
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

fn by_name(module: &DeclaredSlots<'_>) -> BTreeMap<String, Vec<usize>> {
    let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, (resource, _)) in module.declared.iter().enumerate() {
        names(resource).for_each(|name| push_new(by_name.entry(name).or_default(), number));
    }
    // An id counts before any other name.
    for (number, (resource, _)) in module.declared.iter().enumerate() {
        by_name.extend(resource.id.clone().map(|id| (id, vec![number])));
    }
    by_name
}

/// `id`, `name` or `type:name` of the same module, else `module/` and one of these.
fn find(
    names: &[BTreeMap<String, Vec<usize>>],
    by_module: &BTreeMap<String, usize>,
    m: usize,
    reference: &str,
) -> Result<DeclaredIndex, String> {
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
        let mut seen = BTreeMap::new();
        for slot in 0..slots(module) {
            let resource = resource(module, slot);
            let Some(first) = seen.insert(resource.id.clone(), resource.item.clone()) else { continue };
            resource.spec = Err(BindError::whole(match (first, &resource.item) {
                (Some(first), Some(second)) => format!(
                    "items {first} and {second} of `foreach` are both {}; each needs a name of its own",
                    resource.id
                ),
                _ => format!("{} is declared twice in its module", resource.id),
            }));
        }
    }
}

/// Two resources that write one file: `muster check` refuses them, unless their paths are known on the
/// node alone. Two that are alike, and one that may not be wanted, harm nobody.
fn refuse_claimed(modules: &mut [BoundModule]) {
    let mut whole = WholeClaims::default();
    let mut refused: BTreeMap<SlotIndex, String> = claiming(modules)
        .filter_map(|(at, resource, spec)| Some((at, whole.claim(resource, spec)?)))
        .collect_inserting();
    for (at, _, spec) in claiming(modules) {
        // One that is refused for its whole files stays refused for them.
        if let (false, Some(reason)) = (refused.contains_key(&at), whole.refusal_of_part(spec)) {
            refused.insert(at, reason);
        }
    }
    for ((module, slot), refused) in refused {
        self::resource(&mut modules[module], slot).spec = Err(BindError::whole(refused));
    }
}

/// A module, and a slot of it.
type SlotIndex = (usize, usize);

/// The resources that claim what they write: those that are wanted whatever the host answers.
fn claiming(modules: &[BoundModule]) -> impl Iterator<Item = (SlotIndex, &BoundResource, &Spec)> {
    modules.iter().enumerate().flat_map(|(m, module)| {
        module.resources.iter().enumerate().filter_map(move |(slot, resource)| {
            let spec = resource.spec.as_ref().ok().filter(|_| matches!(resource.when, When::Always))?;
            Some(((m, slot), &**resource, spec))
        })
    })
}

/// Which resource is the first to write a file as a whole, by its path; and which have all that is below a path.
#[derive(Default)]
struct WholeClaims<'a> {
    whole: BTreeMap<String, (&'a ResourceId, &'a Spec)>,
    below: Vec<(String, &'a ResourceId)>,
}

impl<'a> WholeClaims<'a> {
    /// Takes in what a resource writes whole; says why not, where another one writes it otherwise.
    fn claim(&mut self, resource: &'a BoundResource, spec: &'a Spec) -> Option<String> {
        let mut refused = None;
        for claim in spec.path_claims() {
            if let Some(message) = self.below(&claim, &resource.id) {
                refused = Some(message);
            }
            let path = match claim {
                PathClaim::Part { .. } => continue,
                PathClaim::Whole(path) => path,
                PathClaim::Below(path) => {
                    refused = refused.or_else(|| self.above(&path, &resource.id));
                    self.below.push((path.clone(), &resource.id));
                    path
                }
            };
            match self.whole.get(&path) {
                None => drop(self.whole.insert(path, (&resource.id, spec))),
                Some((_, first)) if *first == spec => {}
                Some((first, _)) => {
                    let second = &resource.id;
                    refused = Some(format!("{second} writes {path}, which {first} declares already"));
                }
            }
        }
        refused
    }

    /// Why a resource may not write something that lies below what another one has as a whole.
    fn below(&self, claim: &PathClaim, second: &ResourceId) -> Option<String> {
        let (above, first) =
            self.below.iter().find(|(path, first)| *first != second && claim.lies_below(path))?;
        Some(format!("{second} writes {} below {above}, which {first} replaces as a whole", claim.path()))
    }

    /// Why a resource may not have all that is below a path: another one writes some of it.
    fn above(&self, path: &str, second: &ResourceId) -> Option<String> {
        let lies_below = |(known, _): &(&String, _)| PathClaim::Whole((*known).clone()).lies_below(path);
        let (known, (first, _)) = self.whole.iter().find(lies_below)?;
        Some(format!("{second} replaces {path} as a whole, and {first} writes {known} below it"))
    }

    /// Why a resource may not write its part of a file that another one writes whole.
    fn refusal_of_part(&self, spec: &Spec) -> Option<String> {
        spec.path_claims().into_iter().find_map(|claim| match &claim {
            PathClaim::Part { path, what } => match self.whole.get(path) {
                Some((first, _)) => Some(format!("{what} in {path}, which {first} declares whole")),
                None => {
                    let (above, first) = self.below.iter().find(|(above, _)| claim.lies_below(above))?;
                    Some(format!("{what} in {path}, below {above}, which {first} replaces as a whole"))
                }
            },
            PathClaim::Whole(_) | PathClaim::Below(_) => None,
        })
    }
}
