//! What each side keeps on disk for one node: its own feed, and its replica of the other's.
//!
//! The shell loads a [`Saved`] when a link or an operator needs it, and writes a [`Write`]
//! whole, before anything of it is answered.

use crate::cursor::FeedCursor;
use bytes::Bytes;
use model::{ObjectKey, Stub};

use crate::feed::{Change, Feed, ObjectState, SavedFeed};
use crate::replica::Replica;

/// Which of the two sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Authored here.
    Feed,
    /// A replica of what the other side authors.
    Replica,
}

/// Everything that is kept for one node, contents apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// The set authored here; `None` before the first change.
    pub feed: Option<SavedFeed>,
    /// The replica.
    pub replica: SavedReplica,
}

/// A replica as kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedReplica {
    /// How far it is complete.
    pub cursor: Option<FeedCursor>,
    /// Its objects, each with the revision of the source that it is of.
    pub objects: Vec<(ObjectKey, Stub, u64)>,
}

/// The bytes of an object, and where they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The bytes.
    pub bytes: Bytes,
    /// W3C trace context of the change.
    pub trace: Option<String>,
    /// When the source accepted it: milliseconds since 1970.
    pub at: i64,
}

/// An object of the own feed as the shell has it for a link to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedChange {
    /// The change that it is of: the one asked for or a newer one.
    pub rev: u64,
    /// Its content; `None` where the object is gone, or the shell has none.
    pub content: Option<Content>,
    /// What proves it to the other side (IDN-9); `None` of a feed that is not signed.
    pub proof: Option<Bytes>,
}

impl LoadedChange {
    /// A content of a feed that is not signed.
    pub fn unsigned(rev: u64, content: Content) -> LoadedChange {
        LoadedChange { rev, content: Some(content), proof: None }
    }
}

/// An object of the replica as it is put: stub, revision at the source, content.
pub type ReplicaObject = (Stub, u64, Content);

/// A batch of changes: durable as a whole or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Write {
    /// Begin the own feed (again) in this incarnation: whatever it held is forgotten first.
    pub begin: Option<model::Incarnation>,
    /// Changes of the own feed in the order of their revisions, puts with their content.
    pub feed: Vec<(Change, Option<Content>)>,
    /// What proves these changes to the other side (IDN-9), in their order; empty where the feed is not signed.
    pub proofs: Vec<Bytes>,
    /// Tombstones of the own feed up to this revision are forgotten.
    pub compacted: Option<u64>,
    /// Objects of the replica: put with stub, revision and content, or removed.
    pub replica: Vec<(ObjectKey, Option<ReplicaObject>)>,
    /// The replica's cursor from now on.
    pub cursor: Option<FeedCursor>,
    /// Forget the whole replica first.
    pub forget_replica: bool,
}

/// Why a [`Write`] cannot be kept. Nothing of it is, then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsoundWrite {
    /// The own feed changes before it has begun.
    #[error("the own feed has not begun")]
    NoFeed,
    /// A change of the own feed has not the next number.
    #[error("change {found} does not follow change {head} of the own feed")]
    OutOfOrder {
        /// The number of the last change.
        head: u64,
        /// The number that came.
        found: u64,
    },
    /// Tombstones would be forgotten that are yet to come.
    #[error("compacted {compacted} is beyond change {head}, the last of the own feed")]
    CompactedBeyond {
        /// The compacted that came.
        compacted: u64,
        /// The number of the last change.
        head: u64,
    },
    /// Some changes of the own feed have a proof and some not.
    #[error("{changes} changes of the own feed with {proofs} proofs")]
    Proofs {
        /// How many changes.
        changes: usize,
        /// How many proofs.
        proofs: usize,
    },
    /// A put without its content or with one of another size, or a removal with one.
    #[error("{key}: the content is not the one of the change")]
    Content {
        /// Of which object.
        key: ObjectKey,
    },
}

impl Write {
    /// Checks that it follows an own feed whose last change is `head` (`None`: not begun);
    /// returns the last change after it. Digests are not computed: whoever made the write
    /// has.
    ///
    /// # Errors
    /// [`UnsoundWrite`] names what is wrong.
    pub fn check(&self, head: Option<u64>) -> Result<Option<u64>, UnsoundWrite> {
        let (changes, proofs) = (self.feed.len(), self.proofs.len());
        if proofs > 0 && proofs != changes {
            return Err(UnsoundWrite::Proofs { changes, proofs });
        }
        let mut head = if self.begin.is_some() { Some(0) } else { head };
        for (change, content) in &self.feed {
            let last = head.ok_or(UnsoundWrite::NoFeed)?;
            if last.checked_add(1) != Some(change.rev) {
                return Err(UnsoundWrite::OutOfOrder { head: last, found: change.rev });
            }
            let whole = match (&change.state, content) {
                (ObjectState::Live { stub, .. }, Some(content)) => content.bytes.len() as u64 == stub.size,
                (ObjectState::Deleted { .. }, None) => true,
                _ => false,
            };
            if !whole {
                return Err(UnsoundWrite::Content { key: change.key.clone() });
            }
            head = Some(change.rev);
        }
        if let Some(compacted) = self.compacted {
            let head = head.ok_or(UnsoundWrite::NoFeed)?;
            if compacted > head {
                return Err(UnsoundWrite::CompactedBeyond { compacted, head });
            }
        }
        for (key, put) in &self.replica {
            if put.as_ref().is_some_and(|(stub, _, content)| content.bytes.len() as u64 != stub.size) {
                return Err(UnsoundWrite::Content { key: key.clone() });
            }
        }
        Ok(head)
    }

    /// Planned changes of a feed, with what else of it is to be kept: that it begins, before the first
    /// one, and how far its tombstones are forgotten.
    pub fn of(feed: &Feed, changes: Vec<(Change, Option<Content>)>) -> Write {
        let begin = (feed.head() == 0).then(|| feed.incarnation().clone());
        let compacted = Some(feed.compacted()).filter(|compacted| *compacted > 0);
        Write { begin, feed: changes, compacted, ..Write::default() }
    }

    /// Takes into memory what is durable now. A link that hears of its batch afterwards puts the same
    /// again; one that ended meanwhile need not.
    pub fn commit(self, feed: &mut Feed, replica: &mut Replica) {
        if let Some(incarnation) = self.begin {
            *feed = Feed::new(incarnation);
        }
        for (change, _) in self.feed {
            // Planned from this feed by its one writer, so it follows.
            let _ = feed.commit(change);
        }
        if self.forget_replica {
            *replica = Replica::new();
        }
        for (key, put) in self.replica {
            match put {
                Some((stub, rev, _)) => replica.put(key, stub, rev),
                None => replica.remove(&key),
            }
        }
        if let Some(cursor) = self.cursor {
            replica.set_cursor(cursor);
        }
    }

    /// The bytes of all contents in it.
    pub fn bytes(&self) -> usize {
        let feed = self.feed.iter().filter_map(|(_, content)| content.as_ref());
        let replica = self.replica.iter().filter_map(|(_, put)| put.as_ref().map(|(_, _, content)| content));
        feed.chain(replica).map(|content| content.bytes.len()).sum()
    }

    /// How many objects it changes.
    pub fn changes(&self) -> usize {
        self.feed.len() + self.replica.len()
    }
}
