//! [`Links`]: opens links when there is need for one, and closes them when there is none
//! (SYN-1, SYN-10, SYN-11, SYN-13, SYN-14).
//!
//! ```text
//!              need, poll due                    gRPC, WebSocket: link ---+
//! waits (plan) --------------> opens a transport --- SSE, poll: exchanges -+-- outcome --> waits
//!      ^                             |                                                     |
//!      +--------- failed ------------+                                                     |
//!      +--------------------------------------- ReconnectPolicy ---------------------------+
//! ```
//!
//! `auto` polls by check-ins, and opens the best stream that works when the control plane asks
//! for one or something of the node's own is to go; it is closed when both directions are
//! equal and nothing moves. `poll` does the same with polls; the others keep a
//! stream open.
//!
//! Invariants: there is one link at a time; what it goes by is one release, and under another one it
//! is opened anew; what the daemon asks for is a level, so nothing queues.

mod exchanges;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use model::Timestamp;
use model::exchange::{Answer, CheckIn};
use model::policy::Policy;
use model::replication::{Mode, TransportKind};
use net::tasks;
use streams::sse::SseReader;
use streams::task::{self, Ended, EndedBy, LinkCommand, LinkHandle, LinkTransport, link_time};
use streams::{TransportError, run_link};
use sync::FeedCursor;
use sync::backoff::{LinkEnd, ReconnectPolicy, poll_at};
use sync::frame::CloseReason;
use sync::link::{FeedProofs, LinkConfig};
use sync::{Frame, Role};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use trust::FeedVerifier;

use super::SyncContext;
use super::handler::AgentLinkHandler;
use super::posts::Poster;
use super::reconciler::{LinkRules, ObjectReconciler};
use super::transports::TransportSelector;
use super::view::{PROOFS, SharedStatus};
use crate::clock::now;
use crate::dialing::TransportDialer;
use crate::release::ReleaseTerms;
use crate::render::chain;

/// The agent closes a link that neither side needs any more after so long a rest.
pub const IDLE_CLOSE: Duration = Duration::from_secs(60);
/// How often it is looked whether a link rests.
const LOOK: Duration = Duration::from_secs(5);
/// How often it is looked whether a link is due, at least.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// A link that lived so long was a good one: the next failure is the first.
const GOOD: Duration = Duration::from_secs(10);
/// How long the answer to a check-in on a link may take, before it goes another way.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// The pause before links are kept again, after what did so panicked.
const AFTER_PANIC: Duration = Duration::from_secs(10);
/// The name of links in problems.
const LINKS: &str = "links";
/// How long a stop may take: the last words of a link.
const STOP_WITHIN: Duration = Duration::from_secs(15);

/// The link that is open.
#[derive(Clone)]
struct CurrentLink {
    commands: LinkHandle,
    handler: Arc<AgentLinkHandler>,
}

/// What the daemon lets its links know. Raised twice before they look it counts once.
#[derive(Default)]
struct LinkSignals {
    /// Work waits at the control plane, which wants a stream for it.
    requested: Notify,
    /// The control plane answered a call.
    reached: Notify,
}

/// The daemon's way to its links.
pub struct Links {
    signals: Arc<LinkSignals>,
    stop: watch::Sender<bool>,
    moved: watch::Sender<()>,
    open: watch::Receiver<Option<CurrentLink>>,
    task: AbortHandle,
}

impl Links {
    /// Starts the task that opens and closes links. `terms` is what the release that is held says,
    /// `instance` names this process, `seed` spreads waits.
    pub fn start(
        context: Arc<SyncContext>,
        reconciler: ObjectReconciler,
        mut terms: watch::Receiver<ReleaseTerms>,
        dialer: TransportDialer,
        instance: String,
        seed: u64,
    ) -> Links {
        let signals = Arc::<LinkSignals>::default();
        let (stop, stopped) = watch::channel(false);
        let (current, open) = watch::channel(None);
        let (moved, moves) = watch::channel(());
        let view = context.view.clone();
        let policy = terms.borrow_and_update().policy.clone();
        view.set(|view| view.transport = policy.transport);
        let manager = LinkManager {
            transports: TransportSelector::new(context.tls_termination),
            trusted: context.control_plane.clone(),
            context,
            rules: reconciler.rules(),
            reconciler,
            poster: dialer.poster(&instance),
            dialer,
            terms,
            policy,
            instance,
            signals: signals.clone(),
            stopped: stopped.clone(),
            moves,
            current,
            reconnect: ReconnectPolicy::new(seed),
            lost: link_time(),
            last_poll: None,
            requested: false,
            acked: None,
            count: 0,
        };
        let run = restarted(view, stopped, AFTER_PANIC, manager, |manager| Box::pin(manager.run()));
        Links { signals, stop, moved, open, task: tasks::spawn(run).abort_handle() }
    }

