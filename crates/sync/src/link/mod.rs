//! [`Link`]: one protocol session between the two sides, as a state machine without IO.
//!
//! A link is the same at both ends. It sends the own feed's changes after the other side's
//! durable cursor, takes those of the other side into batches, and compares roots when all is
//! sent. A shell feeds it [`Input`]s and carries out its [`Output`]s in order; one link at a
//! time belongs to a node's feed and replica. Nothing here reads a clock: `now` may be any
//! instant that never goes back.

mod batch;
mod checkpoint;
mod inbox;
mod inventory_resync;
mod outbox;
mod outcome;
mod permit;
mod proof;
mod resync;
mod serve;
mod settings;
mod status;
mod types;

use crate::cursor::{FeedCursor, KindOrder, Position};
use model::{Incarnation, ObjectSet, Timestamp};
use std::time::Duration;

use crate::admission::{PERMIT_KEPT, Permits, RateLimiter};
use crate::backoff;
use crate::feed::{Feed, Resume};
use crate::frame::{Capabilities, CloseReason, Frame, GoAway, Have, Hello, Interop, Ping, PingOrder};
use crate::interop;
use crate::mode::Role;
use crate::replica::Replica;

pub use batch::{ApplyBatch, ApplyItem, ItemOutcome, NotDurable};
pub use proof::{FeedProofs, FeedProver};
pub(crate) use resync::Resync;
pub use types::{EndedBy, Input, Limits, LinkCommand, LinkConfig, LinkCounters, Note, Output, Span};

/// How long the other side is asked to stay away when what it does cannot be helped, in
/// seconds.
const STAY_AWAY: u64 = 3600;
/// The other side must say hello within this.
const HELLO_WITHIN: Duration = Duration::from_secs(15);
/// The link goes away when it holds a permit for a resync for so long: sooner than [`PERMIT_KEPT`].
const RESYNC_WITHIN: Duration = PERMIT_KEPT.saturating_sub(Duration::from_secs(60));
/// A shutdown waits no longer than this for what is under way.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(10);
/// Refusals and resyncs that are noted at once, and in a second after that; the others are counted only.
const NOTED: (u32, u32) = (100, 3);

use inbox::Inbox;
use outbox::{Flow, Outbox};
use proof::ProvenFeed;
use serve::ResyncServer;

/// One protocol session: of a transport's length, or of one request and its answer ([`Span`]).
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    /// The incarnation of the other side's feed; `None` before its hello.
    peer_incarnation: Option<Incarnation>,
    both: Capabilities,
    /// The order of kinds in which this side sends.
    order: KindOrder,
    out: Outbox,
    inbox: Inbox,
    proven: ProvenFeed,
    resync: Box<Resync>,
    server: ResyncServer,
    /// Since when it holds the permit for resyncs.
    permit: Option<Timestamp>,
    counters: LinkCounters,
    /// Bounds the notes of refusals and resyncs.
    notes: NoteLimits,
    /// When the other side was heard last; before its hello, when the link was opened.
    heard: Timestamp,
    /// The number of the last pong.
    last_pong: u64,
    spoke: Timestamp,
    stopping: Option<Timestamp>,
    closing: bool,
    feed_incarnation: Option<Incarnation>,
    /// The last change of the other side's feed, as far as it said.
    peer_head: u64,
    /// The shell was asked to begin the own feed anew; until then nothing is sent.
    reincarnating: bool,
}

/// What an input may touch, and where its outputs go.
struct Cx<'a> {
    feed: &'a mut Feed,
    replica: &'a mut Replica,
    permits: Option<&'a dyn Permits>,
    now: Timestamp,
    out: Vec<Output>,
}

/// What is due at an instant.
enum Due {
    /// The link ends; the other side may come back after so many seconds.
    End { code: &'static str, message: &'static str, again: u64 },
    /// A sign of life.
    Ping,
    /// What [`Link::go_on`] does whenever it can.
    Step,
}

