//! Frames as server-sent events: down only; up they are posted (SYN-11).

use async_trait::async_trait;
use bytes::Bytes;
use net::stream::{Piece, Receiver};
use sync::Frame;
use wire::cloudevents::{Origin, json};
use wire::sse::{self, Decoder};

use crate::body::ResponsePipe;
use crate::ends::{EndsError, Incoming, Outgoing};

/// Frames from a response of events, at the agent.
pub struct SseIncoming {
    receiver: Receiver,
    decoder: Decoder,
    limit: usize,
    source: String,
}

impl SseIncoming {
    /// Reads events of at most `limit` bytes from `source` alone.
    pub fn new(receiver: Receiver, limit: usize, source: String) -> SseIncoming {
        SseIncoming { receiver, decoder: Decoder::new(limit), limit, source }
    }

    fn decoded(&mut self) -> Result<Vec<Frame>, EndsError> {
        let mut frames = Vec::new();
        while let Some(event) = self.decoder.next().map_err(|e| EndsError::Framing(e.to_string()))? {
            frames.push(json::decode(&event.data, Some(&self.source), self.limit)?);
        }
        Ok(frames)
    }
}

#[async_trait]
impl Incoming for SseIncoming {
    async fn next(&mut self) -> Result<Option<Vec<Frame>>, EndsError> {
        loop {
            let frames = self.decoded()?;
            if !frames.is_empty() {
                return Ok(Some(frames));
            }
            match self.receiver.next().await.map_err(|error| EndsError::Broke(error.to_string()))? {
                Some(Piece::Data(data)) => self.decoder.push(data),
                Some(Piece::Trailers(_)) => {}
                None => return Ok(None),
            }
        }
    }
}

/// Frames into a response of events, at the control plane.
pub struct SseOutgoing {
    pipe: ResponsePipe,
    origin: Origin,
}

impl SseOutgoing {
    /// Writes events of this origin.
    pub fn new(pipe: ResponsePipe, origin: Origin) -> SseOutgoing {
        SseOutgoing { pipe, origin }
    }
}

#[async_trait]
impl Outgoing for SseOutgoing {
    async fn send(&mut self, frames: Vec<Frame>) -> Result<(), EndsError> {
        let mut out = Vec::new();
        for frame in &frames {
            sse::encode(&mut self.origin, frame, &mut out)?;
        }
        self.pipe.put(Bytes::from(out)).await
    }

    async fn finish(&mut self) {
        self.pipe.end().await;
    }
}
