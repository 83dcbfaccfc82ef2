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
use streams::task::{Ended, SLOW};
use streams::{Exchange, FrameWriter, LinkCommand, LinkCommands};
use sync::frame::{GoAway, Ping};
use sync::{FeedCursor, Frame};
use tokio::sync::OwnedMutexGuard;
use wire::batch::{self, FrameBatch, MAX_REQUEST};
use wire::{Code, Problem};

use super::handler::PlaneLinkHandler;
use super::serve::{RegisteredLink, SOON, StreamRequest, away, busy, lease, over, register};
use crate::answer::{PortReply, encoded};
use crate::hub::{NodeLink, NodeSync, SyncSummary};
use crate::node_port::CallingNode;
use crate::state::{ControlPlane, GivenUp, run_to_completion};

/// How long what follows from posted frames may take.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(45);

/// Takes posted frames and answers with what there is to say.
pub(crate) async fn events(
    plane: &Arc<ControlPlane>,
    caller: CallingNode,
    connection: net::accept::Connection,
    body: &Bytes,
    gzip: bool,
) -> Result<PortReply, Problem> {
    let node = caller.id.clone();
    let request = StreamRequest::new(plane, caller, connection, TransportKind::Poll);
    let FrameBatch { frames, .. } = batch::decode(body, Some(&request.source()), MAX_REQUEST)?;
    if !matches!(frames.first(), Some(Frame::Hello(_))) {
        return Err(Problem::new(Code::BadBody, "frames begin with a hello"));
    }
    let (mut origin, posting_lease) = (request.origin(), posting_lease(&request)?);
    let answer = run_to_completion(async move {
        let mut exchange = match NodeExchange::begin(request, posting_lease, &frames).await {
            Ok(exchange) => exchange,
            Err(why) => return Ok(FrameBatch { frames: vec![Frame::GoAway(why)], more: false }),
        };
        exchange.take_wants();
        let answer = exchange.step(frames).await;
        exchange.end().await;
        Ok::<_, GivenUp>(answer)
    })
    .await?;
    let out = batch::encode(&mut origin, &answer)
        .map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    // A node that hung up meanwhile hears of them with the answer to its next post.
    plane.hub.sync_index().update(&node, |summary| summary.passed_on(&answer.frames));
    Ok(encoded(out, gzip))
}

/// The lease of the node's one post. Where its sets are to be loaded, a post costs as much as a link.
///
/// # Errors
/// Another post of the node is worked on, or too many links are being opened.
pub(super) fn posting_lease(request: &StreamRequest) -> Result<OwnedMutexGuard<()>, Problem> {
    let posting_lease = request.caller.slot.stream_admission().posting.clone().try_lock_owned();
    let posting_lease = posting_lease.map_err(|_| busy("what was posted before is still worked on", SOON))?;
    if request.plane.hub.held(&request.caller.id).is_none() {
        request.enter()?;
    }
    Ok(posting_lease)
}

/// An exchange with a node, at the control plane.
pub(super) struct NodeExchange {
    pub(super) exchange: Exchange<PlaneLinkHandler>,
    handler: Arc<PlaneLinkHandler>,
    /// The link that it is, as everybody else sees it.
    pub(super) open: RegisteredLink,
    _lease: OwnedMutexGuard<()>,
}

impl NodeExchange {
    /// Begins with frames whose first is a hello.
    ///
    /// # Errors
    /// There is no hello, or why the node gets no link.
    pub(super) async fn begin(
        mut request: Box<StreamRequest>,
        posting_lease: OwnedMutexGuard<()>,
        frames: &[Frame],
    ) -> Result<NodeExchange, GoAway> {
        request.greeted(frames)?;
        let (open, _) = register(&request).await?;
        let (handler, config) = lease(&request, &open.link).await?;
        request.plane.hub.remember(&handler.sets);
        let exchange = Exchange::open(*config, None, handler.clone());
        Ok(NodeExchange { exchange, handler, open, _lease: posting_lease })
    }

    /// Does what operators asked of the node's link, and says it to the node.
    fn take_wants(&mut self) {
        let (index, node) = (self.handler.plane.hub.sync_index(), &self.handler.caller.id);
        let wants = index.update(node, SyncSummary::wants_of_exchange);
        wants.into_iter().for_each(|command| self.exchange.request(command));
    }

    /// Takes frames; gives what there is to say, once what was taken is durable.
    pub(super) async fn step(&mut self, frames: Vec<Frame>) -> FrameBatch {
        self.handler.sets.answered();
        let answer = tokio::time::timeout(ANSWER_WITHIN, self.exchange.step(frames)).await;
        answer.unwrap_or_else(|_| {
            tracing::warn!(node = %self.handler.caller.id, "what a post brought takes too long; it is given up");
            self.handler.sets.abandon();
            let why = away(Code::Busy.as_str(), "what was posted takes too long", SOON);
            FrameBatch { frames: vec![Frame::GoAway(why)], more: false }
        })
    }

    /// Ends it in order.
    pub(super) async fn end(self) -> Ended {
        let ended = self.exchange.end().await;
        drop(self.open);
        self.handler.ended(&ended);
        ended
    }
}

/// Says what there is to say as soon as there is something, until the stream ends. `from` is the
/// node's durable cursor, where the request says it.
pub(super) async fn send_events(
    request: Box<StreamRequest>,
    open: RegisteredLink,
    mut commands: LinkCommands,
    mut writer: Box<dyn FrameWriter>,
    mut from: Option<FeedCursor>,
) {
    let every = request.plane.admission.limits.ping_every;
    let mut notice = None;
    let why = {
        let mut over = std::pin::pin!(over(&open.link, &request.connection));
        loop {
            let next = Box::pin(next_events(&request, &open.link, from.take(), notice.take())).await;
            let (frames, sets) = match next {
                Ok(next) => next,
                Err(why) => break why,
            };
            tokio::select! {
                sent = tokio::time::timeout(SLOW, writer.send(frames)) => if !matches!(sent, Ok(Ok(()))) {
                    break away("lost", "the stream is not read any more", SOON);
                },
                why = &mut over => break why,
            }
            let feed = sets.head();
            tokio::select! {
                // What a post was answered with is no news.
                _ = feed.until(|_| !sets.is_answered()) => {}
                Some(command) = commands.next() => if let LinkCommand::Send(frame) = command {
                    notice = Some(*frame);
                },
                () = tokio::time::sleep(every) => {}
                why = &mut over => break why,
            }
        }
    };
    drop(open);
    super::serve::refuse(writer, why).await;
}

/// An answer to no post: hello, what follows the acknowledged cursor, and a ping,
/// which is answered with a post. With it come the sets.
async fn next_events(
    request: &StreamRequest,
    link: &Arc<NodeLink>,
    from: Option<FeedCursor>,
    notice: Option<Frame>,
) -> Result<(Vec<Frame>, Arc<NodeSync>), GoAway> {
    let (handler, config) = lease(request, link).await?;
    let index = request.plane.hub.sync_index();
    let acked = index.read(&request.caller.id, |summary| summary.acked.clone());
    let sets = handler.sets.clone();
    sets.answered();
    let mut exchange = Exchange::open(*config, from.or(acked), handler.clone());
    notice.into_iter().for_each(|frame| exchange.request(LinkCommand::Send(Box::new(frame))));
    let mut frames = exchange.step(Vec::new()).await.frames;
    handler.count(&exchange.end().await.counters);
    let ping = Ping { head: sets.sets().feed.head(), ..Ping::default() };
    frames.push(Frame::Ping(ping));
    Ok((frames, sets))
}
