//! [`Descent`]: finds what a source's tries hold otherwise than those known here, node by node.
//!
//! ```text
//!   new(roots, known) --> needs() --> supply(node) --+--> finish() --> Found
//!                            ^     the caller's IO   |
//!                            +-----------------------+
//!
//!       source, known by hash         known here
//!              7a..            =/=       91..            the node 7a.. is needed
//!            /  |  \                   /  |  \
//!         1c.. 4e..  0              1c.. 88.. f3..
//!          |    |    |
//!          |    |    the source has nothing: all leaves of f3.. are orphans
//!          |    needed next, beside 88..
//!          equal: not entered
//! ```
//!
//! Nodes are addressed by hash ([`Descent::needs`], [`Descent::supply`]) where trees are stored
//! by hash, and by section and path ([`Descent::needs_at`], [`Descent::supply_at`]) where the
//! source answers from a snapshot. The cost is in proportion to the difference.
//!
//! Invariants: an equal subtree is not entered; a node is taken only when it has the hash that
//! its parent names, and its leaves only where their names put them; at most twice as many nodes
//! as objects are entered, in at most [`MAX_DEPTH`] rounds for callers that supply all needs of
//! a round. Nothing here does IO.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Digest;
use crate::chunk::{ChunkError, SectionChunk, TreeChunk, section_roots};
use crate::collect::CollectInserting;
use crate::object::{ObjectKey, SectionKey};
use crate::set::{MAX_SECTIONS, ObjectSet, leaf};
use crate::trie::{BUCKET, Leaf, Trie, TrieNode, bucket_hash, nibble_at};

/// The longest path of a node: the nibbles of a digest.
pub const MAX_DEPTH: usize = 64;
/// The most objects of a stored tree.
pub const MAX_OBJECTS: usize = 1_000_000;

/// Why a descent does not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescentError {
    /// A node breaks its form.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// A node below a root is not there.
    #[error("chunk {0} is missing")]
    Missing(Digest),
    /// A node that the descent does not need, or that is not the one its parent names.
    #[error("node {0} is not one that is needed")]
    Unwanted(Digest),
    /// The source has more objects than are taken here.
    #[error("the source has more than {0} objects")]
    TooMany(usize),
}

/// Hashes of a tree that are still to be looked at, each once in a frontier, with
/// what the caller knows of each.
#[derive(Clone, Debug)]
pub struct Frontier<P> {
    open: BTreeMap<Digest, P>,
    seen: BTreeSet<Digest>,
}

impl<P> Default for Frontier<P> {
    fn default() -> Frontier<P> {
        Frontier { open: BTreeMap::new(), seen: BTreeSet::new() }
    }
}

impl<P> Frontier<P> {
    /// Adds a hash, unless it was there before.
    pub fn add(&mut self, hash: Digest, needed: P) {
        if self.seen.insert(hash) {
            self.open.insert(hash, needed);
        }
    }

    /// Takes up to `most` hashes off the frontier; none when it is empty.
    pub fn take(&mut self, most: usize) -> Vec<(Digest, P)> {
        std::iter::from_fn(|| self.open.pop_first()).take(most).collect()
    }
}

/// The set of a root, from chunks at hand; an error when one is missing or malformed.
///
/// # Errors
/// [`DescentError`], and those of `fetch`.
pub fn read_set<E: From<DescentError>>(
    root: &Digest,
    fetch: &mut dyn FnMut(&Digest) -> Result<Option<TreeChunk>, E>,
) -> Result<ObjectSet, E> {
    let mut chunk = |digest: &Digest| -> Result<TreeChunk, E> {
        Ok(fetch(digest)?.ok_or(DescentError::Missing(*digest))?)
    };
    let TreeChunk::Set { sections } = chunk(root)? else {
        return Err(DescentError::from(ChunkError::Malformed("not a set")).into());
    };
    let mut descent = Descent::of_set(sections, ObjectSet::new(), MAX_OBJECTS)?;
    while let Some(digest) = descent.need() {
        descent.supply(chunk(&digest)?)?;
    }
    Ok(descent.into_set()?)
}

/// How a source's set differs from the known one.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Objects of the source that are not known, or otherwise.
    pub differing: Vec<(SectionKey, Leaf)>,
    /// Known objects that the source does not have.
    pub orphans: Vec<(SectionKey, Arc<Leaf>)>,
}

/// The key of an object by its section and leaf.
pub fn key_of(section: &SectionKey, leaf: &Leaf) -> ObjectKey {
    ObjectKey { section: section.clone(), name: leaf.name.clone() }
}

/// A node that is needed, and what is known in its place.
#[derive(Clone, Debug)]
struct NeededNode {
    section: SectionKey,
    path: Vec<u8>,
    known: Trie,
}

