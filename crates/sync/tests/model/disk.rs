//! What a side keeps on disk.

use std::collections::BTreeMap;

use model::{Incarnation, ObjectKey, Stub};
use sync::FeedCursor;
use sync::durable::{Content, SavedReplica, Write};
use sync::feed::{Change, ObjectState, SavedFeed};
use sync::{Feed, Replica};

use super::TOMBSTONES;

#[derive(Clone)]
pub struct Disk {
    pub incarnation: Incarnation,
    pub head: u64,
    pub compacted: u64,
    pub ours: BTreeMap<ObjectKey, (Change, Option<Content>)>,
    pub theirs: BTreeMap<ObjectKey, (Stub, u64, Content)>,
    pub cursor: Option<FeedCursor>,
}

impl Disk {
    pub fn write(&mut self, write: Write) {
        if let Some(incarnation) = write.begin {
            self.incarnation = incarnation;
            (self.head, self.compacted) = (0, 0);
            self.ours.clear();
        }
        for (change, content) in write.feed {
            self.head = change.rev;
            self.ours.insert(change.key.clone(), (change, content));
        }
        if let Some(compacted) = write.compacted {
            self.compacted = compacted;
            self.ours.retain(|_, (change, _)| {
                change.rev > compacted || matches!(change.state, ObjectState::Live { .. })
            });
        }
        for (key, new) in write.replica {
            match new {
                Some(new) => drop(self.theirs.insert(key, new)),
                None => drop(self.theirs.remove(&key)),
            }
        }
        self.cursor = write.cursor.or(self.cursor.take());
    }

    pub fn feed(&self) -> Feed {
        let changes = self.ours.values().map(|(change, _)| change.clone()).collect();
        let saved = SavedFeed {
            incarnation: self.incarnation.clone(),
            head: self.head,
            compacted: self.compacted,
            changes,
        };
        Feed::restore(saved).keeping_tombstones(TOMBSTONES)
    }

    pub fn replica(&self) -> Replica {
        let objects =
            self.theirs.iter().map(|(key, (stub, rev, _))| (key.clone(), stub.clone(), *rev)).collect();
        Replica::restore(SavedReplica { cursor: self.cursor.clone(), objects })
    }
}
