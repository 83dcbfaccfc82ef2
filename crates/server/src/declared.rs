//! [`LabelIndex`]: which nodes are in a group, or have a label with a value, by what releases declare of
//! them. So a selector finds its nodes without a look at any other, and without the store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use lang::Value;
use lang::selector::DeclaredTerm;
use model::replication::Mode;
use model::{Digest, Hostname};

/// What a set says of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetFacts {
    /// Who is the source of truth of its objects.
    pub(crate) mode: Mode,
    /// The groups that it is in, and its labels.
    pub(crate) terms: Vec<DeclaredTerm>,
}

/// What is declared of a node, as the index has it.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredNode {
    /// The root of the set that declares it.
    pub(crate) root: Digest,
    pub(crate) mode: Mode,
    terms: Box<[Arc<DeclaredTerm>]>,
}

/// Nodes by what is declared of them, each in the order of hostnames.
#[derive(Default)]
pub(crate) struct LabelIndex {
    nodes: RwLock<BTreeMap<Arc<DeclaredTerm>, BTreeSet<Hostname>>>,
}

/// The groups and labels in what a release declares of a node.
pub(crate) fn terms(declared: &Value) -> Vec<DeclaredTerm> {
    let groups = match declared.path("groups") {
        Some(Value::List(groups)) => groups.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let mut terms: Vec<_> = groups.into_iter().map(|group| DeclaredTerm::Group(group.to_owned())).collect();
    terms.extend(labels(declared).iter().map(|(name, value)| DeclaredTerm::label(name, value)));
    terms
}

/// The labels in what a release declares of a node, with their values as text.
pub(crate) fn labels(declared: &Value) -> BTreeMap<String, String> {
    match declared.path("labels") {
        Some(Value::Map(labels)) => {
            labels.iter().map(|(name, value)| (name.clone(), value.to_string())).collect()
        }
        _ => BTreeMap::new(),
    }
}

impl LabelIndex {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Arc<DeclaredTerm>, BTreeSet<Hostname>>> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is declared of a node takes the place of what was.
    pub(crate) fn replace(
        &self,
        name: &Hostname,
        before: Option<&DeclaredNode>,
        root: Digest,
        facts: SetFacts,
    ) -> DeclaredNode {
        self.remove(name, before);
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let mut terms = Vec::with_capacity(facts.terms.len());
        for term in facts.terms {
            let term = nodes.get_key_value(&term).map_or_else(|| Arc::new(term), |(known, _)| known.clone());
            nodes.entry(term.clone()).or_default().insert(name.clone());
            terms.push(term);
        }
        DeclaredNode { root, mode: facts.mode, terms: terms.into() }
    }

    /// Nothing is declared of a node any more.
    pub(crate) fn remove(&self, name: &Hostname, before: Option<&DeclaredNode>) {
        let Some(before) = before.filter(|before| !before.terms.is_empty()) else { return };
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        for term in &before.terms {
            if let Some(of_term) = nodes.get_mut(term) {
                of_term.remove(name);
                if of_term.is_empty() {
                    nodes.remove(term);
                }
            }
        }
    }

    /// So many nodes of which one of these is declared, in the order of their hostnames, from a hostname on.
    pub(crate) fn page(&self, terms: &[DeclaredTerm], from: &str, limit: usize) -> Vec<Hostname> {
        let nodes = self.read();
        let mut found = BTreeSet::new();
        for of_term in terms.iter().filter_map(|term| nodes.get(term)) {
            let later = of_term.range::<str, _>((Bound::Included(from), Bound::Unbounded));
            found.extend(later.take(limit).cloned());
        }
        found.into_iter().take(limit).collect()
    }

    /// What is declared of a node of these, in the form in which selectors read it.
    pub(crate) fn declared<'a>(
        &self,
        name: &Hostname,
        of: impl IntoIterator<Item = &'a DeclaredTerm>,
    ) -> Value {
        let nodes = self.read();
        let (mut groups, mut labels) = (Vec::new(), BTreeMap::new());
        for term in of {
            if nodes.get(term).is_some_and(|nodes| nodes.contains(name)) {
                match term {
                    DeclaredTerm::Group(group) => groups.push(Value::from(group.as_str())),
                    DeclaredTerm::Label { name, value } => {
                        labels.insert(name.clone(), Value::from(value.as_str()));
                    }
                }
            }
        }
        let both = [("groups".to_owned(), Value::List(groups)), ("labels".to_owned(), Value::Map(labels))];
        Value::Map(both.into())
    }

    /// All groups that a node is in.
    pub(crate) fn groups(&self) -> Vec<String> {
        let group = |term: &Arc<DeclaredTerm>| match &**term {
            DeclaredTerm::Group(group) => Some(group.clone()),
            DeclaredTerm::Label { .. } => None,
        };
        // Groups are before labels in the order of terms.
        self.read().keys().map_while(group).collect()
    }

    /// A node is in this group.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.read().contains_key(&DeclaredTerm::Group(group.to_owned()))
    }
}
