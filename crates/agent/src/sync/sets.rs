//! [`Sets`]: what the node authors and what the control plane authors for it, in memory and
//! on disk.
//!
//! ```text
//! reconciler --change, keep--> object log (disk) --durable--> feed, replica (memory) <--> link
//! ```
//!
//! Invariants: the memory is locked for moments only; the disk is written by one thread, the
//! reconciler's; what is written is durable before the memory says it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use model::{Digest, Kind, ObjectKey, Stub};
use spool::objects::MAX_OBJECT_WRITE;
use spool::{ObjectLog, SpoolError};
use sync::FeedCursor;
use sync::feed::{ObjectState, TooManySections};
use sync::{Content, Feed, Replica, Saved, Side, Write};
use tokio::sync::watch;

use crate::clock::now;
use crate::state::{Durable, StateError, fresh_incarnation};

/// The most own changes of one write.
const CHANGES: usize = 1024;
/// The most bytes of contents of one write of own changes.
const CHANGES_BYTES: usize = 4 * 1024 * 1024;

/// Why the sets cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum SetsError {
    /// The disk refuses.
    #[error("the synchronized objects cannot be kept")]
    Keep(#[from] SpoolError),
    /// They cannot be opened.
    #[error("the synchronized objects cannot be opened")]
    Open(#[from] StateError),
}

/// A change of the own set.
#[derive(Clone, Debug)]
pub enum Own {
    /// It is like this.
    Put {
        /// Which object.
        key: ObjectKey,
        /// Its uid.
        uid: Arc<str>,
        /// Its content.
        content: Bytes,
    },
    /// It is gone.
    Remove(ObjectKey),
}

struct Memory {
    feed: Feed,
    replica: Replica,
}

/// Both sets of a node.
pub struct Sets {
    durable: Arc<Durable>,
    memory: Mutex<Memory>,
    disk: Mutex<ObjectLog>,
    changed: watch::Sender<u64>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Feed and replica change by whole operations, and so does the log.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sets {
    /// Opens the sets of the state directory; the own one begins its incarnation if need be.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open(durable: Arc<Durable>) -> Result<Sets, SetsError> {
        let opened = durable.open_objects()?;
        let (mut log, Saved { feed, replica }) = (opened.log, opened.saved);
        let feed = match feed {
            Some(saved) => Feed::restore(saved),
            None => {
                let incarnation = fresh_incarnation()?;
                log.write(&Write { begin: Some(incarnation.clone()), ..Write::default() })?;
                Feed::new(incarnation)
            }
        };
        Ok(Sets {
            durable,
            memory: Mutex::new(Memory { feed, replica: Replica::restore(replica) }),
            disk: Mutex::new(log),
            changed: watch::Sender::new(0),
        })
    }

    /// Works on both in memory, alone.
    pub fn with<T>(&self, work: impl FnOnce(&mut Feed, &mut Replica) -> T) -> T {
        let mut memory = locked(&self.memory);
        let Memory { feed, replica } = &mut *memory;
        work(feed, replica)
    }

    /// The objects of a side that are wanted by their key.
    pub fn stubs<C: FromIterator<(ObjectKey, Stub)>>(
        &self,
        side: Side,
        wanted: impl Fn(&ObjectKey) -> bool,
    ) -> C {
        let passed = |(key, stub): (&ObjectKey, &Stub)| wanted(key).then(|| (key.clone(), stub.clone()));
        self.with(|feed, replica| match side {
            Side::Ours => feed.objects().filter_map(passed).collect(),
            Side::Theirs => replica.objects().filter_map(passed).collect(),
        })
    }

    /// Changes when the own set does.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Where the own set stands.
    pub fn own_cursor(&self) -> FeedCursor {
        locked(&self.memory).feed.cursor()
    }

    /// The contents of objects, in the order of the keys.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn contents(&self, side: Side, keys: &[ObjectKey]) -> Result<Vec<Option<Content>>, SetsError> {
        Ok(locked(&self.disk).contents(side, keys)?)
    }

    /// Makes a write durable; its own changes, if any, are not yet in memory.
    ///
    /// # Errors
    /// When the disk refuses; nothing of it is kept then.
    pub fn keep(&self, write: &Write) -> Result<(), SetsError> {
        Ok(locked(&self.disk).write(write)?)
    }

    /// Changes the own set: durable first. Says how many changes there were. For the one
    /// thread that writes.
    ///
    /// # Errors
    /// When the disk refuses; what was changed before stays.
    pub fn change(&self, own: Vec<Own>) -> Result<usize, SetsError> {
        let (mut count, mut rest) = (0, own.into_iter().peekable());
        while rest.peek().is_some() {
            let (mut group, mut bytes) = (Vec::new(), 0);
            while group.len() < CHANGES
                && bytes < CHANGES_BYTES
                && let Some(one) = rest.next()
            {
                if let Own::Put { content, .. } = &one {
                    bytes += content.len();
                }
                group.push(one);
            }
            count += self.change_group(group)?;
        }
        if count > 0 {
            self.changed.send_modify(|changes| *changes += 1);
        }
        Ok(count)
    }

    fn change_group(&self, group: Vec<Own>) -> Result<usize, SetsError> {
        let at = now().0;
        let write = self.with(|feed, _| {
            let mut planner = feed.planner();
            let plan = |own: Own| match own {
                Own::Put { key, uid, content } => {
                    let stub = Stub { uid, digest: Digest::of(&content), size: content.len() as u64 };
                    let planned = planner.put(&key, &stub);
                    let refused =
                        |error: &TooManySections| tracing::error!(%error, "an own object is left out");
                    let change = planned.inspect_err(refused).ok().flatten()?;
                    Some((change, Some(Content { bytes: content, trace: None, at })))
                }
                Own::Remove(key) => Some((planner.remove(&key)?, None)),
            };
            let ours = group.into_iter().filter_map(plan).collect();
            Write::of(feed, ours)
        });
        if write.ours.is_empty() {
            return Ok(0);
        }
        self.keep(&write)?;
        let count = write.ours.len();
        self.with(|feed, _| {
            for (change, _) in write.ours {
                // Planned from this feed by its one writer, so it follows.
                let _ = feed.commit(change);
            }
        });
        Ok(count)
    }

    /// Forgets both sets; the own one begins a new incarnation: the node's mode is another one.
    ///
    /// # Errors
    /// When the disk refuses; both are as before then.
    pub fn begin_anew(&self) -> Result<(), SetsError> {
        let incarnation = fresh_incarnation()?;
        self.keep(&Write { begin: Some(incarnation.clone()), forget_theirs: true, ..Write::default() })?;
        self.with(|feed, replica| (*feed, *replica) = (Feed::new(incarnation), Replica::new()));
        self.changed.send_modify(|changes| *changes += 1);
        Ok(())
    }

    /// The own set in a new incarnation: what the other side has of it is ahead of what is here.
    /// Says whether its objects came along; if not, it is empty.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn reincarnate(&self) -> Result<bool, SetsError> {
        let incarnation = fresh_incarnation()?;
        let (mut feed, bytes) = self.with(|feed, _| {
            let bytes: u64 = feed.objects().map(|(_, stub)| stub.size).sum();
            (feed.reincarnate(incarnation.clone()), bytes)
        });
        let whole = usize::try_from(bytes).is_ok_and(|bytes| bytes < MAX_OBJECT_WRITE);
        let mut write = Write { begin: Some(incarnation.clone()), ..Write::default() };
        if whole {
            let changes = feed.changes();
            let keys: Vec<ObjectKey> = changes.iter().map(|change| change.key.clone()).collect();
            let contents = self.contents(Side::Ours, &keys)?;
            let live = |state: &ObjectState| matches!(state, ObjectState::Live { .. });
            let all = contents.iter().zip(&changes).all(|(one, change)| one.is_some() == live(&change.state));
            if all {
                write.ours = changes.into_iter().zip(contents).collect();
            }
        }
        let kept = !write.ours.is_empty() || feed.is_empty();
        if !kept {
            feed = Feed::new(incarnation);
        }
        self.keep(&write)?;
        self.with(|ours, _| *ours = feed);
        self.changed.send_modify(|changes| *changes += 1);
        Ok(kept)
    }

    /// Reads the replica again as it is on disk: a batch became durable whose link is gone.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn reload(&self) -> Result<(), SetsError> {
        let mut disk = locked(&self.disk);
        let opened = self.durable.open_objects()?;
        *disk = opened.log;
        self.with(|feed, replica| {
            *replica = Replica::restore(opened.saved.replica);
            if let Some(saved) = opened.saved.feed {
                *feed = Feed::restore(saved);
            }
        });
        Ok(())
    }

    /// The Action objects of the replica, in the order of their revisions.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn actions(&self) -> Result<Vec<(String, Bytes)>, SetsError> {
        let mut actions: Vec<(u64, ObjectKey)> = self.with(|_, replica| {
            let of_kind = replica.objects().filter(|(key, _)| key.section.kind.as_str() == Kind::ACTION);
            of_kind.filter_map(|(key, _)| Some((replica.get(key)?.1, key.clone()))).collect()
        });
        actions.sort();
        let keys: Vec<ObjectKey> = actions.into_iter().map(|(_, key)| key).collect();
        let contents = self.contents(Side::Theirs, &keys)?;
        let named = keys.iter().zip(contents);
        Ok(named.filter_map(|(key, content)| Some((key.name.to_string(), content?.bytes))).collect())
    }
}
