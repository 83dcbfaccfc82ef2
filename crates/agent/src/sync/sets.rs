//! [`AgentSets`]: what the node authors and what the control plane authors for it, in memory and
//! on disk.
//!
//! ```text
//! reconciler --change, write--> object log (disk) --durable--> feed, replica (memory) <--> link
//! ```
//!
//! Invariants: the memory is locked for moments only; the disk is written by one thread, the
//! reconciler's, which takes each write into memory once it is durable ([`Write::commit`]); so what the
//! memory says is durable, also when the link of a batch ended meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use model::sort::SortCompactly;
use model::{Digest, Kind, ObjectKey, Stub};
use net::Signal;
use spool::objects::MAX_OBJECT_WRITE;
use spool::{ObjectLog, SpoolError};
use sync::feed::TooManySections;
use sync::{Change, Content, Feed, Replica, Saved, Side, Write};

use crate::clock::now;
use crate::state::{Durable, StateError, fresh_incarnation, spool};

/// The most own changes of one write.
const CHANGES: usize = 1024;
/// The most bytes of contents of one write of own changes.
const CHANGES_BYTES: usize = 4 * 1024 * 1024;

/// A change of the own set.
#[derive(Clone, Debug)]
pub enum OwnChange {
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

/// Both sets of a node.
pub struct AgentSets {
    memory: Mutex<(Feed, Replica)>,
    disk: Mutex<ObjectLog>,
    changed: Arc<Signal>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Feed and replica change by whole operations, and so does the log.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AgentSets {
    /// Opens the sets of the state directory; the own one begins its incarnation if need be.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open(durable: &Durable) -> Result<AgentSets, StateError> {
        let opened = durable.open_objects()?;
        let (mut log, Saved { feed, replica }) = (opened.log, opened.saved);
        let feed = match feed {
            Some(saved) => Feed::restore(saved),
            None => {
                let incarnation = fresh_incarnation()?;
                let begin = Write { begin: Some(incarnation.clone()), ..Write::default() };
                log.write(&begin).map_err(spool("keep the synchronized objects"))?;
                Feed::new(incarnation)
            }
        };
        Ok(AgentSets {
            memory: Mutex::new((feed, Replica::restore(replica))),
            disk: Mutex::new(log),
            changed: Arc::default(),
        })
    }

    /// Works on both in memory, alone.
    pub fn with<T>(&self, work: impl FnOnce(&mut Feed, &mut Replica) -> T) -> T {
        let (feed, replica) = &mut *locked(&self.memory);
        work(feed, replica)
    }

    /// The objects of a side that are wanted by their key.
    pub fn stubs(&self, side: Side, wanted: impl Fn(&ObjectKey) -> bool) -> Vec<(ObjectKey, Stub)> {
        let passed = |(key, stub): (&ObjectKey, &Stub)| wanted(key).then(|| (key.clone(), stub.clone()));
        self.with(|feed, replica| match side {
            Side::Feed => feed.objects().filter_map(passed).collect(),
            Side::Replica => replica.objects().filter_map(passed).collect(),
        })
    }

    /// Changes when the own set does.
    pub fn changed(&self) -> Arc<Signal> {
        self.changed.clone()
    }

    /// The contents of objects, in the order of the keys.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn contents(&self, side: Side, keys: &[ObjectKey]) -> Result<Vec<Option<Content>>, StateError> {
        locked(&self.disk).contents(side, keys).map_err(spool("read the synchronized objects"))
    }

    /// Makes a write durable, then takes it into memory. For the one thread that writes.
    ///
    /// # Errors
    /// When the disk refuses; nothing of it is kept then.
    pub fn write(&self, write: Write) -> Result<(), StateError> {
        locked(&self.disk).write(&write).map_err(spool("keep the synchronized objects"))?;
        let own_changes = write.begin.is_some() || !write.feed.is_empty();
        self.with(|feed, replica| write.commit(feed, replica));
        if own_changes {
            self.changed.set(self.changed.get() + 1);
        }
        Ok(())
    }

