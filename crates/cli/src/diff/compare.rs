//! Which nodes get something else than now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lang::Pattern;
use lang::pattern::first_match;
use model::Selection;
use model::selection::{PatternEntry, SelectionEntry};

use crate::operator::Operator;
use crate::remote::{self, ExactChange, OldTop, RemoteError};

/// A node that gets something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeChange {
    /// Its hostname; a pattern's text where no enrolled node is classified by the pattern.
    pub name: Arc<str>,
    /// The names that the pattern excepts.
    pub except: Vec<String>,
    /// It stands for the nodes of a pattern.
    pub is_pattern: bool,
    /// It is enrolled, so it may have recorded traits.
    pub enrolled: bool,
    /// What it has.
    pub old: Option<SelectionEntry>,
    /// What it gets.
    pub new: Option<SelectionEntry>,
}

impl NodeChange {
    /// How it is called.
    pub fn shown(&self) -> Arc<str> {
        if self.except.is_empty() {
            return self.name.clone();
        }
        format!("{} except {}", self.name, self.except.join(", ")).into()
    }
}

/// What distinguishes patterns of one release: several may have one text, each with other
/// exceptions, where something is granted to some of its nodes only.
type PatternKey<'a> = (&'a str, &'a [String]);

fn key(entry: &PatternEntry) -> PatternKey<'_> {
    (&entry.pattern, &entry.except)
}

/// The nodes that were compared.
#[derive(Clone, Debug, Default)]
pub struct Population {
    /// How many there are.
    pub nodes: usize,
    /// Those that get something else, by name.
    pub changed: Vec<NodeChange>,
}

/// Patterns read once.
pub(crate) struct Rules<'a>(Vec<(&'a PatternEntry, Pattern, Vec<Pattern>)>);

impl<'a> Rules<'a> {
    pub(crate) fn read(patterns: &'a [PatternEntry]) -> Rules<'a> {
        // The control plane refuses a release with a pattern that cannot be read.
        let read = |entry: &'a PatternEntry| {
            let except = entry.except.iter().filter_map(|text| Pattern::parse(text).ok()).collect();
            Some((entry, Pattern::parse(&entry.pattern).ok()?, except))
        };
        Rules(patterns.iter().filter_map(read).collect())
    }

    /// The first that takes a hostname.
    pub(crate) fn find(&self, name: &str) -> Option<&'a PatternEntry> {
        let rules = self.0.iter().map(|(_, pattern, except)| (pattern, except.as_slice()));
        Some(self.0[first_match(rules, name)?].0)
    }
}

/// Compares what every node has with what it gets: nodes named exactly, enrolled nodes that
/// patterns classify, and patterns that no enrolled node needs.
///
/// # Errors
/// When what is published cannot be read.
pub async fn population(
    operator: &Operator,
    old: Option<&OldTop>,
    new: &Selection,
    enrolled: BTreeSet<String>,
    selector: Option<&Pattern>,
) -> Result<Population, RemoteError> {
    let nothing = OldTop { exact: model::Digest::ZERO, patterns: Vec::new() };
    let old = old.unwrap_or(&nothing);
    let exact = remote::changed(operator, old, new.exact()).await?;
    let wanted = |name: &str| selector.is_none_or(|selector| selector.matches(name));
    let (was, is) = (Rules::read(&old.patterns), Rules::read(new.patterns()));
    let mut nodes: BTreeMap<(Arc<str>, Vec<String>), NodeChange> = BTreeMap::new();
    let mut count = new.exact().leaves().filter(|leaf| wanted(&leaf.name)).count();
    for (name, change) in exact.iter().filter(|(name, _)| wanted(name)) {
        let new = change.new.clone().or_else(|| is.find(name).map(|pattern| pattern.entry.clone()));
        let old = change.old.clone().or_else(|| was.find(name).map(|pattern| pattern.entry.clone()));
        count += usize::from(change.new.is_none());
        let enrolled = enrolled.contains(&**name);
        let name = name.clone();
        add(&mut nodes, NodeChange { name, except: Vec::new(), is_pattern: false, enrolled, old, new });
    }
    let mut used: BTreeSet<PatternKey<'_>> = BTreeSet::new();
    let named = |name: &str| new.exact().get(name).is_some() || exact.contains_key(name);
    for name in enrolled.iter().filter(|name| !named(name)) {
        let (old, new) = (was.find(name), is.find(name));
        used.extend(old.into_iter().chain(new).map(key));
        if !wanted(name) || (old.is_none() && new.is_none()) {
            continue;
        }
        count += 1;
        let (old, new) = (old.map(|pattern| pattern.entry.clone()), new.map(|pattern| pattern.entry.clone()));
        let name = name.as_str().into();
        add(&mut nodes, NodeChange { name, except: Vec::new(), is_pattern: false, enrolled: true, old, new });
    }
    let unused = |pattern: &&PatternEntry| !used.contains(&key(pattern)) && wanted(&pattern.pattern);
    for ((name, except), change) in pattern_changes(&old.patterns, new.patterns(), unused) {
        let ExactChange { old, new } = change;
        let (name, except) = (name.into(), except.to_vec());
        add(&mut nodes, NodeChange { name, except, is_pattern: true, enrolled: false, old, new });
    }
    Ok(Population { nodes: count, changed: nodes.into_values().collect() })
}

fn add(nodes: &mut BTreeMap<(Arc<str>, Vec<String>), NodeChange>, change: NodeChange) {
    if change.old != change.new {
        nodes.insert((change.name.clone(), change.except.clone()), change);
    }
}

/// What changes for patterns. One that is newly distinguished had what its text had last; one that
/// is no longer distinguished is among the others of its text.
fn pattern_changes<'a>(
    old: &'a [PatternEntry],
    new: &'a [PatternEntry],
    counts: impl Fn(&&PatternEntry) -> bool,
) -> BTreeMap<PatternKey<'a>, ExactChange> {
    let same =
        |all: &'a [PatternEntry], entry: &PatternEntry| all.iter().find(|other| key(other) == key(entry));
    let alike = |all: &'a [PatternEntry], entry: &PatternEntry| {
        all.iter().rfind(|other| other.pattern == entry.pattern)
    };
    let mut changes: BTreeMap<PatternKey<'a>, ExactChange> = BTreeMap::new();
    for pattern in old.iter().filter(|pattern| counts(pattern)) {
        if same(new, pattern).is_some() || alike(new, pattern).is_none() {
            changes.entry(key(pattern)).or_default().old = Some(pattern.entry.clone());
        }
    }
    for pattern in new.iter().filter(|pattern| counts(pattern)) {
        let change = changes.entry(key(pattern)).or_default();
        let before = same(old, pattern).or_else(|| alike(old, pattern));
        change.old = before.map(|before| before.entry.clone());
        change.new = Some(pattern.entry.clone());
    }
    changes
}
