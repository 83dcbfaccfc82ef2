//! Bodies of requests: read within their bounds of bytes and time, unpacked within them (WIR-6).

use std::time::Duration;

use bytes::Bytes;
use http::header;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use wire::body::{self, BodyError, JSON};
use wire::{Code, Problem};

/// How long a JSON body may take to arrive; an agent waits no longer for its answer.
pub(crate) const WITHIN: Duration = Duration::from_secs(60);

/// Whether the answer may be compressed.
pub(crate) fn accepts_gzip(parts: &http::request::Parts) -> bool {
    let accepted = parts.headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|codings| codings.contains(body::GZIP))
}

/// Reads a body as sent, within its bounds, and checks its declared type.
pub(crate) async fn read(
    parts: &http::request::Parts,
    body: Incoming,
    limit: usize,
    within: Duration,
) -> Result<Bytes, Problem> {
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let base = kind.map(|kind| kind.split(';').next().unwrap_or("").trim());
    if parts.method == http::Method::POST && base != Some(JSON) {
        return Err(Code::MediaType.into());
    }
    read_any(body, limit, within).await
}

/// Reads a body of any type, within its bound of bytes and time.
pub(crate) async fn read_any<B>(body: B, limit: usize, within: Duration) -> Result<Bytes, Problem>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match tokio::time::timeout(within, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err(BodyError::TooLarge { limit }.into())
        }
        Ok(Err(_)) => Err(Problem::new(Code::BadBody, "the body broke off")),
        Err(_) => {
            let detail = format!("the body did not arrive within {} s", within.as_secs());
            Err(Problem::new(Code::BadBody, detail))
        }
    }
}

/// Lets the body of a request that is refused go by, as far as it may be long and take, and keeps nothing of it:
/// a sender that is cut off in the middle, a proxy say, may not read why.
pub(crate) async fn discard(mut body: Incoming, limit: usize, within: Duration) {
    let all = async {
        let mut left = limit;
        while let Some(Ok(frame)) = body.frame().await {
            let Some(less) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { return };
            left = less;
        }
    };
    // Late is as good as cut off.
    let _ = tokio::time::timeout(within, all).await;
}

/// Undoes a body's content coding, within its bound.
pub(crate) fn unpacked(parts: &http::request::Parts, body: Bytes, limit: usize) -> Result<Bytes, Problem> {
    let coding = parts.headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok());
    match coding {
        None | Some("identity") => Ok(body),
        Some(_) => Ok(body::unpack(body.to_vec(), coding, limit)?.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    /// A body whose end never comes: a frame now, then nothing.
    struct Endless(Option<Bytes>);

    impl Body for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.take() {
                Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
                None => Poll::Pending,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let body = Endless(Some(Bytes::from_static(b"{")));
        let problem = read_any(body, 1024, WITHIN).await.expect_err("it never came");
        assert_eq!(problem.code, Code::BadBody.as_str());
        assert!(problem.detail.unwrap().contains("within 60 s"));
    }
}
