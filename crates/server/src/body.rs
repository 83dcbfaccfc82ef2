//! Bodies of responses: whole, or going on while a stream lives.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use streams::body::{BodyPart, Parts};

/// A response's body.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// All of it.
    Whole(Full<Bytes>),
    /// What comes as it comes; then trailers, if it ends with them.
    Parts(Parts),
}

impl From<Bytes> for ReplyBody {
    fn from(bytes: Bytes) -> ReplyBody {
        ReplyBody::Whole(Full::new(bytes))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            ReplyBody::Whole(whole) => Pin::new(whole).poll_frame(cx),
            ReplyBody::Parts(parts) => match parts.poll_part(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Some(BodyPart::Data(bytes))) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Poll::Ready(Some(BodyPart::End(trailers))) => {
                    Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(*trailers))))
                }
                Poll::Ready(None) => Poll::Ready(None),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ReplyBody::Whole(whole) => whole.is_end_stream(),
            ReplyBody::Parts(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ReplyBody::Whole(whole) => whole.size_hint(),
            ReplyBody::Parts(_) => SizeHint::default(),
        }
    }
}
