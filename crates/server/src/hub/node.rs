//! [`NodeSync`]: the two sets of one node.
//!
//! ```text
//! edits --plan--> Write --store--> commit to the feed --> head: Signal --> link, server-sent events
//! link: batch --keep--> store --> the link commits to the replica
//! ```
//!
//! Invariants: a node's feed is changed by one at a time; its replica is changed by its link alone; what
//! is in memory never runs ahead of the store; when that is in doubt the sets are stale, and loaded anew.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::set::MAX_SECTIONS;
use model::{Digest, Kind, NodeId, ObjectKey, Stub};
use net::Signal;
use store::{Store, StoreError};
use sync::feed::{Change, Feed, Planner};
use sync::replica::Replica;
use sync::{Content, LoadedChange, Side, Write};

use super::index::SyncIndex;
use super::recent::RecentContents;
use super::summary::is_action;
use super::{HubError, fresh_incarnation};
use crate::api::objects::ApplyOutcome;
use crate::feed_signing::FeedSigning;
use crate::posture;
use crate::state::{now, run_to_completion};

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
    shared: NodeShared,
    sets: Mutex<NodeSets>,
    /// One change of the feed at a time.
    changing: tokio::sync::Mutex<()>,
    /// The feed's last change.
    head: Arc<Signal>,
    /// The feed's end when a post was answered last, or events were sent: the node has what is up to
    /// there, or comes for it.
    answered: AtomicU64,
    /// The store may have taken what memory has not: no link or request begins with this one any more.
    stale: AtomicBool,
}

/// What the sets of all nodes share.
pub(super) struct NodeShared {
    pub(super) store: Arc<Store>,
    pub(super) signing: Arc<FeedSigning>,
    pub(super) sync_index: Arc<SyncIndex>,
}

/// What is kept of a node.
pub(crate) struct NodeSets {
    /// What the control plane authors for the node.
    pub(crate) feed: Feed,
    /// What the node authors.
    pub(crate) replica: Replica,
    /// What a link sends next.
    recent: RecentContents,
}

/// A change to make to a feed.
#[derive(Clone, Debug)]
pub(crate) struct FeedEdit {
    /// Which object.
    pub(crate) key: ObjectKey,
    /// What it is to be; `None`: it is to go.
    pub(crate) put: Option<(Uid, Content)>,
}

/// Under which uid an object is put.
#[derive(Clone, Debug)]
pub(crate) enum Uid {
    /// This one, as a manifest says it; another than before is another incarnation.
    Given(Arc<str>),
    /// The one that it has; this one, which no other object has, when it comes into being.
    Generated(Arc<str>),
    /// The one that it has; a random one when it comes into being.
    Random,
}

/// What an edit came to.
pub(crate) type EditOutcome = Result<ApplyOutcome, EditRejection>;

/// Why an object does not fit into a node's feed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EditRejection {
    #[error("uid-twice: {0} has this uid; one uid is one object")]
    UidTwice(ObjectKey),
    #[error("too-many: a node has at most {MAX_OBJECTS} objects")]
    TooMany,
    #[error("too-many: the objects of a node hold at most {MAX_BYTES} bytes together")]
    TooMuch,
    #[error("internal: the system gives no random bytes for a uid")]
    NoRandom,
    #[error("too-many: the objects of a node are of at most {MAX_SECTIONS} kinds and namespaces")]
    TooManySections,
}

impl NodeSync {
    pub(super) fn restore(id: NodeId, shared: NodeShared, saved: sync::Saved) -> Result<NodeSync, HubError> {
        let feed = match saved.feed {
            Some(saved) => Feed::restore(saved),
            None => Feed::new(fresh_incarnation()?),
        };
        shared.sync_index.feed_loaded(&id, &feed);
        let head = Arc::new(Signal::new(feed.head()));
        let replica = Replica::restore(saved.replica);
        let sets = Mutex::new(NodeSets { feed, replica, recent: RecentContents::default() });
        let (changing, stale) = (tokio::sync::Mutex::default(), AtomicBool::new(false));
        let answered = AtomicU64::new(0);
        Ok(NodeSync { id, shared, sets, changing, head, answered, stale })
    }

    /// The sets. A panic while they were held cannot have left them half changed: what is
    /// in the store counts, and every change is one commit.
    pub(crate) fn sets(&self) -> MutexGuard<'_, NodeSets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The feed's last change, to wait for the next one.
    pub(crate) fn head(&self) -> Arc<Signal> {
        self.head.clone()
    }

    /// A link, a post or server-sent events take what is in the feed by now to the node.
    pub(crate) fn answered(&self) {
        self.answered.store(self.head.get(), Ordering::Release);
    }