    /// Work waits at the control plane, which wants a stream for it.
    pub fn requested(&self) {
        self.signals.requested.notify_one();
    }

    /// The control plane answered a call.
    pub fn reached(&self) {
        self.signals.reached.notify_one();
    }

    /// Sessions lead elsewhere from now on: a link that was opened before ends in order, and the next one is opened
    /// there.
    pub fn moved(&self) {
        self.moved.send_replace(());
    }

    /// Whether check-ins can go over an open stream.
    pub fn is_open(&self) -> bool {
        self.stream().is_some()
    }

    fn stream(&self) -> Option<CurrentLink> {
        self.open.borrow().clone().filter(|open| open.handler.state().takes_check_ins)
    }

    /// Checks in over the open stream; `None`: there is none, or no answer came.
    pub async fn check_in(&self, message: CheckIn) -> Option<Answer> {
        let open = self.stream()?;
        let answer = open.handler.next_answer();
        let sent = open.commands.send(LinkCommand::Send(Box::new(Frame::CheckIn(Box::new(message))))).await;
        // With the link's end the one that would answer is gone too.
        drop(open);
        if !sent {
            return None;
        }
        timeout(ANSWER_WITHIN, answer).await.ok()?.ok()
    }

    /// Ends the link in order; no more are opened.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        // The task has all receivers, and drops them with its end.
        if timeout(STOP_WITHIN, self.stop.closed()).await.is_err() {
            tracing::warn!("the link did not end in order");
            self.task.abort();
        }
    }
}

/// Keeps what `state` is of going until a stop. A panic is shown, and after a pause `run` begins again.
async fn restarted<T>(
    view: Arc<SharedStatus>,
    mut stopped: watch::Receiver<bool>,
    pause: Duration,
    mut state: T,
    run: impl for<'a> Fn(&'a mut T) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
) {
    loop {
        let mut running = pin!(run(&mut state));
        let ended = poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx)));
            polled.map_or(Poll::Ready(false), |polled| polled.map(|()| true))
        });
        if ended.await {
            return;
        }
        tracing::error!("the task that keeps links panicked; it is begun again");
        let problem = "the task that keeps links panicked, and was begun again; report the agent's log";
        view.problem(LINKS, Some(problem.to_owned()));
        tokio::select! {
            () = sleep(pause) => {}
            () = net::accept::stopped(&mut stopped) => return,
        }
    }
}

struct LinkManager {
    context: Arc<SyncContext>,
    reconciler: ObjectReconciler,
    rules: watch::Receiver<LinkRules>,
    /// Whom the control plane's feed is believed by, seen as of when the last link was made.
    trusted: watch::Receiver<Option<Arc<FeedVerifier>>>,
    poster: Poster,
    dialer: TransportDialer,
    terms: watch::Receiver<ReleaseTerms>,
    /// The settings of the channel, as the terms said when they were looked at.
    policy: Policy,
    instance: String,
    signals: Arc<LinkSignals>,
    stopped: watch::Receiver<bool>,
    /// Seen as of when the last link was opened.
    moves: watch::Receiver<()>,
    current: watch::Sender<Option<CurrentLink>>,
    transports: TransportSelector,
    reconnect: ReconnectPolicy,
    /// When the last stream ended.
    lost: Timestamp,
    last_poll: Option<Timestamp>,
    /// The control plane asked for a stream.
    requested: bool,
    /// How far the control plane has the own set.
    acked: Option<FeedCursor>,
    count: u64,
}

/// A transport that came through.
enum OpenedTransport {
    /// Frames go both ways.
    Stream(LinkTransport),
    /// Frames are posted up, and come down where there is a reader, beside those that answer posts.
    Exchanges(Option<Box<SseReader>>),
}

/// How a link of whatever transport came to its end.
struct LinkOutcome {
    ended: Ended,
    /// Both directions were equal, and no frame was left to send.
    quiet: bool,
    closing: Closing,
}

/// How a link was ended from this side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    Idle,
    Rules,
    Moved,
    Stop,
}

