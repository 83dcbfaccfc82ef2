//! [`PlaneShore`]: what lies behind a link at the control plane: the store, check-ins, status.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use model::ObjectKey;
use model::log::Cursor;
use streams::Shore;
use sync::frame::Hello;
use sync::link::{Batch, Counters, Link, Note, Outcome, Standing as Direction};
use sync::replica::Replica;
use sync::{Content, Feed, Frame, Side};
use tokio::time::Instant;

use crate::hub::{NodeLink, NodeSync, Standing};
use crate::metrics::{LinkCounts, Way};
use crate::node_port::{self, Caller};
use crate::state::{ControlPlane, now};

/// How often contents are asked of a store that fails.
const LOADS: u32 = 5;
/// The wait before they are asked for again.
const LOAD_AGAIN: Duration = Duration::from_millis(500);

/// How often what a link counts is added to the metrics.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// One link's end at the control plane.
pub(super) struct PlaneShore {
    pub(super) plane: Arc<ControlPlane>,
    pub(super) caller: Caller,
    pub(super) sets: Arc<NodeSync>,
    pub(super) link: Arc<NodeLink>,
    said: Mutex<Said>,
    received: AtomicU64,
}

/// What was said last of where the link stands.
#[derive(Default)]
struct Said {
    standing: Standing,
    acked: Option<Cursor>,
    replica: Option<Cursor>,
    objects: usize,
    counted: Counters,
    counted_at: Option<Instant>,
}

impl PlaneShore {
    pub(super) fn new(
        plane: Arc<ControlPlane>,
        caller: Caller,
        sets: Arc<NodeSync>,
        link: Arc<NodeLink>,
    ) -> PlaneShore {
        PlaneShore { plane, caller, sets, link, said: Mutex::default(), received: AtomicU64::new(0) }
    }

