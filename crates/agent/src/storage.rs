//! [`Storage`]: the thread that makes the node's state durable, so that nobody else of the daemon
//! waits for the disk.
//!
//! ```text
//! daemon, work, runs --command--> bounded channel --> storage thread, over and over:
//!       ^                                               takes all that waits, then does one of
//!       |                                               1. all facts:    one append, one fsync
//!       +--- answer, after the fsync -----------------  2. all records:  one append, one fsync
//!                                                       3. the oldest of the other operations
//! ```
//!
//! Invariants: an answer is given after what it answers is durable (persist before acknowledge);
//! however many facts wait, each is answered after the operation under way and one more; at most
//! [`DEPTH`] commands wait in the channel and as many at the thread; no lock of the runtime's thread
//! is held while the disk is written.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use converge::Record;
use host::SpawnCompactly;
use model::Timestamp;
use model::log::{Cursor, FactBody};
use tokio::sync::{mpsc, oneshot};

use crate::clock::now;
use crate::render::chain;
use crate::state::{Durable, FactsWaiting, StateError};

/// The most commands that wait.
const DEPTH: usize = 256;

type StorageReply<T> = oneshot::Sender<Result<T, StateError>>;
type DurableJob = Box<dyn FnOnce(&Durable) + Send>;

enum StorageCommand {
    Append(FactBody, StorageReply<()>),
    Persist(Record, StorageReply<()>),
    Other(DurableJob),
}

impl StorageCommand {
    fn other<T: Send + 'static>(
        operation: impl FnOnce(&Durable) -> Result<T, StateError> + Send + 'static,
        answer: StorageReply<T>,
    ) -> StorageCommand {
        // Nobody waits when the task that asked is gone.
        StorageCommand::Other(Box::new(move |durable| drop(answer.send(operation(durable)))))
    }
}

/// The way to the storage thread, which ends with the last of them. Cheap to clone.
#[derive(Clone)]
pub struct Storage(Arc<StorageShared>);

