//! [`Resolver`]: checks a fleet repo and keeps what it learned, so that a change costs what
//! it touches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lang::Diagnostics;

use crate::by_name::ByName;
use crate::check::context::Context;
use crate::check::modules::Modules;
use crate::classify::{self, Index, Loc, entries};
use crate::decl::nodes::Host;
use crate::parse::{self, Content, Parsed};
use crate::sink::Sink;
use crate::specialize::{self, Memo, NodeSpec, PatternSpec, ReadEntry, Specialized};
use crate::tree::{self, FileKind, MAX_FILES, Tree};
use crate::yaml::At;

/// A fleet repo that is right in every part.
#[derive(Clone, Debug)]
pub struct Fleet {
    name: String,
    specialized: Specialized,
}

impl Fleet {
    /// The fleet's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What each node gets.
    pub fn specialize(&self) -> &Specialized {
        &self.specialized
    }
}

/// What an update changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Exact hostnames that came, went, or get something else, sorted.
    pub hostnames: Vec<Arc<str>>,
    /// Patterns, or what their nodes get.
    pub patterns: bool,
    /// Modules or their files.
    pub modules: bool,
    /// Channels' settings.
    pub channels: bool,
}

impl Changed {
    /// Nothing that a release would carry.
    pub fn is_empty(&self) -> bool {
        self.hostnames.is_empty() && !self.patterns && !self.modules && !self.channels
    }
}

type Files = BTreeMap<String, Arc<Parsed>>;
/// Paths that were given since the last good state, with what they held then.
type Dirty = BTreeMap<String, Option<Arc<Parsed>>>;
type Specs = ByName<Arc<NodeSpec>>;
type Hosts = ByName<Loc>;

/// The last state that was right in every part.
struct Good {
    fleet: Arc<Fleet>,
    context: Arc<Context>,
    index: Index,
    /// For each host file, the entry that classifies its node.
    hosts: Hosts,
}

/// Checks a fleet repo, whole at first and then change by change.
///
/// A file is read again only when its bytes change; a node is specialized again only when
/// its entry, its host file or something that entries refer to changed. Broken changes are
/// kept: the next update is relative to them, while [`Resolver::fleet`] stays the last
/// state that was right.
#[derive(Default)]
pub struct Resolver {
    files: Files,
    modules: Arc<Modules>,
    labels: BTreeMap<String, usize>,
    dirty: Dirty,
    good: Option<Good>,
}

/// Checks a whole tree (CFG-1).
///
/// # Errors
/// Every mistake in it.
pub fn check(tree: &Tree) -> Result<Fleet, Diagnostics> {
    let changes = tree.files.iter().map(|(path, bytes)| (path.clone(), Some(bytes.clone()))).collect();
    let (fleet, _) = Resolver::default().update(changes)?;
    Ok(Arc::unwrap_or_clone(fleet))
}

impl Resolver {
    /// A resolver that has seen nothing.
    pub fn new() -> Resolver {
        Resolver::default()
    }

