//! Accepting: TLS, HTTP/2, limits, and who is at the other end.
//!
//! Where the TLS configuration offers it, HTTP/1.1 is served too: from a node for the upgrade to a
//! WebSocket, from a proxy for its nodes' requests; handlers see by [`Connection::http1`] what they may
//! answer. What happens to a connection once (its end, an upgrade) is a bit of one [`Signal`].

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1::UpgradeableConnection;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use crate::answer::{self, AnswerBody, AnswerLimits};
pub use crate::connection::Connection;
use crate::connection::{ConnectionStep, ConnectionSteps};
use crate::gate::{self, AdmissionGate, ConnectionSlot, GateAnswer};
use crate::identity::{self, CertifiedPeer, PeerRole};
use crate::peers::{PeerPermit, Peers};
use crate::prefix_journal::PrefixJournal;
use crate::proxy_protocol::{self, Balancers, HEADER_WITHIN, HEADERS_AT_ONCE};
use crate::revoked::RevokedCertificates;

/// Bounds of one listener, and whom it believes about addresses.
#[derive(Clone, Debug)]
pub struct AcceptLimits {
    /// Connections at once. When there are as many, those that have not authenticated give way, and
    /// half of the places are kept for addresses of which somebody did ([`crate::admission`]); when all
    /// authenticated, more wait in the kernel's queue.
    pub connections: usize,
    /// Requests at once on one connection.
    pub streams: u32,
    /// Connections at once of one node.
    pub per_peer: usize,
    /// How long the first message of a TLS handshake may take, and then the rest, counted from when it
    /// is its turn.
    pub handshake: Duration,
    /// How long a connection may wait for the turn of its handshake.
    pub turn: Duration,
    /// How long the head of a request over HTTP/1.1 may take, counted from the answer before it.
    pub head: Duration,
    /// TLS handshakes at once; more wait, and address prefixes take turns. When a whole fleet comes back, those that are
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
    /// How long the smallest answer may take to be taken in, and a second more for each 8 KiB. A
    /// connection whose peer takes longer is closed.
    pub answer: Duration,
    /// Bytes of answers that may wait on one connection; one alone may have more. With more it is closed.
    pub unread: usize,
    /// Load balancers that pass TLS on unread and must say, in a PROXY header of version 2, for whom.
    pub balancers: Balancers,
    /// Prefixes of which somebody authenticated before this listener began, and those of which somebody does.
    pub journal: PrefixJournal,
    /// Certificates that count no more: connections that were opened with one end.
    pub revoked: RevokedCertificates,
}

impl AcceptLimits {
    /// Bounds of a listener for proxies: many nodes share a connection, and it idles between them.
    pub fn of_proxies(connections: usize) -> AcceptLimits {
        AcceptLimits {
            connections,
            streams: 128,
            head: Duration::from_secs(120),
            unread: 64 * 1024 * 1024,
            ..AcceptLimits::default()
        }
    }
}

