//! [`NodeSync`]: the two sets of one node.
//!
//! A node's feed is changed by one at a time: planned, made durable, committed. Its replica
//! is changed by its link alone. What is in memory never runs ahead of the store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::set::MAX_SECTIONS;
use model::{Digest, Incarnation, Kind, NodeId, ObjectKey, Stub};
use store::{Store, StoreError};
use sync::feed::{Change, Feed, State};
use sync::replica::Replica;
use sync::{Content, Write};
use tokio::sync::watch;

use super::index::SyncIndex;
use super::recent::RecentContents;
use super::summary::{FeedChange, is_action};
use super::{HubError, fresh_incarnation};
use crate::state::now;

/// The most objects that the control plane authors for one node, without actions: a feed that
/// begins its incarnation anew is one write.
pub(crate) const MAX_OBJECTS: usize = store::MAX_CHANGES_IN_WRITE - 2000;
/// The most bytes of their contents, together.
pub(crate) const MAX_BYTES: u64 = store::MAX_WRITE_BYTES - 16 * 1024 * 1024;
/// Room beyond these that actions alone take, so that a node full of objects can be worked on:
/// several times as many as there are open tasks.
const ACTIONS: usize = 1000;
/// The same in bytes: every open task at its largest.
const ACTIONS_BYTES: u64 = 8 * 1024 * 1024;

/// The node's two sets.
pub(crate) struct NodeSync {
    pub(crate) id: NodeId,
    store: Arc<Store>,
    sync_index: Arc<SyncIndex>,
    sets: Mutex<Sets>,
    /// One change of the feed at a time.
    changing: tokio::sync::Mutex<()>,
    /// The feed's last change.
    head: watch::Sender<u64>,
    /// The feed's end when a post was answered last, or something pushed: the node has what is up to
    /// there, or comes for it.
    answered: AtomicU64,
    /// The store may have taken what memory has not: nobody begins with this one any more.
    stale: AtomicBool,
}

/// What is kept of a node.
pub(crate) struct Sets {
    /// What the control plane authors for the node.
    pub(crate) feed: Feed,
    /// What the node authors.
    pub(crate) replica: Replica,
    /// The feed is in the store.
    founded: bool,
    /// Goes into the next write.
    compacted: Option<u64>,
    /// Bytes of the contents of the feed's objects.
    bytes: u64,
    /// What a link sends next.
    recent: RecentContents,
}

/// A change to make to a feed.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// The object is to have this content.
    Put { key: ObjectKey, uid: Uid, content: Content },
    /// The object is to go.
    Remove { key: ObjectKey },
}

impl Edit {
    /// Which object.
    pub(crate) fn key(&self) -> &ObjectKey {
        match self {
            Edit::Put { key, .. } | Edit::Remove { key } => key,
        }
    }
}

/// Under which uid an object is put.
#[derive(Clone, Debug)]
pub(crate) enum Uid {
    /// This one, which nobody else has: the caller knows.
    Known(Arc<str>),
    /// This one, as somebody said; another than before is another incarnation.
    Said(Arc<str>),
    /// The one that it has; this one when it comes into being.
    Kept(Arc<str>),
}

/// What an edit came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EditOutcome {
    Created,
    Changed,
    Unchanged,
    Deleted,
    Absent,
    Refused(EditRejection),
}

/// Why an object does not fit into a node's feed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EditRejection {
    #[error("uid_twice: {0} has this uid; one uid is one object")]
    UidTwice(ObjectKey),
    #[error("too_many: a node has at most {MAX_OBJECTS} objects")]
    TooMany,
    #[error("too_many: the objects of a node hold at most {MAX_BYTES} bytes together")]
    TooMuch,
    #[error("too_many: the objects of a node are of at most {MAX_SECTIONS} kinds and namespaces")]
    TooManySections,
}

impl NodeSync {
    pub(super) fn restore(
        id: NodeId,
        store: Arc<Store>,
        sync_index: Arc<SyncIndex>,
        saved: sync::Saved,
    ) -> Result<NodeSync, HubError> {
        let founded = saved.feed.is_some();
        let feed = match saved.feed {
            Some(saved) => Feed::restore(saved),
            None => Feed::new(fresh_incarnation()?),
        };
        sync_index.feed_loaded(&id, &feed);
        let head = watch::Sender::new(feed.head());
        let bytes = feed.objects().map(|(_, stub)| stub.size).sum();
        let replica = Replica::restore(saved.replica);
        let sets = Mutex::new(Sets {
            feed,
            replica,
            founded,
            compacted: None,
            bytes,
            recent: RecentContents::default(),
        });
        let (changing, stale) = (tokio::sync::Mutex::default(), AtomicBool::new(false));
        let answered = AtomicU64::new(0);
        Ok(NodeSync { id, store, sync_index, sets, changing, head, answered, stale })
    }

