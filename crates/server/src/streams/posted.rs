//! Exchanges: links of one request and its answer (SYN-1, SYN-11).
//!
//! ```text
//! POST /v1/agent/events   hello, events, requests --> hello, processed, events, responses
//! Push                    hello, events ...       --> how many are durable
//! GET /v1/agent/stream                              --> hello, events, ping: what a post would be
//!                                                     answered with, as soon as there is something
//! ```
//!
//! Nothing is kept between two exchanges but what belongs to the node's pair of sets: its durable
//! cursors, the acknowledged cursor, and in memory how far a resync came. So the next one may be
//! answered by the control plane after a restart. One post of a node is answered at a time; one that
//! comes again costs what its cursors say.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::replication::TransportKind;
use streams::task::Ended;
use streams::task::SLOW;
use streams::{Exchange, FrameWriter, LinkCommand};
use sync::frame::{CloseReason, GoAway, Ping};
use sync::link::Input;
use sync::{FeedCursor, Frame};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use wire::batch::{self, FrameBatch, MAX_REQUEST};
use wire::body::JSON;
use wire::{Code, Problem};

use super::handler::PlaneLinkHandler;
use super::serve::{Lease, StreamRequest, away, config, lease, log_end, register};
use crate::answer::{Reply, reply};
use crate::hub::{NodeLink, OpenLink, SyncSummary, Wants};
use crate::node_port::Caller;
use crate::state::ControlPlane;

/// How long what follows from posted frames may take.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(45);
/// How soon a post that came beside another one may come again, in seconds.
const BUSY_RETRY: u64 = 1;

/// Takes posted frames and answers with what there is to say.
pub(crate) async fn events(
    plane: &Arc<ControlPlane>,
    caller: Caller,
    connection: net::accept::Connection,
    parts: &http::request::Parts,
    body: &Bytes,
) -> Result<Reply, Problem> {
    let source = caller.slot.lock().node.hostname.to_string();
    let FrameBatch { frames, .. } = batch::decode(body, Some(&source), MAX_REQUEST)?;
    let node = caller.id.clone();
    let request = StreamRequest::new(plane, caller, connection, TransportKind::Poll);
    let mut origin = request.origin();
    // It goes to its end also when the one who posted hangs up.
    let answered = tokio::spawn(async move {
        let mut exchange = match NodeExchange::begin(request, &frames).await? {
            Ok(exchange) => exchange,
            Err(why) => return Ok(FrameBatch { frames: vec![Frame::GoAway(why)], more: false }),
        };
        exchange.take_wants();
        let said = exchange.say(frames).await;
        exchange.end().await;
        Ok::<_, Problem>(said)
    });
    let said = answered.await.map_err(|_| Code::Internal)??;
    let out =
        batch::encode(&mut origin, &said).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    // Who hung up meanwhile is told with the next post.
    plane.hub.sync_index().passed_on(&node, Wants::said_in(&said.frames));
    let packed = if crate::intake::accepts_gzip(parts) { wire::body::compress(&out) } else { None };
    let coding = packed.is_some().then_some(wire::body::GZIP);
    Ok(reply(http::StatusCode::OK, JSON, coding, packed.unwrap_or(out).into()))
}

/// An exchange with a node, at the control plane.
pub(super) struct NodeExchange {
    exchange: Exchange<PlaneLinkHandler>,
    handler: Arc<PlaneLinkHandler>,
    open: OpenLink,
    began: Instant,
    _one: OwnedMutexGuard<()>,
    _lease: Lease,
}

impl NodeExchange {
    /// Begins with frames whose first is a hello.
    ///
    /// # Errors
    /// Another post of the node is worked on, or there is no hello. The go-away says why the node
    /// gets no link.
    pub(super) async fn begin(
        mut request: Box<StreamRequest>,
        frames: &[Frame],
    ) -> Result<Result<NodeExchange, GoAway>, Problem> {
        let Some(Frame::Hello(hello)) = frames.first() else {
            return Err(Problem::new(Code::BadBody, "frames begin with a hello"));
        };
        request.instance = (!hello.instance.is_empty()).then(|| hello.instance.clone());
        let (plane, node) = (request.plane.clone(), request.caller.id.clone());
        let Ok(one) = request.caller.slot.stream_admission().posting.clone().try_lock_owned() else {
            let mut problem = Problem::new(Code::Busy, "what was posted before is still worked on");
            problem.retry_after_secs = Some(BUSY_RETRY);
            return Err(problem);
        };
        if plane.hub.held(&node).is_none() {
            request.paced()?;
        }
        let open = match register(&request).await {
            Ok(open) => open,
            Err(why) => return Ok(Err(why)),
        };
        let lease = match lease(&request).await {
            Ok(lease) => lease,
            Err(why) => return Ok(Err(why)),
        };
        plane.hub.remember(&lease.sets);
        let config = Box::pin(config(&request, &open.link)).await;
        let handler = PlaneLinkHandler::new(&plane, request.caller.clone(), &lease.sets, &open);
        let exchange = Exchange::open(config, None, handler.clone());
        plane.metrics.link_opened(TransportKind::Poll, open.replaced.is_some());
        let began = Instant::now();
        Ok(Ok(NodeExchange { exchange, handler, open, began, _one: one, _lease: lease }))
    }

