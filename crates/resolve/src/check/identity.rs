//! Two declarations of one thing: alike they merge, different they are a mistake.

use std::collections::BTreeMap;

use catalog::params::is_dynamic;
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
    match resource.kind.as_str() {
        "file" | "download" | "directory" | "symlink" => Some(format!("path {}", resource.name)),
        _ => Some(resource.label()),
    }
}

/// The path of the file of which a resource manages a part, and what the part is called, if the path
/// is known.
fn part_of(placed: &Placed) -> Option<(&str, &'static str)> {
    let part = match placed.resource.kind.as_str() {
        "line" => "a line",
        "block" => "a block",
        "ini" => "a key",
        "json" => "a value",
        _ => return None,
    };
    let path = placed.resource.attributes.get("path").filter(|path| !is_dynamic(path))?;
    Some((path.as_str()?, part))
}

/// The file is written whole, so that no other resource may write in it.
fn whole(placed: &Placed) -> bool {
    let attributes = &placed.resource.attributes;
    placed.resource.kind == "file"
        && ["content", "source", "template"].iter().any(|key| attributes.contains_key(*key))
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
    parts_of_whole_files(&file, &kept, sink);
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

fn parts_of_whole_files(file: &str, resources: &[Placed], sink: &mut Sink) {
    for line in resources {
        let Some((path, part)) = part_of(line) else { continue };
        if let Some(whole) = resources.iter().find(|other| whole(other) && other.resource.name == path) {
            sink.error(
                file,
                "E084",
                line.at,
                format!("{part} in `{path}`, which another resource writes whole"),
            )
            .help("put it into that file's content")
            .label(whole.at, "written whole here");
        }
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
    let mut known: BTreeMap<String, Vec<(&str, &Placed)>> = BTreeMap::new();
    let mut parts: Vec<(&str, &Placed, (&str, &str))> = Vec::new();
    for (module, decl) in decls {
        for placed in &decl.resources {
            let path_like =
                matches!(placed.resource.kind.as_str(), "file" | "download" | "directory" | "symlink");
            if let (true, Some(identity)) = (path_like, identity(placed)) {
                known.entry(identity).or_default().push((module, placed));
            }
            parts.extend(part_of(placed).map(|part| (module.as_str(), placed, part)));
        }
    }
    let mut found = Vec::new();
    for declared in known.values() {
        for (i, (first, a)) in declared.iter().enumerate() {
            for (second, b) in declared.iter().skip(i + 1).filter(|(_, b)| !alike(a, b)) {
                let message =
                    format!("`{}` is declared in module `{first}` too, differently", b.resource.label());
                let help = "keep one declaration, or keep the modules apart";
                found.push(clash(first, a, second, b, message, help));
            }
        }
    }
    for (module, placed, (path, part)) in parts {
        for (other, whole) in
            known.get(&format!("path {path}")).into_iter().flatten().filter(|(_, p)| whole(p))
        {
            if *other != module {
                let message = format!("{part} in `{path}`, which module `{other}` writes whole");
                let help = "put it into that file's content";
                found.push(clash(other, whole, module, placed, message, help));
            }
        }
    }
    found
}

fn clash(first: &str, a: &Placed, second: &str, b: &Placed, message: String, help: &str) -> Clash {
    Clash {
        first: first.to_owned(),
        first_at: a.at,
        second: second.to_owned(),
        second_at: b.at,
        message,
        help: help.to_owned(),
    }
}

/// The same but for what is each module's own: ids, order and notifications.
fn alike(a: &Placed, b: &Placed) -> bool {
    let (a, b) = (&a.resource, &b.resource);
    let own_files = ["source", "template"].iter().any(|key| a.attributes.contains_key(*key));
    a.kind == b.kind && a.attributes == b.attributes && a.when == b.when && !own_files
}
