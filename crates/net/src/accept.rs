//! Accepting: TLS, HTTP/2, limits, and who is at the other end.
//!
//! Where the TLS configuration offers it, HTTP/1.1 is served too: from a node for the upgrade to a
//! WebSocket, from a proxy for its nodes' requests; handlers see by [`Connection::http1`] what they may
//! answer. What happens to a connection once (its end, an upgrade) is a bit of one [`Signal`].

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1::UpgradeableConnection;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use model::NodeId;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use crate::identity::{self, CertifiedPeer, PeerRole};
use crate::signal::Signal;

/// Bounds of one listener.
#[derive(Clone, Copy, Debug)]
pub struct AcceptLimits {
    /// Connections at once; more wait in the kernel's queue.
    pub connections: usize,
    /// Requests at once on one connection.
    pub streams: u32,
    /// Connections at once of one node.
    pub per_peer: usize,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How long the head of a request over HTTP/1.1 may take, counted from the answer before it.
    pub head: Duration,
    /// TLS handshakes at once; more wait. When a whole fleet comes back, those that are
    /// connected already are not to wait for all who knock.
    pub handshakes: usize,
    /// How long a connection may live; then it is closed between requests, so that
    /// certificates are verified anew.
    pub age: Duration,
    /// The same for a connection without a certificate: enough to enroll over it.
    pub anonymous_age: Duration,
    /// How long a connection may say nothing before it is asked whether it is alive, and
    /// then how long it may take to answer.
    pub keepalive: Duration,
    /// How long requests under way may take to end once a connection is to be closed; a
    /// long poll fits. A peer that never ends them, or never says a word of HTTP/2 in the
    /// first place, would otherwise hold its slot for ever.
    pub ending: Duration,
}

impl AcceptLimits {
    /// Bounds of a listener for proxies: many nodes share a connection, and it idles between them.
    pub fn of_proxies(connections: usize) -> AcceptLimits {
        AcceptLimits { connections, streams: 128, head: Duration::from_secs(120), ..AcceptLimits::default() }
    }
}

impl Default for AcceptLimits {
    fn default() -> AcceptLimits {
        AcceptLimits {
            connections: 16_000,
            streams: 8,
            per_peer: 8,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            handshakes: 64,
            age: Duration::from_secs(3600),
            anonymous_age: Duration::from_secs(60),
            keepalive: Duration::from_secs(120),
            ending: Duration::from_secs(120),
        }
    }
}

/// The longest header block, in bytes.
const MAX_HEADERS: u32 = 16 * 1024;
/// The most headers of a request over HTTP/1.1.
const MAX_HEADERS_HTTP1: usize = 64;
/// What a peer may send on one stream before the handler takes it, in bytes: enough for
/// 2.5 MB/s over 100 ms.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The same for all streams of a connection.
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// What a stream may hold to be sent, in bytes.
const SEND_BUFFER: usize = 64 * 1024;
/// How long one handshake may keep its slot among those that are under way at once.
const INSIDE: Duration = Duration::from_millis(250);
/// How long to wait after accepting failed (no file left, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a handler knows of a connection; in the extensions of every request.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Who is at the other end, by verified certificate.
    pub peer: Option<Arc<CertifiedPeer>>,
    /// From where.
    pub address: SocketAddr,
    /// It speaks HTTP/1.1: from a node only an upgrade to a WebSocket is to be answered.
    pub http1: bool,
    steps: Arc<ConnectionSteps>,
}

/// What happens to a connection once, as a bit of its [`Signal`].
#[derive(Clone, Copy)]
#[repr(u64)]
enum ConnectionStep {
    /// A handler asked for its end.
    Asked = 1,
    /// Streams on it are to end.
    Closing = 2,
    /// It was upgraded.
    Upgraded = 4,
    /// What goes on on it after an upgrade is to be cut.
    Cut = 8,
    /// What went on on it after an upgrade ended.
    UpgradeEnded = 16,
}

/// What became of a connection.
#[derive(Debug, Default)]
struct ConnectionSteps(Signal);

