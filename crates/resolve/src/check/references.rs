//! References between resources and modules: do they lead somewhere, and is there an order?

use std::collections::{BTreeMap, BTreeSet};

use catalog::types::hears_notifications;

use super::graph::{self, ModuleEdges};
use super::modules::module_file;
use crate::decl::module::ModuleDecl;
use crate::decl::resource::Placed;
use crate::shape::{did_you_mean, near_or_all};
use crate::sink::Sink;
use crate::yaml::{At, Spanned};

type Decls = BTreeMap<String, ModuleDecl>;

/// Where a reference leads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Target<'d> {
    module: &'d str,
    /// Index among the resources, then the handlers.
    index: usize,
    handler: bool,
}

/// A resource of one module that notifies, or comes before, one of another: a node that
/// has the first module needs the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CrossReference {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) at: At,
}

/// A `notify` by a name that several resources have, of which one alone acts when it is notified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MeantTarget {
    module: String,
    /// The notifier's index among the resources, then the handlers.
    index: usize,
    written: String,
    /// The same in words that mean one resource.
    meant: String,
}

impl MeantTarget {
    /// Writes it into the declaration, as nodes know no better than names.
    pub(crate) fn write(&self, decls: &mut Decls) {
        let Some(decl) = decls.get_mut(&self.module) else { return };
        let resources = decl.resources.len();
        let placed = match self.index.checked_sub(resources) {
            None => decl.resources.get_mut(self.index),
            Some(handler) => decl.handlers.get_mut(handler),
        };
        let all = placed.into_iter().flat_map(|placed| &mut placed.resource.notify);
        all.filter(|reference| **reference == self.written).for_each(|reference| {
            reference.clone_from(&self.meant);
        });
    }
}

/// What the references of all modules come to.
#[derive(Debug, Default)]
pub(crate) struct CheckedReferences {
    /// Those that lead into a later module.
    pub(crate) reaches: Vec<CrossReference>,
    /// Those that are to be written otherwise.
    pub(crate) meant: Vec<MeantTarget>,
}

/// Checks every reference of every module.
pub(crate) fn check(decls: &Decls, sink: &mut Sink) -> CheckedReferences {
    let links = ReferenceCollector::collect(decls, sink);
    links.both_directions(sink);
    links.cycles_of_resources(sink);
    links.changed(sink);
    modules(decls, &links, sink);
    let forward = links.all.iter().filter(|link| matches!(link.key, "notify" | "before"));
    let reaches = forward
        .filter(|link| link.from.module != link.to.module)
        .map(|link| CrossReference {
            from: link.from.module.to_owned(),
            to: link.to.module.to_owned(),
            at: link.at,
        })
        .collect();
    CheckedReferences { reaches, meant: links.meant }
}

/// One reference that leads somewhere.
struct Reference<'d> {
    from: Target<'d>,
    key: &'static str,
    to: Target<'d>,
    at: At,
}

struct ReferenceCollector<'d> {
    decls: &'d Decls,
    /// By module, what each id, name and `type:name` means.
    names: BTreeMap<&'d str, BTreeMap<String, Vec<Target<'d>>>>,
    all: Vec<Reference<'d>>,
    meant: Vec<MeantTarget>,
}

fn members(decl: &ModuleDecl) -> impl Iterator<Item = (usize, &Placed, bool)> {
    let resources = decl.resources.iter().map(|placed| (placed, false));
    resources
        .chain(decl.handlers.iter().map(|placed| (placed, true)))
        .enumerate()
        .map(|(i, (p, handler))| (i, p, handler))
}

fn member(decl: &ModuleDecl, index: usize) -> Option<&Placed> {
    decl.resources.get(index).or_else(|| decl.handlers.get(index - decl.resources.len()))
}

/// What each id, name and `type:name` of a module means.
fn names<'d>(module: &'d str, decl: &'d ModuleDecl) -> BTreeMap<String, Vec<Target<'d>>> {
    let mut names: BTreeMap<String, Vec<Target<'d>>> = BTreeMap::new();
    for (index, placed, handler) in members(decl) {
        let resource = &placed.resource;
        let keys: BTreeSet<String> =
            resource.id.iter().cloned().chain([resource.name.clone(), resource.label()]).collect();
        for key in keys {
            names.entry(key).or_default().push(Target { module, index, handler });
        }
    }
    names
}