impl Default for AcceptLimits {
    fn default() -> AcceptLimits {
        AcceptLimits {
            connections: 16_000,
            streams: 8,
            per_peer: 8,
            handshake: Duration::from_secs(10),
            turn: Duration::from_secs(30),
            head: Duration::from_secs(10),
            handshakes: 64,
            age: Duration::from_secs(3600),
            anonymous_age: Duration::from_secs(60),
            keepalive: Duration::from_secs(120),
            ending: Duration::from_secs(120),
            answer: Duration::from_secs(60),
            unread: 8 * 1024 * 1024,
            balancers: Balancers::default(),
            journal: PrefixJournal::default(),
            revoked: RevokedCertificates::default(),
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
/// Connections that are accepted in one go, before other tasks get their turn: under a flood all who wait in
/// the kernel's queue are to be judged, before it overflows and the kernel turns away whoever comes.
const ACCEPTED_IN_ONE_GO: usize = 1024;
/// How long requests under way may take to end on a connection whose certificate counts no more: enough to say why.
pub const REVOKED_ENDING: Duration = Duration::from_secs(1);
/// How long a client may take to read why its certificate is refused, and how much of what it sent meanwhile is read.
const REFUSAL_READ: (Duration, u64) = (Duration::from_secs(1), 64 * 1024);
/// How long to wait after accepting failed (no file left, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves connections until `shutdown` becomes true, then lets requests under way end.
///
/// Runs outside of the runtime's budget for one task, within a bound of its own.
/// `handle` must not panic; a connection's failure ends that connection alone.
pub async fn serve<H, F, B>(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    limits: AcceptLimits,
    shutdown: watch::Receiver<bool>,
    handle: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    tokio::task::unconstrained(accept_all(listener, tls, limits, shutdown, handle)).await;
}

async fn accept_all<H, F, B>(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    limits: AcceptLimits,
    mut shutdown: watch::Receiver<bool>,
    handle: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let port = Arc::new(Port {
        gate: AdmissionGate::new(limits.connections, limits.handshakes, limits.journal.clone()),
        peers: Arc::default(),
        headers: Arc::new(Semaphore::new(HEADERS_AT_ONCE)),
        limits,
    });
    let mut in_one_go = 0;
    loop {
        in_one_go += 1;
        if in_one_go % ACCEPTED_IN_ONE_GO == 0 {
            tokio::task::yield_now().await;
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut shutdown) => return drain(&port.gate).await,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let acceptor = TlsAcceptor::from(tls.borrow().clone());
        let (port, shutdown, handle) = (port.clone(), shutdown.clone(), handle.clone());
        if port.limits.balancers.contains(address.ip()) {
            tokio::spawn(Box::pin(balanced(port, stream, address, shutdown, acceptor, handle)));
            continue;
        }
        let Some(slot) = place(&port.gate, address, shutdown.clone()).await else { continue };
        let one = Box::new(One { stream, address, port, slot, shutdown });
        tokio::spawn(one.run(acceptor, handle));
    }
}

/// What the connections of a listener share.
struct Port {
    limits: AcceptLimits,
    gate: Arc<AdmissionGate>,
    peers: Arc<Peers>,
    /// Of connections of balancers whose header is not here yet.
    headers: Arc<Semaphore>,
}

/// A place for a connection; `None` when it is to be closed. While all places are taken by those who
/// authenticated, one is waited for, and so are they who wait in the kernel's queue.
async fn place(
    gate: &Arc<AdmissionGate>,
    address: SocketAddr,
    mut shutdown: watch::Receiver<bool>,
) -> Option<ConnectionSlot> {
    loop {
        match gate.connect(address.ip()) {
            GateAnswer::Enter(slot) => return Some(slot),
            GateAnswer::Refuse => return None,
            GateAnswer::Full => tokio::select! {
                () = gate.freed() => {}
                () = stopped(&mut shutdown) => return None,
            },
        }
    }
}

/// A connection of a balancer: who calls is in its header.
async fn balanced<H, F, B>(
    port: Arc<Port>,
    mut stream: TcpStream,
    balancer: SocketAddr,
    shutdown: watch::Receiver<bool>,
    acceptor: TlsAcceptor,
    handle: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let Ok(waiting) = port.headers.clone().try_acquire_owned() else {
        tracing::warn!(%balancer, "too many connections of balancers without their header; one is closed");
        return;
    };
    let address = match tokio::time::timeout(HEADER_WITHIN, proxy_protocol::read(&mut stream)).await {
        Ok(Ok(address)) => address.unwrap_or(balancer),
        Ok(Err(error)) => {
            let error = model::text::chain(&error);
            tracing::warn!(%balancer, %error, "a balancer's connection is closed");
            return;
        }
        Err(_) => {
            tracing::warn!(%balancer, "a balancer sent no PROXY header in time");
            return;
        }
    };
    drop(waiting);
    // Where there is no room it is closed: a task that waits would be one more thing without a bound.
    if let GateAnswer::Enter(slot) = port.gate.connect(address.ip()) {
        Box::new(One { stream, address, port, slot, shutdown }).run(acceptor, handle).await;
    }
}

/// Waits until a shutdown is asked for; also when nobody is left to ask.
pub async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|stop| *stop).await;
}

/// Waits until the connections have ended, within the bound of a drain.
async fn drain(gate: &AdmissionGate) {
    const DRAIN: Duration = Duration::from_secs(5);
    let _ = tokio::time::timeout(DRAIN, gate.empty()).await;
}

struct One {
    stream: TcpStream,
    address: SocketAddr,
    port: Arc<Port>,
    slot: ConnectionSlot,
    shutdown: watch::Receiver<bool>,
}

impl One {
    /// Serves the connection. Its parts lie in boxes and are gone when they are over: an idle
    /// connection shall hold little.
    async fn run<H, F, B>(self: Box<One>, acceptor: TlsAcceptor, handle: H)
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
    {
        let Some(met) = Box::pin(self.meet(acceptor)).await else { return };
        let Some(pending) = met.slot.pending() else { return met.serve(handle).await };
        let address = met.connection.address;
        // Nobody is known to be at the other end: it gives way as it did before its handshake.
        tokio::select! {
            () = Box::pin(met.serve(handle)) => {}
            () = gate::gives_way(&pending) => {
                tracing::debug!(%address, "a connection without a certificate gave way to another");
            }
        }
    }

