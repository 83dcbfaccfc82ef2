//! Chunks as a closed whole: whoever has a chunk has everything below it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use model::chunk::{ChunkError, LeafChunk, Needs, TreeChunk};
use model::descent::{Descent, DescentError, MAX_OBJECTS};
use model::{Digest, Kind, ObjectSet, Selection};
use rusqlite::Connection;

use crate::error::{PutError, Result, StoreError};
use crate::sqlite::chunks;
use crate::{MAX_CHUNK_BYTES, MAX_CHUNKS_IN_PUT, MAX_PUT_BYTES};

/// The highest tower of chunks: a selection, a trie of hosts, a set and a trie of its
/// objects, each trie with one level for every nibble of a digest at most. Readers of
/// trees recurse, so this bounds their stack.
pub(crate) const MAX_HEIGHT: u32 = 2 * (64 + 1);

/// A chunk that is well-formed, in the form in which it is stored.
pub(crate) struct Prepared {
    pub(crate) body: Vec<u8>,
    pub(crate) needs: Needs,
    /// The contents among them that may name blobs.
    pub(crate) modules: Vec<Digest>,
}

/// The contents right below a chunk that may name blobs: those of modules.
pub(crate) fn modules(chunk: &TreeChunk) -> Vec<Digest> {
    let leaves: Vec<&LeafChunk> = match chunk {
        TreeChunk::Set { sections } => {
            let modules = sections.iter().filter(|section| section.kind == Kind::MODULE);
            modules.filter_map(|section| section.leaf.as_ref()).collect()
        }
        TreeChunk::Bucket { kind, leaves, .. } if kind == Kind::MODULE => leaves.iter().collect(),
        TreeChunk::Bucket { .. } | TreeChunk::Branch { .. } | TreeChunk::Selection { .. } => Vec::new(),
    };
    leaves.into_iter().map(|leaf| leaf.stub.digest).collect()
}

/// Hashes and encodes chunks; returns their digests in the order given, and each once.
pub(crate) fn prepare(chunks: &[TreeChunk]) -> Result<(Vec<Digest>, BTreeMap<Digest, Prepared>), PutError> {
    limit("chunks in one put", chunks.len() as u64, MAX_CHUNKS_IN_PUT as u64)?;
    let mut digests = Vec::with_capacity(chunks.len());
    let mut prepared = BTreeMap::new();
    for chunk in chunks {
        let digest = chunk.hash().map_err(|error| PutError::Malformed(error.to_string()))?;
        let body = encode(chunk)?;
        limit("chunk in bytes", body.len() as u64, MAX_CHUNK_BYTES as u64)?;
        digests.push(digest);
        prepared.insert(digest, Prepared { body, needs: chunk.needs(), modules: modules(chunk) });
    }
    Ok((digests, prepared))
}

/// Hashes contents and holds them to their bounds.
pub(crate) fn prepare_contents(contents: &[Bytes]) -> Result<Vec<Digest>, PutError> {
    for content in contents {
        limit("content in bytes", content.len() as u64, model::object::MAX_BLOB)?;
    }
    let total = contents.iter().map(|content| content.len() as u64).sum();
    limit("contents in one put, in bytes", total, MAX_PUT_BYTES)?;
    Ok(contents.iter().map(|content| Digest::of(content)).collect())
}

/// Refuses a size over its limit.
pub(crate) fn limit(what: &'static str, size: u64, limit: u64) -> Result<()> {
    if size > limit { Err(StoreError::TooLarge { what, size, limit }) } else { Ok(()) }
}

/// The stored form of a chunk.
pub(crate) fn encode(chunk: &TreeChunk) -> Result<Vec<u8>> {
    serde_json::to_vec(chunk)
        .map_err(|error| StoreError::Backend { operation: "encode a chunk", source: Arc::new(error) })
}

/// A chunk from its stored form.
pub(crate) fn decode(body: &[u8]) -> Result<TreeChunk> {
    serde_json::from_slice(body).map_err(|error| StoreError::Corrupt(format!("a chunk: {error}")))
}

/// Checks that everything the chunks need is stored or among them, with the sizes that
/// they say; returns each chunk's height.
pub(crate) fn check(
    chunks: &BTreeMap<Digest, Prepared>,
    stored: &Connection,
) -> Result<BTreeMap<Digest, u32>, PutError> {
    let mut check = Check {
        chunks,
        stored,
        heights: BTreeMap::new(),
        sizes: BTreeMap::new(),
        looked_into: BTreeSet::new(),
        missing: Default::default(),
    };
    for digest in chunks.keys() {
        check.height(digest, 0)?;
    }
    let (missing_chunks, missing_contents) = check.missing;
    if missing_chunks.is_empty() && missing_contents.is_empty() {
        let mut heights = check.heights;
        heights.retain(|digest, _| chunks.contains_key(digest));
        return Ok(heights);
    }
    Err(PutError::NotComplete {
        chunks: missing_chunks.into_iter().collect(),
        contents: missing_contents.into_iter().collect(),
    })
}

struct Check<'a> {
    chunks: &'a BTreeMap<Digest, Prepared>,
    stored: &'a Connection,
    heights: BTreeMap<Digest, u32>,
    sizes: BTreeMap<Digest, u64>,
    looked_into: BTreeSet<Digest>,
    missing: (BTreeSet<Digest>, BTreeSet<Digest>),
}

