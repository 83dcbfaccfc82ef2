//! Frames as server-sent events: down only; up they are posted (SYN-11).

use async_trait::async_trait;
use bytes::Bytes;
use net::stream::{BodyFrame, BodySender, Receiver};
use sync::Frame;
use wire::cloudevents::{Origin, json};
use wire::sse::{self, SseDecoder};

use crate::transport::{FrameReader, FrameWriter, TransportError};

/// Frames from a response of events, at the agent.
pub struct SseReader {
    receiver: Receiver,
    decoder: SseDecoder,
    limit: usize,
    source: String,
}

impl SseReader {
    /// Reads events of at most `limit` bytes from `source` alone.
    pub fn new(receiver: Receiver, limit: usize, source: String) -> SseReader {
        SseReader { receiver, decoder: SseDecoder::new(limit), limit, source }
    }

    fn decoded(&mut self) -> Result<Vec<Frame>, TransportError> {
        let mut frames = Vec::new();
        while let Some(event) = self.decoder.next().map_err(|e| TransportError::Framing(e.to_string()))? {
            frames.push(json::decode(&event.data, Some(&self.source), self.limit)?);
        }
        Ok(frames)
    }
}

#[async_trait]
impl FrameReader for SseReader {
    async fn next(&mut self) -> Result<Option<Vec<Frame>>, TransportError> {
        loop {
            let frames = self.decoded()?;
            if !frames.is_empty() {
                return Ok(Some(frames));
            }
            match self.receiver.next().await.map_err(|error| TransportError::Broke(error.to_string()))? {
                Some(BodyFrame::Data(data)) => self.decoder.push(data),
                Some(BodyFrame::Trailers(_)) => {}
                None => return Ok(None),
            }
        }
    }
}

/// Frames into a response of events, at the control plane.
pub struct SseWriter {
    body: BodySender,
    origin: Origin,
}

impl SseWriter {
    /// Writes events of this origin.
    pub fn new(body: BodySender, origin: Origin) -> SseWriter {
        SseWriter { body, origin }
    }
}

#[async_trait]
impl FrameWriter for SseWriter {
    async fn send(&mut self, frames: Vec<Frame>) -> Result<(), TransportError> {
        let mut out = Vec::new();
        for frame in &frames {
            sse::encode(&mut self.origin, frame, &mut out)?;
        }
        Ok(self.body.put(Bytes::from(out)).await?)
    }

    async fn finish(&mut self) {
        self.body.end(None).await;
    }
}
