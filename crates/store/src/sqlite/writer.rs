//! The one writer: a thread that runs queued work in groups, one transaction for each.
//!
//! Each piece of work has a savepoint, so the failure of one is not that of the others.
//! Replies are sent after the commit: what is acknowledged is durable.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::cell::OrFail;
use super::sweep::Recent;
use crate::error::{EnrollError, PutError, ReleaseCommitError, Result, StoreError};
use crate::joining::{PutListError, ReportJoinError};
use crate::rollouts::CommitRolloutsError;

/// The most writes that may wait.
const MAX_QUEUED: usize = 4096;
/// The most bytes of contents and chunks that may wait, in all writes together.
const MAX_QUEUED_BYTES: usize = 256 * 1024 * 1024;
/// The most writes in one transaction.
const MAX_GROUP: usize = 256;

/// What work may use: the connection, and what only lives as long as the process.
pub(super) struct Session {
    pub(super) db: Connection,
    /// What was put or reported as present while a sweep is under way.
    pub(super) recent: Option<Recent>,
    /// Sweeps begun.
    pub(super) sweeps: u64,
    /// The number of the next body of an object, once it is known. It only rises, so one
    /// that a failed write has used is a gap.
    pub(super) next_body: Option<i64>,
}

/// Errors of operations that may hold one of the store itself.
pub(super) trait Cause: From<StoreError> + Send + 'static {
    /// The store's own error, when it is one.
    fn cause(&self) -> Option<&StoreError>;
}

/// The queue's end of the writer. Dropping it runs what waits and ends the thread.
pub(super) struct Writer {
    queue: Option<SyncSender<WriteJob>>,
    gauge: Arc<Gauge>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Gauge {
    waiting: AtomicUsize,
    bytes: AtomicUsize,
    /// Of the last group.
    failure: Mutex<Option<String>>,
}

struct WriteJob {
    bytes: usize,
    work: QueuedWork,
}

/// One piece of queued work, run in the session; with an error it is not run, because of that.
type QueuedWork = Box<dyn FnOnce(Result<&mut Session, &StoreError>) -> Ran + Send>;

/// Work that was run but is not committed.
struct Ran {
    /// It failed, so its changes must go.
    failed: bool,
    /// The store's error that it failed with.
    cause: Option<StoreError>,
    /// Sends the reply, once it is known whether the group was committed.
    reply: Reply,
}

type Reply = Box<dyn FnOnce(&Result<()>) + Send>;

impl Writer {
    /// Starts the thread.
    pub(super) fn start(db: Connection) -> Result<Writer> {
        let (queue, jobs) = sync_channel(MAX_QUEUED);
        let gauge = Arc::new(Gauge::default());
        let session = Session { db, recent: None, sweeps: 0, next_body: None };
        let of_thread = Arc::clone(&gauge);
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || work_off(session, &jobs, &of_thread))
            .map_err(|error| StoreError::Backend {
                operation: "start the writer",
                source: Arc::new(error),
            })?;
        Ok(Writer { queue: Some(queue), gauge, thread: Some(thread) })
    }

    /// Runs work in the writer and waits until it is durable. `bytes` is what it holds.
    pub(super) async fn run<T, E>(
        &self,
        bytes: usize,
        work: impl FnOnce(&mut Session) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: Cause,
    {
        let (reply, receiver) = oneshot::channel();
        let work: QueuedWork = Box::new(move |session| {
            let result = session.map_err(|error| E::from(error.clone())).and_then(work);
            let cause = result.as_ref().err().and_then(Cause::cause).cloned();
            let failed = result.is_err();
            let reply = move |committed: &Result<()>| {
                let _ = reply.send(match committed {
                    Ok(()) => result,
                    Err(error) => Err(E::from(error.clone())),
                });
            };
            Ran { failed, cause, reply: Box::new(reply) }
        });
        self.submit(WriteJob { bytes, work })?;
        receiver.await.unwrap_or(Err(E::from(StoreError::Closed)))
    }

    fn submit(&self, job: WriteJob) -> Result<()> {
        let bytes = job.bytes;
        let queue = self.queue.as_ref().ok_or(StoreError::Closed)?;
        let waiting = self.gauge.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.gauge.waiting.fetch_add(1, Ordering::Relaxed);
        // One job may always wait, however large: its size has a bound of its own.
        let sent = if waiting > 0 && waiting + bytes > MAX_QUEUED_BYTES {
            Err(StoreError::Busy)
        } else {
            queue.try_send(job).map_err(|error| match error {
                TrySendError::Full(_) => StoreError::Busy,
                TrySendError::Disconnected(_) => StoreError::Closed,
            })
        };
        if sent.is_err() {
            self.gauge.done(bytes);
        }
        sent
    }

    /// Writes that wait or run.
    pub(super) fn waiting(&self) -> usize {
        self.gauge.waiting.load(Ordering::Relaxed)
    }

    /// Why the last write failed, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        self.gauge.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to wait for.
            let _ = thread.join();
        }
    }
}

