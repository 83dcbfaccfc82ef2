//! The daemon: the node's step between the network, the clock and the host.
//!
//! One thread runs the step and the network; a run and the collecting of traits have
//! threads of their own and report back as inputs. All inputs come through one channel,
//! so that every cause of a wake-up is a [`DaemonEvent`].

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use converge::Mode;
use host::Cancel;
use lang::Value;
use model::exchange::{CheckIn, TraitReport};
use model::log::{Cursor, FactBody};
use model::{Digest, Timestamp};
use node::{Adoption, Effect, Input, Node, RunOrder};
use providers::traits::Collectors;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::clock::now;
use crate::events::{self, DaemonEvent, DaemonHandle, DaemonInbox};
use crate::exchange::Exchange;
use crate::fetch;
use crate::machine::Machine;
use crate::opening::Opener;
use crate::render::chain;
use crate::runner::Runner;
use crate::session::Session;
use crate::state::Durable;
use crate::sync::{self, Synchronization};

/// How long a stop waits for a run under way before it ends the run's commands (LIF-3).
const DRAIN: Duration = Duration::from_secs(30);
/// How long it then waits for the run to end.
const CANCEL: Duration = Duration::from_secs(10);

/// Facts of work go up over an open stream this long after the first of them.
const FLUSH: Duration = Duration::from_millis(200);
/// How long the last facts may take at a stop.
const LAST_FACTS: Duration = Duration::from_secs(5);

/// Runs until SIGTERM or SIGINT. SIGHUP makes it check in and converge at once.
///
/// # Errors
/// When the agent cannot start; afterwards it goes on whatever happens.
pub fn run(machine: Machine) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut daemon, inbox) = Daemon::start(machine)?;
        daemon.serve(inbox).await;
        Ok(())
    })
}

struct Daemon {
    node: Node,
    durable: Arc<Durable>,
    session: Arc<tokio::sync::Mutex<Session>>,
    runner: Arc<Runner>,
    collectors: Arc<Mutex<Collectors>>,
    host: Arc<host::Host>,
    traits: Value,
    handle: DaemonHandle,
    sync: Arc<Synchronization>,
    exchange: Arc<Exchange>,
    /// What the last check-in said, facts and traits apart.
    said: Option<CheckIn>,
    /// When facts of work go up.
    flush_at: Option<Instant>,
    flushing: bool,
    observed: Arc<Mutex<Option<Value>>>,
    cancel: Cancel,
    running: bool,
    /// No new work is started.
    stopping: bool,
}

impl Daemon {
    fn start(machine: Machine) -> Result<(Daemon, DaemonInbox), Box<dyn std::error::Error>> {
        let session = machine.session()?;
        let signer = session.signer().clone();
        let session = Arc::new(tokio::sync::Mutex::new(session));
        let (identity, restored, seed) = machine.start_of_node()?;
        let node = Node::new(identity, restored, seed, now());
        let (handle, inbox) = events::channel();
        let options = providers::traits::Options { version: env!("CARGO_PKG_VERSION").to_owned() };
        let Machine { membership, durable, kinds, cancel, .. } = machine;
        let host = kinds.host().clone();
        // Temporary files of a run that died lie only beside managed paths.
        kinds.sweep(durable.ledger().entries.values().map(|entry| entry.path.as_str()));
        let runner = Runner::new(kinds, durable.clone(), membership.hostname.to_string());
        let sync = Synchronization::start(sync::Parts {
            durable: durable.clone(),
            host: host.clone(),
            signer: signer.clone(),
            opener: Opener::new(session.clone(), membership.hostname.clone()),
            daemon: handle.clone(),
            seed,
        })?;
        let sync = Arc::new(sync);
        let exchange = Exchange::new(session.clone(), signer, sync.clone(), durable.clone(), handle.clone());
        let daemon = Daemon {
            node,
            durable,
            session,
            runner: Arc::new(runner),
            collectors: Arc::new(Mutex::new(Collectors::new(&options))),
            host,
            traits: Value::Map(Default::default()),
            handle,
            sync,
            exchange: Arc::new(exchange),
            said: None,
            flush_at: None,
            flushing: false,
            observed: Arc::default(),
            cancel,
            running: false,
            stopping: false,
        };
        Ok((daemon, inbox))
    }