impl Cx<'_> {
    fn send(&mut self, frame: Frame) {
        self.out.push(Output::Send(frame));
    }

    fn note(&mut self, note: Note) {
        self.out.push(Output::Note(note));
    }
}

/// Whether a frame may be sent before data that waits: control frames do (SYN-4). A hello may, so
/// that no control frame overtakes it; a ping that is a barrier may not.
pub fn may_overtake(frame: &Frame) -> bool {
    match frame {
        Frame::Ping(ping) => ping.order == PingOrder::Any,
        Frame::Hello(_)
        | Frame::Ack(_)
        | Frame::Refused(_)
        | Frame::CheckIn(_)
        | Frame::Answer(_)
        | Frame::StateUpdated => true,
        _ => false,
    }
}

/// Whether a frame that an exchange had no room or time for is for the next one to say. What has a
/// number of the link, or is sent anew from what is durable, is not.
pub fn outlives_exchange(frame: &Frame) -> bool {
    match frame {
        Frame::Event(event) => event.seq == 0,
        Frame::Checkpoint(checkpoint) => checkpoint.seq == 0,
        Frame::Refused(_) | Frame::ResyncResponse(_) | Frame::Interop(_) | Frame::Pong(_) => true,
        _ => false,
    }
}

/// Bounds notes, each kind by itself.
#[derive(Debug)]
struct NoteLimits {
    refused_here: RateLimiter,
    refused_there: RateLimiter,
    resyncs: RateLimiter,
}

impl Link {
    /// A link before its transport is up.
    pub fn new(config: LinkConfig, now: Timestamp) -> Link {
        let noted = || RateLimiter::new(NOTED.1, NOTED.0, now);
        Link {
            both: config.capabilities,
            order: KindOrder::of(&config.kinds),
            config,
            peer_incarnation: None,
            out: Outbox::default(),
            inbox: Inbox::default(),
            proven: ProvenFeed::default(),
            resync: Box::default(),
            server: ResyncServer::default(),
            permit: None,
            counters: LinkCounters::default(),
            notes: NoteLimits { refused_here: noted(), refused_there: noted(), resyncs: noted() },
            heard: now,
            last_pong: 0,
            spoke: now,
            stopping: None,
            closing: false,
            feed_incarnation: None,
            peer_head: 0,
            reincarnating: false,
        }
    }

    /// Takes an input; what is to be done is returned, in order. Without `permits` a resync needs none.
    pub fn handle(
        &mut self,
        input: Input,
        feed: &mut Feed,
        replica: &mut Replica,
        permits: Option<&dyn Permits>,
        now: Timestamp,
    ) -> Vec<Output> {
        let mut cx = Cx { feed, replica, permits, now, out: Vec::new() };
        self.take(input, &mut cx);
        self.go_on(&mut cx);
        self.return_unused_permit(&mut cx);
        if cx.out.iter().any(|output| matches!(output, Output::Send(_))) {
            self.spoke = now;
        }
        cx.out
    }

    fn take(&mut self, input: Input, cx: &mut Cx<'_>) {
        match input {
            Input::Open => self.open(cx),
            Input::Frame(frame) => self.frame(frame, cx),
            Input::Tick => {}
            Input::Loaded(contents) => self.loaded(contents, cx),
            Input::Applied(outcomes) => self.applied(outcomes, cx),
            Input::Command(LinkCommand::Approve) => {
                self.resync_now(true, cx);
                self.pass_on(Frame::Approve, cx);
            }
            Input::Command(LinkCommand::Resync) => {
                self.resync_now(false, cx);
                self.pass_on(Frame::Interop(Box::new(Interop::RequestResync)), cx);
            }
            Input::Command(LinkCommand::Send(frame)) => cx.send(*frame),
            Input::Command(LinkCommand::Shutdown) => self.stopping = self.stopping.or(Some(cx.now)),
            Input::Command(LinkCommand::GoAway(why)) => self.close(*why, cx),
            Input::Reincarnated(done) => self.reincarnated(done, cx),
            Input::Disconnected => {
                self.closing = true;
                let mut resync = std::mem::take(&mut self.resync);
                if !self.inbox.is_settled() {
                    // What was fetched and is not durable is found again by comparing anew.
                    resync.compare_anew(cx.now);
                }
                cx.replica.keep_resync(resync);
            }
        }
    }

