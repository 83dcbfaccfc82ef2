//! [`Operator`]: the operator port, called.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use lang::Pattern;
use model::Digest;
use net::client::{Client, ClientError};
use net::tls::{self, ClientKey, TlsError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use server::api::operation::{Operation, Page};
use server::api::{self, CONTENTS, MAX_JSON, pack_contents};
use server::{Credentials, OperatorProof};
use trust::token::TlsTermination;
use wire::body::{self, BodyError, GZIP, JSON};
use wire::headers::{PROTOCOL, PROTOCOL_HEADER};
use wire::percent::encode_component;
use wire::problem::PROBLEM_JSON;
use wire::{Code, Problem};

use crate::authority;
use crate::exit::Exit;
use crate::failure::UserError;

/// How long a content may take, either way.
const TRANSFER: Duration = Duration::from_secs(180);
/// The largest content that is read.
const MAX_CONTENT: usize = model::object::MAX_BLOB as usize;

/// Why the control plane did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum OperatorCallError {
    /// The credentials cannot be used for TLS.
    #[error("the operator's credentials cannot be used")]
    Credentials(#[source] TlsError),
    /// The credentials hold a token that is none.
    #[error("the operator's token cannot be sent")]
    Token,
    /// It cannot be spoken to.
    #[error("the control plane does not answer")]
    Unreachable(#[source] ClientError),
    /// What answers is not believed, and the credentials hold nothing that could lead to another CA.
    #[error("the credentials hold no trust document, which would lead to a CA that took the place of theirs")]
    Stranded(#[source] Box<OperatorCallError>),
    /// It refused.
    #[error("the control plane refuses: {0}")]
    Refused(Box<Problem>),
    /// Its answer is not what this program knows.
    #[error("the answer to {path} cannot be read")]
    Answer {
        /// What was asked.
        path: String,
        /// What is wrong with it.
        #[source]
        source: BodyError,
    },
    /// It answered with a status and nothing that explains it.
    #[error("the answer to {path} is {status}, without a reason")]
    Status {
        /// What was asked.
        path: String,
        /// The HTTP status.
        status: StatusCode,
    },
    /// The request cannot be made.
    #[error("the request {path} cannot be made")]
    Request {
        /// What was to be asked.
        path: String,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl OperatorCallError {
    /// The control plane refused with this code.
    pub fn is(&self, code: Code) -> bool {
        self.code() == Some(code.as_str())
    }
}

impl UserError for OperatorCallError {
    fn exit(&self) -> Exit {
        let policy = [
            Code::ReleaseRefused,
            Code::NotEntitled,
            Code::OtherNode,
            Code::CertificateRequired,
            Code::SyncOff,
            Code::NotDelegated,
            Code::UnknownKind,
            Code::OperatorRequired,
            Code::OperatorRefused,
            Code::RoleRequired,
            Code::OutsideScope,
        ];
        match self {
            OperatorCallError::Unreachable(_) | OperatorCallError::Stranded(_) => Exit::Unreachable,
            OperatorCallError::Refused(_) if policy.iter().any(|code| self.is(*code)) => Exit::Refused,
            _ => Exit::Error,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            OperatorCallError::Unreachable(
                ClientError::Handshake { .. } | ClientError::ForeignServer { .. } | ClientError::NotTls { .. },
            ) => Some(
                "the credentials are of another control plane, or of a CA that was replaced, or a proxy answers; use \
                 the operator.json that this one wrote, and its operator port itself"
                    .to_owned(),
            ),
            OperatorCallError::Stranded(_) => Some(
                "if the fleet's CA was replaced, have an admin add you anew (muster operator add NAME); on the control plane's \
                 host its operator.json counts. If it was not, somebody else answers"
                    .to_owned(),
            ),
            OperatorCallError::Unreachable(ClientError::ServerCertificateEnded { .. }) => Some(
                "set this host's clock right; if it is, start the control plane anew, which renews its certificate"
                    .to_owned(),
            ),
            OperatorCallError::Unreachable(_) => {
                Some("is `muster server` running, and can its operator port be reached from here?".to_owned())
            }
            // What an admin types is not typed with these credentials.
            OperatorCallError::Refused(problem) if self.is(Code::RoleRequired) => {
                problem.help.as_ref().map(|help| help.replace('`', ""))
            }
            OperatorCallError::Refused(problem) => problem.help.clone(),
            OperatorCallError::Answer { .. } | OperatorCallError::Status { .. } => {
                Some("use a muster of the control plane's version".to_owned())
            }
            _ => None,
        }
    }

    fn code(&self) -> Option<&str> {
        match self {
            OperatorCallError::Refused(problem) => Some(&problem.code),
            _ => None,
        }
    }
}

type Called<T> = Result<T, OperatorCallError>;

/// A session with a control plane's operator port.
#[derive(Clone, Debug)]
pub struct Operator {
    client: Client,
    /// What each request shows, where no certificate does; marked as a secret.
    token: Option<HeaderValue>,
}

impl Operator {
    /// Connects. Where the fleet's CA was replaced, the credentials follow the chain of trust documents to the one that
    /// counts, and so does the file that they were read from (IDN-8).
    ///
    /// # Errors
    /// When the credentials cannot be used, or the control plane does not answer.
    pub async fn dial(credentials: &Credentials) -> Called<Operator> {
        match Operator::dial_believing(credentials).await {
            Err(error @ OperatorCallError::Unreachable(ClientError::ForeignServer { .. })) => {
                match authority::followed(credentials).await {
                    Some(followed) => {
                        let operator = Operator::dial_believing(&followed).await?;
                        authority::keep(&followed);
                        Ok(operator)
                    }
                    None if credentials.trust.is_none() => Err(OperatorCallError::Stranded(Box::new(error))),
                    None => Err(error),
                }
            }
            Ok(operator) => {
                authority::tell_untrusting(credentials);
                Ok(operator)
            }
            Err(error) => Err(error),
        }
    }

    async fn dial_believing(credentials: &Credentials) -> Called<Operator> {
        let unusable = OperatorCallError::Credentials;
        let authority = authority::believed(credentials);
        let (tls, token) = match credentials.proof() {
            OperatorProof::Certificate { cert_pem, key_pem } => {
                let key = ClientKey::Pem(key_pem);
                (tls::client_believing(authority, cert_pem, key).map_err(unusable)?, None)
            }
            OperatorProof::Token(token) => {
                let header = HeaderValue::try_from(format!("Bearer {token}"));
                let mut header = header.map_err(|_| OperatorCallError::Token)?;
                header.set_sensitive(true);
                let tls = tls::client_without_certificate(authority, TlsTermination::ControlPlane);
                (tls.map_err(unusable)?, Some(header))
            }
        };
        let client = Client::dial(&credentials.url, tls).await.map_err(OperatorCallError::Unreachable)?;
        Ok(Operator { client, token })
    }

    /// Bytes sent so far.
    pub fn sent(&self) -> u64 {
        self.client.traffic.up.load(Ordering::Relaxed)
    }

    /// Whether the connection is gone.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Has the control plane do one of its operations.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub async fn call<Q, A>(&self, operation: &Operation<Q, A>, request: impl Into<Q>) -> Called<A>
    where
        Q: Serialize,
        A: DeserializeOwned,
    {
        self.page(operation, &request.into(), None).await
    }

    /// The items of all pages of a listing.
    ///
    /// # Errors
    /// When the control plane does not answer, or refuses.
    pub async fn all<Q, A>(&self, operation: &Operation<Q, A>, request: impl Into<Q>) -> Called<Vec<A::Item>>
    where
        Q: Serialize,
        A: DeserializeOwned + Page,
    {
        let (mut pages, mut all) = (self.pages(operation, request), Vec::new());
        while let Some(page) = pages.next().await? {
            all.extend(page.items());
        }
        Ok(all)
    }

    /// The hostnames of the enrolled nodes that are meant. Of what else is known of a node nothing is held: a fleet is
    /// larger than a page of it.
    ///
    /// # Errors
    /// When the control plane does not answer.
    pub(crate) async fn enrolled(&self, selector: Option<&Pattern>) -> Called<BTreeSet<String>> {
        let (mut pages, mut hostnames) =
            (self.pages(&api::NODES, selector.map(Pattern::as_str)), BTreeSet::new());
        while let Some(page) = pages.next().await? {
            hostnames.extend(page.nodes.into_iter().map(|node| node.hostname.to_string()));
        }
        Ok(hostnames)
    }

    /// A listing, one page after the other.
    pub fn pages<'a, Q, A>(
        &'a self,
        operation: &'a Operation<Q, A>,
        request: impl Into<Q>,
    ) -> Pages<'a, Q, A> {
        self.pages_from(operation, request, PageStart::default())
    }

    /// As [`Operator::pages`], from a page on.
    pub fn pages_from<'a, Q, A>(
        &'a self,
        operation: &'a Operation<Q, A>,
        request: impl Into<Q>,
        start: PageStart,
    ) -> Pages<'a, Q, A> {
        Pages { operator: self, operation, request: request.into(), from: Some(start) }
    }

    /// A content.
    ///
    /// # Errors
    /// When the control plane does not answer, or has none with this digest.
    pub async fn content(&self, digest: &Digest) -> Called<Bytes> {
        let request = self.request(Method::GET, &format!("{CONTENTS}/{digest}"), JSON, Bytes::new())?;
        self.send(request, MAX_CONTENT, TRANSFER).await
    }

    /// Stores contents.
    ///
    /// # Errors
    /// When the control plane does not answer, or cannot store them.
    pub async fn put_contents(&self, contents: &[&[u8]]) -> Called<()> {
        let body = pack_contents(contents.iter().copied());
        let request = self.request(Method::POST, CONTENTS, "application/octet-stream", body.into())?;
        self.send(request, MAX_JSON, TRANSFER).await.map(drop)
    }

    async fn page<Q, A>(&self, operation: &Operation<Q, A>, request: &Q, from: Option<&str>) -> Called<A>
    where
        Q: Serialize,
        A: DeserializeOwned,
    {
        let mut path = operation.uri(request).map_err(unmade(operation.path))?;
        if let Some(from) = from {
            let sign = if path.contains('?') { '&' } else { '?' };
            path.push_str(&format!("{sign}from={}", encode_component(from)));
        }
        let body = operation.body(request).map_err(unmade(&path))?;
        let request = self.request(operation.method.clone(), &path, JSON, body.into())?;
        let bytes = self.send(request, MAX_JSON, operation.within).await?;
        body::decode(&bytes).map_err(|source| OperatorCallError::Answer { path, source })
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        kind: &'static str,
        body: Bytes,
    ) -> Called<Request<Full<Bytes>>> {
        let uri = format!("https://{}{path}", self.client.url().authority());
        let packed = body::compress(&body);
        let coding = packed.as_ref().map(|_| HeaderValue::from_static(GZIP));
        let body = packed.map_or(body, Bytes::from);
        let built = Request::builder().method(method).uri(uri).body(Full::new(body));
        let mut request = built.map_err(unmade(path))?;
        let headers = request.headers_mut();
        headers.insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(GZIP));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.extend(coding.map(|coding| (header::CONTENT_ENCODING, coding)));
        headers.extend(self.token.clone().map(|token| (header::AUTHORIZATION, token)));
        Ok(request)
    }

    /// Sends a request; gives the body of a good answer, unpacked.
    async fn send(&self, request: Request<Full<Bytes>>, limit: usize, timeout: Duration) -> Called<Bytes> {
        let path = request.uri().path().to_owned();
        let mut client = self.client.clone();
        let response = client.call(request, limit, timeout).await.map_err(OperatorCallError::Unreachable)?;
        let text = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let (status, is_problem) = (response.status(), text(header::CONTENT_TYPE) == Some(PROBLEM_JSON));
        let bytes = match text(header::CONTENT_ENCODING) {
            None => response.body().clone(),
            coding => {
                let unpacked = body::unpack(response.body().to_vec(), coding, limit);
                unpacked.map_err(|source| OperatorCallError::Answer { path: path.clone(), source })?.into()
            }
        };
        if status.is_success() {
            return Ok(bytes);
        }
        match body::decode::<Problem>(&bytes) {
            Ok(problem) if is_problem => Err(OperatorCallError::Refused(Box::new(problem))),
            Ok(_) | Err(_) => Err(OperatorCallError::Status { path, status }),
        }
    }
}

