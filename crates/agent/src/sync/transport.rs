//! [`Links`]: opens links when there is need for one, and closes them when there is none
//! (SYN-1, SYN-10, SYN-11, SYN-13, SYN-14).
//!
//! `auto` polls by check-ins, and opens the best stream that works when the control plane asks
//! for one or something of the node's own is to go; it is closed when both directions are
//! equal and nothing moves. The other transports keep what they name open.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::Timestamp;
use model::exchange::{Answer, CheckIn};
use model::policy::Policy;
use model::replication::{Mode, TransportKind};
use streams::task::{self, Ended, LinkCommand, LinkHandle, LinkTransport};
use streams::{TransportError, run_link};
use sync::FeedCursor;
use sync::backoff::{ReconnectPolicy, poll_at};
use sync::link::{Link, LinkConfig};
use sync::{Frame, Role};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::handler::AgentLinkHandler;
use super::posts;
use super::reconciler::{ObjectReconciler, Rules};
use super::sets::Sets;
use super::signals::{LinkSignal, LinkSignaller, LinkSignals};
use super::transports::TransportSelector;
use super::view::View;
use super::watched::{AFTER_PANIC, LINKS, watched};
use crate::clock::now;
use crate::dialing::{DialError, TransportDialer};
use crate::events::DaemonHandle;
use crate::release::ReleaseTerms;
use crate::render::chain;

/// A link that nobody needs any more is closed after so long a rest.
pub const IDLE_CLOSE: Duration = Duration::from_secs(60);
/// How often it is looked whether a link rests.
const LOOK: Duration = Duration::from_secs(5);
/// The same for a poll, which ends as soon as all is said.
const POLL_LOOK: Duration = Duration::from_millis(50);
/// A poll is given up after this: it waits for something that is not its business.
const LONGEST_POLL: Duration = Duration::from_secs(120);
/// With this code a control plane that stops goes away.
const STOPS: &str = "shutdown";
/// With this code a link ends whose sides take the node to be in different modes.
const MODE: &str = "mode";
/// The longest sleep without a link.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// A link that lived so long was a good one: the next failure is the first.
const GOOD: Duration = Duration::from_secs(10);
/// How long the answer to a check-in on a link may take, before it goes another way.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// No wait for the next link is longer.
const LONGEST_WAIT: Duration = sync::backoff::LONGEST_ASKED;
/// How long a stop may take: the last words of a link.
const STOP_WITHIN: Duration = Duration::from_secs(15);

/// The link that is open.
#[derive(Clone)]
struct Open {
    orders: LinkHandle,
    handler: Arc<AgentLinkHandler>,
    transport_kind: TransportKind,
}

type Current = Arc<Mutex<Option<Open>>>;

/// The daemon's way to its links.
pub struct Links {
    signaller: LinkSignaller,
    stop: watch::Sender<bool>,
    current: Current,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What links need.
pub struct LinksSetup {
    /// Opens transports.
    pub dialer: TransportDialer,
    /// Both sets.
    pub sets: Arc<Sets>,
    /// Applies what comes.
    pub reconciler: ObjectReconciler,
    /// What is shown.
    pub view: Arc<View>,
    /// The way to the daemon.
    pub daemon: DaemonHandle,
    /// What the release that is held says.
    pub terms: watch::Receiver<ReleaseTerms>,
    /// The instance of this process.
    pub instance: String,
    /// Spreads waits.
    pub seed: u64,
}

impl Links {
    /// Starts the task that opens and closes links.
    pub fn start(setup: LinksSetup) -> Links {
        let signaller = LinkSignaller::default();
        let (stop, stopped) = watch::channel(false);
        let current = Current::default();
        let LinksSetup { dialer, sets, reconciler, view, daemon, mut terms, instance, seed } = setup;
        let policy = terms.borrow_and_update().policy.clone();
        view.set(|view| view.transport = policy.transport);
        let manager = Manager {
            dialer,
            sets,
            rules: reconciler.rules(),
            reconciler,
            view,
            daemon,
            policy,
            instance,
            signals: signaller.signals(terms),
            stopped: stopped.clone(),
            current: current.clone(),
            transports: TransportSelector::default(),
            reconnect: ReconnectPolicy::new(seed),
            began: Instant::now(),
            lost: Instant::now(),
            last_poll: None,
            requested: false,
            acked: None,
            count: 0,
        };
        let view = manager.view.clone();
        let manager = Arc::new(tokio::sync::Mutex::new(manager));
        let begin = move || {
            let manager = manager.clone();
            async move { manager.lock().await.run().await }
        };
        let task = Mutex::new(Some(tokio::spawn(watched(view, stopped, AFTER_PANIC, begin))));
        Links { signaller, stop, current, task }
    }

