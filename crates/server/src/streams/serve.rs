//! The life of one link, from its opening to its end, over each transport.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming as Body;
use model::replication::SyncPolicy;
use net::accept::Connection;
use net::websocket::{self as ws, Bounds};
use streams::drive::{Ended, Ends, drive};
use streams::grpc::{GrpcIncoming, GrpcOutgoing, RequestChunks, ResponsePipe};
use streams::sse::SseOutgoing;
use streams::{Incoming, Order, Outgoing};
use sync::frame::Hello;
use sync::link::{Link, LinkConfig};
use sync::{Frame, Mode, Role};
use tokio::sync::{mpsc, oneshot};
use wire::cloudevents::{MAX_DOWN, MAX_UP, Origin};
use wire::headers::{PROTOCOL, PROTOCOL_HEADER};
use wire::{Code, Problem, grpc, sse as events};

use super::shore::PlaneShore;
use crate::answer::Reply;
use crate::body::ReplyBody;
use crate::hub::{Carrier, OpenLink};
use crate::node_port::Caller;
use crate::state::ControlPlane;

/// Chunks of a response that may wait for the connection.
const DEPTH: usize = 2;
/// The other side must say hello within this.
const HELLO_WITHIN: Duration = Duration::from_secs(15);
/// How long the link before is waited for to end.
const SEAT_WITHIN: Duration = Duration::from_secs(20);
/// How soon a second agent under one identity may try again, in seconds.
const DUPLICATE_RETRY: u64 = 300;
/// The control plane's own pings: later than those of nodes, whose answers make them needless.
const PING_EVERY: Duration = Duration::from_secs(60);
/// A link whose frames are posted ends after so long a silence.
const POSTED_SILENCE: Duration = Duration::from_secs(30);
/// How long a poll's connection may be silent under server-sent events.
const SSE_SILENCE: Duration = Duration::from_secs(100);

/// What is to be served.
pub(super) struct Opening {
    pub(super) plane: Arc<ControlPlane>,
    pub(super) caller: Caller,
    pub(super) connection: Connection,
    pub(super) carrier: Carrier,
    pub(super) number: u64,
    /// Where the node says that it has our feed, before it says hello.
    pub(super) assumed: Option<model::log::Cursor>,
}

impl Opening {
    /// Takes a place in the line of those who open links.
    pub(super) fn enter(
        plane: &Arc<ControlPlane>,
        caller: Caller,
        connection: Connection,
        carrier: Carrier,
    ) -> Result<Opening, Problem> {
        if let Err(wait) = plane.links.enter() {
            let mut problem = Problem::new(Code::Busy, "too many links are being opened");
            problem.retry_after_secs = Some(wait.as_secs().saturating_add(1));
            return Err(problem);
        }
        let number = plane.links.number();
        Ok(Opening { plane: plane.clone(), caller, connection, carrier, number, assumed: None })
    }

    pub(super) fn origin(&self) -> Origin {
        Origin::principal(&format!("{}-{}", self.plane.boot(), self.number))
    }

    fn source(&self) -> String {
        self.caller.slot.lock().node.hostname.to_string()
    }
}

/// `POST /muster.v1.EventStream/Subscribe`.
pub(crate) fn subscribe(
    plane: &Arc<ControlPlane>,
    caller: Caller,
    connection: Connection,
    request: Request<Body>,
) -> Result<Reply, Problem> {
    let agreed = grpc::agree(request.headers())?;
    let opening = Opening::enter(plane, caller, connection, Carrier::Grpc)?;
    let (parts, taken) = mpsc::channel(DEPTH);
    let chunks = RequestChunks(request.into_body());
    let incoming = GrpcIncoming::new(chunks, agreed.incoming_gzip, MAX_UP, opening.source());
    let outgoing = GrpcOutgoing::new(ResponsePipe(parts), opening.origin(), agreed.outgoing_gzip);
    tokio::spawn(Box::pin(streamed(opening, Box::new(incoming), Box::new(outgoing))));
    let trailers = Some(grpc::Status::ok().headers());
    let mut response = Response::new(ReplyBody::Parts { parts: taken, trailers });
    grpc::announce(response.headers_mut(), agreed.outgoing_gzip);
    response.headers_mut().insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    Ok(response)
}

