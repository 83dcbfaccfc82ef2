//! [`Index`]: which entry classifies a node. The first match wins; an exact name that an
//! earlier pattern takes, or that stands twice, is a mistake, so that looking the exact
//! names up first gives the same answer.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use lang::{Pattern, pattern};
pub use model::selection::MAX_PATTERNS;

use crate::decl::nodes::{NodesEntry, PatternItem};
use crate::parse::{FileDecl, Files, Parsed};
use crate::sink::Sink;
use crate::specialize::ByName;
use crate::tree::{self, FileKind};
use crate::yaml::{At, Spanned};

/// The position of an item of `match:`; positions compare as nodes are classified.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Loc {
    pub(crate) file: Arc<str>,
    pub(crate) entry: usize,
    pub(crate) item: usize,
}

/// A pattern with what its entry excepts.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) loc: Loc,
    pub(crate) at: At,
    pub(crate) pattern: Pattern,
    pub(crate) except: Arc<[Pattern]>,
    /// What every matching name begins with: that alone distinguishes most names.
    prefix: String,
}

impl Rule {
    /// Whether the rule classifies `name`.
    pub(crate) fn takes(&self, name: &str) -> bool {
        name.starts_with(&self.prefix) && pattern::takes(&self.pattern, &self.except, name)
    }
}

impl PartialEq for Rule {
    /// Equal for classification: what the entries give to nodes may differ.
    fn eq(&self, other: &Rule) -> bool {
        self.loc == other.loc && self.pattern == other.pattern && self.except == other.except
    }
}

/// Exact names and ordered patterns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    pub(crate) exact: ByName<Loc>,
    pub(crate) rules: Arc<Vec<Rule>>,
}

/// The entries of a nodes file; none for any other file.
pub(crate) fn entries(file: Option<&Arc<Parsed>>) -> &[NodesEntry] {
    match file.map(|file| &file.content) {
        Some(FileDecl::Nodes(entries)) => entries,
        _ => &[],
    }
}

/// The names that a nodes file names exactly.
pub(crate) fn exact_names(file: Option<&Arc<Parsed>>) -> impl Iterator<Item = &str> {
    let items = entries(file).iter().flat_map(|entry| &entry.matches);
    items.filter(|item| item.pattern.is_exact()).map(|item| item.pattern.as_str())
}

/// All nodes files in the order in which they classify.
pub(crate) fn nodes_files(files: &Files) -> impl Iterator<Item = (&String, &Arc<Parsed>)> {
    // `nodes.yaml` and all of `nodes/`; 0 comes after both the dot and the slash.
    let range = files.range::<str, _>((Bound::Included("nodes."), Bound::Excluded("nodes0")));
    range.filter(|(_, file)| matches!(file.content, FileDecl::Nodes(_)))
}

/// The patterns of all nodes files, in order.
pub(crate) fn rules(files: &Files, sink: &mut Sink) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for (path, file) in nodes_files(files).filter(|(_, file)| file.has_patterns) {
        let name: Arc<str> = path.as_str().into();
        for (entry_index, entry) in entries(Some(file)).iter().enumerate() {
            let items = entry.matches.iter().enumerate().filter(|(_, item)| !item.pattern.is_exact());
            for (item_index, item) in items {
                let loc = Loc { file: name.clone(), entry: entry_index, item: item_index };
                same_pattern(&rules, item, path, sink);
                if rules.len() == MAX_PATTERNS {
                    sink.error(path, "E099", item.at, format!("more than {MAX_PATTERNS} patterns"))
                        .help("join some, or name nodes exactly");
                }
                let except = entry.except.iter().map(|except| except.pattern.clone()).collect();
                let prefix = prefix(&item.pattern);
                rules.push(Rule { loc, at: item.at, pattern: item.pattern.clone(), except, prefix });
                if rules.len() > MAX_PATTERNS {
                    return rules;
                }
            }
        }
    }
    rules
}

/// A key that is declared of two nodes is a mistake: whoever holds it could be either (CFG-8).
pub(crate) fn one_key_each(files: &Files, sink: &mut Sink) {
    let mut first: BTreeMap<&str, (&str, &str, At)> = BTreeMap::new();
    let keyed = files.iter().filter(|(_, file)| file.has_keys);
    let keys = keyed.flat_map(|(path, file)| keys_of(path, file).into_iter().map(move |key| (path, key)));
    for (path, (name, key)) in keys {
        match first.get(key.value.as_str()) {
            Some((known, file, at)) if *known != name => {
                sink.error(path, "E038", key.at, format!("the key of {known} is declared of {name} too"))
                    .help("each node has a key of its own: `muster-agent fingerprint` prints it on the host")
                    .label_in(file, *at, "first here");
            }
            Some(_) => {}
            None => drop(first.insert(&key.value, (name, path, key.at))),
        }
    }
}

