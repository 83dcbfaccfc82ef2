//! Order: of resources inside a module, of modules among each other (CFG-2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catalog::types::Spec;
use model::collect::CollectInserting;

use super::{BindError, BoundModule, BoundResource};
use crate::{ResourceId, ResourceSubject, graph};

type BindEdges = BTreeSet<(usize, usize)>;

/// The most implied edges that are tried one by one where they contradict what was declared.
const MAX_TRIED: usize = 2_000;

/// Sorts every module inside and the modules among each other. Whoever is on a cycle
/// carries an error that names its members, and the rest is sorted without it.
pub(super) fn order(mut modules: Vec<BoundModule>) -> Vec<BoundModule> {
    for module in &mut modules {
        if let Err(error) = sort_inside(module) {
            module.error.get_or_insert(BindError::whole(error));
        }
    }
    cross_module_dependencies(&mut modules);
    let numbers: BTreeMap<String, usize> =
        modules.iter().enumerate().map(|(i, module)| (module.name.clone(), i)).collect_inserting();
    for module in &mut modules {
        if let Some(absent) = module.depends_on.iter().find(|name| !numbers.contains_key(*name)) {
            let error = format!("it depends on module {absent}, which this node does not have");
            module.error.get_or_insert(BindError::whole(error));
        }
    }
    let order = loop {
        let edges = module_edges(&modules, &numbers);
        match graph::sort(modules.len(), &with_parents(&mut modules, edges)) {
            Ok(order) => break order,
            Err(cycle) => break_cycle(&mut modules, &cycle),
        }
    };
    let mut slots: Vec<Option<BoundModule>> = modules.into_iter().map(Some).collect();
    order.into_iter().filter_map(|i| slots[i].take()).collect()
}

/// Members get the error and no edges, so that what remains can be sorted.
fn break_cycle(modules: &mut [BoundModule], cycle: &[usize]) {
    let names = graph::describe(cycle.iter().map(|i| modules[*i].name.as_str()));
    for i in cycle {
        let module = &mut modules[*i];
        module.error = Some(BindError::whole(format!("modules wait for each other: {names}")));
        (module.depends_on, module.after) = (Vec::new(), Vec::new());
    }
}

/// A resource's dependency on another module's resource orders the modules.
fn cross_module_dependencies(modules: &mut [BoundModule]) {
    for module in modules {
        let foreign: BTreeSet<String> = module
            .resources
            .iter()
            .chain(&module.handlers)
            .flat_map(|resource| resource.depends_on.iter().chain(&resource.after))
            .map(|id| id.module().to_owned())
            .filter(|name| *name != module.name)
            .collect_inserting();
        let new: Vec<String> = foreign.into_iter().filter(|name| !module.after.contains(name)).collect();
        module.after.extend(new);
    }
}

fn module_edges(modules: &[BoundModule], numbers: &BTreeMap<String, usize>) -> BindEdges {
    let edges = modules.iter().enumerate().flat_map(|(i, module)| {
        let earlier = module.depends_on.iter().chain(&module.after);
        earlier.filter_map(move |name| numbers.get(name).map(|first| (*first, i)))
    });
    edges.collect_inserting()
}

/// Adds order between modules that manage a path and something below it, where that
/// contradicts nothing that was declared.
fn with_parents(modules: &mut [BoundModule], mut edges: BindEdges) -> BindEdges {
    if modules.len() < 2 {
        return edges;
    }
    let mut makers = Makers::default();
    for (i, module) in modules.iter().enumerate() {
        module.resources.iter().for_each(|resource| makers.add(i, resource));
    }
    let mut wanted = BindEdges::new();
    for (i, module) in modules.iter().enumerate() {
        for resource in &module.resources {
            let needed = makers.needed_by(resource).chain(makers.of_types(resource));
            wanted.extend(needed.filter(|first| *first != i).map(|first| (first, i)));
        }
    }
    for (first, later) in wanted {
        if edges.contains(&(first, later)) || reaches(&edges, later, first) {
            continue;
        }
        edges.insert((first, later));
        let name = modules[first].name.clone();
        modules[later].after.push(name);
    }
    edges
}

