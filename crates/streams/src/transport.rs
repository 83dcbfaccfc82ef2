//! The two ends of a transport: frames in, frames out.

use async_trait::async_trait;
use sync::Frame;
use wire::cloudevents::{ReadFrameError, WriteFrameError};

/// Why a transport is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// What came cannot be read.
    #[error("a frame cannot be read")]
    Read(#[from] ReadFrameError),
    /// What is to go cannot be written.
    #[error("a frame cannot be written")]
    Write(#[from] WriteFrameError),
    /// The framing around it is broken.
    #[error("the stream is broken: {0}")]
    Framing(String),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broke(String),
    /// The other side does not read.
    #[error("the other side reads too slowly")]
    Slow,
    /// The control plane refused the stream, or ended it with a problem.
    #[error("the stream was ended: {0}")]
    Problem(Box<wire::Problem>),
}

/// Where frames come from.
#[async_trait]
pub trait FrameReader: Send {
    /// Waits for frames, at least one; `None` at the end. When given up in the middle nothing
    /// is lost.
    ///
    /// # Errors
    /// [`TransportError`]; the transport is of no use then.
    async fn next(&mut self) -> Result<Option<Vec<Frame>>, TransportError>;
}

/// Where frames go.
#[async_trait]
pub trait FrameWriter: Send {
    /// Sends frames; waits until the transport has taken them.
    ///
    /// # Errors
    /// [`TransportError`]; the transport is of no use then.
    async fn send(&mut self, frames: Vec<Frame>) -> Result<(), TransportError>;

    /// Ends the stream in order, as far as that can be done.
    async fn finish(&mut self);
}