impl ConnectionSteps {
    fn set(&self, step: ConnectionStep) {
        self.0.raise(step as u64);
    }

    fn has(&self, step: ConnectionStep) -> bool {
        self.0.get() & step as u64 != 0
    }

    async fn wait(&self, step: ConnectionStep) {
        self.0.until(|steps| steps & step as u64 != 0).await;
    }
}

impl Connection {
    /// Waits until the connection is to end: it is old, or the server stops. Streams on it
    /// then say goodbye within [`AcceptLimits::ending`], after which they are cut.
    pub async fn closing(&self) {
        self.steps.wait(ConnectionStep::Closing).await;
    }

    /// Waits until an upgraded connection's time is over, whatever goes on on it.
    pub(crate) async fn cut(&self) {
        self.steps.wait(ConnectionStep::Cut).await;
    }

    pub(crate) fn upgrade_began(&self) {
        self.steps.set(ConnectionStep::Upgraded);
    }

    pub(crate) fn upgrade_ended(&self) {
        self.steps.set(ConnectionStep::UpgradeEnded);
    }

    /// At the other end is a proxy that ends the TLS sessions of nodes: what comes is of many
    /// nodes, and each request's own signature says of which (IDN-4).
    pub fn is_proxy(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| matches!(peer.role, PeerRole::Proxy(_)))
    }

    /// Closes the connection once this request is answered: an idle node costs nothing. A proxy's
    /// stays, for other nodes are on it.
    pub fn close_after_answer(&self) {
        if !self.is_proxy() {
            self.steps.set(ConnectionStep::Asked);
        }
    }
}