    /// Check-ins that came over the link.
    pub(super) fn check_ins(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Adds to the metrics what the link counted since the last time.
    pub(super) fn count(&self, counters: &Counters) {
        let before = {
            let mut said = self.said();
            said.counted_at = Some(Instant::now());
            std::mem::replace(&mut said.counted, *counters)
        };
        let metrics = &self.plane.metrics;
        let since = |of: fn(&Counters) -> u64| of(counters).saturating_sub(of(&before));
        for (way, kind, count) in [
            (Way::Out, "event", since(|c| c.sent)),
            (Way::Out, "processed", since(|c| c.acks_sent)),
            (Way::In, "event", since(|c| c.received)),
            (Way::In, "processed", since(|c| c.acks_received)),
        ] {
            if count > 0 {
                metrics.events(way, kind, count);
            }
        }
        metrics.counted(LinkCounts {
            coalesced: since(|c| c.coalesced),
            superseded: since(|c| c.superseded),
            resends: since(|c| c.resends),
            rewinds: since(|c| c.rewinds_sent + c.rewinds_received),
            duplicates: since(|c| c.duplicates),
            applied: since(|c| c.applied),
            refused: since(|c| c.refused_here + c.refused_there),
            walk_frames: since(|c| c.walk_frames),
            walk_objects: since(|c| c.walk_objects),
            walk_bytes: 0,
        });
        for _ in 0..since(|c| c.resyncs + c.resyncs_served) {
            metrics.resync_began();
        }
    }

    fn measure(&self, note: &Note) {
        match note {
            Note::Applied { oldest, .. } => {
                let millis = u64::try_from(now().0.saturating_sub(*oldest)).unwrap_or(0);
                self.plane.metrics.propagated(Duration::from_millis(millis));
            }
            Note::Resynced { took, .. } => self.plane.metrics.resync_ended(*took),
            Note::RefusedHere { code, .. } | Note::RefusedThere { code, .. } => {
                self.plane.metrics.failed(code);
            }
            Note::Missing(_) | Note::InSync => {}
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Both directions in one word.
    fn standing(link: &Link, feed: &Feed, replica: &Replica) -> Standing {
        // Counting what is behind costs; where numbers alone say it, they do.
        if let Some(acked) = link.acked()
            && acked.incarnation == *feed.life()
            && acked.seq < feed.head()
        {
            return Standing::Behind(feed.head() - acked.seq);
        }
        let status = link.status(feed, replica);
        match (status.ours, status.theirs) {
            (Direction::Diverged(why), _) | (_, Direction::Diverged(why)) => Standing::Diverged(why),
            (Direction::Connecting, _) | (_, Direction::Connecting) => Standing::Connecting,
            (Direction::Resyncing, _) | (_, Direction::Resyncing) => Standing::Resyncing,
            (Direction::Behind(a), Direction::Behind(b)) => Standing::Behind((a + b) as u64),
            (Direction::Behind(n), _) | (_, Direction::Behind(n)) if n > 0 => Standing::Behind(n as u64),
            _ => Standing::InSync,
        }
    }
}

#[async_trait]
impl Shore for PlaneShore {
    fn with_sets<T>(&self, work: impl FnOnce(&mut Feed, &mut Replica) -> T) -> T {
        let mut sets = self.sets.sets();
        let sets = &mut *sets;
        work(&mut sets.feed, &mut sets.replica)
    }

    async fn load(&self, wants: Vec<(ObjectKey, u64)>) -> Vec<Option<Content>> {
        let keys: Vec<ObjectKey> = wants.into_iter().map(|(key, _)| key).collect();
        for _ in 0..LOADS {
            match self.sets.contents(Side::Ours, keys.clone()).await {
                Ok(contents) => return contents,
                Err(error) => tracing::warn!(node = %self.caller.id, %error, "contents cannot be read"),
            }
            tokio::time::sleep(LOAD_AGAIN).await;
        }
        vec![None; keys.len()]
    }

    async fn apply(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let (done, begun) = (vec![Outcome::Done; batch.items.len()], Instant::now());
        match self.sets.keep(batch.write(&done)).await {
            Ok(()) => {
                self.plane.metrics.processed(begun.elapsed());
                done
            }
            Err(error) => {
                tracing::warn!(node = %self.caller.id, %error, "a batch cannot be kept");
                vec![Outcome::Temporary(error.to_string()); batch.items.len()]
            }
        }
    }

    async fn permit(&self) -> Result<(), Duration> {
        let permit = self.plane.links.permit(&self.caller.id);
        if permit.is_err() {
            self.plane.metrics.resync_refused();
        }
        permit
    }

    fn return_permit(&self) {
        self.plane.links.return_permit(&self.caller.id);
    }

    async fn received(&self, frame: Frame) -> Option<Frame> {
        let Frame::CheckIn(request) = frame else { return None };
        self.received.fetch_add(1, Ordering::Relaxed);
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
        tracing::debug!(node = %self.caller.id, mode = ?hello.mode, "a link is up");
    }

    fn note(&self, note: &Note) {
        let node = &self.caller.id;
        match note {
            Note::RefusedThere { key, code, message } => {
                self.plane.hub.refused(node, key.clone(), Some(format!("{code}: {message}")));
                tracing::info!(%node, %key, code, message, "the node will not take an object");
            }
            Note::RefusedHere { key, code, message } => {
                tracing::info!(%node, %key, code, message, "an object of the node cannot be taken");
            }
            Note::Resynced { frames, fetched, deleted, kept, took } => {
                let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                tracing::info!(%node, frames, fetched, deleted, kept, took_ms, "a resync ended");
            }
            Note::Missing(key) => tracing::warn!(%node, %key, "an object of a feed has no content"),
            Note::Applied { .. } | Note::InSync => {}
        }
        self.measure(note);
    }

    fn progress(&self, link: &Link) {
        let node = &self.caller.id;
        let (standing, replica, objects) = {
            let sets = self.sets.sets();
            let standing = PlaneShore::standing(link, &sets.feed, &sets.replica);
            (standing, sets.replica.cursor().cloned(), sets.replica.len())
        };
        let mut said = self.said();
        if said.standing != standing {
            said.standing = standing.clone();
            self.link.stands(standing);
        }
        if let Some(acked) = link.acked()
            && said.acked.as_ref() != Some(acked)
        {
            said.acked = Some(acked.clone());
            self.plane.hub.acked(node, acked.clone());
        }
        if said.replica != replica || said.objects != objects {
            said.replica.clone_from(&replica);
            said.objects = objects;
            self.plane.hub.received(node, replica, objects as u64);
        }
        let due = said.counted_at.is_none_or(|at| at.elapsed() >= COUNT_EVERY);
        drop(said);
        if due {
            self.count(link.counters());
        }
    }

    async fn refound(&self) {
        if let Err(error) = self.sets.refound().await {
            tracing::error!(node = %self.caller.id, %error, "a feed cannot begin its life anew");
        }
    }
}