    /// The last fleet that was right in every part.
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.good.as_ref().map(|good| &good.fleet)
    }

    /// The files as last seen, right or wrong; for rendering diagnostics.
    pub fn tree(&self) -> Tree {
        Tree { files: self.files.iter().map(|(path, file)| (path.clone(), file.bytes.clone())).collect() }
    }

    /// Takes changed files in (`None` for one that is gone) and checks.
    ///
    /// # Errors
    /// Every mistake; the last good fleet stays what it was.
    pub fn update(
        &mut self,
        changes: BTreeMap<String, Option<Arc<[u8]>>>,
    ) -> Result<(Arc<Fleet>, Changed), Diagnostics> {
        let modules_touched = self.take_in(changes);
        let mut sink = Sink::default();
        if self.files.len() > MAX_FILES {
            sink.general("E099", format!("more than {MAX_FILES} files"), "join host files into nodes files");
            return Err(sink.finish());
        }
        let known = self.good.is_some();
        for file in self.dirty.keys().filter_map(|path| self.files.get(path)) {
            sink.take(&file.found);
        }
        if modules_touched || !known {
            self.modules = Arc::new(Modules::build(&self.files, &mut sink));
        }
        let context = self.context(&mut sink);
        let next = Pass::new(&self.files, &context, &mut sink).run(self.good.as_ref(), &self.dirty);
        if !sink.is_empty() {
            return Err(sink.finish());
        }
        Ok(self.commit(context, next))
    }

    /// Reads what changed; says whether a module did, now or since the last good state.
    fn take_in(&mut self, changes: BTreeMap<String, Option<Arc<[u8]>>>) -> bool {
        for (path, bytes) in changes {
            let old = self.files.get(&path).cloned();
            let same = match (&old, &bytes) {
                (Some(old), Some(new)) => Arc::ptr_eq(&old.bytes, new) || old.bytes == *new,
                (None, None) => true,
                _ => false,
            };
            if same {
                continue;
            }
            if let Some(old) = &old {
                self.count_labels(old, false);
                self.files.remove(&path);
            }
            if let Some(bytes) = bytes {
                let parsed = Arc::new(parse::parse(&path, &bytes));
                self.count_labels(&parsed, true);
                self.files.insert(path.clone(), parsed);
            }
            self.dirty.entry(path).or_insert(old);
        }
        self.dirty.keys().any(|path| path.starts_with("modules/"))
    }

    fn count_labels(&mut self, file: &Parsed, added: bool) {
        for label in file.labels() {
            let count = self.labels.entry(label.to_owned()).or_default();
            *count = if added { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.labels.remove(label);
            }
        }
    }

    /// The context of the last good state if nothing in it changed.
    fn context(&self, sink: &mut Sink) -> Arc<Context> {
        let refers = |path: &String| !matches!(tree::kind(path), FileKind::Nodes | FileKind::Host(_));
        if let Some(good) = &self.good {
            let same_labels = good.context.labels.iter().eq(self.labels.keys());
            let uses = |path: &String| self.files.get(path).is_some_and(|file| !file.uses.is_empty());
            if same_labels && !self.dirty.keys().any(|path| refers(path) || uses(path)) {
                return good.context.clone();
            }
        }
        let labels = self.labels.keys().cloned().collect();
        let context = Context::build(&self.files, &self.modules, labels, sink);
        match &self.good {
            Some(good) if *good.context == context => good.context.clone(),
            _ => Arc::new(context),
        }
    }

    fn commit(&mut self, context: Arc<Context>, next: Next) -> (Arc<Fleet>, Changed) {
        let specialized = Specialized {
            channels: Arc::new(context.fleet.channels.clone()),
            exact: next.exact,
            patterns: next.patterns,
            modules: self.modules.shared.clone(),
            blobs: self.modules.blobs.clone(),
        };
        let changed = match &self.good {
            Some(good) => changed(&good.fleet.specialized, &specialized, next.touched),
            None => Changed {
                hostnames: specialized.exact.keys().cloned().collect(),
                patterns: true,
                modules: true,
                channels: true,
            },
        };
        let fleet = Arc::new(Fleet { name: context.fleet.name.clone(), specialized });
        self.good = Some(Good { fleet: fleet.clone(), context, index: next.index, hosts: next.hosts });
        self.dirty.clear();
        (fleet, changed)
    }
}

fn changed(old: &Specialized, new: &Specialized, touched: Option<BTreeSet<Arc<str>>>) -> Changed {
    let differs = |name: &Arc<str>| old.exact.get(name) != new.exact.get(name);
    let hostnames = match touched {
        Some(touched) => touched.into_iter().filter(differs).collect(),
        None => {
            let all: BTreeSet<&Arc<str>> = old.exact.keys().chain(new.exact.keys()).collect();
            all.into_iter().filter(|name| differs(name)).cloned().collect()
        }
    };
    Changed {
        hostnames,
        patterns: !Arc::ptr_eq(&old.patterns, &new.patterns) && old.patterns != new.patterns,
        modules: old.modules != new.modules,
        channels: old.channels != new.channels,
    }
}

/// What a pass over the nodes gave; of use only if the sink stayed empty.
struct Next {
    index: Index,
    hosts: Hosts,
    exact: Specs,
    patterns: Arc<Vec<PatternSpec>>,
    /// The hostnames that were looked at; `None` for all.
    touched: Option<BTreeSet<Arc<str>>>,
}

