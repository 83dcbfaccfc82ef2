//! [`DurableHandler`]: a node's end of a link that keeps what comes on disk, as an agent does.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use model::{Incarnation, ObjectKey};
use net::Signal;
use spool::Disk;
use spool::objects::{ObjectLimits, ObjectLog};
use streams::{LinkHandler, LoadError};
use sync::link::{ApplyBatch, ItemOutcome, Link, NotDurable, Note};
use sync::replica::Replica;
use sync::{Feed, Frame, LoadedChange};

use crate::fleet::now;
use crate::{BenchError, lock};

/// The sets of a node that has nothing of its own, on disk.
pub(super) struct DurableHandler {
    sets: Mutex<(Feed, Replica)>,
    log: Arc<Mutex<ObjectLog>>,
    feed: Arc<Signal>,
    counted: Mutex<Counted>,
}

/// What came in a measurement.
#[derive(Default)]
struct Counted {
    /// Objects that are durable.
    applied: u64,
    /// Times that the set was found equal.
    in_sync: u64,
    /// When the first batch was durable, and its objects.
    first: Option<(Instant, u64)>,
    last: Option<Instant>,
    /// Milliseconds from the source's acceptance to here, one for each object.
    latencies: Vec<f64>,
}

impl DurableHandler {
    /// Opens it over a directory.
    pub(super) fn open(directory: &Path, incarnation: &Incarnation) -> Result<DurableHandler, BenchError> {
        let opened = ObjectLog::open(&Disk::new(), directory, incarnation, ObjectLimits::default())?;
        let feed = opened.saved.feed.map_or_else(|| Feed::new(incarnation.clone()), Feed::restore);
        let replica = Replica::restore(opened.saved.replica);
        Ok(DurableHandler {
            feed: Arc::new(Signal::new(feed.head())),
            sets: Mutex::new((feed, replica)),
            log: Arc::new(Mutex::new(opened.log)),
            counted: Mutex::default(),
        })
    }

    pub(super) fn head(&self) -> Arc<Signal> {
        self.feed.clone()
    }

    /// Objects that are durable since [`DurableHandler::anew`].
    pub(super) fn applied(&self) -> u64 {
        lock(&self.counted).applied
    }

    /// Times that the set was found equal since [`DurableHandler::anew`].
    pub(super) fn in_sync(&self) -> u64 {
        lock(&self.counted).in_sync
    }

    /// Begins to count anew.
    pub(super) fn anew(&self) {
        *lock(&self.counted) = Counted::default();
    }

    /// Objects a second, from the first batch to the last one.
    pub(super) fn rate(&self) -> f64 {
        let counted = lock(&self.counted);
        let Some(((first, items), last)) = counted.first.zip(counted.last) else { return 0.0 };
        (counted.applied - items) as f64 / (last - first).as_secs_f64().max(1e-9)
    }

    /// How long objects took to come here, in milliseconds.
    pub(super) fn latencies(&self) -> Vec<f64> {
        std::mem::take(&mut lock(&self.counted).latencies)
    }

    fn count(&self, batch: &ApplyBatch) {
        let (at, wall, items) = (Instant::now(), now().0, batch.items.len() as u64);
        if items == 0 {
            return;
        }
        let mut counted = lock(&self.counted);
        counted.first.get_or_insert((at, items));
        counted.last = Some(at);
        counted.applied += items;
        let took = batch.items.iter().filter(|item| item.at > 0).map(|item| (wall - item.at) as f64);
        counted.latencies.extend(took);
    }
}

#[async_trait]
impl LinkHandler for DurableHandler {
    fn with_sets<T>(&self, work: impl FnOnce(&mut Feed, &mut Replica) -> T) -> T {
        let mut sets = lock(&self.sets);
        let (feed, replica) = &mut *sets;
        work(feed, replica)
    }

    async fn load(&self, wants: Vec<(ObjectKey, u64)>) -> Result<Vec<Option<LoadedChange>>, LoadError> {
        Ok(vec![None; wants.len()])
    }

    async fn apply(&self, batch: Arc<ApplyBatch>) -> Result<Vec<ItemOutcome>, NotDurable> {
        let (log, write) = (self.log.clone(), batch.clone());
        let written = tokio::task::spawn_blocking(move || {
            let done = vec![ItemOutcome::Done; write.items.len()];
            lock(&log).write(&write.write(&done)).map(|()| done)
        });
        match written.await {
            Ok(Ok(done)) => {
                self.count(&batch);
                Ok(done)
            }
            Ok(Err(error)) => Err(NotDurable(error.to_string())),
            Err(error) => Err(NotDurable(error.to_string())),
        }
    }

    async fn received(&self, _: Frame) -> Option<Frame> {
        None
    }

    fn note(&self, note: &Note) {
        if *note == Note::InSync {
            lock(&self.counted).in_sync += 1;
        }
    }

    fn progress(&self, _: &Link) {}

    async fn reincarnate(&self) -> Result<(), Duration> {
        // Its own feed is empty: there is nothing to begin anew.
        Ok(())
    }
}
