//! Frames over a WebSocket: JSON arrays of CloudEvents.

use async_trait::async_trait;
use net::websocket::{Received, Receiver, Sender, WebSocket, WebSocketError};
use sync::Frame;
use wire::cloudevents::{Origin, json};

use crate::transport::{FrameReader, FrameWriter, TransportError};

/// The close code of a normal end (RFC 6455).
const NORMAL: u16 = 1000;

/// Frames from a socket.
pub struct WsIncoming {
    receiver: Receiver,
    limit: usize,
    source: String,
}

/// Frames into a socket.
pub struct WsOutgoing {
    sender: Sender,
    origin: Origin,
    gzip: bool,
}

/// Both ends of a socket. Frames are at most `limit` bytes and come from `source` alone.
pub fn ends(
    socket: WebSocket,
    origin: Origin,
    gzip: bool,
    limit: usize,
    source: String,
) -> (WsIncoming, WsOutgoing) {
    let (sender, receiver) = socket.split();
    (WsIncoming { receiver, limit, source }, WsOutgoing { sender, origin, gzip })
}

fn broke(error: WebSocketError) -> TransportError {
    TransportError::Broke(error.to_string())
}

#[async_trait]
impl FrameReader for WsIncoming {
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
impl FrameWriter for WsOutgoing {
    async fn send(&mut self, frames: Vec<Frame>) -> Result<(), TransportError> {
        let mut out = Vec::new();
        json::encode_all(&mut self.origin, &frames, &mut out)?;
        self.sender.send(out, self.gzip).await.map_err(broke)
    }

    async fn finish(&mut self) {
        let _ = self.sender.close(NORMAL, "the link ended").await;
    }
}