/// `GET /v1/agent/stream` over HTTP/1.1: a WebSocket.
pub(crate) fn websocket(
    plane: &Arc<ControlPlane>,
    caller: Caller,
    connection: Connection,
    mut request: Request<Body>,
) -> Result<Reply, Problem> {
    let bounds = Bounds { read: MAX_UP, write: MAX_DOWN };
    let (response, upgrade) = ws::accept(&mut request, bounds)
        .map_err(|error| Problem::new(Code::UpgradeRequired, error.to_string()))?;
    let opening = Opening::enter(plane, caller, connection, Carrier::Websocket)?;
    tokio::spawn(Box::pin(async move {
        match upgrade.socket().await {
            Ok(socket) => {
                let (origin, source) = (opening.origin(), opening.source());
                let (incoming, outgoing) = streams::websocket::ends(socket, origin, true, MAX_UP, source);
                streamed(opening, Box::new(incoming), Box::new(outgoing)).await;
            }
            Err(error) => tracing::debug!(%error, "an upgrade did not come about"),
        }
    }));
    Ok(response.map(|()| bytes::Bytes::new().into()))
}

/// `GET /v1/agent/stream` over HTTP/2: server-sent events. Frames up are posted.
pub(crate) fn sse(
    plane: &Arc<ControlPlane>,
    caller: Caller,
    connection: Connection,
    request: &Request<Body>,
) -> Result<Reply, Problem> {
    let mut opening = Opening::enter(plane, caller, connection, Carrier::Sse)?;
    let last = request.headers().get(events::LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    opening.assumed = last.and_then(events::read_cursor);
    let (parts, taken) = mpsc::channel(DEPTH);
    let outgoing = SseOutgoing::new(parts, opening.origin());
    let session = plane.links.sessions.id(plane, opening.number);
    let id = session.clone();
    tokio::spawn(Box::pin(async move {
        let ends = Ends { incoming: None, outgoing: Some(Box::new(outgoing)) };
        linked(opening, ends, Vec::new(), None, Some(session)).await;
    }));
    let mut response = Response::new(ReplyBody::Parts { parts: taken, trailers: None });
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(events::CONTENT));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    if let Ok(id) = HeaderValue::try_from(id) {
        headers.insert(super::posted::LINK_HEADER, id);
    }
    Ok(response)
}

/// A link over a transport of two ways: its first frame says who speaks.
async fn streamed(opening: Opening, mut incoming: Box<dyn Incoming>, outgoing: Box<dyn Outgoing>) {
    let node = opening.caller.id.clone();
    let first = match tokio::time::timeout(HELLO_WITHIN, incoming.next()).await {
        Ok(Ok(Some(first))) => first,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => return tracing::info!(%node, error = %crate::answer::chain(&error), "no hello"),
        Err(_) => return tracing::info!(%node, "no hello in time"),
    };
    let ends = Ends { incoming: Some(incoming), outgoing: Some(outgoing) };
    linked(opening, ends, first, None, None).await;
}

/// Runs a link to its end. `posts` are orders for it that came before it began.
pub(super) async fn linked(
    opening: Opening,
    ends: Ends,
    first: Vec<Frame>,
    post: Option<Order>,
    session: Option<String>,
) {
    let (plane, node, carrier) = (opening.plane.clone(), opening.caller.id.clone(), opening.carrier);
    let hello = first.iter().find_map(|frame| match frame {
        Frame::Hello(hello) => Some(hello.as_ref()),
        _ => None,
    });
    let instance = hello.map_or_else(String::new, |hello| hello.instance.clone());
    if let Some(hello) = hello
        && is_second(&plane, &opening, hello).await
    {
        return second(ends).await;
    }
    let sets = match plane.hub.node(&node).await {
        Ok(sets) => sets,
        Err(error) => return tracing::warn!(%node, %error, "the node's sets cannot be loaded"),
    };
    let open = plane.hub.open(&node, carrier, &instance);
    if let Some(replaced) = open.replaced.as_ref().filter(|old| old.instance != instance) {
        plane.links.replace(&node, &replaced.instance);
    }
    let seat = sets.seat.clone();
    let Ok(_seat) = tokio::time::timeout(SEAT_WITHIN, seat.lock_owned()).await else {
        return tracing::warn!(%node, "the link before did not end; this one is given up");
    };
    // Whoever held the seat before may have left memory behind the store.
    let sets = match plane.hub.node(&node).await {
        Ok(sets) => sets,
        Err(error) => return tracing::warn!(%node, %error, "the node's sets cannot be loaded"),
    };
    let link = Link::new(config(&opening).await, model::Timestamp(0));
    let (entry, wants) = (open.link.clone(), open.wants);
    if wants.resync {
        entry.tell(Order::Resync);
    }
    if wants.approve {
        entry.tell(Order::Approve);
    }
    let shore = PlaneShore::new(plane.clone(), opening.caller, sets.clone(), entry.clone());
    let shore = Arc::new(shore);
    if let Some(post) = post {
        entry.tell(post);
    }
    if let Some(session) = &session {
        plane.links.sessions.put(&node, session, entry.clone());
    }
    plane.metrics.link_opened(carrier, open.replaced.is_some());
    let (watch, began) = (sets.watch(), tokio::time::Instant::now());
    let ended = run(link, shore.clone(), ends, first, watch, open, opening.connection).await;
    if let Some(session) = &session {
        plane.links.sessions.take(&node, session);
    }
    plane.metrics.link_closed(carrier, began.elapsed());
    shore.count(&ended.counters);
    log_end(&node, carrier, &ended, shore.check_ins());
}