    /// Does what operators asked of the node's link, and says it to the node.
    fn take_wants(&mut self) {
        let (index, node) = (self.handler.plane.hub.sync_index(), &self.handler.caller.id);
        let wants = index.update(node, SyncSummary::wants_of_exchange);
        wants.into_iter().for_each(|input| self.exchange.request(input));
    }

    /// Takes frames; gives what there is to say, once what was taken is durable.
    pub(super) async fn say(&mut self, frames: Vec<Frame>) -> FrameBatch {
        self.handler.sets.answered();
        let said = tokio::time::timeout(ANSWER_WITHIN, self.exchange.say(frames)).await;
        said.unwrap_or_else(|_| {
            tracing::warn!(node = %self.handler.caller.id, "what a post brought takes too long; it is given up");
            self.handler.sets.abandon();
            let why = away(Code::Busy.as_str(), "what was posted takes too long", BUSY_RETRY);
            FrameBatch { frames: vec![Frame::GoAway(why)], more: false }
        })
    }

    /// The link that it is, as everybody else sees it.
    pub(super) fn link(&self) -> Arc<NodeLink> {
        self.open.link.clone()
    }

    /// Ends it in order.
    pub(super) async fn end(self) -> Ended {
        let NodeExchange { exchange, handler, open, began, .. } = self;
        let ended = exchange.end().await;
        drop(open);
        handler.plane.metrics.link_closed(TransportKind::Poll, began.elapsed());
        handler.count(&ended.counters);
        log_end(&handler.caller.id, TransportKind::Poll, &ended, handler.check_ins());
        ended
    }
}

/// Says what there is to say as soon as there is something, until the stream ends. `from` is the
/// node's durable cursor, where the request says it.
pub(super) async fn push_down(
    request: Box<StreamRequest>,
    mut open: OpenLink,
    mut writer: Box<dyn FrameWriter>,
    mut from: Option<FeedCursor>,
) {
    let (plane, connection) = (request.plane.clone(), request.connection.clone());
    let (link, mut commands) = (open.link.clone(), open.take_commands());
    let every = Duration::from_secs(plane.links.settings().keepalive_secs.into());
    plane.metrics.link_opened(TransportKind::Sse, open.replaced.is_some());
    let began = Instant::now();
    let mut said = Vec::new();
    let why = 'open: loop {
        let lease = match lease(&request).await {
            Ok(lease) => lease,
            Err(why) => break why,
        };
        let (sets, mut head) = (lease.sets.clone(), lease.sets.watch());
        let frames = pushed(&request, lease, &open, from.take(), std::mem::take(&mut said)).await;
        let sent = tokio::select! {
            sent = tokio::time::timeout(SLOW, writer.send(frames)) => matches!(sent, Ok(Ok(()))),
            () = connection.closing() => break away(CloseReason::SHUTDOWN, "the connection is to end", BUSY_RETRY),
            why = link.ending() => break why,
        };
        if !sent {
            break away("lost", "the stream is not read any more", BUSY_RETRY);
        }
        let due = Instant::now() + every;
        loop {
            tokio::select! {
                Ok(()) = head.changed() => if sets.is_answered() { continue },
                Some(command) = commands.next() => if let LinkCommand::Send(frame) = command {
                    said.push(*frame);
                },
                () = tokio::time::sleep_until(due) => {}
                () = connection.closing() => {
                    break 'open away(CloseReason::SHUTDOWN, "the connection is to end", BUSY_RETRY);
                }
                why = link.ending() => break 'open why,
            }
            break;
        }
    };
    drop(open);
    plane.metrics.link_closed(TransportKind::Sse, began.elapsed());
    super::serve::refuse(writer, why).await;
}

/// One answer to a post that nobody made: hello, what follows the acknowledged cursor, and a ping,
/// which is answered with a post.
async fn pushed(
    request: &StreamRequest,
    lease: Lease,
    open: &OpenLink,
    from: Option<FeedCursor>,
    said: Vec<Frame>,
) -> Vec<Frame> {
    let (plane, node) = (&request.plane, &request.caller.id);
    let acked = plane.hub.sync_index().read(node, |summary| summary.acked().cloned());
    let handler = PlaneLinkHandler::new(plane, request.caller.clone(), &lease.sets, open);
    let config = config(request, &open.link).await;
    handler.sets.answered();
    let mut exchange = Exchange::open(config, from.or(acked), handler.clone());
    said.into_iter().for_each(|frame| exchange.request(Input::Send(frame)));
    let mut frames = exchange.say(Vec::new()).await.frames;
    let ended = exchange.end().await;
    handler.count(&ended.counters);
    let head = lease.sets.sets().feed.head();
    frames.push(Frame::Ping(Ping { head, ..Ping::default() }));
    frames
}
