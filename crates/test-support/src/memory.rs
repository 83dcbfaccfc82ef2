//! [`MemoryLinkHandler`]: an end of links that keeps everything in memory, for measurements and
//! tests. It applies whatever comes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use model::{Digest, Incarnation, ObjectKey, Stub, Timestamp};
use net::Signal;
use sync::frame::Op;
use sync::link::{ApplyBatch, FeedProver, ItemOutcome, Link, LinkCounters, NotDurable, Note};
use sync::replica::Replica;
use sync::{Content, Feed, Frame, LoadedChange};
use tokio::sync::watch;

use streams::{LinkHandler, LoadError};

/// Both sets, and what was seen.
pub struct MemoryLinkHandler {
    state: Mutex<State>,
    head: Arc<Signal>,
    seen: watch::Sender<u64>,
}

/// What is kept.
struct State {
    feed: Feed,
    replica: Replica,
    ours: BTreeMap<ObjectKey, Content>,
    theirs: BTreeMap<ObjectKey, Bytes>,
    received: Vec<Frame>,
    notes: Vec<Note>,
    counters: LinkCounters,
    acked: u64,
    refused: u64,
    hellos: u64,
    incarnations: u64,
    refusing: Option<(ObjectKey, ItemOutcome)>,
    refusals: u64,
    /// Proves what is sent, where it is the control plane's end.
    prover: Option<FeedProver>,
}

impl State {
    /// An object of the feed as it is kept.
    fn loaded(&self, key: &ObjectKey, rev: u64) -> Option<LoadedChange> {
        let Some(prover) = &self.prover else {
            return Some(LoadedChange::unsigned(rev, self.ours.get(key)?.clone()));
        };
        let (rev, object) = self.feed.get(key)?;
        let leaf = prover.leaf(self.feed.incarnation(), rev, key, object);
        let proof = prover.signer.sign_changes(&[leaf], Timestamp(1)).pop().map(Bytes::from);
        Some(LoadedChange { rev, content: self.ours.get(key).cloned(), proof })
    }
}

impl MemoryLinkHandler {
    /// With a feed that begins this incarnation.
    pub fn new(incarnation: Incarnation) -> MemoryLinkHandler {
        let state = State {
            feed: Feed::new(incarnation),
            replica: Replica::new(),
            ours: BTreeMap::new(),
            theirs: BTreeMap::new(),
            received: Vec::new(),
            notes: Vec::new(),
            counters: LinkCounters::default(),
            acked: 0,
            refused: 0,
            hellos: 0,
            incarnations: 0,
            refusing: None,
            refusals: 0,
            prover: None,
        };
        MemoryLinkHandler { state: Mutex::new(state), head: Arc::default(), seen: watch::Sender::new(0) }
    }

