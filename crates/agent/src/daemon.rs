//! The daemon: the node's step between the network, the clock, the host and the storage.
//!
//! ```text
//!            DaemonInbox                  Input
//! tasks, ---------------> Daemon::hear -----------> node::Node::handle
//! threads <-------------- Daemon::perform <-------- effects
//! ```
//!
//! One thread runs the step and the network. It waits neither for the disk ([`Storage`] has a
//! thread) nor for a request (each is a task), nor for a run or the collecting of traits, which
//! have threads of their own. What they come to is a [`DaemonEvent`], so every cause of a wake-up
//! is one.

mod contact;
mod guarded;
mod heal;
pub(crate) mod local;
mod lost_state;
mod reboot;
mod rollout;
mod run;
mod run_log;
mod signals;
mod start;
mod stop;
mod traits;
mod trusted;

pub use lost_state::start_anew;
pub use traits::trait_report;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use activation::GenerationId;
use host::Cancel;
use lang::Value;
use model::exchange::CheckIn;
use model::log::{Cursor, FactBody};
use model::policy::Policy;
use model::{Digest, Hostname, Timestamp};
use net::notify::ServiceState;
use net::tasks;
use node::{Adoption, CheckInWay, Node, NodeEffect, NodeInput, ObservedTraits};
use providers::traits::Collectors;
use tokio::time::Instant;

use crate::activations::{ActivationCommand, Activations, ProcessMark};
use crate::clock::now;
use crate::events::{DaemonEvent, DaemonHandle, DaemonInbox, LocalReply};
use crate::exchange::CheckInClient;
use crate::fetch::{self, FetchError};
use crate::healing::HostWatch;
use crate::invocation;
use crate::local::messages::PauseView;
use crate::local::state::SharedLocalState;
use crate::machine::Machine;
use crate::membership::MembershipFile;
use crate::rejoin::RejoinFollower;
use crate::release::ActiveRelease;
use crate::render::chain;
use crate::run_mark::RunMark;
use crate::runner::Runner;
use crate::session::NodeSession;
use crate::state::{LostState, StateError};
use crate::state_guard::StateGuard;
use crate::storage::Storage;
use crate::sync::Synchronization;
use crate::sync::view::SharedStatus;
use crate::work::WorkHandle;
use run_log::RunLog;
use signals::{DaemonSignals, SignalRequest};

/// Facts of work go up over an open stream this long after the first of them.
const FLUSH: Duration = Duration::from_millis(200);

/// Runs until SIGTERM or SIGINT. SIGHUP makes it check in and converge at once; SIGUSR1 makes it end
/// once nothing runs, so that its supervisor starts it anew.
///
/// # Errors
/// When the agent cannot start; afterwards it goes on whatever happens.
pub fn run(machine: Machine) -> Result<DaemonEnd, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let end = runtime.block_on(async {
        let signals = DaemonSignals::hear()?;
        let (mut daemon, inbox) = Daemon::start(machine)?;
        Ok::<_, Box<dyn std::error::Error>>(daemon.serve(inbox, signals).await)
    })?;
    Ok(end)
}

/// How the daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonEnd {
    /// It was told to.
    Stopped,
    /// Its state directory was lost, and holds again what the daemon had in memory.
    StartsAnew,
}