impl LinkManager {
    async fn run(&mut self) {
        // Something may be left of a link that ended in a panic.
        self.current.send_replace(None);
        self.context.view.set(|view| (view.link, view.since) = (None, None));
        let (feed, mut stopped) = (self.context.sets.changed(), self.stopped.clone());
        while !*self.stopped.borrow() {
            let (known, plan) = (feed.get(), self.plan());
            let wait = plan.map_or(LONGEST_SLEEP, |(at, _)| at.since(link_time()));
            tokio::select! {
                () = self.observe() => {}
                _ = feed.until(|changes| changes != known) => {}
                () = net::accept::stopped(&mut stopped) => return,
                () = sleep(wait.min(LONGEST_SLEEP)) => if let Some((at, transport_kind)) = plan
                    && at <= link_time()
                {
                    let opened = tokio::select! {
                        opened = self.open(transport_kind) => opened,
                        () = net::accept::stopped(&mut stopped) => return,
                    };
                    match opened {
                        Ok(opened) => self.carry(opened, transport_kind).await,
                        Err(error) => self.open_failed(transport_kind, error),
                    }
                }
            }
        }
    }

    /// Waits for a change of what links go by, and takes it. Nothing is lost when the future is dropped.
    async fn observe(&mut self) {
        let at_once = tokio::select! {
            () = self.signals.requested.notified() => {
                self.requested = true;
                false
            }
            () = self.signals.reached.notified() => {
                self.reconnect.reached(link_time());
                false
            }
            Ok(()) = self.terms.changed() => {
                let policy = self.terms.borrow_and_update().policy.clone();
                self.context.view.set(|view| view.transport = policy.transport);
                let before = std::mem::replace(&mut self.policy, policy);
                before.transport != self.policy.transport
            }
            Ok(()) = self.rules.changed() => {
                // Under other rules, and after a start, nothing is known to be in sync before
                // a link compared it (CNV-3, SYN-6).
                self.requested |= self.rules.borrow_and_update().policy.mode != Mode::Off;
                true
            }
        };
        if at_once {
            self.reconnect.at_once(link_time());
        }
    }

    /// Has a link over a transport to its end, and says what follows from that.
    async fn carry(&mut self, opened: OpenedTransport, transport_kind: TransportKind) {
        let began = Instant::now();
        tracing::debug!(transport_kind = transport_kind.as_str(), "a link begins");
        self.context.view.set(|view| {
            view.link = Some(transport_kind.as_str().to_owned());
            view.since = Some(now());
            view.counts.links += 1;
        });
        // What comes from here on ends it.
        self.trusted.mark_unchanged();
        let LinkOutcome { ended, quiet, closing } = match opened {
            OpenedTransport::Stream(ends) => self.link(ends, transport_kind).await,
            OpenedTransport::Exchanges(reader) => self.exchanges(transport_kind, reader).await,
        };
        let why = ended.error.as_ref().map_or_else(|| ended.message.clone(), |error| chain(error));
        tracing::debug!(transport_kind = transport_kind.as_str(), code = ended.code, why, "a link ended");
        let lost = closing == Closing::No;
        self.context.view.set(|view| {
            (view.link, view.since) = (None, None);
            view.ended = lost.then(|| format!("{}: {why}", ended.code));
            view.counts.reconnects += u64::from(lost);
        });
        if transport_kind.is_stream() {
            self.lost = link_time();
        }
        let unproven = ended.how == EndedBy::Us(CloseReason::Unproven);
        if unproven || ended.met {
            self.context.view.problem(PROOFS, unproven.then(|| unproven_problem(&why)));
        }
        if ended.met {
            self.context.view.problem(LINKS, None);
            self.transports.worked(transport_kind);
            self.requested &= !quiet && closing != Closing::Idle;
        }
        if matches!(closing, Closing::Rules | Closing::Moved) {
            self.requested |= self.rules.borrow().policy.mode != Mode::Off;
        }
        // What exchanges could not send yet is still to be sent.
        self.requested |= transport_kind == TransportKind::Poll && !quiet;
        if matches!(ended.how, EndedBy::Us(CloseReason::Mode) | EndedBy::Them(CloseReason::Mode)) {
            // The control plane points to another release than the one held here.
            self.context.daemon.contact();
        }
        if !lost || ended.met && began.elapsed() >= GOOD {
            self.reconnect.worked();
        }
        match lost {
            true => self.wait_after(transport_kind, &ended),
            false => self.reconnect.at_once(link_time()),
        }
    }

