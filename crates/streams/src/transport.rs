//! The two halves of a transport, frames in and frames out, and [`TransportError`], for opening one too.

use async_trait::async_trait;
use net::client::ClientError;
use net::stream::StreamClosed;
use sync::Frame;
use wire::cloudevents::{ReadFrameError, WriteFrameError};

/// Why a transport could not be opened, or is of no use any more.
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
    /// A message is longer than its bound.
    #[error("a message is larger than {limit} bytes")]
    TooLarge {
        /// The bound in bytes.
        limit: usize,
    },
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broke(String),
    /// The other side does not read.
    #[error("the other side reads too slowly")]
    Slow,
    /// The control plane refused the stream, or ended it with a problem.
    #[error("the control plane refused: {0}")]
    Problem(Box<wire::Problem>),
    /// Nobody is there: another transport would not help.
    #[error("{0}")]
    Unreached(String),
    /// The control plane is there, and this transport does not come through.
    #[error("the stream does not come through")]
    Open(#[source] Box<ClientError>),
}

impl From<ClientError> for TransportError {
    fn from(error: ClientError) -> TransportError {
        TransportError::Open(Box::new(error))
    }
}

impl From<StreamClosed> for TransportError {
    fn from(closed: StreamClosed) -> TransportError {
        TransportError::Broke(closed.to_string())
    }
}

impl TransportError {
    /// The code of the go-away that answers what cannot be read;
    /// `None` when nothing can be sent on this transport any more.
    pub fn refusal(&self) -> Option<&'static str> {
        use wire::cloudevents::ReadFrameError as Read;
        match self {
            TransportError::TooLarge { .. }
            | TransportError::Read(
                Read::TooLarge { .. } | Read::ObjectTooLarge { .. } | Read::TooMany { .. },
            ) => Some(TOO_LARGE),
            TransportError::Read(_) | TransportError::Framing(_) => Some(UNREADABLE),
            _ => None,
        }
    }

    /// The error with its cause, for a message to the other side.
    pub fn explained(&self) -> String {
        match self {
            TransportError::Read(error) => error.to_string(),
            other => other.to_string(),
        }
    }
}

/// The code of a go-away for a message over its bound.
pub const TOO_LARGE: &str = "too-large";
/// The code of a go-away for a message that is no frame.
pub const UNREADABLE: &str = "unreadable";

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
