//! Readers: a few threads with a connection each, which also do what only takes time.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::cell::OrFail;
use super::writer::Cause;
use crate::error::{Result, StoreError};

/// The most reads that may wait.
const MAX_QUEUED: usize = 4096;

type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// The queue's end of the readers. Dropping it ends the threads.
pub(super) struct Readers {
    queue: Option<SyncSender<ReadJob>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts a thread for each connection.
    pub(super) fn start(connections: Vec<Connection>) -> Result<Readers> {
        let (queue, jobs) = sync_channel::<ReadJob>(MAX_QUEUED);
        let jobs = Arc::new(Mutex::new(jobs));
        let mut readers = Readers { queue: Some(queue), threads: Vec::new() };
        for db in connections {
            let jobs = Arc::clone(&jobs);
            let thread = std::thread::Builder::new()
                .name("store-reader".into())
                .spawn(move || work_off(&db, &jobs))
                .map_err(|error| StoreError::Backend {
                    operation: "start a reader",
                    source: Arc::new(error),
                })?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Reads in one snapshot.
    pub(super) async fn run<T, E>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: Cause,
    {
        let (sender, receiver) = oneshot::channel();
        let job: ReadJob = Box::new(move |db| {
            let result = match db.unchecked_transaction().or_fail("begin to read") {
                Ok(_snapshot) => work(db),
                Err(error) => Err(error.into()),
            };
            // Nobody may wait any more.
            let _ = sender.send(result);
        });
        let queue = self.queue.as_ref().ok_or(StoreError::Closed)?;
        queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => StoreError::Busy,
            TrySendError::Disconnected(_) => StoreError::Closed,
        })?;
        receiver.await.unwrap_or(Err(E::from(StoreError::Closed)))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to wait for.
            let _ = thread.join();
        }
    }
}

fn work_off(db: &Connection, jobs: &Mutex<Receiver<ReadJob>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(job) => job(db),
            Err(_) => return,
        }
    }
}
