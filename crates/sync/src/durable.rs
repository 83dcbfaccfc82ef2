//! What each side keeps on disk for one node: its own feed, and its replica of the other's.
//!
//! The shell loads a [`Saved`] when a link or an operator needs it, and writes a [`Write`]
//! whole, before anything of it is said.

use bytes::Bytes;
use model::log::Cursor;
use model::{ObjectKey, Stub};

use crate::feed::{Change, SavedFeed};

/// Which of the two sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Authored here.
    Ours,
    /// A replica of what the other side authors.
    Theirs,
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
    pub cursor: Option<Cursor>,
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

/// A batch of changes: durable as a whole or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Write {
    /// Begin the own feed (again) in this life: whatever it held is forgotten first.
    pub found: Option<model::Incarnation>,
    /// Changes of the own feed in the order of their revisions, puts with their content.
    pub ours: Vec<(Change, Option<Content>)>,
    /// Tombstones of the own feed up to this revision are forgotten.
    pub horizon: Option<u64>,
    /// Objects of the replica: put with stub, revision and content, or removed.
    pub theirs: Vec<(ObjectKey, Option<(Stub, u64, Content)>)>,
    /// The replica's cursor from now on.
    pub cursor: Option<Cursor>,
    /// Forget the whole replica first.
    pub forget_theirs: bool,
}