fn reaches(edges: &BindEdges, from: usize, to: usize) -> bool {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
    while let Some(at) = todo.pop() {
        if at == to {
            return true;
        }
        if seen.insert(at) {
            todo.extend(edges.range((at, 0)..=(at, usize::MAX)).map(|(_, next)| *next));
        }
    }
    false
}

/// Sorts resources and handlers: declared edges first, then parents before what needs them.
fn sort_inside(module: &mut BoundModule) -> Result<(), String> {
    let implied = implied(&module.resources);
    sort_list(&mut module.resources, &implied)?;
    sort_list(&mut module.handlers, &Implied::default())
}

/// The order that nobody declared.
#[derive(Default)]
struct Implied {
    /// One resource needs another.
    edges: BindEdges,
    /// All of a type come before others: those of the type, and the others. As a type may have very many
    /// resources, they are not paired.
    types: Vec<(BTreeSet<usize>, BTreeSet<usize>)>,
}

impl Implied {
    fn holds_in_list_order(&self) -> bool {
        let before = |(firsts, laters): &(BTreeSet<usize>, BTreeSet<usize>)| {
            firsts.last().zip(laters.first()).is_none_or(|(last, first)| last < first)
        };
        self.edges.iter().all(|(a, b)| a < b) && self.types.iter().all(before)
    }

    /// The edges of types, through a node for each that stands before every resource, so that it holds
    /// up nobody else: the numbers of resources begin after them.
    fn edges_of_types(&self) -> BindEdges {
        let nodes = self.types.len();
        let edges = self.types.iter().enumerate().flat_map(|(node, (firsts, laters))| {
            let into = firsts.iter().map(move |first| (first + nodes, node));
            into.chain(laters.iter().map(move |later| (node, later + nodes)))
        });
        edges.collect_inserting()
    }
}

fn sort_list(list: &mut Vec<Arc<BoundResource>>, implied: &Implied) -> Result<(), String> {
    let declared = declared(list);
    if declared.is_empty() && implied.holds_in_list_order() {
        return Ok(());
    }
    let nodes = implied.types.len();
    let shifted = |edges: &BindEdges| -> BindEdges {
        edges.iter().map(|(a, b)| (a + nodes, b + nodes)).collect_inserting()
    };
    let (declared, of_types) = (shifted(&declared), implied.edges_of_types());
    let wanted: BindEdges = shifted(&implied.edges).union(&of_types).copied().collect_inserting();
    let all: BindEdges = declared.union(&wanted).copied().collect_inserting();
    let size = list.len() + nodes;
    // What is implied gives way to what was declared: edge by edge where they are few.
    let order = graph::sort(size, &all).or_else(|_| match wanted.len() <= MAX_TRIED {
        true => graph::sort(size, &without_cycles(declared, &wanted)),
        false => {
            let needs: BindEdges = declared.union(&shifted(&implied.edges)).copied().collect_inserting();
            graph::sort(size, &needs).or_else(|_| graph::sort(size, &declared))
        }
    });
    let order = order.map_err(|cycle| {
        let members = cycle.iter().filter_map(|i| Some(list.get(i.checked_sub(nodes)?)?.id.as_str()));
        format!("resources wait for each other: {}", graph::describe(members))
    })?;
    let resources = order.into_iter().filter_map(|i| list.get(i.checked_sub(nodes)?).map(Arc::clone));
    *list = resources.collect();
    Ok(())
}

/// What was declared, and all that is implied and contradicts neither that nor what came before it.
fn without_cycles(mut edges: BindEdges, implied: &BindEdges) -> BindEdges {
    for (first, later) in implied {
        if !reaches(&edges, *later, *first) {
            edges.insert((*first, *later));
        }
    }
    edges
}

