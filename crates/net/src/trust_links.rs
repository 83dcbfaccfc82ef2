//! [`fetch`]: the links of the chain of trust documents, of whoever answers (IDN-8).
//!
//! Who does not believe a control plane's certificate asks it for the trust documents after the one that it holds: a root
//! key signed each, so that it does not matter who hands them on. By them the certificate may be believed.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use model::Digest;
use wire::body::{self, BodyError};
use wire::enroll::{MAX_TRUST_LINKS, TrustLinksAnswer};
use wire::headers::{PROTOCOL, PROTOCOL_HEADER};
use wire::route;

use crate::client::{Client, ClientError, Destination};
use crate::tls::{self, TlsError};

/// How long the answer may take.
const WITHIN: Duration = Duration::from_secs(15);

/// Why there are no links.
#[derive(Debug, thiserror::Error)]
pub enum FetchLinksError {
    /// The library refuses.
    #[error("no TLS session can be opened")]
    Tls(#[from] TlsError),
    /// Nobody answers.
    #[error("the trust documents cannot be asked for")]
    Reach(#[from] ClientError),
    /// The request cannot be put together.
    #[error("the request cannot be made")]
    Request(#[from] http::Error),
    /// It has none for who holds that document.
    #[error("whoever answers has no trust documents for this fleet: {0}")]
    Refused(StatusCode),
    /// Its answer is something else.
    #[error("the answer holds no trust documents")]
    Answer(#[from] BodyError),
}

/// The trust documents after the one with this digest. Nothing of the answer is verified here, and nothing else is said to
/// whoever answers.
///
/// # Errors
/// [`FetchLinksError`] says what is in the way.
pub async fn fetch(to: impl Into<Destination>, after: &Digest) -> Result<TrustLinksAnswer, FetchLinksError> {
    let to = to.into();
    let uri = format!("https://{}{}", to.url.authority(), route::trust_links_after(after));
    let request = Request::get(uri).header(PROTOCOL_HEADER, PROTOCOL).body(Full::new(Bytes::new()))?;
    let mut client = Client::dial(to, tls::client_of_anybody()?).await?;
    let answer = client.call(request, MAX_TRUST_LINKS, WITHIN).await?;
    match answer.status() {
        StatusCode::OK => Ok(body::decode(answer.body())?),
        status => Err(FetchLinksError::Refused(status)),
    }
}