    /// Work waits at the control plane, which wants a stream for it.
    pub fn requested(&self) {
        self.signaller.requested();
    }

    /// The control plane answered a call.
    pub fn reached(&self) {
        self.signaller.reached();
    }

    /// Whether check-ins can go over an open stream.
    pub fn is_open(&self) -> bool {
        self.stream().is_some()
    }

    fn stream(&self) -> Option<Open> {
        let open = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        open.filter(|open| open.transport_kind.is_stream() && open.handler.takes_check_ins())
    }

    /// Checks in over the open stream; `None`: there is none, or no answer came.
    pub async fn check_in(&self, message: CheckIn) -> Option<Answer> {
        let open = self.stream()?;
        let answer = open.handler.ask();
        let said =
            open.orders.tell_in_turn(LinkCommand::Say(Box::new(Frame::CheckIn(Box::new(message))))).await;
        // With the link's end the one that would answer is gone too.
        drop(open);
        if !said {
            return None;
        }
        timeout(ANSWER_WITHIN, answer).await.ok()?.ok()
    }

    /// Ends the link in order; no more are opened.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = task
            && timeout(STOP_WITHIN, &mut task).await.is_err()
        {
            tracing::warn!("the link did not end in order");
            task.abort();
        }
    }
}

struct Manager {
    dialer: TransportDialer,
    sets: Arc<Sets>,
    reconciler: ObjectReconciler,
    rules: watch::Receiver<Rules>,
    view: Arc<View>,
    daemon: DaemonHandle,
    policy: Policy,
    instance: String,
    signals: LinkSignals,
    stopped: watch::Receiver<bool>,
    current: Current,
    transports: TransportSelector,
    reconnect: ReconnectPolicy,
    began: Instant,
    /// When the last stream ended.
    lost: Instant,
    last_poll: Option<Instant>,
    /// The control plane asked for a stream.
    requested: bool,
    /// How far the control plane has the own set.
    acked: Option<FeedCursor>,
    count: u64,
}

/// How a link was ended from this side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    Idle,
    Rules,
    Stop,
}

/// That moment; at most [`LONGEST_WAIT`] from now, whatever the other side asks for.
fn from_now(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait.min(LONGEST_WAIT)).unwrap_or(now)
}

impl Manager {
    async fn run(&mut self) {
        // Something may be left of a link that ended in a panic.
        self.set_current(None);
        self.view.set(|view| (view.link, view.since) = (None, None));
        let mut feed = self.sets.watch();
        while !*self.stopped.borrow() {
            let plan = self.plan();
            let at = plan.map_or_else(|| from_now(LONGEST_SLEEP), |(at, _)| at);
            let (mut stopped, mut stopped_open) = (self.stopped.clone(), self.stopped.clone());
            tokio::select! {
                signal = self.signals.next() => self.take(signal),
                Ok(()) = self.rules.changed() => {
                    // Under other rules, and after a start, nothing is known to be in sync before
                    // a link compared it (CNV-3, SYN-6).
                    self.requested |= self.rules.borrow().policy.mode != Mode::Off;
                    self.reconnect.at_once(self.now());
                }
                Ok(()) = feed.changed() => {}
                () = net::accept::stopped(&mut stopped) => return,
                () = sleep_until(at) => if let Some((_, transport_kind)) = plan {
                    tokio::select! {
                        opened = self.open(transport_kind) => match opened {
                            Ok((ends, name)) => self.link(ends, transport_kind, &name).await,
                            Err(error) => self.not_opened(transport_kind, &error),
                        },
                        () = net::accept::stopped(&mut stopped_open) => return,
                    }
                }
            }
        }
    }

    fn take(&mut self, signal: LinkSignal) {
        match signal {
            LinkSignal::Requested => self.requested = true,
            LinkSignal::Reached => {
                self.view.set(|view| view.contact = Some(now()));
                self.reconnect.reached(self.now());
            }
            LinkSignal::Policy(policy) => {
                let transport = policy.transport;
                if transport != self.policy.transport {
                    self.reconnect.at_once(self.now());
                }
                self.policy = policy;
                self.view.set(|view| view.transport = transport);
            }
        }
    }

