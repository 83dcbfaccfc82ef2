//! [`Feed`]: a set that this side authors, with the order in which it changed.
//!
//! The feed is the send queue: it holds each object once, at its newest change, so state
//! coalesces by itself, nothing is evicted, and its bound is the number of objects. A link
//! is a cursor over it.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Digest, Incarnation, ObjectKey, ObjectSet, Stub};

/// The most tombstones that a feed keeps; who is behind an older one resyncs by content.
pub const MAX_TOMBSTONES: usize = 10_000;

/// One change of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its number: rises by one.
    pub rev: u64,
    /// Which object.
    pub key: ObjectKey,
    /// What it is now.
    pub state: State,
}

/// What a change leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The object is like this; it came into being (in this uid) with revision `born`.
    Live {
        /// Uid, digest, size.
        stub: Stub,
        /// The revision of its first change under this uid.
        born: u64,
    },
    /// It is gone; the uid of the life that ended.
    Gone {
        /// Its uid.
        uid: Arc<str>,
    },
}

/// A feed as it is kept on disk: the newest change of each object, live or gone.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedFeed {
    /// One life of the feed; a new one begins where its numbers would go back.
    pub life: Incarnation,
    /// The number of the last change.
    pub head: u64,
    /// Tombstones up to this number are forgotten.
    pub horizon: u64,
    /// The newest change of each object, in any order.
    pub changes: Vec<Change>,
}

/// A set with the order of its changes.
#[derive(Clone, Debug)]
pub struct Feed {
    life: Incarnation,
    head: u64,
    horizon: u64,
    by_key: BTreeMap<ObjectKey, (u64, State)>,
    by_rev: BTreeMap<u64, ObjectKey>,
    set: ObjectSet,
}

impl Feed {
    /// An empty feed at the beginning of its life.
    pub fn new(life: Incarnation) -> Feed {
        Feed {
            life,
            head: 0,
            horizon: 0,
            by_key: BTreeMap::new(),
            by_rev: BTreeMap::new(),
            set: ObjectSet::new(),
        }
    }

    /// The root of the set.
    pub fn root(&self) -> Digest {
        self.set.root()
    }
}