/// Serves connections until `shutdown` becomes true, then lets requests under way end.
///
/// `handle` must not panic; a connection's failure ends that connection alone.
pub async fn serve<H, F, B>(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    limits: AcceptLimits,
    mut shutdown: watch::Receiver<bool>,
    handle: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let limits = Arc::new(limits);
    let slots = Arc::new(Semaphore::new(limits.connections));
    let door = Arc::new(Semaphore::new(limits.handshakes));
    let peers = Arc::new(Peers::default());
    loop {
        let (slot, accepted) = tokio::select! {
            accepted = accept(&listener, slots.clone()) => match accepted {
                Some(accepted) => accepted,
                None => return,
            },
            () = stopped(&mut shutdown) => return drain(&slots, &limits).await,
        };
        match accepted {
            Ok((stream, address)) => {
                let acceptor = TlsAcceptor::from(tls.borrow().clone());
                let (shutdown, peers, door, limits) =
                    (shutdown.clone(), peers.clone(), door.clone(), limits.clone());
                let one = Box::new(One { stream, address, limits, slot, peers, door, shutdown });
                tokio::spawn(one.run(acceptor, handle.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Waits for room, then for a connection; giving up in the middle loses neither.
async fn accept(
    listener: &TcpListener,
    slots: Arc<Semaphore>,
) -> Option<(OwnedSemaphorePermit, io::Result<(TcpStream, SocketAddr)>)> {
    let slot = slots.acquire_owned().await.ok()?;
    Some((slot, listener.accept().await))
}

/// Waits until a shutdown is asked for; also when nobody is left to ask.
pub async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|stop| *stop).await;
}

/// Waits until the connections have ended, within the bound of a drain.
async fn drain(slots: &Semaphore, limits: &AcceptLimits) {
    const DRAIN: Duration = Duration::from_secs(5);
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(DRAIN, slots.acquire_many(all)).await;
}

struct One {
    stream: TcpStream,
    address: SocketAddr,
    limits: Arc<AcceptLimits>,
    slot: OwnedSemaphorePermit,
    peers: Arc<Peers>,
    door: Arc<Semaphore>,
    shutdown: watch::Receiver<bool>,
}

/// How many permits each node holds, so that one cannot take all there are: of connections here,
/// of requests where many nodes share a connection.
#[derive(Default)]
pub struct Peers(Mutex<HashMap<NodeId, usize>>);

impl Peers {
    /// A permit for a node, until it is dropped; `None` when the node has as many
    /// as it may. Who is no node is not counted.
    pub fn enter(self: Arc<Peers>, node: Option<&NodeId>, limit: usize) -> Option<PeerPermit> {
        let Some(node) = node.cloned() else { return Some(PeerPermit { peers: self, node: None }) };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(node.clone()).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(PeerPermit { peers: self, node: Some(node) })
    }
}

/// A permit that a node holds.
pub struct PeerPermit {
    peers: Arc<Peers>,
    node: Option<NodeId>,
}

impl Drop for PeerPermit {
    fn drop(&mut self) {
        let Some(node) = &self.node else { return };
        let mut counts = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(node) {
            *count -= 1;
            if *count == 0 {
                counts.remove(node);
            }
        }
    }
}

impl One {
    /// Serves the connection. Its parts lie in boxes and are gone when they are over: an idle
    /// connection shall hold little.
    async fn run<H, F, B>(self: Box<One>, acceptor: TlsAcceptor, handle: H)
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        if let Some(met) = Box::pin(self.meet(acceptor)).await {
            met.serve(handle).await;
        }
    }

    /// The handshake, and who it is; `None` when there will be no connection.
    async fn meet(self: Box<One>, acceptor: TlsAcceptor) -> Option<Box<Met>> {
        let One { stream, address, limits, slot, peers, door, shutdown } = *self;
        let _ = stream.set_nodelay(true);
        let mut stop = shutdown.clone();
        let greeted = tokio::select! {
            greeted = tokio::time::timeout(limits.handshake, greet(stream, acceptor, door)) => greeted,
            // Who has said nothing yet holds no stop up.
            () = stopped(&mut stop) => return None,
        };
        let tls = match greeted {
            Ok(Ok(tls)) => Box::new(tls),
            Ok(Err(error)) => {
                tracing::debug!(%address, %error, "a TLS handshake failed");
                return None;
            }
            Err(_) => {
                tracing::debug!(%address, "a TLS handshake took too long");
                return None;
            }
        };
        let connection = connection(&tls, address)?;
        let node = match connection.peer.as_deref().map(|peer| &peer.role) {
            Some(PeerRole::Node { id, .. }) => Some(id),
            Some(PeerRole::Operator(_) | PeerRole::Proxy(_)) | None => None,
        };
        let Some(permit) = peers.enter(node, limits.per_peer) else {
            tracing::warn!(%address, "a node has too many connections; this one is closed");
            return None;
        };
        Some(Box::new(Met { tls, connection, limits, shutdown, _permit: permit, _slot: slot }))
    }
}

/// A connection that has begun.
struct Met {
    tls: Box<TlsStream<TcpStream>>,
    connection: Connection,
    limits: Arc<AcceptLimits>,
    shutdown: watch::Receiver<bool>,
    _permit: PeerPermit,
    _slot: OwnedSemaphorePermit,
}

impl Met {
    async fn serve<H, F, B>(mut self: Box<Met>, handle: H)
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let (limits, steps) = (&self.limits, &self.connection.steps);
        let age = if self.connection.peer.is_some() { limits.age } else { limits.anonymous_age };
        let wanted = std::pin::pin!(wanted(steps, age, &mut self.shutdown));
        // Boxed, as a connection has room for the longest of what it waits for.
        let ended = if self.connection.http1 {
            let service = service(self.connection.clone(), handle);
            let http = http1_builder(limits).serve_connection(TokioIo::new(self.tls), service);
            let http = Box::pin(of_http1(http.with_upgrades(), steps.clone()));
            let ended = Box::pin(run_to_completion(http, wanted, limits.ending, |_| {})).await;
            steps.set(ConnectionStep::Cut);
            ended
        } else {
            let http = {
                let service = service(self.connection.clone(), handle);
                Box::pin(builder(limits).serve_connection(TokioIo::new(self.tls), service))
            };
            run_to_completion(http, wanted, limits.ending, |http| http.graceful_shutdown()).await
        };
        let address = self.connection.address;
        match ended {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::debug!(%address, %error, "a connection ended"),
            None => tracing::debug!(%address, "a connection did not end by itself"),
        }
    }
}

/// Answers the requests of a connection.
fn service<H, F, B>(
    connection: Connection,
    handle: H,
) -> impl HttpService<Incoming, ResBody = B, Error = Infallible, Future: Send>
where
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body,
{
    service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(connection.clone());
        // In a box of its own: the task of a stream lives on with its body, when what made the
        // answer is long over.
        let answer = Box::pin(handle(request));
        async move { Ok::<_, Infallible>(answer.await) }
    })
}

