//! [`AgentLinkHandler`]: what lies behind a link at the node: the sets, the reconciler, the daemon.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use model::condition::Evidence;
use model::exchange::Answer;
use model::replication::TransportKind;
use model::{ObjectKey, Timestamp};
use net::tasks;
use streams::{LinkHandler, LoadError};
use sync::FeedCursor;
use sync::frame::Refused;
use sync::link::{ApplyBatch, ItemOutcome, Link, LinkCounters, NotDurable, Note};
use sync::{Content, Feed, Frame, LoadedChange, Replica, Side};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::SyncContext;
use super::reconciler::ObjectReconciler;
use super::view::PROOFS;
use crate::clock::now;
use crate::render::chain;

/// One link's end at the node.
pub struct AgentLinkHandler {
    context: Arc<SyncContext>,
    reconciler: ObjectReconciler,
    /// What carries the link.
    transport: TransportKind,
    /// The rules that the link was opened under.
    rules: u64,
    state: Mutex<LinkState>,
}

/// What is known of the link.
#[derive(Default)]
pub(super) struct LinkState {
    /// The control plane said hello, and takes check-ins on the link.
    pub(super) takes_check_ins: bool,
    /// The check-in that waits for its answer.
    requester: Option<oneshot::Sender<Answer>>,
    /// After which cursor of the own set the next link goes on, as far as this one knows.
    pub(super) acked: Option<FeedCursor>,
    /// The sets were found equal then, and that is not yet part of the evidence.
    compared: Option<Timestamp>,
    /// One run of the control plane's process, as its hello said.
    peer_instance: String,
    evidence: Option<Evidence>,
    /// Since when both directions are equal and nothing moved.
    pub(super) quiet: Option<Instant>,
    counters: LinkCounters,
}

impl AgentLinkHandler {
    /// The end of a link over this transport that is opened under rules of this number.
    pub fn new(
        context: Arc<SyncContext>,
        reconciler: ObjectReconciler,
        transport: TransportKind,
        rules: u64,
    ) -> AgentLinkHandler {
        AgentLinkHandler { context, reconciler, transport, rules, state: Mutex::default() }
    }

    /// What is known of the link now.
    pub(super) fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to the check-in that is sent next. One at a time.
    pub fn next_answer(&self) -> oneshot::Receiver<Answer> {
        let (requester, answer) = oneshot::channel();
        self.state().requester = Some(requester);
        answer
    }
}

#[async_trait]
impl LinkHandler for AgentLinkHandler {
    fn with_sets<T>(&self, work: impl FnOnce(&mut Feed, &mut Replica) -> T) -> T {
        self.context.sets.with(work)
    }

    async fn load(&self, wants: Vec<(ObjectKey, u64)>) -> Result<Vec<Option<LoadedChange>>, LoadError> {
        let (keys, revisions): (Vec<ObjectKey>, Vec<u64>) = wants.into_iter().unzip();
        let sets = self.context.sets.clone();
        let read = tasks::spawn_blocking(move || sets.contents(Side::Feed, &keys)).await;
        let read = read.map(|read| {
            read.inspect_err(|error| tracing::warn!(error = %chain(error), "contents cannot be read"))
        });
        let contents = read.ok().and_then(Result::ok).ok_or(LoadError)?;
        let change = |(content, rev): (Option<Content>, u64)| Some(LoadedChange::unsigned(rev, content?));
        Ok(contents.into_iter().zip(revisions).map(change).collect())
    }

    async fn apply(&self, batch: Arc<ApplyBatch>) -> Result<Vec<ItemOutcome>, NotDurable> {
        self.reconciler.apply(batch, self.rules).await
    }

    async fn received(&self, frame: Frame) -> Option<Frame> {
        match frame {
            Frame::Answer(answer) => {
                let requester = self.state().requester.take();
                // The check-in may have been given up.
                if requester.is_some_and(|requester| requester.send(*answer).is_ok()) {
                    self.context.view.set(|view| view.counts.check_ins += 1);
                }
            }
            Frame::StateUpdated => self.context.daemon.contact(),
            Frame::Approve => self.reconciler.approve(),
            _ => {}
        }
        None
    }

    fn note(&self, note: &Note) {
        match note {
            Note::Met(hello) => {
                tracing::debug!(instance = hello.instance, "the link is up");
                {
                    let mut state = self.state();
                    state.peer_instance = hello.instance.clone();
                    state.takes_check_ins = hello.capabilities.checkin;
                }
                if matches!(self.transport, TransportKind::Grpc | TransportKind::Websocket) {
                    // The control plane could not announce a publish while there was no stream (SYN-11).
                    self.context.daemon.contact();
                }
            }
            // What comes by a resync has no time, and deletes have none.
            Note::Applied { oldest: ..=0, .. } => {}
            Note::Applied { oldest, .. } => {
                let late = u64::try_from(now().0.saturating_sub(*oldest)).unwrap_or(0);
                self.context.view.set(|view| {
                    view.counts.latency_ms = Some(late);
                    view.counts.latency_max_ms = view.counts.latency_max_ms.max(Some(late));
                });
            }
            Note::RefusedThere(Refused { key, code, message, .. }) => {
                tracing::warn!(%key, code, message, "the control plane will not take an object");
            }
            Note::RefusedHere(Refused { key, code, message, .. }) => {
                tracing::warn!(%key, code, message, "an object of the control plane cannot be taken");
            }
            Note::Resynced { frames, fetched, deleted, kept, took } => {
                let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                tracing::info!(frames, fetched, deleted, kept, took_ms, "a resync ended");
            }
            Note::Missing(key) => tracing::warn!(%key, "an own object has no content"),
            Note::InSync => {
                tracing::debug!("the sets are equal");
                self.state().compared = Some(now());
                self.context.view.problem(PROOFS, None);
                self.reconciler.equal(self.rules);
            }
        }
    }

    fn progress(&self, link: &Link) {
        let mut state = self.state();
        let (cause, settled, own, received, depth) = self.context.sets.with(|feed, replica| {
            if let Some(at) = state.compared.take() {
                let (down, up) = (replica.cursor(), link.acked());
                let (down, up) = (down.map(FeedCursor::checkpoint), up.map(FeedCursor::checkpoint));
                let instance = state.peer_instance.clone();
                state.evidence = Some(Evidence { at, instance, down, up });
            }
            let cause = link.cause(feed, replica, state.evidence.clone());
            let settled = link.is_settled(feed, replica);
            let acked = link.acked().filter(|acked| acked.incarnation == *feed.incarnation());
            let depth = feed.head().saturating_sub(acked.map_or(0, |acked| acked.revision));
            state.acked = link.resumes_after(feed);
            (cause, settled, feed.len(), replica.len(), depth)
        });
        let (counters, before) = (*link.counters(), std::mem::replace(&mut state.counters, *link.counters()));
        if !settled {
            state.quiet = None;
        } else if counters != before || state.quiet.is_none() {
            state.quiet = Some(Instant::now());
        }
        drop(state);
        self.context.view.set(|view| {
            view.counts.add(&counters, &before);
            view.observed(cause);
            (view.feed_objects, view.replica_objects) = (own as u64, received as u64);
            view.counts.depth = depth;
        });
    }

    async fn reincarnate(&self) -> Result<(), Duration> {
        self.reconciler.reincarnate().await
    }
}