    /// Changes the own set.
    ///
    /// # Errors
    /// When the disk refuses; what was changed before stays.
    pub fn change(&self, own: Vec<OwnChange>) -> Result<(), StateError> {
        let at = now().0;
        let mut planned: Vec<(Change, Option<Content>)> = self.with(|feed, _| {
            let mut planner = feed.planner();
            let plan = |own: OwnChange| match own {
                OwnChange::Put { key, uid, content } => {
                    let stub = Stub { uid, digest: Digest::of(&content), size: content.len() as u64 };
                    let planned = planner.put(&key, &stub);
                    let refused =
                        |error: &TooManySections| tracing::error!(%error, "an own object is left out");
                    let change = planned.inspect_err(refused).ok().flatten()?;
                    Some((change, Some(Content { bytes: content, trace: None, at })))
                }
                OwnChange::Remove(key) => Some((planner.remove(&key)?, None)),
            };
            own.into_iter().filter_map(plan).collect()
        });
        while !planned.is_empty() {
            let mut bytes = 0;
            let fits = |(_, content): &&(Change, Option<Content>)| {
                let fits = bytes < CHANGES_BYTES;
                bytes += content.as_ref().map_or(0, |content| content.bytes.len());
                fits
            };
            let count = planned.iter().take(CHANGES).take_while(fits).count();
            let rest = planned.split_off(count);
            let group = std::mem::replace(&mut planned, rest);
            self.write(self.with(|feed, _| Write::of(feed, group)))?;
        }
        Ok(())
    }

    /// Forgets both sets; the own one begins a new incarnation: the node's mode is another one.
    ///
    /// # Errors
    /// When the disk refuses; both are as before then.
    pub fn begin_anew(&self) -> Result<(), StateError> {
        self.write(Write { begin: Some(fresh_incarnation()?), forget_replica: true, ..Write::default() })
    }

    /// The own set in a new incarnation: what the other side has of it is ahead of what is here.
    /// Its objects come along, unless they are too many for one write or a content is lost: then it is
    /// empty, and what is there is to be put again.
    ///
    /// # Errors
    /// When the disk refuses; the set is as before then.
    pub fn reincarnate(&self) -> Result<(), StateError> {
        let incarnation = fresh_incarnation()?;
        let (feed, bytes) = self.with(|feed, _| {
            let bytes: u64 = feed.objects().map(|(_, stub)| stub.size).sum();
            (feed.reincarnate(incarnation.clone()), bytes)
        });
        let empty = Write { begin: Some(incarnation), ..Write::default() };
        if usize::try_from(bytes).is_ok_and(|bytes| bytes < MAX_OBJECT_WRITE) {
            let changes = feed.changes();
            let keys: Vec<ObjectKey> = changes.iter().map(|change| change.key.clone()).collect();
            let feed = changes.into_iter().zip(self.contents(Side::Feed, &keys)?).collect();
            match self.write(Write { feed, ..empty.clone() }) {
                Err(StateError::Spool { source: SpoolError::Unsound(why), .. }) => {
                    tracing::error!(%why, "the own set begins anew without its objects");
                }
                written => return written,
            }
        }
        self.write(empty)
    }

    /// The objects of a side that are wanted by their key, each with its content.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn objects(
        &self,
        side: Side,
        wanted: impl Fn(&ObjectKey) -> bool,
    ) -> Result<Vec<(ObjectKey, Stub, Bytes)>, StateError> {
        let stubs = self.stubs(side, wanted);
        let keys: Vec<ObjectKey> = stubs.iter().map(|(key, _)| key.clone()).collect();
        let objects = stubs.into_iter().zip(self.contents(side, &keys)?);
        Ok(objects.filter_map(|((key, stub), content)| Some((key, stub, content?.bytes))).collect())
    }

    /// The Action objects of the replica, in the order of their revisions.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn actions(&self) -> Result<Vec<(String, Bytes)>, StateError> {
        let mut actions = self.objects(Side::Replica, |key| key.section.kind.as_str() == Kind::ACTION)?;
        self.with(|_, replica| {
            actions.sort_compactly_by_key(|(key, ..)| replica.get(key).map(|(_, rev)| rev))
        });
        Ok(actions.into_iter().map(|(key, _, content)| (key.name.to_string(), content)).collect())
    }
}
