//! The persistent radix trie under every section.
//!
//! 16-way on the nibbles of `H(name)`. A subtree of at most [`BUCKET`] leaves is one flat
//! bucket, so shape and hash are a function of the leaves alone. Subtrees are shared: an
//! edit copies only its path, and equal subtrees are recognised by hash.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Digest;
use crate::chunk::LeafChunk;
use crate::digest::Hasher;
use crate::object::Stub;

/// The most leaves in a flat bucket.
pub const BUCKET: usize = 8;
const EMPTY: &[Arc<Leaf>] = &[];

/// An object in a trie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// `H(name)`: where the leaf hangs.
    pub position: Digest,
    /// The leaf hash.
    pub hash: Digest,
    /// The object's name.
    pub name: Arc<str>,
    /// Uid, digest and size.
    pub stub: Stub,
}

/// A subtree. `Default` is the empty one.
#[derive(Clone, Debug, Default)]
pub struct Trie(Option<Arc<Branching>>);

#[derive(Debug)]
struct Branching {
    hash: Digest,
    count: usize,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    Bucket(Vec<Arc<Leaf>>),
    Branch([Trie; 16]),
}

/// What stands at one position of a trie, without what is below it: as it is stored, and as the
/// source of a resync answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrieNode {
    /// The hashes of sixteen subtrees; zero where there is none.
    Branch(Box<[Digest; 16]>),
    /// At most [`BUCKET`] leaves, in the order of `H(name)`.
    Bucket(Vec<LeafChunk>),
}

impl TrieNode {
    /// The node at the top of a trie.
    pub fn of(trie: &Trie) -> TrieNode {
        match trie.top() {
            Top::Branch(children) => TrieNode::Branch(Box::new(children.each_ref().map(Trie::hash))),
            Top::Bucket(leaves) => TrieNode::Bucket(leaves.iter().map(|leaf| LeafChunk::of(leaf)).collect()),
        }
    }

    /// The hash of a branch.
    pub fn branch_hash(children: &[Digest; 16]) -> Digest {
        branch_levels(children)[4][0]
    }
}

