//! What is published now, read from the control plane as far as it differs.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::chunk::{self, Chunk, ChunkError, LeafChunk};
use model::selection::{Entry, PatternEntry};
use model::trie::{Leaf, Top, Trie, nibble_at};
use model::{Digest, ObjectSet, Selection};
use server::api::{self, Digests, MAX_FETCH};

use crate::operator::{CallError, Operator};

/// The deepest that a trie may be; names differ long before.
const MAX_DEPTH: usize = 64;

/// Why what is published cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The control plane did not answer, or refused.
    #[error("the control plane could not be asked")]
    Call(#[from] CallError),
    /// A chunk is not what its digest says, or not there.
    #[error("the control plane holds a broken release")]
    Chunk(#[from] ChunkError),
}

/// The top of a published selection.
#[derive(Clone, Debug)]
pub struct OldTop {
    /// The root of its exact entries.
    pub exact: Digest,
    /// Its patterns in order.
    pub patterns: Vec<PatternEntry>,
}

/// A node whose exact entry differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExactChange {
    /// What it had.
    pub old: Option<Entry>,
    /// What it gets.
    pub new: Option<Entry>,
}

/// Reads the top of a published selection.
///
/// # Errors
/// When it cannot be read.
pub async fn top(operator: &Operator, root: &Digest) -> Result<OldTop, RemoteError> {
    let mut fetched = fetch(operator, &[*root]).await?;
    match fetched.remove(root) {
        Some(Chunk::Selection { exact, patterns }) => Ok(OldTop { exact, patterns }),
        Some(_) => Err(ChunkError::Malformed("not a selection").into()),
        None => Err(ChunkError::Missing(*root).into()),
    }
}

/// One place where old and new differ.
struct ChunkDifference {
    old: Digest,
    new: Vec<Arc<Leaf>>,
    /// The new side's subtrees, while both sides branch.
    branch: Option<Trie>,
    depth: usize,
}

/// The exact entries that differ between a published selection and a new one, by hostname.
/// Only chunks that differ are read.
///
/// # Errors
/// When a chunk cannot be read.
pub async fn changed(
    operator: &Operator,
    old: &OldTop,
    new: &Trie,
) -> Result<BTreeMap<Arc<str>, ExactChange>, RemoteError> {
    let mut changes = BTreeMap::new();
    let mut level = Vec::new();
    place(&mut level, &mut changes, old.exact, new.clone(), 0);
    while !level.is_empty() {
        let hashes: Vec<Digest> = level.iter().map(|place| place.old).collect();
        let fetched = fetch(operator, &hashes).await?;
        let mut next = Vec::new();
        for here in level {
            let chunk = fetched.get(&here.old).ok_or(ChunkError::Missing(here.old))?;
            descend(here, chunk, &mut next, &mut changes)?;
        }
        level = next;
    }
    Ok(changes)
}

/// Notes a place to look at, unless both sides are alike there or the old side is empty.
fn place(
    level: &mut Vec<ChunkDifference>,
    changes: &mut BTreeMap<Arc<str>, ExactChange>,
    old: Digest,
    new: Trie,
    depth: usize,
) {
    if old == new.hash() {
        return;
    }
    if old == Digest::ZERO {
        new.leaves().for_each(|leaf| compare(changes, None, Some(leaf)));
        return;
    }
    let (leaves, branch) = match new.top() {
        Top::Bucket(leaves) => (leaves.to_vec(), None),
        Top::Branch(_) => (Vec::new(), Some(new)),
    };
    level.push(ChunkDifference { old, new: leaves, branch, depth });
}