/// A TLS handshake. Who says nothing waits outside the door, and who stops in the middle does
/// not keep others out for long.
async fn greet(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    door: Arc<Semaphore>,
) -> io::Result<TlsStream<TcpStream>> {
    let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
    // Nobody closes the door.
    let inside = door.acquire().await;
    let mut handshake = std::pin::pin!(hello.into_stream(acceptor.config().clone()));
    match tokio::time::timeout(INSIDE, handshake.as_mut()).await {
        Ok(done) => done,
        Err(_) => {
            drop(inside);
            handshake.await
        }
    }
}

/// What handlers know of a connection.
fn connection(tls: &TlsStream<TcpStream>, address: SocketAddr) -> Option<Connection> {
    let session = tls.get_ref().1;
    let peer = session.peer_certificates().and_then(|chain| chain.first());
    let peer = peer.and_then(|cert| identity::read(cert).ok()).map(Arc::new);
    let http1 = match session.alpn_protocol() {
        // A proxy that names no protocol means HTTP/1.1, as nginx does.
        None => matches!(peer.as_deref(), Some(CertifiedPeer { role: PeerRole::Proxy(_), .. })),
        Some(protocol) => protocol == crate::tls::HTTP1,
    };
    Some(Connection { peer, address, http1, steps: Arc::default() })
}

/// Waits for a reason to close.
async fn wanted(steps: &ConnectionSteps, age: Duration, shutdown: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = steps.wait(ConnectionStep::Asked) => {}
        () = tokio::time::sleep(age) => {}
        () = stopped(shutdown) => {}
    }
    steps.set(ConnectionStep::Closing);
}

/// Runs a connection to its end, and closes it once that is wanted; `None` when it had to be cut
/// some time later. What is handed on lies elsewhere: it would take its room anew at every step.
async fn run_to_completion<C: Future>(
    mut http: Pin<Box<C>>,
    wanted: impl Future<Output = ()> + Unpin,
    within: Duration,
    close: impl FnOnce(Pin<&mut C>),
) -> Option<C::Output> {
    tokio::select! {
        ended = http.as_mut() => Some(ended),
        () = wanted => {
            close(http.as_mut());
            // Few of the connections end at a time.
            Box::pin(tokio::time::timeout(within, http)).await.ok()
        }
    }
}

/// A connection over HTTP/1.1, where what follows an upgrade belongs to it.
async fn of_http1<I, S, B>(
    http: UpgradeableConnection<I, S>,
    steps: Arc<ConnectionSteps>,
) -> hyper::Result<()>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut http = std::pin::pin!(http);
    let ended = tokio::select! {
        ended = http.as_mut() => ended,
        () = steps.wait(ConnectionStep::Closing) => {
            http.as_mut().graceful_shutdown();
            http.await
        }
    };
    if steps.has(ConnectionStep::Upgraded) {
        steps.wait(ConnectionStep::UpgradeEnded).await;
    }
    ended
}

fn builder(limits: &AcceptLimits) -> hyper::server::conn::http2::Builder<TokioExecutor> {
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(MAX_HEADERS)
        // A node's stream is one request, and a check-in's connection ends with its answer: little comes
        // again, and what is remembered is held by every idle stream.
        .header_table_size(0)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        // What nodes need to know of the time is in the answers.
        .auto_date_header(false)
        .keep_alive_interval(limits.keepalive)
        .keep_alive_timeout(limits.keepalive);
    builder
}

fn http1_builder(limits: &AcceptLimits) -> hyper::server::conn::http1::Builder {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(MAX_HEADERS as usize)
        .max_headers(MAX_HEADERS_HTTP1);
    builder
}
