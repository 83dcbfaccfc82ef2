//! Accepting: TLS, HTTP/2, limits, and who is at the other end.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::identity::{self, CertifiedPeer, Role};

/// Bounds of one listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once; more wait in the kernel's queue.
    pub connections: usize,
    /// Requests at once on one connection.
    pub streams: u32,
    /// Connections at once of one node.
    pub per_peer: usize,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How long a connection may live; then it is closed between requests, so that
    /// certificates are verified anew.
    pub age: Duration,
    /// The same for a connection without a certificate: enough to enroll over it.
    pub anonymous_age: Duration,
    /// How long a connection may say nothing before it is asked whether it lives, and
    /// then how long it may take to answer.
    pub keepalive: Duration,
    /// How long requests under way may take to end once a connection is to be closed; a
    /// long poll fits. A peer that never ends them, or never says a word of HTTP/2 in the
    /// first place, would otherwise hold its place for ever.
    pub ending: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 16_000,
            streams: 8,
            per_peer: 8,
            handshake: Duration::from_secs(10),
            age: Duration::from_secs(3600),
            anonymous_age: Duration::from_secs(60),
            keepalive: Duration::from_secs(60),
            ending: Duration::from_secs(120),
        }
    }
}

/// The longest header block, in bytes.
const MAX_HEADERS: u32 = 16 * 1024;
/// How long to wait after accepting failed (no file left, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a handler knows of a connection; in the extensions of every request.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Who is at the other end, by verified certificate.
    pub peer: Option<Arc<CertifiedPeer>>,
    /// From where.
    pub address: SocketAddr,
    closer: Arc<Closer>,
}

#[derive(Debug, Default)]
struct Closer {
    asked: AtomicBool,
    notify: Notify,
}

impl Connection {
    /// Closes the connection once this request is answered: an idle node costs nothing.
    pub fn close_after_answer(&self) {
        if !self.closer.asked.swap(true, Ordering::Relaxed) {
            self.closer.notify.notify_one();
        }
    }
}

/// Serves connections until `shutdown` becomes true, then lets requests under way end.
///
/// `handle` must not panic; a connection's failure ends that connection alone.
pub async fn serve<H, F, B>(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    limits: Limits,
    mut shutdown: watch::Receiver<bool>,
    handle: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(limits.connections));
    let peers = Arc::new(Peers::default());
    loop {
        let (slot, accepted) = tokio::select! {
            accepted = accept(&listener, slots.clone()) => match accepted {
                Some(accepted) => accepted,
                None => return,
            },
            () = stopped(&mut shutdown) => return drain(&slots, limits).await,
        };
        match accepted {
            Ok((stream, address)) => {
                let acceptor = TlsAcceptor::from(tls.borrow().clone());
                let (shutdown, peers) = (shutdown.clone(), peers.clone());
                let one = One { stream, address, limits, slot, peers, shutdown };
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
async fn drain(slots: &Semaphore, limits: Limits) {
    const DRAIN: Duration = Duration::from_secs(5);
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(DRAIN, slots.acquire_many(all)).await;
}

struct One {
    stream: TcpStream,
    address: SocketAddr,
    limits: Limits,
    slot: OwnedSemaphorePermit,
    peers: Arc<Peers>,
    shutdown: watch::Receiver<bool>,
}

/// How many connections each node has, so that one certificate cannot take all there are.
#[derive(Default)]
struct Peers(Mutex<HashMap<[u8; 32], usize>>);

impl Peers {
    /// Counts a connection of a node in, until the place is dropped; `None` when the node
    /// has as many as it may. Other peers are not counted.
    fn enter(self: Arc<Peers>, peer: Option<&CertifiedPeer>, limit: usize) -> Option<Place> {
        let key = match peer.map(|peer| &peer.role) {
            Some(Role::Node { key, .. }) => *key,
            Some(Role::Operator(_)) | None => return Some(Place { peers: self, key: None }),
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Place { peers: self, key: Some(key) })
    }
}

struct Place {
    peers: Arc<Peers>,
    key: Option<[u8; 32]>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut counts = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&key);
            }
        }
    }
}

impl One {
    async fn run<H, F, B>(mut self, acceptor: TlsAcceptor, handle: H)
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let _ = self.stream.set_nodelay(true);
        let handshake = tokio::time::timeout(self.limits.handshake, acceptor.accept(self.stream));
        let tls = match handshake.await {
            Ok(Ok(tls)) => tls,
            Ok(Err(error)) => {
                tracing::debug!(address = %self.address, %error, "a TLS handshake failed");
                return;
            }
            Err(_) => {
                tracing::debug!(address = %self.address, "a TLS handshake took too long");
                return;
            }
        };
        let peer = tls.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let peer = peer.and_then(|cert| identity::read(cert).ok()).map(Arc::new);
        let Some(_place) = self.peers.clone().enter(peer.as_deref(), self.limits.per_peer) else {
            tracing::warn!(address = %self.address, "a node has too many connections; this one is closed");
            return;
        };
        let age = if peer.is_some() { self.limits.age } else { self.limits.anonymous_age };
        let closer = Arc::new(Closer::default());
        let connection = Connection { peer, address: self.address, closer: closer.clone() };
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(connection.clone());
            let answer = handle(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let http = builder(self.limits).serve_connection(TokioIo::new(tls), service);
        let mut http = std::pin::pin!(http);
        let close = async {
            tokio::select! {
                () = closer.notify.notified() => {}
                () = tokio::time::sleep(age) => {}
                () = stopped(&mut self.shutdown) => {}
            }
        };
        let ended = tokio::select! {
            ended = http.as_mut() => ended,
            () = close => {
                http.as_mut().graceful_shutdown();
                match tokio::time::timeout(self.limits.ending, http).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        tracing::debug!(address = %self.address, "a connection did not end by itself");
                        return;
                    }
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(address = %self.address, %error, "a connection ended");
        }
        drop(self.slot);
    }
}

fn builder(limits: Limits) -> hyper::server::conn::http2::Builder<TokioExecutor> {
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(MAX_HEADERS)
        .max_send_buf_size(64 * 1024)
        .keep_alive_interval(limits.keepalive)
        .keep_alive_timeout(limits.keepalive);
    builder
}