struct Daemon {
    node: Node,
    storage: Storage,
    release: Arc<ActiveRelease>,
    activations: Activations,
    session: Arc<NodeSession>,
    member: Arc<MembershipFile>,
    hostname: Hostname,
    runner: Arc<Runner>,
    collectors: Arc<Mutex<Collectors>>,
    host: Arc<host::Host>,
    traits: Value,
    handle: DaemonHandle,
    sync: Arc<Synchronization>,
    work: WorkHandle,
    rejoin: RejoinFollower,
    exchange: Arc<CheckInClient>,
    /// The last check-in, facts and traits apart.
    last_check_in: Option<CheckIn>,
    /// When how contacts went was written last.
    contact_kept: Option<Timestamp>,
    /// Check-ins made.
    check_ins: u64,
    /// One is under way.
    checking_in: bool,
    /// How far facts were acknowledged when the check-in was made whose answer is handled.
    acked_before: u64,
    /// Facts that are being appended.
    appending: usize,
    /// When facts of work go up.
    flush_at: Option<Instant>,
    flushing: bool,
    observed: Arc<Mutex<Option<Value>>>,
    cancel: Cancel,
    running: bool,
    /// What the socket shows.
    local: SharedLocalState,
    control_plane: trusted::ControlPlaneTrust,
    /// Which failures the journal has named.
    run_log: Arc<Mutex<RunLog>>,
    /// They are answered when the pause that follows is durable.
    pause_replies: Vec<(LocalReply<PauseView>, PauseView)>,
    /// Whether its state can be kept.
    guard: StateGuard,
    /// The state directory was lost while it ran.
    lost_state: Option<LostState>,
    /// It ends once nothing runs.
    restarting: bool,
    /// No new work is started.
    stopping: bool,
    view: Arc<SharedStatus>,
    /// What changes out of band.
    watch: HostWatch,
}

impl Daemon {
    async fn serve(&mut self, mut inbox: DaemonInbox, mut signals: DaemonSignals) -> DaemonEnd {
        let socket = self.open_socket();
        net::notify::service_manager(ServiceState::Ready);
        self.append_started();
        self.tell_rejected_certificate();
        self.take(NodeInput::Tick);
        let mut end = DaemonEnd::StartsAnew;
        while !(self.restarting && self.is_idle()) {
            let deadline = self.node.next_deadline().map(|(at, _)| at);
            let flush = self.flush_at;
            tokio::select! {
                event = inbox.next() => self.hear(event),
                () = sleep_until(deadline) => self.take(NodeInput::Tick),
                () = sleep_to(flush) => self.flush(),
                request = signals.next() => match request {
                    SignalRequest::Stop => {
                        end = DaemonEnd::Stopped;
                        break;
                    }
                    SignalRequest::RestartWhenIdle => self.restart_when_idle(),
                    SignalRequest::Nudge => self.take(NodeInput::Nudge),
                },
            }
        }
        if let Some(socket) = socket {
            socket.abort();
        }
        self.drain(&mut inbox).await;
        // A plan for somebody at the host must not keep the process.
        self.cancel.cancel();
        ProcessMark::end(self.storage.durable().path());
        let starts_anew = self.put_back_state().await;
        tokio::select! {
            biased;
            // Who stopped it meanwhile means this process, whatever it would go on as.
            SignalRequest::Stop = signals.next() => DaemonEnd::Stopped,
            () = std::future::ready(()) => if starts_anew { end } else { DaemonEnd::Stopped },
        }
    }

    /// A package that replaces the agent asks for this when the agent itself runs the package manager:
    /// a stop would have its bound, after which the package manager is cut off.
    fn restart_when_idle(&mut self) {
        tracing::info!("restarting once nothing runs");
        self.restarting = true;
    }

    fn is_idle(&self) -> bool {
        !self.running
            && !self.activations.returns()
            && !self.runner.guard().is_some_and(|guard| guard.returns())
            && self.view.shown().actions_running == 0
    }

