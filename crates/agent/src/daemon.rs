//! The daemon: the node's step between the network, the clock and the host.
//!
//! One thread runs the step and the network; a run and the collecting of traits have
//! threads of their own and report back as inputs. All inputs come through one channel,
//! so that every cause of a wake-up is an [`Input`].

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use converge::Mode;
use host::Cancel;
use lang::Value;
use model::exchange::{Answer, CheckIn, TraitReport};
use model::log::{Cursor, FactBody, MAX_FACT_BYTES, MAX_FACTS};
use model::{Digest, Timestamp};
use node::{Adoption, Effect, Input, Node, RunOrder};
use resources::traits::Collectors;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use wire::route;

use crate::clock::now;
use crate::fetch;
use crate::machine::Machine;
use crate::render::chain;
use crate::runner::Runner;
use crate::session::{CallError, Session};
use crate::state::Durable;

/// How long a stop waits for a run under way before it ends the run's commands (LIF-3).
const DRAIN: Duration = Duration::from_secs(30);
/// How long it then waits for the run to end.
const CANCEL: Duration = Duration::from_secs(10);

/// Runs until SIGTERM or SIGINT. SIGHUP makes it check in and converge at once.
///
/// # Errors
/// When the agent cannot start; afterwards it goes on whatever happens.
pub fn run(machine: Machine) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut daemon, inputs) = Daemon::start(machine)?;
        daemon.serve(inputs).await;
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
    inputs: UnboundedSender<Input>,
    observed: Arc<Mutex<Option<Value>>>,
    cancel: Cancel,
    running: bool,
    /// No new work is started.
    stopping: bool,
}

impl Daemon {
    fn start(machine: Machine) -> Result<(Daemon, UnboundedReceiver<Input>), Box<dyn std::error::Error>> {
        let session = machine.session()?;
        let (identity, restored, seed) = machine.start_of_node()?;
        let node = Node::new(identity, restored, seed, now());
        // Unbounded, but every input answers one effect, and the step has few under way.
        let (inputs, receiver) = unbounded_channel();
        let options = resources::traits::Options { version: env!("CARGO_PKG_VERSION").to_owned() };
        let Machine { membership, durable, kinds, cancel, .. } = machine;
        let host = kinds.host().clone();
        // Temporary files of a run that died lie only beside managed paths.
        kinds.sweep(durable.ledger().entries.values().map(|entry| entry.path.as_str()));
        let runner = Runner::new(kinds, durable.clone(), membership.hostname.to_string());
        let daemon = Daemon {
            node,
            durable,
            session: Arc::new(tokio::sync::Mutex::new(session)),
            runner: Arc::new(runner),
            collectors: Arc::new(Mutex::new(Collectors::new(&options))),
            host,
            traits: Value::Map(Default::default()),
            inputs,
            observed: Arc::default(),
            cancel,
            running: false,
            stopping: false,
        };
        Ok((daemon, receiver))
    }

    async fn serve(&mut self, mut inputs: UnboundedReceiver<Input>) {
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
            tokio::select! {
                Some(input) = inputs.recv() => self.take(input),
                () = sleep_until(deadline) => self.take(Input::Tick),
                _ = hangup.recv() => self.take(Input::Nudge),
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
        }
        self.drain(&mut inputs).await;
    }

    /// Lets a run under way end, within its bound, then ends its commands; its facts are
    /// then in the log.
    async fn drain(&mut self, inputs: &mut UnboundedReceiver<Input>) {
        tracing::info!("stopping");
        self.stopping = true;
        if !self.ran_within(DRAIN, inputs).await {
            tracing::warn!("a run is still under way; its commands are ended");
            self.cancel.cancel();
            self.ran_within(CANCEL, inputs).await;
        }
    }

    /// Waits for the run under way; says whether it ended.
    async fn ran_within(&mut self, time: Duration, inputs: &mut UnboundedReceiver<Input>) -> bool {
        let deadline = tokio::time::sleep(time);
        tokio::pin!(deadline);
        while self.running {
            tokio::select! {
                Some(input) = inputs.recv() => {
                    if matches!(input, Input::Ran(_) | Input::RunFailed(_)) {
                        self.take(input);
                    }
                }
                () = &mut deadline => return false,
            }
        }
        true
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
        let (inputs, observed) = (self.inputs.clone(), self.observed.clone());
        tokio::task::spawn_blocking(move || {
            let mut collectors = collectors.lock().unwrap_or_else(PoisonError::into_inner);
            let collected = collectors.collect(&host, now());
            for (name, why) in &collected.failures {
                tracing::warn!(collector = name, why, "a collector failed");
            }
            let report = trait_report(&collected.traits);
            *observed.lock().unwrap_or_else(PoisonError::into_inner) = Some(collected.traits);
            let _ = inputs.send(Input::Traits(report));
        });
    }

    fn check_in(&self, mut message: CheckIn) {
        // The log may have begun a new life since the start.
        message.incarnation = self.durable.incarnation();
        match self.durable.facts(MAX_FACTS, MAX_FACT_BYTES) {
            Ok(facts) => message.facts = facts,
            Err(error) => tracing::warn!(error = %chain(&error), "the log cannot be read"),
        }
        let (session, inputs) = (self.session.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let mut session = session.lock().await;
            let answer: Result<Answer, CallError> = session.post(route::CHECKIN, &message).await;
            let _ = inputs.send(Input::ServerTime(session.server_time()));
            let _ = inputs.send(match answer {
                Ok(answer) => Input::Answered(Box::new(answer)),
                Err(error) => {
                    let why = chain(&error);
                    tracing::info!(why, "no check-in");
                    Input::Unreachable(why)
                }
            });
        });
    }

    fn fetch(&self, contents: BTreeSet<Digest>, inline: Vec<String>) {
        let (session, durable) = (self.session.clone(), self.durable.clone());
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            let fetched = fetch::all(&durable, &session, contents, inline).await;
            let _ = inputs.send(match fetched {
                Ok(()) => Input::Fetched,
                Err(error) => Input::FetchFailed(chain(&error)),
            });
        });
    }

    fn adopt(&self, adoption: &Adoption) -> Input {
        match self.durable.adopt(adoption) {
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
        let (runner, inputs, traits) = (self.runner.clone(), self.inputs.clone(), self.traits.clone());
        let failed = inputs.clone();
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
            let _ = inputs.send(input);
        });
        if let Err(error) = spawned {
            let _ = failed.send(Input::RunFailed(format!("no thread could be started: {error}")));
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
    let stable = model::canonical::to_bytes(&resources::traits::stable(traits));
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

async fn sleep_until(deadline: Option<Timestamp>) {
    match deadline {
        // The wall clock may jump: look again at least once a minute.
        Some(at) => tokio::time::sleep(at.since(now()).min(Duration::from_secs(60))).await,
        None => std::future::pending().await,
    }
}
