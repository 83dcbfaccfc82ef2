//! What is reachable from roots, and in which order the rest may go.

use std::collections::BTreeSet;

use model::Digest;
use model::chunk::Chunk;

use crate::closure;
use crate::error::Result;

/// Where a walk reads.
pub(crate) trait Stored {
    /// A chunk; `None` when it is not stored.
    fn chunk(&self, digest: &Digest) -> Result<Option<Chunk>>;
    /// The blobs that a stored content names.
    fn blobs(&self, content: &Digest) -> Result<BTreeSet<Digest>>;
}

/// Chunks and contents.
#[derive(Debug, Default)]
pub(crate) struct Marked {
    pub(crate) chunks: BTreeSet<Digest>,
    pub(crate) contents: BTreeSet<Digest>,
    /// Contents whose blobs are marked too.
    modules: BTreeSet<Digest>,
}

impl Marked {
    /// Marks `roots` and everything below them. Cost: what is newly marked.
    pub(crate) fn mark(
        &mut self,
        roots: impl IntoIterator<Item = Digest>,
        stored: &dyn Stored,
    ) -> Result<()> {
        let mut stack: Vec<Digest> = roots.into_iter().collect();
        while let Some(chunk) = stack.pop() {
            if !self.chunks.insert(chunk) {
                continue;
            }
            let Some(chunk) = stored.chunk(&chunk)? else { continue };
            for module in closure::modules(&chunk) {
                if self.modules.insert(module) {
                    self.contents.extend(stored.blobs(&module)?);
                }
            }
            let needs = chunk.needs();
            self.contents.extend(needs.contents.iter().map(|(digest, _)| *digest));
            stack.extend(needs.chunks);
        }
        Ok(())
    }
}
