//! [`drive`]: a link between a transport and a shore.
//!
//! One task runs a link. What takes time (contents, applying, permits, check-ins) are jobs
//! beside it, so that acknowledgements never wait behind data. What is to be sent waits in two
//! queues, control before data; the link's window bounds the data, and a peer that asks
//! without reading the answers is not read any further.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use model::Timestamp;
use sync::Frame;
use sync::frame::{GoAway, Op, Ping};
use sync::link::{Counters, Input, Link, Output, may_overtake};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::ends::{EndsError, Incoming, Outgoing};
use crate::shore::Shore;

/// Frames are given to a transport in groups of about so many bytes.
const GROUP: usize = 64 * 1024;
/// What a frame weighs besides its content, in bytes, in these bounds.
const FRAME: usize = 256;
/// Above so many bytes that wait to be sent nothing more is read.
const MAX_QUEUED: usize = 24 * 1024 * 1024;
/// How long a transport may take to accept one group: a peer that reads slower is cut.
const SLOW: Duration = Duration::from_secs(60);
/// How long the last words of a link may take.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long jobs under way may take to end after a link.
const JOBS_END: Duration = Duration::from_secs(60);
/// How long the other side of a link that is probed has to say something.
const PROBE: Duration = Duration::from_secs(5);
/// Orders that may wait for a link.
const ORDERS: usize = 16;
/// An answer to posted frames holds about so many bytes at the most.
const ANSWER: usize = wire::batch::FULL;

/// What a link may be told from outside.
pub enum Order {
    /// Orphans may be deleted, however many.
    Approve,
    /// Compare by a resync now.
    Resync,
    /// Say this.
    Say(Frame),
    /// Frames that came by a request; what the link has to say by then goes back, unless the
    /// transport has a way of its own for that.
    Post {
        /// The frames.
        frames: Vec<Frame>,
        /// How long an answer with nothing in it is held back.
        wait: Duration,
        /// Takes the answer.
        answer: oneshot::Sender<Posted>,
    },
    /// Is anybody there? `true` as soon as something is heard, `false` after a while.
    Probe(oneshot::Sender<bool>),
    /// End in order: what came is processed first.
    Shutdown,
    /// Say why, and close.
    GoAway {
        /// A stable code.
        code: &'static str,
        /// Why, for people.
        message: String,
        /// Not to come back sooner than after as many seconds.
        retry_after: Option<u64>,
    },
}

/// The answer to posted frames.
#[derive(Debug, Default, PartialEq)]
pub struct Posted {
    /// What the link has to say.
    pub frames: Vec<Frame>,
    /// There is more.
    pub more: bool,
}

/// The way to a link.
pub type Orders = mpsc::Sender<Order>;

/// A way to a link that is to be driven.
pub fn orders() -> (Orders, mpsc::Receiver<Order>) {
    mpsc::channel(ORDERS)
}

/// How a link ended.
#[derive(Debug)]
pub struct Ended {
    /// A stable code.
    pub code: String,
    /// Why, for people.
    pub message: String,
    /// Not to come back sooner than after as many seconds.
    pub retry_after: Option<u64>,
    /// What was counted.
    pub counters: Counters,
    /// The other side said hello.
    pub met: bool,
    /// Why the transport was given up, when that is what ended it.
    pub error: Option<EndsError>,
}

/// The ways in and out of a link.
pub struct Ends {
    /// Where frames come from; absent when they are posted.
    pub incoming: Option<Box<dyn Incoming>>,
    /// Where frames go; absent when they go back as answers to what is posted.
    pub outgoing: Option<Box<dyn Outgoing>>,
}

/// Runs a link to its end. `first` are frames that were read already.
pub async fn drive<S: Shore>(
    link: Link,
    shore: Arc<S>,
    ends: Ends,
    first: Vec<Frame>,
    mut feed: watch::Receiver<u64>,
    mut orders: mpsc::Receiver<Order>,
) -> Ended {
    let Ends { mut incoming, outgoing } = ends;
    let mut driver = Driver::new(link, shore, outgoing);
    driver.take(Input::Open);
    driver.frames(first);
    let mut feed_open = true;
    while !driver.is_over() {
        driver.send();
        driver.answer();
        driver.probed(false);
        let deadline = driver.deadline();
        let read = incoming.is_some() && driver.wants_input();
        tokio::select! {
            came = next(&mut incoming), if read => driver.came(came),
            Some(input) = driver.jobs.next(), if !driver.jobs.is_empty() => driver.take(input),
            sent = sent(&mut driver.sending), if driver.sending.is_some() => driver.sent(sent),
            changed = feed.changed(), if feed_open => match changed {
                Ok(()) => driver.take(Input::FeedChanged),
                Err(_) => feed_open = false,
            },
            Some(order) = orders.recv() => driver.order(order),
            () = sleep_until(deadline) => driver.take(Input::Tick),
        }
        driver.shore.progress(&driver.link);
    }
    drop(incoming);
    driver.end().await
}