    fn hear(&mut self, event: DaemonEvent) {
        self.follow_guard();
        match event {
            DaemonEvent::Input(input) => {
                let run_ended = matches!(input, NodeInput::Ran(_) | NodeInput::RunFailed(_));
                self.take(input);
                if run_ended {
                    self.rest_after_run();
                }
            }
            DaemonEvent::Local(command) => self.local(command),
            DaemonEvent::Answered { answer, acked_before } => {
                self.acked_before = acked_before;
                self.take(NodeInput::Answered(answer));
            }
            DaemonEvent::NotAnswered(failure) => self.not_answered(failure),
            DaemonEvent::SuspectedDrift => self.hear_suspected_drift(),
            DaemonEvent::Contact => self.take(NodeInput::FactsWait),
            DaemonEvent::FactsWait if self.sync.links.is_open() => {
                self.flush_at = self.flush_at.or(Some(Instant::now() + FLUSH));
            }
            DaemonEvent::FactsWait => self.take(NodeInput::FactsWait),
            DaemonEvent::Flushed { acked, acked_before, contact } => {
                match acked {
                    Some(cursor) => {
                        self.ack(cursor.clone(), acked_before, true);
                        self.take(NodeInput::Delivered(cursor));
                    }
                    None => self.flushing = false,
                }
                if contact && !self.stopping {
                    self.take(NodeInput::FactsWait);
                }
            }
            DaemonEvent::Appended { check_ins } => {
                self.appending -= 1;
                // A check-in that was made meanwhile did not carry it.
                if check_ins != self.check_ins {
                    self.take(NodeInput::FactsWait);
                }
            }
            DaemonEvent::NotAppended => {
                self.appending -= 1;
                self.take(NodeInput::NotAppended);
            }
            DaemonEvent::Acknowledged { delivery, more } => self.acknowledged(delivery, more),
            DaemonEvent::StateLost(lost) => self.state_lost(lost),
            DaemonEvent::AgentReplaced => self.restart_when_idle(),
            // It is followed with whatever is heard.
            DaemonEvent::GuardChanged => {}
            DaemonEvent::IdentityCopied(copied) => {
                self.local.set(|state| state.contact.identity_copied = copied)
            }
            DaemonEvent::LeftOut(what) => self.local.set(|state| state.contact.left_out = what),
        }
    }

    fn acknowledged(&mut self, delivery: bool, more: bool) {
        self.append_repairs();
        if delivery {
            self.flushing = false;
        }
        match (delivery, more) {
            (true, true) => self.flush_at = self.flush_at.or(Some(Instant::now())),
            (false, true) => self.take(NodeInput::FactsWait),
            (_, false) => {}
        }
    }

    /// Sends the facts that wait over the open stream, beside the node's own check-ins.
    fn flush(&mut self) {
        self.flush_at = None;
        if self.flushing || self.checking_in {
            // What waits by then goes when this one is done.
            self.flush_at = Some(Instant::now() + FLUSH);
            return;
        }
        let Some(last) = self.last_check_in.clone() else { return self.take(NodeInput::FactsWait) };
        let (held, unmade_run) = (self.node.adoption().map(Adoption::held), self.node.unmade_run().cloned());
        let (freshness, running_since) = (self.node.freshness(), self.node.running_since());
        let (trust, renewal_failure) =
            (self.node.held_trust(), self.node.renewal_failure().map(str::to_owned));
        let unadopted = self.node.unadopted().cloned();
        let message =
            CheckIn { held, unmade_run, freshness, running_since, trust, renewal_failure, unadopted, ..last };
        self.flushing = true;
        let exchange = self.exchange.clone();
        let newest = self.node.newest_header();
        tasks::spawn(async move { exchange.flush(message, newest).await });
    }

    fn append_started(&mut self) {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let (version, boot_id) = (env!("CARGO_PKG_VERSION").to_owned(), boot_id.trim().to_owned());
        let state = self.storage.durable().path();
        let cut_off = RunMark::read(state);
        if let Some(mark) = cut_off {
            tracing::warn!(since = %mark.started, "the last run was cut off: the agent was killed, or the host went down");
            if let Err(error) = (RunMark { reported: true, ..mark }).write(state) {
                tracing::debug!(error = %chain(&error), "that is told once more after the next start");
            }
            self.local.set(|local| local.cut_off = Some(mark.started));
        }
        let cut_off_run = cut_off.filter(|mark| !mark.reported).map(|mark| mark.started);
        let invocation = Some(invocation::of_this_host());
        self.append(FactBody::Started { version, boot_id, invocation, cut_off_run });
        self.append_repairs();
    }

    /// Tells what a run found damaged, and gives back the memory that it took: not on its own thread, which
    /// goes behind all others.
    fn rest_after_run(&mut self) {
        self.append_repairs();
        drop(tasks::spawn_blocking(host::release_free_memory));
    }

    fn append_repairs(&mut self) {
        for message in self.storage.durable().take_repairs() {
            tracing::warn!(message, "repaired");
            self.append(FactBody::Repaired { message });
        }
    }

