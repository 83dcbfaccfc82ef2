//! Dialling: one HTTP/2 connection to a control plane, kept while it is of use; or one over
//! HTTP/1.1 that becomes a WebSocket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, StatusCode, response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::TokioTimer;
use rustls::ClientConfig;

use crate::dial::TlsSession;
pub use crate::dial::{Destination, TcpDialError, Traffic};
use crate::proxy::ProxyError;
use crate::session::{CertificateRefusal, RefusedCertificate};
use crate::stream::{Receiver, SentBody, Stream};
use crate::tasks::{self, ConnectionExecutor};
use crate::tls::{EndedServerCertificate, ForeignCertificate};
use crate::url::ServerUrl;
use crate::websocket::{SocketBounds, WebSocket};

/// How long dialling, a proxy's tunnel and the TLS handshake may take together.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(15);
/// How long an idle connection may be silent before it is asked whether it is alive; longer than
/// links are silent, so that only connections without one are asked.
const KEEPALIVE: Duration = Duration::from_secs(120);
/// What a request may hold to be sent, in bytes.
const SEND_BUFFER: usize = 256 * 1024;
/// The longest refusal of an upgrade that is read, in bytes.
const MAX_REFUSAL: usize = 64 * 1024;

/// Why a control plane could not be spoken to.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL's host cannot be a TLS server's name.
    #[error("{0:?} cannot be the name of a TLS server")]
    Name(String),
    /// The host's name has no address, as far as this host can find out.
    #[error("the name {host} is not known on this host")]
    UnknownName {
        /// The name.
        host: String,
        /// What the resolver says.
        #[source]
        source: io::Error,
    },
    /// No connection.
    #[error("no connection to {url}")]
    Dial {
        /// Where to.
        url: ServerUrl,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The proxy that is set opens no tunnel.
    #[error("no way to {url} through the proxy {proxy}")]
    Proxy {
        /// Where to.
        url: ServerUrl,
        /// The proxy, without its password.
        proxy: String,
        /// Why.
        #[source]
        source: ProxyError,
    },
    /// What answers speaks no TLS: a captive portal, or another service.
    #[error("what answers at {url} speaks no TLS: it says {beginning:?}")]
    NotTls {
        /// Where.
        url: ServerUrl,
        /// How its answer begins.
        beginning: String,
    },
    /// What answers has a certificate of another CA: a captive portal, a proxy that inspects TLS, or another fleet.
    #[error("{url} answers, and is not this fleet's control plane")]
    ForeignServer {
        /// Where.
        url: ServerUrl,
        /// What it shows.
        #[source]
        source: ForeignCertificate,
    },
    /// The TLS handshake failed: another name, a refused certificate.
    #[error("no TLS session with {url}")]
    Handshake {
        /// Where to.
        url: ServerUrl,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// By this host's clock the server's certificate has ended.
    #[error("no TLS session with {url}")]
    ServerCertificateEnded {
        /// Where to.
        url: ServerUrl,
        /// Which clock says so.
        #[source]
        source: EndedServerCertificate,
    },
    /// The other side takes this side's certificate for revoked (IDN-6).
    #[error("{url} refuses this host's certificate: it is revoked")]
    CertificateRevoked {
        /// Who.
        url: ServerUrl,
    },
    /// No CA that counts there issued this side's certificate, or not late enough (IDN-8).
    #[error(
        "{url} refuses this host's certificate: the CA that issued it counts no more there, or not for one so old"
    )]
    CertificateUnknown {
        /// Who.
        url: ServerUrl,
        /// How the connection ended.
        #[source]
        source: hyper::Error,
    },
    /// It took too long.
    #[error("{url} did not answer within {} s", .after.as_secs())]
    Timeout {
        /// Where to.
        url: ServerUrl,
        /// How long was waited.
        after: Duration,
    },
    /// The connection broke.
    #[error("the connection to {url} broke")]
    Exchange {
        /// Where to.
        url: ServerUrl,
        /// Why.
        #[source]
        source: hyper::Error,
    },
    /// The response's body broke off or is longer than its bound.
    #[error("the response of {url} {what}")]
    Body {
        /// Where from.
        url: ServerUrl,
        /// What is wrong with it.
        what: String,
    },
}

