//! Reading one file on its own; the result lives as long as its bytes stay the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use lang::template::MAX_TEMPLATE;
use model::Digest;

use crate::decl::admission::{self, DeclaredRevocation, DeclaredToken};
use crate::decl::fleet::{self, FleetDecl};
use crate::decl::groups::{self, Group};
use crate::decl::layers::{self, Environment, RoleFile};
use crate::decl::module::{self, ModuleDecl};
use crate::decl::nodes::{self, HostFile, NodesEntry};
use crate::decl::rollouts::{self, StagedDecl};
use crate::decl::secrets::{self, RecipientDecls};
use crate::decl::template::{self, Body};
use crate::exprs::Uses;
use crate::shape::Reading;
use crate::sink::FileSink;
use crate::tree::{self, FileKind, MAX_SHIPPED, RepoFile};
use crate::yaml::{self, At, YamlKind, YamlNode};

/// A file and what reading it gave.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) file: RepoFile,
    pub(crate) found: FileSink,
    pub(crate) uses: Uses,
    pub(crate) content: FileDecl,
    /// Some entry matches by a pattern.
    pub(crate) has_patterns: bool,
    /// Some entry, or the host file, declares a node's key.
    pub(crate) has_keys: bool,
}

/// The files of a repo, by path.
pub(crate) type Files = BTreeMap<String, Arc<Parsed>>;

/// What a file declares.
#[derive(Debug)]
pub(crate) enum FileDecl {
    Fleet(Box<FleetDecl>),
    Nodes(Vec<NodesEntry>),
    Groups(Vec<Group>),
    Recipients(RecipientDecls),
    Rollouts(Box<StagedDecl>),
    Host(Box<HostFile>),
    Role(Box<RoleFile>),
    Tokens(Vec<DeclaredToken>),
    Revocations(Vec<DeclaredRevocation>),
    Environments(BTreeMap<String, (Environment, At)>),
    Environment(Box<Environment>),
    Module(Box<ModuleDecl>),
    Template(Option<Box<Body>>),
    Shipped(Digest),
    Other,
}

impl Parsed {
    /// The label names that the file's entries declare.
    pub(crate) fn labels(&self) -> Vec<&str> {
        let facts: Vec<&nodes::Facts> = match &self.content {
            FileDecl::Nodes(entries) => entries.iter().map(|entry| &entry.facts).collect(),
            FileDecl::Host(host) => vec![&host.facts],
            _ => Vec::new(),
        };
        facts.iter().flat_map(|facts| facts.labels.iter().map(|(name, _)| name.as_str())).collect()
    }
}

/// Reads a file by what its path is for.
pub(crate) fn parse(path: &str, file: RepoFile) -> Parsed {
    let mut found = FileSink::new(path);
    let (mut content, uses) = content(path, &file, &mut found);
    if let FileDecl::Module(module) = &mut content {
        module.broken = found.hides();
    }
    let has_pattern = |entry: &NodesEntry| entry.matches.iter().any(|item| !item.pattern.is_exact());
    let has_patterns = matches!(&content, FileDecl::Nodes(entries) if entries.iter().any(has_pattern));
    let has_keys = match &content {
        FileDecl::Nodes(entries) => entries.iter().any(|entry| entry.facts.key.is_some()),
        FileDecl::Host(host) => host.facts.key.is_some(),
        _ => false,
    };
    Parsed { file, found, uses, content, has_patterns, has_keys }
}

fn content(path: &str, bytes: &[u8], sink: &mut FileSink) -> (FileDecl, Uses) {
    let none = Uses::default;
    match tree::kind(path) {
        FileKind::Other => (FileDecl::Other, none()),
        FileKind::Misplaced { message, help } => {
            sink.whole_file("E021", message).help(help);
            (FileDecl::Other, none())
        }
        FileKind::Shipped { .. } if bytes.len() > MAX_SHIPPED => {
            sink.whole_file("E003", format!("a file of a module has at most {} MiB", MAX_SHIPPED >> 20));
            (FileDecl::Other, none())
        }
        FileKind::Shipped { .. } => (FileDecl::Shipped(Digest::of(bytes)), none()),
        FileKind::Template { name, .. } => template(name, bytes, sink),
        kind => yaml_content(&kind, bytes, sink),
    }
}

