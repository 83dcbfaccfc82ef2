//! Work on this node: a thread that carries out what the action machine decides (OPS-2,
//! SYN-10, LIF-5).
//!
//! The thread owns the machine, the marks and what runs. Marks and facts are durable before
//! it goes on; output comes through a channel with a bound, so that a command that prints
//! faster than the disk writes is held back, not kept in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use backends::OperationRequest;
use bytes::Bytes;
use catalog::delegation;
use host::{Command, CommandEvent, End, Host, Program, RunError, SpawnCompactly, StreamingCommand};
use model::collect::CollectInserting;
use model::log::FactBody;
use model::replication::ObjectOperation;
use model::work::{ActionEvent, ActionFact, ActionOutcome, ActionRefusal, Delegation, RefusalCode, Work};
use model::{ObjectKey, Timestamp};
use net::tasks;
use node::work::{
    ActionMark, ActionStage, RestoredWork, WorkEffect, WorkInput, WorkMachine, WorkPermit, WorkTime,
    check_fresh, order_of,
};
use providers::query::{self, Ask};
use spool::Journal;
use tokio::sync::watch;

use crate::clock::{BUILT, now};
use crate::delegated::{DelegationGate, Delegations};
use crate::events::DaemonHandle;
use crate::release::ReleaseTerms;
use crate::render::chain;
use crate::session::Signer;
use crate::state::{Durable, StateError};
use crate::storage::Storage;
use crate::sync::operations::OperationQueue;
use crate::sync::reconciler::ActionSink;
use crate::sync::sets::AgentSets;
use crate::sync::view::{SharedStatus, watched};

/// What may wait for the thread. A piece of output has at most 64 KiB.
const DEPTH: usize = 32;
/// The longest sleep: the host's clock may jump.
const LOOK: Duration = Duration::from_secs(60);
/// The longest time until the thread of objects took an operation.
const OPERATION_SECS: u64 = 60;
/// The stack of the threads here, in bytes.
const STACK: usize = 512 * 1024;

