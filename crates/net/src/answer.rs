//! Answers on their way: each has a time to be taken in, and a connection has a bound of what waits on it.
//!
//! Whoever asks and does not read holds what was answered in memory, for as long as its connection lives. A body
//! that is all there is handed on in parts, so that it lasts until its reader took in the last of them. Small ones,
//! as the answers to unchanged check-ins, are not worth it: a peer can have few of them at a time.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::task::AbortHandle;

/// How many bytes a second of an answer must be taken in at least, beside the time that the smallest has.
pub(crate) const SLOWEST: u64 = 8 * 1024;
/// An answer of no more bytes is not counted.
const SMALL: usize = 4 * 1024;
/// The largest part of an answer that is handed on at once, in bytes.
const PART: usize = 64 * 1024;

/// The answers that are on their way on one connection, and how it is asked to close.
pub(crate) trait UnreadAnswers: Send + Sync + 'static {
    /// The bytes of all of them.
    fn unread(&self) -> &AtomicUsize;

    /// One was not taken in in time, or too many wait: the connection is to close.
    fn overdue(&self);
}

/// How much may be on its way, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerLimits {
    /// How long the smallest answer may take.
    pub(crate) within: Duration,
    /// Bytes that may wait on a connection; one answer alone may have more.
    pub(crate) unread: usize,
}

/// The body of an answer on its way.
pub(crate) enum AnswerBody<B> {
    /// It is all there, and counted.
    Whole(Box<WholeAnswer<B>>),
    /// It is small, or still being written and has bounds of its own.
    Uncounted(B),
}

/// A body that is all there, until it is taken in.
pub(crate) struct WholeAnswer<B> {
    body: B,
    /// Of the last frame.
    rest: Bytes,
    answers: Arc<dyn UnreadAnswers>,
    bytes: usize,
    timer: AbortHandle,
}

impl<B> Drop for WholeAnswer<B> {
    fn drop(&mut self) {
        self.timer.abort();
        self.answers.unread().fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Sends a body under the bounds of its connection.
pub(crate) fn send<B: Body>(body: B, answers: Arc<dyn UnreadAnswers>, limits: AnswerLimits) -> AnswerBody<B> {
    let bytes = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
    if bytes <= SMALL {
        return AnswerBody::Uncounted(body);
    }
    let before = answers.unread().fetch_add(bytes, Ordering::Relaxed);
    if before > 0 && before.saturating_add(bytes) > limits.unread {
        answers.overdue();
    }
    let within = limits.within + Duration::from_secs(bytes as u64 / SLOWEST);
    let late = answers.clone();
    let timer = tokio::spawn(async move {
        tokio::time::sleep(within).await;
        late.overdue();
    });
    let timer = timer.abort_handle();
    AnswerBody::Whole(Box::new(WholeAnswer { body, rest: Bytes::new(), answers, bytes, timer }))
}

impl<B: Body<Data = Bytes, Error = Infallible> + Unpin> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let whole = match &mut *self {
            AnswerBody::Uncounted(body) => return Pin::new(body).poll_frame(cx),
            AnswerBody::Whole(whole) => whole,
        };
        if whole.rest.is_empty() {
            match Pin::new(&mut whole.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => whole.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return other,
            }
        }
        // The last byte goes alone: it is asked for when there is room behind all before it, so that what was
        // handed on and is not taken in yet is still counted.
        let part = whole.rest.len().saturating_sub(1).clamp(1, PART);
        Poll::Ready(Some(Ok(Frame::data(whole.rest.split_to(part)))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            AnswerBody::Uncounted(body) => body.is_end_stream(),
            AnswerBody::Whole(whole) => whole.rest.is_empty() && whole.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            AnswerBody::Uncounted(body) => body.size_hint(),
            AnswerBody::Whole(whole) => {
                let (hint, rest) = (whole.body.size_hint(), whole.rest.len() as u64);
                SizeHint::with_exact(hint.exact().unwrap_or(hint.lower()) + rest)
            }
        }
    }
}