    /// The handshake, and who it is; `None` when there will be no connection.
    async fn meet(self: Box<One>, acceptor: TlsAcceptor) -> Option<Box<Met>> {
        let One { stream, address, port, mut slot, shutdown } = *self;
        let _ = stream.set_nodelay(true);
        let (mut stop, pending) = (shutdown.clone(), slot.pending()?);
        let greeted = tokio::select! {
            greeted = greet(stream, acceptor, &port.limits, &slot) => greeted,
            () = gate::gives_way(&pending) => Err(io::Error::other("it gave way to another connection")),
            // Who has said nothing yet holds no stop up.
            () = stopped(&mut stop) => return None,
        };
        let tls = match greeted {
            Ok(tls) => Box::new(tls),
            Err(error) => {
                tracing::debug!(%address, %error, "a TLS handshake failed");
                return None;
            }
        };
        let connection = connection(&tls, address)?;
        if connection.peer.is_some() && !slot.authenticated() {
            return None;
        }
        let node = match connection.peer.as_deref().map(|peer| &peer.role) {
            Some(PeerRole::Node { id, .. }) => Some(id),
            Some(PeerRole::Operator(_) | PeerRole::Proxy(_)) | None => None,
        };
        let Some(permit) = port.peers.clone().enter(node, port.limits.per_peer) else {
            tracing::warn!(%address, "a node has too many connections; this one is closed");
            return None;
        };
        Some(Box::new(Met { tls, connection, port, shutdown, _permit: permit, slot }))
    }
}

/// A connection that has begun.
struct Met {
    tls: Box<TlsStream<TcpStream>>,
    connection: Connection,
    port: Arc<Port>,
    shutdown: watch::Receiver<bool>,
    _permit: PeerPermit,
    slot: ConnectionSlot,
}

impl Met {
    async fn serve<H, F, B>(mut self: Box<Met>, handle: H)
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
    {
        let (limits, steps) = (&self.port.limits, &self.connection.steps);
        let age = if self.connection.peer.is_some() { limits.age } else { limits.anonymous_age };
        let revoked = limits.revoked.until_has(self.connection.peer.as_deref());
        let wanted = std::pin::pin!(wanted(steps, age, limits.ending, revoked, &mut self.shutdown));
        // Boxed, as a connection has room for the longest of what it waits for.
        let answers = AnswerLimits { within: limits.answer, unread: limits.unread };
        let ended = if self.connection.http1 {
            let service = service(self.connection.clone(), answers, handle);
            let http = http1_builder(limits).serve_connection(TokioIo::new(self.tls), service);
            let http = Box::pin(of_http1(http.with_upgrades(), steps.clone()));
            let ended = Box::pin(run_to_completion(http, wanted, |_| {})).await;
            steps.set(ConnectionStep::Cut);
            ended
        } else {
            let http = {
                let service = service(self.connection.clone(), answers, handle);
                Box::pin(builder(limits).serve_connection(TokioIo::new(self.tls), service))
            };
            run_to_completion(http, wanted, |http| http.graceful_shutdown()).await
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
    limits: AnswerLimits,
    handle: H,
) -> impl HttpService<Incoming, ResBody = AnswerBody<B>, Error = Infallible, Future: Send>
where
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Unpin + 'static,
{
    service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(connection.clone());
        // In a box of its own: the task of a stream lives on with its body, when what made the
        // answer is long over.
        let answer = Box::pin(handle(request));
        let steps = connection.steps.clone();
        async move { Ok::<_, Infallible>(answer.await.map(|body| answer::send(body, steps, limits))) }
    })
}

/// A TLS handshake. Who says nothing waits outside, and who stops in the middle does not keep others out
/// for long. What it takes until it is its turn does not count against it.
async fn greet(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    limits: &AcceptLimits,
    slot: &ConnectionSlot,
) -> io::Result<TlsStream<TcpStream>> {
    let late = |what: &'static str| move |_| io::Error::new(io::ErrorKind::TimedOut, what);
    let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream);
    let hello = tokio::time::timeout(limits.handshake, hello).await;
    let hello = hello.map_err(late("its first message did not come in time"))??;
    let inside = tokio::time::timeout(limits.turn, slot.handshake()).await;
    let inside = inside.map_err(late("its turn did not come in time"))?;
    let handshake = async {
        let handshake = hello.into_stream(acceptor.config().clone()).into_fallible();
        let mut handshake = std::pin::pin!(handshake);
        match tokio::time::timeout(INSIDE, handshake.as_mut()).await {
            Ok(done) => done,
            Err(_) => {
                drop(inside);
                handshake.await
            }
        }
    };
    match tokio::time::timeout(limits.handshake, handshake).await.map_err(late("it took too long"))? {
        Ok(tls) => Ok(tls),
        Err((error, stream)) => {
            if is_of_certificate(&error) {
                let_read(stream).await;
            }
            Err(error)
        }
    }
}

