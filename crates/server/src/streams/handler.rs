//! [`PlaneLinkHandler`]: what lies behind a link at the control plane: the store, check-ins, status.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use model::condition::{Evidence, NodeProblem, Rejection, SyncCause, node_status_key};
use model::{ObjectKey, Timestamp};
use streams::{LinkHandler, LoadError};
use sync::FeedCursor;
use sync::admission::Permits;
use sync::frame::{Hello, Op, Refused};
use sync::link::{Batch, Counters, ItemOutcome, Link, NotKept, Note};
use sync::replica::Replica;
use sync::{Content, Feed, Frame};
use tokio::time::Instant;

use crate::hub::{NodeLink, NodeSync, OpenLink};
use crate::metrics::{Direction, LinkCounts};
use crate::node_port::{self, Caller};
use crate::state::{ControlPlane, now};

/// How often contents are asked of a store that fails.
const LOADS: u32 = 5;
/// The wait before they are asked for again.
const LOAD_AGAIN: Duration = Duration::from_millis(500);
/// How long a check-in of a node that sent more than its share is held back before it is
/// refused. The link reads no further meanwhile.
const SHARE_WITHIN: Duration = Duration::from_secs(15);
/// Between two looks whether the node's share has filled up enough.
const SHARE_AGAIN: Duration = Duration::from_secs(1);

/// How often what a link counts is added to the metrics.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// One link's end at the control plane.
pub(super) struct PlaneLinkHandler {
    pub(super) plane: Arc<ControlPlane>,
    pub(super) caller: Caller,
    pub(super) sets: Arc<NodeSync>,
    pub(super) link: Arc<NodeLink>,
    /// The incarnation of the agent whose link this one took the place of.
    replaced: Option<String>,
    reported: Mutex<Reported>,
    received: AtomicU64,
}

/// What the hub was told last of the link.
#[derive(Default)]
struct Reported {
    cause: Option<SyncCause>,
    /// The sets were found equal then, and that is not yet part of the evidence.
    compared: Option<Timestamp>,
    evidence: Option<Evidence>,
    acked: Option<FeedCursor>,
    objects: usize,
    counted: Counters,
    counted_at: Option<Instant>,
    /// How many objects the node rejects, as it said last.
    rejected: Option<u64>,
}

impl PlaneLinkHandler {
    pub(super) fn new(
        plane: &Arc<ControlPlane>,
        caller: Caller,
        sets: &Arc<NodeSync>,
        open: &OpenLink,
    ) -> Arc<PlaneLinkHandler> {
        let (plane, sets, link) = (plane.clone(), sets.clone(), open.link.clone());
        let replaced = open.replaced.as_ref().and_then(|old| old.instance().map(str::to_owned));
        let (reported, received) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(PlaneLinkHandler { plane, caller, sets, link, replaced, reported, received })
    }

    /// Check-ins that came over the link.
    pub(super) fn check_ins(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Adds to the metrics what the link counted since the last time.
    pub(super) fn count(&self, counters: &Counters) {
        let before = {
            let mut reported = self.reported();
            reported.counted_at = Some(Instant::now());
            std::mem::replace(&mut reported.counted, *counters)
        };
        if before == *counters {
            return;
        }
        let metrics = &self.plane.metrics;
        let since = |of: fn(&Counters) -> u64| of(counters).saturating_sub(of(&before));
        for (way, kind, count) in [
            (Direction::Out, "event", since(|c| c.sent)),
            (Direction::Out, "processed", since(|c| c.acks_sent)),
            (Direction::In, "event", since(|c| c.received)),
            (Direction::In, "processed", since(|c| c.acks_received)),
        ] {
            if count > 0 {
                metrics.events(way, kind, count);
            }
        }
        metrics.counted(LinkCounts {
            coalesced: since(|c| c.coalesced),
            superseded: since(|c| c.superseded),
            duplicates: since(|c| c.duplicates),
            applied: since(|c| c.applied),
            refused: since(|c| c.refused_here + c.refused_there),
            resync_frames: since(|c| c.resync_frames),
            resync_objects: since(|c| c.resync_objects),
        });
        for _ in 0..since(|c| c.resyncs + c.resyncs_served) {
            metrics.resync_began();
        }
    }

    fn reported(&self) -> MutexGuard<'_, Reported> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the node says of the place where its objects live, when the batch has it.
    fn node_reports(&self, batch: &Batch) {
        let key = node_status_key();
        let last = batch.items.iter().rev().find(|item| item.key == key);
        let problem = match last.map(|item| &item.change) {
            Some(Op::Put { content, .. }) => NodeProblem::from_content(content),
            Some(Op::Delete { .. }) => None,
            None => return,
        };
        let index = self.plane.hub.sync_index();
        index.update(&self.caller.id, |summary| summary.node_reports(problem));
    }

    /// Takes bytes of a check-in out of the node's share of what the control plane takes in
    /// (SCL-3); `false` when it does not fit in good time.
    async fn charge(&self, bytes: u64) -> bool {
        let until = Instant::now() + SHARE_WITHIN;
        loop {
            if self.caller.slot.lock().node.budget.take(bytes, now()) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(SHARE_AGAIN).await;
        }
    }
}

#[async_trait]
impl LinkHandler for PlaneLinkHandler {
    fn with_sets<T>(&self, work: impl FnOnce(&mut Feed, &mut Replica) -> T) -> T {
        let mut sets = self.sets.sets();
        let sets = &mut *sets;
        work(&mut sets.feed, &mut sets.replica)
    }

