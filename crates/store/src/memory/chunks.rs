//! Chunks and contents.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::chunk::Chunk;
use model::object::blobs_named;
use model::{Digest, Timestamp};

use super::{State, StoredChunk, StoredContent};
use crate::closure::{self, Known, Prepared};
use crate::error::{PutError, Result};
use crate::reach::{self, Marked};

impl State {
    pub(super) fn missing_chunks(&mut self, chunks: Vec<Digest>, now: Timestamp) -> Vec<Digest> {
        let mut missing = Vec::new();
        for digest in chunks {
            match self.chunks.get_mut(&digest) {
                Some(chunk) => chunk.touched = chunk.touched.max(now),
                None => missing.push(digest),
            }
        }
        missing
    }

    pub(super) fn missing_contents(&mut self, contents: Vec<Digest>, now: Timestamp) -> Vec<Digest> {
        let mut missing = Vec::new();
        for digest in contents {
            match self.contents.get_mut(&digest) {
                Some(content) => content.touched = content.touched.max(now),
                None => missing.push(digest),
            }
        }
        missing
    }

    pub(super) fn put_contents(&mut self, digests: &[Digest], contents: Vec<Bytes>, now: Timestamp) {
        for (digest, bytes) in digests.iter().zip(contents) {
            self.contents.insert(*digest, StoredContent { bytes, touched: now });
        }
    }

    pub(super) fn put_chunks(
        &mut self,
        prepared: BTreeMap<Digest, Prepared>,
        now: Timestamp,
    ) -> Result<(), PutError> {
        let heights = closure::check(&prepared, self)?;
        for (digest, chunk) in prepared {
            let height = heights.get(&digest).copied().unwrap_or_default();
            self.chunks.insert(digest, StoredChunk { body: chunk.body, height, touched: now });
        }
        Ok(())
    }

    pub(super) fn chunk(&self, digest: &Digest) -> Result<Option<Chunk>> {
        self.chunks.get(digest).map(|chunk| closure::decode(&chunk.body)).transpose()
    }

    /// Takes away what neither `roots` nor anything touched since `cutoff` reaches.
    pub(super) fn collect(&mut self, roots: BTreeSet<Digest>, cutoff: Timestamp) -> Result<(u64, u64)> {
        let mut kept = Marked::default();
        let recent = self.chunks.iter().filter(|(_, chunk)| chunk.touched >= cutoff);
        let roots: Vec<Digest> = roots.into_iter().chain(recent.map(|(digest, _)| *digest)).collect();
        kept.mark(roots, self)?;
        let (chunks, contents) = (self.chunks.len(), self.contents.len());
        self.chunks.retain(|digest, _| kept.chunks.contains(digest));
        self.contents.retain(|digest, content| content.touched >= cutoff || kept.contents.contains(digest));
        Ok(((chunks - self.chunks.len()) as u64, (contents - self.contents.len()) as u64))
    }

    fn blobs(&self, module: &Digest) -> BTreeSet<Digest> {
        self.contents.get(module).map(|content| blobs_named(&content.bytes)).unwrap_or_default()
    }
}

impl reach::Stored for State {
    fn chunk(&self, digest: &Digest) -> Result<Option<Chunk>> {
        State::chunk(self, digest)
    }

    fn blobs(&self, content: &Digest) -> Result<BTreeSet<Digest>> {
        Ok(State::blobs(self, content))
    }
}

impl Known for State {
    fn height(&mut self, chunk: &Digest) -> Result<Option<u32>> {
        Ok(self.chunks.get(chunk).map(|chunk| chunk.height))
    }

    fn size(&mut self, content: &Digest) -> Result<Option<u64>> {
        Ok(self.contents.get(content).map(|content| content.bytes.len() as u64))
    }

    fn blobs(&mut self, content: &Digest) -> Result<BTreeSet<Digest>> {
        Ok(State::blobs(self, content))
    }
}
