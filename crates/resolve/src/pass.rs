//! One pass over the nodes of a fleet: all of them, or those that a change touches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lang::Pattern;

use crate::check::context::Context;
use crate::classify::{self, Index, Loc, MAX_PATTERNS, entries};
use crate::decl::nodes::HostFile;
use crate::judge::{FleetJudge, Unevaluated};
use crate::parse::{FileDecl, Files, Parsed};
use crate::resolver::Fleet;
use crate::sink::Sink;
use crate::specialize::{
    self, ByName, Holding, Memo, NodeSpec, PatternShare, PatternSpec, ReadEntry, SpecializedFor,
};
use crate::tree::{self, FileKind};
use crate::yaml::At;

/// Paths that were given since the last good state, with what they held then.
pub(crate) type Dirty = BTreeMap<String, Option<Arc<Parsed>>>;
pub(crate) type Specs = ByName<Arc<NodeSpec>>;
pub(crate) type Hosts = ByName<Loc>;
/// For each rule, its nodes as grants distinguish them.
pub(crate) type Parts = Arc<Vec<Vec<PatternShare>>>;

/// The last state that was right in every part.
pub(crate) struct Good {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) context: Arc<Context>,
    pub(crate) index: Index,
    pub(crate) parts: Parts,
    /// For each host file, the entry that classifies its node.
    pub(crate) hosts: Hosts,
}

/// What a pass over the nodes gave; of use only if the sink stayed empty.
pub(crate) struct Next {
    pub(crate) index: Index,
    pub(crate) parts: Parts,
    pub(crate) hosts: Hosts,
    pub(crate) exact: Specs,
    pub(crate) patterns: Arc<Vec<PatternSpec>>,
    /// The hostnames that were looked at; `None` for all.
    pub(crate) touched: Option<BTreeSet<Arc<str>>>,
    /// What could not be evaluated of the nodes that were looked at.
    pub(crate) unevaluated: BTreeSet<Unevaluated>,
}

/// One pass over all nodes, or over those that a change touches.
pub(crate) struct NodePass<'p> {
    files: &'p Files,
    context: &'p Context,
    shared: &'p Arc<Context>,
    sink: &'p mut Sink,
    memo: Memo<'p>,
    /// Entries that several nodes come from, read once.
    read: BTreeMap<(Arc<str>, usize), Arc<ReadEntry<'p>>>,
    parts: Parts,
}