/// An open connection. Cheap to clone; requests share it.
#[derive(Clone, Debug)]
pub struct Client {
    url: ServerUrl,
    send: SendRequest<SentBody>,
    refusal: CertificateRefusal,
    /// What this connection moved.
    pub traffic: Arc<Traffic>,
}

impl Client {
    /// Dials, and spends at most [`DIAL_TIMEOUT`] on it.
    ///
    /// # Errors
    /// [`ClientError`] says which step failed.
    pub async fn dial(to: impl Into<Destination>, tls: Arc<ClientConfig>) -> Result<Client, ClientError> {
        let to = to.into();
        within(&to.url, DIAL_TIMEOUT, Client::connect(&to, tls)).await
    }

    async fn connect(to: &Destination, tls: Arc<ClientConfig>) -> Result<Client, ClientError> {
        let url = &to.url;
        let TlsSession { io, traffic, refusal } = TlsSession::open(to, tls).await?;
        let (send, connection) = hyper::client::conn::http2::Builder::new(ConnectionExecutor)
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .max_send_buf_size(SEND_BUFFER)
            // A control plane with many nodes need not remember what it sent to each.
            .header_table_size(0)
            .handshake(io)
            .await
            .map_err(|source| ClientError::Exchange { url: url.clone(), source })?;
        tasks::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to the control plane ended");
            }
        });
        Ok(Client { url: url.clone(), send, refusal, traffic })
    }

    /// Where it leads to.
    pub fn url(&self) -> &ServerUrl {
        &self.url
    }

    /// The other side closed it, or it broke.
    pub fn is_closed(&self) -> bool {
        self.send.is_closed()
    }

    /// Sends a request and reads the whole response, at most `limit` bytes of it.
    ///
    /// # Errors
    /// [`ClientError`] says what failed. A response of any status is no error here.
    pub async fn call(
        &mut self,
        request: Request<Full<Bytes>>,
        limit: usize,
        timeout: Duration,
    ) -> Result<Response<Bytes>, ClientError> {
        let url = self.url.clone();
        let exchange = async {
            let (parts, receiver) = self.open(request.map(SentBody::Whole)).await?;
            Ok(Response::from_parts(parts, receiver.rest(limit).await?))
        };
        within(&url, timeout, exchange).await
    }

    /// Sends a request whose body goes on, and waits for the response's headers. `first` is
    /// sent at once: some servers answer only after it.
    ///
    /// # Errors
    /// [`ClientError`] says what failed. A response of any status is no error here.
    pub async fn open_stream(
        &mut self,
        request: Request<()>,
        first: Bytes,
        timeout: Duration,
    ) -> Result<Stream, ClientError> {
        let (sender, body) = crate::stream::channel(first);
        let url = self.url.clone();
        let (response, receiver) = within(&url, timeout, self.open(request.map(|()| body))).await?;
        Ok(Stream { response, sender, receiver })
    }

    /// Sends a request without a body whose response's body goes on, and waits for the
    /// response's headers.
    ///
    /// # Errors
    /// As [`Client::open_stream`].
    pub async fn open_download(
        &mut self,
        request: Request<()>,
        timeout: Duration,
    ) -> Result<(response::Parts, Receiver), ClientError> {
        let url = self.url.clone();
        within(&url, timeout, self.open(request.map(|()| Bytes::new().into()))).await
    }

    async fn open(&mut self, request: Request<SentBody>) -> Result<(response::Parts, Receiver), ClientError> {
        let (url, refusal) = (&self.url, &self.refusal);
        let broke = |source| match refusal.reason() {
            Some(RefusedCertificate::Revoked) => ClientError::CertificateRevoked { url: url.clone() },
            Some(RefusedCertificate::UnknownAuthority) => {
                ClientError::CertificateUnknown { url: url.clone(), source }
            }
            None => ClientError::Exchange { url: url.clone(), source },
        };
        self.send.ready().await.map_err(broke)?;
        let (response, body) = self.send.send_request(request).await.map_err(broke)?.into_parts();
        Ok((response, Receiver::new(self.url.clone(), body)))
    }
}

