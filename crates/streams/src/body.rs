//! The body of a response at the control plane, which grows while its link lives.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_channel::mpsc;
use futures_util::{SinkExt, Stream};
use http::HeaderMap;

use crate::transport::TransportError;

/// Parts of a response that may wait for the connection, and one more.
const DEPTH: usize = 1;

/// What a body is made of.
#[derive(Debug)]
pub enum BodyPart {
    /// Bytes.
    Data(Bytes),
    /// The end in order, with the trailers of the body if it has any.
    End(Option<Box<HeaderMap>>),
}

/// The way into a body. With its other end it takes a few hundred bytes: an idle link has one.
#[derive(Debug)]
pub struct ResponsePipe(mpsc::Sender<BodyPart>);

/// The parts of a body as they come.
#[derive(Debug)]
pub struct Parts(mpsc::Receiver<BodyPart>);

/// A body that grows: the way in, and what comes out.
pub fn response() -> (ResponsePipe, Parts) {
    let (into, parts) = mpsc::channel(DEPTH);
    (ResponsePipe(into), Parts(parts))
}

/// A body that is there already, with its trailers.
pub fn whole(bytes: Bytes, trailers: HeaderMap) -> Parts {
    let (mut into, parts) = mpsc::channel(DEPTH);
    // There is room for both.
    let _ = into.try_send(BodyPart::Data(bytes));
    let _ = into.try_send(BodyPart::End(Some(Box::new(trailers))));
    Parts(parts)
}

impl ResponsePipe {
    /// Hands bytes on, and waits until there is room for more.
    ///
    /// # Errors
    /// When nobody reads the response any more.
    pub async fn put(&mut self, bytes: Bytes) -> Result<(), TransportError> {
        let sent = self.0.send(BodyPart::Data(bytes)).await;
        let over = || TransportError::Broke("the response is not read any more".to_owned());
        sent.map_err(|_| over())?;
        if self.0.is_closed() { Err(over()) } else { Ok(()) }
    }

    /// The body ends in order, with trailers if it has any.
    pub async fn end(&mut self, trailers: Option<HeaderMap>) {
        // Who does not read it any more needs no end.
        let _ = self.0.send(BodyPart::End(trailers.map(Box::new))).await;
    }

    /// Nobody reads the response any more.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl Parts {
    /// The next part; `None` when the body ended without an end.
    pub fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyPart>> {
        Pin::new(&mut self.0).poll_next(cx)
    }
}