/// Drives the link until it ends, or its connection is to.
async fn run(
    link: Link,
    shore: Arc<PlaneShore>,
    ends: Ends,
    first: Vec<Frame>,
    watch: tokio::sync::watch::Receiver<u64>,
    mut open: OpenLink,
    connection: Connection,
) -> Ended {
    let (entry, orders) = (open.link.clone(), open.take_orders());
    let posted = ends.outgoing.is_none();
    let driven = drive(link, shore, ends, first, watch, orders);
    tokio::pin!(driven);
    // A link whose frames are posted does not end with one of its connections.
    tokio::select! {
        ended = &mut driven => ended,
        () = connection.closing(), if !posted => {
            entry.tell(Order::Shutdown);
            driven.await
        }
    }
}

fn log_end(node: &model::NodeId, carrier: Carrier, ended: &Ended, check_ins: u64) {
    let (code, message, counters) = (&ended.code, &ended.message, &ended.counters);
    let error = ended.error.as_ref().map(|error| crate::answer::chain(error));
    tracing::debug!(
        %node, carrier = carrier.as_str(), code, message, error,
        sent = counters.sent, received = counters.received, check_ins, "a link ended"
    );
}

/// What the link is made with: the mode and kinds of the release that the node is pointed to.
async fn config(opening: &Opening) -> LinkConfig {
    let instance = opening.plane.boot();
    let mut config = LinkConfig::new(Role::Principal, Mode::Off, instance, Vec::new());
    if let Some(policy) = policy(opening).await {
        config.mode = policy.mode;
        config.kinds = policy.kinds.iter().map(|kind| model::Kind::new(kind)).collect();
        config.max_delete_percent = policy.max_delete_percent;
    }
    config.assumed.clone_from(&opening.assumed);
    match opening.carrier {
        Carrier::Poll => config.limits.dead_after = POSTED_SILENCE,
        Carrier::Sse => config.limits.dead_after = SSE_SILENCE,
        Carrier::Grpc | Carrier::Websocket => config.limits.ping_every = PING_EVERY,
    }
    config
}

/// What the release that the node is pointed to says of synchronization.
async fn policy(opening: &Opening) -> Option<Arc<SyncPolicy>> {
    let (plane, heads) = (&opening.plane, opening.plane.heads());
    let root = opening.caller.slot.lock().node.pointed(&heads).map(|(_, entry)| entry.root)?;
    match plane.grants.of(&root).await {
        Ok(granted) => granted.and_then(|granted| granted.sync.clone()),
        Err(error) => {
            tracing::warn!(node = %opening.caller.id, %error, "what the release grants cannot be read");
            None
        }
    }
}

/// Whether this hello is of a second agent under the node's identity (IDN-10): the link that
/// there is lives, and is of another process; or this process was replaced before.
async fn is_second(plane: &Arc<ControlPlane>, opening: &Opening, hello: &Hello) -> bool {
    let node = &opening.caller.id;
    let Some(old) = plane.hub.lights().get(node).link else { return false };
    if old.instance == hello.instance {
        return false;
    }
    let alive = plane.links.was_replaced(node, &hello.instance) || lives(&old).await;
    if alive {
        plane.hub.duplicate(node, true);
        let hostname = opening.source();
        tracing::error!(%node, hostname, "two agents use one identity; the second one is refused");
    }
    alive
}

async fn lives(link: &crate::hub::NodeLink) -> bool {
    // What is posted has nobody at the other end between two posts.
    if link.carrier == Carrier::Poll {
        return false;
    }
    let (answer, heard) = oneshot::channel();
    link.tell(Order::Probe(answer)) && heard.await.unwrap_or(false)
}

/// Tells a second agent why it gets nothing.
async fn second(ends: Ends) {
    let away = sync::frame::GoAway {
        code: Code::DuplicateIdentity.as_str().to_owned(),
        message: "another agent holds a link under this node's identity".to_owned(),
        retry_after: Some(DUPLICATE_RETRY),
    };
    if let Some(mut outgoing) = ends.outgoing {
        let _ = outgoing.send(vec![Frame::GoAway(away)]).await;
        outgoing.finish().await;
    }
}
