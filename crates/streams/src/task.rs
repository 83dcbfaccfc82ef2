//! [`run_link`]: a link between a transport and a handler.
//!
//! ```text
//! FrameReader --> backlog --> Link --> control, data --> groups --> FrameWriter
//!                              ^  \--> jobs: load, apply, reincarnate, check-ins
//!                              +------- what they came to, the feed's changes, commands, time
//! ```
//!
//! One task runs a link. What takes time (contents, applying, a new incarnation, check-ins) are jobs
//! beside it, so that acknowledgements never wait behind data. What is to be sent waits in two
//! queues, control before data; the link's window bounds the events in them. Frames are taken one by
//! one, and only while little waits to be sent: a peer that asks without reading the answers
//! is not heard any further, nor is anything loaded for it.
//!
//! While the link is open nothing that waits is dropped: who sends is held back instead (SYN-3).
//!
//! [`Exchange`] runs a link without a transport: frames of a request in, frames of an answer out.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::FuturesUnordered;
use model::{ObjectKey, Timestamp};
use net::Signal;
use sync::frame::GoAway;
pub use sync::link::{EndedBy, LinkCommand};
use sync::link::{Input, Link, LinkConfig, Output, Span, may_overtake};
use sync::{FeedCursor, Frame};
use tokio::time::Instant;
use wire::batch::FrameBatch;

pub use crate::command::{Ended, LinkCommands, LinkHandle, LinkTransport, commands};
use crate::handler::LinkHandler;
use crate::transport::{FrameReader, FrameWriter, TransportError};
use crate::weight::{FRAME, weight};

/// Frames are given to a transport in groups of about so many bytes.
const GROUP: usize = 64 * 1024;
/// Above so many bytes that wait to be sent nothing more is read.
const MAX_QUEUED: usize = 24 * 1024 * 1024;
/// The most frames for the handler (check-ins) that are worked on at once.
const MAX_RECEIVED: usize = 2;
/// How long a transport may take to accept one group: a peer that reads slower is cut.
pub const SLOW: Duration = Duration::from_secs(60);
/// How long the last words of a link may take.
const GO_AWAY_WITHIN: Duration = Duration::from_secs(5);
/// How long is still listened to a peer that takes nothing any more: it may have said why.
const LISTEN: Duration = Duration::from_secs(1);
/// How long jobs under way may take to end after a link.
const JOBS_END: Duration = Duration::from_secs(60);
/// How soon a link may come again that ended because contents could not be read, in seconds.
const LOAD_AGAIN: u64 = 5;
/// How much too early the timer of a link may come.
const EARLY: Duration = Duration::from_secs(1);
/// One side's frames of an exchange have about so many bytes at the most.
const EXCHANGE_BYTES: usize = wire::batch::FULL;
/// One side has at most so many events under way in an exchange: its other frames fit beside them.
const EXCHANGE_EVENTS: usize = wire::cloudevents::json::MAX_FRAMES - 24;

/// Where the time of links begins: what a resync left for later keeps its time from link to link.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time of all links: it only goes forward, whatever the host's clock does.
pub fn link_time() -> Timestamp {
    Timestamp(i64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(i64::MAX))
}

/// Runs a link to its end. `first` are frames that were read already.
///
/// The link lies in a box: a task that held it would have room for it in every future that it
/// goes through.
pub fn run_link<S: LinkHandler>(
    config: LinkConfig,
    handler: Arc<S>,
    ends: LinkTransport,
    first: Vec<Frame>,
    feed: Arc<Signal>,
    commands: LinkCommands,
) -> impl Future<Output = Ended> + Send {
    let LinkTransport { reader, writer } = ends;
    let link = Box::new(Link::new(config, link_time()));
    let task = Box::new(LinkTask::new(link, handler, Some(writer), MAX_QUEUED));
    run(task, reader, first, feed, commands)
}

/// A link of one request and its answer, at either end: made from what is durable, run while there is
/// something to do, dropped.
///
/// ```text
/// agent          step([]) --> request --> step(request) --> answer --> step(answer)   control plane
/// ```
pub struct Exchange<S: LinkHandler> {
    task: Box<LinkTask<S>>,
    /// What the link is to do once the other side said hello.
    requests: Vec<LinkCommand>,
}