impl<'p> NodePass<'p> {
    /// A pass that judges what each node gets, if there is a judge.
    pub(crate) fn new(
        files: &'p Files,
        context: &'p Arc<Context>,
        judge: Option<FleetJudge<'p>>,
        sink: &'p mut Sink,
    ) -> NodePass<'p> {
        let memo = Memo::judged_by(judge);
        let (read, parts) = (BTreeMap::new(), Parts::default());
        NodePass { files, context, shared: context, sink, memo, read, parts }
    }

    pub(crate) fn run(mut self, good: Option<&'p Good>, dirty: &Dirty) -> Next {
        let rules = classify::rules(self.files, self.sink);
        classify::one_key_each(self.files, self.sink);
        let mut next =
            match good.filter(|good| Arc::ptr_eq(&good.context, self.shared) && *good.index.rules == rules) {
                Some(good) => self.part(good, dirty, Arc::new(rules)),
                None => self.whole(rules),
            };
        if let Some(judge) = self.memo.judge {
            next.unevaluated = judge.finish(self.sink);
        }
        next
    }

    fn whole(&mut self, rules: Vec<classify::Rule>) -> Next {
        self.parts = Arc::new(self.split(&rules));
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
        let patterns = Arc::new(patterns.into_values().flatten().collect());
        Next {
            index,
            parts: self.parts.clone(),
            hosts,
            exact,
            patterns,
            touched: None,
            unevaluated: BTreeSet::new(),
        }
    }

    /// The nodes of every rule as grants distinguish them.
    fn split(&mut self, rules: &[classify::Rule]) -> Vec<Vec<PatternShare>> {
        let (mut all, mut count) = (Vec::new(), 0);
        for rule in rules {
            let parts = specialize::split(&self.context.fleet, rule).unwrap_or_default();
            count += parts.len();
            if parts.is_empty() || count > MAX_PATTERNS {
                let message = format!(
                    "`sync` and `delegations` tell the nodes of `{}` apart in too many ways",
                    rule.pattern
                );
                let help = format!(
                    "a release has at most {MAX_PATTERNS} patterns: use fewer or simpler patterns under `nodes`, or name nodes exactly"
                );
                self.sink.error(&rule.loc.file, "E099", rule.at, message).help(help);
                return all;
            }
            all.push(parts);
        }
        all
    }

    /// Only what the dirty files touch; patterns and context are those of the good state.
    fn part(&mut self, good: &'p Good, dirty: &Dirty, rules: Arc<Vec<classify::Rule>>) -> Next {
        let nodes: Vec<&str> =
            dirty.keys().map(String::as_str).filter(|path| tree::kind(path) == FileKind::Nodes).collect();
        let mut touched: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut index = good.index.clone();
        let (mut exact, mut hosts) = (good.fleet.specialize().exact.clone(), good.hosts.clone());
        let mut patterns = good.fleet.specialize().patterns.clone();
        index.rules = rules;
        self.memo.before = Some(&good.fleet.specialize().exact);
        self.parts = good.parts.clone();
        for path in &nodes {
            let (old, new) = (dirty.get(*path).and_then(Option::as_ref), self.files.get(*path));
            for name in classify::exact_names(old) {
                index.exact.remove_mut(name);
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
            exact.remove_mut(name);
        }
        let mut found = BTreeMap::new();
        for path in &nodes {
            self.nodes_file(path, &index, &mut exact, &mut found);
        }
        if !found.is_empty() {
            let mut slots = Arc::make_mut(&mut patterns).iter_mut();
            for (rule, parts) in index.rules.iter().zip(self.parts.iter()) {
                let own: Vec<&mut PatternSpec> = slots.by_ref().take(parts.len()).collect();
                let specs = found.remove(&rule.loc).unwrap_or_default();
                own.into_iter().zip(specs).for_each(|(slot, spec)| *slot = spec);
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
        let unevaluated = BTreeSet::new();
        Next { index, parts: self.parts.clone(), hosts, exact, patterns, touched: Some(touched), unevaluated }
    }

    /// A host whose file or entry changed.
    fn touched_host(&mut self, name: &Arc<str>, index: &Index, hosts: &mut Hosts, specs: &mut Specs) {
        let path = host_path(name);
        let had = hosts.remove_mut(name);
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
                    specs.remove_mut(name);
                }
            }
        }
    }

    /// Every entry of a nodes file.
    fn nodes_file(
        &mut self,
        path: &str,
        index: &Index,
        exact: &mut Specs,
        patterns: &mut BTreeMap<Loc, Vec<PatternSpec>>,
    ) {
        let file: Arc<str> = path.into();
        for (number, decl) in entries(self.files.get(path)).iter().enumerate() {
            let entry = specialize::read_entry(self.context, &file, decl, self.sink);
            for (item, found) in decl.matches.iter().enumerate() {
                let loc = Loc { file: file.clone(), entry: number, item };
                let name = found.pattern.as_str();
                let whom = if found.pattern.is_exact() {
                    SpecializedFor::Node(name)
                } else {
                    SpecializedFor::Pattern(name)
                };
                let elsewhere =
                    || index.exact.get(name) != Some(&loc) || self.files.contains_key(&host_path(name));
                // Its host file counts too, and comes later.
                if found.pattern.is_exact() && elsewhere() {
                    continue;
                }
                let spec =
                    specialize::node(self.context, &mut self.memo, &entry, None, whom, found.at, self.sink);
                let Some(spec) = spec else { continue };
                if found.pattern.is_exact() {
                    exact.insert_mut(name.into(), self.granted(&spec, name));
                } else if let Some(number) = index.rules.iter().position(|rule| rule.loc == loc) {
                    let specs = self.of_pattern(&spec, &found.pattern, number);
                    patterns.insert(loc, specs);
                }
            }
        }
    }

    /// A node with what is granted to its name.
    fn granted(&mut self, spec: &NodeSpec, name: &str) -> Arc<NodeSpec> {
        let holding = Holding::of(&self.context.fleet, name);
        Arc::new(spec.granted(self.memo.grants(self.context, holding, self.sink)))
    }

    /// The nodes of a rule, each part with what is granted to it.
    fn of_pattern(&mut self, spec: &NodeSpec, pattern: &Pattern, rule: usize) -> Vec<PatternSpec> {
        let parts = self.parts.clone();
        let part = |part: &PatternShare| {
            let grants = self.memo.grants(self.context, part.holding.clone(), self.sink);
            let (pattern, except) = (pattern.clone(), part.except.clone());
            PatternSpec { pattern, except, spec: Arc::new(spec.granted(grants)) }
        };
        parts.get(rule).into_iter().flatten().map(part).collect()
    }

    fn host_file(&mut self, path: &str, index: &Index, hosts: &mut Hosts, exact: &mut Specs) {
        if matches!(tree::kind(path), FileKind::Host(_)) {
            self.host_file_at(path, index, hosts, exact);
        }
    }

    fn host_file_at(&mut self, path: &str, index: &Index, hosts: &mut Hosts, exact: &mut Specs) {
        let files = self.files;
        let (FileKind::Host(name), Some(FileDecl::Host(host))) =
            (tree::kind(path), files.get(path).map(|f| &f.content))
        else {
            return;
        };
        if tree::host_problem(name).is_some() {
            return;
        }
        let Some(loc) = index.find(name).cloned() else {
            if classify::nodes_files(files).any(|(_, file)| file.found.hides()) {
                // The entry that it belongs to may be one that could not be read.
                return;
            }
            let at = At { line: 1, column: 1, len: 1 };
            let names = index.exact.keys().map(|name| &**name);
            let help = match lang::nearest(name, names) {
                Some(near) => format!("did you mean hosts/{near}.yaml?"),
                None => "add it to `match` of an entry, or delete the file".into(),
            };
            self.sink
                .error(path, "E033", at, format!("no entry matches `{name}`, so its host file says nothing"))
                .help(help);
            return;
        };
        let name: Arc<str> = name.into();
        hosts.insert_mut(name.clone(), loc.clone());
        self.exact_node(&loc, &name, Some((path, host)), exact);
    }

    /// One node by its name: its entry, with its host file on top.
    fn exact_node(
        &mut self,
        loc: &Loc,
        name: &Arc<str>,
        host: Option<(&str, &'p HostFile)>,
        exact: &mut Specs,
    ) {
        let Some(entry) = self.entry(loc) else { return };
        let at = entry.decl.matches.get(loc.item).map(|item| item.at).unwrap_or_default();
        let host =
            host.map(|(path, host)| specialize::read_host(self.context, &path.into(), host, self.sink));
        let whom = SpecializedFor::Node(name);
        let spec = specialize::node(self.context, &mut self.memo, &entry, host.as_ref(), whom, at, self.sink);
        match spec {
            Some(spec) => {
                exact.insert_mut(name.clone(), self.granted(&spec, name));
            }
            None => {
                exact.remove_mut(name);
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

/// The path of a node's host file.
fn host_path(name: &str) -> String {
    format!("hosts/{name}.yaml")
}