    async fn serve(&mut self, mut inbox: DaemonInbox) {
        let signals =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()));
        let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)) = signals else {
            tracing::error!("signals cannot be received");
            return;
        };
        self.say_started();
        self.take(Input::Tick);
        loop {
            let deadline = self.node.next_deadline().map(|(at, _)| at);
            let flush = self.flush_at;
            tokio::select! {
                event = inbox.next() => self.hear(event),
                () = sleep_until(deadline) => self.take(Input::Tick),
                () = sleep_to(flush) => self.flush(),
                _ = hangup.recv() => self.take(Input::Nudge),
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
        }
        self.drain(&mut inbox).await;
    }

    /// Lets a run and actions under way end, within their bound, then ends their commands;
    /// their facts are then in the log. What can be said is said, then the link ends (SYN-14).
    async fn drain(&mut self, inbox: &mut DaemonInbox) {
        tracing::info!("stopping");
        self.stopping = true;
        let sync = self.sync.clone();
        let mut work = tokio::spawn(async move { sync.drain().await });
        if !self.ended_within(DRAIN, &mut work, inbox).await {
            tracing::warn!("work is still under way; its commands are ended");
            self.cancel.cancel();
            self.ended_within(CANCEL, &mut work, inbox).await;
        }
        self.last_facts(inbox).await;
        self.sync.stop().await;
    }

    /// Waits for what is under way; says whether it ended.
    async fn ended_within(
        &mut self,
        time: Duration,
        work: &mut JoinHandle<()>,
        inbox: &mut DaemonInbox,
    ) -> bool {
        let deadline = tokio::time::sleep(time);
        tokio::pin!(deadline);
        while self.running || !work.is_finished() {
            let flush = self.flush_at;
            tokio::select! {
                event = inbox.next() => self.hear_stopping(event),
                () = sleep_to(flush) => self.flush(),
                // Its end is looked at by the loop. A panic was printed where it happened.
                _ = &mut *work, if !work.is_finished() => {}
                () = &mut deadline => return false,
            }
        }
        true
    }

    fn hear_stopping(&mut self, event: DaemonEvent) {
        match event {
            DaemonEvent::Input(input @ (Input::Ran(_) | Input::RunFailed(_))) => self.take(input),
            DaemonEvent::FactsWait | DaemonEvent::Flushed { .. } if self.sync.is_open() => self.hear(event),
            DaemonEvent::Flushed { .. } => self.flushing = false,
            DaemonEvent::Input(_) | DaemonEvent::FactsWait | DaemonEvent::Contact => {}
        }
    }

    /// Delivers what is left over the open stream. What it cannot deliver waits in the log.
    async fn last_facts(&mut self, inbox: &mut DaemonInbox) {
        let deadline = tokio::time::sleep(LAST_FACTS);
        tokio::pin!(deadline);
        while self.sync.is_open() && self.durable.facts_waiting() > 0 {
            if !self.flushing {
                self.flush();
            }
            if !self.flushing {
                return;
            }
            tokio::select! {
                event = inbox.next() => {
                    let failed = matches!(event, DaemonEvent::Flushed { acked: None, .. });
                    self.hear_stopping(event);
                    if failed {
                        return;
                    }
                }
                () = &mut deadline => return,
            }
        }
    }

    fn hear(&mut self, event: DaemonEvent) {
        match event {
            DaemonEvent::Input(input) => self.take(input),
            DaemonEvent::Contact => self.take(Input::FactsWait),
            DaemonEvent::FactsWait if self.sync.is_open() => {
                self.flush_at = self.flush_at.or(Some(Instant::now() + FLUSH));
            }
            DaemonEvent::FactsWait => self.take(Input::FactsWait),
            DaemonEvent::Flushed { acked, contact } => {
                self.flushing = false;
                let waits = acked.is_some_and(|cursor| self.ack(&cursor).is_some());
                if waits {
                    self.flush_at = self.flush_at.or(Some(Instant::now()));
                }
                if contact && !self.stopping {
                    self.take(Input::FactsWait);
                }
            }
        }
    }

    /// Sends the facts that wait over the open stream, beside the node's own check-ins.
    fn flush(&mut self) {
        self.flush_at = None;
        if self.flushing {
            // What waits by then goes when this one is done.
            self.flush_at = Some(Instant::now() + FLUSH);
            return;
        }
        let Some(said) = self.said.clone() else { return self.take(Input::FactsWait) };
        let message = CheckIn { held: self.node.adoption().map(Adoption::held), ..said };
        self.flushing = true;
        let exchange = self.exchange.clone();
        let newest = self.node.newest_header();
        tokio::spawn(async move { exchange.flush(message, newest).await });
    }

    fn say_started(&mut self) {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let (version, boot_id) = (env!("CARGO_PKG_VERSION").to_owned(), boot_id.trim().to_owned());
        self.append(FactBody::Started { version, boot_id });
        self.say_repaired();
    }

    fn say_repaired(&mut self) {
        for message in self.durable.take_repairs() {
            tracing::warn!(message, "repaired");
            self.append(FactBody::Repaired { message });
        }
    }

    fn take(&mut self, input: Input) {
        let mut queue = VecDeque::from([input]);
        while let Some(input) = queue.pop_front() {
            if matches!(input, Input::Ran(_) | Input::RunFailed(_)) {
                self.running = false;
            }
            if matches!(&input, Input::Answered(answer) if answer.stream_requested) {
                self.sync.requested();
            }
            if matches!(input, Input::Traits(_))
                && let Some(seen) = self.observed.lock().unwrap_or_else(PoisonError::into_inner).take()
            {
                self.traits = seen;
            }
            for effect in self.node.handle(input, now()) {
                queue.extend(self.perform(effect));
            }
        }
    }

    /// Carries an effect out; what is done at once gives its input back.
    fn perform(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::CollectTraits => self.collect_traits(),
            Effect::CheckIn(check_in) => self.check_in(*check_in),
            Effect::Fetch { contents, inline } => self.fetch(contents, inline),
            Effect::Adopt(adoption) => return Some(self.adopt(&adoption)),
            Effect::Run(order) => self.start_run(order),
            Effect::Append(body) => return (!self.append(body)).then_some(Input::NotAppended),
            Effect::Ack(cursor) => return self.ack(&cursor),
            Effect::SaveRun(last) => {
                if let Err(error) = self.durable.save_last_run(&last) {
                    tracing::warn!(error = %chain(&error), "the last run could not be recorded");
                }
            }
            Effect::Warn(text) => tracing::warn!("{text}"),
        }
        None
    }

    fn ack(&mut self, cursor: &Cursor) -> Option<Input> {
        let waiting = self.durable.ack(cursor);
        self.say_repaired();
        match waiting {
            Ok(waiting) => waiting.then_some(Input::FactsWait),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the log could not be trimmed");
                None
            }
        }
    }

    fn collect_traits(&self) {
        let (collectors, host) = (self.collectors.clone(), self.host.clone());
        let (handle, observed) = (self.handle.clone(), self.observed.clone());
        tokio::task::spawn_blocking(move || {
            let mut collectors = collectors.lock().unwrap_or_else(PoisonError::into_inner);
            let collected = collectors.collect(&host, now());
            for (name, why) in &collected.failures {
                tracing::warn!(collector = name, why, "a collector failed");
            }
            let report = trait_report(&collected.traits);
            *observed.lock().unwrap_or_else(PoisonError::into_inner) = Some(collected.traits);
            handle.send_blocking(DaemonEvent::Input(Input::Traits(report)));
        });
    }

    fn check_in(&mut self, message: CheckIn) {
        let bare = CheckIn { traits: None, full: false, pushed: None, ..message.clone() };
        self.said = Some(bare);
        let exchange = self.exchange.clone();
        let newest = self.node.newest_header();
        tokio::spawn(async move { exchange.check_in(message, newest).await });
    }

    fn fetch(&self, contents: BTreeSet<Digest>, inline: Vec<String>) {
        let (session, durable) = (self.session.clone(), self.durable.clone());
        let handle = self.handle.clone();
        tokio::spawn(async move {
            let fetched = fetch::all(&durable, &session, contents, inline).await;
            let input = match fetched {
                Ok(()) => Input::Fetched,
                Err(error) => Input::FetchFailed(chain(&error)),
            };
            handle.send(DaemonEvent::Input(input)).await;
        });
    }

    fn adopt(&self, adoption: &Adoption) -> Input {
        match self.sync.adopt(adoption) {
            Ok(policy) => {
                tracing::info!(seq = adoption.seq, root = %adoption.root.short(), "adopted a release");
                Input::Adopted(policy)
            }
            Err(error) => Input::AdoptFailed(chain(&error)),
        }
    }

    fn start_run(&mut self, order: RunOrder) {
        if self.stopping {
            return;
        }
        self.running = true;
        let (runner, handle, traits) = (self.runner.clone(), self.handle.clone(), self.traits.clone());
        let spawned = std::thread::Builder::new().name("muster run".to_owned()).spawn(move || {
            // A panic ends this run, not the keeping of the host.
            let run = catch_unwind(AssertUnwindSafe(|| runner.run(&order, &traits, Mode::Apply)));
            let input = match run {
                Ok(Ok(report)) => {
                    log_run(&report);
                    Input::Ran(Box::new(report))
                }
                Ok(Err(error)) => Input::RunFailed(chain(&error)),
                Err(_) => Input::RunFailed("the agent panicked; see its log".to_owned()),
            };
            handle.send_blocking(DaemonEvent::Input(input));
        });
        if let Err(error) = spawned {
            let why = format!("no thread could be started: {error}");
            let handle = self.handle.clone();
            let failed = DaemonEvent::Input(Input::RunFailed(why));
            tokio::spawn(async move { handle.send(failed).await });
        }
    }

    /// Whether a fact is durable now. Enforcement goes on without a log (LIF-10).
    fn append(&mut self, body: FactBody) -> bool {
        let appended = self.durable.append(body, now());
        if let Err(error) = &appended {
            tracing::error!(error = %chain(error), "a fact could not be recorded");
        }
        appended.is_ok()
    }
}

/// Traits as they travel: all of them, named by the digest of those that stay.
pub fn trait_report(traits: &Value) -> TraitReport {
    let stable = model::canonical::to_bytes(&providers::traits::stable(traits));
    TraitReport {
        digest: stable.map_or(Digest::ZERO, |bytes| Digest::of(&bytes)),
        values: serde_json::to_value(traits).unwrap_or_default(),
    }
}

fn log_run(report: &model::RunReport) {
    let counts = &report.counts;
    if counts.changed + counts.failed > 0 {
        tracing::info!(
            changed = counts.changed,
            failed = counts.failed,
            ok = counts.ok,
            skipped = counts.skipped,
            ms = report.duration_ms,
            "a run ended"
        );
    } else {
        tracing::debug!(ok = counts.ok, ms = report.duration_ms, "a run ended");
    }
}

async fn sleep_to(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Timestamp>) {
    match deadline {
        // The wall clock may jump: look again at least once a minute.
        Some(at) => tokio::time::sleep(at.since(now()).min(Duration::from_secs(60))).await,
        None => std::future::pending().await,
    }
}
