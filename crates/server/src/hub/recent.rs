//! [`RecentContents`]: contents that were written just now, for the link that sends them next.
//!
//! ```text
//! change durable, node linked --keep--> RecentContents --take--> link
//!                                                       one is missing: all from the store
//! ```
//!
//! Invariant: it holds at most [`MAX_BYTES`], and of an object the newest content or none.

use std::collections::BTreeMap;

use model::ObjectKey;
use sync::LoadedChange;

/// The most bytes of contents of one node: a link that is up sends them within a moment.
const MAX_BYTES: usize = 256 * 1024;

/// Contents by object.
#[derive(Default)]
pub(super) struct RecentContents {
    contents: BTreeMap<ObjectKey, LoadedChange>,
    bytes: usize,
}

impl RecentContents {
    /// Keeps what was written, if anything. What does not fit is left out.
    pub(super) fn keep(&mut self, key: ObjectKey, written: Option<LoadedChange>) {
        self.take(&key);
        let Some(written) = written else { return };
        if self.bytes + bytes(&written) <= MAX_BYTES {
            self.bytes += bytes(&written);
            self.contents.insert(key, written);
        }
    }

    /// Gives away what is here of an object.
    pub(super) fn take(&mut self, key: &ObjectKey) -> Option<LoadedChange> {
        let taken = self.contents.remove(key)?;
        self.bytes -= bytes(&taken);
        Some(taken)
    }
}

/// What an object takes; one that is gone has a proof alone.
fn bytes(written: &LoadedChange) -> usize {
    let content = written.content.as_ref().map_or(0, |content| content.bytes.len());
    content + written.proof.as_ref().map_or(0, |proof| proof.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(size: usize) -> LoadedChange {
        let content = sync::Content { bytes: vec![b' '; size].into(), trace: None, at: 0 };
        LoadedChange { rev: 1, content: Some(content), proof: None }
    }

    #[test]
    fn the_newest_counts_and_bytes_are_bounded() {
        let (a, b) = (ObjectKey::of("Site", "a"), ObjectKey::of("Site", "b"));
        let mut recent = RecentContents::default();
        recent.keep(a.clone(), Some(content(MAX_BYTES)));
        recent.keep(b.clone(), Some(content(1)));
        assert_eq!(recent.take(&b), None, "it did not fit");
        recent.keep(a.clone(), Some(content(2)));
        recent.keep(b.clone(), Some(content(MAX_BYTES - 2)));
        assert_eq!(recent.take(&a), Some(content(2)));
        assert_eq!(recent.take(&a), None);
        recent.keep(b.clone(), None);
        assert_eq!((recent.take(&b), recent.bytes), (None, 0));
    }
}
