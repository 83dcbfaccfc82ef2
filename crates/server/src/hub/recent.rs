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
use sync::Content;

/// The most bytes of contents of one node: a link that is up sends them within a moment.
const MAX_BYTES: usize = 256 * 1024;

/// Contents by object.
#[derive(Default)]
pub(super) struct RecentContents {
    contents: BTreeMap<ObjectKey, Content>,
    bytes: usize,
}

impl RecentContents {
    /// Keeps what was written; of an object that went, nothing. What does not fit is left out.
    pub(super) fn keep(&mut self, key: ObjectKey, content: Option<Content>) {
        self.take(&key);
        let Some(content) = content else { return };
        if self.bytes + content.bytes.len() <= MAX_BYTES {
            self.bytes += content.bytes.len();
            self.contents.insert(key, content);
        }
    }

    /// Gives away what is here of an object.
    pub(super) fn take(&mut self, key: &ObjectKey) -> Option<Content> {
        let taken = self.contents.remove(key)?;
        self.bytes -= taken.bytes.len();
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(size: usize) -> Content {
        Content { bytes: vec![b' '; size].into(), trace: None, at: 0 }
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
