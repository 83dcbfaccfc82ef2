//! What is published now, read from the control plane as far as it differs.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::chunk::{ChunkError, TreeChunk};
use model::descent::{self, Descent, DescentError, Frontier, MAX_OBJECTS};
use model::selection::{PatternEntry, SelectionEntry};
use model::{Digest, ObjectSet, Selection, Trie};
use server::api::{self, Digests, MAX_FETCH};

use crate::operator::{Operator, OperatorCallError};

/// Why what is published cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The control plane did not answer, or refused.
    #[error("the control plane could not be asked")]
    Call(#[from] OperatorCallError),
    /// A chunk is not what its digest says, or not there.
    #[error("the control plane holds a broken release")]
    Descent(#[from] DescentError),
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
    pub old: Option<SelectionEntry>,
    /// What it gets.
    pub new: Option<SelectionEntry>,
}

/// Reads the top of a published selection.
///
/// # Errors
/// When it cannot be read.
pub async fn top(operator: &Operator, root: &Digest) -> Result<OldTop, RemoteError> {
    match fetch(operator, &[*root]).await?.remove(root) {
        Some(TreeChunk::Selection { exact, patterns }) => Ok(OldTop { exact, patterns }),
        _ => Err(DescentError::from(ChunkError::Malformed("not a selection")).into()),
    }
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
    let section = Selection::section();
    let known = ObjectSet::of_sections([(section.clone(), new.clone())]);
    let mut descent = Descent::new([(section, old.exact)], known, MAX_OBJECTS)?;
    read(operator, &mut descent).await?;
    let found = descent.finish()?;
    let differing = found.differing.iter().map(|(_, leaf)| {
        let new = new.get(&leaf.name).and_then(|leaf| Selection::entry_of(leaf));
        (leaf.name.clone(), ExactChange { old: Selection::entry_of(leaf), new })
    });
    let added = found
        .orphans
        .iter()
        .map(|(_, leaf)| (leaf.name.clone(), ExactChange { old: None, new: Selection::entry_of(leaf) }));
    Ok(differing.chain(added).collect())
}

/// A published selection, whole, without its sets.
///
/// # Errors
/// When it cannot be read.
pub async fn selection(operator: &Operator, top: &OldTop) -> Result<Selection, RemoteError> {
    let mut descent = Descent::new([(Selection::section(), top.exact)], ObjectSet::new(), MAX_OBJECTS)?;
    read(operator, &mut descent).await?;
    let leaves = descent.finish()?.differing.into_iter().map(|(_, leaf)| leaf);
    Ok(Selection::new(Trie::build(leaves), top.patterns.clone()))
}

/// Reads what a descent needs.
async fn read(operator: &Operator, descent: &mut Descent) -> Result<(), RemoteError> {
    while descent.need().is_some() {
        let needs: Vec<Digest> = descent.needs().take(MAX_FETCH).collect();
        for chunk in fetch(operator, &needs).await?.into_values() {
            descent.supply(chunk)?;
        }
    }
    Ok(())
}

/// Chunks by digest, each verified: all that are asked for, at most [`MAX_FETCH`].
pub(crate) async fn fetch(
    operator: &Operator,
    digests: &[Digest],
) -> Result<BTreeMap<Digest, TreeChunk>, RemoteError> {
    let mut found = BTreeMap::new();
    let asked = Digests { chunks: digests.to_vec(), contents: Vec::new() };
    for chunk in operator.call(&api::FETCH, asked).await?.chunks {
        found.insert(chunk.hash().map_err(DescentError::from)?, chunk);
    }
    match digests.iter().find(|digest| !found.contains_key(*digest)) {
        Some(missing) => Err(DescentError::Missing(*missing).into()),
        None => Ok(found),
    }
}

/// Sets of published releases, read together and kept.
#[derive(Default)]
pub struct OldSets {
    frontier: Frontier<()>,
    chunks: BTreeMap<Digest, TreeChunk>,
}

impl OldSets {
    /// Reads the chunks of these sets, many at a time.
    ///
    /// # Errors
    /// When one cannot be read.
    pub async fn load(&mut self, operator: &Operator, roots: &[Digest]) -> Result<(), RemoteError> {
        roots.iter().for_each(|root| self.frontier.add(*root, ()));
        loop {
            let asked: Vec<Digest> =
                self.frontier.take(MAX_FETCH).into_iter().map(|(hash, ())| hash).collect();
            if asked.is_empty() {
                return Ok(());
            }
            let fetched = fetch(operator, &asked).await?;
            let below = fetched.values().flat_map(|chunk| chunk.needs().chunks);
            below.for_each(|digest| self.frontier.add(digest, ()));
            self.chunks.extend(fetched);
        }
    }

    /// A set that was loaded.
    ///
    /// # Errors
    /// When it was not, or is malformed.
    pub fn get(&self, root: &Digest) -> Result<ObjectSet, RemoteError> {
        descent::read_set(root, &mut |digest| Ok(self.chunks.get(digest).cloned()))
    }
}
