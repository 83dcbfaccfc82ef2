//! A link over a stream, from its request to its end, over each transport.
//!
//! ```text
//! subscribe, websocket --> hello --> register --> lease --> run_link --> end
//! sse ---------------------------->  register --> send_events (posted.rs)
//!                                    one node: judged one by one; the link before ends first
//! ```
//!
//! Invariant: the holder of the lease alone runs a link over the node's sets; operators' edits need none.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming as Body;
use model::replication::TransportKind;
use net::accept::Connection;
use net::websocket::{self as ws, SocketBounds};
use streams::grpc::{GrpcReader, GrpcWriter};
use streams::open::INSTANCE;
use streams::sse::SseWriter;
use streams::task::{Ended, LinkTransport, run_link};
use streams::{FrameReader, FrameWriter, LinkCommand, LinkCommands};
use sync::admission::Permits;
use sync::frame::{CloseReason, GoAway};
use sync::link::LinkConfig;
use sync::{Frame, Role};
use tokio::time::Instant;
use wire::cloudevents::{MAX_DOWN, MAX_UP, Origin};
use wire::headers::{PROTOCOL, PROTOCOL_HEADER};
use wire::{Code, Problem, grpc, sse as events};

use super::admission::StreamAdmission;
use super::handler::PlaneLinkHandler;
use super::posted::send_events;
use super::rpc::read_first;
use crate::answer::{PortReply, chain};
use crate::hub::NodeLink;
use crate::node_port::{CallingNode, note_copied};
use crate::objects;
use crate::state::{ControlPlane, now};

/// The other side must say hello within this.
pub(super) const HELLO_WITHIN: Duration = Duration::from_secs(15);
/// How long the requests before are waited for to be judged, and the link before to end.
const TURN_WITHIN: Duration = Duration::from_secs(20);
/// How long a link that is to end may take for it.
const END_WITHIN: Duration = Duration::from_secs(15);
/// The longest name of an instance of the agent, in bytes.
const MAX_INSTANCE: usize = 128;
/// How soon a stream request that could not be served now may be sent again, in seconds.
const AGAIN: u64 = 5;
/// How soon a request against which nothing stands may come again, in seconds.
pub(super) const SOON: u64 = 1;
/// How soon a second agent under one identity may try again, in seconds.
const DUPLICATE_RETRY: u64 = 300;

/// What is to be served.
pub(super) struct StreamRequest {
    pub(super) plane: Arc<ControlPlane>,
    pub(super) caller: CallingNode,
    pub(super) connection: Connection,
    pub(super) transport: TransportKind,
    /// The instance of the agent, where it is known; never empty.
    pub(super) instance: Option<Arc<str>>,
}

impl StreamRequest {
    pub(super) fn new(
        plane: &Arc<ControlPlane>,
        caller: CallingNode,
        connection: Connection,
        transport: TransportKind,
    ) -> Box<StreamRequest> {
        let plane = plane.clone();
        Box::new(StreamRequest { plane, caller, connection, transport, instance: None })
    }

    /// Takes a place in the line of the requests for links: for a link, and for a post for which the node's
    /// sets are to be loaded.
    pub(super) fn enter(&self) -> Result<(), Problem> {
        let entered = self.plane.admission.enter(self.caller.slot.stream_admission());
        entered.map_err(|wait| busy("too many links are being opened", wait.as_secs().saturating_add(1)))
    }

    pub(super) fn origin(&self) -> Origin {
        Origin::principal(&self.plane.request_id())
    }

    pub(super) fn source(&self) -> String {
        self.caller.slot.lock().node.hostname.to_string()
    }

    /// The hello with which its frames begin says whose they are.
    ///
    /// # Errors
    /// They begin with something else.
    pub(super) fn greeted(&mut self, frames: &[Frame]) -> Result<(), GoAway> {
        let Some(Frame::Hello(hello)) = frames.first() else {
            return Err(away("no-hello", "a link begins with a hello", SOON));
        };
        self.instance = (!hello.instance.is_empty()).then(|| hello.instance.as_str().into());
        Ok(())
    }
}