/// Why work cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartWorkError {
    /// The state directory.
    #[error("actions and their marks cannot be used")]
    State(#[from] StateError),
    /// The operating system.
    #[error("no thread could be started")]
    Thread(#[from] std::io::Error),
}

/// What the thread hears.
#[derive(Debug)]
enum WorkEvent {
    /// For the machine.
    Input(WorkInput),
    /// What was begun is over.
    Ended { id: String, outcome: ActionOutcome },
    /// Nobody has a handle any more.
    Closed,
}

/// The way to the thread, which ends with the last of them. Cheap to clone.
#[derive(Clone)]
pub struct WorkHandle {
    events: Arc<EventSender>,
    drained: watch::Receiver<bool>,
}

struct EventSender(SyncSender<WorkEvent>);

impl Drop for EventSender {
    fn drop(&mut self) {
        // The thread takes events without waiting for anything but the disk.
        let _ = self.0.send(WorkEvent::Closed);
    }
}

/// What the thread needs.
pub struct WorkSetup {
    /// Marks and facts.
    pub storage: Storage,
    /// The Action objects.
    pub sets: Arc<AgentSets>,
    /// Where commands run.
    pub host: Arc<Host>,
    /// The control plane's time.
    pub signer: Arc<Signer>,
    /// What is shown.
    pub view: Arc<SharedStatus>,
    /// Hears of new facts.
    pub daemon: DaemonHandle,
    /// What the held release delegates.
    pub delegations: Arc<DelegationGate>,
    /// The way to whoever owns objects.
    pub operations: OperationQueue,
}

/// What is to be done, as a release allows it.
#[derive(Clone, Debug)]
enum ActionJob {
    Command(Vec<String>),
    Query(Ask),
    Operation(ObjectOperation, ObjectKey),
}

enum RunningAction {
    Command(StreamingCommand),
    /// Another thread answers; it cannot be ended, only given up.
    Elsewhere {
        until: Instant,
    },
}

struct WorkThread {
    work: WorkMachine,
    inputs: VecDeque<WorkInput>,
    marks: Journal<String, ActionMark>,
    running: BTreeMap<String, (Instant, RunningAction)>,
    setup: WorkSetup,
    /// What was delegated when the last input was judged.
    held: Delegations,
    /// The state directory as a path of the host, if it can be reached there.
    own: Option<String>,
    events: SyncSender<WorkEvent>,
    drained: watch::Sender<bool>,
}

impl ActionSink for WorkHandle {
    fn put(&self, id: &str, content: Bytes) {
        self.send(WorkInput::Put { id: id.to_owned(), order: order_of(&content) });
    }

    fn removed(&self, id: &str) {
        self.send(WorkInput::Removed { id: id.to_owned() });
    }
}

impl WorkHandle {
    /// Has what waits judged anew whenever another release is held.
    pub async fn observe(self, mut terms: watch::Receiver<ReleaseTerms>) {
        while terms.changed().await.is_ok() {
            terms.mark_unchanged();
            self.release_changed();
        }
    }

    /// Another release is held, or it is fresh or not by now: what waits is judged anew.
    pub fn release_changed(&self) {
        // With the first input that is judged by another release, what waits is too; while much
        // waits there, such inputs come anyway.
        let _ = self.events.0.try_send(WorkEvent::Input(WorkInput::Tick));
    }

    /// Begins nothing more; what runs may end, within the machine's bound. Returns when
    /// nothing runs any more.
    pub async fn drain(&self) {
        let sender = self.events.clone();
        let _ = tasks::spawn_blocking(move || sender.0.send(WorkEvent::Input(WorkInput::Stopping))).await;
        let mut drained = self.drained.clone();
        // Closed when the thread is gone: then nothing runs either.
        let _ = drained.wait_for(|drained| *drained).await;
    }

    fn send(&self, input: WorkInput) {
        // The thread is there as long as a handle is; if it panicked, that is shown. The action
        // is in the replica, and is found there at the next start.
        let _ = self.events.0.send(WorkEvent::Input(input));
    }
}

/// Starts the thread. What was begun before and has no end is reported as unknown first.
///
/// # Errors
/// When the state cannot be read.
pub fn start(setup: WorkSetup) -> Result<WorkHandle, StartWorkError> {
    let (events, inbox) = sync_channel(DEPTH);
    let (drained, is_drained) = watch::channel(false);
    let handle = WorkHandle { events: Arc::new(EventSender(events.clone())), drained: is_drained };
    let held = setup.delegations.held().clone();
    let at = at(&setup.signer, held.newest);
    let (marks, restored) = restored(&setup, held.seq, at)?;
    let (work, first) = WorkMachine::new(restored, at, &|asked| allows(&held, at, asked));
    let own = own(setup.storage.durable(), &setup.host);
    let view = setup.view.clone();
    let (running, inputs) = (BTreeMap::new(), VecDeque::new());
    let mut worker = WorkThread { running, inputs, work, marks, setup, held, own, events, drained };
    let builder = std::thread::Builder::new().name("muster work".to_owned()).stack_size(STACK);
    builder.spawn_compactly(move || {
        watched(&view, "work", "actions are not carried out", move || worker.run(first, &inbox));
    })?;
    Ok(handle)
}

/// What is known of actions from before.
fn restored(
    setup: &WorkSetup,
    held_seq: u64,
    at: WorkTime,
) -> Result<(Journal<String, ActionMark>, RestoredWork), StartWorkError> {
    let (durable, actions) = (setup.storage.durable(), setup.sets.actions()?.into_iter());
    let orders = actions.map(|(id, content)| (id, order_of(&content))).collect();
    let (mut restored, mut lost) = (RestoredWork { orders, held_seq, ..RestoredWork::default() }, false);
    let marks = durable.open_actions(|marks| {
        lost = true;
        restored.presume_begun(marks, at);
    })?;
    restored.marks = marks.entries().clone();
    // The log says more than the marks only where those are lost, or something was begun and did not end.
    if lost || restored.marks.values().any(|mark| mark.stage == ActionStage::Begun) {
        for fact in durable.facts(usize::MAX, usize::MAX)? {
            if let FactBody::Action(fact) = &fact.body {
                restored.notice(fact);
            }
        }
    }
    Ok((marks, restored))
}

fn at(signer: &Signer, newest: Timestamp) -> WorkTime {
    let now = now();
    let clock = now.max(signer.server_time());
    let trusted =
        trust::clock::TrustTime { clock, control_plane: clock, built: BUILT, newest_signature: newest };
    WorkTime { now, trusted: trusted.now() }
}

fn allows(held: &Delegations, at: WorkTime, asked: &Work) -> Result<WorkPermit<ActionJob>, ActionRefusal> {
    let permit = permits(held, asked)?;
    check_fresh(held.fresh_until, at)?;
    Ok(permit)
}

/// What the release held allows, however fresh it is.
fn permits(held: &Delegations, asked: &Work) -> Result<WorkPermit<ActionJob>, ActionRefusal> {
    let by = match held.seq {
        0 => "this node holds no release".to_owned(),
        seq => format!("this node holds release {seq}"),
    };
    let refused =
        |why: String| ActionRefusal { code: RefusalCode::NotDelegated, message: format!("{why} ({by})") };
    if let Work::Operation { operation, object } = asked {
        catalog::sync::allows(held.sync.as_deref(), *operation, object)?;
        let permitted = ActionJob::Operation(*operation, object.key());
        return Ok(WorkPermit { permitted, timeout_secs: OPERATION_SECS });
    }
    let permitted =
        delegation::allows(&held.delegations, asked).map_err(|error| refused(error.to_string()))?;
    let timeout_secs = permitted.timeout_secs;
    let job = match asked {
        Work::Query { what, .. } => {
            let ask = Ask::of(what, permitted.path.as_deref());
            let unknown = || refused(format!("this agent does not know the query {what:?}"));
            ActionJob::Query(ask.ok_or_else(unknown)?)
        }
        _ => ActionJob::Command(permitted.argv),
    };
    Ok(WorkPermit { permitted: job, timeout_secs })
}

/// The state directory as the host's commands see it; `None` when it lies outside its root.
fn own(durable: &Durable, host: &Host) -> Option<String> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let state: PathBuf = real(durable.path());
    let below = state.strip_prefix(real(host.root())).ok()?;
    Some(Path::new("/").join(below).to_string_lossy().into_owned())
}