    async fn load(&self, wants: Vec<(ObjectKey, u64)>) -> Result<Vec<Option<Content>>, LoadError> {
        let keys: Vec<ObjectKey> = wants.into_iter().map(|(key, _)| key).collect();
        for _ in 0..LOADS {
            match self.sets.contents_to_send(&keys).await {
                Ok(contents) => return Ok(contents),
                Err(error) => tracing::warn!(node = %self.caller.id, %error, "contents cannot be read"),
            }
            tokio::time::sleep(LOAD_AGAIN).await;
        }
        Err(LoadError)
    }

    async fn apply(&self, batch: Arc<Batch>) -> Result<Vec<ItemOutcome>, NotKept> {
        let (done, begun) = (vec![ItemOutcome::Done; batch.items.len()], Instant::now());
        match self.sets.keep(batch.write(&done)).await {
            Ok(()) => {
                self.node_reports(&batch);
                self.plane.metrics.processed(begun.elapsed());
                Ok(done)
            }
            Err(error) => {
                tracing::warn!(node = %self.caller.id, %error, "a batch cannot be kept");
                Err(NotKept("the control plane cannot store it now".to_owned()))
            }
        }
    }

    fn permits(&self) -> &dyn Permits {
        self
    }

    async fn received(&self, frame: Frame) -> Option<Frame> {
        let Frame::CheckIn(request) = frame else { return None };
        self.received.fetch_add(1, Ordering::Relaxed);
        if !self.charge(wire::body::encoded_len(&request) as u64).await {
            tracing::info!(node = %self.caller.id, "the node sends more than its share; a check-in is refused");
            return None;
        }
        match node_port::check_in(&self.plane, &self.caller, *request, Duration::ZERO).await {
            Ok((answer, _)) => Some(Frame::Answer(Box::new(answer))),
            Err(problem) => {
                // The agent waits for the answer as long as for any, then tries again.
                tracing::info!(node = %self.caller.id, code = problem.code, "a check-in on a link is refused");
                None
            }
        }
    }

    fn hello(&self, hello: &Hello) {
        if !self.link.is_of(&hello.instance) {
            return self.link.end("instance", "another process said hello than the one that opened the link");
        }
        let other = |old: &&String| self.link.instance().is_some_and(|instance| instance != *old);
        if let Some(old) = self.replaced.as_ref().filter(other) {
            self.caller.slot.stream_admission().replace(old);
        }
        self.plane.hub.sync_index().update(&self.caller.id, |summary| summary.link_met(&self.link));
        tracing::debug!(node = %self.caller.id, mode = ?hello.mode, "a link is up");
    }