fn declared(list: &[Arc<BoundResource>]) -> BindEdges {
    let has_edges = |resource: &BoundResource| !resource.depends_on.is_empty() || !resource.after.is_empty();
    if !list.iter().any(|resource| has_edges(resource)) {
        return BindEdges::new();
    }
    let numbers: BTreeMap<&ResourceId, usize> =
        list.iter().enumerate().map(|(i, r)| (&r.id, i)).collect_inserting();
    let edges = list.iter().enumerate().flat_map(|(i, resource)| {
        let earlier = resource.depends_on.iter().chain(&resource.after);
        earlier.filter_map(|id| numbers.get(id).map(|first| (*first, i))).collect::<Vec<_>>()
    });
    edges.collect_inserting()
}

/// Parents come before what is in them; what is to go comes before the directory that goes.
fn implied(list: &[Arc<BoundResource>]) -> Implied {
    let mut makers = Makers::default();
    // Files are many, and only asked for by what needs one.
    let files = list.iter().any(|resource| !resource.needs().is_empty());
    let made = |resource: &BoundResource| files || !matches!(resource.spec, Ok(Spec::File(_)));
    let made = list.iter().enumerate().filter(|(_, resource)| made(resource));
    made.for_each(|(i, resource)| makers.add(i, resource));
    let mut edges = BindEdges::new();
    let mut later: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (i, resource) in list.iter().enumerate() {
        for first in makers.needed_by(resource).filter(|first| *first != i) {
            edges.insert(if list[first].is_absent() { (i, first) } else { (first, i) });
        }
        for kind in resource.after_types() {
            later.entry(kind).or_default().insert(i);
        }
    }
    let types = later.into_iter().filter_map(|(kind, laters)| {
        let firsts: BTreeSet<usize> =
            makers.types.get(kind)?.difference(&laters).copied().collect_inserting();
        Some((firsts, laters))
    });
    Implied { edges, types: types.collect() }
}

/// Who makes which path and which thing. Directories apart: they are few, and every path is asked for
/// its parents.
#[derive(Default)]
struct Makers<'a> {
    files: BTreeMap<&'a str, usize>,
    directories: BTreeMap<&'a str, usize>,
    named: BTreeMap<ResourceSubject<'a>, usize>,
    types: BTreeMap<&'a str, BTreeSet<usize>>,
}

impl<'a> Makers<'a> {
    fn add(&mut self, number: usize, resource: &'a BoundResource) {
        let map = match resource.spec {
            Ok(Spec::File(_)) => &mut self.files,
            Ok(Spec::Directory(_) | Spec::Symlink(_)) => &mut self.directories,
            Ok(ref spec) if spec.state().is_some() => {
                self.named.extend(resource.subject().map(|subject| (subject, number)));
                self.types.entry(&resource.kind).or_default().insert(number);
                return;
            }
            Ok(_) | Err(_) => return,
        };
        map.entry(&resource.name).or_insert(number);
    }

    /// All resources of the types that come before this one.
    fn of_types<'b>(&'b self, resource: &BoundResource) -> impl Iterator<Item = usize> + 'b {
        resource.after_types().iter().filter_map(|kind| self.types.get(kind)).flatten().copied()
    }

    fn needed_by<'b>(&'b self, resource: &'b BoundResource) -> impl Iterator<Item = usize> + 'b {
        let above = resource.path().into_iter().flat_map(parents).filter(|_| !self.directories.is_empty());
        let above = above.filter_map(|path| self.directories.get(path));
        let whole = resource.needs().into_iter();
        let whole = whole.filter_map(|path| self.files.get(path).or_else(|| self.directories.get(path)));
        let things = if self.named.is_empty() { Vec::new() } else { resource.after_things() };
        let things = things.into_iter().filter_map(|subject| self.named.get(&subject));
        above.chain(whole).chain(things).copied()
    }
}

/// The directories above a path, the nearest first, `/` left out.
pub(crate) fn parents(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rfind('/').map(|end| &path[..end]))
        .skip(1)
        .filter(|path| !path.is_empty())
}
