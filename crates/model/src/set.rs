//! Sets: state as keyed objects under one root.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Digest;
use crate::collect::CollectInserting;
use crate::delta::{Delta, Edit};
use crate::digest::Hasher;
use crate::object::{ObjectKey, SectionKey, Stub, leaf_hash};
use crate::trie::{Leaf, Trie};

/// The most sections in one set.
pub const MAX_SECTIONS: usize = 1024;

/// The difference between two sets.
pub type SetDelta = Delta<ObjectKey, Stub>;

/// A set of objects: sections, each a trie. Cloning is cheap, equal sections are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectSet {
    sections: BTreeMap<SectionKey, Trie>,
}

/// A delta does not fit the set it is applied to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the difference says that {key} was {claimed}, but here it is otherwise")]
pub struct ApplyDeltaError {
    key: ObjectKey,
    claimed: &'static str,
}

impl ObjectSet {
    /// The empty set.
    pub fn new() -> ObjectSet {
        ObjectSet::default()
    }

    /// A set of these objects.
    pub fn of(objects: impl IntoIterator<Item = (ObjectKey, Stub)>) -> ObjectSet {
        let mut by_section: BTreeMap<SectionKey, Vec<Leaf>> = BTreeMap::new();
        for (key, stub) in objects {
            let leaf = leaf(&key.section, key.name, stub);
            by_section.entry(key.section).or_default().push(leaf);
        }
        let sections = by_section.into_iter().map(|(key, leaves)| (key, Trie::build(leaves)));
        ObjectSet { sections: sections.collect_inserting() }
    }

    /// A set of these sections; empty ones are left out.
    pub fn of_sections(sections: impl IntoIterator<Item = (SectionKey, Trie)>) -> ObjectSet {
        ObjectSet { sections: sections.into_iter().filter(|(_, trie)| !trie.is_empty()).collect_inserting() }
    }

    /// The root: `H(0x02, sorted sections)`.
    pub fn root(&self) -> Digest {
        root_of_sections(self.sections.iter().map(|(key, trie)| (key, trie.hash())))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.sections.values().map(Trie::len).sum()
    }

    /// There is no object.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// The sections in order.
    pub fn sections(&self) -> impl Iterator<Item = (&SectionKey, &Trie)> {
        self.sections.iter()
    }

    /// One section; empty if there is none.
    pub fn section(&self, key: &SectionKey) -> Trie {
        self.sections.get(key).cloned().unwrap_or_default()
    }

    /// The stub of an object.
    pub fn get(&self, key: &ObjectKey) -> Option<&Stub> {
        Some(&self.sections.get(&key.section)?.get(&key.name)?.stub)
    }

    /// All objects, section by section.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectKey, &Stub)> {
        self.sections.iter().flat_map(|(section, trie)| {
            trie.leaves()
                .map(|leaf| (ObjectKey { section: section.clone(), name: leaf.name.clone() }, &leaf.stub))
        })
    }

    /// Adds or replaces an object.
    pub fn insert(&mut self, key: ObjectKey, stub: Stub) {
        let leaf = leaf(&key.section, key.name, stub);
        let trie = self.sections.entry(key.section).or_default();
        *trie = trie.with(leaf);
    }

    /// Takes an object out.
    pub fn remove(&mut self, key: &ObjectKey) {
        if let Some(trie) = self.sections.get_mut(&key.section) {
            *trie = trie.without(&key.name);
            if trie.is_empty() {
                self.sections.remove(&key.section);
            }
        }
    }

    /// Many edits at once: for each key a stub, or nothing. Costs far less than one by one,
    /// since each branch is hashed once. Of two edits of one key the later wins.
    pub fn edit_all(&mut self, edits: impl IntoIterator<Item = (ObjectKey, Option<Stub>)>) {
        self.edit_leaves(edits.into_iter().map(|(key, stub)| {
            let position = Digest::of(key.name.as_bytes());
            let leaf = stub.map(|stub| {
                let hash = leaf_hash(&key.section, &key.name, &stub);
                Leaf { position, hash, name: key.name, stub }
            });
            (key.section, position, leaf)
        }));
    }

    /// As [`ObjectSet::edit_all`], with leaves that are made already: section, `H(name)`, leaf.
    pub(crate) fn edit_leaves(
        &mut self,
        edits: impl IntoIterator<Item = (SectionKey, Digest, Option<Leaf>)>,
    ) {
        let mut by_section: BTreeMap<SectionKey, Vec<(Digest, Option<Leaf>)>> = BTreeMap::new();
        for (section, position, leaf) in edits {
            by_section.entry(section).or_default().push((position, leaf));
        }
        for (section, edits) in by_section {
            let trie = self.section(&section).edit_all(edits);
            if trie.is_empty() {
                self.sections.remove(&section);
            } else {
                self.sections.insert(section, trie);
            }
        }
    }

    /// What leads from `self` to `new`; the cost is in proportion to the difference.
    pub fn delta_to(&self, new: &ObjectSet) -> SetDelta {
        let mut delta = SetDelta::default();
        let keys: std::collections::BTreeSet<&SectionKey> =
            self.sections.keys().chain(new.sections.keys()).collect_inserting();
        let none = Trie::default();
        for section in keys {
            let old = self.sections.get(section).unwrap_or(&none);
            let new = new.sections.get(section).unwrap_or(&none);
            Trie::diff(old, new, &mut |old, new| {
                let (name, edit) = match (old, new) {
                    (Some(a), Some(b)) => {
                        (&b.name, Edit::Change { from: a.stub.clone(), to: b.stub.clone() })
                    }
                    (Some(a), None) => (&a.name, Edit::Remove { from: a.stub.clone() }),
                    (None, Some(b)) => (&b.name, Edit::Add { to: b.stub.clone() }),
                    (None, None) => return,
                };
                let key = ObjectKey { section: section.clone(), name: name.clone() };
                delta.edits.insert(key, edit);
            });
        }
        delta
    }

    /// The set after a difference.
    ///
    /// # Errors
    /// When an edit's old state is not what is here; nothing is applied then.
    pub fn apply(&self, delta: &SetDelta) -> Result<ObjectSet, ApplyDeltaError> {
        let mut set = self.clone();
        for (key, edit) in &delta.edits {
            if !same(self.get(key), edit.from()) {
                let claimed = if edit.from().is_some() { "another object" } else { "absent" };
                return Err(ApplyDeltaError { key: key.clone(), claimed });
            }
            match edit.to() {
                Some(to) => set.insert(key.clone(), to.clone()),
                None => set.remove(key),
            }
        }
        Ok(set)
    }
}

/// Whether two stubs are of one object. The size is left out: no hash covers it, so a wrong
/// one must not stand in the way of a later difference.
fn same(a: Option<&Stub>, b: Option<&Stub>) -> bool {
    let identity = |stub: &Stub| (stub.uid.clone(), stub.digest);
    a.map(identity) == b.map(identity)
}

/// The root of a set from its sorted sections' roots.
pub fn root_of_sections<'a>(sections: impl Iterator<Item = (&'a SectionKey, Digest)>) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update(&[0x02]);
    for (key, root) in sections {
        for text in [key.kind.as_str(), &key.namespace] {
            hasher.update(&(text.len() as u32).to_be_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.update(root.as_bytes());
    }
    hasher.finish()
}

/// The leaf of an object in a section.
pub fn leaf(section: &SectionKey, name: Arc<str>, stub: Stub) -> Leaf {
    Leaf { position: Digest::of(name.as_bytes()), hash: leaf_hash(section, &name, &stub), name, stub }
}