fn template(name: &str, bytes: &[u8], sink: &mut FileSink) -> (FileDecl, Uses) {
    if bytes.len() > MAX_TEMPLATE {
        sink.whole_file("E003", format!("a template has at most {} KiB", MAX_TEMPLATE >> 10))
            .help("ship what need not be rendered as a file (`source:`)");
        return (FileDecl::Template(None), Uses::default());
    }
    let Some(source) = yaml::text(bytes, sink) else { return (FileDecl::Template(None), Uses::default()) };
    let mut reading = Reading::new(source, sink);
    let body = template::read(&mut reading, name).map(Box::new);
    (FileDecl::Template(body), reading.uses)
}

fn yaml_content(kind: &FileKind<'_>, bytes: &[u8], sink: &mut FileSink) -> (FileDecl, Uses) {
    name_of_file(kind, sink);
    let root = root(bytes, sink);
    let source = std::str::from_utf8(bytes).unwrap_or_default();
    let mut reading = Reading::new(source.strip_prefix('\u{feff}').unwrap_or(source), sink);
    let content = match kind {
        FileKind::Fleet => FileDecl::Fleet(Box::new(fleet::read(&mut reading, &root))),
        FileKind::Nodes => FileDecl::Nodes(nodes::read(&mut reading, &root)),
        FileKind::Recipients => FileDecl::Recipients(secrets::read_recipients(&mut reading, &root)),
        FileKind::Rollouts => FileDecl::Rollouts(Box::new(rollouts::read_file(&mut reading, &root))),
        FileKind::Groups => FileDecl::Groups(groups::read(&mut reading, &root)),
        FileKind::Host(_) => FileDecl::Host(Box::new(nodes::read_host(&mut reading, &root))),
        FileKind::Role(_) => FileDecl::Role(Box::new(layers::read_role(&mut reading, &root))),
        FileKind::Tokens => FileDecl::Tokens(admission::read_tokens(&mut reading, &root)),
        FileKind::Revocations => FileDecl::Revocations(admission::read_revocations(&mut reading, &root)),
        FileKind::Environments => FileDecl::Environments(layers::read_environments(&mut reading, &root)),
        FileKind::Environment(_) => {
            FileDecl::Environment(Box::new(layers::read_environment(&mut reading, &root)))
        }
        FileKind::Module(_) => FileDecl::Module(Box::new(module::read(&mut reading, &root))),
        FileKind::Template { .. }
        | FileKind::Shipped { .. }
        | FileKind::Other
        | FileKind::Misplaced { .. } => FileDecl::Other,
    };
    let uses = std::mem::take(&mut reading.uses);
    (content, uses)
}

/// The document's root: an empty map for an empty file, [`YamlKind::Bad`] for an unreadable one.
fn root(bytes: &[u8], sink: &mut FileSink) -> YamlNode {
    let at = At { line: 1, column: 1, len: 1 };
    let before = sink.count();
    match yaml::read(bytes, sink) {
        Some(root) => root,
        None if sink.count() == before => YamlNode { at, kind: YamlKind::Map(Vec::new()) },
        None => YamlNode { at, kind: YamlKind::Bad },
    }
}

fn name_of_file(kind: &FileKind<'_>, sink: &mut FileSink) {
    let (name, what) = match kind {
        FileKind::Role(name) => (*name, "a role"),
        FileKind::Environment(name) => (*name, "an environment"),
        FileKind::Module(name) => (*name, "a module"),
        FileKind::Host(name) => {
            if let Some(message) = tree::host_problem(name) {
                sink.whole_file("E034", message).help("a host file is called hosts/HOSTNAME.yaml");
            }
            return;
        }
        _ => return,
    };
    let at = At { line: 1, column: 1, len: 1 };
    Reading::new("", sink).name(name, at, what);
}