/// A request that may come again after so many seconds.
pub(super) fn busy(detail: &str, retry_after_secs: u64) -> Problem {
    let mut problem = Problem::new(Code::Busy, detail);
    problem.retry_after_secs = Some(retry_after_secs);
    problem
}

/// `POST /muster.v1.EventStream/Subscribe`.
pub(crate) fn subscribe(
    plane: &Arc<ControlPlane>,
    caller: CallingNode,
    connection: Connection,
    request: Request<Body>,
) -> Result<PortReply, Problem> {
    let agreed = grpc::agree(request.headers())?;
    let stream = StreamRequest::new(plane, caller, connection, TransportKind::Grpc);
    stream.enter()?;
    let (pipe, response) = super::rpc::stream(agreed.outgoing_gzip);
    let chunks = request.into_body();
    let reader = GrpcReader::new(chunks, agreed.incoming_gzip, MAX_UP, stream.source());
    let writer = GrpcWriter::new(pipe, stream.origin(), agreed.outgoing_gzip);
    tokio::spawn(streamed(stream, Box::new(reader), Box::new(writer)));
    Ok(response)
}

/// `GET /v1/agent/stream` over HTTP/1.1: a WebSocket.
pub(crate) fn websocket(
    plane: &Arc<ControlPlane>,
    caller: CallingNode,
    connection: Connection,
    mut request: Request<Body>,
) -> Result<PortReply, Problem> {
    let bounds = SocketBounds { read: MAX_UP, write: MAX_DOWN };
    let (response, upgrade) = ws::accept(&mut request, bounds)
        .map_err(|error| Problem::new(Code::UpgradeRequired, error.to_string()))?;
    let stream = StreamRequest::new(plane, caller, connection, TransportKind::Websocket);
    stream.enter()?;
    tokio::spawn(Box::pin(async move {
        match upgrade.socket().await {
            Ok(socket) => {
                let (origin, source) = (stream.origin(), stream.source());
                let (reader, writer) = streams::websocket::halves(socket, origin, true, MAX_UP, source);
                streamed(stream, Box::new(reader), Box::new(writer)).await;
            }
            Err(error) => tracing::debug!(%error, "an upgrade did not come about"),
        }
    }));
    let mut response = response.map(|()| bytes::Bytes::new().into());
    response.headers_mut().insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    Ok(response)
}

/// `GET /v1/agent/stream` over HTTP/2: server-sent events. Frames up are posted.
pub(crate) fn sse(
    plane: &Arc<ControlPlane>,
    caller: CallingNode,
    connection: Connection,
    head: &http::request::Parts,
) -> Result<PortReply, Problem> {
    let mut stream = StreamRequest::new(plane, caller, connection, TransportKind::Sse);
    stream.enter()?;
    let last = head.headers.get(events::LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    let from = last.and_then(events::read_cursor);
    stream.instance = head.uri.query().and_then(instance_in_query);
    let (pipe, parts) = net::stream::channel(bytes::Bytes::new());
    let writer = Box::new(SseWriter::new(pipe, stream.origin()));
    tokio::spawn(Box::pin(async move {
        match register(&stream).await {
            Ok((open, commands)) => send_events(stream, open, commands, writer, from).await,
            Err(why) => refuse(writer, why).await,
        }
    }));
    let mut response = Response::new(parts);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(events::CONTENT));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    Ok(response)
}

/// The instance of the agent as a signed query says it: events go down before a hello
/// comes up.
fn instance_in_query(query: &str) -> Option<Arc<str>> {
    let instance = query.split('&').find_map(|pair| pair.strip_prefix(INSTANCE)?.strip_prefix('='))?;
    (!instance.is_empty() && instance.len() <= MAX_INSTANCE).then(|| instance.into())
}

/// Serves a link over a transport of two ways. An idle link shall hold little: what opens it lies in a
/// box, and is gone once it runs.
async fn streamed(request: Box<StreamRequest>, reader: Box<dyn FrameReader>, writer: Box<dyn FrameWriter>) {
    if let Some(link) = Box::pin(open(request, reader, writer)).await {
        link.run().await;
    }
}