    /// The sets. A panic while they were held cannot have left them half changed: what is
    /// in the store counts, and every change is one commit.
    pub(crate) fn sets(&self) -> MutexGuard<'_, Sets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whenever the feed changed.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    /// The node is told what is in the feed by now.
    pub(crate) fn answered(&self) {
        self.answered.store(*self.head.borrow(), Ordering::Release);
    }

    /// Whether the node was told, or comes for it.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire) >= *self.head.borrow()
    }

    /// Its link was given up in the middle of something: what the store has counts.
    pub(crate) fn abandon(&self) {
        self.stale.store(true, Ordering::Release);
    }

    pub(super) fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Acquire)
    }

    /// What edits would come to, without doing them.
    pub(crate) fn would(&self, edits: Vec<Edit>) -> Vec<EditOutcome> {
        self.sets().plan(edits).1
    }

    /// Changes the feed; durable when it returns. At most [`store::MAX_CHANGES_IN_WRITE`]
    /// edits of [`store::MAX_WRITE_BYTES`] together.
    pub(crate) async fn change(self: &Arc<Self>, edits: Vec<Edit>) -> Result<Vec<EditOutcome>, HubError> {
        let this = self.clone();
        run_to_completion(async move { this.change_locked(edits).await }).await
    }

    async fn change_locked(&self, edits: Vec<Edit>) -> Result<Vec<EditOutcome>, HubError> {
        let _one = self.changing.lock().await;
        let acts: Vec<bool> = edits.iter().map(|edit| is_action(edit.key())).collect();
        let (write, came) = self.sets().plan(edits);
        if write.ours.is_empty() {
            return Ok(came);
        }
        let written = write.ours.clone();
        self.write(write).await?;
        let linked = self.head.receiver_count() > 0;
        let mut sets = self.sets();
        sets.founded = true;
        sets.compacted = None;
        let keys: Vec<ObjectKey> = written.iter().map(|(change, _)| change.key.clone()).collect();
        for (change, content) in written {
            sets.recent.keep(change.key.clone(), content.filter(|_| linked));
            sets.commit(&self.id, change);
        }
        let (cursor, objects) = (sets.feed.cursor(), sets.feed.len());
        drop(sets);
        let actions =
            |what: EditOutcome| acts.iter().zip(&came).filter(|(act, came)| **act && **came == what).count();
        let change = FeedChange {
            head: cursor.clone(),
            objects: objects as u64,
            keys,
            actions_created: actions(EditOutcome::Created) as u64,
            actions_deleted: actions(EditOutcome::Deleted) as u64,
        };
        self.sync_index.feed_changed(&self.id, &change);
        self.head.send_replace(cursor.revision);
        Ok(came)
    }

    /// Makes a batch of the replica durable. The link commits it to the replica afterwards,
    /// and says how many objects it has with [`super::Hub::received`].
    pub(crate) async fn keep(self: &Arc<Self>, write: Write) -> Result<(), HubError> {
        let this = self.clone();
        run_to_completion(async move { this.write(write).await }).await
    }

    async fn write(&self, write: Write) -> Result<(), HubError> {
        let written = self.store.sync_write(&self.id, write, now()).await;
        if let Err(StoreError::Unsound(_) | StoreError::Closed | StoreError::UnknownNode(_)) = &written {
            self.stale.store(true, Ordering::Release);
        }
        Ok(written?)
    }

    /// Begins the feed's incarnation anew with the same objects: its numbers were given out before.
    pub(crate) async fn reincarnate(self: &Arc<Self>) -> Result<(), HubError> {
        let this = self.clone();
        run_to_completion(async move { this.reincarnate_locked().await }).await
    }

    async fn reincarnate_locked(&self) -> Result<(), HubError> {
        let _one = self.changing.lock().await;
        let anew = self.sets().feed.reincarnate(fresh_incarnation()?);
        let changes = anew.changes_after(0, usize::MAX);
        let keys: Vec<ObjectKey> = changes.iter().map(|change| change.key.clone()).collect();
        let mut contents = Vec::with_capacity(keys.len());
        for keys in keys.chunks(store::MAX_CONTENTS_ASKED) {
            let asked = self.store.sync_contents(&self.id, sync::Side::Ours, keys.to_vec());
            contents.extend(asked.await?);
        }
        let ours = changes.into_iter().zip(contents).collect();
        self.write(Write { found: Some(anew.incarnation().clone()), ours, ..Write::default() }).await?;
        let (cursor, objects) = (anew.cursor(), anew.len());
        self.sync_index.feed_loaded(&self.id, &anew);
        {
            let mut sets = self.sets();
            sets.feed = anew;
            sets.founded = true;
            sets.compacted = None;
        }
        let (head, objects) = (cursor.clone(), objects as u64);
        let change = FeedChange { head, objects, keys: Vec::new(), actions_created: 0, actions_deleted: 0 };
        self.sync_index.feed_changed(&self.id, &change);
        self.head.send_replace(cursor.revision);
        Ok(())
    }

    /// Contents of objects of the feed, to be sent: those that were written just now are given away
    /// once, the others come from the store. `None` for one that is not there.
    pub(crate) async fn contents_to_send(
        &self,
        keys: &[ObjectKey],
    ) -> Result<Vec<Option<Content>>, HubError> {
        let mut contents: Vec<Option<Content>> = {
            let mut sets = self.sets();
            keys.iter().map(|key| sets.recent.take(key)).collect()
        };
        let lacking = keys.iter().zip(&contents).filter(|(_, content)| content.is_none());
        let lacking: Vec<ObjectKey> = lacking.map(|(key, _)| key.clone()).collect();
        if !lacking.is_empty() {
            let mut stored = self.contents(sync::Side::Ours, lacking).await?.into_iter();
            for content in contents.iter_mut().filter(|content| content.is_none()) {
                *content = stored.next().flatten();
            }
        }
        Ok(contents)
    }

    /// Contents of objects on one side; `None` for one that is not there.
    pub(crate) async fn contents(
        &self,
        side: sync::Side,
        keys: Vec<ObjectKey>,
    ) -> Result<Vec<Option<Content>>, HubError> {
        Ok(self.store.sync_contents(&self.id, side, keys).await?)
    }
}