    /// All that follows from what is known now.
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        if self.closing {
            // What came is still processed to the end (SYN-14).
            self.form_batch(cx);
            return;
        }
        if self.feed_incarnation.as_ref().is_some_and(|incarnation| incarnation != cx.feed.incarnation()) {
            self.go_away("reincarnated", "the source began a new incarnation", Some(0), cx);
            return;
        }
        self.time(cx);
        if self.closing || self.reincarnating {
            return;
        }
        self.step_resync(cx);
        self.form_batch(cx);
        self.compare_checkpoint(cx);
        // A checkpoint that fits moves the cursor, or a difference begins a resync.
        self.step_resync(cx);
        self.form_batch(cx);
        if self.stopping.is_none() {
            // Load by load in turn: neither waits for all of the other.
            if self.out.answers_next {
                self.answer(cx);
            }
            self.pump(cx);
            self.answer(cx);
        }
        self.send_ack(cx);
        self.stop(cx);
    }

    fn open(&mut self, cx: &mut Cx<'_>) {
        self.heard = cx.now;
        self.proven_stands_at(cx);
        self.feed_incarnation = Some(cx.feed.incarnation().clone());
        let failing = cx.replica.forget_for_link(|key| self.refuses_kind(key).is_none());
        let known = !cx.replica.is_empty() || cx.replica.refused() > 0;
        let nowhere = || FeedCursor::at(cx.feed.incarnation().clone(), 0);
        let have = match cx.replica.cursor().cloned() {
            None if !known => None,
            cursor => Some(Have { cursor: cursor.unwrap_or_else(nowhere), root: cx.replica.root() }),
        };
        self.resync = cx.replica.take_resync().continued(&self.config, cx.now);
        self.resync.failing = self.resync.failing.max(failing);
        let after = match &self.config.span {
            Span::Transport => None,
            Span::Exchange { after } => after.as_deref().cloned().filter(|cursor| {
                cursor.position() == Position::default() && cursor.incarnation == *cx.feed.incarnation()
                    || matches!(cx.feed.can_resume(cursor), Resume::From(_))
            }),
        };
        cx.send(Frame::Hello(Box::new(Hello {
            versions: self.config.versions,
            capabilities: self.config.capabilities,
            role: self.config.role,
            mode: self.config.mode,
            instance: self.config.instance.to_string(),
            head: cx.feed.cursor(),
            have,
            after: after.clone(),
        })));
        self.inbox.ack_due = self.sends_before_hello();
        self.server.announced = cx.feed.head();
        if let Some(cursor) = after {
            let empty = cursor.position() == Position::default();
            self.resume(Some((cursor, empty)), cx);
        }
    }

    fn hello(&mut self, hello: Box<Hello>, cx: &mut Cx<'_>) {
        if self.has_met() {
            return;
        }
        let (ours, theirs) = (self.config.versions, hello.versions);
        if ours.0.max(theirs.0) > ours.1.min(theirs.1) {
            let message =
                format!("versions {} to {} and {} to {} do not meet", ours.0, ours.1, theirs.0, theirs.1);
            return self.go_away("version", &message, Some(3600), cx);
        }
        if hello.role == self.config.role {
            return self.go_away("role", "both sides stand at the same end", Some(3600), cx);
        }
        if hello.mode != self.config.mode {
            let message = format!("the mode is {:?} here and {:?} there", self.config.mode, hello.mode);
            return self.go_away(CloseReason::MODE, &message.to_lowercase(), Some(30), cx);
        }
        self.both = self.config.capabilities.and(hello.capabilities);
        if self.lacks_proofs() {
            let message = "without the trie resync nothing proves what is gone";
            return self.go_away("no-proofs", message, Some(STAY_AWAY), cx);
        }
        self.meets_incarnation(&hello.head.incarnation, cx);
        self.resync.source_stands_at(&hello.head, cx.now);
        let (have, after) = (hello.have.clone(), hello.after.clone());
        (self.peer_head, self.inbox.announced) = (hello.head.revision, hello.head.revision);
        let has_all = |have: &Have| have.cursor == cx.feed.cursor() && have.root == cx.feed.root();
        self.out.compared = have.as_ref().is_some_and(has_all);
        self.peer_incarnation = Some(hello.head.incarnation.clone());
        cx.note(Note::Met(hello));
        if after.is_some_and(|after| !cx.replica.stands_at(&after)) {
            self.out.acked = have.map(|have| have.cursor);
            let message = "the events begin after another cursor than this side's";
            return self.go_away("cursor", message, Some(0), cx);
        }
        self.first_word(have.as_ref(), cx);
        let empty = |have: &Have| have.root == ObjectSet::new().root();
        let ahead = |have: &Have| cx.feed.can_resume(&have.cursor) == Resume::AheadOfHead;
        if self.out.flow == Flow::Unknown || have.as_ref().is_some_and(ahead) {
            return self.resume(have.map(|have| (have.cursor.clone(), empty(&have))), cx);
        }
        // The events that are on their way begin after what was assumed.
        let have = have.filter(|have| !empty(have)).map(|have| have.cursor);
        if self.out.acked != have {
            self.out.acked = have;
            self.go_away("cursor", "the other side stands elsewhere than was assumed", Some(0), cx);
        }
    }

    /// After a start of this side's process, to a peer without the trie resync (SYN-6): of what both
    /// may differ in, content included, such a peer hears by the inventory resync alone.
    fn first_word(&mut self, have: Option<&Have>, cx: &mut Cx<'_>) {
        let started = !std::mem::replace(&mut self.resync.linked, true);
        if self.both.trie_resync || !started {
            return;
        }
        let Some(source) = interop::source(self.config.mode) else { return };
        if source != self.config.role && !cx.replica.is_empty() {
            self.want_resync(cx);
        } else if source == self.config.role && have.is_some() {
            cx.send(Frame::Interop(Box::new(Interop::RequestResync)));
        }
    }

    fn frame(&mut self, frame: Frame, cx: &mut Cx<'_>) {
        if self.closing {
            return;
        }
        let early = !self.has_met() && !matches!(frame, Frame::Hello(_) | Frame::GoAway(_));
        self.heard = if early { self.heard } else { cx.now };
        if early || self.reincarnating && !matches!(frame, Frame::GoAway(_)) {
            return;
        }
        match frame {
            Frame::Hello(hello) => self.hello(hello, cx),
            // Nothing new is taken by who stops.
            Frame::Event(_) | Frame::Checkpoint(_) if self.stopping.is_some() => {}
            Frame::Event(event) => self.event(*event, cx),
            Frame::Ack(ack) => self.take_ack(ack, cx),
            Frame::Refused(refused) => {
                self.counters.refused_there += 1;
                // The acknowledgement behind it has the count.
                self.out.refused_there = self.out.refused_there.map(|count| count.max(1));
                self.note_some(Note::RefusedThere(*refused), cx);
            }
            Frame::Checkpoint(checkpoint) => self.checkpoint_received(checkpoint, cx),
            Frame::ResyncRequest(request) => self.resync_requested(*request, cx),
            Frame::ResyncResponse(response) => self.resync_responded(*response, cx),
            Frame::Interop(interop) => self.interop(*interop, cx),
            Frame::Ping(ping) => {
                self.observe_peer_head(ping.head);
                self.pinged(ping);
            }
            Frame::Pong(pong) => {
                self.observe_peer_head(pong.head);
                self.last_pong = pong.number;
                self.ponged(pong);
            }
            Frame::GoAway(away) => {
                self.closing = true;
                let message = format!("{}: {}", away.code, away.message);
                let retry_after = away.retry_after.map(backoff::asked);
                let why = GoAway { code: "went-away".to_owned(), message, retry_after };
                cx.out.push(Output::Close(why, EndedBy::Them(CloseReason::of(&away.code))));
            }
            // Only the control plane speaks for operators.
            Frame::Approve if self.config.role == Role::Agent => {
                self.resync_now(true, cx);
                // What is held back before it gets into the own feed is the shell's to let go.
                cx.out.push(Output::Received(Frame::Approve));
            }
            Frame::CheckIn(_) | Frame::Answer(_) | Frame::StateUpdated => {
                cx.out.push(Output::Received(frame))
            }
            Frame::Approve | Frame::Unknown(_) => {}
        }
    }

    /// Notes what the other side can say again and again, of much in a short time the first alone.
    fn note_some(&mut self, note: Note, cx: &mut Cx<'_>) {
        let limit = match &note {
            Note::RefusedHere(_) => &mut self.notes.refused_here,
            Note::RefusedThere(_) => &mut self.notes.refused_there,
            _ => &mut self.notes.resyncs,
        };
        if limit.take(cx.now).is_ok() {
            cx.note(note);
        }
    }

    /// The other side's feed is there by now: what was compared before is old.
    fn observe_peer_head(&mut self, head: u64) {
        if head > self.peer_head {
            self.peer_head = head;
            self.inbox.verified = false;
        }
    }

    /// What an operator asked of the control plane's end counts at the node's, too: its replica
    /// is the other half of the two sets.
    fn pass_on(&self, asked: Frame, cx: &mut Cx<'_>) {
        if self.config.role == Role::Principal && self.has_met() && !self.closing {
            cx.send(asked);
        }
    }

    /// The own feed began anew, or could not.
    fn reincarnated(&mut self, done: Result<(), Duration>, cx: &mut Cx<'_>) {
        if let Err(wait) = done {
            let message = "the source began a new incarnation not long ago, and does not do so again so soon";
            let wait = backoff::asked(wait.as_secs().max(1));
            self.go_away("reincarnated-before", message, Some(wait), cx);
        } else if self.feed_incarnation.as_ref() == Some(cx.feed.incarnation()) {
            self.go_away("not-reincarnated", "the source cannot begin a new incarnation now", Some(60), cx);
        }
    }

    fn go_away(&mut self, code: &str, message: &str, retry_after: Option<u64>, cx: &mut Cx<'_>) {
        self.close(GoAway { code: code.to_owned(), message: message.to_owned(), retry_after }, cx);
    }

    /// Tells the other side why, and ends the link.
    fn close(&mut self, why: GoAway, cx: &mut Cx<'_>) {
        if !std::mem::replace(&mut self.closing, true) {
            let by = EndedBy::Us(CloseReason::of(&why.code));
            cx.send(Frame::GoAway(why.clone()));
            cx.out.push(Output::Close(why, by));
        }
    }

    /// What is due by time alone.
    fn time(&mut self, cx: &mut Cx<'_>) {
        let due: Vec<Due> = self.deadlines().filter(|(at, _)| *at <= cx.now).map(|(_, due)| due).collect();
        for due in due {
            match due {
                Due::End { code, message, again } => return self.go_away(code, message, Some(again), cx),
                Due::Ping => cx.send(Frame::Ping(Ping { head: cx.feed.head(), ..Ping::default() })),
                Due::Step => {}
            }
        }
    }

    /// What becomes due, and when.
    fn deadlines(&self) -> impl Iterator<Item = (Timestamp, Due)> {
        let limits = &self.config.limits;
        let (met, serves) = (self.has_met(), self.stopping.is_none());
        let end = |since: Option<Timestamp>, within: Duration, code, message, again| {
            Some((since?.plus(within), Due::End { code, message, again }))
        };
        let step = |at: Option<Timestamp>| Some((at?, Due::Step));
        let opened = (!met).then_some(self.heard);
        let (unacknowledged, unanswered) = (self.out.waits_since(), self.resync.waits_since());
        [
            end(opened, HELLO_WITHIN, "no-hello", "the other side did not say hello", 1),
            end(Some(self.heard), limits.dead_after, "silence", "nothing was heard for too long", 1),
            end(self.permit, RESYNC_WITHIN, "endless-resync", "a resync takes too long", 60),
            end(
                unacknowledged,
                limits.ack_within,
                "no-acknowledgement",
                "nothing was acknowledged for too long",
                1,
            ),
            end(unanswered, resync::ANSWER_WITHIN, "no-answer", "a request of a resync was not answered", 1),
            end(
                self.server.served,
                serve::RESYNC_IDLE,
                "no-request",
                "a resync was begun and not gone on with",
                1,
            ),
            met.then(|| (self.spoke.plus(limits.ping_every), Due::Ping)),
            step(self.stopping.map(|since| since.plus(SHUTDOWN_WITHIN))),
            step(self.out.checkpoint_due(limits).filter(|_| serves && self.out.is_quiet())),
            step(self.inbox_deadline()),
            step(self.resync.begins_at().filter(|_| met)),
            step(self.server.list_due().filter(|_| serves && self.out.load.is_none())),
        ]
        .into_iter()
        .flatten()
        // Until the own feed began anew nothing is sent or taken.
        .filter(|(_, due)| !self.reincarnating || matches!(due, Due::End { .. }))
    }

    fn stop(&mut self, cx: &mut Cx<'_>) {
        let Some(since) = self.stopping else { return };
        let late = cx.now.since(since) >= SHUTDOWN_WITHIN;
        if self.inbox.is_drained() || late {
            self.go_away(CloseReason::SHUTDOWN, "this side stops", Some(1), cx);
        }
    }

    /// The next instant at which [`Input::Tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        if self.closing {
            // What is under way ends by itself, and is acknowledged no more.
            return self.inbox_deadline().filter(|_| self.inbox.in_flight.is_none());
        }
        self.deadlines().map(|(at, _)| at).min()
    }

    /// Whether the shell may read more from the transport. When it may not, it does not, and
    /// the other side is held back.
    pub fn wants_input(&self) -> bool {
        let limits = &self.config.limits;
        !self.inbox.is_full(limits.window_events, limits.window_bytes) && !self.server.is_full()
    }

    /// The agent's end of an exchange: its request is made before the other side's hello.
    fn sends_before_hello(&self) -> bool {
        self.config.role == Role::Agent && self.config.span != Span::Transport
    }

    /// After which cursor the next exchange may send our events, as far as this link knows.
    pub fn resumes_after(&self, feed: &Feed) -> Option<FeedCursor> {
        let nothing = (self.out.flow == Flow::Open).then(|| FeedCursor::at(feed.incarnation().clone(), 0));
        self.acked().cloned().or(nothing)
    }

    /// The number of the last pong: the other side was there when it got the ping of that number. What else
    /// is heard may have lain on the way for as long as a network was down.
    pub fn last_pong(&self) -> u64 {
        self.last_pong
    }

    /// Whether the other side said hello.
    pub fn has_met(&self) -> bool {
        self.peer_incarnation.is_some()
    }

    /// How far the other side has our feed, durably: in its present incarnation, and never beyond
    /// its end.
    pub fn acked(&self) -> Option<&FeedCursor> {
        self.out.acked.as_ref().filter(|cursor| Some(&cursor.incarnation) == self.feed_incarnation.as_ref())
    }

    /// How many objects the other side holds otherwise than our feed says, by its word; `None` before
    /// it said so on this link.
    pub fn refused_there(&self) -> Option<u64> {
        self.out.refused_there
    }

    /// Events sent and not acknowledged.
    pub fn in_flight(&self) -> usize {
        self.out.in_flight()
    }

    /// Objects received that are not settled: under way, or kept for a retry.
    pub fn under_way(&self) -> usize {
        self.inbox.under_way()
    }

    /// What was counted.
    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }
}
