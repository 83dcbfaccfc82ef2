//! What is kept of synchronization, as status and listings show it.

use model::condition::SyncCondition;
use model::{Kind, NodeId, ObjectKey, Stub, Timestamp};
use sync::FeedCursor;
use sync::Side;

/// How far the two sets of one node are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncHead {
    /// The feed that the control plane authors: its incarnation and its last change.
    pub feed: Option<FeedCursor>,
    /// How far the replica of what the node authors is complete.
    pub replica: Option<FeedCursor>,
    /// How far the node acknowledged the feed.
    pub acked: Option<FeedCursor>,
    /// Objects of our feed.
    pub feed_objects: u64,
    /// Objects of the replica.
    pub replica_objects: u64,
    /// What their last comparison came to; `None` when they were never compared to the end.
    pub condition: Option<SyncCondition>,
    /// When either of them last changed here.
    pub changed: Timestamp,
}

/// What is known of how far one node's sets are; kept as it is known, `None` leaves what was kept.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncProgress {
    /// Which node.
    pub node: NodeId,
    /// How far it acknowledged the feed.
    pub acked: Option<FeedCursor>,
    /// What the last comparison of the sets came to.
    pub condition: Option<SyncCondition>,
}

/// Which objects are wanted; what is `None` is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectFilter {
    /// Only of this node.
    pub node: Option<NodeId>,
    /// Only of this set.
    pub side: Option<Side>,
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Only in this namespace.
    pub namespace: Option<String>,
    /// Only of this name.
    pub name: Option<String>,
}

impl ObjectFilter {
    /// Whether it lets a kind and namespace through.
    pub(crate) fn lets(&self, kind: &str, namespace: &str) -> bool {
        self.kind.as_ref().is_none_or(|wanted| wanted.as_str() == kind)
            && self.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
    }
}

/// Where an object stands in a listing: by node, set and key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectPosition {
    /// Whose it is.
    pub node: NodeId,
    /// In which set.
    pub side: Side,
    /// Its key.
    pub key: ObjectKey,
}

/// An object as it is kept, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Whose it is.
    pub node: NodeId,
    /// In which set.
    pub side: Side,
    /// Its key.
    pub key: ObjectKey,
    /// Uid, digest, size.
    pub stub: Stub,
    /// The revision of its source that it is of.
    pub rev: u64,
    /// When the source accepted it.
    pub at: Timestamp,
    /// W3C trace context of its change.
    pub trace: Option<String>,
}

impl ObjectRecord {
    /// Where it stands: the next page begins after it.
    pub fn position(&self) -> ObjectPosition {
        ObjectPosition { node: self.node.clone(), side: self.side, key: self.key.clone() }
    }
}
