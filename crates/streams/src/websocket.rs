//! Frames over a WebSocket: JSON arrays of CloudEvents.

use async_trait::async_trait;
use net::websocket::{Received, SocketReceiver, SocketSender, WebSocket, WebSocketError};
use sync::Frame;
use sync::frame::{CloseReason, GoAway};
use wire::cloudevents::{Origin, json};

use crate::transport::{self, FrameReader, FrameWriter, TransportError};

/// Close codes (RFC 6455): a normal end, one that goes away, data of another form, a refusal, a
/// message over its bound, a failure.
const NORMAL: u16 = 1000;
const GOING_AWAY: u16 = 1001;
const UNREADABLE: u16 = 1007;
const POLICY: u16 = 1008;
const TOO_BIG: u16 = 1009;
const FAILURE: u16 = 1011;

/// Frames from a socket.
pub struct WebSocketReader {
    receiver: SocketReceiver,
    limit: usize,
    source: String,
}

/// Frames into a socket.
pub struct WebSocketWriter {
    sender: SocketSender,
    origin: Origin,
    gzip: bool,
    /// How the socket is closed: as the go-away said that was sent last.
    close: (u16, String),
}

/// Both halves of a socket. Frames are at most `limit` bytes and come from `source` alone.
pub fn halves(
    socket: WebSocket,
    origin: Origin,
    gzip: bool,
    limit: usize,
    source: String,
) -> (WebSocketReader, WebSocketWriter) {
    let (sender, receiver) = socket.split();
    (
        WebSocketReader { receiver, limit, source },
        WebSocketWriter { sender, origin, gzip, close: (NORMAL, "the link ended".to_owned()) },
    )
}

fn broke(error: WebSocketError) -> TransportError {
    match error {
        WebSocketError::TooLarge { limit } => TransportError::TooLarge { limit },
        WebSocketError::Protocol(what) => TransportError::Framing(what),
        other => TransportError::Broke(other.to_string()),
    }
}

/// The close of a socket whose link ended with this go-away.
fn close_of(away: &GoAway) -> (u16, String) {
    let code = match away.code.as_str() {
        CloseReason::SHUTDOWN => GOING_AWAY,
        transport::UNREADABLE => UNREADABLE,
        transport::TOO_LARGE => TOO_BIG,
        "internal" => FAILURE,
        _ => POLICY,
    };
    (code, format!("{}: {}", away.code, away.message))
}

#[async_trait]
impl FrameReader for WebSocketReader {
    async fn next(&mut self) -> Result<Option<Vec<Frame>>, TransportError> {
        loop {
            match self.receiver.recv().await {
                Ok(Received::Json(bytes)) => {
                    let frames = json::decode_all(&bytes, Some(&self.source), self.limit)?;
                    if !frames.is_empty() {
                        return Ok(Some(frames));
                    }
                }
                Ok(Received::Pong) => {}
                Ok(Received::Close(..)) | Err(WebSocketError::Closed) => return Ok(None),
                Err(error) => return Err(broke(error)),
            }
        }
    }
}

#[async_trait]
impl FrameWriter for WebSocketWriter {
    async fn send(&mut self, frames: Vec<Frame>) -> Result<(), TransportError> {
        let mut out = Vec::new();
        json::encode_all(&mut self.origin, &frames, &mut out)?;
        if let Some(Frame::GoAway(away)) = frames.last() {
            self.close = close_of(away);
        }
        self.sender.send(out, self.gzip).await.map_err(broke)
    }

    async fn finish(&mut self) {
        let (code, reason) = &self.close;
        let _ = self.sender.close(*code, reason).await;
    }
}