impl WorkThread {
    fn run(&mut self, first: Vec<WorkEffect<ActionJob>>, inbox: &Receiver<WorkEvent>) {
        self.perform(first);
        self.go_on();
        loop {
            self.show();
            match inbox.recv_timeout(self.wait()) {
                Ok(WorkEvent::Closed) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(WorkEvent::Input(input)) => self.handle(input),
                Ok(WorkEvent::Ended { id, outcome }) => self.ended(id, outcome),
                Err(RecvTimeoutError::Timeout) => {
                    self.give_up_late();
                    self.handle(WorkInput::Tick);
                }
            }
        }
    }

    fn wait(&self) -> Duration {
        let at = at(&self.setup.signer, self.held.newest);
        let due = self.work.next_deadline(at).map(|due| due.since(at.now));
        let late = self.running.values().filter_map(|(_, running)| match running {
            RunningAction::Elsewhere { until } => Some(until.saturating_duration_since(Instant::now())),
            RunningAction::Command(_) => None,
        });
        late.chain(due).min().unwrap_or(LOOK).min(LOOK)
    }

    fn show(&self) {
        let (running, waiting) = (self.work.active() as u64, self.work.waiting() as u64);
        self.setup.view.set(|view| (view.actions_running, view.actions_waiting) = (running, waiting));
    }

    fn ended(&mut self, id: String, outcome: ActionOutcome) {
        self.over(id, outcome);
        self.go_on();
    }

    fn over(&mut self, id: String, outcome: ActionOutcome) {
        // A query that was given up may answer after all.
        let Some((began, _)) = self.running.remove(&id) else { return };
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.inputs.push_back(WorkInput::Ended { id, outcome, duration_ms });
    }

    fn give_up_late(&mut self) {
        let late = |(_, running): &(Instant, RunningAction)| matches!(running, RunningAction::Elsewhere { until } if Instant::now() >= *until);
        let late: BTreeSet<String> =
            self.running.iter().filter(|(_, one)| late(one)).map(|(id, _)| id.clone()).collect_inserting();
        for id in late {
            self.ended(id, ActionOutcome::TimedOut);
        }
    }

    /// Gives the machine an input, and does what it decides; what comes of that is its next input.
    fn handle(&mut self, input: WorkInput) {
        self.inputs.push_back(input);
        self.go_on();
    }