/// Work that goes to its end also when the one who asked hangs up: what the store took and
/// memory did not would be known to nobody until the next load.
async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, HubError>> + Send + 'static,
) -> Result<T, HubError> {
    tokio::spawn(work).await.unwrap_or(Err(HubError::GivenUp))
}

impl Sets {
    fn commit(&mut self, node: &NodeId, change: Change) {
        let before = self.feed.stub(&change.key).map_or(0, |stub| stub.size);
        let after = match &change.state {
            State::Live { stub, .. } => stub.size,
            State::Gone { .. } => 0,
        };
        // The planner numbers them one after the other; nobody else commits meanwhile.
        match self.feed.commit(change) {
            Ok(compacted) => {
                self.compacted = compacted.or(self.compacted);
                self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
            }
            Err(error) => tracing::error!(%node, %error, "a change of a feed is out of order"),
        }
    }

    /// The incarnation of the feed as the store knows it.
    fn found(&self) -> Option<Incarnation> {
        (!self.founded).then(|| self.feed.incarnation().clone())
    }

    fn plan(&self, edits: Vec<Edit>) -> (Write, Vec<EditOutcome>) {
        let mut write = Write { found: self.found(), compacted: self.compacted, ..Write::default() };
        let mut planned = Planned { sets: self, over: BTreeMap::new(), uids: None, count: 0, bytes: 0 };
        planned.count = self.feed.len();
        planned.bytes = self.bytes;
        let mut planner = self.feed.planner();
        let mut came = Vec::with_capacity(edits.len());
        for edit in edits {
            match edit {
                Edit::Put { key, uid, content } => match planned.put(&key, uid, &content) {
                    Err(refused) => came.push(EditOutcome::Refused(refused)),
                    Ok((stub, was)) => {
                        let Ok(change) = planner.try_put(&key, &stub) else {
                            planned.removed(&key);
                            came.push(EditOutcome::Refused(EditRejection::TooManySections));
                            continue;
                        };
                        came.push(match (&change, was) {
                            (None, _) => EditOutcome::Unchanged,
                            (Some(_), false) => EditOutcome::Created,
                            (Some(_), true) => EditOutcome::Changed,
                        });
                        write.ours.extend(change.map(|change| (change, Some(content))));
                    }
                },
                Edit::Remove { key } => {
                    let change = planner.remove(&key);
                    came.push(if change.is_some() { EditOutcome::Deleted } else { EditOutcome::Absent });
                    planned.removed(&key);
                    write.ours.extend(change.map(|change| (change, None)));
                }
            }
        }
        (write, came)
    }
}