    /// The same, which proves its feed to a node.
    pub fn proving(self, prover: FeedProver) -> MemoryLinkHandler {
        self.state().prover = Some(prover);
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The feed's last change, to wait for the next one.
    pub fn head(&self) -> Arc<Signal> {
        self.head.clone()
    }

    /// Tells when something was applied or acknowledged.
    pub fn seen(&self) -> watch::Receiver<u64> {
        self.seen.subscribe()
    }

    /// Puts objects into the feed, all at one time.
    pub fn put_all(&self, objects: impl IntoIterator<Item = (ObjectKey, Arc<str>, Bytes)>, at: i64) {
        let mut state = self.state();
        for (key, uid, bytes) in objects {
            let stub = Stub { uid, digest: Digest::of(&bytes), size: bytes.len() as u64 };
            if let Ok(Some(change)) = state.feed.planner().put(&key, &stub) {
                state.ours.insert(key, Content { bytes, trace: None, at });
                // It is the planned one, in its order.
                let _ = state.feed.commit(change);
            }
        }
        let head = state.feed.head();
        drop(state);
        self.head.set(head);
    }

    /// Puts one object into the feed.
    pub fn put(&self, key: ObjectKey, uid: &str, bytes: Bytes, at: i64) {
        self.put_all([(key, uid.into(), bytes)], at);
    }

    /// Takes an object out of the feed.
    pub fn remove(&self, key: &ObjectKey) {
        let mut state = self.state();
        if let Some(change) = state.feed.planner().remove(key) {
            state.ours.remove(key);
            let _ = state.feed.commit(change);
        }
        let head = state.feed.head();
        drop(state);
        self.head.set(head);
    }

    /// What the other side authors, as it came here.
    pub fn theirs(&self) -> BTreeMap<ObjectKey, Bytes> {
        self.state().theirs.clone()
    }

    /// How many objects of the other side are here.
    pub fn their_count(&self) -> usize {
        self.state().theirs.len()
    }

    /// How far the other side has the feed.
    pub fn acked(&self) -> u64 {
        self.state().acked
    }

    /// How many objects the other side holds otherwise than the feed says, by its word.
    pub fn refused_there(&self) -> u64 {
        self.state().refused
    }

    /// How many links the other side said hello on.
    pub fn hellos(&self) -> u64 {
        self.state().hellos
    }

    /// Frames that were none of the link's own.
    pub fn received(&self) -> Vec<Frame> {
        self.state().received.clone()
    }

    /// What links said.
    pub fn notes(&self) -> Vec<Note> {
        self.state().notes.clone()
    }

    /// What the newest link counted.
    pub fn counters(&self) -> LinkCounters {
        self.state().counters
    }

    /// From now on this comes of every change of an object.
    pub fn refuse(&self, key: ObjectKey, outcome: ItemOutcome) {
        self.state().refusing = Some((key, outcome));
    }

    /// How often that came of one.
    pub fn refusals(&self) -> u64 {
        self.state().refusals
    }
}

#[async_trait]
impl LinkHandler for MemoryLinkHandler {
    fn with_sets<T>(&self, work: impl FnOnce(&mut Feed, &mut Replica) -> T) -> T {
        let mut state = self.state();
        let state = &mut *state;
        work(&mut state.feed, &mut state.replica)
    }

    async fn load(&self, wants: Vec<(ObjectKey, u64)>) -> Result<Vec<Option<LoadedChange>>, LoadError> {
        let state = self.state();
        Ok(wants.into_iter().map(|(key, rev)| state.loaded(&key, rev)).collect())
    }

    async fn apply(&self, batch: Arc<ApplyBatch>) -> Result<Vec<ItemOutcome>, NotDurable> {
        let state = &mut *self.state();
        let mut outcomes = Vec::with_capacity(batch.items.len());
        for item in &batch.items {
            if let Some((_, outcome)) = state.refusing.as_ref().filter(|(key, _)| *key == item.key) {
                outcomes.push(outcome.clone());
                state.refusals += 1;
                continue;
            }
            match &item.change {
                Op::Put { content, .. } => state.theirs.insert(item.key.clone(), content.clone()),
                Op::Delete { .. } => state.theirs.remove(&item.key),
            };
            outcomes.push(ItemOutcome::Done);
        }
        Ok(outcomes)
    }

    async fn received(&self, frame: Frame) -> Option<Frame> {
        self.state().received.push(frame);
        None
    }

    fn note(&self, note: &Note) {
        let mut state = self.state();
        state.hellos += u64::from(matches!(note, Note::Met(_)));
        state.notes.push(note.clone());
    }

    fn progress(&self, link: &Link) {
        let mut state = self.state();
        state.counters = *link.counters();
        if let Some(acked) = link.acked() {
            state.acked = acked.revision;
        }
        state.refused = link.refused_there().unwrap_or(state.refused);
        drop(state);
        self.seen.send_modify(|count| *count += 1);
    }

    async fn reincarnate(&self) -> Result<(), Duration> {
        let mut state = self.state();
        state.incarnations += 1;
        let Ok(incarnation) = format!("{}-{}", state.feed.incarnation(), state.incarnations).parse() else {
            return Ok(());
        };
        state.feed = state.feed.reincarnate(incarnation);
        let head = state.feed.head();
        drop(state);
        self.head.set(head);
        Ok(())
    }
}