async fn next(incoming: &mut Option<Box<dyn Incoming>>) -> Result<Option<Vec<Frame>>, EndsError> {
    match incoming {
        Some(incoming) => incoming.next().await,
        None => std::future::pending().await,
    }
}

type Sending = Pin<Box<dyn Future<Output = (Box<dyn Outgoing>, Result<(), EndsError>)> + Send>>;

async fn sent(sending: &mut Option<Sending>) -> (Box<dyn Outgoing>, Result<(), EndsError>) {
    match sending {
        Some(sending) => sending.await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Someone who posted frames and waits.
struct Asker {
    until: Instant,
    answer: oneshot::Sender<Posted>,
}

struct Driver<S> {
    link: Link,
    shore: Arc<S>,
    began: Instant,
    outgoing: Option<Box<dyn Outgoing>>,
    /// Frames leave by a transport, and not as answers.
    streams: bool,
    sending: Option<Sending>,
    control: VecDeque<Frame>,
    data: VecDeque<Frame>,
    queued: usize,
    jobs: FuturesUnordered<BoxFuture<'static, Input>>,
    asker: Option<Asker>,
    probe: Option<(Instant, oneshot::Sender<bool>)>,
    closed: Option<(String, String, Option<u64>)>,
    /// Until when the last words may be sent.
    words: Option<Instant>,
    gone: bool,
    error: Option<EndsError>,
}

impl<S: Shore> Driver<S> {
    fn new(link: Link, shore: Arc<S>, outgoing: Option<Box<dyn Outgoing>>) -> Driver<S> {
        Driver {
            link,
            shore,
            began: Instant::now(),
            streams: outgoing.is_some(),
            outgoing,
            sending: None,
            control: VecDeque::new(),
            data: VecDeque::new(),
            queued: 0,
            jobs: FuturesUnordered::new(),
            asker: None,
            probe: None,
            closed: None,
            words: None,
            gone: false,
            error: None,
        }
    }

    /// The link's time: it only goes forward, whatever the host's clock does.
    fn now(&self) -> Timestamp {
        Timestamp(i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    fn deadline(&self) -> Option<Instant> {
        let since = |at: Timestamp| Duration::from_millis(u64::try_from(at.0).unwrap_or(0));
        let link = self.link.next_deadline().map(|at| self.began + since(at));
        let asker = self.asker.as_ref().map(|asker| asker.until);
        let probe = self.probe.as_ref().map(|(until, _)| *until);
        link.into_iter().chain(asker).chain(probe).chain(self.words).min()
    }

    fn wants_input(&self) -> bool {
        self.closed.is_none() && self.link.wants_input() && self.queued < MAX_QUEUED
    }

    /// Nothing is left to be said, or nobody is there to hear it.
    fn is_over(&self) -> bool {
        let said = self.queued == 0 && self.sending.is_none();
        let late = self.words.is_some_and(|until| Instant::now() >= until);
        self.gone || (self.closed.is_some() && (said || late))
    }

    fn came(&mut self, came: Result<Option<Vec<Frame>>, EndsError>) {
        match came {
            Ok(Some(frames)) => self.frames(frames),
            Ok(None) => self.gone = true,
            Err(error) => {
                self.error = Some(error);
                self.gone = true;
            }
        }
    }

    fn frames(&mut self, frames: Vec<Frame>) {
        self.probed(!frames.is_empty());
        let now = self.now();
        let outputs: Vec<Output> = self.shore.with_sets(|feed, replica| {
            let handle = |frame| self.link.handle(Input::Frame(frame), feed, replica, now);
            frames.into_iter().flat_map(handle).collect()
        });
        self.perform(outputs);
    }

    fn take(&mut self, input: Input) {
        let now = self.now();
        let outputs = self.shore.with_sets(|feed, replica| self.link.handle(input, feed, replica, now));
        self.perform(outputs);
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Approve => self.take(Input::Approve),
            Order::Resync => self.take(Input::Resync),
            Order::Say(frame) => self.take(Input::Say(frame)),
            Order::Shutdown => self.take(Input::Shutdown),
            Order::Probe(answer) => {
                self.probe = Some((Instant::now() + PROBE, answer));
                self.take(Input::Say(Frame::Ping(Ping::default())));
            }
            Order::GoAway { code, message, retry_after } => self.go_away(code, message, retry_after),
            Order::Post { frames, wait, answer } => {
                self.frames(frames);
                // Of two who wait the older is answered: it was given up, likely.
                self.reply(true);
                self.asker = Some(Asker { until: Instant::now() + wait, answer });
            }
        }
    }

    fn go_away(&mut self, code: &'static str, message: String, retry_after: Option<u64>) {
        if self.closed.is_some() {
            return;
        }
        let away = GoAway { code: code.to_owned(), message: message.clone(), retry_after };
        self.take(Input::Say(Frame::GoAway(away)));
        self.closed = Some((code.to_owned(), message, retry_after));
        self.words = Some(Instant::now() + LAST_WORDS);
    }

    /// Somebody asked whether the other side is there.
    fn probed(&mut self, heard: bool) {
        let late = |(until, _): &(Instant, _)| Instant::now() >= *until;
        if (heard || self.probe.as_ref().is_some_and(late))
            && let Some((_, answer)) = self.probe.take()
        {
            // Who asked may have given up.
            let _ = answer.send(heard);
        }
    }

    /// Answers the one who posted, once all is done that follows from what was posted.
    fn answer(&mut self) {
        let Some(asker) = &self.asker else { return };
        let quiet = self.jobs.is_empty() && self.link.is_quiet();
        let something = self.queued > 0 || self.streams || self.closed.is_some();
        if quiet && (something || Instant::now() >= asker.until) || self.queued >= ANSWER {
            self.reply(false);
        }
    }

    fn reply(&mut self, empty: bool) {
        let Some(asker) = self.asker.take() else { return };
        let frames = if empty || self.streams { Vec::new() } else { self.group(ANSWER) };
        let more = !self.streams && self.queued > 0;
        if let Err(lost) = asker.answer.send(Posted { frames, more }) {
            // Nobody heard it. The link's numbers show the gap, and its resends close it.
            tracing::debug!(frames = lost.frames.len(), "an answer to posted frames was not taken");
        }
    }

    fn perform(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            self.perform_one(output);
        }
    }

    fn perform_one(&mut self, output: Output) {
        let shore = self.shore.clone();
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
            Output::Load { id, wants } => {
                self.job(async move { Input::Loaded { id, contents: shore.load(wants).await } });
            }
            Output::Apply(batch) => {
                let id = batch.id;
                self.job(async move { Input::Applied { id, outcomes: shore.apply(batch).await } });
            }
            Output::WantPermit => self.job(async move {
                match shore.permit().await {
                    Ok(()) => Input::Admitted,
                    Err(wait) => Input::NotAdmitted { wait },
                }
            }),
            Output::ReturnPermit => shore.return_permit(),
            Output::Refound => self.job(async move {
                shore.refound().await;
                Input::FeedChanged
            }),
            Output::Received(frame) => self.job(async move {
                match shore.received(frame).await {
                    Some(answer) => Input::Say(answer),
                    None => Input::Tick,
                }
            }),
            Output::Hello(hello) => shore.hello(&hello),
            Output::Note(note) => shore.note(&note),
            Output::Close { code, message, retry_after } => {
                self.closed = Some((code.to_owned(), message, retry_after));
                self.words = Some(Instant::now() + LAST_WORDS);
            }
        }
    }

    fn job(&mut self, job: impl Future<Output = Input> + Send + 'static) {
        self.jobs.push(Box::pin(job));
    }

    /// Gives the transport the next group, if it is free.
    fn send(&mut self) {
        if self.sending.is_some() || self.queued == 0 || !self.streams {
            return;
        }
        let Some(mut outgoing) = self.outgoing.take() else { return };
        let frames = self.group(GROUP);
        self.sending = Some(Box::pin(async move {
            let sent = tokio::time::timeout(SLOW, outgoing.send(frames)).await;
            (outgoing, sent.unwrap_or(Err(EndsError::Slow)))
        }));
    }

    fn sent(&mut self, (outgoing, sent): (Box<dyn Outgoing>, Result<(), EndsError>)) {
        self.sending = None;
        self.outgoing = Some(outgoing);
        if let Err(error) = sent {
            self.error = Some(error);
            self.gone = true;
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
    async fn end(mut self) -> Ended {
        if let (Some(mut outgoing), None) = (self.outgoing.take(), &self.error) {
            let _ = tokio::time::timeout(LAST_WORDS, outgoing.finish()).await;
        }
        self.reply(false);
        self.take(Input::Disconnected);
        let until = Instant::now() + JOBS_END;
        while let Ok(Some(input)) = tokio::time::timeout_at(until, self.jobs.next()).await {
            self.take(input);
        }
        self.shore.progress(&self.link);
        let lost = || ("lost".to_owned(), "the connection is gone".to_owned(), None);
        let (code, message, retry_after) = self.closed.take().unwrap_or_else(lost);
        let met = self.link.peer().is_some();
        Ended { code, message, retry_after, counters: *self.link.counters(), met, error: self.error }
    }
}

/// About how many bytes a frame takes.
fn weight(frame: &Frame) -> usize {
    match frame {
        Frame::Event(event) => match &event.op {
            Op::Put { content, .. } => FRAME + content.len(),
            Op::Delete { .. } => FRAME,
        },
        Frame::Tell(tell) => FRAME + tell_weight(tell),
        _ => FRAME,
    }
}

fn tell_weight(tell: &sync::frame::Tell) -> usize {
    use sync::frame::{Tell, Top};
    let top = |top: &Top| match top {
        Top::Branch(hashes) => hashes.len() * 44,
        Top::Bucket(objects) => objects.len() * 160,
    };
    match tell {
        Tell::Sections { sections, .. } => sections.len() * 120,
        Tell::Tops { tops, .. } => tops.iter().map(|(_, one)| 16 + top(one)).sum(),
        Tell::Objects(_) | Tell::Wait(_) => 0,
    }
}