/// Ends what takes too long.
async fn within<T>(
    url: &ServerUrl,
    after: Duration,
    exchange: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let late = |_| ClientError::Timeout { url: url.clone(), after };
    tokio::time::timeout(after, exchange).await.map_err(late)?
}

/// A connection over HTTP/1.1 that is to become a WebSocket.
#[derive(Debug)]
pub struct Http1 {
    url: ServerUrl,
    send: hyper::client::conn::http1::SendRequest<SentBody>,
    /// What this connection moved.
    pub traffic: Arc<Traffic>,
}

/// What came of asking for an upgrade.
#[derive(Debug)]
pub enum Upgraded {
    /// The socket.
    Socket(WebSocket),
    /// Another answer: a refusal.
    Refused(Response<Bytes>),
}

impl Http1 {
    /// Dials, asking for HTTP/1.1, and spends at most [`DIAL_TIMEOUT`] on it.
    ///
    /// # Errors
    /// [`ClientError`] says which step failed; a server that offers HTTP/2 alone fails the
    /// handshake.
    pub async fn dial(to: impl Into<Destination>, tls: &ClientConfig) -> Result<Http1, ClientError> {
        let to = to.into();
        let url = &to.url;
        let open = async {
            let TlsSession { io, traffic, .. } = TlsSession::open(&to, crate::tls::http1_alone(tls)).await?;
            let (send, connection) = hyper::client::conn::http1::handshake(io)
                .await
                .map_err(|source| ClientError::Exchange { url: url.clone(), source })?;
            tasks::spawn(async move {
                if let Err(error) = connection.with_upgrades().await {
                    tracing::debug!(%error, "the connection to the control plane ended");
                }
            });
            Ok(Http1 { url: url.clone(), send, traffic })
        };
        within(url, DIAL_TIMEOUT, open).await
    }

    /// Asks for the upgrade; the request has its path and headers, and gets the rest here.
    ///
    /// # Errors
    /// [`ClientError`] says what failed. Another answer than an upgrade is no error here.
    pub async fn upgrade(
        mut self,
        mut request: Request<()>,
        bounds: SocketBounds,
        timeout: Duration,
    ) -> Result<Upgraded, ClientError> {
        let url = self.url.clone();
        let expected = crate::websocket::ask(request.headers_mut());
        if let Ok(host) = HeaderValue::try_from(url.authority()) {
            request.headers_mut().insert(HOST, host);
        }
        let exchange = async {
            let broke = |source| ClientError::Exchange { url: url.clone(), source };
            let request = request.map(|()| Bytes::new().into());
            let response = self.send.send_request(request).await.map_err(broke)?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                let (parts, body) = response.into_parts();
                let body = read(&url, body, MAX_REFUSAL).await?;
                return Ok(Upgraded::Refused(Response::from_parts(parts, body)));
            }
            if !crate::websocket::agreed(response.headers(), &expected) {
                let what = "agrees to another upgrade than was asked for".to_owned();
                return Err(ClientError::Body { url: url.clone(), what });
            }
            let io = hyper::upgrade::on(response).await.map_err(broke)?;
            Ok(Upgraded::Socket(WebSocket::client(io, bounds).await))
        };
        within(&url, timeout, exchange).await
    }
}

pub(crate) async fn read(url: &ServerUrl, body: Incoming, limit: usize) -> Result<Bytes, ClientError> {
    let collected = Limited::new(body, limit).collect().await.map_err(|error| {
        let what = match error.downcast_ref::<LengthLimitError>() {
            Some(_) => format!("is longer than {limit} bytes"),
            None => "broke off".to_owned(),
        };
        ClientError::Body { url: url.clone(), what }
    })?;
    Ok(collected.to_bytes())
}
