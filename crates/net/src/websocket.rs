//! WebSockets after an upgrade of HTTP/1.1: the way for streams where HTTP/2 does not get
//! through (SYN-1).
//!
//! A text message holds one CloudEvent in JSON or an array of them; a binary message holds
//! the same, compressed with gzip. Pings are answered by the socket itself.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL};
use http::header::{SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};

use crate::accept::Connection;

/// The subprotocol, as the CloudEvents specification names it.
pub const PROTOCOL: &str = "cloudevents.json";
/// The version of WebSockets that there is.
const VERSION: &str = "13";
/// The buffer for reading, in bytes; larger messages grow one of their own.
const READ_BUFFER: usize = 4 * 1024;
/// What may wait to be written beside one message: pongs and closes, in bytes.
const SLACK: usize = 64 * 1024;
/// How long an upgrade may take once its response is sent.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the answer to a close may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest reason in a close, in bytes (RFC 6455).
const MAX_REASON: usize = 123;

/// Bounds of one socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketBounds {
    /// The longest message that is read, in bytes, as sent and as unpacked.
    pub read: usize,
    /// The longest message that is sent, in bytes.
    pub write: usize,
}

/// Why a socket cannot be used further.
#[derive(Debug, thiserror::Error)]
pub enum WebSocketError {
    /// The request asks for no upgrade to a WebSocket.
    #[error("the request asks for no upgrade to a WebSocket: {0}")]
    NotAnUpgrade(String),
    /// The upgrade did not come about.
    #[error("the upgrade to a WebSocket did not come about")]
    Upgrade(#[source] Option<hyper::Error>),
    /// A message is longer than its bound.
    #[error("a message is longer than {limit} bytes")]
    TooLarge {
        /// The bound in bytes.
        limit: usize,
    },
    /// The other side broke the rules of the protocol.
    #[error("the other side broke the WebSocket protocol: {0}")]
    Protocol(String),
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[source] io::Error),
    /// It was closed, or its time is over.
    #[error("the WebSocket is closed")]
    Closed,
}

/// What comes out of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// JSON: an event or an array of them.
    Json(Bytes),
    /// The answer to a ping.
    Pong,
    /// The other side closes, with a code and a reason.
    Close(u16, String),
}

/// An open socket.
#[derive(Debug)]
pub struct WebSocket {
    inner: Box<WebSocketStream<TokioIo<Upgraded>>>,
    bounds: SocketBounds,
    permit: Option<SocketPermit>,
}

/// The connection below an accepted socket; it counts until the socket is dropped.
#[derive(Debug)]
struct SocketPermit(Connection);

impl Drop for SocketPermit {
    fn drop(&mut self) {
        self.0.upgrade_ended();
    }
}

/// The sending half of a socket.
#[derive(Debug)]
pub struct SocketSender {
    inner: SplitSink<Box<WebSocketStream<TokioIo<Upgraded>>>, Message>,
    bounds: SocketBounds,
}

/// The receiving half of a socket. The connection's permit is given back with it.
#[derive(Debug)]
pub struct SocketReceiver {
    inner: SplitStream<Box<WebSocketStream<TokioIo<Upgraded>>>>,
    bounds: SocketBounds,
    permit: Option<SocketPermit>,
}

/// An upgrade that was agreed to; the socket is there once the response is sent.
#[derive(Debug)]
pub struct Upgrade {
    on: OnUpgrade,
    permit: Option<SocketPermit>,
    bounds: SocketBounds,
}

/// Agrees to a request's upgrade: send the response, and in another task wait for the socket.
///
/// # Errors
/// [`WebSocketError::NotAnUpgrade`] says what the request lacks.
pub fn accept<B>(
    request: &mut Request<B>,
    bounds: SocketBounds,
) -> Result<(Response<()>, Upgrade), WebSocketError> {
    let response = create_response_with_body(request, || ());
    let mut response = response.map_err(|error| WebSocketError::NotAnUpgrade(error.to_string()))?;
    if lists(request.headers(), &SEC_WEBSOCKET_PROTOCOL, PROTOCOL) {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    }
    let permit = request.extensions().get::<Connection>().cloned().map(|connection| {
        connection.upgrade_began();
        SocketPermit(connection)
    });
    let on = hyper::upgrade::on(request);
    Ok((response, Upgrade { on, permit, bounds }))
}

fn lists(headers: &HeaderMap, name: &http::HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(wanted))
}

impl Upgrade {
    /// Waits for the socket, at most 10 s.
    ///
    /// # Errors
    /// [`WebSocketError::Upgrade`] when the connection ended first.
    pub async fn socket(self) -> Result<WebSocket, WebSocketError> {
        match tokio::time::timeout(UPGRADE_TIMEOUT, self.on).await {
            Ok(Ok(io)) => Ok(WebSocket::over(io, Role::Server, self.bounds, self.permit).await),
            Ok(Err(error)) => Err(WebSocketError::Upgrade(Some(error))),
            Err(_) => Err(WebSocketError::Upgrade(None)),
        }
    }
}

/// Puts the headers in that ask for an upgrade, and says what the answer must have.
pub(crate) fn ask(headers: &mut HeaderMap) -> String {
    let key = generate_key();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    if let Ok(value) = HeaderValue::try_from(&key) {
        headers.insert(SEC_WEBSOCKET_KEY, value);
    }
    derive_accept_key(key.as_bytes())
}

