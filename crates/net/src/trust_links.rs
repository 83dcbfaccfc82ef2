//! [`fetch`]: the links of the chain of trust documents, of whoever answers (IDN-8).
//!
//! Who does not believe a control plane's certificate asks it for the trust documents after the one that it holds: a root
//! key signed each, so that it does not matter who hands them on. By them the certificate may be believed.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use model::Digest;
use trust::chain::{self, ChainHead, MAX_LINKS, MAX_VERSION};
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

/// Follows the documents of whoever answers from the one that is held, as far as root keys signed them and answers come.
pub async fn follow(to: impl Into<Destination>, held: ChainHead) -> ChainHead {
    let (to, mut head) = (to.into(), held);
    // The longest chain there may be takes so many answers, and one more that holds nothing.
    for _ in 0..=MAX_VERSION / MAX_LINKS as u64 {
        let answer = match fetch(to.clone(), &head.digest).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::debug!(error = %model::text::chain(&error), "no newer trust documents are found");
                break;
            }
        };
        let walk = chain::walk(&head, &answer.links);
        head = walk.head;
        if walk.followed == 0 {
            break;
        }
    }
    head
}
