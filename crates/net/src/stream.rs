//! A request whose body goes on while its response comes: both ways over one HTTP/2 stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Incoming};
use tokio::sync::mpsc;

use crate::client::ClientError;
use crate::url::ServerUrl;

/// The chunks that may wait to be sent; then the sender waits.
const DEPTH: usize = 4;

/// A stream that was opened.
#[derive(Debug)]
pub struct Stream {
    /// The response's status and headers.
    pub response: http::response::Parts,
    /// What goes up.
    pub sender: Sender,
    /// What comes down.
    pub receiver: Receiver,
}

/// The sending half. Dropping it ends the request's body.
#[derive(Clone, Debug)]
pub struct Sender(mpsc::Sender<Bytes>);

/// The other side reads no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stream is closed")]
pub struct StreamClosed;

impl Sender {
    /// Hands a chunk over, waiting while too many wait already.
    ///
    /// # Errors
    /// When the stream is closed.
    pub async fn send(&self, chunk: Bytes) -> Result<(), StreamClosed> {
        self.0.send(chunk).await.map_err(|_| StreamClosed)
    }

    /// Waits until nobody reads any more.
    pub async fn closed(&self) {
        self.0.closed().await;
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

    /// Reads the whole rest, at most `limit` bytes: the body of a refusal.
    ///
    /// # Errors
    /// When the stream breaks or there is more.
    pub async fn rest(self, limit: usize) -> Result<Bytes, ClientError> {
        crate::client::read(&self.url, self.body, limit).await
    }
}

/// A request's body: whole, or still being written.
pub(crate) type RequestBody = Either<Full<Bytes>, ChannelBody>;

/// A body that comes through a channel.
#[derive(Debug)]
pub(crate) struct ChannelBody(mpsc::Receiver<Bytes>);

/// A body that goes on, beginning with `first`.
pub(crate) fn channel(first: Bytes) -> (Sender, RequestBody) {
    let (sender, receiver) = mpsc::channel(DEPTH);
    if !first.is_empty() {
        // There is room: nothing was sent yet.
        let _ = sender.try_send(first);
    }
    (Sender(sender), Either::Right(ChannelBody(receiver)))
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|next| next.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_closed() && self.0.is_empty()
    }
}