/// What a trie's top is, for walks that send or compare it level by level.
pub enum Top<'a> {
    /// At most [`BUCKET`] leaves, in the order of `H(name)`.
    Bucket(&'a [Arc<Leaf>]),
    /// Sixteen subtrees.
    Branch(&'a [Trie; 16]),
}

impl Trie {
    /// Builds a trie from leaves; of two with one name the later wins.
    pub fn build(leaves: impl IntoIterator<Item = Leaf>) -> Trie {
        let by_position: BTreeMap<Digest, Arc<Leaf>> =
            leaves.into_iter().map(|leaf| (leaf.position, Arc::new(leaf))).collect();
        let leaves: Vec<Arc<Leaf>> = by_position.into_values().collect();
        Trie::of_sorted(&leaves, 0)
    }

    fn of_sorted(leaves: &[Arc<Leaf>], depth: usize) -> Trie {
        if leaves.is_empty() {
            return Trie(None);
        }
        if leaves.len() <= BUCKET {
            return Trie::bucket(leaves.to_vec());
        }
        let mut rest = leaves;
        let children = std::array::from_fn(|nibble| {
            let here = rest.partition_point(|leaf| nibble_at(&leaf.position, depth) <= nibble);
            let (below, others) = rest.split_at(here);
            rest = others;
            Trie::of_sorted(below, depth + 1)
        });
        Trie::branch(children, leaves.len())
    }

    fn bucket(leaves: Vec<Arc<Leaf>>) -> Trie {
        let pairs = leaves.iter().map(|leaf| (leaf.position, leaf.hash));
        let hash = bucket_hash(pairs);
        Trie(Some(Arc::new(Branching { hash, count: leaves.len(), shape: Shape::Bucket(leaves) })))
    }

    fn branch(children: [Trie; 16], count: usize) -> Trie {
        let hash = TrieNode::branch_hash(&children.each_ref().map(Trie::hash));
        Trie(Some(Arc::new(Branching { hash, count, shape: Shape::Branch(children) })))
    }

    /// The hash of everything below; zero when empty.
    pub fn hash(&self) -> Digest {
        self.0.as_ref().map_or(Digest::ZERO, |top| top.hash)
    }

    /// How many leaves there are.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |top| top.count)
    }

    /// There is no leaf.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The top: a bucket or a branch.
    pub fn top(&self) -> Top<'_> {
        match self.0.as_deref() {
            None => Top::Bucket(EMPTY),
            Some(Branching { shape: Shape::Bucket(leaves), .. }) => Top::Bucket(leaves),
            Some(Branching { shape: Shape::Branch(children), .. }) => Top::Branch(children),
        }
    }

    /// The leaf of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<Leaf>> {
        let position = Digest::of(name.as_bytes());
        let (mut at, mut depth) = (self, 0);
        loop {
            match at.top() {
                Top::Bucket(leaves) => return leaves.iter().find(|leaf| leaf.position == position),
                Top::Branch(children) => at = &children[nibble_at(&position, depth)],
            }
            depth += 1;
        }
    }

    /// The trie with a leaf added or replaced.
    pub fn with(&self, leaf: Leaf) -> Trie {
        self.edit_sorted(&[(leaf.position, Some(Arc::new(leaf)))], 0)
    }

    /// The trie without a name.
    pub fn without(&self, name: &str) -> Trie {
        self.edit_sorted(&[(Digest::of(name.as_bytes()), None)], 0)
    }

    /// The trie after many edits at once: for each position a leaf, or nothing. Every branch on
    /// the way is hashed once, however many edits are below it. Of two edits of one position the
    /// later wins.
    pub fn edit_all(&self, edits: impl IntoIterator<Item = (Digest, Option<Leaf>)>) -> Trie {
        let by_position: BTreeMap<Digest, Option<Arc<Leaf>>> =
            edits.into_iter().map(|(position, leaf)| (position, leaf.map(Arc::new))).collect();
        let edits: Vec<(Digest, Option<Arc<Leaf>>)> = by_position.into_iter().collect();
        self.edit_sorted(&edits, 0)
    }

    fn edit_sorted(&self, edits: &[(Digest, Option<Arc<Leaf>>)], depth: usize) -> Trie {
        if edits.is_empty() {
            return self.clone();
        }
        match self.top() {
            Top::Bucket(leaves) => Trie::of_sorted(&merge(leaves, edits), depth),
            Top::Branch(children) => {
                let mut rest = edits;
                let children: [Trie; 16] = std::array::from_fn(|nibble| {
                    let here = rest.partition_point(|(position, _)| nibble_at(position, depth) <= nibble);
                    let (below, others) = rest.split_at(here);
                    rest = others;
                    children[nibble].edit_sorted(below, depth + 1)
                });
                let count = children.iter().map(Trie::len).sum();
                if count <= BUCKET {
                    let leaves: Vec<_> = children.iter().flat_map(|child| child.leaves()).cloned().collect();
                    return Trie::of_sorted(&leaves, depth);
                }
                Trie::branch(children, count)
            }
        }
    }

    /// What hangs under a nibble of this subtree, which is at `depth`: of a bucket those of
    /// its leaves that would go there.
    pub fn child(&self, nibble: usize, depth: usize) -> Trie {
        match self.top() {
            Top::Branch(children) => children[nibble].clone(),
            Top::Bucket(leaves) => {
                let below: Vec<_> = leaves
                    .iter()
                    .filter(|leaf| nibble_at(&leaf.position, depth) == nibble)
                    .cloned()
                    .collect();
                Trie::of_sorted(&below, depth + 1)
            }
        }
    }

    /// The subtree at a path of nibbles from the root, each below 16.
    pub fn at(&self, path: &[u8]) -> Trie {
        let mut at = self.clone();
        for (depth, nibble) in path.iter().enumerate() {
            at = at.child(usize::from(*nibble), depth);
        }
        at
    }

    /// All leaves in the order of `H(name)`.
    pub fn leaves(&self) -> impl Iterator<Item = &Arc<Leaf>> {
        let mut stack = vec![self];
        let mut bucket: std::slice::Iter<'_, Arc<Leaf>> = [].iter();
        std::iter::from_fn(move || {
            loop {
                if let Some(leaf) = bucket.next() {
                    return Some(leaf);
                }
                match stack.pop()?.top() {
                    Top::Bucket(leaves) => bucket = leaves.iter(),
                    Top::Branch(children) => stack.extend(children.iter().rev()),
                }
            }
        })
    }

    /// Calls `differs(old, new)` for each name whose leaf differs. Equal subtrees are not
    /// entered, so the cost is in proportion to the difference: returned is how many pairs
    /// of subtrees were compared.
    pub fn diff<'a>(
        old: &'a Trie,
        new: &'a Trie,
        differs: &mut impl FnMut(Option<&'a Arc<Leaf>>, Option<&'a Arc<Leaf>>),
    ) -> usize {
        if old.hash() == new.hash() {
            return 1;
        }
        if let (Top::Branch(olds), Top::Branch(news)) = (old.top(), new.top()) {
            return 1 + olds.iter().zip(news).map(|(old, new)| Trie::diff(old, new, differs)).sum::<usize>();
        }
        let (mut olds, mut news) = (old.leaves().peekable(), new.leaves().peekable());
        loop {
            match (olds.peek(), news.peek()) {
                (None, None) => return 1,
                (Some(a), Some(b)) if a.position == b.position => {
                    if a.hash != b.hash {
                        differs(Some(a), Some(b));
                    }
                    olds.next();
                    news.next();
                }
                (Some(a), b) if b.is_none_or(|b| a.position < b.position) => {
                    differs(Some(a), None);
                    olds.next();
                }
                (_, Some(b)) => {
                    differs(None, Some(b));
                    news.next();
                }
                (Some(a), None) => {
                    differs(Some(a), None);
                    olds.next();
                }
            }
        }
    }
}

