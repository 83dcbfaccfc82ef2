//! [`DurableHandler`]: a node's end of a link that keeps what comes on disk, as an agent does.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use model::{Incarnation, ObjectKey};
use spool::Disk;
use spool::objects::{ObjectLimits, ObjectLog};
use streams::LinkHandler;
use sync::frame::Hello;
use sync::link::{Batch, Link, Note, Outcome};
use sync::replica::Replica;
use sync::{Content, Feed, Frame, Side};
use tokio::sync::watch;

use crate::BenchError;
use crate::fleet::now;

/// Both sets of a node, on disk.
pub(super) struct DurableHandler {
    sets: Mutex<(Feed, Replica)>,
    log: Arc<Mutex<ObjectLog>>,
    feed: watch::Sender<u64>,
    applied: AtomicU64,
    in_sync: AtomicU64,
    bounds: Mutex<Option<Bounds>>,
    /// Milliseconds from the source's acceptance to here, one for each object.
    latencies: Mutex<Vec<f64>>,
}

/// The first and the last batch of a measurement.
#[derive(Clone, Copy)]
struct Bounds {
    first: Instant,
    last: Instant,
    /// Objects in all batches but the first.
    since: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DurableHandler {
    /// Opens it over a directory.
    pub(super) fn open(directory: &Path, incarnation: &Incarnation) -> Result<DurableHandler, BenchError> {
        let opened = ObjectLog::open(&Disk::new(), directory, incarnation, ObjectLimits::default())?;
        let feed = opened.saved.feed.map_or_else(|| Feed::new(incarnation.clone()), Feed::restore);
        let replica = Replica::restore(opened.saved.replica);
        Ok(DurableHandler {
            feed: watch::Sender::new(feed.head()),
            sets: Mutex::new((feed, replica)),
            log: Arc::new(Mutex::new(opened.log)),
            applied: AtomicU64::new(0),
            in_sync: AtomicU64::new(0),
            bounds: Mutex::new(None),
            latencies: Mutex::default(),
        })
    }

    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.feed.subscribe()
    }

    /// Objects that are durable since [`DurableHandler::anew`].
    pub(super) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Relaxed)
    }

    /// Times that the set was found equal since [`DurableHandler::anew`].
    pub(super) fn in_sync(&self) -> u64 {
        self.in_sync.load(Ordering::Relaxed)
    }

    /// Begins to count anew.
    pub(super) fn anew(&self) {
        self.applied.store(0, Ordering::Relaxed);
        self.in_sync.store(0, Ordering::Relaxed);
        *lock(&self.bounds) = None;
        lock(&self.latencies).clear();
    }

    /// Objects after those of the first batch, and the time from that to the last one.
    pub(super) fn pace(&self) -> (u64, Duration) {
        lock(&self.bounds).map_or((0, Duration::ZERO), |bounds| (bounds.since, bounds.last - bounds.first))
    }

    /// How long objects took to come here, in milliseconds.
    pub(super) fn latencies(&self) -> Vec<f64> {
        std::mem::take(&mut lock(&self.latencies))
    }

    fn count(&self, batch: &Batch) {
        let (at, wall) = (Instant::now(), now().0);
        let items = batch.items.len() as u64;
        if items == 0 {
            return;
        }
        let mut bounds = lock(&self.bounds);
        *bounds = Some(match *bounds {
            None => Bounds { first: at, last: at, since: 0 },
            Some(Bounds { first, since, .. }) => Bounds { first, last: at, since: since + items },
        });
        drop(bounds);
        let took = batch.items.iter().filter(|item| item.at > 0).map(|item| (wall - item.at) as f64);
        lock(&self.latencies).extend(took);
        self.applied.fetch_add(items, Ordering::Relaxed);
    }
}

#[async_trait]
impl LinkHandler for DurableHandler {
    fn with_sets<T>(&self, work: impl FnOnce(&mut Feed, &mut Replica) -> T) -> T {
        let mut sets = lock(&self.sets);
        let (feed, replica) = &mut *sets;
        work(feed, replica)
    }

    async fn load(&self, wants: Vec<(ObjectKey, u64)>) -> Vec<Option<Content>> {
        let keys: Vec<ObjectKey> = wants.into_iter().map(|(key, _)| key).collect();
        let found = lock(&self.log).contents(Side::Ours, &keys);
        found.unwrap_or_else(|_| vec![None; keys.len()])
    }

    async fn apply(&self, batch: Arc<Batch>) -> Vec<Outcome> {
        let (log, write) = (self.log.clone(), batch.clone());
        let written = tokio::task::spawn_blocking(move || {
            let done = vec![Outcome::Done; write.items.len()];
            lock(&log).write(&write.write(&done)).map(|()| done)
        });
        let temporary = |why: String| vec![Outcome::Temporary(why); batch.items.len()];
        match written.await {
            Ok(Ok(done)) => {
                self.count(&batch);
                done
            }
            Ok(Err(error)) => temporary(error.to_string()),
            Err(error) => temporary(error.to_string()),
        }
    }

    async fn received(&self, _: Frame) -> Option<Frame> {
        None
    }

    fn hello(&self, _: &Hello) {}

    fn note(&self, note: &Note) {
        if *note == Note::InSync {
            self.in_sync.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn progress(&self, _: &Link) {}

    async fn reincarnate(&self) -> Result<(), Duration> {
        // Its own feed is empty: there is nothing to begin anew.
        Ok(())
    }
}