struct StorageShared {
    durable: Arc<Durable>,
    /// Locked for moments only.
    facts: Arc<Mutex<FactsWaiting>>,
    /// Both are there until the last handle goes.
    commands: Option<mpsc::Sender<StorageCommand>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for StorageShared {
    /// Returns when all that was asked for is done, and the thread has let go of the state.
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // A panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

impl Storage {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there is none to be had, or the log of facts cannot be read.
    pub fn start(durable: Arc<Durable>) -> Result<Storage, StateError> {
        let (commands, inbox) = mpsc::channel(DEPTH);
        let facts = Arc::new(Mutex::new(durable.first_facts()?));
        let worker = StorageThread {
            durable: durable.clone(),
            facts: facts.clone(),
            inbox,
            queue: StorageQueue::default(),
        };
        let builder = std::thread::Builder::new().name("muster storage".to_owned());
        let thread = builder.spawn_compactly(move || worker.run()).map_err(StateError::Thread)?;
        Ok(Storage(Arc::new(StorageShared {
            durable,
            facts,
            commands: Some(commands),
            thread: Some(thread),
        })))
    }

    /// What is stored, for reading. What is written through it waits for the disk.
    pub fn durable(&self) -> &Arc<Durable> {
        &self.0.durable
    }

    /// The facts that the next check-in carries. Never waits for the disk.
    pub fn facts(&self) -> FactsWaiting {
        locked(&self.0.facts).clone()
    }

    /// How many facts wait. Never waits for the disk.
    pub fn facts_waiting(&self) -> u64 {
        locked(&self.0.facts).count()
    }

    /// Appends a fact; durable when it returns.
    ///
    /// # Errors
    /// When the log is full or cannot be written.
    pub async fn append(&self, fact: FactBody) -> Result<(), StateError> {
        self.ask(|answer| StorageCommand::Append(fact, answer)).await
    }

    /// As [`Storage::append`], from a thread outside the runtime.
    ///
    /// # Errors
    /// As [`Storage::append`].
    pub fn append_blocking(&self, fact: FactBody) -> Result<(), StateError> {
        self.ask_blocking(|answer| StorageCommand::Append(fact, answer))
    }

    /// Appends a fact that is made on the thread, with the time that it bears; says where in the log it is, durable.
    ///
    /// # Errors
    /// Those of `make`, and as [`Storage::append`].
    pub async fn append_made(
        &self,
        make: impl FnOnce(&Durable, Timestamp) -> Result<FactBody, StateError> + Send + 'static,
    ) -> Result<Cursor, StateError> {
        let facts = self.0.facts.clone();
        self.ask(|answer| StorageCommand::other(appending(facts, make), answer)).await
    }

    /// As [`Storage::append_made`], from a thread outside the runtime.
    ///
    /// # Errors
    /// As there.
    pub fn append_made_blocking(
        &self,
        make: impl FnOnce(&Durable, Timestamp) -> Result<FactBody, StateError> + Send + 'static,
    ) -> Result<Cursor, StateError> {
        let facts = self.0.facts.clone();
        self.ask_blocking(|answer| StorageCommand::other(appending(facts, make), answer))
    }

    /// Makes a run's record durable, from a thread outside the runtime.
    ///
    /// # Errors
    /// When it cannot be written; the host must not be touched then.
    pub fn persist_blocking(&self, record: Record) -> Result<(), StateError> {
        self.ask_blocking(|answer| StorageCommand::Persist(record, answer))
    }

    /// Facts up to a cursor are durable at the control plane; says whether more wait.
    /// `acked_before`: how far they were acknowledged when those were sent that it answers.
    ///
    /// # Errors
    /// As [`Durable::ack`].
    pub async fn ack(&self, cursor: Cursor, acked_before: u64) -> Result<bool, StateError> {
        let facts = self.0.facts.clone();
        let ack = move |durable: &Durable| {
            let acked = durable.ack(&cursor, acked_before);
            if acked.is_err() {
                locked(&facts).forget(&cursor);
            }
            refresh(durable, &facts);
            acked
        };
        self.run(ack).await
    }

    /// Does something with the stored state on the thread, after what was asked for before.
    ///
    /// # Errors
    /// Those of `operation`, and when the thread has ended.
    pub async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Durable) -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, StateError> {
        self.ask(|answer| StorageCommand::other(operation, answer)).await
    }

    /// As [`Storage::run`], from a thread outside the runtime.
    ///
    /// # Errors
    /// As [`Storage::run`].
    pub fn run_blocking<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Durable) -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, StateError> {
        self.ask_blocking(|answer| StorageCommand::other(operation, answer))
    }

    async fn ask<T>(&self, command: impl FnOnce(StorageReply<T>) -> StorageCommand) -> Result<T, StateError> {
        let (answer, answered) = oneshot::channel();
        self.send(command(answer)).await?;
        answered.await.map_err(|_| StateError::StorageEnded)?
    }

    async fn send(&self, command: StorageCommand) -> Result<(), StateError> {
        self.commands()?.send(command).await.map_err(|_| StateError::StorageEnded)
    }

    fn commands(&self) -> Result<&mpsc::Sender<StorageCommand>, StateError> {
        self.0.commands.as_ref().ok_or(StateError::StorageEnded)
    }

    fn ask_blocking<T>(
        &self,
        command: impl FnOnce(StorageReply<T>) -> StorageCommand,
    ) -> Result<T, StateError> {
        let (answer, answered) = oneshot::channel();
        self.commands()?.blocking_send(command(answer)).map_err(|_| StateError::StorageEnded)?;
        answered.blocking_recv().map_err(|_| StateError::StorageEnded)?
    }
}