impl Gauge {
    fn done(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    fn note(&self, failure: Option<&StoreError>) {
        if let Some(error) = failure {
            tracing::warn!(%error, "a write failed");
        }
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure.map(ToString::to_string);
    }
}

fn work_off(mut session: Session, jobs: &Receiver<WriteJob>, gauge: &Gauge) {
    while let Ok(first) = jobs.recv() {
        let mut group = vec![first];
        while group.len() < MAX_GROUP
            && let Ok(job) = jobs.try_recv()
        {
            group.push(job);
        }
        run_group(&mut session, group, gauge);
    }
}

fn run_group(session: &mut Session, group: Vec<WriteJob>, gauge: &Gauge) {
    let mut replies = Vec::with_capacity(group.len());
    let mut outcome = execute(session, "BEGIN IMMEDIATE");
    let mut failure = None;
    let alone = group.len() == 1;
    for job in group {
        gauge.done(job.bytes);
        if let Err(error) = &outcome {
            replies.push((job.work)(Err(error)).reply);
            continue;
        }
        let ran = if alone { run_alone(session, job.work) } else { run_one(session, job.work) };
        // What failed alone was rolled back already, and with it nothing else.
        let ended =
            if alone && ran.failed { !session.db.is_autocommit() } else { session.db.is_autocommit() };
        failure = ran.cause.filter(is_of_the_disk).or(failure);
        replies.push(ran.reply);
        if ended {
            // SQLite ended the transaction by itself, and with it the work before; or it
            // cannot end it, and then nothing of it may be committed.
            outcome = Err(failure.clone().unwrap_or(StoreError::Busy));
        }
    }
    if !session.db.is_autocommit() {
        outcome = outcome.and_then(|()| execute(session, "COMMIT"));
    }
    if !session.db.is_autocommit() {
        // If even this fails, the next BEGIN does too, and nothing is acknowledged.
        let _ = execute(session, "ROLLBACK");
    }
    gauge.note(outcome.as_ref().err().or(failure.as_ref()));
    for reply in replies {
        reply(&outcome);
    }
}

/// Runs work that is a group of its own: the transaction goes with it when it fails. A
/// savepoint would have every page copied before it changes.
fn run_alone(session: &mut Session, work: QueuedWork) -> Ran {
    let mut ran = work(Ok(session));
    if ran.failed
        && !session.db.is_autocommit()
        && let Err(error) = execute(session, "ROLLBACK")
        && ran.cause.is_none()
    {
        ran.cause = Some(error);
    }
    ran
}

/// Runs work in a savepoint; its changes are gone when it fails.
fn run_one(session: &mut Session, work: QueuedWork) -> Ran {
    if let Err(error) = execute(session, "SAVEPOINT work") {
        return work(Err(&error));
    }
    let mut ran = work(Ok(session));
    let ended = if ran.failed {
        execute(session, "ROLLBACK TO work").and_then(|()| execute(session, "RELEASE work"))
    } else {
        execute(session, "RELEASE work")
    };
    if let (Err(error), None) = (ended, &ran.cause) {
        ran.cause = Some(error);
    }
    ran
}

fn execute(session: &Session, sql: &'static str) -> Result<()> {
    let run = || session.db.prepare_cached(sql)?.execute([]).map(|_| ());
    run().or_fail("write")
}

fn is_of_the_disk(error: &StoreError) -> bool {
    use StoreError::{Backend, Corrupt, Full, ReadOnly};
    matches!(error, Full | ReadOnly | Corrupt(_) | Backend { .. })
}

impl Cause for StoreError {
    fn cause(&self) -> Option<&StoreError> {
        Some(self)
    }
}

macro_rules! cause {
    ($($error:ident),*) => {$(
        impl Cause for $error {
            fn cause(&self) -> Option<&StoreError> {
                match self {
                    $error::Store(error) => Some(error),
                    _ => None,
                }
            }
        }
    )*};
}

cause!(CommitRolloutsError, EnrollError, PutError, PutListError, ReleaseCommitError, ReportJoinError);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::sqlite::query;

    fn insert(session: &mut Session, number: i64, fail: bool) -> Result<i64> {
        query::change(&session.db, "test", "INSERT INTO t VALUES (?1)", [number])?;
        if fail { Err(StoreError::Busy) } else { Ok(number) }
    }

    fn stored(session: &mut Session) -> Result<Vec<i64>> {
        query::all(&session.db, "test", "SELECT n FROM t ORDER BY n", [], |row| row.get(0))
    }

    /// CNV-5: what fails leaves nothing, whether it is alone in its transaction or not.
    #[tokio::test]
    async fn what_fails_leaves_nothing() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (n INTEGER)").unwrap();
        let writer = Writer::start(db).unwrap();
        for (number, fail) in [(1, false), (2, true), (3, false)] {
            let result = writer.run(0, move |session| insert(session, number, fail)).await;
            assert_eq!(result.is_err(), fail);
        }
        assert_eq!(writer.run(0, stored).await.unwrap(), [1, 3]);

        // While the writer is held, others queue up to a group.
        let (release, held) = sync_channel::<()>(0);
        let hold = writer.run(0, move |_| {
            held.recv().unwrap();
            Ok::<_, StoreError>(())
        });
        let four = writer.run(0, |session| insert(session, 4, false));
        let five = writer.run(0, |session| insert(session, 5, true));
        let six = writer.run(0, |session| insert(session, 6, false));
        let queued = async {
            // Polled after the others, which are queued by then.
            release.send(()).unwrap();
        };
        let (_, four, five, six, ()) = tokio::join!(biased; hold, four, five, six, queued);
        assert!(four.is_ok() && five.is_err() && six.is_ok());
        assert_eq!(writer.run(0, stored).await.unwrap(), [1, 3, 4, 6]);
    }
}