    /// Something is to go one way or the other.
    fn is_needed(&self) -> bool {
        let own = self.context.sets.with(|feed, _| feed.cursor());
        self.requested || (own.revision > 0 && self.acked.as_ref() != Some(&own))
    }

    /// Which link is to be opened next, and when.
    fn plan(&self) -> Option<(Timestamp, TransportKind)> {
        if self.rules.borrow().number == 0 {
            return None;
        }
        let keeps_open = self.policy.transport.keeps_open();
        let best = self.transports.next(self.policy.transport, Instant::now());
        let wanted = self.is_needed() || (keeps_open && best.is_stream());
        let first = wanted.then_some((self.reconnect.not_before(), best));
        // For want of a stream (SYN-11).
        let poll = poll_at(self.lost, self.last_poll, self.policy.converge());
        let poll = keeps_open.then_some((poll, TransportKind::Poll));
        first.into_iter().chain(poll).min_by_key(|(at, _)| *at)
    }

    async fn open(&mut self, transport_kind: TransportKind) -> Result<OpenedTransport, TransportError> {
        self.count += 1;
        self.moves.mark_unchanged();
        let name = format!("{}-{}", self.instance, self.count);
        // Over a stream of two ways the control plane asks anew for what was left.
        if matches!(transport_kind, TransportKind::Grpc | TransportKind::Websocket) {
            self.poster.left.clear();
        }
        Ok(match transport_kind {
            TransportKind::Grpc => OpenedTransport::Stream(self.dialer.grpc(&name).await?),
            TransportKind::Websocket => OpenedTransport::Stream(self.dialer.websocket(&name).await?),
            TransportKind::Sse => {
                let have = self.context.sets.with(|_, replica| replica.cursor().cloned());
                let reader = self.dialer.sse(&name, &self.instance, have.as_ref()).await?;
                OpenedTransport::Exchanges(Some(Box::new(reader)))
            }
            TransportKind::Poll => OpenedTransport::Exchanges(None),
        })
    }

    fn open_failed(&mut self, transport_kind: TransportKind, error: TransportError) {
        let (why, kind) = (chain(&error), transport_kind.as_str());
        tracing::info!(transport_kind = kind, why, "no link");
        self.context.view.set(|view| view.ended = Some(format!("{kind}: {why}")));
        if transport_kind == TransportKind::Websocket && matches!(error, TransportError::Unreached(_)) {
            self.dialer.next_url();
        }
        self.wait_after(transport_kind, &Ended { met: false, ..Ended::lost(Some(error)) });
    }

    /// A link over a transport, and what lies behind it.
    fn end(
        &mut self,
        transport_kind: TransportKind,
        rules: &LinkRules,
    ) -> (LinkConfig, Arc<AgentLinkHandler>) {
        let (context, reconciler) = (self.context.clone(), self.reconciler.clone());
        let handler = AgentLinkHandler::new(context, reconciler, transport_kind, rules.number);
        let limits = Arc::new(sync::link::Limits::default().with(self.policy.link));
        let mut config = LinkConfig::under(&rules.policy, Role::Agent, &self.instance, limits);
        if let Some(verifier) = &*self.trusted.borrow_and_update() {
            config.proofs = FeedProofs::Required(verifier.clone());
        }
        (config, Arc::new(handler))
    }

    /// Runs a link over a stream of two ways to its end.
    async fn link(&mut self, ends: LinkTransport, transport_kind: TransportKind) -> LinkOutcome {
        let rules = self.rules.borrow_and_update().clone();
        let (config, handler) = self.end(transport_kind, &rules);
        let (commands, taken) = task::commands();
        self.current.send_replace(Some(CurrentLink { commands: commands.clone(), handler: handler.clone() }));
        let feed = self.context.sets.changed();
        let running = run_link(config, handler.clone(), ends, Vec::new(), feed, taken);
        tokio::pin!(running);
        let (ended, closing) = tokio::select! {
            ended = &mut running => (ended, Closing::No),
            closing = self.closes(transport_kind, rules.number, || handler.state().quiet) => {
                // A link that has more commands than it can hold ends by itself.
                let _ = commands.try_send(LinkCommand::Shutdown);
                (running.await, closing)
            }
        };
        self.current.send_replace(None);
        self.acked = handler.state().acked.clone().or(self.acked.take());
        LinkOutcome { ended, quiet: handler.state().quiet.is_some(), closing }
    }

