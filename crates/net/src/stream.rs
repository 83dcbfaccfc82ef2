//! Bodies that go on while their exchange lives: a request's while its response comes, both ways over
//! one HTTP/2 stream, and a response's.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_channel::mpsc;
use futures_util::{SinkExt, Stream as _};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};

use crate::client::ClientError;
use crate::url::ServerUrl;

/// The parts of a body that may wait to be sent, and one more; then the sender waits.
const DEPTH: usize = 1;

/// A stream that was opened.
#[derive(Debug)]
pub struct Stream {
    /// The response's status and headers.
    pub response: http::response::Parts,
    /// What goes up.
    pub sender: BodySender,
    /// What comes down.
    pub receiver: Receiver,
}

/// The other side reads no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stream is closed")]
pub struct StreamClosed;

/// The way into a body; dropping it ends the body, too. With its other end it takes a few hundred bytes: an
/// idle link has one.
#[derive(Debug)]
pub struct BodySender(mpsc::Sender<Frame<Bytes>>);

impl BodySender {
    /// Hands bytes on, and waits until there is room for more.
    ///
    /// # Errors
    /// When nobody reads the body any more.
    pub async fn put(&mut self, bytes: Bytes) -> Result<(), StreamClosed> {
        self.0.send(Frame::data(bytes)).await.map_err(|_| StreamClosed)?;
        if self.0.is_closed() { Err(StreamClosed) } else { Ok(()) }
    }

    /// Ends the body, with trailers if it has any.
    pub async fn end(&mut self, trailers: Option<HeaderMap>) {
        if let Some(trailers) = trailers {
            // Who does not read it any more needs no end.
            let _ = self.0.send(Frame::trailers(trailers)).await;
        }
        self.0.close_channel();
    }

    /// Nobody reads the body any more.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// What comes out of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyFrame {
    /// Bytes, cut as they came.
    Data(Bytes),
    /// Headers after the body; nothing comes after them.
    Trailers(HeaderMap),
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    url: ServerUrl,
    body: Incoming,
}

impl Receiver {
    pub(crate) fn new(url: ServerUrl, body: Incoming) -> Receiver {
        Receiver { url, body }
    }

    /// Waits for the next piece, `None` at the end; giving up in the middle loses nothing.
    ///
    /// # Errors
    /// When the stream breaks.
    pub async fn next(&mut self) -> Result<Option<BodyFrame>, ClientError> {
        loop {
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|source| ClientError::Exchange { url: self.url.clone(), source })?;
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(BodyFrame::Data(data))),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return Ok(Some(BodyFrame::Trailers(trailers)));
                    }
                }
            }
        }
    }

    /// All that comes, as it comes.
    pub fn into_body(self) -> Incoming {
        self.body
    }

    /// Reads the whole rest, at most `limit` bytes: the body of a refusal.
    ///
    /// # Errors
    /// When the stream breaks or there is more.
    pub async fn rest(self, limit: usize) -> Result<Bytes, ClientError> {
        crate::client::read(&self.url, self.body, limit).await
    }
}

/// A body that this side sends: whole, or still being written.
#[derive(Debug)]
pub enum SentBody {
    /// All of it.
    Whole(Full<Bytes>),
    /// What comes as it comes.
    Parts(mpsc::Receiver<Frame<Bytes>>),
}

/// A body that goes on, beginning with `first`.
pub fn channel(first: Bytes) -> (BodySender, SentBody) {
    let (mut sender, parts) = mpsc::channel(DEPTH);
    if !first.is_empty() {
        // There is room: nothing was sent yet.
        let _ = sender.try_send(Frame::data(first));
    }
    (BodySender(sender), SentBody::Parts(parts))
}

impl SentBody {
    /// A body that is there already, with its trailers.
    pub fn with_trailers(bytes: Bytes, trailers: HeaderMap) -> SentBody {
        let (mut sender, body) = channel(bytes);
        // There is room for both.
        let _ = sender.0.try_send(Frame::trailers(trailers));
        body
    }
}

impl From<Bytes> for SentBody {
    fn from(bytes: Bytes) -> SentBody {
        SentBody::Whole(Full::new(bytes))
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            SentBody::Whole(whole) => Pin::new(whole).poll_frame(cx),
            SentBody::Parts(parts) => Pin::new(parts).poll_next(cx).map(|next| next.map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            SentBody::Whole(whole) => whole.is_end_stream(),
            SentBody::Parts(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            SentBody::Whole(whole) => whole.size_hint(),
            SentBody::Parts(_) => SizeHint::default(),
        }
    }
}