    fn take(&mut self, input: NodeInput) {
        let mut queue = VecDeque::from([input]);
        while let Some(input) = queue.pop_front() {
            match &input {
                NodeInput::Ran(_) | NodeInput::RunFailed(_) => self.running = false,
                NodeInput::Unreachable(_) => self.checking_in = false,
                NodeInput::Answered(answer) => {
                    self.checking_in = false;
                    self.note_answered(answer);
                    if answer.stream_requested {
                        self.sync.links.requested();
                    }
                }
                NodeInput::Adopted(settings) => self.collectors_follow(&settings.policy),
                NodeInput::Traits(_) => {
                    let seen = self.observed.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Some(seen) = seen {
                        self.traits = seen;
                    }
                }
                _ => {}
            }
            for effect in self.node.handle(input, now()) {
                self.perform(effect);
            }
        }
        self.watch.show(self.node.contentions(), self.node.scans());
        self.local.show_unmade(self.node.unmade_run());
        self.local.show_unadopted(self.node.unadopted());
        self.local.show_renewal_failure(self.node.renewal_failure());
        self.show_reboot();
        self.local.show_refused_trust(self.node.refused_trust());
        self.control_plane.follow(self.node.trust());
        self.follow_authorities();
    }

    /// Carries an effect out; what it comes to is an event.
    fn perform(&mut self, effect: NodeEffect) {
        match effect {
            NodeEffect::CollectTraits => self.collect_traits(),
            NodeEffect::CheckIn(check_in, way) => self.check_in(*check_in, way),
            NodeEffect::HurryCheckIn => self.exchange.hurry(),
            NodeEffect::Fetch { contents, inline } => self.fetch(contents, inline),
            NodeEffect::Adopt(adoption) => self.adopt(*adoption),
            NodeEffect::Prepare(adoption) => self.prepare(*adoption),
            NodeEffect::ReportDispatch(rollout, event) => self.report_dispatch(rollout, event),
            NodeEffect::Activate(request) => self.activations.send(ActivationCommand::Activate(request)),
            NodeEffect::Supersede(adoption) => self.activations.send(ActivationCommand::Supersede(adoption)),
            NodeEffect::Switched(end) => self.activations.tell(ActivationCommand::Switched(end)),
            NodeEffect::HostIsFree => self.activations.tell(ActivationCommand::HostIsFree),
            NodeEffect::ConfirmTried(outcome) => {
                self.activations.tell(ActivationCommand::ConfirmTried(outcome));
            }
            NodeEffect::GoBack(root) => {
                self.activations.tell(ActivationCommand::GoBack(GenerationId(root)));
            }
            NodeEffect::RolloutEnded(root) => {
                self.activations.tell(ActivationCommand::RolloutEnded(GenerationId(root)));
            }
            NodeEffect::RestateRollout(root) => {
                self.activations.tell(ActivationCommand::Restate(GenerationId(root)));
            }
            NodeEffect::AdoptedAtOnce(root) => self.activations.adopted_at_once(GenerationId(root)),
            NodeEffect::Run(order) => self.start_run(order),
            NodeEffect::Append(body) => self.append(body),
            NodeEffect::Ack(cursor) => self.ack(cursor, self.acked_before, false),
            NodeEffect::SaveRun(last) => {
                let storage = self.storage.clone();
                tasks::spawn(async move {
                    if let Err(error) = storage.run(move |durable| durable.save_last_run(&last)).await {
                        tracing::warn!(error = %chain(&error), "the last run could not be recorded");
                    }
                });
            }
            NodeEffect::SaveFreshness(freshness) => self.save_freshness(freshness),
            NodeEffect::SavePause(pause) => self.save_pause(pause),
            NodeEffect::Reboot(mark) => self.reboot(mark),
            NodeEffect::SaveReboot(mark) => self.save_reboot(mark),
            NodeEffect::SaveTrust(record) => self.save_trust(*record),
            NodeEffect::FetchTrustLinks(after) => self.fetch_trust_links(after),
            NodeEffect::Renew(proof) => self.renew(proof),
            NodeEffect::WatchCulprits(resources) => self.watch.find_culprits(resources),
            NodeEffect::Warn(text) => tracing::warn!("{}", model::text::one_line(&text)),
        }
    }