impl Check<'_> {
    fn height(&mut self, digest: &Digest, depth: u32) -> Result<u32, PutError> {
        if let Some(height) = self.heights.get(digest) {
            return Ok(*height);
        }
        let height = match self.chunks.get(digest) {
            Some(prepared) => self.height_of_new(prepared, depth)?,
            None => match chunks::height(self.stored, digest)? {
                Some(height) => height,
                None => {
                    self.missing.0.insert(*digest);
                    0
                }
            },
        };
        if height > MAX_HEIGHT {
            return Err(PutError::Malformed(format!("more than {MAX_HEIGHT} chunks above one another")));
        }
        self.heights.insert(*digest, height);
        Ok(height)
    }

    fn height_of_new(&mut self, prepared: &Prepared, depth: u32) -> Result<u32, PutError> {
        // A chunk cannot be below itself, but a tower in one call could still be too high
        // for this walk.
        if depth > MAX_HEIGHT {
            return Err(PutError::Malformed(format!("more than {MAX_HEIGHT} chunks above one another")));
        }
        for (digest, claimed) in &prepared.needs.contents {
            self.content(digest, *claimed)?;
        }
        for module in &prepared.modules {
            self.blobs(module)?;
        }
        let mut below = 0;
        for digest in &prepared.needs.chunks {
            below = below.max(self.height(digest, depth + 1)?);
        }
        Ok(below + 1)
    }

    /// The blobs that a module names are below it as well.
    fn blobs(&mut self, module: &Digest) -> Result<(), PutError> {
        if !self.looked_into.insert(*module) {
            return Ok(());
        }
        for blob in chunks::blobs(self.stored, module)? {
            if chunks::size(self.stored, &blob)?.is_none() {
                self.missing.1.insert(blob);
            }
        }
        Ok(())
    }

    fn content(&mut self, digest: &Digest, claimed: u64) -> Result<(), PutError> {
        let stored = match self.sizes.get(digest) {
            Some(size) => Some(*size),
            None => chunks::size(self.stored, digest)?,
        };
        match stored {
            Some(stored) if stored != claimed => {
                Err(PutError::WrongSize { digest: *digest, claimed, stored })
            }
            Some(stored) => {
                self.sizes.insert(*digest, stored);
                Ok(())
            }
            None => {
                self.missing.1.insert(*digest);
                Ok(())
            }
        }
    }
}

/// A range held to a content's size; all of it when none is asked for.
pub(crate) fn clamp(range: Option<Range<u64>>, size: u64) -> Range<u64> {
    let range = range.unwrap_or(0..size);
    let end = range.end.min(size);
    range.start.min(end)..end
}

/// The set of a root, from stored chunks; `None` when it is not stored.
pub(crate) fn read_set(root: &Digest, stored: &Connection) -> Result<Option<ObjectSet>> {
    let malformed = malformed(*root);
    match chunks::chunk(stored, root)? {
        None => Ok(None),
        Some(TreeChunk::Set { sections }) => {
            let descent = Descent::of_set(sections, ObjectSet::new(), MAX_OBJECTS).map_err(malformed)?;
            descend(root, descent, stored, |_| {}).map(Some)
        }
        Some(_) => Err(malformed(ChunkError::Malformed("not a set").into())),
    }
}

/// The selection of a root, from stored chunks that the known one lacks.
pub(crate) fn read_selection(
    root: &Digest,
    known: &Selection,
    stored: &Connection,
) -> Result<Option<Selection>> {
    let malformed = malformed(*root);
    match chunks::chunk(stored, root)? {
        None => Ok(None),
        Some(TreeChunk::Selection { exact, patterns }) => {
            let section = Selection::section();
            let known = ObjectSet::of_sections([(section.clone(), known.exact().clone())]);
            let descent = Descent::new([(section.clone(), exact)], known, MAX_OBJECTS).map_err(malformed)?;
            let mut channels = BTreeSet::new();
            let exact = descend(root, descent, stored, |chunk| share_uids(chunk, &mut channels))?;
            let exact = exact.section(&section);
            Ok(Some(Selection::new(exact, patterns)))
        }
        Some(_) => Err(malformed(ChunkError::Malformed("not a selection").into())),
    }
}

fn malformed(root: Digest) -> impl Fn(DescentError) -> StoreError + Copy {
    move |error| StoreError::Malformed { root, reason: error.to_string() }
}

/// One copy of each uid: a selection has as many leaves as nodes, and their uids are channels.
fn share_uids(chunk: &mut TreeChunk, known: &mut BTreeSet<Arc<str>>) {
    let TreeChunk::Bucket { leaves, .. } = chunk else { return };
    for leaf in leaves {
        match known.get(&leaf.stub.uid) {
            Some(uid) => leaf.stub.uid = uid.clone(),
            None => drop(known.insert(leaf.stub.uid.clone())),
        }
    }
}

/// Takes a descent to its end; `with` sees each chunk first.
fn descend(
    root: &Digest,
    mut descent: Descent,
    stored: &Connection,
    mut with: impl FnMut(&mut TreeChunk),
) -> Result<ObjectSet> {
    while let Some(digest) = descent.need() {
        let mut chunk = chunks::chunk(stored, &digest)?
            .ok_or_else(|| StoreError::Corrupt(format!("chunk {digest} below {root} is missing")))?;
        with(&mut chunk);
        descent.supply(chunk).map_err(malformed(*root))?;
    }
    descent.into_set().map_err(malformed(*root))
}
