//! Frames over gRPC: messages of the `EventStream` in a body of either side.

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming as Body;
use model::SectionKey;
use sync::Frame;
use wire::cloudevents::{Origin, ReadFrameError, protobuf};
use wire::grpc::{self, GrpcDecoder, GrpcStatus};

use crate::body::ResponsePipe;
use crate::transport::{FrameReader, FrameWriter, TransportError};

/// The most frames that are read before they are handled.
const AT_ONCE: usize = 512;

/// A piece of a body.
pub enum Chunk {
    /// Bytes of messages.
    Data(Bytes),
    /// The end, with how the call ended, when that was said.
    End(Option<GrpcStatus>),
}

/// Where a body's pieces come from.
#[async_trait]
pub trait Chunks: Send {
    /// Waits for the next piece. When given up in the middle nothing is lost.
    ///
    /// # Errors
    /// When the connection broke.
    async fn chunk(&mut self) -> Result<Chunk, TransportError>;
}

/// The messages of a gRPC body.
pub struct Messages<C> {
    chunks: C,
    decoder: GrpcDecoder,
    ended: bool,
}

impl<C: Chunks> Messages<C> {
    /// Reads messages of at most `limit` bytes.
    pub fn new(chunks: C, gzip: bool, limit: usize) -> Messages<C> {
        Messages { chunks, decoder: GrpcDecoder::new(limit, gzip), ended: false }
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
        match self.chunks.chunk().await? {
            Chunk::Data(bytes) => self.decoder.push(bytes),
            Chunk::End(status) => {
                self.ended = true;
                if let Some(problem) = status.and_then(|status| status.problem) {
                    return Err(TransportError::Problem(problem));
                }
                self.decoder.finish().map_err(|error| TransportError::Framing(error.to_string()))?;
            }
        }
        Ok(true)
    }
}

/// Frames from a body of gRPC messages.
pub struct GrpcReader<C> {
    messages: Messages<C>,
    limit: usize,
    /// The only source that frames may name.
    source: String,
    /// Of the last event: those after it are mostly of the same one, and share its texts. So
    /// keys are compared by their names alone, and the texts are kept once.
    section: Option<SectionKey>,
}

impl<C: Chunks> GrpcReader<C> {
    /// Reads messages of at most `limit` bytes from `source` alone.
    pub fn new(chunks: C, gzip: bool, limit: usize, source: String) -> GrpcReader<C> {
        GrpcReader { messages: Messages::new(chunks, gzip, limit), limit, source, section: None }
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
impl<C: Chunks> FrameReader for GrpcReader<C> {
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

/// The body of a request at the control plane.
pub struct RequestChunks(pub Body);

#[async_trait]
impl Chunks for RequestChunks {
    async fn chunk(&mut self) -> Result<Chunk, TransportError> {
        loop {
            match self.0.frame().await {
                None => return Ok(Chunk::End(None)),
                Some(Err(error)) => return Err(TransportError::Broke(error.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Chunk::Data(data));
                    }
                }
            }
        }
    }
}

/// The body of a response at the agent.
pub struct ResponseChunks(pub net::stream::Receiver);

#[async_trait]
impl Chunks for ResponseChunks {
    async fn chunk(&mut self) -> Result<Chunk, TransportError> {
        let piece = self.0.next().await.map_err(|error| TransportError::Broke(error.to_string()))?;
        Ok(match piece {
            None => Chunk::End(None),
            Some(net::stream::BodyFrame::Data(data)) => Chunk::Data(data),
            Some(net::stream::BodyFrame::Trailers(trailers)) => Chunk::End(GrpcStatus::read(&trailers)),
        })
    }
}

/// Where a body's bytes go.
#[async_trait]
pub trait Pipe: Send {
    /// Waits until the bytes are taken.
    ///
    /// # Errors
    /// When nobody takes them any more.
    async fn put(&mut self, bytes: Bytes) -> Result<(), TransportError>;

    /// Ends the body in order; `status` says how the call ended, where this side says that.
    async fn end(&mut self, status: &GrpcStatus);
}

/// Frames into a body of gRPC messages.
pub struct GrpcWriter<P> {
    pipe: P,
    origin: Origin,
    gzip: bool,
    /// How the call ends: as the go-away said that was sent last.
    status: GrpcStatus,
}

impl<P: Pipe> GrpcWriter<P> {
    /// Writes messages of this origin.
    pub fn new(pipe: P, origin: Origin, gzip: bool) -> GrpcWriter<P> {
        GrpcWriter { pipe, origin, gzip, status: GrpcStatus::ok() }
    }
}

#[async_trait]
impl<P: Pipe> FrameWriter for GrpcWriter<P> {
    async fn send(&mut self, frames: Vec<Frame>) -> Result<(), TransportError> {
        let mut out = Vec::new();
        for frame in &frames {
            grpc::append(&mut out, self.gzip, |out| protobuf::encode(&mut self.origin, frame, out))?;
            if let Frame::GoAway(away) = frame {
                self.status = GrpcStatus::of_go_away(&away.code, &away.message);
            }
        }
        drop(frames);
        self.pipe.put(out.into()).await
    }

    async fn finish(&mut self) {
        self.pipe.end(&self.status).await;
    }
}

/// The pipe into the body of a request at the agent.
pub struct RequestPipe(pub Option<net::stream::Sender>);

#[async_trait]
impl Pipe for RequestPipe {
    async fn put(&mut self, bytes: Bytes) -> Result<(), TransportError> {
        let closed = || TransportError::Broke("the request's body was closed".to_owned());
        match &mut self.0 {
            Some(sender) => sender.send(bytes).await.map_err(|_| closed()),
            None => Err(closed()),
        }
    }

    async fn end(&mut self, _: &GrpcStatus) {
        self.0 = None;
    }
}

#[async_trait]
impl Pipe for ResponsePipe {
    async fn put(&mut self, bytes: Bytes) -> Result<(), TransportError> {
        ResponsePipe::put(self, bytes).await
    }

    async fn end(&mut self, status: &GrpcStatus) {
        ResponsePipe::end(self, Some(status.headers())).await;
    }
}
