//! Chunks: the pieces in which sets and selections are stored and uploaded.
//!
//! Each is named by the hash it stands for in the tree, so a receiver can check it alone,
//! and one that holds a chunk holds everything below it. Sending a tree is then a walk
//! from the top that stops where the other side already has the hash: the work is in
//! proportion to the difference.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Digest;
use crate::object::{Kind, SectionKey, Stub};
use crate::selection::{PatternEntry, Selection, patterns_digest, root_of};
use crate::set::{MAX_SECTIONS, ObjectSet, leaf, root_of_sections};
use crate::trie::{BUCKET, Leaf, Top, Trie, TrieNode, bucket_hash};

/// A piece of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "lowercase")]
pub enum TreeChunk {
    /// A set: its sections.
    Set {
        /// In order.
        sections: Vec<SectionChunk>,
    },
    /// Sixteen subtrees; zero where there is none.
    Branch {
        /// Their hashes.
        children: Box<[Digest; 16]>,
    },
    /// Leaves of one section.
    Bucket {
        /// The section's kind.
        kind: String,
        /// The section's namespace.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        namespace: String,
        /// In the order of `H(name)`.
        leaves: Vec<LeafChunk>,
    },
    /// A selection.
    Selection {
        /// The root of the exact entries.
        exact: Digest,
        /// The patterns in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        patterns: Vec<PatternEntry>,
    },
}

/// A section of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SectionChunk {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its root, when it has more than one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Digest>,
    /// Its object, when it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf: Option<LeafChunk>,
}

/// An object of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeafChunk {
    /// Its name.
    pub name: Arc<str>,
    /// Uid, digest and size.
    #[serde(flatten)]
    pub stub: Stub,
}

impl LeafChunk {
    pub(crate) fn of(leaf: &Leaf) -> LeafChunk {
        LeafChunk { name: leaf.name.clone(), stub: leaf.stub.clone() }
    }
}

/// A chunk breaks the form of its sort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// How.
    #[error("malformed chunk: {0}")]
    Malformed(&'static str),
}

/// What a chunk needs below it.
#[derive(Debug, Default)]
pub struct Needs {
    /// Chunks.
    pub chunks: Vec<Digest>,
    /// Contents, with their sizes.
    pub contents: Vec<(Digest, u64)>,
}

impl TreeChunk {
    /// The hash that this chunk stands for.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn hash(&self) -> Result<Digest, ChunkError> {
        match self {
            TreeChunk::Set { sections } => {
                let roots = section_roots(sections)?;
                Ok(root_of_sections(roots.iter().map(|(key, root)| (key, *root))))
            }
            TreeChunk::Branch { children } => Ok(TrieNode::branch_hash(children)),
            TreeChunk::Bucket { kind, namespace, leaves } => {
                if leaves.is_empty() || leaves.len() > BUCKET {
                    return Err(ChunkError::Malformed("1 to 8 leaves"));
                }
                let section = section_key(kind, namespace);
                let leaves = leaves.iter().map(|l| leaf(&section, l.name.clone(), l.stub.clone()));
                let pairs: Vec<_> = leaves.map(|leaf| (leaf.position, leaf.hash)).collect();
                if !pairs.is_sorted_by(|a, b| a.0 < b.0) {
                    return Err(ChunkError::Malformed("leaves out of order"));
                }
                Ok(bucket_hash(pairs))
            }
            TreeChunk::Selection { exact, patterns } => {
                let patterns = patterns_digest(patterns).map_err(|_| ChunkError::Malformed("patterns"))?;
                Ok(root_of(exact, &patterns))
            }
        }
    }

    /// The node of a trie, and the section that a bucket is of; `None` for the top of a tree.
    pub fn into_node(self) -> Option<(SectionKey, TrieNode)> {
        match self {
            TreeChunk::Branch { children } => Some((section_key("", ""), TrieNode::Branch(children))),
            TreeChunk::Bucket { kind, namespace, leaves } => {
                Some((section_key(&kind, &namespace), TrieNode::Bucket(leaves)))
            }
            TreeChunk::Set { .. } | TreeChunk::Selection { .. } => None,
        }
    }

    /// What must be present before this chunk counts.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        match self {
            TreeChunk::Set { sections } => {
                for section in sections {
                    needs.chunks.extend(section.root);
                    needs.contents.extend(section.leaf.iter().map(|l| (l.stub.digest, l.stub.size)));
                }
            }
            TreeChunk::Branch { children } => {
                needs.chunks.extend(children.iter().filter(|hash| **hash != Digest::ZERO));
            }
            TreeChunk::Bucket { kind, leaves, .. } if kind != Kind::SELECTION => {
                needs.contents.extend(leaves.iter().map(|l| (l.stub.digest, l.stub.size)));
            }
            TreeChunk::Bucket { leaves, .. } => needs.chunks.extend(leaves.iter().map(|l| l.stub.digest)),
            TreeChunk::Selection { exact, patterns } => {
                needs.chunks.extend((*exact != Digest::ZERO).then_some(exact));
                needs.chunks.extend(patterns.iter().map(|pattern| pattern.entry.root));
            }
        }
        needs
    }
}

fn section_key(kind: &str, namespace: &str) -> SectionKey {
    SectionKey { kind: Kind::new(kind), namespace: namespace.into() }
}

/// The roots of a set's sections.
pub(crate) fn section_roots(sections: &[SectionChunk]) -> Result<Vec<(SectionKey, Digest)>, ChunkError> {
    let mut roots = Vec::with_capacity(sections.len());
    for section in sections {
        let key = section_key(&section.kind, &section.namespace);
        let root = match (&section.root, &section.leaf) {
            (Some(root), None) => *root,
            (None, Some(only)) => {
                let leaf = leaf(&key, only.name.clone(), only.stub.clone());
                bucket_hash([(leaf.position, leaf.hash)])
            }
            _ => return Err(ChunkError::Malformed("a section has a root or one leaf")),
        };
        roots.push((key, root));
    }
    if !roots.is_sorted_by(|a, b| a.0 < b.0) || roots.len() > MAX_SECTIONS {
        return Err(ChunkError::Malformed("sections out of order, or too many"));
    }
    Ok(roots)
}

/// The chunk of a set's top.
pub fn of_set(set: &ObjectSet) -> TreeChunk {
    let sections = set.sections().map(|(key, trie)| {
        let leaf = match trie.top() {
            Top::Bucket([only]) => Some(LeafChunk::of(only)),
            Top::Bucket(_) | Top::Branch(_) => None,
        };
        let root = leaf.is_none().then(|| trie.hash());
        SectionChunk { kind: key.kind.to_string(), namespace: key.namespace.to_string(), root, leaf }
    });
    TreeChunk::Set { sections: sections.collect() }
}

/// The chunk of a trie's top; `None` for the empty trie.
pub fn of_trie(section: &SectionKey, trie: &Trie) -> Option<TreeChunk> {
    match TrieNode::of(trie) {
        TrieNode::Branch(children) => Some(TreeChunk::Branch { children }),
        TrieNode::Bucket(leaves) if leaves.is_empty() => None,
        TrieNode::Bucket(leaves) => {
            let (kind, namespace) = (section.kind.to_string(), section.namespace.to_string());
            Some(TreeChunk::Bucket { kind, namespace, leaves })
        }
    }
}

/// The chunk of a selection's top.
pub fn of_selection(selection: &Selection) -> TreeChunk {
    TreeChunk::Selection { exact: selection.exact().hash(), patterns: selection.patterns().to_vec() }
}