    fn ack(&self, cursor: Cursor, acked_before: u64, delivery: bool) {
        let (storage, handle) = (self.storage.clone(), self.handle.clone());
        tasks::spawn(async move {
            let more = storage.ack(cursor, acked_before).await.unwrap_or_else(|error| {
                tracing::warn!(error = %chain(&error), "the log could not be trimmed");
                false
            });
            handle.send(DaemonEvent::Acknowledged { delivery, more }).await;
        });
    }

    /// The channel says how long traits count. A collector that is busy now holds up nobody.
    fn collectors_follow(&self, policy: &Policy) {
        let (collectors, ttls) = (self.collectors.clone(), policy.trait_ttl_secs.clone());
        tasks::spawn_blocking(move || {
            collectors.lock().unwrap_or_else(PoisonError::into_inner).set_ttls(&ttls);
        });
    }

    fn collect_traits(&self) {
        let (collectors, host, runner) = (self.collectors.clone(), self.host.clone(), self.runner.clone());
        let (handle, observed) = (self.handle.clone(), self.observed.clone());
        let guard = self.guard.clone();
        tasks::spawn_blocking(move || {
            match guard.check() {
                Ok(None) => {}
                Ok(Some(lost)) => handle.send_blocking(DaemonEvent::StateLost(lost)),
                // The next run says so on both sides.
                Err(error) => tracing::debug!(error = %chain(&error), "the state directory cannot be used"),
            }
            let mut collectors = collectors.lock().unwrap_or_else(PoisonError::into_inner);
            let collected = collectors.collect(&host, now());
            for (name, why) in &collected.failures {
                tracing::warn!(collector = name, why, "a collector failed");
            }
            let report = trait_report(&collected.traits);
            let read = runner.read_traits(&collected.traits);
            *observed.lock().unwrap_or_else(PoisonError::into_inner) = Some(collected.traits);
            handle.send_blocking(DaemonEvent::Input(NodeInput::Traits(ObservedTraits { report, read })));
        });
    }

    fn check_in(&mut self, message: CheckIn, way: CheckInWay) {
        self.last_check_in =
            Some(CheckIn { traits: None, full: false, run_confirmed: None, header: None, ..message.clone() });
        self.check_ins += 1;
        self.checking_in = true;
        let exchange = self.exchange.clone();
        let newest = self.node.newest_header();
        tasks::spawn(async move { exchange.check_in(message, way, newest).await });
    }

    fn fetch(&self, contents: BTreeSet<Digest>, inline: Vec<String>) {
        let (session, storage, handle) = (self.session.clone(), self.storage.clone(), self.handle.clone());
        tasks::spawn(async move {
            let input = match fetch::all(&storage, &session, contents, inline).await {
                Ok(()) => NodeInput::Fetched,
                // The disk is in the way, and not the network.
                Err(error @ FetchError::Keep { .. }) => NodeInput::AdoptFailed(chain(&error)),
                Err(error) => NodeInput::FetchFailed(chain(&error)),
            };
            handle.send(DaemonEvent::Input(input)).await;
        });
    }

    fn adopt(&self, adoption: Adoption) {
        let (storage, release, handle) = (self.storage.clone(), self.release.clone(), self.handle.clone());
        tasks::spawn(async move {
            let (seq, root) = (adoption.seq, adoption.root);
            let adopted = storage.run(move |durable| release.adopt(durable, &adoption)).await;
            let input = match adopted {
                Ok(settings) => {
                    tracing::info!(seq, root = %root.short(), "adopted a release");
                    NodeInput::Adopted(settings)
                }
                Err(error) => NodeInput::AdoptFailed(chain(&error)),
            };
            handle.send(DaemonEvent::Input(input)).await;
        });
    }

    /// Appends a fact. Enforcement goes on without a log (LIF-10).
    fn append(&mut self, body: FactBody) {
        self.appending += 1;
        let (storage, handle, check_ins) = (self.storage.clone(), self.handle.clone(), self.check_ins);
        tasks::spawn(async move {
            let appended: Result<(), StateError> = storage.append(body).await;
            let event = match appended {
                Ok(()) => DaemonEvent::Appended { check_ins },
                Err(error) => {
                    tracing::error!(error = %chain(&error), "a fact could not be recorded");
                    DaemonEvent::NotAppended
                }
            };
            handle.send(event).await;
        });
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