impl<S: LinkHandler> Exchange<S> {
    /// Opens the link; `after` as in [`Span::Exchange`].
    pub fn open(mut config: LinkConfig, after: Option<FeedCursor>, handler: Arc<S>) -> Exchange<S> {
        config.limits = Arc::new(config.limits.of_exchange(EXCHANGE_EVENTS, EXCHANGE_BYTES));
        config.span = Span::Exchange { after: after.map(Box::new) };
        let link = Box::new(Link::new(config, link_time()));
        let mut task = Box::new(LinkTask::new(link, handler, None, EXCHANGE_BYTES));
        task.take(Input::Open);
        Exchange { task, requests: Vec::new() }
    }

    /// Gives the link a command with the frames that it works on next, behind the other side's hello.
    pub fn request(&mut self, command: LinkCommand) {
        self.requests.push(command);
    }

    /// Works on frames until nothing is under way, or there is enough to say.
    pub async fn step(&mut self, frames: Vec<Frame>) -> FrameBatch {
        let task = &mut self.task;
        task.frames(frames);
        self.requests.drain(..).for_each(|command| task.take(Input::Command(command)));
        while let Some(done) = task.jobs.next().await {
            task.done(done);
            task.work();
        }
        task.handler.progress(&task.link);
        let frames = task.group(EXCHANGE_BYTES);
        // What was sent is to be acknowledged, at least.
        let more = task.queued > 0 || task.load.is_some() || task.link.in_flight() > 0;
        FrameBatch { frames, more }
    }

    /// The link, for how it stands.
    pub fn link(&self) -> &Link {
        &self.task.link
    }

    /// Frames that came are not taken yet: what those before them lead to is to be sent first.
    pub fn is_behind(&self) -> bool {
        !self.task.backlog.is_empty()
    }

    /// A side ended it: with a go-away.
    pub fn is_closed(&self) -> bool {
        self.task.closed.is_some()
    }

    /// Ends it: what came is durable.
    pub async fn end(self) -> Ended {
        self.task.end().await
    }
}

async fn run<S: LinkHandler>(
    mut task: Box<LinkTask<S>>,
    mut reader: Box<dyn FrameReader>,
    first: Vec<Frame>,
    feed: Arc<Signal>,
    mut commands: LinkCommands,
) -> Ended {
    // Before the link looks at the feed: what changes from here on wakes the task.
    let mut head = feed.get();
    task.take(Input::Open);
    task.frames(first);
    let alarm = tokio::time::sleep_until(Instant::now());
    tokio::pin!(alarm);
    while !task.is_over() {
        if task.work() {
            task.handler.progress(&task.link);
        }
        task.send();
        // A busy link's deadlines move away a little with each frame: the timer comes too early
        // then, once, and is set anew.
        let due = task.deadline();
        if let Some(at) = due
            && (at < alarm.deadline() || at > alarm.deadline() + EARLY || alarm.is_elapsed())
        {
            alarm.as_mut().reset(at);
        }
        let reads = task.backlog.is_empty() && task.wants_input();
        tokio::select! {
            read = reader.next(), if reads => task.read(read),
            Some(done) = task.jobs.next(), if !task.jobs.is_empty() => task.done(done),
            Some(sent) = OptionFuture::from(task.sending.as_mut()) => {
                task.sent(sent);
                // The link is where it was.
                continue;
            }
            changed = feed.until(|now| now != head) => {
                head = changed;
                task.take(Input::Tick);
            }
            Some(command) = commands.next() => task.take(Input::Command(command)),
            // At once when it is behind by now.
            () = alarm.as_mut(), if due.is_some() => task.take(Input::Tick),
        }
        task.handler.progress(&task.link);
    }
    drop(reader);
    task.end().await
}

/// The half of a transport that took a group, or could not.
type Sent = (Box<dyn FrameWriter>, Result<(), TransportError>);

/// What a job came to.
enum FinishedJob {
    /// Something for the link.
    Input(Input),
    /// A frame of the handler's was worked on; its answer.
    Received(Option<Frame>),
}

/// The link is to end.
fn go_away(code: &str, message: String, retry_after: Option<u64>) -> Input {
    Input::Command(LinkCommand::GoAway(Box::new(GoAway { code: code.to_owned(), message, retry_after })))
}