/// A handshake failed for the client's certificate, which an alert says to it.
fn is_of_certificate(error: &io::Error) -> bool {
    let why = error.get_ref().and_then(|why| why.downcast_ref::<rustls::Error>());
    matches!(why, Some(rustls::Error::InvalidCertificate(_)))
}

/// Lets a client read the alert that ends its handshake: a connection that is closed while it sends takes with it what
/// it did not read.
async fn let_read(mut stream: TcpStream) {
    let (within, bytes) = REFUSAL_READ;
    let read = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(bytes), &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(within, read).await;
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

/// Waits for a reason to close; gives how long requests under way may take to end.
async fn wanted(
    steps: &ConnectionSteps,
    age: Duration,
    ending: Duration,
    revoked: impl Future<Output = ()>,
    shutdown: &mut watch::Receiver<bool>,
) -> Duration {
    let ending = tokio::select! {
        () = steps.wait(ConnectionStep::Asked) => ending,
        () = tokio::time::sleep(age) => ending,
        () = stopped(shutdown) => ending,
        () = revoked => REVOKED_ENDING.min(ending),
    };
    steps.set(ConnectionStep::Closing);
    ending
}

/// Runs a connection to its end, and closes it once that is wanted; `None` when it had to be cut
/// some time later. What is handed on lies elsewhere: it would take its room anew at every step.
async fn run_to_completion<C: Future>(
    mut http: Pin<Box<C>>,
    wanted: impl Future<Output = Duration> + Unpin,
    close: impl FnOnce(Pin<&mut C>),
) -> Option<C::Output> {
    tokio::select! {
        ended = http.as_mut() => Some(ended),
        within = wanted => {
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
