//! From a [`Destination`] to a TLS session: name, TCP, the proxy's tunnel, TLS; each with an error of its own.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::ClientError;
use crate::proxy::{self, ProxyError, ProxyUrl};
use crate::session::{CertificateRefusal, RefusedCertificate, SessionStream};
use crate::tls::{EndedServerCertificate, ForeignCertificate};
use crate::url::ServerUrl;

/// How long one address may take: of a name with several, one that drops what it gets leaves time for the next.
const ADDRESS_WITHIN: Duration = Duration::from_secs(5);
/// How much of the first bytes that come is remembered, to say what answers where no TLS does.
const MAX_BEGINNING: usize = 64;
/// The types of a TLS record, which is how everything begins that TLS says (RFC 8446, 5.1).
const TLS_RECORDS: std::ops::RangeInclusive<u8> = 20..=24;

/// Where a control plane is, and which way leads there. A URL alone is dialled directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The control plane, or the proxy that ends TLS in front of it.
    pub url: ServerUrl,
    /// The proxy whose tunnel leads there; without one it is dialled directly.
    pub proxy: Option<Arc<ProxyUrl>>,
}

impl From<&ServerUrl> for Destination {
    fn from(url: &ServerUrl) -> Destination {
        Destination { url: url.clone(), proxy: None }
    }
}

/// Why there is no TCP connection.
#[derive(Debug, thiserror::Error)]
pub enum TcpDialError {
    /// The name has no address, as far as this host can find out.
    #[error("the name {host} is not known on this host")]
    UnknownName {
        /// The name.
        host: String,
        /// What the resolver says.
        #[source]
        source: io::Error,
    },
    /// None of its addresses takes a connection.
    #[error("no address takes a connection")]
    Addresses(#[source] io::Error),
}

/// Dials each address of `host:port` until one takes the connection.
async fn tcp(host: &str, authority: &str) -> Result<TcpStream, TcpDialError> {
    let unknown = |source| TcpDialError::UnknownName { host: host.to_owned(), source };
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(authority).await.map_err(unknown)?.collect();
    let mut failed = Vec::new();
    let mut kind = io::ErrorKind::AddrNotAvailable;
    for address in &addresses {
        let late = |_| {
            io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer within {} s", ADDRESS_WITHIN.as_secs()),
            )
        };
        let dialled = tokio::time::timeout(ADDRESS_WITHIN, TcpStream::connect(address)).await;
        match dialled.map_err(late).and_then(|dialled| dialled) {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                kind = error.kind();
                failed.push(format!("{address}: {error}"));
            }
        }
    }
    if failed.is_empty() {
        return Err(unknown(io::Error::new(kind, "it has no address")));
    }
    Err(TcpDialError::Addresses(io::Error::new(kind, failed.join("; "))))
}

/// Bytes that went over the wire, TLS and the proxy's tunnel included.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Sent.
    pub up: AtomicU64,
    /// Received.
    pub down: AtomicU64,
}

/// A TLS session and its meter.
pub(crate) struct TlsSession {
    pub(crate) io: TokioIo<SessionStream<Metered>>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) refusal: CertificateRefusal,
}

impl TlsSession {
    pub(crate) async fn open(to: &Destination, tls: Arc<ClientConfig>) -> Result<TlsSession, ClientError> {
        let Destination { url, proxy } = to;
        let name = ServerName::try_from(url.host().to_owned())
            .map_err(|_| ClientError::Name(url.host().to_owned()))?;
        let traffic = Arc::new(Traffic::default());
        let metered = |stream| Metered { stream, traffic: traffic.clone(), beginning: Arc::default() };
        let stream = match proxy {
            None => tcp(url.host(), &url.authority()).await.map_err(|error| no_connection(url, error))?,
            Some(proxy) => {
                let failed = |source: ProxyError| no_tunnel(url, proxy, source);
                let dialled = tcp(proxy.host(), &proxy.authority()).await;
                let mut near = metered(dialled.map_err(|error| failed(error.into()))?);
                proxy::open_tunnel(&mut near, &url.authority(), proxy).await.map_err(failed)?;
                near.stream
            }
        };
        let _ = stream.set_nodelay(true);
        let metered = metered(stream);
        let beginning = metered.beginning.clone();
        let session = TlsConnector::from(tls).connect(name, metered).await;
        let refusal = CertificateRefusal::default();
        let session = session.map_err(|error| {
            refusal.note(&error);
            match refusal.reason() {
                Some(RefusedCertificate::Revoked) => ClientError::CertificateRevoked { url: url.clone() },
                _ => no_session(to, error, beginning.get().map(Vec::as_slice)),
            }
        })?;
        let io = TokioIo::new(SessionStream::new(session, refusal.clone()));
        Ok(TlsSession { io, traffic, refusal })
    }
}

fn no_connection(url: &ServerUrl, error: TcpDialError) -> ClientError {
    match error {
        TcpDialError::UnknownName { host, source } => ClientError::UnknownName { host, source },
        TcpDialError::Addresses(source) => ClientError::Dial { url: url.clone(), source },
    }
}

fn no_tunnel(url: &ServerUrl, proxy: &ProxyUrl, source: ProxyError) -> ClientError {
    ClientError::Proxy { url: url.clone(), proxy: proxy.to_string(), source }
}

/// Why there is no TLS session, by what failed and by the first bytes that came.
fn no_session(to: &Destination, error: io::Error, beginning: Option<&[u8]>) -> ClientError {
    let url = to.url.clone();
    if let Some(source) = EndedServerCertificate::of(&error) {
        return ClientError::ServerCertificateEnded { url, source };
    }
    if let Some(source) = ForeignCertificate::of(&error) {
        return ClientError::ForeignServer { url, source };
    }
    match (beginning, &to.proxy) {
        (Some(bytes), Some(proxy)) if !is_tls(bytes) => {
            no_tunnel(&url, proxy, ProxyError::Page(proxy::shown(bytes)))
        }
        (Some(bytes), None) if !is_tls(bytes) => ClientError::NotTls { url, beginning: proxy::shown(bytes) },
        (None, Some(proxy)) if error.kind() != io::ErrorKind::TimedOut => {
            no_tunnel(&url, proxy, ProxyError::Closed)
        }
        _ => ClientError::Handshake { url, source: error },
    }
}

fn is_tls(beginning: &[u8]) -> bool {
    beginning.first().is_some_and(|first| TLS_RECORDS.contains(first))
}

/// Counts what goes through a socket, and remembers how what comes begins.
pub(crate) struct Metered {
    stream: TcpStream,
    traffic: Arc<Traffic>,
    beginning: Arc<OnceLock<Vec<u8>>>,
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let done = Pin::new(&mut self.stream).poll_read(cx, buf);
        let came = &buf.filled()[before..];
        if !came.is_empty() {
            self.beginning.get_or_init(|| came[..came.len().min(MAX_BEGINNING)].to_vec());
        }
        self.traffic.down.fetch_add(came.len() as u64, Ordering::Relaxed);
        done
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &done {
            self.traffic.up.fetch_add(*count as u64, Ordering::Relaxed);
        }
        done
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