/// Judges the answer to [`ask`].
pub(crate) fn agreed(response: &HeaderMap, expected: &str) -> bool {
    response.get(SEC_WEBSOCKET_ACCEPT).is_some_and(|value| value == expected)
}

impl WebSocket {
    async fn over(io: Upgraded, role: Role, bounds: SocketBounds, permit: Option<SocketPermit>) -> WebSocket {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_write_buffer_size(bounds.write + SLACK)
            .max_message_size(Some(bounds.read))
            .max_frame_size(Some(bounds.read));
        let inner = WebSocketStream::from_raw_socket(TokioIo::new(io), role, Some(config)).await;
        WebSocket { inner: Box::new(inner), bounds, permit }
    }

    /// A client's socket, after the answer to its request.
    pub(crate) async fn client(io: Upgraded, bounds: SocketBounds) -> WebSocket {
        WebSocket::over(io, Role::Client, bounds, None).await
    }

    /// Both halves, so that neither waits for the other.
    pub fn split(self) -> (SocketSender, SocketReceiver) {
        let (sink, stream) = self.inner.split();
        let bounds = self.bounds;
        (SocketSender { inner: sink, bounds }, SocketReceiver { inner: stream, bounds, permit: self.permit })
    }
}

impl SocketSender {
    /// Sends JSON; with `gzip` compressed if that is worth it. Waits until it is written.
    ///
    /// # Errors
    /// When it is too long or the connection is of no use.
    pub async fn send(&mut self, json: Vec<u8>, gzip: bool) -> Result<(), WebSocketError> {
        if json.len() > self.bounds.write {
            return Err(WebSocketError::TooLarge { limit: self.bounds.write });
        }
        let packed = if gzip { wire::body::compress(&json) } else { None };
        let message = match packed {
            Some(packed) => Message::Binary(packed.into()),
            None => {
                let text = Utf8Bytes::try_from(json);
                Message::Text(text.map_err(|_| WebSocketError::Protocol("JSON is UTF-8".to_owned()))?)
            }
        };
        self.inner.send(message).await.map_err(|error| failed(error, self.bounds.write))
    }

    /// Asks whether the other side is there.
    ///
    /// # Errors
    /// When the connection is of no use.
    pub async fn ping(&mut self) -> Result<(), WebSocketError> {
        let ping = Message::Ping(Bytes::new());
        self.inner.send(ping).await.map_err(|error| failed(error, self.bounds.write))
    }

    /// Says that no more comes: 1000 is a good end, 1001 going away, 1008 a refusal, 1009 a
    /// message too long. The reason is cut at 123 bytes.
    ///
    /// # Errors
    /// When the connection is of no use.
    pub async fn close(&mut self, code: u16, reason: &str) -> Result<(), WebSocketError> {
        let reason = &reason[..reason.floor_char_boundary(MAX_REASON)];
        let frame = CloseFrame { code: CloseCode::from(code), reason: reason.into() };
        let sent = self.inner.send(Message::Close(Some(frame))).await;
        sent.map_err(|error| failed(error, self.bounds.write))
    }
}

impl SocketReceiver {
    /// Waits for the next message; giving up in the middle loses nothing.
    ///
    /// # Errors
    /// [`WebSocketError`]; the socket is of no use from there on.
    pub async fn recv(&mut self) -> Result<Received, WebSocketError> {
        loop {
            let next = match &self.permit {
                Some(SocketPermit(connection)) => tokio::select! {
                    next = self.inner.next() => next,
                    () = connection.cut() => return Err(WebSocketError::Closed),
                },
                None => self.inner.next().await,
            };
            let limit = self.bounds.read;
            let message = next.ok_or(WebSocketError::Closed)?.map_err(|error| failed(error, limit))?;
            if let Message::Close(_) = message {
                // Once more, so that the answer to it goes out before anybody drops the socket.
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.inner.next()).await;
            }
            return Ok(match message {
                Message::Text(text) => Received::Json(text.into()),
                Message::Binary(packed) => {
                    let json = wire::body::unpack(packed.into(), Some(wire::body::GZIP), limit);
                    Received::Json(json.map_err(|error| unpacking(error, limit))?.into())
                }
                Message::Pong(_) => Received::Pong,
                Message::Close(Some(frame)) => {
                    Received::Close(frame.code.into(), frame.reason.as_str().to_owned())
                }
                Message::Close(None) => Received::Close(1005, String::new()),
                // Answered by the socket itself.
                Message::Ping(_) | Message::Frame(_) => continue,
            });
        }
    }
}

fn unpacking(error: wire::BodyError, limit: usize) -> WebSocketError {
    match error {
        wire::BodyError::TooLarge { .. } => WebSocketError::TooLarge { limit },
        other => WebSocketError::Protocol(other.to_string()),
    }
}

fn failed(error: tungstenite::Error, limit: usize) -> WebSocketError {
    use tungstenite::Error as E;
    match error {
        E::ConnectionClosed | E::AlreadyClosed => WebSocketError::Closed,
        E::Io(error) => WebSocketError::Io(error),
        E::Capacity(_) | E::WriteBufferFull(_) => WebSocketError::TooLarge { limit },
        other => WebSocketError::Protocol(other.to_string()),
    }
}