impl<'d> ReferenceCollector<'d> {
    fn collect(decls: &'d Decls, sink: &mut Sink) -> ReferenceCollector<'d> {
        let index = decls.iter().map(|(module, decl)| (module.as_str(), names(module, decl))).collect();
        let mut links = ReferenceCollector { decls, names: index, all: Vec::new(), meant: Vec::new() };
        for (module, decl) in decls {
            for (index, placed, handler) in members(decl) {
                let from = Target { module, index, handler };
                for (key, reference) in &placed.references {
                    if let Some(to) = links.resolve(module, key, reference, sink) {
                        links.note_meant(from, to, reference);
                        links.accept(Reference { from, key, to, at: reference.at }, reference, sink);
                    }
                }
            }
        }
        links
    }

    /// Finds what a reference under a key means, or says what is wrong with it.
    fn resolve(
        &self,
        module: &'d str,
        key: &str,
        reference: &Spanned<String>,
        sink: &mut Sink,
    ) -> Option<Target<'d>> {
        let file = module_file(module);
        match self.matching(module, &reference.value) {
            [one] => return Some(*one),
            [] => {}
            several => {
                if let Some(one) = self.only_one_acts(key, several) {
                    return Some(one);
                }
                sink.error(
                    &file,
                    "E080",
                    reference.at,
                    format!("`{}` means more than one resource", reference.value),
                )
                .help("give the one that is meant an `id`, or write `type:name`");
                return None;
            }
        }
        let split = reference.value.split_once('/').and_then(|(other, rest)| {
            self.decls.get_key_value(other).map(|(other, decl)| (other.as_str(), decl, rest))
        });
        let Some((other, decl, rest)) = split else {
            self.unknown(module, reference, sink);
            return None;
        };
        match self.matching(other, rest) {
            [one] => Some(*one),
            [] if decl.broken => None,
            [] => {
                let help = near_or_all(rest, self.names(other).iter().map(String::as_str));
                let message = format!("module `{other}` has no resource `{rest}`");
                sink.error(&file, "E080", reference.at, message).help(help);
                None
            }
            several => {
                if let Some(one) = self.only_one_acts(key, several) {
                    return Some(one);
                }
                let message = format!("`{rest}` means more than one resource of module `{other}`");
                sink.error(&file, "E080", reference.at, message).help("give the one that is meant an `id`");
                None
            }
        }
    }