    /// Waits for a reason of this side to end a link: a stop, another release, another control plane, or that nothing moves and
    /// no action runs.
    async fn closes(
        &mut self,
        transport_kind: TransportKind,
        rules: u64,
        quiet: impl Fn() -> Option<Instant>,
    ) -> Closing {
        let (mut stopped, mut moves) = (self.stopped.clone(), self.moves.clone());
        let mut trusted = self.trusted.clone();
        // Another transport than the channel now names is left at once.
        while self.policy.transport.allows(transport_kind) && self.rules.borrow().number == rules {
            tokio::select! {
                () = self.observe() => {}
                () = net::accept::stopped(&mut stopped) => return Closing::Stop,
                Ok(()) = moves.changed() => return Closing::Moved,
                Ok(()) = trusted.changed() => return Closing::Rules,
                () = sleep(LOOK), if !self.policy.transport.keeps_open() => {
                    let busy = self.context.view.shown().actions_running > 0;
                    if !busy && quiet().is_some_and(|since| since.elapsed() >= IDLE_CLOSE) {
                        return Closing::Idle;
                    }
                }
            }
        }
        Closing::Rules
    }

    /// Waits before the link that follows one that was lost or could not be opened; not when another
    /// transport is to be tried.
    fn wait_after(&mut self, transport_kind: TransportKind, ended: &Ended) {
        let problem = match &ended.error {
            Some(TransportError::Problem(problem)) => Some(problem),
            _ => None,
        };
        let mut how = match (ended.how, &ended.error) {
            // The whole fleet lost its links with this one (SYN-13).
            (EndedBy::Them(CloseReason::Shutdown), _) => LinkEnd::SentAway,
            (EndedBy::Them(_), _) if !ended.met => LinkEnd::Refused,
            (_, Some(TransportError::Unreached(_))) => LinkEnd::Unreached,
            (_, Some(TransportError::Problem(_))) => LinkEnd::Refused,
            _ => LinkEnd::Lost,
        };
        // What something on the way says, or a control plane that does not know this transport; one that
        // is busy says when to come again.
        let by_transport = problem
            .filter(|it| it.retry_after_secs.is_none())
            .is_some_and(|it| matches!(it.status, 404 | 405 | 415 | 426 | 500..));
        let counts = !ended.met && (how == LinkEnd::Lost || by_transport);
        let other = counts && self.transports.failed(transport_kind, Instant::now());
        if other {
            how = LinkEnd::Lost;
        }
        let asked = ended.retry_after.or_else(|| problem?.retry_after_secs).map(Duration::from_secs);
        let now = link_time();
        match other && !self.policy.transport.names_one() {
            true => self.reconnect.at_once(now),
            false => self.reconnect.ended(now, how, asked),
        }
    }
}

/// What a node says while it does not believe the control plane.
fn unproven_problem(why: &str) -> String {
    format!(
        "{why}; whoever runs the fleet sees in `muster status` and `muster key show` whether the control plane has \
         the key that nodes believe; if it has, something in between alters what it says"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SYN-14: what hangs does not outlive the stop, whatever it holds.
    #[tokio::test(start_paused = true)]
    async fn a_link_that_does_not_end_is_ended_by_the_stop() {
        let ((stop, stopped), (_, open)) = (watch::channel(false), watch::channel(None));
        let hangs = tokio::spawn(async move {
            let _held = stopped;
            std::future::pending::<()>().await;
        });
        let moved = watch::channel(()).0;
        let links = Links { signals: Arc::default(), stop, moved, open, task: hangs.abort_handle() };
        links.stop().await;
        let ended = timeout(STOP_WITHIN, hangs).await.unwrap();
        assert!(ended.unwrap_err().is_cancelled());
    }

    #[tokio::test]
    async fn a_task_that_is_gone_is_shown_and_begun_again() {
        let (view, (stop, stopped)) = (Arc::new(SharedStatus::default()), watch::channel(false));
        let (shown, ends) = (view.clone(), stopped.clone());
        let (pause, (third, begun)) = (Duration::from_millis(1), watch::channel(false));
        let task = tokio::spawn(restarted(view, stopped, pause, (0, ends, third), |(runs, ends, third)| {
            Box::pin(async move {
                *runs += 1;
                assert!(*runs == 3, "a defect");
                third.send_replace(true);
                net::accept::stopped(ends).await;
            })
        }));
        timeout(Duration::from_secs(20), begun.clone().wait_for(|third| *third)).await.unwrap().unwrap();
        assert!(!shown.shown().problems.is_empty());
        stop.send_replace(true);
        task.await.unwrap();
    }
}
