//! Frames over gRPC: messages of the `EventStream` in a body of either side.

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame as BodyFrame, Incoming};
use model::SectionKey;
use net::stream::BodySender;
use sync::Frame;
use wire::cloudevents::{Origin, ReadFrameError, protobuf};
use wire::grpc::{self, GrpcDecoder, GrpcStatus};

use crate::transport::{FrameReader, FrameWriter, TransportError};

/// The most frames that are read before they are handled.
const AT_ONCE: usize = 512;

/// The messages of a gRPC body.
pub struct Messages {
    body: Incoming,
    decoder: GrpcDecoder,
    ended: bool,
}

impl Messages {
    /// Reads messages of at most `limit` bytes.
    pub fn new(body: Incoming, gzip: bool, limit: usize) -> Messages {
        Messages { body, decoder: GrpcDecoder::new(limit, gzip), ended: false }
    }

    /// Waits for the next message; `None` at the end. When given up in the middle nothing is lost.
    ///
    /// # Errors
    /// When the body is broken, or ended with a problem.
    pub async fn next(&mut self) -> Result<Option<Bytes>, TransportError> {
        loop {
            if let Some(message) = self.ready()? {
                return Ok(Some(message));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    /// The next message, if all of it is here.
    fn ready(&mut self) -> Result<Option<Bytes>, TransportError> {
        self.decoder.next().map_err(|error| match error {
            grpc::ReadGrpcError::TooLarge { limit } => TransportError::TooLarge { limit },
            other => TransportError::Framing(other.to_string()),
        })
    }

    /// Waits for a piece of the body; `false` at its end.
    async fn more(&mut self) -> Result<bool, TransportError> {
        if self.ended {
            return Ok(false);
        }
        let frame = self.body.frame().await.transpose();
        let frame = frame.map_err(|error| TransportError::Broke(error.to_string()))?;
        let trailers = match frame.map(BodyFrame::into_data) {
            Some(Ok(data)) => {
                self.decoder.push(data);
                return Ok(true);
            }
            Some(Err(frame)) => frame.into_trailers().ok(),
            None => None,
        };
        self.ended = true;
        // How the call ended, when its trailers came.
        if let Some(problem) = trailers.and_then(|trailers| GrpcStatus::read(&trailers)?.problem) {
            return Err(TransportError::Problem(problem));
        }
        self.decoder.finish().map_err(|error| TransportError::Framing(error.to_string()))?;
        Ok(true)
    }
}

/// Frames from a body of gRPC messages.
pub struct GrpcReader {
    messages: Messages,
    limit: usize,
    /// The only source that frames may name.
    source: String,
    /// Of the last event: those after it are mostly of the same one, and share its texts. So
    /// keys are compared by their names alone, and the texts are kept once.
    section: Option<SectionKey>,
}

impl GrpcReader {
    /// Reads messages of at most `limit` bytes from `source` alone.
    pub fn new(body: Incoming, gzip: bool, limit: usize, source: String) -> GrpcReader {
        GrpcReader { messages: Messages::new(body, gzip, limit), limit, source, section: None }
    }

    fn decoded(&mut self) -> Result<Vec<Frame>, TransportError> {
        let mut frames = Vec::new();
        while frames.len() < AT_ONCE
            && let Some(message) = self.messages.ready()?
        {
            let read: Result<Frame, ReadFrameError> =
                protobuf::decode(&message, Some(&self.source), self.limit);
            let mut frame = read?;
            if let Frame::Event(event) = &mut frame {
                self.share(&mut event.key.section);
            }
            frames.push(frame);
        }
        Ok(frames)
    }

    fn share(&mut self, section: &mut SectionKey) {
        match &self.section {
            Some(last) if last == section => section.clone_from(last),
            _ => self.section = Some(section.clone()),
        }
    }
}

#[async_trait]
impl FrameReader for GrpcReader {
    async fn next(&mut self) -> Result<Option<Vec<Frame>>, TransportError> {
        loop {
            let frames = self.decoded()?;
            if !frames.is_empty() {
                return Ok(Some(frames));
            }
            if !self.messages.more().await? {
                return Ok(None);
            }
        }
    }
}

/// Frames into a body of gRPC messages.
pub struct GrpcWriter {
    body: BodySender,
    origin: Origin,
    gzip: bool,
    /// How the call ends, at the end that says it: as the go-away said that was sent last.
    status: Option<GrpcStatus>,
}

impl GrpcWriter {
    /// Writes messages of this origin into a response.
    pub fn new(body: BodySender, origin: Origin, gzip: bool) -> GrpcWriter {
        GrpcWriter { body, origin, gzip, status: Some(GrpcStatus::ok()) }
    }

    /// Writes messages of this origin into a request, which says no status.
    pub fn of_request(body: BodySender, origin: Origin, gzip: bool) -> GrpcWriter {
        GrpcWriter { status: None, ..GrpcWriter::new(body, origin, gzip) }
    }
}

#[async_trait]
impl FrameWriter for GrpcWriter {
    async fn send(&mut self, frames: Vec<Frame>) -> Result<(), TransportError> {
        let mut out = Vec::new();
        for frame in &frames {
            grpc::append(&mut out, self.gzip, |out| protobuf::encode(&mut self.origin, frame, out))?;
            if let (Frame::GoAway(away), Some(status)) = (frame, &mut self.status) {
                *status = GrpcStatus::of_go_away(&away.code, &away.message);
            }
        }
        drop(frames);
        Ok(self.body.put(out.into()).await?)
    }

    async fn finish(&mut self) {
        self.body.end(self.status.as_ref().map(GrpcStatus::headers)).await;
    }
}