fn unmade<E: std::error::Error + Send + Sync + 'static>(path: &str) -> impl FnOnce(E) -> OperatorCallError {
    let path = path.to_owned();
    move |error| OperatorCallError::Request { path, source: Box::new(error) }
}

/// Where a page of a listing begins; the first one by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageStart(Option<String>);

/// The pages of a listing under way.
pub struct Pages<'a, Q, A> {
    operator: &'a Operator,
    operation: &'a Operation<Q, A>,
    request: Q,
    /// Where the next page begins; `None` behind the last.
    from: Option<PageStart>,
}

impl<Q: Serialize, A: DeserializeOwned + Page> Pages<'_, Q, A> {
    /// The next page; `None` behind the last.
    ///
    /// # Errors
    /// When the control plane does not answer, or refuses.
    pub async fn next(&mut self) -> Called<Option<A>> {
        let Some(from) = self.from.take() else { return Ok(None) };
        let page: A = self.operator.page(self.operation, &self.request, from.0.as_deref()).await?;
        self.from = page.next_page().map(|next| PageStart(Some(next)));
        Ok(Some(page))
    }

    /// Where the next page begins; `None` behind the last.
    pub fn next_start(&self) -> Option<&PageStart> {
        self.from.as_ref()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use model::Timestamp;
    use net::tls::EndedServerCertificate;

    use super::*;

    /// IDN-11: the control plane runs and is reached; one of two clocks is wrong.
    #[test]
    fn a_certificate_that_has_ended_leads_to_the_clock() {
        let source = EndedServerCertificate { end: Timestamp(1), clock: Timestamp(2) };
        let url = "https://127.0.0.1:1".parse().unwrap();
        let error = OperatorCallError::Unreachable(ClientError::ServerCertificateEnded { url, source });
        let hint = error.hint().unwrap();
        assert!(hint.contains("clock") && !hint.contains("muster server"), "{hint}");
    }
}