impl PartialEq for Trie {
    fn eq(&self, other: &Trie) -> bool {
        self.hash() == other.hash()
    }
}

impl Eq for Trie {}

/// Leaves after edits, both in the order of positions.
fn merge(leaves: &[Arc<Leaf>], edits: &[(Digest, Option<Arc<Leaf>>)]) -> Vec<Arc<Leaf>> {
    let mut merged = Vec::with_capacity(leaves.len() + edits.len());
    let mut olds = leaves.iter().peekable();
    for (position, leaf) in edits {
        while let Some(old) = olds.next_if(|old| old.position < *position) {
            merged.push(old.clone());
        }
        olds.next_if(|old| old.position == *position);
        merged.extend(leaf.clone());
    }
    merged.extend(olds.cloned());
    merged
}

/// The nibble of a position that chooses the child at this depth.
pub fn nibble_at(position: &Digest, depth: usize) -> usize {
    let byte = position.0[(depth / 2) % 32];
    usize::from(if depth.is_multiple_of(2) { byte >> 4 } else { byte & 0x0f })
}

/// The hash of a bucket from `(position, leaf hash)` pairs in order; zero when there is none.
pub fn bucket_hash(pairs: impl IntoIterator<Item = (Digest, Digest)>) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update(&[0x01, b'b']);
    let mut any = false;
    for (position, leaf) in pairs {
        any = true;
        hasher.update(position.as_bytes());
        hasher.update(leaf.as_bytes());
    }
    if any { hasher.finish() } else { Digest::ZERO }
}

/// The hash of two neighbours in a branch.
pub fn pair_hash(left: &Digest, right: &Digest) -> Digest {
    Digest::of_parts([&[0x01, b'n'][..], left.as_bytes(), right.as_bytes()])
}

/// The binary tree over a branch's sixteen children: levels of 16, 8, 4, 2 and 1. A proof
/// then needs four siblings a branch, not fifteen.
pub fn branch_levels(children: &[Digest; 16]) -> [Vec<Digest>; 5] {
    let mut levels = [children.to_vec(), vec![], vec![], vec![], vec![]];
    for level in 1..5 {
        levels[level] = levels[level - 1].chunks(2).map(|pair| pair_hash(&pair[0], &pair[1])).collect();
    }
    levels
}
