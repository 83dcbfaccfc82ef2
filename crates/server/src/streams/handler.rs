//! [`PlaneLinkHandler`]: what lies behind a link at the control plane: the store, check-ins, status.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use model::condition::{Evidence, NodeProblem, Rejection, node_status_key};
use model::{ObjectKey, Timestamp};
use streams::task::{Ended, EndedBy, link_time};
use streams::{LinkHandler, LoadError};
use sync::FeedCursor;
use sync::admission::Permits;
use sync::frame::{CloseReason, Op, Refused};
use sync::link::{ApplyBatch, ItemOutcome, Link, LinkCounters, NotDurable, Note};
use sync::replica::Replica;
use sync::{Feed, Frame, LoadedChange};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::serve::StreamRequest;
use crate::hub::{LinkReport, NodeLink, NodeSync};
use crate::node_port::{self, CallingNode};
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

/// One link's end at the control plane. While it is there no other one works on the node's sets.
pub(super) struct PlaneLinkHandler {
    pub(super) plane: Arc<ControlPlane>,
    pub(super) caller: CallingNode,
    pub(super) sets: Arc<NodeSync>,
    pub(super) link: Arc<NodeLink>,
    progress: Mutex<LinkProgress>,
    _lease: OwnedMutexGuard<()>,
}

/// What is known of the link from the time before.
#[derive(Default)]
struct LinkProgress {
    /// The sets were found equal then, and that is not yet part of the evidence.
    compared: Option<Timestamp>,
    evidence: Option<Evidence>,
    counted: LinkCounters,
    counted_at: Option<Instant>,
}

impl PlaneLinkHandler {
    pub(super) fn new(
        request: &StreamRequest,
        link: &Arc<NodeLink>,
        sets: Arc<NodeSync>,
        lease: OwnedMutexGuard<()>,
    ) -> Arc<PlaneLinkHandler> {
        let (plane, caller, link) = (request.plane.clone(), request.caller.clone(), link.clone());
        Arc::new(PlaneLinkHandler { plane, caller, sets, link, progress: Mutex::default(), _lease: lease })
    }

    /// The link ended: adds what it counted, and logs why.
    pub(super) fn ended(&self, ended: &Ended) {
        self.count(&ended.counters);
        let (node, transport) = (&self.link.node, self.link.transport.as_str());
        let (code, message, counters) = (&ended.code, &ended.message, &ended.counters);
        let error = ended.error.as_ref().map(|error| crate::answer::chain(error));
        let (sent, received) = (counters.sent, counters.received);
        if ended.how == EndedBy::Them(CloseReason::Unproven) {
            tracing::warn!(%node, message, "a node does not believe what it is given");
        }
        tracing::debug!(%node, transport, code, message, error, sent, received, "a link ended");
    }

    /// Adds to the metrics what the link counted since the last time.
    pub(super) fn count(&self, counters: &LinkCounters) {
        let before = {
            let mut progress = self.progress();
            progress.counted_at = Some(Instant::now());
            std::mem::replace(&mut progress.counted, *counters)
        };
        if before != *counters {
            self.plane.metrics.counted(counters, &before);
        }
    }

    fn progress(&self) -> MutexGuard<'_, LinkProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the node says of the backend of its objects, when the batch has it.
    fn node_reports(&self, batch: &ApplyBatch) {
        let key = node_status_key();
        let last = batch.items.iter().rev().find(|item| item.key == key);
        let problem = match last.map(|item| &item.change) {
            Some(Op::Put { content, .. }) => NodeProblem::from_content(content),
            Some(Op::Delete { .. }) => None,
            None => return,
        };
        let index = self.plane.hub.sync_index();
        index.update(&self.caller.id, |summary| summary.node_problem = problem);
    }

    /// Takes bytes of a check-in out of the node's share of what the control plane takes in
    /// (SCL-3); `false` when it does not fit in good time.
    async fn charge(&self, bytes: usize) -> bool {
        let charged = async {
            while self.caller.charge(bytes).is_err() {
                tokio::time::sleep(SHARE_AGAIN).await;
            }
        };
        tokio::time::timeout(SHARE_WITHIN, charged).await.is_ok()
    }
}

#[async_trait]
impl LinkHandler for PlaneLinkHandler {
    fn with_sets<T>(&self, work: impl FnOnce(&mut Feed, &mut Replica) -> T) -> T {
        let mut sets = self.sets.sets();
        let sets = &mut *sets;
        work(&mut sets.feed, &mut sets.replica)
    }

    async fn load(&self, wants: Vec<(ObjectKey, u64)>) -> Result<Vec<Option<LoadedChange>>, LoadError> {
        let keys: Vec<ObjectKey> = wants.into_iter().map(|(key, _)| key).collect();
        for _ in 0..LOADS {
            match self.sets.objects_to_send(&keys).await {
                Ok(objects) => return Ok(objects),
                Err(error) => tracing::warn!(node = %self.caller.id, %error, "contents cannot be read"),
            }
            tokio::time::sleep(LOAD_AGAIN).await;
        }
        Err(LoadError)
    }