    /// Of several that have a name, the one that does something when it is notified: a package cannot, and
    /// the service of its name can.
    fn only_one_acts(&self, key: &str, several: &[Target<'d>]) -> Option<Target<'d>> {
        let acts = |target: &&Target<'d>| {
            let placed = self.placed(**target);
            let hears = |placed: &Placed| {
                target.handler || hears_notifications(&placed.resource.kind) || !placed.changed.is_empty()
            };
            placed.is_some_and(hears)
        };
        let mut acting = several.iter().filter(acts).filter(|_| key == "notify");
        let one = acting.next().filter(|_| acting.next().is_none()).copied()?;
        self.unmistakable(one).map(|_| one)
    }

    /// The id, or type and name, of a resource, where that means it alone.
    fn unmistakable(&self, target: Target<'d>) -> Option<String> {
        let resource = &self.placed(target)?.resource;
        let name = resource.id.clone().unwrap_or_else(|| resource.label());
        (self.matching(target.module, &name) == [target]).then_some(name)
    }

    fn placed(&self, target: Target<'d>) -> Option<&'d Placed> {
        self.decls.get(target.module).and_then(|decl| member(decl, target.index))
    }

    /// Notes what a reference means whose words mean several resources.
    fn note_meant(&mut self, from: Target<'d>, to: Target<'d>, reference: &Spanned<String>) {
        let written = &reference.value;
        let in_words = match from.module == to.module {
            true => written.as_str(),
            false => written.split_once('/').map_or(written.as_str(), |(_, rest)| rest),
        };
        if self.matching(to.module, in_words).len() < 2 {
            return;
        }
        let Some(meant) = self.unmistakable(to) else { return };
        let meant = if from.module == to.module { meant } else { format!("{}/{meant}", to.module) };
        let (module, index) = (from.module.to_owned(), from.index);
        self.meant.push(MeantTarget { module, index, written: written.clone(), meant });
    }

    fn unknown(&self, module: &str, reference: &Spanned<String>, sink: &mut Sink) {
        if self.decls.get(module).is_some_and(|decl| decl.broken) {
            return;
        }
        let names = self.names(module);
        let help = did_you_mean(&reference.value, names.iter().map(String::as_str))
            .unwrap_or_else(|| "name a resource's id or name, or `module/id`".into());
        let message = format!("nothing is called `{}`", reference.value);
        sink.error(&module_file(module), "E080", reference.at, message).help(help);
    }

    fn matching(&self, module: &str, reference: &str) -> &[Target<'d>] {
        self.names.get(module).and_then(|names| names.get(reference)).map_or(&[], Vec::as_slice)
    }

    fn names(&self, module: &str) -> Vec<String> {
        let Some(decl) = self.decls.get(module) else { return Vec::new() };
        members(decl)
            .map(|(_, placed, _)| placed.resource.id.clone().unwrap_or_else(|| placed.resource.name.clone()))
            .collect()
    }

    /// Takes a link in, unless it cannot be.
    fn accept(&mut self, link: Reference<'d>, reference: &Spanned<String>, sink: &mut Sink) {
        let file = module_file(link.from.module);
        let mut wrong = |message: String, help: &str| {
            sink.error(&file, "E087", link.at, message).help(help);
        };
        if link.from == link.to {
            wrong(format!("`{}` refers to itself", reference.value), "drop it");
            return;
        }
        if link.to.handler && link.key != "notify" {
            let message = format!("`{}` is a handler: nothing can wait for it", reference.value);
            wrong(message, "a handler runs at the end of its module; `notify` it");
            return;
        }
        if link.from.module != link.to.module {
            let needs = matches!(link.key, "depends_on" | "subscribes");
            let (first, second) = (link.from.module, link.to.module);
            if needs && !depends(self.decls, first, second) {
                let message = format!("module `{first}` refers to `{second}` and does not depend on it");
                sink.error(&file, "E088", link.at, message)
                    .help(format!("add `{second}` to the module's depends_on"));
                return;
            }
            if !needs && depends(self.decls, first, second) {
                let message = format!("module `{second}` comes earlier: `{first}` depends on it");
                let help = format!(
                    "let the resource in `{second}` stand in `{first}`, or use a handler of `{first}`"
                );
                sink.error(&file, "E086", link.at, message).help(help);
                return;
            }
        }
        self.all.push(link);
    }

    /// One relation said from both sides.
    fn both_directions(&self, sink: &mut Sink) {
        for (one, other) in [("notify", "subscribes"), ("before", "depends_on")] {
            let declared: BTreeMap<(Target<'_>, Target<'_>), &Reference<'_>> = self
                .all
                .iter()
                .filter(|link| link.key == one)
                .map(|link| ((link.from, link.to), link))
                .collect();
            for link in self.all.iter().filter(|link| link.key == other) {
                if let Some(first) = declared.get(&(link.to, link.from)) {
                    let message = format!("`{one}` there and `{other}` here say the same of one pair");
                    sink.error(&module_file(link.from.module), "E081", link.at, message)
                        .help("keep one of the two")
                        .label_in(&module_file(first.from.module), first.at, format!("`{one}` here"));
                }
            }
        }
    }

    /// Cycles inside a module; those between modules are found as cycles of modules.
    fn cycles_of_resources(&self, sink: &mut Sink) {
        for (module, decl) in self.decls {
            let label = |target: Target<'_>| {
                member(decl, target.index).map(|placed| placed.resource.label()).unwrap_or_default()
            };
            let mut edges = ModuleEdges::new();
            let inside = |link: &&Reference<'_>| link.from.module == module && link.to.module == module;
            for link in self.all.iter().filter(inside).filter(|link| !link.to.handler && !link.from.handler) {
                let (later, earlier) = match link.key {
                    "depends_on" | "subscribes" => (link.from, link.to),
                    _ => (link.to, link.from),
                };
                edges.entry(label(later)).or_default().push(label(earlier));
            }
            for cycle in graph::cycles(&edges) {
                let first =
                    members(decl).find(|(_, placed, _)| cycle.first() == Some(&placed.resource.label()));
                let at = first.map_or(At::default(), |(_, placed, _)| placed.at);
                sink.error(
                    &module_file(module),
                    "E082",
                    at,
                    format!("these wait for each other: {}", ring(&cycle)),
                )
                .help("drop one of the references between them");
            }
        }
    }

    /// `changed` where nothing notifies, `changed("id")` of something that does not.
    fn changed(&self, sink: &mut Sink) {
        for (module, decl) in self.decls {
            for (index, placed, handler) in members(decl) {
                let me = Target { module, index, handler };
                let notifiers: BTreeSet<Target<'_>> = self
                    .all
                    .iter()
                    .filter_map(|link| match link.key {
                        "notify" if link.to == me => Some(link.from),
                        "subscribes" if link.from == me => Some(link.to),
                        _ => None,
                    })
                    .collect();
                for (id, at) in &placed.changed {
                    self.one_changed(module, id.as_deref(), *at, &notifiers, sink);
                }
            }
        }
    }

    fn one_changed(
        &self,
        module: &'d str,
        id: Option<&str>,
        at: At,
        notifiers: &BTreeSet<Target<'_>>,
        sink: &mut Sink,
    ) {
        let file = module_file(module);
        let Some(id) = id else {
            if notifiers.is_empty() {
                sink.error(&file, "E089", at, "nothing notifies this resource, so `changed` is never true")
                    .help("let something `notify` it, or let it subscribe");
            }
            return;
        };
        let reference = Spanned { value: id.to_owned(), at };
        let Some(target) = self.resolve(module, "when", &reference, sink) else { return };
        if !notifiers.contains(&target) {
            sink.error(
                &file,
                "E089",
                at,
                format!("`{id}` does not notify this resource, so it is never asked"),
            )
            .help(format!("add `subscribes: [{id}]`"));
        }
    }
}

/// `a -> b -> a`.
fn ring(cycle: &[String]) -> String {
    let mut names: Vec<&str> = cycle.iter().map(String::as_str).collect();
    names.extend(cycle.first().map(String::as_str));
    names.join(" -> ")
}

/// Whether `module` depends on `other`, at any distance.
fn depends<'d>(decls: &'d Decls, module: &'d str, other: &str) -> bool {
    graph::leads(module, other, |name| {
        decls.get(name).into_iter().flat_map(|decl| decl.depends_on.iter().map(|item| item.value.as_str()))
    })
}