/// A descent under way; the default has nothing to compare.
#[derive(Clone, Debug, Default)]
pub struct Descent {
    roots: BTreeMap<SectionKey, Digest>,
    known: ObjectSet,
    most: usize,
    frontier: Frontier<NeededNode>,
    found: Found,
}

impl Descent {
    /// A descent of sections by their roots, beside a known set. A source of more than `most`
    /// objects is refused.
    ///
    /// # Errors
    /// [`DescentError::TooMany`].
    pub fn new(
        roots: impl IntoIterator<Item = (SectionKey, Digest)>,
        known: ObjectSet,
        most: usize,
    ) -> Result<Descent, DescentError> {
        let roots: BTreeMap<SectionKey, Digest> = roots.into_iter().collect_inserting();
        let mut descent =
            Descent { roots, known, most, frontier: Frontier::default(), found: Found::default() };
        for (section, hash) in descent.roots.clone() {
            let known = descent.known.section(&section);
            descent.compare(hash, NeededNode { section, path: Vec::new(), known })?;
        }
        for (section, trie) in descent.known.sections() {
            if !descent.roots.contains_key(section) {
                descent.found.orphans.extend(trie.leaves().map(|leaf| (section.clone(), leaf.clone())));
            }
        }
        Ok(descent)
    }

    /// A descent of a set by its top chunk, which holds the only objects of sections.
    ///
    /// # Errors
    /// When the chunk is malformed.
    pub fn of_set(
        sections: Vec<SectionChunk>,
        known: ObjectSet,
        most: usize,
    ) -> Result<Descent, DescentError> {
        let roots = section_roots(&sections)?;
        let mut descent = Descent::new(roots.iter().cloned(), known, most)?;
        for (section, (key, root)) in sections.into_iter().zip(roots) {
            if let (Some(leaf), true) = (section.leaf, descent.frontier.open.contains_key(&root)) {
                descent.supply_at(&key, &[], TrieNode::Bucket(vec![leaf]))?;
            }
        }
        Ok(descent)
    }

    /// The hashes of the nodes that are needed; none when the descent can finish.
    pub fn needs(&self) -> impl Iterator<Item = Digest> {
        self.frontier.open.keys().copied()
    }

    /// One node that is needed, by hash.
    pub fn need(&self) -> Option<Digest> {
        self.needs().next()
    }

    /// Up to `most` paths of nodes that are needed of one section; `None` when the descent can
    /// finish.
    pub fn needs_at(&self, most: usize) -> Option<(SectionKey, Vec<Vec<u8>>)> {
        let section = self.frontier.open.values().next()?.section.clone();
        let needed = self.frontier.open.values().filter(|needed| needed.section == section);
        let paths = needed.map(|needed| needed.path.clone()).take(most).collect();
        Some((section, paths))
    }

    /// Takes a node that is needed, by the hash that it has.
    ///
    /// # Errors
    /// When it is malformed, or not needed; then nothing of it is taken.
    pub fn supply(&mut self, chunk: TreeChunk) -> Result<(), DescentError> {
        let (section, node) = chunk.into_node().ok_or(ChunkError::Malformed("not a trie"))?;
        self.take(&section, None, node)
    }

    /// Takes the node that is needed at a path of nibbles in a section.
    ///
    /// # Errors
    /// As [`Descent::supply`].
    pub fn supply_at(
        &mut self,
        section: &SectionKey,
        path: &[u8],
        node: TrieNode,
    ) -> Result<(), DescentError> {
        self.take(section, Some(path), node)
    }

    /// The same of a source whose set goes on changing: the node is the one that is there now, whatever
    /// its parent named. What did not change meanwhile is found all the same.
    ///
    /// # Errors
    /// As [`Descent::supply`].
    pub fn supply_current_at(
        &mut self,
        section: &SectionKey,
        path: &[u8],
        node: TrieNode,
    ) -> Result<(), DescentError> {
        let now = match self.supply_at(section, path, node.clone()) {
            Err(DescentError::Unwanted(now)) => now,
            done => return done,
        };
        let open = &mut self.frontier.open;
        let is_here = |needed: &NeededNode| needed.path == path && needed.section == *section;
        let named = open.iter().find(|(_, needed)| is_here(needed)).map(|(hash, _)| *hash);
        if let Some(needed) = named.filter(|_| !open.contains_key(&now)).and_then(|named| open.remove(&named))
        {
            open.insert(now, needed);
        }
        self.supply_at(section, path, node)
    }