    async fn apply(&self, batch: Arc<ApplyBatch>) -> Result<Vec<ItemOutcome>, NotDurable> {
        let (done, begun) = (vec![ItemOutcome::Done; batch.items.len()], Instant::now());
        match self.sets.keep(batch.write(&done)).await {
            Ok(()) => {
                self.node_reports(&batch);
                self.plane.metrics.processed(begun.elapsed());
                Ok(done)
            }
            Err(error) => {
                tracing::warn!(node = %self.caller.id, %error, "a batch cannot be kept");
                Err(NotDurable("the control plane cannot store it now".to_owned()))
            }
        }
    }

    fn permits(&self) -> Option<&dyn Permits> {
        Some(self)
    }

    async fn received(&self, frame: Frame) -> Option<Frame> {
        let Frame::CheckIn(request) = frame else { return None };
        if !self.charge(wire::body::encoded_len(&request)).await {
            tracing::info!(node = %self.caller.id, "the node sends more than its share; a check-in is refused");
            return None;
        }
        match node_port::check_in(&self.plane, &self.caller, *request, None, Duration::ZERO).await {
            Ok(mut reply) => {
                // A request is signed with a time that is judged. On a link nothing else tells of the clocks.
                reply.answer.server_time = Some(now());
                Some(Frame::Answer(Box::new(reply.answer)))
            }
            Err(problem) => {
                // The agent waits for the answer as long as for any, then tries again.
                tracing::info!(node = %self.caller.id, code = problem.code, "a check-in on a link is refused");
                None
            }
        }
    }

    fn note(&self, note: &Note) {
        let (node, metrics) = (&self.caller.id, &self.plane.metrics);
        match note {
            Note::Met(hello) => {
                self.plane.hub.sync_index().update(node, |summary| summary.link_met(&self.link));
                tracing::debug!(%node, mode = ?hello.mode, "a link is up");
            }
            Note::RefusedThere(Refused { key, code, message, .. }) => {
                if self.sets.sets().feed.get(key).is_none() {
                    tracing::debug!(%node, %key, "the node refuses an object that it was never sent");
                    return;
                }
                let rejection = Rejection::new(code, message);
                let index = self.plane.hub.sync_index();
                let is_new = index.update(node, |summary| summary.reject(key.clone(), rejection));
                // A node may say it of everything it has, and with every comparison again.
                if is_new {
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
            Note::InSync => self.progress().compared = Some(now()),
            // What comes by a resync has no time, and deletes have none.
            Note::Applied { oldest: ..=0, .. } => {}
            Note::Applied { oldest, .. } => {
                let millis = u64::try_from(now().0.saturating_sub(*oldest)).unwrap_or(0);
                metrics.propagated(Duration::from_millis(millis));
            }
        }
    }

    fn progress(&self, link: &Link) {
        // Before its hello the node has reported nothing.
        if !link.has_met() {
            return;
        }
        self.link.hears_pong(link.last_pong());
        let mut progress = self.progress();
        let report = {
            let sets = self.sets.sets();
            if let Some(at) = progress.compared.take() {
                let (instance, down) =
                    (self.plane.boot().to_owned(), link.acked().map(FeedCursor::checkpoint));
                let up = sets.replica.cursor().map(FeedCursor::checkpoint);
                progress.evidence = Some(Evidence { at, instance, down, up });
            }
            // What a node claims to have beyond our feed is no progress.
            let ours = |cursor: &&FeedCursor| {
                cursor.incarnation == *sets.feed.incarnation() && cursor.revision <= sets.feed.head()
            };
            LinkReport {
                cause: link.cause(&sets.feed, &sets.replica, progress.evidence.clone()),
                acked: link.acked().filter(ours).cloned(),
                objects: sets.replica.len() as u64,
                rejected: link.refused_there(),
            }
        };
        self.plane.hub.sync_index().reported(&self.link, report);
        let due = progress.counted_at.is_none_or(|at| at.elapsed() >= COUNT_EVERY);
        drop(progress);
        if due {
            self.count(link.counters());
        }
    }

    async fn reincarnate(&self) -> Result<(), Duration> {
        let (node, admission) = (&self.caller.id, self.caller.slot.stream_admission());
        if let Some(left) = admission.reincarnation_allowed_in() {
            tracing::warn!(%node, "the node claims again to have more than its feed; nothing is done");
            return Err(left);
        }
        match self.sets.reincarnate().await {
            Ok(()) => admission.reincarnates(),
            Err(error) => tracing::error!(%node, %error, "a feed cannot begin its incarnation anew"),
        }
        Ok(())
    }
}

impl Permits for PlaneLinkHandler {
    fn take(&self) -> Result<(), Duration> {
        let permit = self.plane.admission.resyncs().request(&self.caller.id, link_time());
        permit.inspect_err(|_| self.plane.metrics.resync_refused())
    }

    fn give_back(&self) {
        self.plane.admission.resyncs().give_back(&self.caller.id);
    }
}
