//! Two declarations of one thing: alike they merge, different they are a mistake.

use std::collections::BTreeMap;

use catalog::own_paths::normalized;
use catalog::params::is_dynamic;
use catalog::schema::{self, Manages, Short};
use catalog::types::{PathClaim, declared_claims};
use lang::Value;

use super::modules::module_file;
use crate::decl::module::ModuleDecl;
use crate::decl::resource::Placed;
use crate::sink::Sink;
use crate::yaml::At;

/// Two modules that declare one thing differently, so that no node may have both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clash {
    pub(crate) first: String,
    pub(crate) first_at: At,
    pub(crate) second: String,
    pub(crate) second_at: At,
    pub(crate) message: String,
    pub(crate) help: String,
}

/// What a resource is the declaration of: a path whatever its type, else type and name.
fn identity(placed: &Placed) -> Option<String> {
    let resource = &placed.resource;
    if resource.name.is_empty() || is_dynamic(&Value::Str(resource.name.clone())) {
        return None;
    }
    Some(if is_path(placed) { format!("path {}", normalized(&resource.name)) } else { resource.label() })
}

/// What it claims of files, as far as its name is known.
fn claims(placed: &Placed) -> Vec<PathClaim> {
    let resource = &placed.resource;
    let name = Some(resource.name.as_str()).filter(|_| !is_dynamic(&Value::Str(resource.name.clone())));
    declared_claims(&resource.kind, name, &resource.attributes)
}

/// Its identity is its path: it manages one, and is named by it.
fn is_path(placed: &Placed) -> bool {
    let kind = schema::find(&placed.resource.kind);
    kind.is_some_and(|kind| kind.manages == Manages::Path && kind.short == Short::Path)
}

/// Its identity is a thing of the host, whichever module declares it.
fn is_thing(placed: &Placed) -> bool {
    let manages = schema::find(&placed.resource.kind).map(|kind| kind.manages);
    is_path(placed) || manages == Some(Manages::State)
}

/// A declaration and the module in which it stands.
#[derive(Clone, Copy)]
struct PlacedIn<'p> {
    module: &'p str,
    placed: &'p Placed,
}

/// A declaration that claims a part of a file.
struct PartOfFile<'p> {
    by: PlacedIn<'p>,
    path: String,
    what: &'static str,
}

/// Which resources claim which path, whole or a part of it.
#[derive(Default)]
struct Claimed<'p> {
    whole: BTreeMap<String, Vec<PlacedIn<'p>>>,
    /// Those that have all that is below a path, by that.
    below: Vec<(String, PlacedIn<'p>)>,
    parts: Vec<PartOfFile<'p>>,
}

/// Two resources that claim one path, and in which words that is told.
struct ClaimClash<'p> {
    first: PlacedIn<'p>,
    second: PlacedIn<'p>,
    message: String,
    help: &'static str,
}

impl<'p> Claimed<'p> {
    fn add(&mut self, module: &'p str, placed: &'p Placed) {
        let by = PlacedIn { module, placed };
        for claim in claims(placed) {
            match claim {
                PathClaim::Whole(path) => self.whole.entry(path).or_default().push(by),
                PathClaim::Below(path) => {
                    self.whole.entry(path.clone()).or_default().push(by);
                    self.below.push((path, by));
                }
                PathClaim::Part { path, what } => self.parts.push(PartOfFile { by, path, what }),
            }
        }
    }

    /// What lies below a path that another one replaces as a whole.
    fn below_others(&self) -> Vec<ClaimClash<'p>> {
        let mut found = Vec::new();
        for (above, first) in &self.below {
            let of_whole = self.whole.iter().flat_map(|(path, all)| all.iter().map(move |by| (path, by)));
            let of_parts = self.parts.iter().map(|part| (&part.path, &part.by));
            let is_below = |(path, by): &(&String, &PlacedIn<'p>)| {
                PathClaim::Whole((*path).clone()).lies_below(above)
                    && by.placed.resource.label() != first.placed.resource.label()
            };
            for (path, second) in of_whole.chain(of_parts).filter(is_below) {
                let (a, b) = (first.placed.resource.label(), second.placed.resource.label());
                let message = format!("`{b}` writes `{path}`, and `{a}` replaces all of `{above}`");
                let help = "put it into the archive, or somewhere else";
                found.push(ClaimClash { first: *first, second: *second, message, help });
            }
        }
        found
    }

    /// What clashes, but for two whose identity is the path.
    fn clashes(&self) -> Vec<ClaimClash<'p>> {
        let mut found = self.below_others();
        for (path, all) in &self.whole {
            for (at, second) in all.iter().enumerate() {
                let first = all[..at].iter().find(|first| {
                    let both = is_path(first.placed) && is_path(second.placed);
                    !both && first.placed.resource.label() != second.placed.resource.label()
                });
                if let Some(first) = first {
                    let (a, b) = (first.placed.resource.label(), second.placed.resource.label());
                    let message = format!("`{b}` writes `{path}`, which `{a}` declares already");
                    let help = "keep one of them, or give one another name";
                    found.push(ClaimClash { first: *first, second: *second, message, help });
                }
            }
        }
        for PartOfFile { by, path, what } in &self.parts {
            for whole in self.whole.get(path).into_iter().flatten().take(1) {
                let (message, help) = match whole.placed.resource.kind.as_str() {
                    kind @ ("directory" | "archive" | "image" | "symlink") => (
                        format!("{what} in `{path}`, which is declared as a `{kind}`"),
                        "a part can only be of a file: keep one of them",
                    ),
                    _ if whole.module == by.module => (
                        format!("{what} in `{path}`, which another resource writes whole"),
                        "put it into that file's content",
                    ),
                    _ => (
                        format!("{what} in `{path}`, which module `{}` writes whole", whole.module),
                        "put it into that file's content",
                    ),
                };
                found.push(ClaimClash { first: *whole, second: *by, message, help });
            }
        }
        found
    }
}