    /// Whether the node got all of the feed, or comes for it; of stale sets nobody knows.
    pub(crate) fn is_answered(&self) -> bool {
        !self.is_stale() && self.answered.load(Ordering::Acquire) >= self.head.get()
    }

    /// Memory and the store may differ: what the store has counts. Server-sent events go on with the sets
    /// that are loaded from there.
    pub(crate) fn abandon(&self) {
        self.stale.store(true, Ordering::Release);
        self.head.raise(0);
    }

    pub(super) fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Acquire)
    }

    /// What edits would come to, without doing them.
    pub(crate) fn would(&self, edits: Vec<FeedEdit>) -> Vec<EditOutcome> {
        self.sets().plan(edits).1
    }

    /// Changes the feed; durable in this handle of the store when it returns. At most
    /// [`store::MAX_CHANGES_IN_WRITE`] edits of [`store::MAX_WRITE_BYTES`] together.
    pub(super) async fn change(
        self: &Arc<Self>,
        edits: Vec<FeedEdit>,
        store: Arc<Store>,
    ) -> Result<Vec<EditOutcome>, HubError> {
        let this = self.clone();
        run_to_completion(async move {
            let _one = this.changing.lock().await;
            let (ours, outcomes) = this.sets().plan(edits);
            if ours.is_empty() {
                return Ok(outcomes);
            }
            let mut write = Write::of(&this.sets().feed, ours.clone());
            let incarnation = this.sets().feed.incarnation().clone();
            let changes = ours.iter().map(|(change, _)| change);
            write.proofs = this.shared.signing.prove(&this.id, &incarnation, changes).await;
            let mut proofs = write.proofs.clone().into_iter();
            this.write(&store, write).await?;
            let linked = Arc::strong_count(&this.head) > 1;
            let keys: Vec<ObjectKey> = ours.iter().map(|(change, _)| change.key.clone()).collect();
            let mut sets = this.sets();
            for (change, content) in ours {
                let written = LoadedChange { rev: change.rev, content, proof: proofs.next() };
                sets.recent.keep(change.key.clone(), Some(written).filter(|_| linked));
                // The planner numbers them one after the other; nobody else commits meanwhile.
                if let Err(error) = sets.feed.commit(change) {
                    tracing::error!(node = %this.id, %error, "a change of a feed is out of order");
                }
            }
            this.feed_changed(&sets.feed, &keys);
            Ok(outcomes)
        })
        .await
    }

    /// Makes a batch of the replica durable. The link commits it to the replica afterwards,
    /// and reports how many objects it has.
    pub(crate) async fn keep(self: &Arc<Self>, write: Write) -> Result<(), HubError> {
        let this = self.clone();
        run_to_completion(async move { this.write(&this.shared.store, write).await }).await
    }

    async fn write(&self, store: &Store, write: Write) -> Result<(), HubError> {
        let written = store.sync_write(&self.id, write, now()).await;
        if let Err(StoreError::Unsound(_) | StoreError::Closed | StoreError::UnknownNode(_)) = &written {
            self.abandon();
        }
        Ok(written?)
    }

    /// Begins the feed's incarnation anew with the same objects: its numbers were given out before.
    pub(crate) async fn reincarnate(self: &Arc<Self>) -> Result<(), HubError> {
        let this = self.clone();
        run_to_completion(async move {
            let _one = this.changing.lock().await;
            let incarnation = fresh_incarnation()?;
            let anew = this.sets().feed.reincarnate(incarnation.clone());
            let changes = anew.changes();
            let keys: Vec<ObjectKey> = changes.iter().map(|change| change.key.clone()).collect();
            let mut contents = Vec::with_capacity(keys.len());
            for keys in keys.chunks(store::MAX_CONTENTS_ASKED) {
                contents.extend(this.shared.store.sync_contents(&this.id, Side::Feed, keys.to_vec()).await?);
            }
            let proofs = this.shared.signing.prove(&this.id, &incarnation, changes.iter()).await;
            let ours = changes.into_iter().zip(contents).collect();
            let write = Write { proofs, ..Write::of(&Feed::new(incarnation), ours) };
            this.write(&this.shared.store, write).await?;
            let mut sets = this.sets();
            sets.feed = anew;
            // Its numbers begin anew.
            this.answered.store(0, Ordering::Release);
            this.feed_changed(&sets.feed, &[]);
            Ok(())
        })
        .await
    }

    /// The feed is this now; these objects changed last in it.
    fn feed_changed(&self, feed: &Feed, keys: &[ObjectKey]) {
        self.shared.sync_index.update(&self.id, |summary| summary.feed_changed(feed, keys, now()));
        self.head.set(feed.head());
    }

    /// Objects of the feed, to be sent: where all were written just now they are given away once, else they come
    /// from the store. `None` for one that is not there.
    pub(crate) async fn objects_to_send(
        &self,
        keys: &[ObjectKey],
    ) -> Result<Vec<Option<LoadedChange>>, StoreError> {
        let recent: Vec<Option<LoadedChange>> = {
            let mut sets = self.sets();
            keys.iter().map(|key| sets.recent.take(key)).collect()
        };
        if recent.iter().all(Option::is_some) {
            return Ok(recent);
        }
        self.shared.store.sync_feed_objects(&self.id, keys.to_vec()).await
    }
}