struct LinkTask<S> {
    link: Box<Link>,
    handler: Arc<S>,
    /// Absent while a group is sent, and in an exchange.
    writer: Option<Box<dyn FrameWriter>>,
    /// Nothing is loaded while so many bytes wait to be sent, nor read from a transport.
    most_queued: usize,
    sending: Option<BoxFuture<'static, Sent>>,
    /// Frames that came and were not taken yet.
    backlog: VecDeque<Frame>,
    control: VecDeque<Frame>,
    data: VecDeque<Frame>,
    queued: usize,
    /// A load that waits until less is queued.
    load: Option<Vec<(ObjectKey, u64)>>,
    jobs: FuturesUnordered<BoxFuture<'static, FinishedJob>>,
    /// Frames of the handler's that are worked on.
    received: usize,
    /// Why the link ends, and which side ended it.
    closed: Option<Box<(GoAway, EndedBy)>>,
    /// When the task ends, whatever is left to be sent or heard.
    over_at: Option<Instant>,
    /// Why nothing can be sent any more.
    error: Option<TransportError>,
}

impl<S: LinkHandler> LinkTask<S> {
    fn new(
        link: Box<Link>,
        handler: Arc<S>,
        writer: Option<Box<dyn FrameWriter>>,
        most_queued: usize,
    ) -> LinkTask<S> {
        LinkTask {
            link,
            handler,
            most_queued,
            writer,
            sending: None,
            backlog: VecDeque::new(),
            control: VecDeque::new(),
            data: VecDeque::new(),
            queued: 0,
            load: None,
            jobs: FuturesUnordered::new(),
            received: 0,
            closed: None,
            over_at: None,
            error: None,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let since = |at: Timestamp| Duration::from_millis(u64::try_from(at.0).unwrap_or(0));
        let link = self.link.next_deadline().map(|at| *BEGAN + since(at));
        link.into_iter().chain(self.over_at).min()
    }

    fn wants_input(&self) -> bool {
        self.closed.is_none()
            && self.queued < MAX_QUEUED
            && self.received < MAX_RECEIVED
            && self.link.wants_input()
    }

    /// No frame is left to send, or no peer is there to take it.
    fn is_over(&self) -> bool {
        let all_sent = self.error.is_some() || self.queued == 0 && self.sending.is_none();
        self.over_at.is_some_and(|at| Instant::now() >= at) || (self.closed.is_some() && all_sent)
    }

    fn ends_within(&mut self, wait: Duration) {
        let at = Instant::now() + wait;
        self.over_at = Some(self.over_at.map_or(at, |before| before.min(at)));
    }

    fn read(&mut self, read: Result<Option<Vec<Frame>>, TransportError>) {
        match read {
            Ok(Some(frames)) => self.frames(frames),
            Ok(None) => self.ends_within(Duration::ZERO),
            Err(error) => match error.refusal() {
                Some(code) => self.take(go_away(code, error.explained(), None)),
                None => {
                    self.error = Some(error);
                    self.ends_within(Duration::ZERO);
                }
            },
        }
    }

    fn frames(&mut self, frames: Vec<Frame>) {
        self.backlog.extend(frames);
        self.work();
    }

    /// Takes what came, one by one, and begins loads, while little waits to be sent; whether
    /// anything was taken.
    fn work(&mut self) -> bool {
        let before = self.backlog.len();
        while !self.backlog.is_empty() && self.wants_input() {
            let Some(frame) = self.backlog.pop_front() else { break };
            self.take(Input::Frame(frame));
        }
        if self.closed.is_some() {
            self.backlog.clear();
            self.load = None;
        }
        if self.queued < self.most_queued
            && let Some(wants) = self.load.take()
        {
            let handler = self.handler.clone();
            self.job(async move {
                let loaded = if wants.is_empty() { Ok(Vec::new()) } else { handler.load(wants).await };
                FinishedJob::Input(match loaded {
                    Ok(contents) => Input::Loaded(contents),
                    Err(error) => go_away("internal", error.to_string(), Some(LOAD_AGAIN)),
                })
            });
        }
        self.backlog.len() < before
    }

    fn done(&mut self, done: FinishedJob) {
        match done {
            FinishedJob::Input(input) => self.take(input),
            FinishedJob::Received(answer) => {
                self.received -= 1;
                let send = |frame| Input::Command(LinkCommand::Send(Box::new(frame)));
                self.take(answer.map_or(Input::Tick, send));
            }
        }
    }

    fn take(&mut self, input: Input) {
        let now = link_time();
        let permits = self.handler.permits();
        let outputs =
            self.handler.with_sets(|feed, replica| self.link.handle(input, feed, replica, permits, now));
        outputs.into_iter().for_each(|output| self.perform(output));
    }

    fn perform(&mut self, output: Output) {
        let handler = self.handler.clone();
        match output {
            Output::Send(frame) => {
                self.queued += weight(&frame);
                let queue = if may_overtake(&frame) { &mut self.control } else { &mut self.data };
                // An acknowledgement is cumulative: the newest says all.
                if let (Frame::Ack(_), Some(Frame::Ack(_))) = (&frame, queue.back()) {
                    queue.pop_back();
                    self.queued -= FRAME;
                }
                queue.push_back(frame);
            }
            Output::Load(wants) => self.load = Some(wants),
            Output::Apply(batch) => {
                self.job(async move { FinishedJob::Input(Input::Applied(handler.apply(batch).await)) });
            }
            Output::Reincarnate => {
                self.job(async move { FinishedJob::Input(Input::Reincarnated(handler.reincarnate().await)) });
            }
            Output::Received(frame) => {
                self.received += 1;
                self.job(async move { FinishedJob::Received(handler.received(frame).await) });
            }
            Output::Note(note) => handler.note(&note),
            Output::Close(why, by) => {
                self.closed = Some(Box::new((why, by)));
                self.ends_within(GO_AWAY_WITHIN);
            }
        }
    }

    fn job(&mut self, job: impl Future<Output = FinishedJob> + Send + 'static) {
        self.jobs.push(Box::pin(job));
    }

    /// Gives the transport the next group, if it is free.
    fn send(&mut self) {
        if self.sending.is_some() || self.queued == 0 {
            return;
        }
        let Some(mut writer) = self.writer.take() else { return };
        let frames = self.group(GROUP);
        self.sending = Some(Box::pin(async move {
            let sent = tokio::time::timeout(SLOW, writer.send(frames)).await;
            (writer, sent.unwrap_or(Err(TransportError::Slow)))
        }));
    }

    fn sent(&mut self, (writer, sent): Sent) {
        self.sending = None;
        // An idle link keeps no room for frames.
        for queue in [&mut self.control, &mut self.data, &mut self.backlog] {
            if queue.is_empty() {
                queue.shrink_to_fit();
            }
        }
        match sent {
            Ok(()) => self.writer = Some(writer),
            Err(error) => {
                self.error = Some(error);
                self.ends_within(LISTEN);
            }
        }
    }

    /// Takes frames off the queues, control first, about so many bytes of them.
    fn group(&mut self, bytes: usize) -> Vec<Frame> {
        let (mut frames, mut sum) = (Vec::new(), 0);
        while sum < bytes && frames.len() < wire::cloudevents::json::MAX_FRAMES {
            let Some(frame) = self.control.pop_front().or_else(|| self.data.pop_front()) else { break };
            let weight = weight(&frame);
            sum += weight;
            self.queued -= weight;
            frames.push(frame);
        }
        frames
    }

    /// What was received is processed to its end (SYN-14), then nothing is left.
    async fn end(mut self: Box<Self>) -> Ended {
        if let (Some(mut writer), None) = (self.writer.take(), &self.error) {
            let _ = tokio::time::timeout(GO_AWAY_WITHIN, writer.finish()).await;
        }
        self.take(Input::Disconnected);
        let until = Instant::now() + JOBS_END;
        while let Ok(Some(done)) = tokio::time::timeout_at(until, self.jobs.next()).await {
            self.done(done);
        }
        self.handler.progress(&self.link);
        let (met, counters) = (self.link.has_met(), Box::new(*self.link.counters()));
        // Where it is known why the link ended, that what was sent meanwhile did not arrive says
        // nothing more.
        match self.closed.take().map(|closed| *closed) {
            None => Ended { met, counters, ..Ended::lost(self.error) },
            Some((GoAway { code, message, retry_after }, how)) => {
                Ended { code, message, retry_after, counters, how, met, error: None }
            }
        }
    }
}