    fn go_on(&mut self) {
        while let Some(mut input) = self.inputs.pop_front() {
            let gate = self.setup.delegations.clone();
            // Kept until what is judged is executed: no other release is adopted in between.
            let held = gate.held();
            if held.number != self.held.number {
                self.inputs
                    .push_front(std::mem::replace(&mut input, WorkInput::Delegations { seq: held.seq }));
            }
            // Nothing is delegated while an adoption that failed halfway is not made good.
            self.held = held.clone();
            let at = at(&self.setup.signer, held.newest);
            let effects = self.work.handle(input, at, &|asked| allows(&held, at, asked));
            let executes = |effect: &WorkEffect<_>| matches!(effect, WorkEffect::Execute { .. });
            let (executed, others) = effects.into_iter().partition(executes);
            self.perform(executed);
            // All else waits for the disk, and so for whoever adopts a release there. Once an action's
            // mark is durable it is judged again.
            drop(held);
            self.perform(others);
        }
    }

    fn perform(&mut self, effects: Vec<WorkEffect<ActionJob>>) {
        for effect in effects {
            match effect {
                WorkEffect::Begin { id, mark } => self.begin(id, mark),
                WorkEffect::Execute { id, permitted, timeout } => self.execute(id, permitted, timeout),
                WorkEffect::Kill { id } => self.kill(id),
                WorkEffect::CheckIn => self.setup.daemon.contact(),
                WorkEffect::Say(fact) => self.say(fact),
                WorkEffect::End { fact, mark } => self.end(fact, mark),
                WorkEffect::Remember { id, mark } => self.remember(id, mark),
                WorkEffect::Forget { id } => {
                    if let Err(error) = self.marks.remove(id) {
                        tracing::warn!(error = %chain(&error), "the mark of an action stays");
                    }
                }
                WorkEffect::Drained => {
                    if let Err(error) = self.marks.write_again_what_is_gone() {
                        tracing::error!(error = %chain(&error), "the marks of actions are gone from the disk");
                    }
                    self.drained.send_replace(true);
                }
            }
        }
    }

    /// The mark first, then the fact; then it may be done (LIF-5).
    fn begin(&mut self, id: String, mark: ActionMark) {
        let fact = ActionFact { id: id.clone(), event: ActionEvent::Started };
        let marked = self.marks.put(id.clone(), mark).map_err(|error| chain(&error));
        match marked.and_then(|()| self.append(fact)) {
            Ok(()) => self.inputs.push_back(WorkInput::Begun { id }),
            Err(message) => {
                tracing::error!(id, message, "an action cannot be begun");
                self.inputs.push_back(WorkInput::NotBegun { id, message });
            }
        }
    }

    fn end(&mut self, fact: ActionFact, mark: Option<ActionMark>) {
        let id = fact.id.clone();
        if let ActionEvent::Ended { outcome, duration_ms } = &fact.event {
            tracing::info!(id, %outcome, ms = duration_ms, "an action ended");
        }
        let kept = self.append(fact);
        let kept = kept.and_then(|()| match mark {
            Some(mark) => self.marks.put(id.clone(), mark).map_err(|error| chain(&error)),
            None => Ok(()),
        });
        match kept {
            Ok(()) => self.inputs.push_back(WorkInput::Kept { id }),
            Err(message) => {
                tracing::error!(id, message, "the end of an action cannot be kept; it is tried again");
                self.inputs.push_back(WorkInput::NotKept { id });
            }
        }
    }

    fn remember(&mut self, id: String, mark: ActionMark) {
        if let Err(error) = self.marks.put(id, mark) {
            tracing::warn!(error = %chain(&error), "the mark of an action cannot be kept");
        }
    }

    fn say(&mut self, fact: ActionFact) {
        let lost = match &fact.event {
            ActionEvent::Output { stream, text, .. } => Some((*stream, text.len() as u64)),
            ActionEvent::Started | ActionEvent::Ended { .. } | ActionEvent::Unknown => None,
        };
        let id = fact.id.clone();
        if let (Err(_), Some((stream, bytes))) = (self.append(fact), lost) {
            self.inputs.push_back(WorkInput::OutputLost { id, stream, bytes });
        }
    }

    fn append(&mut self, fact: ActionFact) -> Result<(), String> {
        self.setup.storage.append_blocking(FactBody::Action(fact)).map_err(|error| chain(&error))?;
        self.setup.daemon.facts_wait();
        Ok(())
    }