/// Opens a link: its first frame names the instance of the agent. `None` when there will be none.
async fn open(
    mut request: Box<StreamRequest>,
    mut reader: Box<dyn FrameReader>,
    writer: Box<dyn FrameWriter>,
) -> Option<Box<RunningLink>> {
    let begun = async {
        let first = read_first(&mut *reader).await?;
        Ok((begin(&mut request, &first).await?, first))
    };
    match begun.await {
        Ok(((open, commands, (handler, config)), first)) => {
            let (ends, feed) = (LinkTransport { reader, writer }, handler.sets.head());
            let running = Box::pin(run_link(*config, handler.clone(), ends, first, feed, commands));
            let connection = request.connection.clone();
            Some(Box::new(RunningLink { open, handler, connection, running }))
        }
        Err::<_, GoAway>(why) => {
            tracing::info!(node = %request.caller.id, why.code, why.message, "a link is not begun");
            refuse(writer, why).await;
            None
        }
    }
}

/// The link of a request in the registry; dropping it takes it out.
pub(super) struct RegisteredLink {
    plane: Arc<ControlPlane>,
    began: Instant,
    pub(super) link: Arc<NodeLink>,
}

impl Drop for RegisteredLink {
    fn drop(&mut self) {
        self.plane.hub.sync_index().link_closed(&self.link);
        self.plane.metrics.link_closed(self.link.transport, self.began.elapsed());
    }
}

/// The end of a link that may run, and what it is made with: in a box, for which the task of a link has
/// room.
pub(super) type Leased = (Arc<PlaneLinkHandler>, Box<LinkConfig>);

pub(super) fn away(code: &str, message: &str, retry_after: impl Into<Option<u64>>) -> GoAway {
    GoAway { code: code.to_owned(), message: message.to_owned(), retry_after: retry_after.into() }
}

/// Takes the place of the link before and waits until that one has ended, or a newer one takes this place.
async fn begin(
    request: &mut StreamRequest,
    first: &[Frame],
) -> Result<(RegisteredLink, LinkCommands, Leased), GoAway> {
    request.greeted(first)?;
    let (open, commands) = register(request).await?;
    let leased = tokio::select! {
        leased = lease(request, &open.link) => leased?,
        why = open.link.ending() => return Err(why),
    };
    Ok((open, commands, leased))
}

/// Waits for the requests and the link of the node before.
async fn in_turn<T>(before: impl Future<Output = T>) -> Result<T, GoAway> {
    let ended = tokio::time::timeout(TURN_WITHIN, before).await;
    ended.map_err(|_| away("busy", "the link before did not end", AGAIN))
}

/// Judges the request, and takes the place of the link before.
pub(super) async fn register(request: &StreamRequest) -> Result<(RegisteredLink, LinkCommands), GoAway> {
    let admission = request.caller.slot.stream_admission();
    let _one = in_turn(admission.judging.lock()).await?;
    // Known since before, or seen now: neither of two holders gets a link until an operator decides.
    if request.caller.is_alone().is_err() || is_duplicate_agent(request, admission).await {
        let message = "another agent holds this node's identity";
        return Err(away(Code::DuplicateIdentity.as_str(), message, DUPLICATE_RETRY));
    }
    let (plane, transport, instance) = (&request.plane, request.transport, &request.instance);
    if let Some(instance) = instance {
        admission.opened_by(instance, transport);
    }
    let (link, commands) = NodeLink::new(request.caller.id.clone(), transport, instance.clone(), now());
    let link = Arc::new(link);
    let replaced = plane.hub.sync_index().link_opened(&link);
    let removed = |_| away("removed", "the node was removed from the fleet", DUPLICATE_RETRY);
    plane.metrics.link_opened(transport, replaced.map_err(removed)?.is_some());
    Ok((RegisteredLink { plane: plane.clone(), began: Instant::now(), link }, commands))
}