/// Checks one module and drops the second of two declarations that are alike.
pub(crate) fn within(name: &str, decl: &mut ModuleDecl, sink: &mut Sink) {
    let file = module_file(name);
    ids(&file, decl, sink);
    let mut kept: Vec<Placed> = Vec::with_capacity(decl.resources.len());
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for placed in std::mem::take(&mut decl.resources) {
        let Some(first) = identity(&placed).and_then(|identity| known.insert(identity, kept.len())) else {
            kept.push(placed);
            continue;
        };
        let Some(other) = kept.get(first) else { continue };
        if let Some(key) = identity(&placed) {
            known.insert(key, first);
        }
        if other.resource != placed.resource {
            sink.error(&file, "E084", placed.at, different(other, &placed))
                .help("keep one declaration, or make the two alike")
                .label(other.at, "first declared here");
        }
    }
    claimed_twice(&file, &kept, sink);
    decl.resources = kept;
}

fn different(first: &Placed, second: &Placed) -> String {
    let (a, b) = (first.resource.label(), second.resource.label());
    if a == b {
        format!("`{b}` is declared twice, differently")
    } else {
        format!("`{b}` is declared already, as `{a}`")
    }
}

/// Resources of one module that write one file, in their order.
fn claimed_twice(file: &str, resources: &[Placed], sink: &mut Sink) {
    let mut claimed = Claimed::default();
    resources.iter().for_each(|placed| claimed.add("", placed));
    let mut clashes = claimed.clashes();
    clashes.sort_by_key(|clash| clash.second.placed.at);
    for ClaimClash { first, second, message, help } in clashes {
        sink.error(file, "E084", second.placed.at, message)
            .help(help)
            .label(first.placed.at, "declared here");
    }
}

fn ids(file: &str, decl: &ModuleDecl, sink: &mut Sink) {
    let mut seen: BTreeMap<&str, At> = BTreeMap::new();
    for placed in decl.resources.iter().chain(&decl.handlers) {
        let Some(id) = placed.resource.id.as_deref() else { continue };
        if let Some(first) = seen.insert(id, placed.id_at) {
            sink.error(file, "E085", placed.id_at, format!("the id `{id}` stands here twice"))
                .help("an id is unique in its module")
                .label(first, "first here");
        }
    }
    let mut labels: BTreeMap<String, At> = BTreeMap::new();
    for handler in &decl.handlers {
        if let Some(first) = labels.insert(handler.resource.label(), handler.at) {
            sink.error(
                file,
                "E084",
                handler.at,
                format!("the handler `{}` is declared twice", handler.resource.label()),
            )
            .help("keep one, or give each a `name`")
            .label(first, "first here");
        }
    }
}

/// Pairs of modules that declare one thing differently.
pub(crate) fn clashes(decls: &BTreeMap<String, ModuleDecl>) -> Vec<Clash> {
    let mut known: BTreeMap<String, Vec<PlacedIn<'_>>> = BTreeMap::new();
    let mut claimed = Claimed::default();
    for (module, decl) in decls {
        for placed in &decl.resources {
            if let (true, Some(identity)) = (is_thing(placed), identity(placed)) {
                known.entry(identity).or_default().push(PlacedIn { module, placed });
            }
            claimed.add(module, placed);
        }
    }
    let mut found = Vec::new();
    for declared in known.values() {
        for (i, first) in declared.iter().enumerate() {
            for second in declared.iter().skip(i + 1).filter(|one| !alike(first.placed, one.placed)) {
                let (label, module) = (second.placed.resource.label(), first.module);
                let message = format!("`{label}` is declared in module `{module}` too, differently");
                let help = "keep one declaration, or keep the modules apart";
                found.push(clash(*first, *second, message, help));
            }
        }
    }
    let apart = claimed.clashes().into_iter().filter(|clash| clash.first.module != clash.second.module);
    found.extend(apart.map(|of| clash(of.first, of.second, of.message, of.help)));
    found
}

fn clash(first: PlacedIn<'_>, second: PlacedIn<'_>, message: String, help: &str) -> Clash {
    Clash {
        first: first.module.to_owned(),
        first_at: first.placed.at,
        second: second.module.to_owned(),
        second_at: second.placed.at,
        message,
        help: help.to_owned(),
    }
}

/// The same but for what is each module's own: ids, order and notifications.
fn alike(a: &Placed, b: &Placed) -> bool {
    let (a, b) = (&a.resource, &b.resource);
    let own_files = ["source", "template"].iter().any(|key| a.attributes.contains_key(*key));
    a.kind == b.kind && a.name == b.name && a.attributes == b.attributes && a.when == b.when && !own_files
}
