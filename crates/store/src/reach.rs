//! What is reachable from roots, and in which order the rest may go.

use std::collections::BTreeSet;

use model::Digest;
use model::chunk::Needs;

use crate::error::Result;

/// Where a walk reads what a chunk needs; `None` when the chunk is not stored.
pub(crate) type NeedsOf<'a> = &'a mut dyn FnMut(&Digest) -> Result<Option<Needs>>;

/// Chunks and contents.
#[derive(Debug, Default)]
pub(crate) struct Marked {
    pub(crate) chunks: BTreeSet<Digest>,
    pub(crate) contents: BTreeSet<Digest>,
}

impl Marked {
    /// Marks `roots` and everything below them. Cost: what is newly marked.
    pub(crate) fn mark(
        &mut self,
        roots: impl IntoIterator<Item = Digest>,
        needs_of: NeedsOf<'_>,
    ) -> Result<()> {
        let mut stack: Vec<Digest> = roots.into_iter().collect();
        while let Some(chunk) = stack.pop() {
            if !self.chunks.insert(chunk) {
                continue;
            }
            if let Some(needs) = needs_of(&chunk)? {
                self.contents.extend(needs.contents.iter().map(|(digest, _)| *digest));
                stack.extend(needs.chunks);
            }
        }
        Ok(())
    }
}