/// One pass over all nodes, or over those that a change touches.
struct Pass<'p> {
    files: &'p Files,
    context: &'p Context,
    shared: &'p Arc<Context>,
    sink: &'p mut Sink,
    memo: Memo,
    /// Entries that several nodes come from, read once.
    read: BTreeMap<(Arc<str>, usize), Arc<ReadEntry<'p>>>,
}

impl<'p> Pass<'p> {
    fn new(files: &'p Files, context: &'p Arc<Context>, sink: &'p mut Sink) -> Pass<'p> {
        Pass { files, context, shared: context, sink, memo: Memo::default(), read: BTreeMap::new() }
    }

    fn run(mut self, good: Option<&Good>, dirty: &Dirty) -> Next {
        let rules = classify::rules(self.files, self.sink);
        match good.filter(|good| Arc::ptr_eq(&good.context, self.shared) && *good.index.rules == rules) {
            Some(good) => self.part(good, dirty, Arc::new(rules)),
            None => self.whole(rules),
        }
    }

    fn whole(&mut self, rules: Vec<classify::Rule>) -> Next {
        let mut index = Index::new(Arc::new(rules));
        let paths: Vec<&str> = classify::nodes_files(self.files).map(|(path, _)| path.as_str()).collect();
        for path in &paths {
            index.add(path, self.files, self.sink);
        }
        let mut exact = Specs::default();
        let mut patterns = BTreeMap::new();
        for path in paths {
            self.nodes_file(path, &index, &mut exact, &mut patterns);
        }
        let mut hosts = Hosts::default();
        for path in self.files.keys() {
            self.host_file(path, &index, &mut hosts, &mut exact);
        }
        let patterns = Arc::new(patterns.into_values().collect());
        Next { index, hosts, exact, patterns, touched: None }
    }

    /// Only what the dirty files touch; patterns and context are those of the good state.
    fn part(&mut self, good: &Good, dirty: &Dirty, rules: Arc<Vec<classify::Rule>>) -> Next {
        let nodes: Vec<&str> = dirty.keys().map(String::as_str).filter(|path| tree::kind(path) == FileKind::Nodes).collect();
        let mut touched: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut index = good.index.clone();
        let (mut exact, mut hosts) = (good.fleet.specialized.exact.clone(), good.hosts.clone());
        let mut patterns = good.fleet.specialized.patterns.clone();
        index.rules = rules;
        for path in &nodes {
            let (old, new) = (dirty.get(*path).and_then(Option::as_ref), self.files.get(*path));
            for name in classify::exact_names(old) {
                index.exact.remove(name);
                touched.insert(name.into());
            }
            touched.extend(classify::exact_names(new).map(Arc::from));
        }
        if nodes.iter().any(|path| self.files.get(*path).is_some_and(|file| file.has_patterns)) {
            let stale = |loc: &Loc| nodes.binary_search(&&*loc.file).is_ok();
            touched.extend(hosts.iter().filter(|(_, loc)| stale(loc)).map(|(name, _)| name.clone()));
        }
        for path in &nodes {
            index.add(path, self.files, self.sink);
        }
        for name in &touched {
            exact.remove(name);
        }
        let mut found = BTreeMap::new();
        for path in &nodes {
            self.nodes_file(path, &index, &mut exact, &mut found);
        }
        if !found.is_empty() {
            let all = Arc::make_mut(&mut patterns);
            for (place, spec) in all.iter_mut().zip(index.rules.iter()).filter_map(|(spec, rule)| Some((spec, found.remove(&rule.loc)?))) {
                *place = spec;
            }
        }
        for path in dirty.keys() {
            if let FileKind::Host(name) = tree::kind(path) {
                touched.insert(name.into());
            }
        }
        for name in &touched {
            self.touched_host(name, &index, &mut hosts, &mut exact);
        }
        Next { index, hosts, exact, patterns, touched: Some(touched) }
    }

    /// A host whose file or entry changed.
    fn touched_host(&mut self, name: &Arc<str>, index: &Index, hosts: &mut Hosts, specs: &mut Specs) {
        let path = format!("hosts/{name}.yaml");
        let had = hosts.remove(name).is_some();
        if self.files.contains_key(&path) {
            self.host_file_at(&path, index, hosts, specs);
        } else if had {
            // The host file is gone: the node is again what its entry says, or its pattern.
            match index.exact.get(name) {
                Some(loc) => {
                    let loc = loc.clone();
                    self.exact_node(&loc, name, None, specs);
                }
                None => {
                    specs.remove(name);
                }
            }
        }
    }

    /// Every entry of a nodes file.
    fn nodes_file(&mut self, path: &str, index: &Index, exact: &mut Specs, patterns: &mut BTreeMap<Loc, PatternSpec>) {
        let file: Arc<str> = path.into();
        for (number, decl) in entries(self.files.get(path)).iter().enumerate() {
            let entry = specialize::read_entry(self.context, &file, decl, self.sink);
            for (item, found) in decl.matches.iter().enumerate() {
                let loc = Loc { file: file.clone(), entry: number, item };
                let name = found.pattern.as_str();
                let whom = if found.pattern.is_exact() { name.to_owned() } else { format!("the nodes of `{name}`") };
                if found.pattern.is_exact() && index.exact.get(name) != Some(&loc) {
                    continue;
                }
                let spec = specialize::node(self.context, &mut self.memo, &entry, None, &whom, found.at, self.sink);
                let Some(spec) = spec.map(Arc::new) else { continue };
                if found.pattern.is_exact() {
                    exact.insert(name.into(), spec);
                } else if let Some(rule) = index.rules.iter().find(|rule| rule.loc == loc) {
                    let (pattern, except) = (rule.pattern.clone(), rule.except.clone());
                    patterns.insert(loc, PatternSpec { pattern, except, spec });
                }
            }
        }
    }

    fn host_file(&mut self, path: &str, index: &Index, hosts: &mut Hosts, exact: &mut Specs) {
        if matches!(tree::kind(path), FileKind::Host(_)) {
            self.host_file_at(path, index, hosts, exact);
        }
    }

    fn host_file_at(&mut self, path: &str, index: &Index, hosts: &mut Hosts, exact: &mut Specs) {
        let files = self.files;
        let (FileKind::Host(name), Some(Content::Host(host))) = (tree::kind(path), files.get(path).map(|f| &f.content))
        else {
            return;
        };
        if tree::host_problem(name).is_some() {
            return;
        }
        let Some(loc) = index.find(name).cloned() else {
            let at = At { line: 1, column: 1, len: 1 };
            let names = index.exact.keys().map(|name| &**name);
            let help = match lang::nearest(name, names) {
                Some(near) => format!("did you mean hosts/{near}.yaml?"),
                None => "add it to `match` of an entry, or delete the file".into(),
            };
            self.sink.error(path, "E033", at, format!("no entry matches `{name}`, so its host file says nothing")).help(help);
            return;
        };
        let name: Arc<str> = name.into();
        hosts.insert(name.clone(), loc.clone());
        self.exact_node(&loc, &name, Some((path, host)), exact);
    }

    /// One node by its name: its entry, with its host file on top.
    fn exact_node(&mut self, loc: &Loc, name: &Arc<str>, host: Option<(&str, &'p Host)>, exact: &mut Specs) {
        let Some(entry) = self.entry(loc) else { return };
        let at = entry.decl.matches.get(loc.item).map(|item| item.at).unwrap_or_default();
        let host = host.map(|(path, host)| specialize::read_host(self.context, &path.into(), host, self.sink));
        let spec = specialize::node(self.context, &mut self.memo, &entry, host.as_ref(), name, at, self.sink);
        match spec {
            Some(spec) => {
                exact.insert(name.clone(), Arc::new(spec));
            }
            None => {
                exact.remove(name);
            }
        }
    }

    fn entry(&mut self, loc: &Loc) -> Option<Arc<ReadEntry<'p>>> {
        let key = (loc.file.clone(), loc.entry);
        if let Some(known) = self.read.get(&key) {
            return Some(known.clone());
        }
        let files = self.files;
        let decl = entries(files.get(&*loc.file)).get(loc.entry)?;
        let read = Arc::new(specialize::read_entry(self.context, &loc.file, decl, self.sink));
        self.read.insert(key, read.clone());
        Some(read)
    }
}