/// Waits until the link before has ended; from then on this one alone works on the node's sets.
pub(super) async fn lease(request: &StreamRequest, link: &Arc<NodeLink>) -> Result<Leased, GoAway> {
    let (plane, node) = (&request.plane, &request.caller.id);
    let lease = in_turn(request.caller.slot.stream_admission().lease.clone().lock_owned()).await?;
    let sets = plane.hub.node(node).await.map_err(|error| {
        tracing::warn!(%node, %error, "the node's sets cannot be loaded");
        away(Code::Internal.as_str(), "the node's sets cannot be loaded", AGAIN)
    })?;
    // The mode and kinds of the release that the node is pointed to.
    let rules = Box::pin(objects::policy(plane, &request.caller.slot)).await;
    let rules = rules.inspect(|rules| drop(link.rules.set(rules.clone()))).unwrap_or_else(|error| {
        tracing::warn!(%node, %error, "what the release grants cannot be read");
        Arc::default()
    });
    let limits = plane.admission.limits.clone();
    let mut config = LinkConfig::under(&rules, Role::Principal, plane.boot(), limits);
    config.proofs = plane.hub.signing.proofs(node);
    Ok((PlaneLinkHandler::new(request, link, sets, lease), Box::new(config)))
}

/// A link that runs in a task of its own.
struct RunningLink {
    open: RegisteredLink,
    handler: Arc<PlaneLinkHandler>,
    connection: Connection,
    running: Pin<Box<dyn Future<Output = Ended> + Send>>,
}

impl RunningLink {
    /// Runs the link until it ends; ends it when it has to, or when its connection is to.
    async fn run(mut self: Box<Self>) {
        let mut closing = false;
        let ended = loop {
            let entry = &self.handler.link;
            tokio::select! {
                ended = &mut self.running => break Some(ended),
                () = self.connection.closing(), if !closing => {
                    closing = true;
                    entry.commands.try_send(LinkCommand::Shutdown);
                }
                why = entry.ending() => break Box::pin(self.end(why)).await,
            }
        };
        drop(self.open);
        if let Some(ended) = ended {
            self.handler.ended(&ended);
        }
    }

    /// Ends the link, however much it has to do; `None` when it had to be given up.
    async fn end(&mut self, why: GoAway) -> Option<Ended> {
        let handler = &self.handler;
        let notified = handler.link.commands.send(LinkCommand::GoAway(Box::new(why)));
        let ended = async { tokio::join!(notified, &mut self.running).1 };
        let ended = tokio::time::timeout(END_WITHIN, ended).await.ok();
        if ended.is_none() {
            tracing::warn!(node = %handler.link.node, "a link did not end in time; it is given up");
            handler.sets.abandon();
            Permits::give_back(&**handler);
        }
        ended
    }
}

/// Waits until a link is to end that runs in no task of its own: it has to, or its connection is to.
pub(super) async fn over(link: &NodeLink, connection: &Connection) -> GoAway {
    tokio::select! {
        why = link.ending() => why,
        () = connection.closing() => away(CloseReason::SHUTDOWN, "the connection is to end", SOON),
    }
}

/// Whether this request is of a second agent under the node's identity (IDN-10): the node's link is
/// alive, and of another process; or this process was replaced before. A request that does not name
/// its process is a second one's as long as the link before is alive.
async fn is_duplicate_agent(request: &StreamRequest, admission: &StreamAdmission) -> bool {
    let (node, instance) = (&request.caller.id, &request.instance);
    let old = request.plane.hub.sync_index().link(node);
    if instance.is_some() && old.as_ref().is_some_and(|old| old.instance == *instance) {
        return false;
    }
    let replaced = (old.is_some() || admission.has_recent_post())
        && instance.as_ref().is_some_and(|instance| admission.was_replaced(instance));
    let alive = match old {
        Some(old) if !replaced => old.is_alive().await,
        _ => replaced,
    };
    if alive {
        let newly = request.caller.slot.lock().node.is_copied(now());
        if let Some(at) = newly
            && let Err(error) = note_copied(&request.plane, &request.caller, at).await
        {
            // The next contact of either says it again.
            tracing::warn!(%node, error = %chain(&error), "that two agents use one identity is not kept");
        }
    }
    alive
}

/// Says to the node why it gets no link, or no longer has one.
pub(super) async fn refuse(mut writer: Box<dyn FrameWriter>, why: GoAway) {
    let last_words = async {
        let _ = writer.send(vec![Frame::GoAway(why)]).await;
        writer.finish().await;
    };
    let _ = tokio::time::timeout(END_WITHIN, last_words).await;
}
