//! A log of objects and the plain maps that it is held against.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use model::{ObjectKey, Stub};
use spool::Disk;
use spool::objects::{ObjectLimits, ObjectLog, OpenedObjects};
use sync::feed::ObjectState;
use sync::{Change, Content, FeedCursor, Saved, SavedFeed, Side, Write};

use super::incarnation;

/// Small files and small steps, so that a few objects fill several and moving takes long.
pub const SMALL: ObjectLimits = ObjectLimits { max_bytes: 1 << 20, segment_bytes: 1500, step_bytes: 400 };

pub fn open(disk: &Disk, directory: &Path, fresh: &str) -> spool::Result<OpenedObjects> {
    ObjectLog::open(disk, directory, &incarnation(fresh), SMALL)
}

pub fn ours(name: &str) -> ObjectKey {
    ObjectKey::of("Job", name)
}

pub fn theirs(name: &str) -> ObjectKey {
    ObjectKey::of("Job:status", name)
}

pub fn content(text: &str) -> Content {
    let trace = (!text.is_empty()).then(|| format!("00-{}", text.len()));
    Content { bytes: Bytes::from(text.to_owned()), trace, at: 7 }
}

pub fn stub(uid: &str, text: &str) -> Stub {
    Stub { uid: uid.into(), ..Stub::of(text.as_bytes()) }
}

pub fn put(rev: u64, name: &str, text: &str) -> (Change, Option<Content>) {
    let state = ObjectState::Live { stub: stub("u", text), born: rev };
    (Change { rev, key: ours(name), state }, Some(content(text)))
}

pub fn gone(rev: u64, name: &str) -> (Change, Option<Content>) {
    (Change { rev, key: ours(name), state: ObjectState::Deleted { uid: "u".into() } }, None)
}

pub fn their(rev: u64, name: &str, text: &str) -> (ObjectKey, Option<(Stub, u64, Content)>) {
    (theirs(name), Some((stub("s", text), rev, content(text))))
}

pub fn cursor(name: &str, revision: u64) -> Option<FeedCursor> {
    let order = sync::cursor::KindOrder(7);
    let pass = sync::PassPosition { to: revision + 3, rank: 2, revision: revision + 1, order };
    Some(FeedCursor { pass: Some(pass), ..FeedCursor::at(incarnation(name), revision) })
}

/// Both sets with their contents, as plain maps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sets {
    pub feed: Option<SavedFeed>,
    pub cursor: Option<FeedCursor>,
    pub ours: BTreeMap<ObjectKey, (Change, Option<Content>)>,
    pub theirs: BTreeMap<ObjectKey, (Stub, u64, Content)>,
}

impl Sets {
    /// After a write too.
    pub fn after(&self, write: &Write) -> Sets {
        let mut next = self.clone();
        if let Some(incarnation) = &write.begin {
            next.feed =
                Some(SavedFeed { incarnation: incarnation.clone(), head: 0, compacted: 0, changes: vec![] });
            next.ours.clear();
        }
        if write.forget_replica {
            next.theirs.clear();
            next.cursor = None;
        }
        for (change, content) in &write.feed {
            next.feed.as_mut().unwrap().head = change.rev;
            next.ours.insert(change.key.clone(), (change.clone(), content.clone()));
        }
        if let Some(compacted) = write.compacted {
            let feed = next.feed.as_mut().unwrap();
            feed.compacted = feed.compacted.max(compacted);
            next.ours.retain(|_, (change, content)| content.is_some() || change.rev > compacted);
        }
        for (key, put) in &write.replica {
            match put {
                Some(put) => drop(next.theirs.insert(key.clone(), put.clone())),
                None => drop(next.theirs.remove(key)),
            }
        }
        next.cursor = write.cursor.clone().or(next.cursor);
        next
    }

    pub fn head(&self) -> u64 {
        self.feed.as_ref().map_or(0, |feed| feed.head)
    }

    /// What a log holds: as it was saved, with every content read.
    pub fn of(opened: &OpenedObjects) -> Sets {
        let Saved { feed, replica } = opened.saved.clone();
        let log = &opened.log;
        let mut sets = Sets { cursor: replica.cursor, ..Sets::default() };
        for change in feed.iter().flat_map(|feed| &feed.changes) {
            let content = log.content(Side::Feed, &change.key).unwrap();
            assert_eq!(content.is_some(), matches!(change.state, ObjectState::Live { .. }));
            sets.ours.insert(change.key.clone(), (change.clone(), content));
        }
        for (key, stub, rev) in replica.objects {
            let content = log.content(Side::Replica, &key).unwrap().unwrap();
            sets.theirs.insert(key, (stub, rev, content));
        }
        sets.feed = feed.map(|feed| SavedFeed { changes: vec![], ..feed });
        sets
    }

    /// Panics when the log has other contents.
    pub fn assert_contents(&self, log: &ObjectLog, names: &[&str]) {
        for name in names {
            let expected = self.ours.get(&ours(name)).and_then(|(_, content)| content.clone());
            assert_eq!(log.content(Side::Feed, &ours(name)).unwrap(), expected, "{name} of ours");
            let expected = self.theirs.get(&theirs(name)).map(|(_, _, content)| content.clone());
            assert_eq!(log.content(Side::Replica, &theirs(name)).unwrap(), expected, "{name} of theirs");
        }
        let keys: Vec<ObjectKey> = names.iter().map(|name| theirs(name)).collect();
        let expected: Vec<_> = keys.iter().map(|key| Some(self.theirs.get(key)?.2.clone())).collect();
        assert_eq!(log.contents(Side::Replica, &keys).unwrap(), expected);
    }
}