/// Makes a fact, appends it, and says where it is.
fn appending(
    facts: Arc<Mutex<FactsWaiting>>,
    make: impl FnOnce(&Durable, Timestamp) -> Result<FactBody, StateError> + Send + 'static,
) -> impl FnOnce(&Durable) -> Result<Cursor, StateError> + Send + 'static {
    move |durable| {
        let at = now();
        let fact = make(durable, at)?;
        let appended = durable.append_all(vec![fact], at);
        refresh(durable, &facts);
        appended?.into_iter().next().unwrap_or(Ok(()))?;
        Ok(Cursor { incarnation: durable.incarnation(), seq: durable.last_fact() })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is in it is replaced as a whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refresh(durable: &Durable, facts: &Mutex<FactsWaiting>) {
    let remembered = locked(facts).clone();
    match durable.first_facts_mended(&remembered) {
        Ok(waiting) => *locked(facts) = waiting,
        Err(error) => tracing::warn!(error = %chain(&error), "the log cannot be read"),
    }
}

/// What the thread took from the channel.
#[derive(Default)]
struct StorageQueue {
    facts: Vec<(FactBody, StorageReply<()>)>,
    records: Vec<(Record, StorageReply<()>)>,
    others: VecDeque<DurableJob>,
}

impl StorageQueue {
    fn len(&self) -> usize {
        self.facts.len() + self.records.len() + self.others.len()
    }

    fn push(&mut self, command: StorageCommand) {
        match command {
            StorageCommand::Append(fact, answer) => self.facts.push((fact, answer)),
            StorageCommand::Persist(record, answer) => self.records.push((record, answer)),
            StorageCommand::Other(operation) => self.others.push_back(operation),
        }
    }
}

struct StorageThread {
    durable: Arc<Durable>,
    facts: Arc<Mutex<FactsWaiting>>,
    inbox: mpsc::Receiver<StorageCommand>,
    queue: StorageQueue,
}

impl StorageThread {
    fn run(mut self) {
        loop {
            if self.queue.len() == 0 {
                let Some(command) = self.inbox.blocking_recv() else { return };
                self.queue.push(command);
            }
            while self.queue.len() < DEPTH
                && let Ok(command) = self.inbox.try_recv()
            {
                self.queue.push(command);
            }
            // A panic ends one operation, whose answer then says so, not the keeping of state.
            let _ = catch_unwind(AssertUnwindSafe(|| self.step()));
        }
    }

    /// One operation of the disk. Logs come first: more of what waits is answered by it.
    fn step(&mut self) {
        if !self.queue.facts.is_empty() {
            let (facts, answers) = std::mem::take(&mut self.queue.facts).into_iter().unzip();
            self.append(facts, answers);
        } else if !self.queue.records.is_empty() {
            let (records, answers) = std::mem::take(&mut self.queue.records).into_iter().unzip();
            self.persist(records, answers);
        } else if let Some(operation) = self.queue.others.pop_front() {
            operation(&self.durable);
        }
    }

    fn append(&self, facts: Vec<FactBody>, answers: Vec<StorageReply<()>>) {
        let has_room = locked(&self.facts).has_room();
        let done = self.durable.append_all(facts, now()).unwrap_or_else(|error| {
            let error = chain(&error);
            answers.iter().map(|_| Err(StateError::Append(error.clone()))).collect()
        });
        if has_room {
            refresh(&self.durable, &self.facts);
        } else {
            locked(&self.facts).last = self.durable.last_fact();
        }
        answer(answers, done);
    }

    fn persist(&self, records: Vec<Record>, answers: Vec<StorageReply<()>>) {
        let done = match self.durable.persist(&records) {
            Ok(()) => answers.iter().map(|_| Ok(())).collect(),
            Err(error) if records.len() == 1 => vec![Err(error)],
            Err(_) => {
                records.iter().map(|record| self.durable.persist(std::slice::from_ref(record))).collect()
            }
        };
        answer(answers, done);
    }
}

fn answer(answers: Vec<StorageReply<()>>, done: Vec<Result<(), StateError>>) {
    for (answer, done) in answers.into_iter().zip(done) {
        // Nobody waits when the task that asked is gone.
        let _ = answer.send(done);
    }
}