    fn note(&self, note: &Note) {
        let (node, metrics) = (&self.caller.id, &self.plane.metrics);
        match note {
            Note::RefusedThere(Refused { key, code, message, .. }) => {
                if self.sets.sets().feed.get(key).is_none() {
                    tracing::debug!(%node, %key, "the node refuses an object that it was never sent");
                    return;
                }
                let rejection = Rejection::new(code, message);
                let index = self.plane.hub.sync_index();
                let news = index.update(node, |summary| summary.reject(key.clone(), rejection));
                // A node may say it of everything it has, and with every comparison again.
                if news {
                    tracing::info!(%node, %key, code, message, "the node will not take an object");
                }
                metrics.failed(code);
            }
            Note::RefusedHere(Refused { key, code, message, .. }) => {
                tracing::info!(%node, %key, code, message, "an object of the node cannot be taken");
                metrics.failed(code);
            }
            Note::Resynced { frames, fetched, deleted, kept, took } => {
                let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                tracing::info!(%node, frames, fetched, deleted, kept, took_ms, "a resync ended");
                metrics.resync_ended(*took);
            }
            Note::Missing(key) => tracing::warn!(%node, %key, "an object of a feed has no content"),
            Note::InSync => self.reported().compared = Some(now()),
            // What comes by a resync has no time, and deletes have none.
            Note::Applied { oldest: ..=0, .. } => {}
            Note::Applied { oldest, .. } => {
                let millis = u64::try_from(now().0.saturating_sub(*oldest)).unwrap_or(0);
                metrics.propagated(Duration::from_millis(millis));
            }
        }
    }

    fn progress(&self, link: &Link) {
        // What is said before the node's hello is nothing that it has or reported.
        if link.peer().is_none() {
            return;
        }
        let (node, index) = (&self.caller.id, self.plane.hub.sync_index());
        self.link.hears(link.heard());
        let mut reported = self.reported();
        let (cause, objects, acked) = {
            let sets = self.sets.sets();
            if let Some(at) = reported.compared.take() {
                let (instance, down) =
                    (self.plane.boot().to_owned(), link.acked().map(FeedCursor::checkpoint));
                let up = sets.replica.cursor().map(FeedCursor::checkpoint);
                reported.evidence = Some(Evidence { at, instance, down, up });
            }
            let cause = link.cause(&sets.feed, &sets.replica, reported.evidence.clone());
            // What a node claims to have beyond our feed is no progress.
            let ours = |cursor: &&FeedCursor| {
                cursor.incarnation == *sets.feed.incarnation() && cursor.revision <= sets.feed.head()
            };
            let acked = link.acked().filter(ours).cloned();
            (cause, sets.replica.len(), acked)
        };
        if reported.cause.as_ref() != Some(&cause) {
            reported.cause = Some(cause.clone());
            index.observed(&self.link, cause);
        }
        if let Some(acked) = acked
            && reported.acked.as_ref() != Some(&acked)
        {
            reported.acked = Some(acked.clone());
            index.update(node, |summary| summary.acknowledged(acked));
        }
        if let Some(count) = link.refused_there().filter(|count| reported.rejected != Some(*count)) {
            reported.rejected = Some(count);
            index.update(node, |summary| summary.rejects_still(count));
        }
        if reported.objects != objects {
            reported.objects = objects;
            index.update(node, |summary| summary.received(objects as u64));
        }
        let due = reported.counted_at.is_none_or(|at| at.elapsed() >= COUNT_EVERY);
        drop(reported);
        if due {
            self.count(link.counters());
        }
    }

    async fn reincarnate(&self) -> Result<(), Duration> {
        if let Some(left) = self.caller.slot.stream_admission().reincarnation_allowed_in() {
            let node = &self.caller.id;
            tracing::warn!(%node, "the node claims again to have more than its feed; nothing is done");
            return Err(left);
        }
        match self.sets.reincarnate().await {
            Ok(()) => self.caller.slot.stream_admission().reincarnates(),
            Err(error) => {
                tracing::error!(node = %self.caller.id, %error, "a feed cannot begin its incarnation anew");
            }
        }
        Ok(())
    }
}

impl Permits for PlaneLinkHandler {
    fn take(&self) -> Result<(), Duration> {
        let permit = self.plane.links.permit(&self.caller.id);
        permit.inspect_err(|_| self.plane.metrics.resync_refused())
    }

    fn give_back(&self) {
        self.plane.links.return_permit(&self.caller.id);
    }
}