impl NodeSets {
    /// The changes that edits are, and what each of them comes to.
    fn plan(&self, edits: Vec<FeedEdit>) -> (Vec<PlannedChange>, Vec<EditOutcome>) {
        let mut planner = EditPlanner { planner: self.feed.planner(), changes: Vec::new(), uids: None };
        let outcomes = edits.into_iter().map(|edit| planner.plan(edit)).collect();
        (planner.changes, outcomes)
    }
}

/// A change, and what it puts.
type PlannedChange = (Change, Option<Content>);

/// A feed with a part of the edits laid over it.
struct EditPlanner<'a> {
    planner: Planner<'a>,
    /// What those edits are.
    changes: Vec<PlannedChange>,
    /// Which object had which uid last; worked out when a manifest says one.
    uids: Option<BTreeMap<(Kind, Arc<str>), ObjectKey>>,
}

impl EditPlanner<'_> {
    fn plan(&mut self, FeedEdit { key, put }: FeedEdit) -> EditOutcome {
        let key = self.planner.key(key);
        let before = self.planner.stub(&key).cloned();
        let (change, content) = match put {
            Some((uid, content)) => {
                let stub = self.fits(&key, uid, &content, before.as_ref())?;
                let change = self.planner.put(&key, &stub);
                (change.map_err(|_| EditRejection::TooManySections)?, Some(content))
            }
            None => (self.planner.remove(&key), None),
        };
        let outcome = match (before, &content) {
            (None, None) => ApplyOutcome::Absent,
            (Some(_), None) => ApplyOutcome::Deleted,
            (_, Some(_)) if change.is_none() => ApplyOutcome::Unchanged,
            (None, Some(_)) => ApplyOutcome::Created,
            (Some(_), Some(_)) => ApplyOutcome::Changed,
        };
        self.changes.extend(change.map(|change| (change, content)));
        Ok(outcome)
    }

    /// The stub to put, when there is room for it and its uid is its own.
    fn fits(
        &mut self,
        key: &ObjectKey,
        uid: Uid,
        content: &Content,
        before: Option<&Stub>,
    ) -> Result<Stub, EditRejection> {
        let uid = match uid {
            Uid::Generated(uid) => before.map_or(uid, |stub| stub.uid.clone()),
            Uid::Random => match before {
                Some(stub) => stub.uid.clone(),
                None => sync::identity::uid(posture::random().map_err(|_| EditRejection::NoRandom)?),
            },
            Uid::Given(uid) => {
                self.is_its_own(key, &uid)?;
                uid
            }
        };
        let (size, old) = (content.bytes.len() as u64, before.map_or(0, |stub| stub.size));
        let sync::Totals { objects, bytes } = self.planner.totals();
        let (more, more_bytes) = if is_action(key) { (ACTIONS, ACTIONS_BYTES) } else { (0, 0) };
        // What grows neither is let in: a feed that is full of actions can still be edited.
        if before.is_none() && objects >= MAX_OBJECTS + more {
            return Err(EditRejection::TooMany);
        }
        if size > old && bytes.saturating_sub(old) + size > MAX_BYTES + more_bytes {
            return Err(EditRejection::TooMuch);
        }
        Ok(Stub { uid, digest: Digest::of(&content.bytes), size })
    }

    /// No other object of the kind has the uid.
    fn is_its_own(&mut self, key: &ObjectKey, uid: &Arc<str>) -> Result<(), EditRejection> {
        let planner = &self.planner;
        let uids = self.uids.get_or_insert_with(|| {
            let of = |(key, stub): (&ObjectKey, &Stub)| {
                ((key.section.kind.clone(), stub.uid.clone()), key.clone())
            };
            planner.objects().map(of).collect()
        });
        let holder = uids.entry((key.section.kind.clone(), uid.clone())).or_insert_with(|| key.clone());
        if holder != key && planner.stub(holder).is_some_and(|stub| stub.uid == *uid) {
            return Err(EditRejection::UidTwice(holder.clone()));
        }
        *holder = key.clone();
        Ok(())
    }
}
