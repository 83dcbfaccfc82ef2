//! [`exchange`]: one request and its answer over HTTP/1.1, on whatever stream leads there: the agent's own socket, or what
//! a probe asks. Compiled once for all of them.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::rt::TokioIo;
use net::tasks;
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream of bytes of two ways.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpExchangeError {
    /// What answers speaks no HTTP, or ended in the middle.
    #[error("no answer of HTTP")]
    Http(#[from] hyper::Error),
    /// It goes on beyond what is read.
    #[error("the answer is too long")]
    TooLong,
    /// Its body ended in the middle.
    #[error("the answer cannot be read")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Makes a request; gives the status and the body, of at most so many bytes.
///
/// # Errors
/// [`HttpExchangeError`]: there is no whole answer.
pub(crate) async fn exchange(
    stream: Box<dyn ByteStream>,
    request: Request<Full<Bytes>>,
    most: usize,
) -> Result<(StatusCode, Bytes), HttpExchangeError> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with this exchange, also where that is given up.
    let connection = AbortedTask(tasks::spawn(async move { drop(connection.await) }));
    let response = sender.send_request(request).await?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, most).collect().await;
    drop(connection);
    match body {
        Ok(body) => Ok((parts.status, body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Err(HttpExchangeError::TooLong),
        Err(error) => Err(HttpExchangeError::Body(error)),
    }
}

/// A task that ends when nobody waits for it any more.
struct AbortedTask(tokio::task::JoinHandle<()>);

impl Drop for AbortedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