/// The keys that a file declares, each with the name of its node.
fn keys_of<'f>(path: &'f str, file: &'f Parsed) -> Vec<(&'f str, &'f Spanned<String>)> {
    match (&file.content, tree::kind(path)) {
        (FileDecl::Nodes(entries), _) => {
            let named = |entry: &'f NodesEntry| {
                let item = entry.matches.first().filter(|item| item.pattern.is_exact())?;
                Some((item.pattern.as_str(), entry.facts.key.as_ref()?))
            };
            entries.iter().filter_map(named).collect()
        }
        (FileDecl::Host(host), FileKind::Host(name)) => {
            host.facts.key.iter().map(|key| (name, key)).collect()
        }
        _ => Vec::new(),
    }
}

fn same_pattern(rules: &[Rule], item: &PatternItem, file: &str, sink: &mut Sink) {
    let whole = rules.iter().find(|rule| rule.pattern == item.pattern && rule.except.is_empty());
    if let Some(first) = whole {
        sink.error(
            file,
            "E031",
            item.at,
            format!("`{}` stands earlier already, so this one matches nothing", item.pattern),
        )
        .help("drop one of the two")
        .label_in(&first.loc.file, first.at, "first here");
    }
}

/// What a glob begins with; nothing for a regular expression.
fn prefix(pattern: &Pattern) -> String {
    let text = pattern.as_str();
    if text.starts_with('/') {
        String::new()
    } else {
        text.chars().take_while(|c| !matches!(c, '*' | '?')).collect()
    }
}

impl Index {
    /// An index with these patterns and no exact name yet.
    pub(crate) fn new(rules: Arc<Vec<Rule>>) -> Index {
        Index { exact: ByName::default(), rules }
    }

    /// Takes the exact names of a file in. Files come in the order in which they classify.
    pub(crate) fn add(&mut self, path: &str, files: &Files, sink: &mut Sink) {
        let name: Arc<str> = path.into();
        for (entry, decl) in entries(files.get(path)).iter().enumerate() {
            for (item, found) in decl.matches.iter().enumerate().filter(|(_, item)| item.pattern.is_exact()) {
                let loc = Loc { file: name.clone(), entry, item };
                self.earlier_pattern(found, &loc, sink);
                self.insert(found, loc, files, sink);
            }
        }
    }

    fn earlier_pattern(&self, item: &PatternItem, loc: &Loc, sink: &mut Sink) {
        let name = item.pattern.as_str();
        let earlier = self.rules.iter().take_while(|rule| rule.loc < *loc).find(|rule| rule.takes(name));
        if let Some(rule) = earlier {
            sink.error(
                &loc.file,
                "E031",
                item.at,
                format!("`{name}` is taken by an earlier pattern, `{}`", rule.pattern),
            )
            .help("move this entry before the pattern's, or except the name there")
            .label_in(&rule.loc.file, rule.at, "taken here");
        }
    }

    fn insert(&mut self, item: &PatternItem, loc: Loc, files: &Files, sink: &mut Sink) {
        let name = item.pattern.as_str();
        let Some(other) = self.exact.get(name).cloned() else {
            self.exact.insert_mut(name.into(), loc);
            return;
        };
        let (first, second) = if other < loc { (other, loc) } else { (loc, other) };
        let at = |loc: &Loc| {
            let entry = entries(files.get(&*loc.file)).get(loc.entry);
            entry.and_then(|entry| entry.matches.get(loc.item)).map(|item| item.at).unwrap_or_default()
        };
        sink.error(&second.file, "E032", at(&second), format!("`{name}` is named twice"))
            .help("a node has one entry; keep one of the two")
            .label_in(&first.file, at(&first), "first here");
        self.exact.insert_mut(name.into(), first);
    }

    /// The entry that classifies `name`.
    pub(crate) fn find(&self, name: &str) -> Option<&Loc> {
        self.exact.get(name).or_else(|| self.rules.iter().find(|rule| rule.takes(name)).map(|rule| &rule.loc))
    }
}
