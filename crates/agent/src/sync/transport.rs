//! [`Links`]: opens links when there is need for one, and closes them when there is none
//! (SYN-1, SYN-10, SYN-11, SYN-13, SYN-14).
//!
//! `auto` polls by check-ins, and opens the best stream that works when the control plane asks
//! for one or something of the node's own is to go; it is closed when both directions are
//! equal and nothing moves. The other transports keep what they name open.

mod exchanges;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::Timestamp;
use model::exchange::{Answer, CheckIn};
use model::policy::Policy;
use model::replication::{Mode, TransportKind};
use streams::sse::SseReader;
use streams::task::{self, Ended, EndedBy, LinkCommand, LinkHandle, LinkTransport};
use streams::{TransportError, run_link};
use sync::FeedCursor;
use sync::backoff::{LinkEnd, ReconnectPolicy, poll_at};
use sync::frame::CloseReason;
use sync::link::LinkConfig;
use sync::{Frame, Role};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use trust::token::TlsTermination;

use super::handler::AgentLinkHandler;
use super::posts::Poster;
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
    /// Who ends their TLS sessions.
    pub tls_termination: TlsTermination,
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
        let LinksSetup { dialer, tls_termination, sets, reconciler, view, daemon, mut terms, instance, seed } =
            setup;
        let policy = terms.borrow_and_update().policy.clone();
        view.set(|view| view.transport = policy.transport);
        let manager = Manager {
            poster: dialer.poster(&instance),
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
            transports: TransportSelector::new(tls_termination),
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
        open.filter(|open| open.handler.takes_check_ins())
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
    poster: Poster,
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

/// A transport that came through.
enum Opened {
    /// Frames go both ways.
    Stream(LinkTransport),
    /// Frames come down, and are posted up.
    Events(Box<SseReader>),
    /// Frames are posted.
    Poll,
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
                            Ok(Opened::Stream(ends)) => self.link(ends, transport_kind).await,
                            Ok(Opened::Events(reader)) => self.events(reader).await,
                            Ok(Opened::Poll) => self.poll().await,
                            Err(error) => self.open_failed(transport_kind, &error),
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

    async fn open(&mut self, transport_kind: TransportKind) -> Result<Opened, DialError> {
        self.count += 1;
        let name = format!("{}-{}", self.instance, self.count);
        self.poster = self.dialer.poster(&name);
        Ok(match transport_kind {
            TransportKind::Grpc => Opened::Stream(self.dialer.grpc(&name).await?),
            TransportKind::Websocket => Opened::Stream(self.dialer.websocket(&name).await?),
            TransportKind::Sse => {
                let have = self.sets.with(|_, replica| replica.cursor().cloned());
                Opened::Events(Box::new(self.dialer.sse(&name, &self.instance, have.as_ref()).await?))
            }
            TransportKind::Poll => Opened::Poll,
        })
    }

    fn open_failed(&mut self, transport_kind: TransportKind, error: &DialError) {
        let why = chain(error);
        tracing::info!(transport_kind = transport_kind.as_str(), why, "no link");
        self.view.set(|view| view.ended = Some(format!("{}: {why}", transport_kind.as_str())));
        let unreached = matches!(error, DialError::Reach(_));
        if unreached && transport_kind == TransportKind::Websocket {
            self.dialer.next_url();
        }
        let other = error.is_of_transport() && self.transports.failed(transport_kind, Instant::now());
        let how = match error {
            DialError::Reach(_) => LinkEnd::Unreached,
            DialError::Refused(_) if !other => LinkEnd::Refused,
            DialError::Refused(_) | DialError::Transport(_) => LinkEnd::Lost,
        };
        self.wait(other, how, error.retry_after());
    }

    /// Waits before the next link; not when another transport is to be tried.
    fn wait(&mut self, other: bool, how: LinkEnd, at_least: Option<Duration>) {
        let now = self.now();
        match other && !self.policy.transport.names_one() {
            true => self.reconnect.at_once(now),
            false => self.reconnect.ended(now, how, at_least),
        }
    }

    /// A link over a transport, and what lies behind it.
    fn end(&self, transport_kind: TransportKind, rules: &Rules) -> (LinkConfig, Arc<AgentLinkHandler>) {
        let (sets, reconciler) = (self.sets.clone(), self.reconciler.clone());
        let (view, daemon) = (self.view.clone(), self.daemon.clone());
        let handler = AgentLinkHandler::new(sets, reconciler, view, daemon, transport_kind, rules.number);
        let settings = self.policy.link;
        (LinkConfig::under(Some(&rules.policy), Role::Agent, &self.instance, settings), Arc::new(handler))
    }

    /// Runs a link over a stream of two ways to its end.
    async fn link(&mut self, ends: LinkTransport, transport_kind: TransportKind) {
        let rules = self.rules.borrow_and_update().clone();
        let (config, handler) = self.end(transport_kind, &rules);
        let (orders, taken) = task::orders();
        self.set_current(Some(Open { orders: orders.clone(), handler: handler.clone() }));
        self.begins(transport_kind);
        let began = Instant::now();
        let running = run_link(config, handler.clone(), ends, Vec::new(), self.sets.watch(), taken);
        tokio::pin!(running);
        let (mut closing, mut stopped) = (Closing::No, self.stopped.clone());
        let ended = loop {
            let rests = closing == Closing::No && !self.policy.transport.keeps_open();
            let asked = tokio::select! {
                ended = &mut running => break ended,
                closing = self.closes(transport_kind, &rules), if closing == Closing::No => closing,
                () = net::accept::stopped(&mut stopped), if closing != Closing::Stop => Closing::Stop,
                () = tokio::time::sleep(LOOK), if rests => match self.is_at_rest(handler.quiet()) {
                    true => Closing::Idle,
                    false => continue,
                }
            };
            closing = asked;
            // A link that has more orders than it can hold ends by itself.
            let _ = orders.tell(LinkCommand::Shutdown);
        };
        self.set_current(None);
        self.acked = handler.acked().or(self.acked.take());
        self.view.link_ended(&ended.counters);
        self.ended(&ended, handler.quiet().is_some(), transport_kind, closing, began.elapsed());
    }

    /// Waits for a reason to end a link that the release gives.
    async fn closes(&mut self, transport_kind: TransportKind, rules: &Rules) -> Closing {
        loop {
            tokio::select! {
                signal = self.signals.next() => {
                    self.take(signal);
                    // Another transport than the channel now names is left at once.
                    if !self.policy.transport.allows(transport_kind) {
                        return Closing::Rules;
                    }
                }
                Ok(()) = self.rules.changed() => if self.rules.borrow().number != rules.number {
                    return Closing::Rules;
                }
            }
        }
    }

    /// A link is there from now on.
    fn begins(&self, transport_kind: TransportKind) {
        tracing::debug!(transport_kind = transport_kind.as_str(), "a link begins");
        self.view.set(|view| {
            view.link = Some(transport_kind.as_str().to_owned());
            view.since = Some(now());
            view.counts.links += 1;
        });
    }

    fn set_current(&self, open: Option<Open>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = open;
    }

    /// Nothing moves, and nobody needs the link.
    fn is_at_rest(&self, quiet: Option<Instant>) -> bool {
        let busy = self.view.shown().actions_running > 0;
        !busy && quiet.is_some_and(|since| since.elapsed() >= IDLE_CLOSE)
    }

    fn ended(
        &mut self,
        ended: &Ended,
        quiet: bool,
        transport_kind: TransportKind,
        closing: Closing,
        lived: Duration,
    ) {
        let error = ended.error.as_ref().map(|error| chain(error));
        let why = error.clone().unwrap_or_else(|| ended.message.clone());
        tracing::debug!(transport_kind = transport_kind.as_str(), code = ended.code, why, "a link ended");
        self.view.set(|view| {
            (view.link, view.since) = (None, None);
            view.ended = (closing == Closing::No).then(|| format!("{}: {why}", ended.code));
            view.counts.reconnects += u64::from(closing == Closing::No);
        });
        if transport_kind.is_stream() {
            self.lost = Instant::now();
        }
        if ended.met {
            self.view.problem(LINKS, None);
            self.transports.worked(transport_kind);
            self.requested &= !quiet && closing != Closing::Idle;
        }
        if closing == Closing::Rules {
            self.requested |= self.rules.borrow().policy.mode != Mode::Off;
        }
        if matches!(ended.how, EndedBy::Us(CloseReason::Mode) | EndedBy::Them(CloseReason::Mode)) {
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
        if ended.met && lived >= GOOD {
            self.reconnect.worked();
        }
        let problem = match &ended.error {
            Some(TransportError::Problem(problem)) => Some(problem.retry_after_secs),
            _ => None,
        };
        let how = match ended.how {
            // The whole fleet lost its links with this one (SYN-13).
            EndedBy::Them(CloseReason::Shutdown) => LinkEnd::SentAway,
            EndedBy::Them(_) if !ended.met => LinkEnd::Refused,
            _ if problem.is_some() => LinkEnd::Refused,
            _ => LinkEnd::Lost,
        };
        let told = how != LinkEnd::Lost || matches!(ended.how, EndedBy::Them(_));
        let other = !ended.met && !told && self.transports.failed(transport_kind, Instant::now());
        self.wait(other, how, ended.retry_after.or(problem.flatten()).map(Duration::from_secs));
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