fn descend(
    here: ChunkDifference,
    chunk: &Chunk,
    next: &mut Vec<ChunkDifference>,
    changes: &mut BTreeMap<Arc<str>, ExactChange>,
) -> Result<(), RemoteError> {
    let ChunkDifference { new, branch, depth, .. } = here;
    match chunk {
        Chunk::Branch { children } => {
            if depth >= MAX_DEPTH {
                return Err(ChunkError::Malformed("a trie that is too deep").into());
            }
            for (nibble, old) in children.iter().enumerate() {
                let sub = match branch.as_ref().map(Trie::top) {
                    Some(Top::Branch(tries)) => tries.get(nibble).cloned().unwrap_or_default(),
                    _ => part(&new, nibble, depth),
                };
                place(next, changes, *old, sub, depth + 1);
            }
            Ok(())
        }
        Chunk::Bucket { leaves, .. } => {
            let new: Vec<Arc<Leaf>> = branch.map_or(new, |trie| trie.leaves().cloned().collect());
            for old in leaves {
                let same = new.iter().find(|leaf| leaf.name == old.name);
                compare(changes, Some(old), same);
            }
            for leaf in new.iter().filter(|leaf| !leaves.iter().any(|old| old.name == leaf.name)) {
                compare(changes, None, Some(leaf));
            }
            Ok(())
        }
        Chunk::Set { .. } | Chunk::Selection { .. } => Err(ChunkError::Malformed("not a trie").into()),
    }
}

/// The leaves that hang below one child.
fn part(leaves: &[Arc<Leaf>], nibble: usize, depth: usize) -> Trie {
    let own = leaves.iter().filter(|leaf| nibble_at(&leaf.place, depth) == nibble);
    Trie::build(own.map(|leaf| Leaf {
        place: leaf.place,
        hash: leaf.hash,
        name: leaf.name.clone(),
        stub: leaf.stub.clone(),
    }))
}

fn compare(changes: &mut BTreeMap<Arc<str>, ExactChange>, old: Option<&LeafChunk>, new: Option<&Arc<Leaf>>) {
    let entry = |channel: &str, root| Some(Entry { channel: channel.parse().ok()?, root });
    let was = old.and_then(|leaf| entry(&leaf.stub.uid, leaf.stub.digest));
    let is = new.and_then(|leaf| Selection::entry_of(leaf));
    let name = old.map(|leaf| &leaf.name).or(new.map(|leaf| &leaf.name));
    if let (Some(name), true) = (name, was != is) {
        changes.insert(name.clone(), ExactChange { old: was, new: is });
    }
}

/// Chunks by digest, each verified; those that are not stored are left out.
async fn fetch(operator: &Operator, digests: &[Digest]) -> Result<BTreeMap<Digest, Chunk>, RemoteError> {
    let mut found = BTreeMap::new();
    for part in digests.chunks(MAX_FETCH) {
        let asked = Digests { chunks: part.to_vec(), contents: Vec::new() };
        for chunk in operator.call(&api::FETCH, asked).await?.chunks {
            found.insert(chunk.hash()?, chunk);
        }
    }
    Ok(found)
}

/// Sets of published releases, read together and kept.
#[derive(Default)]
pub struct OldSets {
    chunks: BTreeMap<Digest, Chunk>,
}

impl OldSets {
    /// Reads the chunks of these sets, level by level.
    ///
    /// # Errors
    /// When one cannot be read.
    pub async fn load(&mut self, operator: &Operator, roots: &[Digest]) -> Result<(), RemoteError> {
        let mut level: Vec<Digest> = roots.to_vec();
        loop {
            level.sort_unstable();
            level.dedup();
            level.retain(|digest| !self.chunks.contains_key(digest));
            if level.is_empty() {
                return Ok(());
            }
            let fetched = fetch(operator, &level).await?;
            if let Some(missing) = level.iter().find(|digest| !fetched.contains_key(*digest)) {
                return Err(ChunkError::Missing(*missing).into());
            }
            level = fetched.values().flat_map(|chunk| chunk.needs().chunks).collect();
            self.chunks.extend(fetched);
        }
    }

    /// A set that was loaded.
    ///
    /// # Errors
    /// When it was not, or is malformed.
    pub fn get(&self, root: &Digest) -> Result<ObjectSet, RemoteError> {
        Ok(chunk::read_set(root, &mut |digest| self.chunks.get(digest).cloned())?)
    }
}