    fn execute(&mut self, id: String, job: ActionJob, timeout: Duration) {
        tracing::info!(id, "an action begins");
        let began = Instant::now();
        let elsewhere = || RunningAction::Elsewhere { until: began.checked_add(timeout).unwrap_or(began) };
        let running = match job {
            ActionJob::Command(argv) => self.command(&id, argv, timeout).map(RunningAction::Command),
            ActionJob::Query(ask) => self.query(&id, ask).map(|()| elsewhere()),
            ActionJob::Operation(operation, key) => self.operation(&id, operation, key).map(|()| elsewhere()),
        };
        match running {
            Ok(running) => drop(self.running.insert(id, (began, running))),
            Err(message) => {
                self.inputs.push_back(WorkInput::Ended {
                    id,
                    outcome: ActionOutcome::Failed { message },
                    duration_ms: 0,
                });
            }
        }
    }

    fn command(&self, id: &str, argv: Vec<String>, timeout: Duration) -> Result<StreamingCommand, String> {
        let (events, id) = (self.events.clone(), id.to_owned());
        let listener = move |event: CommandEvent<'_>| {
            let event = match event {
                CommandEvent::Output(stream, bytes) => {
                    WorkEvent::Input(WorkInput::Output { id: id.clone(), stream, bytes: bytes.to_vec() })
                }
                CommandEvent::Ended(end) => WorkEvent::Ended { id: id.clone(), outcome: outcome(end) },
            };
            // Not heard when the thread is gone: the agent ends.
            let _ = events.send(event);
        };
        let command = Command::new(Program::Argv(argv), timeout, 0);
        self.setup.host.run_streaming(command, listener).map_err(|error| chain(&error))
    }

    fn query(&self, id: &str, ask: Ask) -> Result<(), String> {
        let (events, id, host) = (self.events.clone(), id.to_owned(), self.setup.host.clone());
        let (delegations, own) = (self.held.delegations.clone(), self.own.clone());
        let answer = move || {
            let may = |real: &str| !is_own(own.as_deref(), real) && shows(&delegations, real);
            let outcome = match query::answer(&host, &ask, env!("CARGO_PKG_VERSION"), now(), &may) {
                Ok(result) => ActionOutcome::Answered { result },
                Err(message) => ActionOutcome::Failed { message },
            };
            let _ = events.send(WorkEvent::Ended { id, outcome });
        };
        let builder = std::thread::Builder::new().name("muster query".to_owned());
        builder
            .spawn_compactly(answer)
            .map(drop)
            .map_err(|error| format!("no thread could be started: {error}"))
    }

    fn operation(&self, id: &str, operation: ObjectOperation, key: ObjectKey) -> Result<(), String> {
        let (events, answered) = (self.events.clone(), id.to_owned());
        let request = OperationRequest { operation, id: id.to_owned(), requested_at: now() };
        let answer = move |outcome| {
            // Not heard when the thread is gone: the agent ends.
            let _ = events.send(WorkEvent::Ended { id: answered, outcome });
        };
        self.setup.operations.post(key, request, answer)
    }

    fn kill(&mut self, id: String) {
        match self.running.get(&id) {
            Some((_, RunningAction::Command(command))) => command.kill(),
            Some((_, RunningAction::Elsewhere { .. })) => self.over(id, ActionOutcome::Cancelled),
            None => {}
        }
    }
}

/// Whether a file is the agent's own: keys and what others sent it. Nobody is shown those.
fn is_own(own: Option<&str>, real: &str) -> bool {
    own.is_some_and(|own| Path::new(real).starts_with(own))
}

/// Whether a release lets a file be shown, by where it really lies.
fn shows(delegations: &[Delegation], real: &str) -> bool {
    let asked = Work::Query { what: "file".to_owned(), path: Some(real.to_owned()) };
    delegation::allows(delegations, &asked).is_ok()
}

fn outcome(end: Result<End, RunError>) -> ActionOutcome {
    match end {
        Ok(End::Exited(code)) => ActionOutcome::Exited { code },
        Ok(End::Signaled(signal)) => ActionOutcome::Signalled { signal },
        Ok(End::TimedOut) => ActionOutcome::TimedOut,
        Ok(End::Cancelled) => ActionOutcome::Cancelled,
        Err(error) => ActionOutcome::Failed { message: chain(&error) },
    }
}