/// A feed with a part of the edits laid over it.
struct Planned<'a> {
    sets: &'a Sets,
    over: BTreeMap<ObjectKey, Option<Stub>>,
    /// Who has which uid; worked out when somebody says one.
    uids: Option<BTreeMap<(Kind, Arc<str>), ObjectKey>>,
    count: usize,
    bytes: u64,
}

impl Planned<'_> {
    fn stub(&self, key: &ObjectKey) -> Option<&Stub> {
        match self.over.get(key) {
            Some(stub) => stub.as_ref(),
            None => self.sets.feed.stub(key),
        }
    }

    /// The stub to put, and whether the object was there.
    fn put(&mut self, key: &ObjectKey, uid: Uid, content: &Content) -> Result<(Stub, bool), EditRejection> {
        let before = self.stub(key).cloned();
        let uid = match uid {
            Uid::Known(uid) => uid,
            Uid::Kept(fresh) => before.as_ref().map_or(fresh, |stub| stub.uid.clone()),
            Uid::Said(uid) => {
                self.alone(key, &uid)?;
                uid
            }
        };
        let size = content.bytes.len() as u64;
        let count = self.count + usize::from(before.is_none());
        let bytes = self.bytes.saturating_sub(before.as_ref().map_or(0, |stub| stub.size)) + size;
        let (more, more_bytes) = match key.section.kind.as_str() {
            Kind::ACTION => (ACTIONS, ACTIONS_BYTES),
            _ => (0, 0),
        };
        // What grows neither is let in: a feed that is full of actions can still be edited.
        if before.is_none() && count > MAX_OBJECTS + more {
            return Err(EditRejection::TooMany);
        }
        if size > before.as_ref().map_or(0, |stub| stub.size) && bytes > MAX_BYTES + more_bytes {
            return Err(EditRejection::TooMuch);
        }
        (self.count, self.bytes) = (count, bytes);
        let stub = Stub { uid, digest: Digest::of(&content.bytes), size };
        if let Some(uids) = &mut self.uids {
            let kind = key.section.kind.clone();
            if let Some(before) = &before {
                uids.remove(&(kind.clone(), before.uid.clone()));
            }
            uids.insert((kind, stub.uid.clone()), key.clone());
        }
        self.over.insert(key.clone(), Some(stub.clone()));
        Ok((stub, before.is_some()))
    }

    fn removed(&mut self, key: &ObjectKey) {
        if let Some(stub) = self.stub(key).cloned() {
            self.count -= 1;
            self.bytes = self.bytes.saturating_sub(stub.size);
            if let Some(uids) = &mut self.uids {
                uids.remove(&(key.section.kind.clone(), stub.uid));
            }
        }
        self.over.insert(key.clone(), None);
    }

    /// No other object of the kind has the uid.
    fn alone(&mut self, key: &ObjectKey, uid: &Arc<str>) -> Result<(), EditRejection> {
        if self.uids.is_none() {
            let mut uids = BTreeMap::new();
            let over = self.over.iter().filter_map(|(key, stub)| Some((key, stub.as_ref()?)));
            let under = self.sets.feed.objects().filter(|(key, _)| !self.over.contains_key(*key));
            for (key, stub) in under.chain(over) {
                uids.insert((key.section.kind.clone(), stub.uid.clone()), key.clone());
            }
            self.uids = Some(uids);
        }
        let holder = self.uids.as_ref().and_then(|uids| uids.get(&(key.section.kind.clone(), uid.clone())));
        match holder {
            Some(holder) if holder != key => Err(EditRejection::UidTwice(holder.clone())),
            _ => Ok(()),
        }
    }
}