/// `depends_on` of modules, and the order that notifications between modules imply.
fn modules(decls: &Decls, links: &ReferenceCollector<'_>, sink: &mut Sink) {
    let mut edges = ModuleEdges::new();
    for (name, decl) in decls {
        for dependency in &decl.depends_on {
            if decls.contains_key(&dependency.value) {
                edges.entry(name.clone()).or_default().push(dependency.value.clone());
            } else {
                let help = near_or_all(&dependency.value, decls.keys().map(String::as_str));
                let message = format!("there is no module `{}`", dependency.value);
                sink.error(&module_file(name), "E041", dependency.at, message).help(help);
            }
        }
    }
    for link in links.all.iter().filter(|link| link.from.module != link.to.module) {
        let (later, earlier) = match link.key {
            "depends_on" | "subscribes" => (link.from.module, link.to.module),
            _ => (link.to.module, link.from.module),
        };
        edges.entry(later.to_owned()).or_default().push(earlier.to_owned());
    }
    for cycle in graph::cycles(&edges) {
        let Some(first) = cycle.first() else { continue };
        let at =
            decls.get(first).and_then(|decl| decl.depends_on.first()).map(|item| item.at).unwrap_or_default();
        sink.error(
            &module_file(first),
            "E083",
            at,
            format!("these modules wait for each other: {}", ring(&cycle)),
        )
        .help("drop one of the references between them");
    }
}