    /// Time that only goes forward.
    fn timestamp(&self, at: Instant) -> Timestamp {
        let since = at.saturating_duration_since(self.began);
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn now(&self) -> Timestamp {
        self.timestamp(Instant::now())
    }

    /// The moment of that time; at most [`LONGEST_WAIT`] from now.
    fn instant(&self, at: Timestamp) -> Instant {
        from_now(at.since(self.now()))
    }

    /// Something is to go one way or the other.
    fn is_needed(&self) -> bool {
        let own = self.sets.own_cursor();
        self.requested || (own.revision > 0 && self.acked.as_ref() != Some(&own))
    }

    /// Which link is to be opened next, and when.
    fn plan(&self) -> Option<(Instant, TransportKind)> {
        if self.rules.borrow().number == 0 {
            return None;
        }
        let (now, needed) = (Instant::now(), self.is_needed());
        let best = self.transports.next(self.policy.transport, now);
        let wanted = needed || (self.policy.transport.keeps_open() && best.is_stream());
        let first = wanted.then_some((self.instant(self.reconnect.not_before()), best));
        let poll = self.policy.transport.keeps_open().then(|| self.poll_at()).flatten();
        first.into_iter().chain(poll.map(|at| (at, TransportKind::Poll))).min_by_key(|(at, _)| *at)
    }

    /// When to poll for want of a stream (SYN-11).
    fn poll_at(&self) -> Option<Instant> {
        let lost = self.timestamp(self.lost);
        let last = self.last_poll.map(|at| self.timestamp(at));
        poll_at(false, lost, last, self.policy.converge()).map(|at| self.instant(at))
    }

    async fn open(&mut self, transport_kind: TransportKind) -> Result<(LinkTransport, String), DialError> {
        self.count += 1;
        let name = format!("{}-{}", self.instance, self.count);
        let ends = match transport_kind {
            TransportKind::Grpc => self.dialer.grpc(&name).await?,
            TransportKind::Websocket => self.dialer.websocket(&name).await?,
            TransportKind::Sse => {
                let have = self.sets.with(|_, replica| replica.cursor().cloned());
                let (reader, link, session) = self.dialer.sse(&name, &self.instance, have.as_ref()).await?;
                let writer = posts::beside(session, self.dialer.origin(&name), link);
                LinkTransport { reader: Some(Box::new(reader)), writer: Some(Box::new(writer)) }
            }
            TransportKind::Poll => {
                self.last_poll = Some(Instant::now());
                let session = self.dialer.beside();
                let (reader, writer) = posts::polled(session, self.dialer.origin(&name));
                LinkTransport { reader: Some(Box::new(reader)), writer: Some(Box::new(writer)) }
            }
        };
        Ok((ends, name))
    }

    fn not_opened(&mut self, transport_kind: TransportKind, error: &DialError) {
        let why = chain(error);
        tracing::info!(transport_kind = transport_kind.as_str(), why, "no link");
        self.view.set(|view| view.ended = Some(format!("{}: {why}", transport_kind.as_str())));
        let unreached = matches!(error, DialError::Reach(_));
        if unreached && transport_kind == TransportKind::Websocket {
            self.dialer.next_url();
        }
        let other = error.is_of_transport() && self.transports.failed(transport_kind, Instant::now());
        self.wait(other && !self.policy.transport.names_one(), error.retry_after(), unreached);
    }

    fn wait(&mut self, at_once: bool, at_least: Option<Duration>, unreached: bool) {
        let now = self.now();
        match at_once {
            true => self.reconnect.at_once(now),
            false => self.reconnect.failed(now, at_least, unreached),
        }
    }

    fn config(&self, transport_kind: TransportKind, rules: &Rules) -> LinkConfig {
        let (policy, settings) = (Some(&rules.policy), self.policy.link);
        let mut config = LinkConfig::under(policy, Role::Agent, &self.instance, settings);
        if transport_kind == TransportKind::Poll {
            config.assumed.clone_from(&self.acked);
        }
        config
    }

    /// Runs a link to its end.
    async fn link(&mut self, ends: LinkTransport, transport_kind: TransportKind, name: &str) {
        let rules = self.rules.borrow_and_update().clone();
        let (sets, daemon) = (self.sets.clone(), self.daemon.clone());
        let handler = AgentLinkHandler::new(
            sets,
            self.reconciler.clone(),
            self.view.clone(),
            daemon,
            transport_kind,
            rules.number,
        );
        let handler = Arc::new(handler);
        let link = Box::new(Link::new(self.config(transport_kind, &rules), Timestamp(0)));
        let (orders, taken) = task::orders();
        let open = Open { orders: orders.clone(), handler: handler.clone(), transport_kind };
        self.set_current(Some(open));
        tracing::debug!(transport_kind = transport_kind.as_str(), name, "a link begins");
        self.view.set(|view| {
            view.link = Some(transport_kind.as_str().to_owned());
            view.since = Some(now());
            view.counts.links += 1;
        });
        let began = Instant::now();
        let running = run_link(link, handler.clone(), ends, Vec::new(), self.sets.watch(), taken);
        tokio::pin!(running);
        let mut closing = Closing::No;
        let mut stopped = self.stopped.clone();
        let ended = loop {
            let rests = !self.policy.transport.keeps_open() || transport_kind == TransportKind::Poll;
            let look = if transport_kind == TransportKind::Poll { POLL_LOOK } else { LOOK };
            let asked = tokio::select! {
                ended = &mut running => break ended,
                signal = self.signals.next() => {
                    self.take(signal);
                    // Another transport than the channel now names is left at once.
                    match closing != Closing::No || self.policy.transport.allows(transport_kind) {
                        true => continue,
                        false => Closing::Rules,
                    }
                }
                Ok(()) = self.rules.changed() => match self.rules.borrow().number == rules.number {
                    true => continue,
                    false => Closing::Rules,
                },
                () = net::accept::stopped(&mut stopped), if closing != Closing::Stop => Closing::Stop,
                () = tokio::time::sleep(look), if rests && closing == Closing::No => {
                    match self.rests(&handler, transport_kind, began) {
                        true => Closing::Idle,
                        false => continue,
                    }
                }
            };
            closing = asked;
            // A link that has more orders than it can hold ends by itself.
            let _ = orders.tell(LinkCommand::Shutdown);
        };
        self.set_current(None);
        self.ended(&ended, &handler, transport_kind, closing, began.elapsed());
    }

    fn set_current(&self, open: Option<Open>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = open;
    }

    /// Nothing moves, and nobody needs the link.
    fn rests(&self, handler: &AgentLinkHandler, transport_kind: TransportKind, began: Instant) -> bool {
        if transport_kind == TransportKind::Poll {
            return handler.quiet().is_some() || began.elapsed() >= LONGEST_POLL;
        }
        let busy = self.view.shown().actions_running > 0;
        !busy && handler.quiet().is_some_and(|since| since.elapsed() >= IDLE_CLOSE)
    }

    fn ended(
        &mut self,
        ended: &Ended,
        handler: &AgentLinkHandler,
        transport_kind: TransportKind,
        closing: Closing,
        lived: Duration,
    ) {
        let error = ended.error.as_ref().map(|error| chain(error));
        let why = error.clone().unwrap_or_else(|| ended.message.clone());
        tracing::debug!(transport_kind = transport_kind.as_str(), code = ended.code, why, "a link ended");
        self.view.link_ended(&ended.counters);
        self.view.set(|view| {
            (view.link, view.since) = (None, None);
            view.ended = (closing == Closing::No).then(|| format!("{}: {why}", ended.code));
            view.counts.reconnects += u64::from(closing == Closing::No);
        });
        if let Some(acked) = handler.acked() {
            self.acked = Some(acked);
        }
        if transport_kind.is_stream() {
            self.lost = Instant::now();
        }
        if ended.met {
            self.view.problem(LINKS, None);
            self.transports.worked(transport_kind);
            self.requested &= handler.quiet().is_none() && closing != Closing::Idle;
        }
        if closing == Closing::Rules {
            self.requested |= self.rules.borrow().policy.mode != Mode::Off;
        }
        if ended.code == MODE || ended.away.as_deref() == Some(MODE) {
            // The control plane points to another release than the one held here.
            self.daemon.contact();
        }
        self.wait_after(ended, transport_kind, closing, lived);
    }

    fn wait_after(
        &mut self,
        ended: &Ended,
        transport_kind: TransportKind,
        closing: Closing,
        lived: Duration,
    ) {
        if closing != Closing::No {
            self.reconnect.worked();
            return self.reconnect.at_once(self.now());
        }
        let good = ended.met && lived >= GOOD;
        if good {
            self.reconnect.worked();
        }
        let told = ended.away.is_some() || matches!(ended.error, Some(TransportError::Problem(_)));
        let other = !ended.met && !told && self.transports.failed(transport_kind, Instant::now());
        let problem = match &ended.error {
            Some(TransportError::Problem(problem)) => problem.retry_after_secs,
            _ => None,
        };
        let at_least = ended.retry_after.or(problem).map(Duration::from_secs);
        if good && (!told || ended.away.as_deref() == Some(STOPS)) {
            // The whole fleet may have lost its links with this one (SYN-13).
            return self.reconnect.lost(self.now(), at_least);
        }
        self.wait(other && !self.policy.transport.names_one(), at_least, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wait_is_endless() {
        for wait in [Duration::MAX, Duration::from_secs(u64::MAX)] {
            assert!(from_now(wait) <= Instant::now() + LONGEST_WAIT);
        }
    }
}