    fn take(
        &mut self,
        section: &SectionKey,
        path: Option<&[u8]>,
        node: TrieNode,
    ) -> Result<(), DescentError> {
        match node {
            TrieNode::Branch(children) => {
                let needed = self.take_needed(TrieNode::branch_hash(&children), section, path)?;
                for (nibble, hash) in (0..).zip(children.iter()) {
                    let known = needed.known.child(usize::from(nibble), needed.path.len());
                    let path = [&needed.path[..], &[nibble]].concat();
                    self.compare(*hash, NeededNode { section: needed.section.clone(), path, known })?;
                }
                Ok(())
            }
            TrieNode::Bucket(leaves) => {
                let leaves = leaves.into_iter().map(|one| leaf(section, one.name, one.stub)).collect();
                self.take_bucket(section, path, leaves)
            }
        }
    }

    fn take_bucket(
        &mut self,
        section: &SectionKey,
        path: Option<&[u8]>,
        leaves: Vec<Leaf>,
    ) -> Result<(), DescentError> {
        let hash = bucket_hash(leaves.iter().map(|leaf| (leaf.position, leaf.hash)));
        if leaves.len() > BUCKET || !leaves.is_sorted_by(|a, b| a.position < b.position) {
            return Err(ChunkError::Malformed("a bucket of leaves out of order, or too many").into());
        }
        let NeededNode { section, path, known } = self.take_needed(hash, section, path)?;
        let hangs = |leaf: &Leaf| {
            path.iter()
                .enumerate()
                .all(|(depth, nibble)| nibble_at(&leaf.position, depth) == usize::from(*nibble))
        };
        if !leaves.iter().all(hangs) {
            return Err(ChunkError::Malformed("a leaf where its name does not belong").into());
        }
        let gone = known.leaves().filter(|old| !leaves.iter().any(|new| new.position == old.position));
        self.found.orphans.extend(gone.map(|leaf| (section.clone(), leaf.clone())));
        let differs = |new: &Leaf| !known.leaves().any(|old| old.hash == new.hash);
        self.found.differing.extend(leaves.into_iter().filter(differs).map(|leaf| (section.clone(), leaf)));
        if self.found.differing.len() > self.most { Err(DescentError::TooMany(self.most)) } else { Ok(()) }
    }

    /// Takes a node off the frontier: it is supplied.
    fn take_needed(
        &mut self,
        hash: Digest,
        section: &SectionKey,
        path: Option<&[u8]>,
    ) -> Result<NeededNode, DescentError> {
        let fits =
            |needed: &NeededNode| path.is_none_or(|path| needed.path == path && needed.section == *section);
        let Entry::Occupied(needed) = self.frontier.open.entry(hash) else {
            return Err(DescentError::Unwanted(hash));
        };
        if fits(needed.get()) { Ok(needed.remove()) } else { Err(DescentError::Unwanted(hash)) }
    }

    /// Compares a node by hash: the node is needed unless both sides are alike, or the source
    /// has nothing there.
    fn compare(&mut self, hash: Digest, needed: NeededNode) -> Result<(), DescentError> {
        if hash == needed.known.hash() {
            return Ok(());
        }
        if hash == Digest::ZERO {
            let leaves = needed.known.leaves().map(|leaf| (needed.section.clone(), leaf.clone()));
            self.found.orphans.extend(leaves);
            return Ok(());
        }
        if needed.path.len() > MAX_DEPTH {
            return Err(ChunkError::Malformed("a trie that is too deep").into());
        }
        self.frontier.add(hash, needed);
        // A trie of so many objects has fewer than twice as many nodes.
        let nodes = self.most.saturating_mul(2).saturating_add(2 * MAX_SECTIONS);
        if self.frontier.seen.len() > nodes { Err(DescentError::TooMany(self.most)) } else { Ok(()) }
    }

    /// How the source differs.
    ///
    /// # Errors
    /// [`DescentError::Missing`] when a node is still needed.
    pub fn finish(self) -> Result<Found, DescentError> {
        self.need().map_or(Ok(self.found), |hash| Err(DescentError::Missing(hash)))
    }

    /// The source's set; what is equal to the known set is shared with it.
    ///
    /// # Errors
    /// As [`Descent::finish`], and when the nodes are not those of a canonical trie.
    pub fn into_set(mut self) -> Result<ObjectSet, DescentError> {
        let (roots, mut set) = (std::mem::take(&mut self.roots), std::mem::take(&mut self.known));
        let found = self.finish()?;
        let gone = found.orphans.into_iter().map(|(section, leaf)| (section, leaf.position, None));
        let put = found.differing.into_iter().map(|(section, leaf)| (section, leaf.position, Some(leaf)));
        set.edit_leaves(gone.chain(put));
        if roots.iter().any(|(section, root)| set.section(section).hash() != *root) {
            return Err(ChunkError::Malformed("a branch of too few leaves").into());
        }
        Ok(set)
    }
}
